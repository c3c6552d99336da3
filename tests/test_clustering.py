"""One call from data to clusters: what goes in, what the result offers, and that the command line gives the same."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import time
import warnings
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.figure
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier import cli, methods
from bnp_hier.advice.fit_checks import FitCheck, Misfit
from bnp_hier.clustering.results import ClusteringResult, Summary, changes
from bnp_hier.commands import comparing
from bnp_hier.commands.options import TableOptions
from bnp_hier.methods import METHODS, RunOptions, run_methods
from bnp_hier.reports.headlines import headline
from bnp_hier.utils.deadlines import end_by
from bnp_hier.utils.wording import printable
from tests.parameters import few

SHORT = {"methods": ["map-dp", "gibbs"], "budget": 5.0, "progress_bar": False}
"""Gibbs with the fewest sweeps that are worth running."""

QUICK = {"methods": "map-dp", "progress_bar": False}


def _frame(n: int = 40) -> pd.DataFrame:
    """Two groups in columns of all kinds, a value missing, under names of the rows."""
    rng = np.random.default_rng(1)
    group = np.repeat([0, 1], n // 2)
    length = rng.normal(4.0 * group, 0.5).round(3)
    length[3] = np.nan
    return pd.DataFrame(
        {
            "length (cm)": length,
            "visits": rng.poisson(np.where(group == 1, 9.0, 1.0)),
            "member": group.astype(bool),
            "site": np.where(rng.random(n) < 0.9, np.array(["sun", "shade"])[group], "wall"),
            "group": group,
        },
        index=pd.Index([f"plant {i}" for i in range(n)], name="plant"),
    )


@pytest.fixture(scope="module")
def sampled() -> ClusteringResult:
    """Of a pandas DataFrame, by MAP-DP and Gibbs."""
    return bnp.cluster(_frame(), truth="group", **SHORT)


def test_clusters_of_a_frame_and_their_certainty(sampled: ClusteringResult) -> None:
    frame = _frame()
    assert sampled.method == "Gibbs" and sampled.n_clusters_ == 2 and sampled.plan.advice.family == "mixed"
    assert adjusted_rand_score(frame["group"], sampled.labels_) == 1.0
    assert (sampled.probabilities.sum(1) <= 1.0 + 1e-12).all()
    assert sampled.probabilities.shape == (40, 2) and (sampled.probabilities.argmax(1) == sampled.labels_).all()
    np.testing.assert_allclose(sampled.uncertainty(), 1.0 - sampled.probabilities.max(1))

    table = sampled.to_frame()
    assert list(table.index) == list(frame.index) and list(table["truth"]) == list(frame["group"])
    certainties = ["probability", "alternative", "probability_of_alternative", "certain"]
    assert list(table.columns) == ["cluster", *certainties, "p_value", "truth"] and table["p_value"].between(0, 1).all()
    np.testing.assert_allclose(
        table["probability"] + table["probability_of_alternative"].fillna(0.0), sampled.probabilities.sum(1)
    )
    possible = table["probability_of_alternative"] > 0
    np.testing.assert_array_equal(table["alternative"], pd.Series(1 - sampled.labels_, frame.index, "Int64").where(possible))
    np.testing.assert_array_equal(
        sampled.probabilities, bnp.membership_probabilities(sampled.findings.draws("Gibbs"), sampled.labels_)
    )
    assert (frame.assign(cluster=table["cluster"]).groupby("group")["cluster"].nunique() == 1).all()


def test_what_the_result_says(sampled: ClusteringResult) -> None:
    text = str(sampled)
    assert repr(sampled) == text and sampled.headline.split(".")[0] in text
    for word in (
        "40 rows, 4 columns",
        "Clusters of Gibbs",
        "Run times: MAP-DP",
        "length (cm)",
        "all rows",
        "Likelihood: mixed",
        "Next:",
    ):
        assert word in text
    assert max(map(len, text.splitlines())) <= 110
    assert sampled.table.loc["Gibbs", "ARI"] == 1.0 and sampled.notes and list(sampled.fits) == ["MAP-DP", "Gibbs"]
    assert list(sampled.clusters["rows"]) == [20, 20] and sampled.clusters["features"].str.contains("site = ").all()
    found = sampled.profiles.profiles
    one = sampled.clusters["features"][0].split(", ")
    assert 1 <= len(one) <= 3
    level = sampled.labels_[0]  # the cluster of group 0, whose length is about 0
    own = _frame()["length (cm)"][sampled.labels_ == level]
    np.testing.assert_allclose(found.loc[("length (cm)", "", level), ["mean", "sd"]].astype(float), [own.mean(), own.std()])
    assert abs(own.mean()) < 0.5
    (parts,) = (note for note in sampled.notes if note.startswith("What separates the clusters"))
    assert all(f"{name!r}: " in parts for name in ("length (cm)", "visits", "member", "site")) and "columns)" not in parts


@pytest.mark.slow
def test_plots_files_and_draws(sampled: ClusteringResult, tmp_path: Path) -> None:
    for kind in ("pairs", "coclustering", "number_of_clusters"):
        figure = sampled.plot(kind)
        assert isinstance(figure, matplotlib.figure.Figure) and figure.axes
    with pytest.raises(ValueError, match="kind must be one of pairs"):
        sampled.plot("pie")

    path = sampled.report(tmp_path / "new" / "report.html")
    page = path.read_text(encoding="utf-8")
    assert printable(sampled.headline.split(";")[0]) in page and "plant 3" in page
    assert "bnp_hier.cluster(X, budget=5.0" in page and "truth=" in page
    assert "40 rows × 4 columns" in page and "for &#39;length (cm)&#39;; part" in page

    assert sampled.to_arviz() is sampled.to_arviz("gibbs") and sampled.to_arviz("MAP-DP") is not sampled.to_arviz()
    assert list(sampled.to_arviz()["posterior"]["item"].values[:2]) == ["plant 0", "plant 1"]
    with pytest.raises(ValueError, match="no fit of the method 'bhc'.* MAP-DP, Gibbs"):
        sampled.to_arviz("bhc")

    saved = bnp.load_fit(sampled.save(tmp_path / "fit.npz", "map-dp"))
    assert saved.method == "map-dp" and saved.family == "mixed" and saved.data.item_names[3] == "plant 3"
    np.testing.assert_array_equal(saved.labels, sampled.fits["MAP-DP"].labels_)
    assert not (tmp_path / "fit-figures").exists()

    sampled.save(tmp_path / "fit.npz", figures="svg")
    written = {path.name for path in (tmp_path / "fit-figures").iterdir()}
    tables = {"clusters.csv", "association.csv", "rows.csv"}
    assert written - tables >= {"profiles.svg", "association.svg", "coclustering-gibbs.svg", "flow.svg", "columns.svg"}
    rows = pd.read_csv(tmp_path / "fit-figures" / "rows.csv", index_col=0)
    assert list(rows.index[:2]) == ["plant 0", "plant 1"] and rows["cluster"].tolist() == sampled.labels_.tolist()
    assert {"rows", "mean", "sd", "low"} <= set(pd.read_csv(tmp_path / "fit-figures" / "clusters.csv").columns)
    with pytest.raises(ValueError, match="figures must be one of pdf, png, svg, but it is 'jpg'"):
        sampled.save(tmp_path / "fit.npz", figures="jpg")


def test_new_rows_are_converted_as_the_data_were(sampled: ClusteringResult) -> None:
    frame = _frame()
    shuffled = frame[["site", "visits", "group", "member", "length (cm)"]]  # columns are found by name
    again = sampled.predict_proba(shuffled)
    assert again.shape == (40, 3)
    np.testing.assert_array_equal(sampled.predict(shuffled), sampled.labels_)
    np.testing.assert_allclose(again.sum(1), 1.0)
    density = sampled.score_samples(shuffled)
    far = frame.assign(**{"length (cm)": 50.0})
    assert density.shape == (40,) and (sampled.score_samples(far) < density - 5).all()
    with pytest.raises(TypeError, match="must be a DataFrame, because the column 'site'"):
        sampled.predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="no column 'visits'"):
        sampled.predict(frame.drop(columns="visits"))


@pytest.mark.slow
def test_frames_of_polars_and_arrays_give_the_same() -> None:
    """Booleans, texts and missing values are read alike; rows without names are numbered."""
    frame = _frame()
    polars = pl.DataFrame({"who": list(frame.index)} | {name: frame[name].tolist() for name in frame.columns})
    ours = bnp.cluster(frame, drop=["group"], **QUICK)
    theirs = bnp.cluster(polars, drop=["group"], items="who", **QUICK)
    np.testing.assert_array_equal(ours.data.X, theirs.data.X)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert list(ours.to_frame().index) == list(theirs.to_frame().index) and "truth" not in ours.to_frame()
    assert "group" in ours.profiles.association.index and "group" not in ours.data.feature_names  # described, not used

    cells = frame[["length (cm)", "visits"]].to_numpy(float)
    array = bnp.cluster(cells, truth=frame["group"], **QUICK)
    assert array.data.feature_names == ("x0", "x1") and list(array.to_frame().index) == list(range(40))
    assert array.table.loc["MAP-DP", "ARI"] > 0.8
    np.testing.assert_array_equal(array.predict(cells), array.labels_)
    with pytest.raises(ValueError, match="X has 3 columns, but 2 were fitted"):
        array.predict(np.zeros((1, 3)))


@pytest.mark.slow
def test_a_method_without_draws_says_so() -> None:
    """Its probabilities are those of the estimator, given its one partition."""
    iris = bnp.datasets.load("iris")
    result = bnp.cluster(iris, **QUICK)
    fit = result.fits["MAP-DP"]
    known = fit.predict_proba(iris.X)[:, :3]
    np.testing.assert_allclose(result.probabilities, known / known.sum(1, keepdims=True))
    np.testing.assert_array_equal(result.labels_, fit.labels_)
    assert "which does not draw from the posterior" in str(result) and "Run gibbs" in result.headline
    assert list(result.to_frame()["truth"].unique()) == list(iris.class_names.values())


@pytest.mark.slow
def test_rows_held_out_are_left_out() -> None:
    frame = _frame()
    result = bnp.cluster(frame, truth="group", held_out=0.25, **QUICK)
    table = result.to_frame()
    assert len(table) == 30 and list(table.index) == [name for name in frame.index if name in set(table.index)]
    assert list(table["truth"]) == list(frame.loc[table.index, "group"]) and np.isfinite(result.table["held_out"]).all()
    numbered = bnp.cluster(frame.reset_index(drop=True), truth="group", held_out=0.25, **QUICK)
    assert [frame.index[i] for i in numbered.to_frame().index] == list(table.index)


def test_other_indexes() -> None:
    frame = _frame()[["length (cm)", "visits"]]
    index = pd.MultiIndex.from_product([["a", "b"], range(20)], names=["plot", "plant"])
    result = bnp.cluster(frame.set_axis(index), family="diagonal", **QUICK)
    assert result.to_frame().index.equals(index) and result.data.item_names[20] == "b / 0"
    days = pd.date_range("2020-01-01", periods=40)
    assert bnp.cluster(frame.set_axis(days), family="diagonal", **QUICK).to_frame().index.equals(days)


ROWS = np.random.default_rng(0).normal(size=(20, 2))


def test_several_kinds_of_known_classes() -> None:
    """Each column of classes and their combinations are compared with the clusters, and hidden from the methods."""
    frame = _frame()
    result = bnp.cluster(frame, truth=["group", "site"], **QUICK)
    both = [f"{group} / {site}" for group, site in zip(frame["group"], frame["site"], strict=True)]
    assert "site" not in result.data.source_columns and result.to_frame()["truth"].tolist() == both
    for name, classes in (("ARI group", frame["group"]), ("ARI site", frame["site"]), ("ARI", both)):
        assert result.table.loc["MAP-DP", name] == pytest.approx(adjusted_rand_score(classes, result.labels_))
    lines = [note for note in result.notes if note.startswith("The clusters of MAP-DP beside")]
    assert [line.split(":")[0].split("beside ")[1] for line in lines] == [
        "the classes 'group'",
        "the classes 'site'",
        "the combinations of 'group' and 'site'",
    ]
    assert lines[0].removesuffix(".") in str(result).replace("\n", " ")


def test_known_classes_beside_the_table() -> None:
    one_per_row = list(map(str, np.repeat(["a", "b"], 20)))
    assert bnp.cluster(BLOBS, truth=one_per_row, family="diagonal", **QUICK).table.loc["MAP-DP", "ARI"] == 1.0


@pytest.mark.parametrize(
    ("X", "options", "error", "words"),
    [
        ("flowers.csv", {}, TypeError, "the text 'flowers.csv'; read a file with bnp_hier.datasets.read_table"),
        (ROWS[:, 0], {}, ValueError, r"two dimensions, shape \(n, d\), but it has shape \(20,\); use np.reshape"),
        (ROWS[:1], {}, ValueError, "X has 1 row; clustering needs at least 2"),
        (ROWS, {"drop_rows": "some"}, ValueError, "drop_rows must be one of empty, missing, but it is 'some'"),
        (ROWS, {"methods": "kmeans"}, ValueError, r"methods must be some of map-dp, .*, but it is \['kmeans'\]"),
        (ROWS, {"methods": []}, ValueError, "methods must be some of"),
        (ROWS, {"budget": 0}, ValueError, "'budget' .* Got 0 instead"),
        (ROWS, {"held_out": 1.0}, ValueError, "'held_out' .* Got 1.0 instead"),
        (ROWS, {"held_out": 0.97}, ValueError, "holds out 19 of 20 rows and leaves 1"),
        (ROWS, {"held_out": 0.02}, ValueError, "held-out 0.02 of 20 rows is less than one row; expected 0 or at least 0.05"),
        (ROWS, {"family": "cauchy"}, ValueError, "cauchy"),
        (ROWS, {"truth": [1, 2]}, ValueError, r"one class per row, shape \(20,\), but it has shape \(2,\)"),
        (_frame(), {"truth": ["group", "place"]}, ValueError, "there is no column 'place'"),
        (ROWS, {"truth": [np.nan, *range(19)]}, ValueError, "that of row 0 is missing"),
        (ROWS, {"truth": "group"}, ValueError, "there is no column 'group'; the columns are 'x0', 'x1'"),
        (bnp.datasets.load("iris"), {"drop": ["a"]}, ValueError, "X is a Dataset already"),
        (_frame().assign(size=[*map(str, range(39)), "large"]), {}, ValueError, "column 'size': found the text 'large'"),
    ],
)
def test_errors_say_what_was_found_and_expected(X: object, options: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bnp.cluster(X, progress_bar=False, **options)


class _Texts(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attributes if name != "scope"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_is_escaped_and_has_no_scripts() -> None:
    name = "<script>alert('&amp;')</script>"
    frame = _frame()[["length (cm)", "visits"]].rename(columns={"visits": name})
    parser = _Texts()
    parser.feed(bnp.cluster(frame, **QUICK)._repr_html_())
    assert parser.tags == {"div", "p", "strong", "table", "thead", "tr", "th", "tbody", "td", "ul", "li"}
    assert any(name in text for text in parser.texts)  # read back as plain text
    assert "cluster" in parser.texts and any("Likelihood" in text for text in parser.texts)


def test_many_clusters_are_shown_in_part() -> None:
    clusters = pd.DataFrame({"rows": range(1, 15), "probability": 1.0, "features": ""}).rename_axis("cluster")
    summary = Summary("X: 105 rows", "Fourteen clusters.", clusters, ("Clusters of Gibbs",), ("Line\nfeeds\x1b.",))
    text, page = summary.as_text(), summary.as_html()
    assert "and 2 smaller clusters, in .clusters" in text and "and 2 smaller clusters" in page
    listed = [int(line.split()[0]) for line in text.splitlines() if line.strip()[:1].isdigit()]
    assert listed == list(range(13, 1, -1)) and page.count("<tr>") == 13
    assert "Line\\u000afeeds\\u001b" in text and "\x1b" not in page


@pytest.mark.parametrize(
    ("error", "words"), [(KeyboardInterrupt(), "Gibbs was interrupted"), (ValueError("no luck"), "Gibbs failed: no luck")]
)
def test_finished_methods_are_kept(error: BaseException, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setitem(methods.METHODS, "gibbs", dataclasses.replace(methods.METHODS["gibbs"], run=fail))
    result = bnp.cluster(_frame(), truth="group", **SHORT)
    assert list(result.fits) == ["MAP-DP"] and words in result.problems[0] and words in str(result)
    assert words in result._repr_html_()
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ValueError):
        bnp.cluster(_frame(), truth="group", **SHORT | {"methods": ["gibbs"]})


def test_the_remedy_is_the_call_that_the_warnings_advise(sampled: ClusteringResult) -> None:
    """Kinds of columns, columns to leave out, another family and longer chains; columns of arrays cannot be taken otherwise."""
    findings, plan = sampled.findings, sampled.plan
    warnings = (
        "column 'visits' shows a long right tail: take logarithms (kinds={'visits': 'log1p'}, or --kinds visits=log1p)",
        "column 'site' tells rows apart: leave it out (drop=['site'], or --drop site)",
        "column 'x' is none of the table: leave it out (drop=['x'], or --drop x)",
    )
    advice = dataclasses.replace(plan.advice, warnings=warnings)
    misfit = Misfit("correlation", ("visits", "member"), 0.9, (0.0, 0.2), "use full matrices (--family normal)")
    findings = dataclasses.replace(findings)
    convergence = {"Gibbs": pd.DataFrame({"rhat": [1.0], "ess_bulk": [150.0]}, ["alpha"])}
    findings.__dict__.update(fit_check=FitCheck((misfit,), {}, {}), convergence=convergence)
    changed = changes(dataclasses.replace(plan, advice=advice), findings)
    assert changed == {"kinds": {"visits": "log1p"}, "drop": ["site"], "family": "normal", "times": 3}
    assert sampled.again is not None
    assert sampled.again(**changed) == (
        "bnp_hier.cluster(X, budget=15, family='normal', methods=['map-dp', 'gibbs'], truth='group', drop=['site'], "
        "kinds={'visits': 'log1p'}, random_state=0)"
    )
    command = partial(comparing._again, TableOptions("a.csv", drop=["id"]), {"--minutes": None}, plan)
    told = command(kinds={"visits": "log1p"}, drop=["site"], times=30)
    assert told == "bnp-hier compare a.csv --minutes 3 --drop id --drop site --kinds visits=log1p"
    quick = bnp.cluster(ROWS, **QUICK)
    assert quick.again is not None and quick.again(drop=["0"]) == "" and "budget=" in quick.again(drop=["0"], times=2)


@pytest.mark.slow
def test_the_command_line_makes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Labels, certainty, table and headline, from a file and from the DataFrame that it contains."""
    frame = _frame()
    path = tmp_path / "plants.csv"
    frame.to_csv(path, index_label="plant")
    words = [str(path), "--truth", "group", "--items", "plant", "--methods", "map-dp,gibbs", "--seed", "3", "--out"]
    short = ["--minutes", str(5 / 60), "--no-progress", "--json"]
    monkeypatch.setattr(sys, "argv", ["bnp-hier", "compare", *words, str(tmp_path / "out"), *short])
    monkeypatch.setattr(cli, "keep_programs", lambda: None)
    monkeypatch.setattr(cli, "interrupted", lambda: False)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    printed = json.loads(capsys.readouterr().out)
    result = bnp.cluster(frame, truth="group", random_state=3, **SHORT)
    labels = pd.read_csv(tmp_path / "out" / "labels.csv", index_col="item")
    np.testing.assert_array_equal(labels[result.method], result.labels_)
    assert list(labels.index) == list(result.to_frame().index)
    np.testing.assert_allclose(labels["Gibbs probability"], 1.0 - result.uncertainty())
    # the fits that both leave are the same, up to the name of the table
    own, other = bnp.load_fit(tmp_path / "out" / "fit.npz"), bnp.load_fit(result.save(tmp_path / "own.npz"))
    assert (own.method, own.family, own.data.items) == (other.method, other.family, "plant")
    np.testing.assert_array_equal(own.labels, other.labels)
    np.testing.assert_allclose(own.predict_proba(own.data.X), other.predict_proba(other.data.X))
    assert printed["headline"] == result.headline and printed["family"] == result.plan.advice.family
    assert [row["log_joint"] for row in printed["methods"]] == pytest.approx(list(result.table["log_joint"]))
    associated = pd.read_csv(tmp_path / "out" / "association.csv", index_col="column")["effect"]
    np.testing.assert_allclose(associated, result.profiles.association["effect"], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_progress_goes_to_standard_error(capsys) -> None:
    bnp.cluster(ROWS, methods="map-dp")
    shown = capsys.readouterr()
    assert (
        not shown.out
        and "20 rows, 2 columns: choosing" in shown.err
        and "methods map-dp" in shown.err
        and "MAP-DP done in" in shown.err
    )
    bnp.cluster(ROWS, **QUICK)
    assert not "".join(capsys.readouterr())


def test_one_column_to_leave_out() -> None:
    """A text is the name of a column, not a collection of letters."""
    frame = pd.DataFrame({"a": np.arange(30.0) % 7, "b": np.arange(30.0) % 5, "note": [f"row {i}" for i in range(30)]})
    frame["a"] += 10.0 * (np.arange(30) % 2)
    result = bnp.cluster(frame, drop="note", methods="map-dp", progress_bar=False)
    assert list(result.data.feature_names or ()) == ["a", "b"]
    with pytest.raises(ValueError, match="no column 'nota'"):
        bnp.cluster(frame, drop="nota", methods="map-dp", progress_bar=False)


# ---- tables as they come ----------------------------------------------------------------------------------------------------


def _incomplete_frame() -> pd.DataFrame:
    frame = _frame()[["length (cm)", "visits"]].assign(width=lambda each: 0.5 * each["length (cm)"], rate=1.0)
    frame["height"] = np.random.default_rng(3).normal(size=len(frame))
    frame.iloc[[3, 17]] = np.nan
    frame.iloc[5, 4] = np.nan
    return frame


def test_rows_and_columns_that_are_left_out() -> None:
    frame = _incomplete_frame()
    result = bnp.cluster(frame, **QUICK)
    assert result.labels_.shape == (40,) and list(np.flatnonzero(result.labels_ < 0)) == [3, 17]
    table = result.to_frame()
    assert table.index.equals(frame.index) and list(table["cluster"]) == list(result.labels_)
    assert table["probability"].isna().sum() == 2 and not table["certain"].iloc[[3, 17]].any()
    assert result.probabilities.shape == (38, result.n_clusters_) and result.data.feature_names[0] == "length (cm)"
    shown = str(result)
    assert "2 of 40 rows have no value and are left out: 3, 17 (from 0)" in " ".join(shown.split())
    assert "'width' (it follows from other columns)" in " ".join(shown.split())
    new = frame.iloc[[0, 20]][["visits", "length (cm)", "height"]]
    assert result.predict_proba(new).shape == (2, result.n_clusters_ + 1)


@pytest.mark.slow
def test_incomplete_rows_are_left_out_on_request() -> None:
    complete = bnp.cluster(_incomplete_frame(), drop_rows="missing", **QUICK)
    assert list(np.flatnonzero(complete.labels_ < 0)) == [3, 5, 17] and "drop_rows='missing'" in complete.call


def test_new_rows_of_an_array_have_its_columns() -> None:
    X = np.column_stack([np.repeat([0.0, 9.0], 20) + np.random.default_rng(0).normal(size=40), np.ones(40)])
    X = np.column_stack([X, np.random.default_rng(1).choice([1.0, 5.0, 9.0], 40)])
    result = bnp.cluster(X, family="mixed", **QUICK)
    assert result.data.feature_names[0] == "x0" and list(result.data.others) == ["x1"] and "x2" in result.data.levels
    assert np.isfinite(result.score_samples(X[:3])).all() and list(result.predict(X)) == list(result.labels_)
    with pytest.raises(TypeError, match="'x2' of the data was converted"):
        result.predict(X[:, :1])


def test_rows_that_are_all_alone_are_no_finding() -> None:
    alone, some = np.arange(12), np.repeat(np.arange(6), 2)
    wide = headline("MAP-DP", {"MAP-DP": alone}, columns=150)
    assert wide.startswith("No groups were found: in the partition of MAP-DP, 12 of 12 rows are each a cluster of their own; ")
    assert "there are more columns (150) than rows" in wide
    mostly = headline("Gibbs", {"Gibbs": np.append(alone, [0, 0])}, np.full(9, 1), columns=3)
    assert mostly.startswith("No groups were found") and "see the warnings" in mostly
    assert "No groups" not in headline("MAP-DP", {"MAP-DP": some}, columns=150)


def test_a_row_that_fits_no_cluster_is_named_with_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: object, X: np.ndarray, options: object) -> None:
        raise ValueError("row 2 fits no cluster: the log density is not finite")

    method = dataclasses.replace(METHODS["map-dp"], run=fails)
    monkeypatch.setitem(METHODS, "map-dp", method)
    X = np.random.default_rng(0).normal(size=(20, 2))
    X[2, 1] = 50.0
    with pytest.raises(ValueError, match=r"its most unusual value is 50 in column 'x1'.*drop=\['x1'\].*kinds="):
        bnp.cluster(X, **QUICK)


BLOBS = np.vstack([np.random.default_rng(0).normal(at, 1.0, size=(20, 3)) for at in (0.0, 9.0)])
"""Two clusters of twenty rows."""


@pytest.mark.parametrize(
    "option", few([{"drop": 0}, {"drop": [0]}, {"items": 3}, {"kinds": {0: "continuous"}}, {"truth": 4}], slow=4)
)
def test_columns_may_be_named_by_numbers(option):
    frame = pd.DataFrame(BLOBS).assign(**{"3": [f"r{i}" for i in range(40)], "4": np.repeat(["a", "b"], 20)})
    frame.columns = range(5)
    result = bnp.cluster(frame, family="diagonal", **QUICK, **{"drop": [4], **option} if "truth" not in option else option)
    assert result.n_clusters_ == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("random_state", None),
        ("random_state", [1]),
        ("random_state", "a"),
        ("kinds", "log"),
        ("kinds", ["a"]),
        ("budget", "60"),
        ("family", None),
        ("methods", 3),
        ("items", ["a"]),
        ("held_out", None),
        ("drop_rows", None),
    ],
)
def test_an_option_of_the_wrong_type_is_named_with_what_was_found(option, value):
    with pytest.raises(ValueError, match=rf"'{option}' parameter of cluster .*{re.escape(repr(value))}"):
        bnp.cluster(BLOBS, **{option: value})


def test_a_kind_must_be_a_text():
    with pytest.raises(TypeError, match="column 'x0': found the kind None"):
        bnp.cluster(BLOBS, kinds={"x0": None}, progress_bar=False)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda X: pd.Series(X[:, 0]), "X.to_frame()"),
        (scipy.sparse.csr_array, "X.toarray()"),
        (lambda X: pl.DataFrame(X).lazy(), "X.collect()"),
        (lambda X: pd.DataFrame(X).to_dict("records"), "pandas.DataFrame(X)"),
        (lambda X: pd.DataFrame(X, columns=list("abc")).to_records(index=False), "pandas.DataFrame(X)"),
    ],
)
def test_what_to_pass_instead_is_said_and_works(make, advice):
    X = make(BLOBS)
    with pytest.raises(TypeError, match=re.escape(advice)):
        bnp.cluster(X, progress_bar=False)
    instead = eval(advice, {"X": X, "pandas": pd})
    assert bnp.cluster(instead, family="diagonal", **QUICK).n_clusters_ == 2


def test_a_search_ends_soon_after_the_budget_is_spent():
    X = np.random.default_rng(0).normal(size=(300, 60))
    with end_by(time.perf_counter()) as deadline, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bnp.MAPDP(partial(bnp.models.dpm, component=bnp.NormalInverseGamma.from_data(X)), n_init=1).fit(X)
    assert deadline.has_cut and fit.labels_.min() == 0 and fit.n_iter_ == 1


def test_more_draws_than_fit_in_memory_are_refused_before_any_work():
    with pytest.raises(ValueError, match=r"would take 640,000.0 GB of memory"):
        run_methods(["gibbs"], bnp.models.dpm, BLOBS, RunOptions(samples=10**12))


def test_a_deadline_that_is_not_reached_changes_nothing() -> None:
    """Searches then run a sweep at a time."""
    X = np.random.default_rng(3).normal(size=(60, 2)) + 4.0 * (np.arange(60) % 3)[:, None]
    whole = bnp.MAPDP(n_init=3).fit(X)
    with end_by(time.perf_counter() + 1e6) as deadline:
        stepwise = bnp.MAPDP(n_init=3).fit(X)
    np.testing.assert_array_equal(stepwise.labels_, whole.labels_)
    assert stepwise.log_joint_ == pytest.approx(whole.log_joint_, rel=1e-12) and not deadline.has_cut
