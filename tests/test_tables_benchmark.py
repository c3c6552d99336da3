"""The benchmark on tables as people have them: its generators, what is put aside, what peers get, and its records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from examples.benchmarks import kinds_of_tables as kinds
from examples.benchmarks import tables

ROOT = Path(__file__).resolve().parents[1]


def test_a_third_is_put_aside() -> None:
    """The names are spelled out: nobody changes afterwards what was put aside."""
    aside = {name for name in tables.ASIDE if "/" not in name}
    assert len(aside) == len(tables.REAL) // 3 == 15 and {"penguins", "penguins_raw"} <= aside
    assert sorted(name.split("/")[0] for name in tables.ASIDE - aside) == sorted(kinds.KINDS)
    assert {"tiny/1", "birds/0", "export/0"} <= tables.ASIDE < set(tables.TABLES)
    with pytest.raises(SystemExit):
        tables.main(["--tables", "penguins"])


@pytest.mark.parametrize("name", kinds.KINDS)
def test_generated_tables(name: str) -> None:
    """They are deterministic, variants differ, each row has a class, and peers get complete numbers."""
    rows, classes = kinds.table(name, 0)
    pd.testing.assert_frame_equal(rows, kinds.table(name, 0)[0])
    assert not rows.equals(kinds.table(name, 1)[0])
    assert classes is None or classes.shape == (len(rows),)
    assert rows.columns.is_unique and rows.index.is_unique and rows.notna().any().all()
    X = tables.prepared(tables.load(f"{name}/0")).X
    assert X.shape[0] == len(rows) and X.shape[1] and np.isfinite(X).all()


def test_real_tables_of_scikit_learn() -> None:
    rows, truth, _ = tables.load("iris")
    assert rows.shape == (150, 4) and truth is not None and len(set(truth)) == 3


def test_preparation_for_peers() -> None:
    rows = pd.DataFrame(
        {
            "id": [1, 2, 3, 4],
            "length": [1.0, np.nan, 3.0, 5.0],
            "price": ["€1,000.00", "€2.00", "€3.00", "€5.00"],
            "size": pd.Categorical(["s", "m", "l", "s"], ["s", "m", "l"], ordered=True),
            "code": [3, 3, 1, 1],
            "colour": ["red", None, "blue", "red"],
            "constant": 7,
        }
    )
    data = tables.prepared(tables.Case(rows, None, kinds.Rules(("id",), ("code",))))
    expected = np.array([[1.0, 3, 3, 5], [1000, 2, 3, 5], [0, 1, 2, 0]]).T
    np.testing.assert_allclose(data.numbers, (expected - expected.mean(0)) / expected.std(0))
    np.testing.assert_array_equal(data.categories, [["3", "red"], ["3", "missing"], ["1", "blue"], ["1", "red"]])
    np.testing.assert_array_equal(data.indicators, [[0, 1, 0, 0, 1], [0, 1, 0, 1, 0], [1, 0, 1, 0, 0], [1, 0, 0, 0, 1]])


def test_a_method_that_takes_too_long_is_recorded(tmp_path: Path) -> None:
    """In a process of its own, because it forks."""
    out = tmp_path / "tables.csv"
    words = [
        "--tables",
        "tiny/0",
        "--methods",
        "hdbscan,bnp_hier",
        "--seconds",
        "1",
        "--out",
        out,
        "--peers",
        out,
        "--before",
        out,
    ]
    words = [sys.executable, "-m", "examples.benchmarks.tables", *words]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(out).set_index("method")
    assert list(found.index) == ["hdbscan", "bnp_hier"]
    assert found["clusters"]["hdbscan"] >= 1 and "stopped, 1 s" in found["error"]["bnp_hier"]
    assert "| tiny/0 | 25 × 2 |" in (page := out.with_suffix(".md").read_text(encoding="utf-8")) and "Failed on tiny/0" in page
    before = out.read_bytes()
    tables.run(out, ["tiny/0"], ["hdbscan", "bnp_hier"], 1, redo=False)  # there is nothing left to do
    assert out.read_bytes() == before


@pytest.mark.slow
def test_one_call_on_a_table(tmp_path: Path) -> None:
    out = tmp_path / "tables.csv"
    words = ["--tables", "tiny/0", "--methods", "bnp_hier,gmm-bic", "--out", out, "--peers", out, "--before", out]
    subprocess.run([sys.executable, "-m", "examples.benchmarks.tables", *words], cwd=ROOT, check=True)
    found = pd.read_csv(out)
    assert found["error"].isna().all() and (found["clusters"] >= 1).all()
    assert "is at least that of the best peer" in out.with_suffix(".md").read_text(encoding="utf-8")
