"""Chains of the reproductions are stored while they run, and a script that was stopped goes on with them."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.models import bhmc_paper
from tests.reproductions import FOLDER

sys.path.insert(0, str(FOLDER))

import bhmc_common as shared  # noqa: E402
import stored_chains  # noqa: E402
from resuming import progress, unfinished  # noqa: E402
from stored_chains import StoredChains  # noqa: E402

X = np.random.default_rng(0).standard_normal((12, 2))
SIZES = shared.Sizes(chains=2, warmup=24, draws=72, thinning=4)


def _draws(path: Path, prior_variance: float = 1.0) -> tuple[bnp.HierarchyDraws, dict[str, np.ndarray]]:
    room: dict[str, Any] = {"depth": 2, "max_components": 5, "max_nodes": 40}
    model = partial(bhmc_paper, settings="animals", prior_variance=prior_variance, **room)
    return shared.run_chains(bnp.BHMCGibbs(model, **shared.PAPERS_MOVES), X, SIZES, 0, path)


def _options(out: Path, **others: Any) -> argparse.Namespace:
    return argparse.Namespace(out=out, full=False, seed=0, **others)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text("import numpy\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_chains_that_were_stopped_go_on(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same draws as chains that were not."""
    expected, fields = _draws(tmp_path / "whole.npz")
    monkeypatch.setattr(stored_chains, "LOOK", 1e-9)  # after every chunk of 24 sweeps
    monkeypatch.setattr(stored_chains, "SAVE", 0.0)
    note, steps = stored_chains._note_progress, list[int]()

    def noted(path: Path, done: int, total: int) -> None:
        note(path, done, total)
        steps.append(done)
        if steps == [24, 48, 72]:
            raise KeyboardInterrupt

    monkeypatch.setattr(stored_chains, "_note_progress", noted)
    options = _options(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt), StoredChains(options, str(script)) as chains:
        _draws(chains.path("learned"))
    assert progress(options.out, "script") == "learned 72/96 sweeps" and len(unfinished(options.out, "script")) == 1
    with StoredChains(options, str(script)) as chains:
        found, theirs = _draws(chains.path("learned"))
        assert steps == [24, 48, 72, 48, 72, 96]  # the third chunk had not been stored
        again, _ = _draws(chains.path("learned"))
        assert steps[6:] == [96]  # finished, and only read
    for draws in (found, again):
        for name, values in expected.samples.items():
            np.testing.assert_array_equal(draws.samples[name], values)
    np.testing.assert_array_equal(theirs["log_joint"], fields["log_joint"])
    assert not (options.out / "cells").exists() and progress(options.out, "script") == ""


def test_other_sources_and_options_begin_anew(script: Path, tmp_path: Path) -> None:
    def kept(**others: Any) -> bool:
        """Whether the chains of an earlier run are still there; some are left behind in any case."""
        with pytest.raises(KeyboardInterrupt), StoredChains(_options(tmp_path, **others), str(script)) as chains:
            found = chains.path("exact").exists()
            chains.path("exact").touch()
            raise KeyboardInterrupt
        return found

    assert not kept(depth=3) and kept(depth=3)
    assert not kept(depth=4) and kept(depth=3)  # each has its own folder
    script.write_text("import numpy\nprint(1)\n", encoding="utf-8")
    assert not kept(depth=3) and len(unfinished(tmp_path, "script")) == 2


@pytest.mark.slow
def test_chains_of_another_model_begin_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after an update of the package, which is not among the sources of a script."""
    first, _ = _draws(tmp_path / "chains.npz")
    second, _ = _draws(tmp_path / "chains.npz", prior_variance=4.0)
    assert "these chains begin anew: " in capsys.readouterr().err
    assert not np.array_equal(first.samples["paths"], second.samples["paths"])
