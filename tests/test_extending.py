"""What is added from outside takes part everywhere: a family, an estimator, a kernel and a command, without another file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import typer

import bnp_hier as bnp
from bnp_hier import cli, components, methods
from bnp_hier.capabilities import Clustering
from bnp_hier.components.hints import Columns
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.inspection.problem import Problem
from bnp_hier.methods import Method, RunOptions, chains_of, run_methods
from bnp_hier.runs import plain_objects
from tests.components.user_family import ExponentialGamma

X = np.random.default_rng(0).exponential(size=(24, 2)) * np.where(np.arange(24) < 12, 1.0, 30.0)[:, None]


class Waiting(ExponentialGamma):
    """Waiting times, whose prior is read off the data."""

    @classmethod
    def from_data(cls, X: Any) -> Waiting:
        rows = np.asarray(X, dtype=float)
        return cls(np.full(rows.shape[1], 2.0), 2.0 * np.nanmean(rows, axis=0))

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        return "all numbers are positive" if (columns.values > 0).all() else None

    def prior_rows(self, X: np.ndarray) -> dict[str, float]:
        return {"a": float(np.max(np.asarray(self.a)))}


class Halves(DeterministicClustering):
    """Two clusters: rows below and above the median of their sums."""

    def __init__(self, model: Any = bnp.models.dpm, optimize: bool = False) -> None:
        self.model, self.optimize = model, optimize

    def _fit(self, problem: Problem) -> None:
        sums = np.asarray(problem.X).sum(1)
        self._finish(problem, (sums > np.median(sums)).astype(int))


class Patient(bnp.PartitionGibbs):
    """A kernel on the sites that `PartitionGibbs` finds."""


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each takes one line, and is taken out again."""
    monkeypatch.setattr(plain_objects, "_REGISTERED", dict(plain_objects._REGISTERED))
    families = dict(components.FAMILIES)
    components.FAMILIES.clear()
    components.FAMILIES.update({"waiting": Waiting, **families})
    methods.register(
        Method("halves", "Halves", "two halves", lambda model, X, _: Halves(model).fit(X), lambda *_: 0.5, fitted=Halves),
        Method("patient", "Patient", "draws", chains_of(Patient), lambda size, options: 0.0003 * options.sweeps, is_chain=True),
    )
    yield
    del methods.METHODS["halves"], methods.METHODS["patient"]
    components.FAMILIES.clear()
    components.FAMILIES.update(families)


def _run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["bnp-hier", *map(str, words)])
    monkeypatch.setattr(cli, "keep_programs", lambda: None)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


@pytest.mark.slow
def test_in_a_recommendation_and_a_comparison(added: None) -> None:
    advice = bnp.recommend(X, budget=30.0, progress_bar=False)
    assert advice.family == "waiting" and advice.family_reason == "all numbers are positive"
    assert type(advice.component) is Waiting and {"halves", "patient"} <= set(advice.chosen)
    strong = partial(bnp.models.dpm, component=Waiting(jnp.full(2, 500.0), jnp.full(2, 500.0)))
    assert any("the prior outweighs the data: a counts as 500 rows" in warning for warning in bnp.check_model(strong, X))
    outcome = run_methods(["halves", "patient"], advice.model, X, RunOptions(2, 20, 20, progress_bar=False))
    table = bnp.compare(outcome.fits, X, held_out=X[:3])
    assert list(table.index) == ["Halves", "Patient"] and np.isfinite(table["held_out"]).all()
    assert isinstance(outcome.fits["Halves"], Clustering)
    idata = bnp.to_arviz(outcome.fits["Halves"], X)
    assert np.asarray(idata["posterior"]["z"]).shape == (1, 1, 24)


@pytest.mark.slow
def test_on_the_command_line(
    added: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "times.csv"
    np.savetxt(data, X, delimiter=",", header="first,second", comments="")
    out = tmp_path / "report"
    assert _run(monkeypatch, "compare", data, "--methods", "halves,map-dp", "--out", out, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in answer["methods"]] == ["MAP-DP", "Halves"]
    assert "Halves" in (out / "report.html").read_text() and "Halves" in (out / "labels.csv").read_text()
    fit = tmp_path / "halves.npz"
    words = ("--family", "diagonal")  # a file without the model holds built-in families only
    assert _run(monkeypatch, "fit", data, "--method", "halves", *words, "--out", fit) == 0
    saved = bnp.load_fit(fit)
    assert type(saved.fit) is Halves and saved.method == "halves"
    np.testing.assert_array_equal(np.bincount(saved.labels), [12, 12])
    assert _run(monkeypatch, "predict", fit, data, "--out", tmp_path / "predictions.csv") == 0


def test_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def greet(name: str) -> None:
        """Say hello."""
        typer.echo(f"hello {name}")

    monkeypatch.setattr(cli.app, "registered_commands", list(cli.app.registered_commands))
    cli.register(greet, "bnp-hier greet you")
    assert _run(monkeypatch, "greet", "you") == 0 and capsys.readouterr().out == "hello you\n"
    assert _run(monkeypatch, "greet", "--help") == 0 and "bnp-hier greet you" in capsys.readouterr().out
