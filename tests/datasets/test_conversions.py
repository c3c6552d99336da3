"""Columns taken for what the user says: conversions, new rows, and errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.advice.column_kinds import component_for
from bnp_hier.datasets import Dataset, from_frame, read_columns, read_table
from bnp_hier.datasets.conversions import KINDS, parse_kinds, resolved_kind
from bnp_hier.datasets.tabular import RawTable, Roles, columns_of_frame

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
        *("size=small", "size=medium", "size=large"),
        "code=1",
        "code=2",
        "code=3",
        "smokes=yes",
        *("stars=1", "stars=2", "stars=3", "stars=4", "stars=5"),
    ]
    np.testing.assert_allclose(found["log(income)"], np.log(FRAME["income"]))
    np.testing.assert_allclose(found["log1p(visits)"], np.log1p(FRAME["visits"]))
    np.testing.assert_allclose(found["logit(share)"], logit(FRAME["share"]))
    np.testing.assert_allclose(found["logit(pct)"], logit(FRAME["pct"] / 100))
    sizes = np.column_stack([found[f"size={size}"] for size in ("small", "medium", "large")])
    np.testing.assert_array_equal(sizes, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]])  # none where it is missing
    np.testing.assert_array_equal(np.column_stack([found[f"code={k}"] for k in (1, 2, 3)]), np.eye(3)[[0, 2, 2, 1]])
    np.testing.assert_array_equal(np.column_stack([found[f"stars={k}"] for k in range(1, 6)]), np.eye(5)[FRAME["stars"] - 1])
    assert data.kinds["size"] == "small<medium<large" and data.kinds["stars"] == "1<2<3<4<5" and data.kinds["pct"] == "logit%"
    assert data.categories == ((4, 5, 6), (7, 8, 9), (11, 12, 13, 14, 15))
    assert data.levels["size"] == ("small", "medium", "large") and data.levels["stars"] == tuple("12345")
    np.testing.assert_array_equal(data.sources["income"], FRAME["income"])
    assert data.sources["size"].tolist() == ["small", "large", "", "medium"]
    assert data.sources["code"].tolist() == ["1", "3", "3", "2"]
    np.testing.assert_array_equal(data.sources["stars"], FRAME["stars"])


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


TEMPERATURE = pd.CategoricalDtype(["cold", "warm", "hot", "boiling"], ordered=True)


def test_an_ordered_type_is_a_scale_in_its_order(tmp_path: Path) -> None:
    """With the grades that do not occur, and values that are missing."""
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"t": pd.Series(["warm", "hot", None, "cold", "hot"], dtype=TEMPERATURE), "n": [1.5, 2.5, 4, 5, 7]})
    data = from_frame(frame)
    assert data.kinds == {"t": "cold<warm<hot<boiling"} and data.levels == {"t": ("cold", "warm", "hot", "boiling")}
    np.testing.assert_array_equal(data.X[:, :4], [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]])
    assert data.column_kinds == {} and data.source_columns == {"t": (0, 1, 2, 3), "n": (4,)}
    np.testing.assert_array_equal(from_frame(frame, kinds={"t": "ordered"}).X, data.X)
    new = columns_of_frame(pd.DataFrame({"n": [1.0, 2.0], "t": ["boiling", "cold"]}), data)
    np.testing.assert_array_equal(new, [[0, 0, 0, 1, 1], [1, 0, 0, 0, 2]])
    with pytest.raises(ValueError, match="'tepid', expected one of 'cold', 'warm', 'hot', 'boiling'"):
        columns_of_frame(pd.DataFrame({"n": [1.0], "t": ["tepid"]}), data)
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").kinds == data.kinds
    asked = from_frame(frame, kinds={"t": "category"})
    assert asked.kinds == {"t": "category"} and asked.levels == {"t": ("cold", "warm", "hot")}
    assert from_frame(frame, kinds={"t": "hot<warm<cold"}).levels == {"t": ("hot", "warm", "cold")}
    # two grades are one column; the sign between grades cannot be within one, but the order of the type is kept
    two = from_frame(pd.DataFrame({"t": pd.Categorical(["b", "a", None, "b"], categories=["b", "a"], ordered=True)}))
    assert two.feature_names == ("t=a",) and two.kinds == {"t": "b<a"}
    np.testing.assert_array_equal(two.X[:, 0], [0, 1, np.nan, 0])
    ages = from_frame(
        pd.DataFrame({"age": pd.Categorical(["<9", ">9", "9", "<9"], categories=["<9", "9", ">9"], ordered=True)})
    )
    assert ages.levels == {"age": ("<9", "9", ">9")} and ages.kinds == {}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("codes", [[10, 20, 70, 90], [10.0, 20.0, 70.0, 90.0], ["10", "20", "70", "90"]])
@pytest.mark.parametrize("ordered", [False, True])
def test_numbers_of_a_categorical_type_are_categories(codes: list, ordered: bool, missing: bool) -> None:
    kind = pd.CategoricalDtype([codes[3], *codes[:3]], ordered=ordered)
    cells = pd.Series([*codes, codes[0], *([None] if missing else [])], dtype=kind)
    frame = pd.DataFrame({"code": cells, "n": np.arange(len(cells)) ** 1.5})
    data = from_frame(frame)
    assert data.levels == {"code": ("90", "10", "20", "70") if ordered else ("10", "20", "70", "90")}
    assert data.kinds == ({"code": "90<10<20<70"} if ordered else {})
    places = [1, 2, 3, 0, 1] if ordered else [0, 1, 2, 3, 0]
    np.testing.assert_array_equal(data.X[:, :4], np.vstack([np.eye(4)[places], *([np.zeros(4)] if missing else [])]))
    for new in ([20, 90], [20.0, 90.0], ["20", "90"], pd.Categorical([20, 90], categories=[90, 20])):
        rows = columns_of_frame(pd.DataFrame({"code": new, "n": 0.0}), data)
        np.testing.assert_array_equal(rows[:, :4], data.X[[1, 3], :4])
    numbers = from_frame(frame, kinds={"code": "continuous"})
    np.testing.assert_array_equal(numbers.X[:, 0], [10, 20, 70, 90, 10, *([np.nan] if missing else [])])
    dropped = from_frame(frame, drop=["code"]).others["code"]
    assert dropped.tolist()[:2] == ([10.0, 20.0] if ordered else ["10", "20"])


def test_categorical_types_that_say_nothing() -> None:
    """Levels that are not used are left out; a single one, truth values and a value of its own in every row are no category."""
    n = np.arange(40)
    frame = pd.DataFrame({
        "few": pd.Categorical(n % 2 + 5, categories=[4, 5, 6, 7]),
        "same": pd.Categorical(n * 0 + 7, categories=[7, 8, 9], ordered=True),
        "flag": pd.Categorical(n % 2 == 0),
        "plain": n % 2 == 1,
        "many": pd.Categorical(n // 1.5),
    })  # fmt: skip
    data = from_frame(frame)
    assert data.levels == {"few": ("5", "6")} and data.kinds == {}
    assert data.feature_names == ("few=6", "same", "flag", "plain", "many")
    np.testing.assert_array_equal(data.X, np.column_stack([n % 2, n * 0 + 7, n % 2 == 0, n % 2, n // 1.5]))
    assert data.notes == ("'many' is read as numbers, because almost every row would be a category of its own",)
    constant = pd.DataFrame({"t": pd.Categorical(["a"] * 4, categories=["a", "b"], ordered=True), "n": [1.5, 2.5, 5, 7]})
    with pytest.raises(
        ValueError, match=r"found the text 'a', expected a number\. 't': 'a' in every row \(to drop all: --drop t\)"
    ):
        from_frame(constant)


def test_enumerations_of_polars() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({
        "size": pl.Series(["s", "m", None, "l", "m"], dtype=pl.Enum(["s", "m", "l", "xl"])),
        "colour": pl.Series(["red", "blue", "red", None, "red"], dtype=pl.Categorical),
    })  # fmt: skip
    data = from_frame(frame)
    assert data.levels == {"size": ("s", "m", "l", "xl"), "colour": ("blue", "red")} and data.kinds == {"size": "s<m<l<xl"}
    np.testing.assert_array_equal(columns_of_frame(frame, data), data.X)


def test_every_grade_of_a_scale_is_possible() -> None:
    """Those between the smallest and the largest one that do not occur too: they have pseudo-counts."""
    frame = pd.DataFrame({"stars": [1, 2, 5, 4] * 3, "n": np.arange(12) ** 1.5})
    data = from_frame(frame, kinds={"stars": "ordered"})
    assert data.levels == {"stars": tuple("12345")} and data.X[:, 2].sum() == 0
    chosen = component_for(data.X, "auto", data.feature_names, data.categories, data.column_kinds)
    assert chosen.name == "mixed" and isinstance(chosen.component, bnp.ProductComponent)
    parts = dict(zip(chosen.component.columns, chosen.component.parts, strict=True))
    part = parts[(0, 1, 2, 3, 4)]
    assert isinstance(part, bnp.DirichletMultinomial) and np.all(np.asarray(part.concentration) > 0)
    new = columns_of_frame(pd.DataFrame({"stars": ["3", "5.0"], "n": 1.0}), data)
    np.testing.assert_array_equal(new[:, :5], np.eye(5)[[2, 4]])
    assert np.isfinite(part.log_evidence(new[:1, :5]))
    for stars in (6, 2.5):
        with pytest.raises(ValueError, match=f"column 'stars': found '{stars}', expected one of '1', '2', '3', '4', '5'"):
            columns_of_frame(pd.DataFrame({"stars": [stars], "n": 1.0}), data)
    many = pd.DataFrame({"age": np.arange(120) % 31 + 18})
    for column in (many["age"], many["age"].astype(pd.CategoricalDtype(range(18, 49), ordered=True))):
        with pytest.raises(ValueError, match="column 'age' cannot be taken as ordered: .* as continuous"):
            from_frame(column.to_frame(), kinds={"age": "ordered"})
    assert len(from_frame(many[many["age"] < 48], kinds={"age": "ordered"}).levels["age"]) == 30
    with pytest.raises(ValueError, match=r"column 'n': found 12 distinct values in 12 cells"):
        from_frame(frame.assign(n=range(12)), kinds={"n": "ordered"})


def test_grades_do_not_shatter_clusters() -> None:
    """Nine grades of three groups, which vary more than binomial variables or have two modes."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [150, 100, 50])
    percent = [[60, 15, 10, 5, 4, 2, 2, 1, 1, 0], [1, 1, 2, 6, 30, 30, 6, 2, 1, 21], [5, 1, 1, 2, 2, 4, 5, 10, 10, 60]]
    grades = [[rng.choice(10, p=np.array(percent[group]) / 100) + 1 for group in groups] for _ in range(9)]
    frame = pd.DataFrame({f"g{j}": cells for j, cells in enumerate(grades)}).assign(length=rng.normal(size=300))
    data = from_frame(frame, kinds={f"g{j}": "ordered" for j in range(9)})
    chosen = component_for(data.X, "auto", data.feature_names, data.categories, data.column_kinds)
    assert chosen.name == "mixed"
    fit = bnp.MAPDP(partial(bnp.models.dpm, component=chosen.prior)).fit(data.X)
    assert adjusted_rand_score(groups, fit.labels_) > 0.95 and fit.labels_.max() <= 3


def test_rows_for_fits_of_version_0_1() -> None:
    """Which counted the steps up and down a scale."""
    frame = pd.DataFrame({"stars": [1, 4, np.nan, 5], "size": ["s", "l", "s", None], "n": [1.5, 2.5, 4.0, 7.0]})
    kinds = {"stars": "1<2<3<4<5", "size": "s<l"}
    names = ("stars (steps up)", "stars (steps down)", "size", "n")
    old = Dataset("old", np.zeros((4, 4)), None, names, None, "", kinds=kinds)
    np.testing.assert_array_equal(
        columns_of_frame(frame, old), [[0, 4, 0, 1.5], [3, 1, 1, 2.5], [0, 0, 0, 4], [4, 0, np.nan, 7]]
    )


def test_names_are_on_one_line(tmp_path: Path) -> None:
    """Names in spreadsheets have line breaks; columns can be selected by either spelling."""
    names = ["body\nmass", " true\tclass ", "who\r\nis it", "grade\n(1-3)", "left\nout"]
    rows = [[1.5, "a", "x", 1, 3.0], [2.5, "b", "y", 2, 4.0], [4.0, "a", "z", 3, 9.0], [5.0, "b", "w", 1, 2.0]]
    frame = pd.DataFrame(rows, columns=names)
    frame.to_csv(tmp_path / "t.csv", index=False)
    plain = [" ".join(name.split()) for name in names]
    for mass, truth, items, grade, out in (names, plain):
        for take in (partial(from_frame, frame), partial(read_table, tmp_path / "t.csv")):
            data = take(truth, items=items, drop=[out], kinds={grade: "ordered", mass: "log"})
            assert data.feature_names == ("log(body mass)", "grade (1-3)=1", "grade (1-3)=2", "grade (1-3)=3")
            assert data.items == "who is it" and data.item_names == tuple("xyzw") and list(data.others) == ["left out"]
            assert data.y is not None and data.y.tolist() == list("abab") and set(data.kinds) == {"body mass", "grade (1-3)"}
            np.testing.assert_array_equal(columns_of_frame(frame, data), data.X)
    unusable = RawTable.read(tmp_path / "t.csv").unusable(Roles(names[1], None, [names[4]], {names[3]: "ordered"}))
    assert [column.name for column in unusable] == ["who is it"]
    with pytest.raises(ValueError, match=r"there is no column 'body maß'; did you mean 'body mass'"):
        from_frame(frame, drop=["body\nmaß"])
    with pytest.raises(ValueError, match=r"found repeated column names 'a b'"):
        from_frame(pd.DataFrame([[1.0, 2.0]], columns=["a b", "a\nb"]))


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
