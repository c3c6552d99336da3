"""The command line, run in this process on small inputs; the whole default run is slow."""

from __future__ import annotations

import dataclasses
import json
import shlex
import signal
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier import cli
from bnp_hier import methods as methods
from bnp_hier.commands import console
from bnp_hier.reports import report
from tests.parameters import few

COMMANDS = ["compare", "fit", "predict", "evidence", "tree", "recommend", "datasets", "warm-up"]
QUICK = ["--chains", "2", "--warmup", "20", "--samples", "30", "--no-progress"]


def _run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bnp-hier", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 20)
    answers = (rng.random((40, 6)) < np.where(group[:, None] == 1, 0.9, 0.1)).astype(int)
    frame = pd.DataFrame(answers, columns=[f"q{i}" for i in range(6)]).assign(group=group, who=[f"p{i}" for i in range(40)])
    path = tmp_path / "survey.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(autouse=True)
def _as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` sets filters and keeps programs: for the command, not for the tests after it."""
    monkeypatch.setattr(cli, "keep_programs", lambda: None)
    monkeypatch.setattr(cli, "interrupted", lambda: False)  # else the process is left at once


@pytest.mark.slow
def test_compare_writes_everything(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    out = tmp_path / "report"
    words = ["compare", str(survey), "--truth", "group", "--items", "who", "--out", str(out), "--held-out", "0.2"]
    agreeing = ["--no-progress", "--chains", "2", "--warmup", "200", "--samples", "500"]
    assert _run(monkeypatch, *words, *agreeing, "--methods", "gibbs,bhc,map-dp") == 0
    captured = capsys.readouterr()
    assert "family bernoulli" in captured.err
    for word in ("Gibbs", "BHC", "MAP-DP", "log", "posterior", "held out", "ARI", "R-hat"):
        assert word in captured.out
    assert {p.name for p in out.iterdir()} == {
        *("report.html", "labels.csv", "clusters.csv", "association.csv", "tree.nwk"),
        *("gibbs.nc", "bhc.nc", "map-dp.nc", "fit.npz"),
    }
    labels = pd.read_csv(out / "labels.csv")
    sampled = [f"Gibbs{what}" for what in ("", " probability", " alternative", " probability of alternative", " p-value")]
    assert list(labels.columns) == ["item", "truth", "MAP-DP", "BHC", *sampled] and len(labels) == 32
    assert labels["Gibbs probability"].between(0, 1).all() and (labels["Gibbs"] != labels["Gibbs alternative"]).all()
    assert labels["item"].str.startswith("p").all()
    tree = (out / "tree.nwk").read_text()
    assert tree.strip().endswith(";") and all(f"{item}:" in tree for item in labels["item"])
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 4 and "bnp-hier compare" in page and "--truth group" in page
    for heading in (
        "How many groups are there, and what are they?",
        "How sure is that?",
        "Which rows are unusual?",
        "Do the methods agree?",
    ):
        assert f"<h2>{heading}</h2>" in page
    for heading in ("What is in each group?", "Can the computation be trusted?", "Evidence", "The run"):
        assert f"<h2>{heading}</h2>" in page
    assert not (out / "figures").exists()
    assert "What is missing" not in page and "BHC: pairs" in page and "R-hat" in page


def test_compare_of_chosen_methods(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    out = tmp_path / "report"
    words = ["compare", str(survey), "--drop", "group,who", "--methods", "map-dp", "--out", str(out), "--json"]
    assert _run(monkeypatch, *words, *QUICK) == 0
    tables = {"labels.csv", "clusters.csv", "association.csv"}
    assert {p.name for p in out.iterdir()} == {"report.html", *tables, "map-dp.nc", "fit.npz"}
    answer = json.loads(capsys.readouterr().out)
    assert answer["fit"] == str(out / "fit.npz") and answer["leading_method"] == "MAP-DP"
    assert answer["family"] == "bernoulli" and answer["methods"][0]["method"] == "MAP-DP" and answer["problems"] == []
    assert answer["methods"][0]["clusters"] == 2 and answer["methods"][0]["rhat"] is None


@pytest.mark.slow
def test_compare_writes_figures_and_keeps_row_numbers(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report"
    words = ["compare", str(survey), "--drop", "group,who", "--methods", "map-dp", "--out", str(out), "--held-out", "0.2"]
    assert _run(monkeypatch, *words, "--figures", "pdf", *QUICK) == 0
    figures = {p.name for p in (out / "figures").iterdir()}
    assert figures == {"profiles.pdf", "association.pdf", "columns.pdf"}
    assert all((out / "figures" / name).read_bytes().startswith(b"%PDF") for name in figures)
    page = (out / "report.html").read_text()
    assert 'href="figures/profiles.pdf"' in page and "--figures pdf" in page
    # rows keep their numbers when some are held out
    items = pd.read_csv(out / "labels.csv")["item"]
    assert items.is_monotonic_increasing and items.iloc[-1] >= len(items)
    clusters = pd.read_csv(out / "clusters.csv")
    statistics = ["rows", "mean", "sd", "overall", "low", "high"]
    assert list(clusters.columns) == ["column", "level", "cluster", *statistics]


@pytest.mark.parametrize("method", few(["gibbs", *sorted({*methods.partition_methods()} - {"gibbs"})], plain=0, slow=2))
def test_compare_leaves_a_fit_that_predict_reads(
    method: str, survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Whatever method leads; the line to type is printed, and the clusters are those of labels.csv."""
    out, predictions = tmp_path / "a report", tmp_path / "predictions.csv"
    words = ["compare", str(survey), "--truth", "group", "--items", "who", "--methods", method, "--out", str(out)]
    assert _run(monkeypatch, *words, *QUICK) == 0
    title = methods.METHODS[method].title
    last = capsys.readouterr().out.splitlines()[-1]
    told = f"to assign new rows to its clusters: bnp-hier predict '{out / 'fit.npz'}' NEW.csv"
    assert last == told and "fit.npz" in (out / "report.html").read_text()
    assert _run(monkeypatch, "predict", str(out / "fit.npz"), str(survey), "--items", "who", "--out", str(predictions)) == 0
    labels = pd.read_csv(out / "labels.csv")[title]
    fit = bnp.load_fit(out / "fit.npz")
    assert fit.method == method and fit.family == "bernoulli"
    np.testing.assert_array_equal(fit.labels, labels)
    np.testing.assert_array_equal(pd.read_csv(predictions)["cluster"], fit.predict_proba(fit.data.X).argmax(1))


@pytest.mark.parametrize(
    ("error", "words"), few([(ValueError("chains broke"), "failed: chains broke"), (KeyboardInterrupt(), "interrupted")])
)
def test_what_is_missing_is_reported(
    error: BaseException, words: str, survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A method that fails or is interrupted does not take the others along; the report and the exit code say so."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setitem(methods.METHODS, "gibbs", dataclasses.replace(methods.METHODS["gibbs"], run=fail))
    out = tmp_path / "report"
    options = ["--truth", "group", "--items", "who", "--methods", "map-dp,gibbs", "--out", str(out)]
    assert _run(monkeypatch, "compare", str(survey), *options, *QUICK) == 3
    assert words in capsys.readouterr().err
    page = (out / "report.html").read_text()
    assert "What is missing" in page and words in page
    assert (out / "map-dp.nc").exists() and not (out / "gibbs.nc").exists()


@pytest.mark.parametrize("presses", few([1, 2]))
def test_ctrl_c_while_the_report_is_written(
    presses: int, survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """The first is told and passes, so that what has been computed is kept; the second stops."""
    of = report.Findings.of

    def pressed(*args: object, **options: object) -> report.Findings:
        for _ in range(presses):
            signal.raise_signal(signal.SIGINT)
        return of(*args, **options)

    monkeypatch.setattr(report.Findings, "of", pressed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        out = tmp_path / "report"
        words = ["compare", str(survey), "--drop", "group", "--drop", "who", "--methods", "map-dp", "--out", str(out)]
        assert _run(monkeypatch, *words, *QUICK) == (0 if presses == 1 else 130)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert "finishing the report" in capsys.readouterr().err
    assert (out / "report.html").exists() == (presses == 1)


def test_a_folder_named_like_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iris").mkdir()
    assert _run(monkeypatch, "datasets", "iris", "--json") == 0
    assert json.loads(capsys.readouterr().out)
    (tmp_path / "mine").mkdir()
    assert _run(monkeypatch, "datasets", "mine") == 1


@pytest.mark.slow
def test_predictions_of_the_rows_of_the_fit_are_its_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """With columns of all kinds, in another order, without those that were left out; no column alone tells the groups apart."""
    rng = np.random.default_rng(0)
    n, z = 80, np.repeat([0, 1, 2, 3], 20)
    amounts = np.exp(rng.normal(4 + 4 * (z % 2), 0.3))
    frame = pd.DataFrame(
        {
            "note": [f"text {i}" for i in range(n)],
            "size": np.array(["large", "small", "medium", "small"])[z],
            "amount": [f"${amount:,.2f}" for amount in amounts],
            "who": [f"p{i}" for i in range(n)],
            "weight": [f"{w:.2f} kg" for w in rng.normal(50 + 20 * (z // 2), 2)],
            "colour": np.array(["red", "green", "blue", "blue"])[z],
        }
    )
    frame.to_csv(tmp_path / "goods.csv", index=False)
    options = ["--kinds", "amount=log,size=small<medium<large", "--drop", "note", "--items", "who", "--methods", "map-dp"]
    out, new, predictions = tmp_path / "out", tmp_path / "new.csv", tmp_path / "p.csv"
    assert _run(monkeypatch, "compare", str(tmp_path / "goods.csv"), *options, "--out", str(out), "--no-progress") == 0
    labels = pd.read_csv(out / "labels.csv").set_index("item")["MAP-DP"]
    assert adjusted_rand_score(z, labels) == 1.0
    order = rng.permutation(n)
    frame.loc[order, ["colour", "weight", "amount", "who", "size"]].to_csv(new, index=False)
    line = capsys.readouterr().out.splitlines()[-1].partition(": bnp-hier ")[2]
    words = [str(new) if word == "NEW.csv" else word for word in shlex.split(line)]
    assert _run(monkeypatch, *words, "--out", str(predictions)) == 0
    found = pd.read_csv(predictions)
    assert found["item"].tolist() == [f"p{i}" for i in order]
    np.testing.assert_array_equal(found["cluster"], labels[found["item"]])


@pytest.mark.parametrize("option", few(["--no-header", "--header"], plain=0))
def test_printed_prediction_reads_the_header_alike(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Whether or not the first row contains names, numbers in it need the option."""
    rows = np.random.default_rng(0).normal(size=(30, 2)) + 8.0 * (np.arange(30) >= 15)[:, None]
    np.savetxt(tmp_path / "num.csv", rows, delimiter=",", header="1,2", comments="")
    words = ["compare", str(tmp_path / "num.csv"), option, "--methods", "map-dp", "--out", str(tmp_path / "out")]
    assert _run(monkeypatch, *words, "--no-progress") == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.endswith(f"predict {tmp_path / 'out' / 'fit.npz'} {option} NEW.csv")
    again = line.partition(": bnp-hier ")[2].replace("NEW.csv", str(tmp_path / "num.csv"))
    assert _run(monkeypatch, *shlex.split(again), "--out", str(tmp_path / "p.csv")) == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == (30 if option == "--header" else 31)


def test_fit_then_predict(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    saved, labels, predictions = tmp_path / "fit.npz", tmp_path / "labels.csv", tmp_path / "predictions.csv"
    words = ["fit", str(survey), "--truth", "group", "--items", "who", "--method", "map-dp", "--out", str(saved)]
    assert _run(monkeypatch, *words, "--labels", str(labels)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 clusters, numbered from 0, of sizes " in said
    assert "beside the known classes: adjusted Rand index" in said and "every cluster lies within one class" in said
    clusters = pd.read_csv(labels)["MAP-DP"]
    fit = bnp.load_fit(saved)
    np.testing.assert_array_equal(fit.labels, clusters)
    assert fit.data.feature_names == tuple(f"q{i}" for i in range(6)) and fit.family == "bernoulli"

    shuffled = pd.read_csv(survey)[["who", "q5", "group", "q0", "q1", "q4", "q3", "q2"]]  # columns are found by name
    shuffled.to_csv(tmp_path / "new.csv", index=False)
    words = ["predict", str(saved), str(tmp_path / "new.csv"), "--items", "who", "--out", str(predictions)]
    assert _run(monkeypatch, *words) == 0
    table = pd.read_csv(predictions)
    np.testing.assert_array_equal(table["cluster"], clusters)
    assert table["item"].tolist() == shuffled["who"].tolist() and table["probability"].between(0.3, 1.0).all()
    capsys.readouterr()
    assert _run(monkeypatch, *words, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["clusters"] == 2 and len(answer["rows"]) == 40 and answer["rows"][0]["item"] == "p0"
    written = predictions.read_text()
    assert _run(monkeypatch, *words[:-1], "-") == 0
    captured = capsys.readouterr()
    assert captured.out == written and "mean log density" in captured.err and "\r" not in captured.err
    assert _run(monkeypatch, *words[:-1], "-", "--json") == 1
    capsys.readouterr()
    shuffled.drop(columns="q3").to_csv(tmp_path / "less.csv", index=False)
    assert _run(monkeypatch, "predict", str(saved), str(tmp_path / "less.csv")) == 1
    assert "less.csv: there is no column 'q3'" in capsys.readouterr().err


@pytest.mark.slow
def test_text_is_taken_for_categories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 25)
    colors = np.where(rng.random(50) < 0.9, np.array(["red", "blue"])[group], "green")
    frame = pd.DataFrame({"colour": colors, "smokes": np.where(rng.random(50) < 0.1 + 0.8 * group, "yes", "no")})
    frame["size"] = rng.normal(size=50) + 5 * group
    frame.loc[:2, ["colour", "smokes"]] = None
    frame.to_csv(tmp_path / "people.csv", index=False)
    saved, out = str(tmp_path / "fit.npz"), str(tmp_path / "p.csv")
    assert _run(monkeypatch, "fit", str(tmp_path / "people.csv"), "--method", "map-dp", "--out", saved, "--json") == 0
    captured = capsys.readouterr()
    told = " ".join(captured.err.split())
    assert "text columns are treated as categories" in told and "in parentheses): 'colour' (3), 'smokes' (2); if one" in told
    assert "50 rows, 3 columns, family mixed" in told
    assert json.loads(captured.out)["family"] == "mixed" and json.loads(captured.out)["sizes"] == [25, 25]
    assert _run(monkeypatch, "predict", saved, str(tmp_path / "people.csv"), "--out", out, "--json") == 0
    np.testing.assert_array_equal(pd.read_csv(out)["cluster"], group)


def test_fit_says_what_the_large_clusters_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    rows = np.random.default_rng(0).normal(size=(43, 2)) + 20.0 * (np.arange(43) >= 20)[:, None]
    rows[40:] = [[90.0, 0.0], [0.0, 90.0], [200.0, 200.0]]
    pd.DataFrame(rows, columns=["a", "b"]).to_csv(tmp_path / "rows.csv", index=False)
    assert _run(monkeypatch, "fit", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "fit.npz")) == 0
    words = "5 clusters, numbered from 0, of sizes 20, 20, 1, 1, 1; the two largest hold 93% of the rows"
    assert words in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("method", few(["gibbs", "bhc", *sorted(set(methods.METHODS) - {"gibbs", "bhc", "map-dp"})], plain=0))
def test_fit_by_any_method(method: str, survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    saved = tmp_path / "fit.npz"
    words = ["fit", str(survey), "--truth", "group", "--drop", "who", "--method", method, "--out", str(saved), "--json"]
    assert _run(monkeypatch, *words, *QUICK) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["method"] == method and sum(answer["sizes"]) == 40 and answer["notes"] == []
    assert bnp.load_fit(saved).predict_proba(np.zeros((2, 6))).shape == (2, len(answer["sizes"]) + 1)


@pytest.mark.slow
def test_tree_in_every_format(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    files = [tmp_path / f"tree{suffix}" for suffix in (".nwk", ".png", ".svg", ".pdf", ".html")]
    options = ["--truth", "group", "--items", "who", "--no-progress", *(w for file in files for w in ("--out", str(file)))]
    assert _run(monkeypatch, "tree", str(survey), *options) == 0
    assert all(f"tree: {file}" in capsys.readouterr().out.replace("\n", "") or file.exists() for file in files)
    starts = [b"(", b"\x89PNG", b"<?xml", b"%PDF", b"<!DOCTYPE html>"]
    assert [file.read_bytes()[: len(start)] for file, start in zip(files, starts, strict=True)] == starts
    page = files[-1].read_text()
    assert "p39" in page and "<details>" in page and "Known classes: " in page
    saved = tmp_path / "fit.npz"
    fit = ["fit", str(survey), "--truth", "group", "--items", "who", "--method", "bhc", "--out", str(saved), "--no-progress"]
    assert _run(monkeypatch, *fit) == 0
    capsys.readouterr()
    assert _run(monkeypatch, "tree", str(saved), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["newick"] + "\n" == files[0].read_text() and len(answer["labels"]) == 40


@pytest.mark.slow
def test_tree_of_any_branching(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    files = [tmp_path / f"tree{suffix}" for suffix in (".nwk", ".png", ".html")]
    words = ["tree", str(survey), "--truth", "group", "--items", "who", "--method", "bhmc", "--depth", "2", *QUICK, "--json"]
    assert _run(monkeypatch, *words, *(w for file in files for w in ("--out", str(file)))) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["newick"] + "\n" == files[0].read_text() and all(f"p{i}" in answer["newick"] for i in range(40))
    assert np.shape(answer["paths"]) == (40, 2) and max(np.ravel(answer["paths"])) < len(answer["support"])
    assert answer["support"][0] == 1.0 and all(0 <= share <= 1 for share in answer["support"])
    assert (
        any(note.partition(" with several items")[0].endswith(("node", "nodes")) for note in answer["notes"])
        and answer["problems"] == []
    )
    assert files[1].read_bytes().startswith(b"\x89PNG")
    page = files[2].read_text()
    for heading in ("What was found", "Tree", "Branches of the root", "Chains", "The run", "Newick"):
        assert f"<h2>{heading}</h2>" in page, heading
    assert "Known classes: " in page and "p39" in page and "n_nodes" in page
    assert "alpha" in page and "gamma0" in page


@pytest.mark.slow
def test_fit_of_trees(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Saved, read by Python, drawn, and put to new rows: probabilities of the leaves, densities averaged over draws."""
    saved, labels, table = tmp_path / "fit.npz", tmp_path / "labels.csv", tmp_path / "predictions.csv"
    words = ["fit", str(survey), "--truth", "group", "--items", "who", "--method", "bhmc", "--depth", "2", *QUICK, "--json"]
    assert _run(monkeypatch, *words, "--out", str(saved), "--labels", str(labels)) == 0
    answer = json.loads(capsys.readouterr().out)
    fit = bnp.load_fit(saved)
    assert fit.trees is not None and fit.trees.shape[0] == 2 and sum(answer["sizes"]) == 40 and answer["rhat"] > 0.9
    assert answer["sizes"] == np.bincount(pd.read_csv(labels)["BHMC"]).tolist() and answer["method"] == "bhmc"
    assert _run(monkeypatch, "predict", str(saved), str(survey), "--items", "who", "--out", str(table)) == 0
    predictions = pd.read_csv(table)
    probabilities = fit.predict_proba(fit.data.X)
    assert probabilities.shape == (40, len(answer["sizes"]) + 1)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    np.testing.assert_array_equal(predictions["cluster"], probabilities.argmax(1))
    np.testing.assert_allclose(predictions["log_density"], fit.trees.log_predictive(fit.data.X))
    tree = fit.trees[fit.trees.medoid()]
    leaf = tree.paths[fit.labels == 0, -1]
    np.testing.assert_allclose(probabilities[:, 0], fit.trees.predict(fit.data.X, fit.trees.medoid())[:, leaf[0]])
    assert len(set(leaf)) == 1
    capsys.readouterr()
    assert _run(monkeypatch, "tree", str(saved), "--out", str(tmp_path / "tree.nwk"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["newick"] == tree.to_newick(fit.data.item_names)


@pytest.mark.slow
def test_evidence(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    files = ["--out", str(tmp_path / "evidence.csv"), "--plot", str(tmp_path / "evidence.png")]
    quick = ["--rows", "12", "--particles", "50", "--samples", "60", "--no-progress", "--json"]
    assert _run(monkeypatch, "evidence", str(survey), "--truth", "group", "--drop", "who", *quick, *files) == 0
    answer = json.loads(capsys.readouterr().out)
    assert "strength" in answer["hyperparameters"]
    assert answer["n"] == 12 and {row["kind"] for row in answer["rows"]} == {"exact", "lower bound", "estimate"}
    assert (tmp_path / "evidence.png").read_bytes().startswith(b"\x89PNG")
    assert len(pd.read_csv(tmp_path / "evidence.csv")) == len(answer["rows"])


@pytest.mark.slow
def test_recommend_and_datasets(survey: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert _run(monkeypatch, "recommend", str(survey), "--truth", "group", "--drop", "who") == 0
    text = capsys.readouterr().out
    assert "family bernoulli" in text and "the budget for all is " in " ".join(text.split())
    assert _run(monkeypatch, "recommend", "iris", "--minutes", "0.02", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["family"] == "normal" and not any(method["run"] for method in answer["methods"])
    assert [structure["family"] for structure in answer["structures"]] == [
        "normal",
        "known",
        "diagonal",
        "shared-diagonal",
        "spherical",
    ]
    assert _run(monkeypatch, "datasets", "--json") == 0
    listed = {row["name"]: row["source"] for row in json.loads(capsys.readouterr().out)["datasets"]}
    assert (listed["iris"], listed["glass"]) == ("scikit-learn", "bnp_hier") and set(listed) == set(bnp.datasets.names())
    assert _run(monkeypatch, "datasets", "iris") == 0
    assert "150 rows, 4 columns, 3 known classes" in capsys.readouterr().out
    assert _run(monkeypatch, "datasets") == 0


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["compare", "irsi"], "iris"),
        (["compare", "missing.csv"], "missing.csv"),
        (["compare", "iris", "--methods", "gibs"], "--methods must be auto or some of map-dp, bayesian-kmeans, bhc"),
        (["compare", "iris", "--family", "gauss"], "family must be one of auto, "),
        (["compare", "iris", "--held-out", "1.5"], "--held-out must be at least 0 and less than 1"),
        (["compare", "iris", "--figures", "jpg"], "--figures must be pdf, png or svg, but it is 'jpg'"),
        (["compare", "iris", "--chains", "0"], "--chains must be positive"),
        (["compare", "iris", "--minutes", "-1"], "--minutes must be positive"),
        (["compare", "iris", "--truth", "species"], "--kinds apply only to files; a named data set has its own classes"),
        (["compare", "iris", "--family", "bernoulli"], "needs 0 or 1"),
        (["fit", "iris", "--method", "gips"], "--method must be one of map-dp"),
        (["fit", "iris", "--concentration", "0"], "--concentration must be positive"),
        (["predict", "nothing.npz", "iris"], "there is no such file; expected a file written by bnp-hier fit"),
        (["fit", "iris", "--seed", str(2**64)], "--seed must be a whole number from 0 to 9223372036854775807, but it is 1844"),
        (["compare", "iris", "--seed", "-1"], "--seed must be a whole number from 0"),
        (["compare", "iris", "--held-out", "0.994"], "--held-out 0.994 holds out 149 of 150 rows and leaves 1 for"),
        (["compare", "iris", "--held-out", "0.999"], "leaves 0 for the methods, which need at least 2"),
        (["datasets", "iris", "--no-header"], "a named data set has its own column names"),
        (["tree", "iris", "--out", "tree.gif"], "found a file name ending in '.gif', expected .nwk"),
        (["tree", "iris", "--threshold", "2"], "--threshold must be a probability"),
        (["tree", "iris", "--method", "upgma"], "--method must be one of bhc, bhmc"),
        (["datasets", "irsi"], "did you mean 'iris'"),
    ],
)
def test_errors_are_one_line(words: list[str], match: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert _run(monkeypatch, *words) == 1
    message = capsys.readouterr().err
    assert match in message and message.startswith("error:") and "Traceback" not in message and message.count("\n") == 1


def test_evidence_of_many_rows_asks_for_a_part_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    np.save(tmp_path / "many.npy", np.random.default_rng(0).normal(size=(2001, 2)))
    assert _run(monkeypatch, "evidence", str(tmp_path / "many.npy")) == 1
    message = capsys.readouterr().err
    assert "has 2001 rows, which would take very long; use a random subset, such as --rows 2000" in message
    assert message.startswith("error:") and message.count("\n") == 1


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bnp-hier", "compare", "irsi", "--debug"])
    with pytest.raises(ValueError, match="there is no data set 'irsi'"):
        cli.main()


def test_bad_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    cases = {
        "ragged.csv": ("a,b\n1,2\n3\n", "line 3"),
        "text.csv": ("a,b\n1,x\n2,7\n3,8\n", "column 'b': found the text 'x'"),
        "one.csv": ("a,b\n1,2\n", "1 row"),
        "equal.csv": ("a,b\n3,2\n3,2\n3,2\n", "no columns left besides 'a', 'b'"),
    }
    for name, (text, match) in cases.items():
        path = tmp_path / name
        path.write_text(text)
        assert _run(monkeypatch, "compare", str(path), "--out", str(tmp_path / "out"), *QUICK) == 1
        message = " ".join(capsys.readouterr().err.split())
        assert match in message, (name, message)


@pytest.mark.slow
def test_kinds_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    rng = np.random.default_rng(0)
    n, z = 60, np.repeat([0, 1, 2], 20)
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "joined": pd.date_range("2024-01-01", periods=n).astype(str),
            "income": np.exp(rng.normal(3.0 * z, 1.5)),
            "size": np.array(["small", "medium", "large"])[z],
            "stars": rng.binomial(4, 0.2 + 0.3 * z) + 1,
            "region": rng.choice(["north", "south"], n),
        }
    )
    path = str(tmp_path / "survey.csv")
    frame.to_csv(path, index=False)
    assert _run(monkeypatch, "fit", path) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "left out:" in shown and "'joined' (dates or times)" in shown and "'id' (an identifier" in shown
    drop = ["--drop", "joined,id,region"]
    assert _run(monkeypatch, "recommend", path, *drop) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "seem ordered" in " ".join(shown.replace("│", " ").split()) and "income=log" in shown, shown
    assert _run(monkeypatch, "recommend", path, *drop, "--json", "--kinds", "income=log") == 0
    columns = json.loads(capsys.readouterr().out)["columns"]
    assert columns[0]["name"] == "log(income)" and columns[0]["reason"] == "as requested"
    kinds = ["--kinds", "income=log,size=small<medium<large", "--kinds", "stars=ordered"]
    out = tmp_path / "out"
    assert _run(monkeypatch, "compare", path, *drop, *kinds, "--methods", "map-dp", "--out", str(out), "--no-progress") == 0
    assert "60 rows, 3 columns, family mixed" in " ".join(capsys.readouterr().err.split())  # of the file, not their features
    association = pd.read_csv(out / "association.csv").set_index("column")
    assert set(association.index) == {"income", "size", "stars", "id", "joined", "region"}
    assert association.loc[["income", "size", "stars"], "used"].all() and not association.loc[["id", "region"], "used"].any()
    assert association.loc["joined", "kind"] == "date" and association.loc["size", "measure"] == "Cramér's V"
    clusters = pd.read_csv(out / "clusters.csv", dtype=str).set_index("column")
    dates = clusters.loc["joined", ["mean", "overall"]]
    assert dates.stack().str.fullmatch(r"2024-\d\d-\d\d").all() and clusters.loc["income", "mean"].str.len().max() <= 8
    report = (out / "report.html").read_text()
    assert "60 rows × 3 columns" in report and "NormalInverseGamma for &#39;income&#39;" in report
    assert "--kinds" in report and "Means ± standard deviations, or shares, of the rows" in report and "size = medium" in report
    saved, predictions = str(tmp_path / "fit.npz"), str(tmp_path / "p.csv")
    assert _run(monkeypatch, "fit", path, *drop, *kinds, "--method", "map-dp", "--out", saved) == 0
    assert _run(monkeypatch, "predict", saved, path, "--out", predictions) == 0
    found = pd.read_csv(predictions)
    assert found["p_value"].between(1 / 1001, 1.0).all()
    assert adjusted_rand_score(z, found["cluster"]) > 0.7
    assert _run(monkeypatch, "compare", path, *drop, "--kinds", "stars=ordred") == 1
    assert "there is no kind 'ordred'; did you mean 'ordered'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_files_without_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    np.savetxt(tmp_path / "rows.csv", np.random.default_rng(0).normal(size=(30, 3)), delimiter=",")
    path = str(tmp_path / "rows.csv")
    commands = (["recommend"], ["datasets"], ["fit"], ["compare"], ["evidence"], ["tree"])
    for words in commands:
        assert _run(monkeypatch, *words, path) == 1
        assert "line 1: found only numbers" in capsys.readouterr().err
    for words in commands[:2]:
        assert _run(monkeypatch, *words, path, "--no-header") == 0
    assert "30 rows, 3 columns" in capsys.readouterr().out
    saved = str(tmp_path / "fit.npz")
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message="all 30 rows are in one cluster")
        assert _run(monkeypatch, "fit", path, "--no-header", "--method", "map-dp", "--out", saved) == 0
    assert "warning: all 30 rows are in one cluster" in capsys.readouterr().err
    out = ["--out", str(tmp_path / "p.csv")]
    assert _run(monkeypatch, "predict", saved, path, "--no-header", *out) == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == 30


@pytest.mark.parametrize("methods", [["map-dp,bhc"], ["map-dp", "bhc"], ["map-dp, bhc", "map-dp"]])
def test_lists_by_commas_and_by_repetition(methods: list[str]) -> None:
    assert console.method_names(methods) == ["map-dp", "bhc"] and console.method_names(["auto"]) is None


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert _run(monkeypatch, command, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Example: bnp-hier {command}" in text and ("--json" in text)


def test_help_lists_the_commands_and_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert _run(monkeypatch, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(command in text for command in COMMANDS) and "Exit codes" in text and "--debug" in text
    assert _run(monkeypatch, "compare") == 2  # wrong use


@pytest.mark.optimised
@pytest.mark.slow
def test_main_job_on_iris(tmp_path: Path) -> None:
    """The README's main command, as a user runs it."""
    command = [str(Path(sys.executable).with_name("bnp-hier")), "compare", "iris", "--out", str(tmp_path / "report")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "Gibbs" in done.stdout and (tmp_path / "report" / "report.html").stat().st_size > 100_000


@pytest.mark.slow
def test_numbers_with_units_and_separators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """They are read, notes say so, and new rows must have the same units."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 25)
    weights, prices = rng.normal(10 + 5 * group, 0.5), np.exp(rng.normal(7 + 2 * group, 0.2))
    frame = pd.DataFrame({"weight": [f"{w:.2f} kg" for w in weights], "price": [f"{price:,.1f}" for price in prices]})
    path, saved = tmp_path / "goods.csv", str(tmp_path / "fit.npz")
    frame.to_csv(path, index=False)
    assert _run(monkeypatch, "fit", str(path), "--out", saved) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "read without their units: 'weight' (kg)" in told and "thousands separators are removed: 'price'" in told
    fit = bnp.load_fit(saved)
    np.testing.assert_allclose(fit.data.X, np.column_stack([weights, prices]), atol=0.1)
    assert adjusted_rand_score(fit.labels, group) == 1.0 and fit.data.units == {"weight": "kg"}
    out = tmp_path / "report"
    assert _run(monkeypatch, "compare", str(path), "--methods", "map-dp", "--out", str(out), "--no-progress") == 0
    assert "numbers are read without their units: &#39;weight&#39; (kg)" in (out / "report.html").read_text()
    capsys.readouterr()
    grams = tmp_path / "grams.csv"
    frame.assign(weight=[f"{1000 * w:.0f} g" for w in weights]).to_csv(grams, index=False)
    assert _run(monkeypatch, "predict", saved, str(grams), "--out", str(tmp_path / "p.csv")) == 1
    assert "grams.csv, line 2, column 'weight': found '10" in (message := capsys.readouterr().err)
    assert "expected numbers in 'kg' as in the data of the fit" in message
    assert _run(monkeypatch, "fit", str(path), "--kinds", "weight=category") == 1
    assert "of its own for almost every row says nothing about clusters" in capsys.readouterr().err


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Names, dates, an identifier, a constant, and columns of all kinds that can be used."""
    rng = np.random.default_rng(0)
    n, z = 60, np.repeat([0, 1, 2], 20)
    frame = pd.DataFrame(
        {
            "who": [f"p{i}" for i in range(n)],
            "born": pd.date_range("1990-01-01", periods=n).astype(str),
            "height": rng.normal(170 + 10 * z, 3),
            "code": np.arange(100, 100 + n),
            "version": 7,
            "colour": np.array(["red", "green", "blue"])[z],
            "visits": rng.poisson(1 + 3 * z),
        }
    )
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


def _flat(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.slow
def test_recommend_shows_columns_that_cannot_be_used(people: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """The reasons stand in the table, and the command at the end runs."""
    assert _run(monkeypatch, "recommend", str(people), "--minutes", "0.05") == 0
    captured = capsys.readouterr()
    shown = _flat(captured.out)
    assert "who unusable a different text" in shown  # which goes on in the next line
    assert "born unusable dates or times" in shown and "version unusable 7 in every row" in shown
    assert "height continuous" in shown and "colour category 3 values" in shown and "text columns" not in captured.err
    options = "--items who --drop born,code,version"
    assert f"to leave out unusable and uninformative columns: {options}" in shown
    last = captured.out.splitlines()[-1]
    assert last == f"to run them: bnp-hier compare {people} --minutes 0.05 {options}"
    words = [*last.split()[4:], "--methods", "map-dp", "--out", str(people.parent / "out")]
    assert _run(monkeypatch, *words) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "people: 60 rows, 3 columns, family mixed" in said  # the indicators of a category are one column
    page = (people.parent / "out" / "report.html").read_text()
    assert "60 rows × 3 columns" in page
    assert _run(monkeypatch, "recommend", str(people), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    reasons = {column["name"]: column["reason"] for column in answer["columns"] if column["kind"] == "unusable"}
    assert reasons == {
        "who": "a different text in almost every row, perhaps the names of the rows",
        "born": "dates or times",
        "code": "an identifier (100, 101, ..., 159: increases by one in every row)",
        "version": "7 in every row",
    }
    assert _run(monkeypatch, "recommend", str(people), "--drop", "height,colour,visits") == 1
    captured = capsys.readouterr()
    assert "unusable" in captured.out and "error: people.csv: no column can be used to find clusters" in captured.err


def test_commands_advise_options_that_they_have(people: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """`datasets` and `predict` have no --drop."""
    assert _run(monkeypatch, "datasets", str(people)) == 0
    captured = capsys.readouterr()
    shown = _flat(captured.out)
    assert "people: 60 rows, 7 columns, of which 4 cannot be used" in shown and "born unusable dates or times" in shown
    assert "to leave out unusable and uninformative columns, add to the other commands: --items who --drop" in shown
    assert "--truth" not in captured.err
    answer_to = ["datasets", str(people), "--json"]
    assert _run(monkeypatch, *answer_to) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"] == 60 and [column["kind"] for column in answer["columns"][:4]] == ["unusable"] * 4
    only_names = people.parent / "names.csv"
    only_names.write_text("who\n" + "".join(f"p{i}\n" for i in range(9)))
    assert _run(monkeypatch, "datasets", str(only_names)) == 0
    assert "names.csv: 9 rows, 1 column, which cannot be used" in _flat(capsys.readouterr().out)

    saved, new = str(people.parent / "fit.npz"), people.parent / "new.csv"
    assert _run(monkeypatch, "fit", str(people), "--items", "who", "--drop", "born,code,version", "--out", saved) == 0
    rows = pd.read_csv(people, dtype=str)
    rows.loc[4, "height"] = "tall"
    rows.to_csv(new, index=False)
    capsys.readouterr()
    assert _run(monkeypatch, "predict", saved, str(new)) == 1
    message = capsys.readouterr().err
    assert "new.csv, line 6, column 'height': found the text 'tall', expected a number as in the data of the fit" in message
    assert "--" not in message


@pytest.mark.slow
def test_offered_kinds_are_of_the_file(people: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """What is printed to be pasted names columns of the file, and is accepted."""
    assert _run(monkeypatch, "recommend", str(people), "--drop", "colour") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "--kinds" in line]
    assert lines == ["to treat columns differently: --kinds visits=continuous"]
    asked = lines[0].split("--kinds ")[1]
    assert _run(monkeypatch, "recommend", str(people), "--drop", "colour", "--kinds", asked, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert {column["name"] for column in answer["columns"]} >= {"height", "visits"}
    (people.parent / "signed.csv").write_text("a,b\n" + "".join(f"{i % 7 - 3.5},{i % 5 - 2.5}\n" for i in range(40)))
    assert _run(monkeypatch, "recommend", str(people.parent / "signed.csv")) == 0
    assert "--kinds" not in capsys.readouterr().out


def test_no_order_of_texts_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """A scale is offered for texts that have a known order, and not the alphabet for others."""
    birds, shirts = ["adelie", "chinstrap", "gentoo"], ["large", "small", "medium"]
    for name, texts in (("birds", birds), ("shirts", shirts)):
        rows = "".join(f"{texts[i % 3]},{i % 7 - 3.5}\n" for i in range(40))
        (tmp_path / f"{name}.csv").write_text(f"{name},a\n{rows}")
    assert _run(monkeypatch, "recommend", str(tmp_path / "birds.csv")) == 0
    assert "birds category 3 values" in _flat(shown := capsys.readouterr().out) and "--kinds" not in shown
    assert _run(monkeypatch, "datasets", str(tmp_path / "shirts.csv")) == 0
    expected = "to treat columns differently, add to the other commands: --kinds 'shirts=small<medium<large'"
    assert expected in capsys.readouterr().out


@pytest.mark.slow
def test_printed_command_leaves_out_kinds_of_columns_that_it_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": 7, "a": np.exp(rng.normal(size=40)), "b": rng.normal(size=40)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for kinds, used in ((["k=continuous"], ""), (["k=count,a=log", "b=continuous"], " --kinds a=log,b=continuous")):
        given = [word for each in kinds for word in ("--kinds", each)]
        assert _run(monkeypatch, "recommend", str(tmp_path / "a.csv"), "--minutes", "0.05", *given) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"to run them: bnp-hier compare {tmp_path / 'a.csv'} --minutes 0.05{used} --drop k"
        assert _run(monkeypatch, "recommend", *shlex.split(last)[5:]) == 0  # which reads the options alike
        capsys.readouterr()


def test_json_without_a_usable_column_is_an_error_alone(people: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert _run(monkeypatch, "recommend", str(people), "--drop", "height,colour,visits", "--json") == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: people.csv: no column can be used to find clusters ('who': ")
    assert "'born': dates or times" in captured.err


@pytest.mark.slow
def test_predict_remembers_the_names_of_the_rows(people: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    saved, out = str(people.parent / "fit.npz"), people.parent / "p.csv"
    assert _run(monkeypatch, "fit", str(people), "--items", "who", "--drop", "born,code,version", "--out", saved) == 0
    assert bnp.load_fit(saved).data.items == "who"
    assert _run(monkeypatch, "predict", saved, str(people), "--out", str(out)) == 0
    assert pd.read_csv(out)["item"].tolist() == [f"p{i}" for i in range(60)]
    assert _run(monkeypatch, "predict", saved, str(people), "--items", "code", "--out", str(out)) == 0
    assert pd.read_csv(out)["item"].tolist() == list(range(100, 160))
    pd.read_csv(people).drop(columns="who").to_csv(people.parent / "new.csv", index=False)
    capsys.readouterr()
    assert _run(monkeypatch, "predict", saved, str(people.parent / "new.csv"), "--out", str(out)) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said == "new.csv has no column 'who', which named the rows of the fit: rows are numbered"
    assert pd.read_csv(out)["item"].tolist() == list(range(60))
    pd.read_csv(people).head(1).to_csv(people.parent / "new.csv", index=False)
    assert _run(monkeypatch, "predict", saved, str(people.parent / "new.csv"), "--out", str(out)) == 0
    assert capsys.readouterr().out.startswith("1 row, mean log density ")
    assert _run(monkeypatch, "predict", saved, "iris", "--items", "who") == 1
    assert "--items applies only to files" in capsys.readouterr().err


@pytest.mark.slow
def test_the_note_on_categories_is_for_those_who_need_it(people: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """--truth is not advised to those who have given it, and `recommend` shows the categories in its table."""
    rest = ["--drop", "born,code,version", "--items", "who"]
    for given, advised in (([], True), (["--truth", "visits"], False)):
        assert _run(monkeypatch, "fit", str(people), *rest, *given, "--out", str(people.parent / "f.npz")) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert "text columns are treated as categories" in said and ("use --truth" in said) == advised
    assert _run(monkeypatch, "recommend", str(people), *rest) == 0
    assert "text columns" not in capsys.readouterr().err


def test_lines_to_type_name_the_program_as_it_is_found(
    people: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its path if the environment in which it is installed is not active."""
    assert _run(monkeypatch, "recommend", str(people), "--minutes", "0.05") == 0
    assert "\nto run them: bnp-hier compare" in capsys.readouterr().out
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [".venv/bin/bnp-hier", "recommend", str(people), "--minutes", "0.05"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code and "\nto run them: .venv/bin/bnp-hier compare" in capsys.readouterr().out


@pytest.mark.slow
def test_paths_are_printed_in_one_line(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """However long: a path that is broken cannot be copied."""
    folder = tmp_path / " ".join(["a long name of a folder"] * 5)
    frame = pd.read_csv(survey).assign(
        **{"which of the two groups " * 5 + "is it": lambda table: np.where(table["group"], "b", "a")}
    )
    frame.to_csv(survey, index=False)
    columns = ["--drop", "who,group"]
    assert _run(monkeypatch, "fit", str(survey), *columns, "--out", str(folder / "fit.npz"), "--no-progress") == 0
    captured = capsys.readouterr()
    assert f"fit: {folder / 'fit.npz'}\n" in captured.out and f"--truth {shlex.quote(frame.columns[-1])}\n" in captured.err
    assert _run(monkeypatch, "predict", str(folder / "fit.npz"), str(survey), "--out", str(folder / "p.csv")) == 0
    assert f"predictions: {folder / 'p.csv'}\n" in capsys.readouterr().out
    assert _run(monkeypatch, "tree", str(survey), *columns, "--out", str(folder / "tree.nwk"), "--no-progress") == 0
    assert f"tree: {folder / 'tree.nwk'}\n" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["bnp_hier", "bnp_hier.cli"])
def test_python_runs_the_command_and_an_early_interrupt_is_one_line(module):
    shown = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown == f"bnp-hier {version('bnp-hier')}\n"
    # as soon as the first module of ours is read
    early = (
        "import os, runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where the tests run in the background
        f"sys.orig_argv = ['python', '-m', {module!r}]\n"
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpyro': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Stop())\n"
        f"runpy.run_module({module!r}, run_name='__main__')"
    )
    stopped = subprocess.run([sys.executable, "-c", early], capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (130, "", "interrupted\n")


def test_json_is_ascii(capsys):
    console.print_json({"name": "é", "number": np.nan})
    assert capsys.readouterr().out == '{"name": "\\u00e9", "number": null}\n'
