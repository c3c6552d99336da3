"""The report on a comparison: what is in it, for small and large tables, named and unnamed rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.datasets import Dataset
from bnp_hier.models import dpm
from bnp_hier.reports import report
from bnp_hier.reports.report import Findings, write_report
from bnp_hier.reports.tree_page import doubtful_merges, tree_figure, tree_figures, write_tree_page

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2)) + 9.0 * (np.arange(24) % 2)[:, None]
DATA = Dataset(
    "two", X, np.array(["odd", "even"])[np.arange(24) % 2], ("width", "height"), tuple(f"row {i}" for i in range(24)), ""
)
MODEL = partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=1.0)


@pytest.fixture(scope="module")
def partition() -> bnp.MAPDP:
    return bnp.MAPDP(MODEL, n_init=1).fit(X)


def test_report_of_one_partition(partition: bnp.MAPDP, tmp_path: Path) -> None:
    findings = Findings.of(DATA, {"MAP-DP": partition}, held_out=X[:3] + 0.1, seconds={"MAP-DP": 1.0})
    problems, warnings = ["BHC failed: <no reason>"], ["column 'width' numbers the rows"]
    path = write_report(
        tmp_path / "r.html", findings, problems=problems, warnings=warnings, facts={"seed": "7"}, reproduce="bnp-hier x"
    )
    page = path.read_text()
    for words in ("BHC failed: &lt;no reason&gt;", "Column &#39;width&#39; numbers the rows.", "<dd>7</dd>", "bnp-hier x"):
        assert words in page, words
    assert "MAP-DP found the most probable single partition: 2 clusters" in page
    assert "The known classes are recovered exactly by MAP-DP." in page
    assert "Known classes: odd (12)" in page and "row 23" in page
    assert "Distinguishing features, with mean or share of ones in this cluster (in all rows): " in page
    assert "Rows by cluster of MAP-DP and known class" in page and "The clusters of MAP-DP have 12, 12 rows" in page
    assert "<h2>Chains</h2>" not in page and findings.lead == "MAP-DP"
    assert page.count("<img") == 1  # one partition has no co-clustering probabilities to show


@pytest.mark.slow
def test_report_of_a_tree_has_its_bounds_and_its_cut(partition: bnp.MAPDP, tmp_path: Path) -> None:
    fits = {"MAP-DP": partition, "BHC": bnp.BHC(MODEL, progress_bar=False).fit(X)}
    findings = Findings.of(DATA, fits)
    notes = " ".join(findings.notes)
    assert "cutting the tree at merge probabilities from 0.1 to 0.9" in notes
    assert "All methods found the same partition: 2 clusters." in notes
    (bounds,) = findings.evidence().tables.values()
    value = bounds["log evidence, at least (nats)"]
    named = {"MAP-DP: one partition", "BHC: tree", "BHC: alternatives", "BHC: recursive", "BHC: pairs"}
    assert set(bounds.index) == named and value.is_monotonic_decreasing
    assert value["BHC: tree"] <= value["BHC: alternatives"] <= value["BHC: recursive"] <= value["BHC: pairs"] + 1e-9
    gap = bounds["gap to the tightest (nats)"]
    assert (
        gap.idxmin() == value.idxmax()
        and gap.min() == 0.0
        and gap.idxmax() == value.idxmin()
        and value["MAP-DP: one partition"] <= value["BHC: pairs"]
    )
    assert len(findings.figures().figures) == 3


def test_large_tables_are_shown_in_part(partition: bnp.MAPDP, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_POINTS", 10)
    findings = Findings.of(DATA, {"MAP-DP": partition})
    (caption,) = findings.figures().figures
    assert caption.endswith("(10 of 24 rows, drawn at random)")


@pytest.mark.parametrize("n", [2, 10, 200, 5000])
@pytest.mark.parametrize("named", [False, True])
def test_names_of_leaves_never_overlap(n: int, named: bool) -> None:
    children = np.column_stack([np.r_[0, np.arange(n, 2 * n - 2)], np.arange(1, n)])
    tree = bnp.Dendrogram(children, np.linspace(5.0, -5.0, n - 1))
    names = [f"a rather long name {i}" for i in range(n)] if named else None
    figure = tree_figure(tree, names)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = sorted((text.get_window_extent() for text in axes.get_xticklabels() if text.get_text()), key=lambda box: box.x0)
    assert all(left.x1 <= right.x0 + 0.5 for left, right in zip(boxes[:-1], boxes[1:], strict=True))
    assert len(boxes) == (n if n <= 10 or (named and n <= 200) else 0)


def test_wide_trees_are_shown_whole_first() -> None:
    n = 120
    children = np.column_stack([np.r_[0, np.arange(n, 2 * n - 2)], np.arange(1, n)])
    tree = bnp.Dendrogram(children, np.linspace(5.0, -5.0, n - 1))
    whole, named = tree_figures(tree, [f"row {i}" for i in range(n)]).values()
    assert whole.get_size_inches()[0] == 10.0 < named.get_size_inches()[0]
    assert len(tree_figures(tree)) == 1


def test_tree_page(tmp_path: Path) -> None:
    tree = bnp.Dendrogram(np.array([[0, 1], [2, 3], [4, 5]]), np.array([3.0, 2.0, -4.0]))
    merges = doubtful_merges(tree, ["ant", "bee", "cat", "dog"])
    np.testing.assert_allclose(merges.index, 1 / (1 + np.exp([-2.0, -3.0, 4.0])))
    assert merges["one side"].tolist() == ["cat", "ant", "ant, bee"] and merges["other side"].tolist()[2] == "cat, dog"
    path = write_tree_page(
        tmp_path / "t.html", tree, title="four", names=["ant", "bee", "cat", "dog"], classes=["i", "i", "m", "m"]
    )
    page = path.read_text()
    assert page.count("<details>") == 2 and "ant, bee" in page and "Known classes: m (2)" in page
    assert tree.to_newick(["ant", "bee", "cat", "dog"]) in page and "2 clusters" in page
