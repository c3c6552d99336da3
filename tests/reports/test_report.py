"""The report on a comparison: what is in it, for small and large tables, named and unnamed rows."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier.datasets import Dataset
from bnp_hier.methods import METHODS, RunOptions
from bnp_hier.models import dpm
from bnp_hier.posterior.item_uncertainty import row_probabilities
from bnp_hier.reports import figures
from bnp_hier.reports.findings import Findings
from bnp_hier.reports.headlines import alternative_verdict
from bnp_hier.reports.report import certainty, evidence, tree, write_report
from bnp_hier.reports.row_certainty import RowCertainty
from bnp_hier.reports.tree_page import doubtful_merges, tree_figure, write_tree_page
from bnp_hier.reports.trust import checks, checks_of_chains

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
        tmp_path / "r.html",
        findings,
        problems=problems,
        warnings=warnings,
        facts={"seed": "7"},
        code={"How to reproduce this report": "bnp-hier x"},
    )
    page = path.read_text()
    for words in ("BHC failed: &lt;no reason&gt;", "Column &#39;width&#39; numbers the rows", "<dd>7</dd>", "bnp-hier x"):
        assert words in page, words
    assert "MAP-DP found the most probable single partition: 2 clusters" in page
    assert "The known classes are recovered exactly by MAP-DP." in page
    assert "Known classes: odd (12)" in page and "row 23" in page
    assert "Distinguishing features: low " in page and "how far each column" not in page
    assert "Rows by cluster of MAP-DP and known class" in page and "The clusters of MAP-DP have 12, 12 rows" in page
    assert "convergence" not in page and findings.lead == "MAP-DP"
    assert "run gibbs to see how sure this is" in page
    assert "averaged over the draws" not in page  # there are none
    assert page.count("<img") == 1  # one partition has no co-clustering probabilities to show
    assert page.count('class="drawing"') == 3  # profiles, associations, and the flow to the known classes


def test_chains_that_disagree_supply_no_probabilities(partition: bnp.MAPDP) -> None:
    options = RunOptions(chains=2, warmup=20, samples=40, progress_bar=False)
    chains = METHODS["gibbs"].run(MODEL, X, options)
    findings = Findings.of(DATA, {"Gibbs": chains, "MAP-DP": partition})
    agreeing = dataclasses.replace(findings)
    findings.convergence["Gibbs"].loc["n_large_clusters", "rhat"] = 1.2
    assert findings.lead == "MAP-DP" and not findings.trusted and not findings.certainties()
    assert findings.headline().startswith("Unsettled: the chains of Gibbs do not agree, and supply no probabilities")
    assert "%" not in findings.headline() and "their probabilities are withheld" in " ".join(findings.notes)
    assert not list(figures.cluster_number_figures(findings)) and not certainty(findings).tables
    agreeing.convergence["Gibbs"]["rhat"] = 1.01
    assert agreeing.lead == "Gibbs" and "Gibbs probability" in agreeing.certainties()
    own, alternative, other = agreeing.certainties().values()
    assert (np.isnan(alternative) == np.isnan(other)).all() and (own[np.isnan(other)] > 0.5).all()
    assert np.isnan(alternative).any() and not (alternative < 0).any()  # an empty cell of labels.csv
    assert agreeing.headline().startswith("Two clusters hold all rows (probability ")
    assert len(list(figures.cluster_number_figures(agreeing))) == 1


@pytest.mark.slow
def test_report_of_a_tree_has_its_bounds_and_its_cut(partition: bnp.MAPDP, tmp_path: Path) -> None:
    fits = {"MAP-DP": partition, "BHC": bnp.BHC(MODEL, progress_bar=False).fit(X)}
    findings = Findings.of(DATA, fits)
    notes = " ".join(findings.notes)
    assert "cutting the tree at merge probabilities from 0.1 to 0.9" in notes
    assert "All methods found the same partition: 2 clusters." in notes
    (bounds,) = evidence(findings).tables.values()
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
    (browsable,) = tree(findings).trees.values()
    assert browsable.measure == "odds" and len(browsable.figures) == 1


def test_the_best_partition_with_the_most_probable_number(partition: bnp.MAPDP) -> None:
    """Beside the partition shown, where that has another number of large clusters; a sentence says why."""
    two, three = np.arange(24) // 12, np.minimum(np.arange(24) // 9, 2)
    other = np.roll(three, 3)
    draws = np.concatenate([np.tile(two, (40, 1)), np.tile(three, (35, 1)), np.tile(other, (25, 1))])[None]
    findings = Findings.of(DATA, {"A": partition, "B": partition})
    packages = {"A": {"posterior": {"z": draws}}, "B": findings.packages["B"]}
    certain = RowCertainty.of(row_probabilities(draws, two), two)
    findings = dataclasses.replace(findings, labels={"A": two, "B": two}, packages=packages, certainty={"A": certain})
    findings.__dict__.update(trusted={"A": certain}, lead="A")
    alternative = findings.alternative
    assert alternative is not None and len(np.unique(alternative)) == 3
    (figure,) = figures.alternative_figures(findings)
    assert [text.get_text() for text in figure.figure.axes[0].get_xticklabels()] == ["A, shown", "best with three"]
    (why,) = alternative_verdict("A", two, alternative)
    assert why.startswith(
        "A: three clusters of at least 8% of the rows are the most probable number, but the partition shown has two"
    )
    findings.packages["A"]["posterior"]["z"] = draws[:, :60]
    findings.__dict__.pop("alternative")
    assert findings.alternative is None and not list(figures.alternative_figures(findings))


def test_large_tables_are_shown_in_part(partition: bnp.MAPDP, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST_POINTS", 10)
    findings = Findings.of(DATA, {"MAP-DP": partition})
    assert figures.pairs_figure(findings).caption.endswith("(10 of 24 rows, drawn at random)")


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


def test_groups_are_described_in_words(partition: bnp.MAPDP) -> None:
    table = Findings.of(DATA, {"MAP-DP": partition}).clusters
    assert table["rows"].tolist() == [12, 12] and table["share"].tolist() == ["50%", "50%"]
    assert table.iloc[0, -1].startswith("low ") and table.iloc[1, -1].startswith("high ")
    assert "rows in doubt" not in table  # no draws


def test_rows_keep_their_numbers(partition: bnp.MAPDP) -> None:
    unnamed = dataclasses.replace(DATA, item_names=None)
    rows = np.arange(24) * 2
    assert Findings.of(unnamed, {"MAP-DP": partition}, rows=rows).data.item_names == tuple(map(str, rows))
    assert Findings.of(unnamed, {"MAP-DP": partition}, rows=np.arange(24)).data.item_names is None
    assert Findings.of(DATA, {"MAP-DP": partition}, rows=rows).data.item_names == DATA.item_names


def test_methods_with_the_same_partition_share_a_column_of_the_flow(partition: bnp.MAPDP) -> None:
    one = bnp.MAPDP(MODEL, n_init=1).fit(X)
    one.labels_ = np.arange(24) % 2 * 0
    findings = Findings.of(DATA, {"A": partition, "B": one, "C": partition})
    (flow,) = figures.flow_figures(findings)
    heads = [text.get_text() for text in flow.figure.axes[0].get_xticklabels()]
    assert heads == ["A, C", "B", "known classes"]
    alone = Findings.of(dataclasses.replace(DATA, y=None), {"A": partition, "C": partition})
    assert list(figures.flow_figures(alone)) == []


def table_of(rhat: float, ess: float) -> pd.DataFrame:
    return pd.DataFrame({"rhat": [rhat, 1.0], "ess_bulk": [ess, 900.0], "ess_tail": [ess, 900.0]}, ["n_clusters", "log_joint"])


@pytest.mark.parametrize(
    ("rhat", "ess", "chains", "results", "words"),
    [
        (1.001, 800.0, 4, ["passed", "passed"], "nothing"),
        (1.03, 800.0, 4, ["look", "passed"], "use the number of clusters with care"),
        (1.4, 30.0, 4, ["act", "act"], "do not use the number of clusters; run longer"),
        (1.001, 100.0, 4, ["passed", "look"], "run about four times as long"),
        (1.0, 800.0, 1, ["act"], "run four (--chains 4)"),
    ],
)
def test_checks_say_what_to_do(rhat: float, ess: float, chains: int, results: list[str], words: str) -> None:
    found = list(checks_of_chains("Gibbs", table_of(rhat, ess), chains))
    assert [check.result[2:] for check in found] == results
    assert any(words in check.action for check in found)


def test_quantities_that_never_move_are_left_out() -> None:
    still = table_of(np.nan, np.nan)
    assert [check.result for check in checks_of_chains("Gibbs", still, 4)] == ["✓ passed"] * 2
    assert [check.action for check in checks_of_chains("Gibbs", still.iloc[:1], 4)][0].startswith("run longer")


def test_checks_of_a_comparison(partition: bnp.MAPDP) -> None:
    one = bnp.MAPDP(MODEL, n_init=1).fit(X)
    one.labels_ = np.arange(24) % 2 * 0
    table = checks(Findings.of(DATA, {"MAP-DP": partition, "one": one}), ["column 'width' numbers the rows"])
    assert table.loc["agreement of the methods", "result"] == "○ look"
    assert table.loc["the certainty of the clusters", "what to do"].startswith("run gibbs")
    assert table.loc["the data and the model", "what to do"] == "Column 'width' numbers the rows"
    assert checks(Findings.of(DATA, {"MAP-DP": partition})).loc["the data and the model", "result"] == "✓ passed"


@pytest.mark.parametrize("suffix", figures.FORMATS)
def test_figures_are_files_too(suffix: str, partition: bnp.MAPDP, tmp_path: Path) -> None:
    written = figures.write_figures(tmp_path / "new", Findings.of(DATA, {"MAP-DP": partition}), suffix)
    assert set(written) == {f"{name}.{suffix}" for name in ("profiles", "association", "flow", "columns")}
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(written)
    assert all(path.stat().st_size > 1000 for path in (tmp_path / "new").iterdir())


def test_tree_page(tmp_path: Path) -> None:
    tree = bnp.Dendrogram(np.array([[0, 1], [2, 3], [4, 5]]), np.array([3.0, 2.0, -4.0]))
    merges = doubtful_merges(tree, ["ant", "bee", "cat", "dog"])
    np.testing.assert_allclose(merges.index, 1 / (1 + np.exp([-2.0, -3.0, 4.0])))
    assert merges["one side"].tolist() == ["cat", "ant", "ant, bee"] and merges["other side"].tolist()[2] == "cat, dog"
    path = write_tree_page(
        tmp_path / "t.html", tree, title="four", names=["ant", "bee", "cat", "dog"], classes=["i", "i", "m", "m"]
    )
    page = path.read_text()
    assert (
        page.count("<details>") == 2
        and page.count('role="tree"') == 1
        and "ant, bee" in page
        and "Known classes: m (2)" in page
    )
    assert tree.to_newick(["ant", "bee", "cat", "dog"]) in page and "2 clusters" in page
