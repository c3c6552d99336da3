"""No command writes over what it reads, and it says so before any work."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier import cli
from bnp_hier.commands.options import TableOptions
from bnp_hier.datasets import Dataset
from bnp_hier.runs.saved_fit import SavedFit

X = np.random.default_rng(0).normal(size=(20, 2)) + 8.0 * (np.arange(20) % 2)[:, None]


def _run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["bnp-hier", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pd.DataFrame(X, columns=["a", "b"]).to_csv(tmp_path / "table.csv", index=False)
    os.link(tmp_path / "table.csv", tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to("table.csv")
    (tmp_path / "tree.svg").symlink_to("table.csv")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "labels.csv").symlink_to("../table.csv")
    return tmp_path / "table.csv"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fit = bnp.AgglomerativeBayesianClustering(progress_bar=False).fit(X)
    saved = SavedFit(fit, Dataset("two", X, None, ("a", "b"), tuple(f"i{i}" for i in range(20)), ""), "agglomerative", "normal")
    return saved.save(tmp_path_factory.mktemp("fits") / "fit.csv")  # a name tells nothing


@pytest.fixture(autouse=True)
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "keep_programs", lambda: None)

    def work(*_: object, **__: object) -> None:
        raise AssertionError("work began")

    monkeypatch.setattr(TableOptions, "read", work)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("fit {d}/table.csv --out {d}/table.csv", "--out {d}/table.csv is also the data"),
        ("fit {d}/table.csv --out {d}/hard.csv", "--out {d}/hard.csv is also the data"),
        ("fit {d}/table.csv --out {d}/folder/../soft.csv", "is also the data"),
        ("fit {d}/soft.csv --labels {d}/table.csv", "--labels {d}/table.csv is also the data"),
        ("fit {d}/table.csv --out {d}/x --labels {d}/folder/../x", "is also the output of --out"),
        ("fit {d}/table.csv --out {d}/folder", "--out {d}/folder is a folder, expected a file name"),
        ("fit {d}/table.csv --out {d}/table.csv/x", "cannot be written: {d}/table.csv is a file, not a folder"),
        ("predict {fit} {d}/table.csv --out {fit}", "is also the fit"),
        ("predict {fit} {d}/table.csv --out {d}/soft.csv", "is also the data"),
        ("tree {d}/table.csv --out {d}/tree.svg", "is also the data"),
        ("tree {d}/table.csv --out {d}/t.svg --out {d}/t.svg", "is also the output of --out"),
        ("compare {d}/table.csv --out {d}/table.csv", "{d}/table.csv is a file, not a folder"),
        ("compare {d}/table.csv --out {d}/folder", "--out {d}/folder/labels.csv is also the data"),
        ("evidence {d}/table.csv --out {d}/table.csv", "is also the data"),
        ("evidence {d}/table.csv --plot {d}/tree.svg", "is also the data"),
        ("evidence {d}/table.csv --plot {d}/x.foo", "found a file name ending in '.foo', expected .png, .svg, .pdf"),
        ("evidence {d}/table.csv --plot {d}/x.png --out {d}/x.png", "is also the output of --out"),
    ],
)
def test_outputs_are_refused_before_any_work(
    words: str, match: str, table: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    before = {path.name: path.read_bytes() for path in (table, saved)}
    names = sorted(table.parent.rglob("*"))
    assert _run(monkeypatch, *words.format(d=table.parent, fit=saved).split()) == 1
    message = capsys.readouterr().err
    assert match.format(d=table.parent) in message and message.count("\n") == 1
    assert {path.name: path.read_bytes() for path in (table, saved)} == before
    assert sorted(table.parent.rglob("*")) == names


def test_a_saved_fit_is_recognised_by_its_content(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """A fit has a tree to draw whatever the name of its file; and a name alone makes no file a fit."""
    out = [tmp_path / "tree.nwk", tmp_path / "tree.html"]
    assert _run(monkeypatch, "tree", saved, "--json", *(word for file in out for word in ("--out", file))) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["newick"] + "\n" == out[0].read_text() and "i19" in answer["newick"] and max(answer["labels"]) == 1
    assert "tree by Agglomerative" in out[1].read_text()
    (tmp_path / "plain.npz").write_text("a,b\n1,2\n")
    with pytest.raises(AssertionError, match="work began"):
        _run(monkeypatch, "tree", tmp_path / "plain.npz")
