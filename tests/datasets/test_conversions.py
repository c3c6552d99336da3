"""Columns taken for what the user says: conversions, new rows, and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import betaln, logit
from scipy.stats import betabinom

import bnp_hier as bnp
from bnp_hier.datasets import from_frame, read_columns, read_table
from bnp_hier.datasets.conversions import KINDS, parse_kinds, resolved_kind

FRAME = pd.DataFrame(
    {
        "income": [10.0, 100.0, np.nan, 1000.0],
        "visits": [0, 3, 8, 1],
        "share": [0.5, 0.25, 0.75, np.nan],
        "pct": [50.0, 25.0, 75.0, 5.0],
        "size": ["small", "large", None, "medium"],
        "code": [1, 3, 3, 2],
        "smokes": ["no", "yes", "yes", "no"],
        "stars": [1, 4, 2, 5],
    }
)
ASKED = {
    "income": "log",
    "visits": "log1p",
    "share": "logit",
    "pct": "logit",
    "size": "small<medium<large",
    "code": "category",
    "stars": "ordered",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


@pytest.mark.parametrize("source", ["frame", "file", "parquet"])
def test_values(path: Path, source: str) -> None:
    if source == "parquet":
        pytest.importorskip("pyarrow")
        FRAME.to_parquet(path.with_suffix(".parquet"))
        path = path.with_suffix(".parquet")
    data = from_frame(FRAME, kinds=ASKED) if source == "frame" else read_table(path, kinds=ASKED)
    found = dict(zip(data.feature_names, data.X.T, strict=True))
    assert list(found) == [
        "log(income)",
        "log1p(visits)",
        "logit(share)",
        "logit(pct)",
        "size (steps up)",
        "size (steps down)",
        "code=1",
        "code=2",
        "code=3",
        "smokes=yes",
        "stars (steps up)",
        "stars (steps down)",
    ]
    np.testing.assert_allclose(found["log(income)"], np.log(FRAME["income"]))
    np.testing.assert_allclose(found["log1p(visits)"], np.log1p(FRAME["visits"]))
    np.testing.assert_allclose(found["logit(share)"], logit(FRAME["share"]))
    np.testing.assert_allclose(found["logit(pct)"], logit(FRAME["pct"] / 100))
    np.testing.assert_array_equal(found["size (steps up)"], [0, 2, 0, 1])  # 0 steps of 0 where missing
    np.testing.assert_array_equal(found["size (steps down)"], [2, 0, 0, 1])
    np.testing.assert_array_equal(np.column_stack([found[f"code={k}"] for k in (1, 2, 3)]), np.eye(3)[[0, 2, 2, 1]])
    np.testing.assert_array_equal(found["stars (steps up)"], FRAME["stars"] - 1)
    np.testing.assert_array_equal(found["stars (steps down)"], 5 - FRAME["stars"])
    assert data.kinds["size"] == "small<medium<large" and data.kinds["stars"] == "1<2<3<4<5" and data.kinds["pct"] == "logit%"
    assert data.categories == ((6, 7, 8), (4, 5), (10, 11))
    np.testing.assert_array_equal(data.sources["income"], FRAME["income"])
    assert data.sources["size"].tolist() == ["small", "large", "", "medium"]
    assert data.sources["code"].tolist() == ["1", "3", "3", "2"]


def test_new_rows_are_converted_in_the_same_way(path: Path, tmp_path: Path) -> None:
    data = read_table(path, kinds=ASKED)
    again, _ = read_columns(path, data)
    np.testing.assert_array_equal(again, data.X)
    new = tmp_path / "new.csv"
    FRAME.assign(pct=0.5).iloc[:2].to_csv(new, index=False)  # percentages, although all are below 1
    found, _ = read_columns(new, data)
    np.testing.assert_allclose(found[:, 3], logit(0.005))
    FRAME.assign(stars=9).to_csv(new, index=False)
    with pytest.raises(ValueError, match="line 2, column 'stars': found '9', expected one of '1', '2', '3', '4', '5'"):
        read_columns(new, data)
    FRAME.assign(income=-1).to_csv(new, index=False)
    with pytest.raises(ValueError, match="line 2, column 'income': found -1, expected a number above 0, .* taken as log"):
        read_columns(new, data)


def test_order_of_an_ordered_categorical_column() -> None:
    kind = pd.CategoricalDtype(["cold", "warm", "hot"], ordered=True)
    frame = pd.DataFrame({"t": pd.Series(["warm", "hot", "cold", "hot"], dtype=kind)})
    data = from_frame(frame, kinds={"t": "ordered"})
    np.testing.assert_array_equal(data.X[:, 0], [1, 2, 0, 2])


def test_an_ordered_scale_is_modelled_as_beta_binomial() -> None:
    """Against SciPy: a cluster's ranks are binomial, with a beta prior on the probability of a step up."""
    data = from_frame(FRAME, drop=["size", "income", "share", "code", "smokes", "visits", "pct"], kinds={"stars": "ordered"})
    component = bnp.DirichletMultinomial([2.0, 3.0])
    for row, rank in zip(data.X, FRAME["stars"] - 1, strict=True):
        np.testing.assert_allclose(component.log_evidence(row[None]), betabinom.logpmf(rank, 4, 2.0, 3.0), rtol=1e-6)
    ranks = (FRAME["stars"] - 1).to_numpy()
    one = betaln(2 + ranks.sum(), 3 + (4 - ranks).sum()) - betaln(2, 3)
    coefficients = sum(betabinom.logpmf(r, 4, 1, 1) - betaln(1 + r, 5 - r) + betaln(1, 1) for r in ranks)
    np.testing.assert_allclose(component.log_evidence(data.X), one + coefficients, rtol=1e-6)
    from bnp_hier.advice.column_kinds import component_for

    wide = from_frame(FRAME, drop=["income", "share", "pct"], kinds={"stars": "ordered", "size": "ordered"})
    chosen = component_for(wide.X, "auto", wide.feature_names, wide.categories, wide.column_kinds)
    assert chosen.name == "mixed" and isinstance(chosen.component, bnp.ProductComponent)
    parts = {tuple(columns): type(part) for part, columns in zip(chosen.component.parts, chosen.component.columns, strict=True)}
    up = wide.feature_names.index("stars (steps up)")
    assert parts[(up, up + 1)] is bnp.DirichletMultinomial


def test_words_of_the_command_line() -> None:
    assert parse_kinds(["a=count,b=category", "c=log"]) == {"a": "count", "b": "category", "c": "log"}
    assert parse_kinds(["size=small<medium<large,b=log"]) == {"size": "small<medium<large", "b": "log"}
    assert parse_kinds(["a, b=count"]) == {"a, b": "count"}  # the name contains a comma
    assert parse_kinds(["x=1=count"]) == {"x=1": "count"}
    for wrong in ("count", "a=count,b", "=count", "a="):
        with pytest.raises(ValueError, match="expected column=kind, as in a=count,b=category"):
            parse_kinds([wrong])


@pytest.mark.parametrize(
    ("kinds", "match"),
    [
        ({"visit": "count"}, "there is no column 'visit'; did you mean 'visits'"),
        (
            {"visits": "conut"},
            r"column 'visits': there is no kind 'conut'; did you mean 'count' or 'continuous'\? The kinds",
        ),
        ({"income": "count", "visits": "log"}, "data row 1, column 'visits': found 0, expected a number above 0"),
        ({"share": "count"}, "data row 1, column 'share': found 0.5, expected a count, .* taken as count"),
        ({"visits": "binary"}, "data row 2, column 'visits': found 3, expected 0 or 1"),
        ({"income": "logit"}, "data row 2, column 'income': found 100, expected a percentage strictly between 0 and 100"),
        ({"size": "count"}, "column 'size' contains text, so it cannot be taken as count: expected category or ordered"),
        ({"smokes": "ordered"}, "column 'smokes': the order of its texts is unknown; write it as smokes=low<medium<high"),
        ({"size": "small<large"}, "data row 4, column 'size': found 'medium', expected one of 'small', 'large'"),
        ({"size": "small<small"}, "the scale 'small<small' has an empty or repeated grade"),
        ({"share": "ordered"}, "column 'share' cannot be taken as ordered: expected different whole numbers"),
        ({"drop me": "log"}, "there is no column 'drop me'"),
    ],
)
def test_bad_kinds(kinds: dict[str, str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        from_frame(FRAME, kinds={"size": "category"} | kinds)


def test_bad_frames_and_left_out_columns() -> None:
    with pytest.raises(TypeError, match="expected a pandas or polars DataFrame, but got list"):
        from_frame([[1.0]])
    with pytest.raises(ValueError, match="column 'size' has a kind, 'category', but is not used"):
        from_frame(FRAME, drop=["size"], kinds={"size": "category"})
    with pytest.raises(ValueError, match=r"column 'a': found 1 distinct value\(s\), expected several categories"):
        from_frame(pd.DataFrame({"a": ["x", "x"], "b": [1.0, 2.0]}), kinds={"a": "category"})
    data = from_frame(FRAME, drop=["income", "size"])
    np.testing.assert_array_equal(data.others["income"], FRAME["income"])
    assert data.others["size"].tolist() == ["small", "large", "", "medium"]
    half = data.rows(np.array([1, 3]))
    assert half.others["size"].tolist() == ["large", "medium"] and len(half.X) == 2


def test_all_kinds_are_accepted() -> None:
    cells = np.array([0.25, 0.5])
    for kind in KINDS:
        values = np.array([0.0, 1.0]) if kind in ("binary", "count", "ordered") else cells
        assert resolved_kind("a", kind, values, ()) in (kind, "0<1")


def test_a_column_of_percent_signs_is_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n45%,1\n5.5 %,2\n,3\n")
    np.testing.assert_array_equal(read_table(tmp_path / "t.csv").X[:, 0], [45.0, 5.5, np.nan])
    (tmp_path / "t.csv").write_text("a,b\n45%,1\n5.5,2\n,3\n")
    with pytest.raises(ValueError, match="found the text '45%'"):
        read_table(tmp_path / "t.csv")


def test_everything_to_leave_out_is_in_one_message(tmp_path: Path) -> None:
    n = 12
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "joined": pd.date_range("2024-01-01", periods=n).astype(str),
            "name": [f"person {i}" for i in range(n)],
            "flag": 7,
            "hole": np.nan,
            "day": 20240101 + np.arange(n),
            "x": np.linspace(0, 1, n) ** 2,
            "b": 1,
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError) as caught:
        read_table(tmp_path / "t.csv")
    message = str(caught.value)
    for part in (
        "'joined': dates or times",
        "'name': a different text in almost every row",
        "'id': an identifier (0, 1, ..., 11: increases by one in every row)",
        "'flag': 7 in every row",
        "'hole': all values are missing",
        "'day': an identifier" if n > 20 else "'day': ",
        "(to drop all: --drop joined,name,id,flag,hole,day)",
    ):
        assert part in message, message
    found = read_table(tmp_path / "t.csv", drop=["joined,name,id,flag,hole,day"])
    assert found.feature_names == ("x", "b")
