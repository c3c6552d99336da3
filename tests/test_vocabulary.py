"""Words that were replaced before the first release stay out of code, messages, reports and pages (CHANGELOG has the table)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bnp_hier

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(bnp_hier.__file__).parent

REPLACED = {
    r"routes?": "method",
    r"refused[ _]mass": "truncated probability",
    r"piece(?:_fields)?=": "checkpoint_every=, chunk_fields=",
    r"pictures?": "figure, plot",
    r"missing cells?": "missing value",
    r"holes?": "missing value",
    r"knows again": "recognises by identity",
    r"is told|are told|told below|told in": "reported, shown",
    r"gifts?": "pseudo-count",
    r"meeting[ _]depth": "lca_depth",
    r"regraft=": "prune_regraft=",
    r"central\(": "medoid(",
    r"soft labels?": "responsibilities",
    r"mended|nobody": "repaired, empty",
    r"n_restarts|starts=": "n_init",
    r"n_draws|n_particles|n_orders": "num_samples, num_particles, num_orders",
    r"randomised": "randomized",
    r"(?:log_joint|bound|free_energy)_trace_": "objective_trace_",
    r"stands out": "distinguishing features",
    r"to the last digit|agree roughly": "have converged, have nearly converged",
    r"data frames?|frames of": "DataFrame",
    r"micro clusters?|tree mass": "Bayes k-means tree, tree evidence",
}


def _lines() -> list[tuple[str, str]]:
    folders = [(PACKAGE, "*.py"), (ROOT / "models", "*.py"), (ROOT / "docs", "*.md"), (ROOT / "examples", "*.py")]
    found = [path for folder, ending in folders for path in sorted(folder.rglob(ending))]
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in [*found, ROOT / "README.md"]]
    return [(f"{name}:{number}", line) for name, text in texts for number, line in enumerate(text.splitlines(), 1)]


@pytest.mark.parametrize("word", REPLACED)
def test_replaced_words_stay_out(word: str) -> None:
    pattern = re.compile(rf"(?<![\w]){word}(?!\w)" if word[-1].isalpha() else rf"(?<![\w]){word}", re.IGNORECASE)
    # in identifiers, too
    found = [f"{place}: {line.strip()}" for place, line in _lines() if pattern.search(line)]
    assert not found, f"use {REPLACED[word]!r}"
