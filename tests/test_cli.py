"""The command line, run in this process on small inputs; the whole default run is slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnp_hier import cli

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


@pytest.mark.slow
def test_compare_writes_everything(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    out = tmp_path / "report"
    words = ["compare", str(survey), "--truth", "group", "--items", "who", "--out", str(out), "--held-out", "0.2", *QUICK]
    assert _run(monkeypatch, *words) == 0
    captured = capsys.readouterr()
    assert "family bernoulli" in captured.err
    for word in ("Gibbs", "BHC", "MAP-DP", "log joint", "held out", "NMI", "rhat"):
        assert word in captured.out
    assert {p.name for p in out.iterdir()} == {"report.html", "labels.csv", "tree.nwk", "gibbs.nc", "bhc.nc", "map-dp.nc"}
    labels = pd.read_csv(out / "labels.csv")
    assert list(labels.columns) == ["item", "truth", "BHC", "MAP-DP", "Gibbs"] and len(labels) == 32
    assert labels["item"].str.startswith("p").all()
    tree = (out / "tree.nwk").read_text()
    assert tree.strip().endswith(";") and all(f"{item}:" in tree for item in labels["item"])
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 4 and "bnp-hier compare" in page and "--truth group" in page


def test_compare_of_chosen_methods(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report"
    words = ["compare", str(survey), "--drop", "group", "--drop", "who", "--methods", "map-dp", "--out", str(out)]
    assert _run(monkeypatch, *words, *QUICK) == 0
    assert {p.name for p in out.iterdir()} == {"report.html", "labels.csv", "map-dp.nc"}


@pytest.mark.slow
def test_a_route_that_fails_does_not_take_the_others_along(
    survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def fail(run) -> None:
        raise ValueError("chains broke")

    monkeypatch.setattr(cli, "_gibbs", fail)
    out = tmp_path / "report"
    words = ["compare", str(survey), "--truth", "group", "--items", "who", "--out", str(out), *QUICK]
    assert _run(monkeypatch, *words) == 0
    assert "Gibbs failed: chains broke" in capsys.readouterr().err
    assert "Gibbs failed: chains broke" in (out / "report.html").read_text()
    assert (out / "bhc.nc").exists() and not (out / "gibbs.nc").exists()


@pytest.mark.slow
def test_an_interrupted_route_keeps_the_finished_ones(survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_gibbs", interrupt)
    out = tmp_path / "report"
    words = ["compare", str(survey), "--truth", "group", "--items", "who", "--out", str(out), *QUICK]
    assert _run(monkeypatch, *words) == 0
    assert "Gibbs was interrupted and is missing" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["compare", "irsi"], "iris"),
        (["compare", "missing.csv"], "missing.csv"),
        (["compare", "iris", "--methods", "gibs"], "--methods must name some of gibbs, bhc, map-dp"),
        (["compare", "iris", "--family", "gauss"], "--family must be one of auto, normal"),
        (["compare", "iris", "--held-out", "1.5"], "--held-out must be a share"),
        (["compare", "iris", "--chains", "0"], "--chains must be at least 1"),
        (["compare", "iris", "--truth", "species"], "name columns of a file"),
        (["compare", "iris", "--family", "bernoulli"], "needs 0 or 1"),
    ],
)
def test_errors_are_one_line(words: list[str], match: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert _run(monkeypatch, *words) == 1
    message = capsys.readouterr().err
    assert match in message.replace("\n", " ") and message.startswith("error:") and "Traceback" not in message


def test_bad_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    cases = {
        "ragged.csv": ("a,b\n1,2\n3\n", "line 3"),
        "text.csv": ("a,b\n1,x\n2,y\n", "column"),
        "constant.csv": ("a,b\n1,2\n1,3\n1,5\n", "cannot be read: a; leave them out with --drop a"),
        "one.csv": ("a,b\n1,2\n", "1 row"),
        "equal.csv": ("a,b\n1,2\n1,2\n1,2\n", "cannot be read: a, b; leave"),
    }
    for name, (text, match) in cases.items():
        path = tmp_path / name
        path.write_text(text)
        assert _run(monkeypatch, "compare", str(path), "--out", str(tmp_path / "out"), *QUICK) == 1
        message = " ".join(capsys.readouterr().err.split())
        assert match in message, (name, message)


def test_help_has_an_example(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert _run(monkeypatch, "compare", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "bnp-hier compare iris" in text and "--truth" in text


@pytest.mark.optimised
@pytest.mark.slow
def test_main_job_on_iris(tmp_path: Path) -> None:
    """The README's main command, as a user runs it."""
    command = [str(Path(sys.executable).with_name("bnp-hier")), "compare", "iris", "--out", str(tmp_path / "report")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "Gibbs" in done.stdout and (tmp_path / "report" / "report.html").stat().st_size > 100_000
