"""The page about performance shows what its script renders from the stored results, and the script runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples import performance, scaling


def _result(method: str, **figures: Any) -> dict[str, Any]:
    fixed = {"import": 1.0, "first": 2.0, "first_cpu": 2.0, "later": 0.5, "later_cpu": 0.5, "peak": 300.0, "clusters": 8}
    return {"kind": "fit", "rows": 1000, "method": method, **fixed, "ari": 0.5, "density": None} | figures


def test_tables_are_those_of_the_results() -> None:
    page, results = performance.PAGE.read_text(encoding="utf-8"), json.loads(performance.RESULTS.read_text(encoding="utf-8"))
    message = "docs/performance.json has changed: run `python -m examples.performance --tables`, and commit docs/performance.md"
    assert page == scaling.with_tables(page, results, performance.TABLES), message


def test_results_are_of_all_cells() -> None:
    results = json.loads(performance.RESULTS.read_text(encoding="utf-8"))
    measured = [result for result in results if result["kind"] == "fit"]
    planned = performance.cells(False)
    assert [{name: result.get(name) for name in cell} for cell, result in zip(planned, measured, strict=True)] == planned
    assert all("not run" in result or result["later_cpu"] > 0 for result in measured)
    assert not [result for result in measured if "failed" in result.get("not run", "")]


def test_only_what_is_worse_is_listed_as_lost() -> None:
    """Faster and less accurate than the best of the others: one line for accuracy, and none for time."""
    results = [
        _result("`MAPDP`", ari=0.6, density=-13.0),
        _result("`HDBSCAN`", ari=0.8, later_cpu=2.0, first_cpu=4.0),
        _result("`BayesianGaussianMixture`", ari=0.4, density=-13.5, later_cpu=1.5, first_cpu=2.5),
    ]
    (line,) = performance.losses(results).splitlines()[2:]
    assert line == "| 1,000 × 8 | ARI | `MAPDP` 0.60 | `HDBSCAN` 0.80 | -0.20 |"


@pytest.mark.slow
def test_quick_run(tmp_path: Path) -> None:
    pytest.importorskip("fastcluster")
    pytest.importorskip("hdbscan")
    out = tmp_path / "results.json"
    words = [sys.executable, performance.__file__, "--quick", "--out", str(out), "--limit", "300"]
    printed = subprocess.run(words, capture_output=True, text=True, timeout=1500, check=True).stdout
    machine, *results = json.loads(out.read_text(encoding="utf-8"))
    assert len(results) == len(performance.cells(True)) and not any("not run" in result for result in results)
    assert machine["packages"]["bnp_hier"] != "not installed" and all(result["ari"] > 0.5 for result in results)
    assert "| iris, 100 × 4 | `MAPDP` | bnp_hier |" in printed
