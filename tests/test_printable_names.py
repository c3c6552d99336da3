"""Names hold anything: what a terminal, a picture, a page or a tree file would take for more than text is written out."""

from __future__ import annotations

import sys
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier import cli, plots
from bnp_hier.datasets import Dataset
from bnp_hier.runs.saved_fit import SavedFit
from bnp_hier.utils.wording import printable

NASTY = [
    "[bold]",
    "[/x]",
    "\x1b[31mred",
    "a\x01b",
    "$x_$",
    "${",
    "<b>&",
    "\u202egnp",
    "--",
    ":smile:",
    "x\x85",
    "\ufffe",
    "a\tb\nc",
    "'",
]
X = np.random.default_rng(0).normal(size=(28, 2)) + 8.0 * (np.arange(28) % 2)[:, None]
ITEMS = tuple(f"{name}{i}" for i, name in enumerate(NASTY * 2))


def _run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["bnp-hier", *map(str, words)])
    monkeypatch.setattr(cli, "keep_programs", lambda: None)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_printable() -> None:
    assert printable("a\x1b[1mß\u202e\ud800") == r"a\u001b[1mß\u202e\ud800"
    assert printable("a\tb\nc\r") == "a\tb\nc\\u000d" and printable("a\tb\nc", one_line=True) == r"a\u0009b\u000ac"


@pytest.mark.slow
def test_every_format_of_a_tree_is_well_formed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    fit = bnp.AgglomerativeBayesianClustering(progress_bar=False).fit(X)
    data = Dataset("n[/]ame\x02", X, np.array(NASTY * 2), ("a", "b"), ITEMS, "")
    saved = SavedFit(fit, data, "agglomerative", "normal").save(tmp_path / "fit.npz")
    files = [tmp_path / f"tree{suffix}" for suffix in (".svg", ".html", ".nwk", ".pdf")]
    assert _run(monkeypatch, "tree", saved, *(word for file in files for word in ("--out", file))) == 0
    xml.etree.ElementTree.parse(files[0])
    for file in files[:3]:
        text = file.read_text(encoding="utf-8")
        assert not [c for c in text if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or c in "\u202e\ufffe"], file
    assert files[2].read_text().count("\n") == 1
    assert "\x1b[31m" not in capsys.readouterr().out


def test_classes_and_columns_in_pictures(tmp_path: Path) -> None:
    wide = np.tile(X, (1, 7))
    plots.pairs(wide, labels=np.array(NASTY * 2), feature_names=NASTY).savefig(tmp_path / "pairs.svg")
    plots.traces({name: np.zeros((2, 5)) + np.arange(5) for name in NASTY[:4]}).savefig(tmp_path / "traces.svg")
    tree = bnp.Hierarchy(np.column_stack([1 + np.arange(28) % 2]))
    plots.hierarchy(tree, names=ITEMS, labels=np.array(NASTY * 2)).figure.savefig(tmp_path / "hierarchy.svg")
    for file in tmp_path.iterdir():
        xml.etree.ElementTree.parse(file)


@pytest.mark.slow
def test_commands_print_names_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    names = [name.replace("\n", " ") for name in NASTY]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, len(names))), columns=names)
    frame.to_csv(tmp_path / "[red]table.csv", index=False)
    path = str(tmp_path / "[red]table.csv")
    for words in (["datasets", path], ["recommend", path], ["datasets", path, "--json"]):
        assert _run(monkeypatch, *words) == 0
        shown = capsys.readouterr().out
        assert "\x1b[31m" not in shown and "[red]table" in shown
    assert _run(monkeypatch, "recommend", path, "--drop", "[/y]") == 1
    error = capsys.readouterr().err
    assert "there is no column '[/y]'" in error and "[bold]" in error and "Traceback" not in error
    for words in (["recommend", path, "[/extra]"], ["[/no]"], ["recommend", path, "--[/no]"]):
        assert _run(monkeypatch, *words) == 2
        assert "[/" in capsys.readouterr().err
