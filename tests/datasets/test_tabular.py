import dataclasses
import datetime
import gzip
import io
import os
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnp_hier.datasets import Dataset, from_frame, read_columns, read_table
from bnp_hier.datasets.tabular import RawTable, Roles, as_labels, columns_of_frame


def write(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    data = text.encode() if isinstance(text, str) else text
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "TABLE.CSV"])
def test_numbers_labels_and_names(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, 'a,kind,"b, quoted"\n1,red,2.5\n-3e2,"dark ""blue""",4\n', name)
    data = read_table(path, truth="kind")
    assert data.X.dtype == np.float64
    np.testing.assert_array_equal(data.X, [[1.0, 2.5], [-300.0, 4.0]])
    assert data.y is not None and data.y.tolist() == ["red", 'dark "blue"']
    assert data.feature_names == ("a", "b, quoted")
    assert data.item_names is None
    assert data.name == name.split(".")[0]
    assert data.description == f"2 rows and 2 columns read from {name}."


@pytest.mark.parametrize("truth", [["kind", "place"], "kind,place", ["kind, place"]])
def test_several_columns_of_labels(tmp_path: Path, truth: str | list[str]) -> None:
    data = read_table(write(tmp_path, "a,kind,place\n1,x,2\n2,y,2\n4,y,3\n"), truth=truth)
    assert data.feature_names == ("a",) and data.y is not None and data.y.tolist() == ["x / 2", "y / 2", "y / 3"]
    assert {name: labels.tolist() for name, labels in data.truths.items()} == {"kind": ["x", "y", "y"], "place": [2, 2, 3]}
    assert data.rows(np.array([2])).truths["place"].tolist() == [3]
    one = read_table(tmp_path / "table.csv", truth=["kind"])
    assert one.truths == {} and one.y is not None and one.y.tolist() == ["x", "y", "y"] and one.feature_names == ("a", "place")


def test_without_truth_there_are_no_labels(tmp_path: Path) -> None:
    data = read_table(str(write(tmp_path, "a,b\n1,2\n")))
    assert data.y is None
    assert data.X.shape == (1, 2)


def test_data_sets_cannot_be_reassigned(tmp_path: Path) -> None:
    data = read_table(write(tmp_path, "a\n1\n"))
    assert isinstance(data, Dataset)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]


def test_missing_infinite_and_boolean_cells(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c,d\n,NA,True,inf\n1, 2 ,False,-Infinity\nnan,NULL,,1e400\n?,N/A,#N/A,5\n")
    expected = [[np.nan, np.nan, 1.0, np.inf], [1.0, 2.0, 0.0, -np.inf], [np.nan, np.nan, np.nan, np.inf]]
    expected.append([np.nan, np.nan, np.nan, 5.0])
    np.testing.assert_array_equal(read_table(path).X, expected)


def test_a_column_without_any_value_is_all_nan(tmp_path: Path) -> None:
    assert np.isnan(read_table(write(tmp_path, 'a,b\n,1\n"",2\n')).X[:, 0]).all()


def test_an_empty_quoted_cell_of_a_single_column_is_a_row(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_table(write(tmp_path, 'a\n1\n""\n3\n')).X, [[1.0], [np.nan], [3.0]])


def test_byte_order_mark_windows_lines_and_blank_lines(tmp_path: Path) -> None:
    data = read_table(write(tmp_path, b"\xef\xbb\xbfa,b\r\n\r\n1,2\r\n3,4\r\n\r\n"))
    assert data.feature_names == ("a", "b")
    np.testing.assert_array_equal(data.X, [[1.0, 2.0], [3.0, 4.0]])


def test_items_and_dropped_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "animal,note,legs,class\nOwl,x,2,1\nCat,y,4,2\n")
    data = read_table(path, "class", items="animal", drop=["note"])
    assert data.item_names == ("Owl", "Cat")
    assert data.feature_names == ("legs",)
    assert data.y is not None and data.y.dtype == np.int64 and data.y.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2", "30"], np.array([1, -2, 30])),
        (["1", "1.5"], np.array(["1", "1.5"])),
        (["01", "1"], np.array(["01", "1"])),
        (["1_0", "10"], np.array(["1_0", "10"])),
        (["1", str(2**70)], np.array(["1", str(2**70)])),
        (["a", "b"], np.array(["a", "b"])),
        (np.array([2, 1], dtype=np.uint8), np.array([2, 1])),
    ],
)
def test_labels_are_integers_only_if_written_so(values: list[str], expected: np.ndarray) -> None:
    labels = as_labels(values)
    assert labels.dtype.kind == expected.dtype.kind
    assert labels.tolist() == expected.tolist()


ERRORS = {
    "empty": ("", None, "table.csv: the file is empty; expected a header row and data rows"),
    "blank": (" \n\n", None, "table.csv: the file is empty; expected a header row and data rows"),
    "no rows": ("a,b\n", None, "table.csv: found column names but no data rows; expected at least one row"),
    "not UTF-8": (
        b"a,b\n1,2\n\xe9,3\n",
        None,
        "table.csv, line 3: found byte 0xe9, which is not UTF-8; expected CSV text in UTF-8",
    ),
    "binary": (b"a,b\n\x00\x01,2\n", None, "table.csv: found NUL bytes, so this is a binary file"),
    "semicolons without a header": ("1,5;2;-3\n2,5;3;1,25\n", None, "table.csv, line 1: found only numbers ('1.5', '2', '-3')"),
    "comments": (
        "# from the field\na,b\n1,2\n",
        None,
        "table.csv, line 2: found 2 field(s), expected 1 as in the header; if lines that begin with # are comments, remove",
    ),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), None, "table.csv: found text in UTF-16; expected CSV text in UTF-8"),
    "short row": ("a,b,c\n1,2,3\n4,5\n", None, "table.csv, line 3: found 2 field(s), expected 3 as in the header"),
    "long row": ("a,b\n\n1,2\n4,5,6\n", None, "table.csv, line 4: found 3 field(s), expected 2 as in the header"),
    "open quote": ('a,b\n1,"2\n', None, "table.csv, line 2: not readable as CSV (unexpected end of data)"),
    "stray quote": ('a,b\n1,"2"3\n', None, "table.csv, line 2: not readable as CSV"),
    "text": (
        "a,b\n1,2\n,3\nlow,4\nhigh,5\n",
        None,
        "table.csv, line 4, column 'a': found the text 'low', expected a number. 'a': if the column contains the true labels, "
        "declare it with truth= or --truth; if it names the rows, with items= or --items; if its values are "
        "categories, take it as such (--kinds a=category); otherwise drop it "
        "(to drop all: --drop a)",
    ),
    "text in several columns": ("a,b,c\n1,x,2\ny,3,4\n", None, "'a', 'b': if the column contains"),
    "text after a quoted line break": (
        'k,a\n"two\nlines",1\none,x\n',
        "k",
        "table.csv, line 4, column 'a': found the text 'x'",
    ),
    "unknown truth": ("a,b\n1,2\n", "kind", "table.csv: there is no column 'kind'; the columns are 'a', 'b'"),
    "missing label": (
        "a,kind\n1,x\n2,\n3,NA\n",
        "kind",
        "table.csv, line 3, column 'kind': the label is missing (as in 2 of 3 rows); expected a label in every row",
    ),
    "repeated name": (
        "a,b,a\n1,2,3\n",
        None,
        "table.csv: found repeated column names 'a'; expected distinct names",
    ),
    "unnamed column": (",a\n0,1\n", None, "table.csv: column 1 has no name; expected a name for every column"),
    "only labels": (
        "kind\nx\n",
        "kind",
        "table.csv: no columns left besides 'kind'; expected at least one column of numbers",
    ),
}


@pytest.mark.parametrize(("text", "truth", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_of_csv_files(tmp_path: Path, text: str | bytes, truth: str | None, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_table(write(tmp_path, text), truth)
    assert message in str(caught.value)


def test_unknown_columns_to_drop_and_of_items(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n1,2\n")
    for options in ({"drop": ["c"]}, {"items": "c"}):
        with pytest.raises(ValueError, match="there is no column 'c'; the columns are 'a', 'b'"):
            read_table(path, **options)  # type: ignore[arg-type]


def test_a_long_list_of_columns_is_cut(tmp_path: Path) -> None:
    names = ",".join(f"x{i}" for i in range(100))
    path = write(tmp_path, f"{names}\n{','.join('1' * 100)}\n")
    with pytest.raises(ValueError, match=r"'x0', 'x1', .*'x29', \.\.\. \(100 in all\)$"):
        read_table(path, truth="kind")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv: there is no such file"):
        read_table(tmp_path / "nowhere.csv")


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "table.csv").mkdir()
    with pytest.raises(ValueError, match=r"table\.csv: found a folder, expected a file"):
        read_table(tmp_path / "table.csv")


def test_an_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ending in '\.xlsx', expected \.csv, \.csv\.gz, \.parquet"):
        read_table(tmp_path / "table.xlsx")


@pytest.mark.parametrize("data", [b"a,b\n1,2\n", gzip.compress(b"a,b\n1,2\n" * 100)[:-20]], ids=["plain", "cut"])
def test_a_broken_gzip_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"table\.csv\.gz: not readable as gzip .*; expected a gzipped CSV file"):
        read_table(path)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'bnp-hier\[parquet\]'"):
        read_table(write(tmp_path, b"", "table.parquet"))


@pytest.fixture
def frame() -> pd.DataFrame:
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    return pd.DataFrame(
        {
            "real": [1.5, np.nan, np.inf],
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
            "kind": pd.Categorical(["x", "y", "x"]),
        }
    )


def test_parquet(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_parquet(tmp_path / "table.parquet")
    data = read_table(tmp_path / "table.parquet", truth="kind")
    np.testing.assert_array_equal(data.X, [[1.5, 1.0, 1.0], [np.nan, np.nan, 0.0], [np.inf, 3.0, 1.0]])
    assert data.X.dtype == np.float64
    assert data.y is not None and data.y.tolist() == ["x", "y", "x"]
    assert data.feature_names == ("real", "whole", "flag")


def test_names_in_parquet_files_lose_spaces_around_them(tmp_path: Path) -> None:
    """As in CSV files, so that they can be named in lists that are separated by commas."""
    table = pd.DataFrame({" a ": [1.5, 2.5, 4.0, 5.0], "b ": [3.0, 1.0, 2.0, 9.0]})
    table.to_parquet(tmp_path / "table.parquet")
    assert read_table(tmp_path / "table.parquet", drop=["b"]).feature_names == ("a",)
    table.assign(b=1.0).to_parquet(tmp_path / "table.parquet")
    with pytest.raises(ValueError, match="'b'"):
        read_table(tmp_path / "table.parquet")


def test_errors_of_parquet_files(tmp_path: Path, frame: pd.DataFrame) -> None:
    path = tmp_path / "table.parquet"
    frame = frame.assign(day=pd.to_datetime(["2020-01-01"] * 3), kind=["x", "y", "x"])
    frame.to_parquet(path)
    with pytest.raises(
        ValueError, match=r"data row 1, column 'kind': found the text 'x'.*'day': dates or times; drop them.* 'kind': if"
    ):
        read_table(path)
    frame["kind"] = ["x", None, "y"]
    frame.to_parquet(path)
    with pytest.raises(ValueError, match=r"data row 2, column 'kind': the label is missing \(as in 1 of 3 rows\)"):
        read_table(path, truth="kind")
    frame.iloc[:0].to_parquet(path)
    with pytest.raises(ValueError, match="found column names but no data rows"):
        read_table(path, truth="kind")
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"table\.parquet: not readable as Parquet .*; expected a Parquet file"):
        read_table(path)


def test_text_becomes_indicators(tmp_path: Path) -> None:
    text = "size,colour,smokes,n\n1,red,no,3\n2,blue,yes,4\n3,red,,5\n4,,yes,6\n5, green ,no,7\n6,blue,no,8\n7,green,no,9\n"
    path = write(tmp_path, text)
    data = read_table(path)
    assert data.feature_names == ("size", "colour=blue", "colour=green", "colour=red", "smokes=yes", "n")
    assert data.levels == {"colour": ("blue", "green", "red"), "smokes": ("no", "yes")} and data.categories == ((1, 2, 3),)
    np.testing.assert_array_equal(data.X[:, 1:4].argmax(1) * data.X[:, 1:4].any(1), [2, 0, 2, 0, 1, 0, 1])
    np.testing.assert_array_equal(data.X[:, 1:4].sum(1), [1, 1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(data.X[:, 4], [0, 1, np.nan, 1, 0, 0, 0])
    # new rows may hold fewer of the texts, in other columns
    few = write(tmp_path, "colour,note,n,smokes,size\ngreen,?,1,yes,2\n,!,2,,3\n", "few.csv")
    X, _ = read_columns(few, data)
    np.testing.assert_array_equal(X, [[2, 0, 1, 0, 1, 1], [3, 0, 0, 0, np.nan, 2]])
    wrong = write(tmp_path, "colour,n,smokes,size\npink,1,yes,2\n", "wrong.csv")
    with pytest.raises(
        ValueError, match="wrong.csv, line 2, column 'colour': found 'pink', expected one of 'blue', 'green', 'red'"
    ):
        read_columns(wrong, data)


def test_names_of_new_rows(tmp_path: Path) -> None:
    """By default, from the column that named the rows of the fit, if there is one."""
    data = read_table(write(tmp_path, "who,a,b\nx,1,2\ny,2,4\nz,3,5\n"), items="who")
    new = write(tmp_path, "b,who,other,a\n5,u,k,1\n6,v,l,2\n", "new.csv")
    X, names = read_columns(new, data)
    np.testing.assert_array_equal(X, [[1, 5], [2, 6]])
    assert names == ("u", "v") and read_columns(new, data, items="other")[1] == ("k", "l")
    assert read_columns(write(tmp_path, "a,b\n1,2\n", "unnamed.csv"), data)[1] is None


def test_a_column_with_the_name_of_an_indicator(tmp_path: Path) -> None:
    """It is refused where both would stand in the table, and read as itself where they do not."""
    text = "c,c=y,n\nx,10,1\ny,11,2\nx,12,3\ny,13,4\n"
    with pytest.raises(ValueError, match=r"the columns 'c', 'c=y' both produce a column named 'c=y', .*rename one.*--drop"):
        read_table(write(tmp_path, text))
    nested = "a,a=b\nb=c,c\nz,d\nb=c,c\nz,d\nw,e\nw,e\n"
    with pytest.raises(ValueError, match=r"the columns 'a', 'a=b' both produce a column named 'a=b=c'"):
        read_table(write(tmp_path, nested))
    # of two texts one has no indicator, and its name is free
    data = read_table(write(tmp_path, text.replace("c=y", "c=x")))
    assert data.feature_names == ("c=y", "c=x", "n")
    X, _ = read_columns(write(tmp_path, "n,c=x,c\n5,20,y\n", "new.csv"), data)
    np.testing.assert_array_equal(X, [[1, 20, 5]])
    # a file of new rows may have a column that bears an indicator's name: the column of text is meant
    plain = read_table(write(tmp_path, text), drop=["c=y"])
    X, _ = read_columns(write(tmp_path, text, "again.csv"), plain)
    np.testing.assert_array_equal(X, plain.X)
    numbers = read_table(write(tmp_path, text), drop=["c"])
    X, _ = read_columns(write(tmp_path, text, "again.csv"), numbers)
    np.testing.assert_array_equal(X[:, 0], [10, 11, 12, 13])
    with pytest.raises(ValueError, match="2 columns have the name 'c=y', expected exactly one, the indicator"):
        Dataset("by hand", np.zeros((2, 2)), None, ("c=y", "c=y"), None, "", levels={"c": ("x", "y")})


def test_names_of_rows_are_no_category(tmp_path: Path) -> None:
    rows = "".join(f"{i},row {i}\n" for i in range(40))
    with pytest.raises(
        ValueError, match=r"line 2, column 'b': found the text 'row 0'.*'b': a different text in almost every row; .*--items b"
    ):
        read_table(write(tmp_path, "a,b\n" + rows))


def test_numpy_files(tmp_path: Path) -> None:
    X = np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 6.0]])
    np.save(tmp_path / "plain.npy", X)
    plain = read_table(tmp_path / "plain.npy")
    np.testing.assert_array_equal(plain.X, X)
    assert plain.feature_names == ("x0", "x1") and plain.y is None and plain.name == "plain"
    names = np.array(["width", "height"])
    np.savez(tmp_path / "all.npz", X=X.astype(np.float32), y=[2, 1, 2], who=["a", "b", "c"], feature_names=names)
    data = read_table(tmp_path / "all.npz", items="who", drop=["width"])
    np.testing.assert_array_equal(data.X, X[:, 1:])
    assert data.y is not None and data.y.tolist() == [2, 1, 2]
    assert data.item_names == ("a", "b", "c") and data.feature_names == ("height",)
    other = read_table(tmp_path / "all.npz", truth="who").y
    assert other is not None and other.tolist() == ["a", "b", "c"]
    np.savez(tmp_path / "one.npz", counts=X)
    np.testing.assert_array_equal(read_table(tmp_path / "one.npz").X, X)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.eye(2), "b": np.eye(3)}, r"found a \(2, 2\), b \(3, 3\); expected a table \(n, d\) named X"),
        ({"y": np.arange(3)}, r"found y \(3,\); expected a table"),
        ({"X": np.eye(2), "y": np.arange(3)}, r"y has shape \(3,\); expected one entry for each of the 2 rows"),
        ({"X": np.eye(2), "feature_names": np.array(["a"])}, r"feature_names has shape \(1,\), but X has 2 columns"),
        ({"X": np.array([["a", "1"]])}, r"data row 1, column 'x0': found the text 'a', expected a number"),
        ({"X": np.zeros((0, 2))}, "no data rows"),
    ],
)
def test_bad_numpy_files(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "bad.npz")


def test_numpy_files_of_objects_or_of_something_else(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([[{}]], dtype=object))
    (tmp_path / "text.npz").write_text("not arrays")
    (tmp_path / "empty.npy").write_bytes(b"")
    for name in ("objects.npy", "text.npz", "empty.npy"):
        with pytest.raises(ValueError, match=f"{name}: not readable as arrays"):
            read_table(tmp_path / name)


def test_a_close_column_name_is_offered(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no column 'specie'; did you mean 'species'[?] The columns are"):
        read_table(write(tmp_path, "a,species\n1,x\n"), truth="specie")


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "1.5,-2e3\n3,4\n", "nan,7\n3,4\n"])
def test_a_file_without_a_header_keeps_its_first_row(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text.encode())
    with pytest.raises(ValueError, match=r"line 1: found only numbers \(.*the names of the columns.*--no-header"):
        read_table(path)
    table = read_table(path, header=False)
    assert table.feature_names == ("x0", "x1") and table.X.shape == (2, 2)
    np.testing.assert_array_equal(table.X[1], [3, 4])
    np.testing.assert_array_equal(
        read_columns(path, read_table(path, header=False, drop=["x0"]), header=False)[0], table.X[:, 1:]
    )
    named = read_table(path, header=True)
    assert named.X.shape == (1, 2) and named.feature_names == tuple(text.split("\n")[0].split(","))
    np.save(tmp_path / "rows.npy", table.X)
    with pytest.raises(ValueError, match="only CSV files have a header row"):
        read_table(tmp_path / "rows.npy", header=False)


def test_columns_to_drop_with_commas(tmp_path: Path) -> None:
    path = write(tmp_path, b'a,b,c,"d,e"\n1,2,3,4\n5,6,7,8\n')
    assert read_table(path, drop=["a, b", "d,e"]).feature_names == ("c",)
    with pytest.raises(ValueError, match="no column 'f'"):
        read_table(path, drop=["a,f"])


def test_all_columns_of_text_are_reported_at_once(tmp_path: Path) -> None:
    rows = "".join(f"p{i},2024-01-{i + 1:02},{i}.5,note {i % 7} {i}\n" for i in range(20))
    with pytest.raises(ValueError) as caught:
        read_table(write(tmp_path, f"who,day,size,note\n{rows}".encode()))
    message = str(caught.value)
    assert "'who', 'note': a different text in almost every row" in message and "'day': dates or times" in message
    assert message.endswith("(to drop all: --drop who,day,note)") and "\n" not in message
    assert read_table(tmp_path / "table.csv", drop=["who,day,note"]).feature_names == ("size",)


def test_arrays_that_claim_more_than_there_is(tmp_path: Path) -> None:
    """A header of 72 TB in a file of a few bytes, alone and in an archive."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (3_000_000, 3_000_000)})
    content = head.getvalue() + b"\0" * 64
    (tmp_path / "huge.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("X.npy", content)
    for name in ("huge.npy", "huge.npz"):
        with pytest.raises(ValueError, match=f"{name}: not readable as arrays"):
            read_table(tmp_path / name)


def test_archives_with_damaged_directories(tmp_path: Path) -> None:
    """Whatever the damage, the promised error: `zipfile` raises others for unknown methods and for encrypted members."""
    np.savez(tmp_path / "rows.npz", X=np.eye(3))
    whole = (tmp_path / "rows.npz").read_bytes()
    start = whole.index(b"PK\x01\x02")
    for place in range(start, len(whole)):
        (tmp_path / "rows.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_table(tmp_path / "rows.npz")
        except ValueError as error:
            assert "rows.npz: " in str(error)


def test_a_pipe_is_no_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="found a pipe or a device, expected a file"):
        read_table(tmp_path / "pipe.csv")


def test_columns_of_numbers_belong_to_the_columns_that_were_read(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    lines = ["size,sun,income,site,smokes,note"]
    lines += [
        f"{'small medium large'.split()[i % 3]},{i},{i + 1},{'abcd'[i % 4]},{'yes' if i % 2 else 'no'},x" for i in range(12)
    ]
    path.write_text("\n".join(lines))
    data = read_table(path, kinds={"size": "small<medium<large", "income": "log"}, drop=["note"])
    assert len(data.feature_names) == 10
    assert data.source_columns == {"size": (0, 1, 2), "sun": (3,), "income": (4,), "site": (5, 6, 7, 8), "smokes": (9,)}
    plain = Dataset("plain", data.X[:, :2], None, ("a", "b"), None, "")
    assert plain.source_columns == {"a": (0,), "b": (1,)}


def test_units_and_separators_are_left_out_and_said(tmp_path: Path) -> None:
    text = 'weight,price,share,n\n10.6 kg,"1,234",45%,1\n,"12,345.5",5 %,2\n9 kg,987,,3\n'
    data = read_table(write(tmp_path, text))
    np.testing.assert_array_equal(data.X, [[10.6, 1234, 45, 1], [np.nan, 12345.5, 5, 2], [9, 987, np.nan, 3]])
    assert data.units == {"weight": "kg", "share": "%"} and data.separators == {"price": ","}
    assert data.notes == (
        "numbers are read without their units: 'weight' (kg), 'share' (%)",
        "thousands separators are removed: 'price' (such as '1,234')",
    )
    again = from_frame(pd.read_csv(tmp_path / "table.csv", dtype=str))
    np.testing.assert_array_equal(again.X, data.X)
    # a column that is left out is described in numbers as well
    dropped = read_table(tmp_path / "table.csv", drop=["weight"])
    np.testing.assert_array_equal(dropped.others["weight"], [10.6, np.nan, 9])
    assert dropped.units == {"share": "%"} and read_table(write(tmp_path, "a\n1\n", "plain.csv")).notes == ()


def test_new_rows_have_the_units_of_the_fit(tmp_path: Path) -> None:
    data = read_table(write(tmp_path, "weight,n\n10 kg,1\n11 kg,2\n"))
    same = write(tmp_path, "n,weight\n1,12 kg\n", "same.csv")
    plain = write(tmp_path, "n,weight\n1,12\n", "plain.csv")
    for path in (same, plain):
        X, _ = read_columns(path, data)
        np.testing.assert_array_equal(X, [[12, 1]])
    grams = write(tmp_path, "n,weight\n1,\n1,900 g\n", "grams.csv")
    with pytest.raises(ValueError, match="grams.csv, line 3, column 'weight': found '900 g', expected numbers in 'kg' as in"):
        read_columns(grams, data)
    with pytest.raises(ValueError, match="found '12 kg', expected numbers without a unit as in the data of the fit"):
        read_columns(same, read_table(plain))
    # each cell is compared with the fit, however many others there are
    for cells in (["900 g"], ["900 g", "50 kg"], ["50 kg", "900 g", "800 g"]):
        row = cells.index("900 g") + 1
        with pytest.raises(
            ValueError, match=f"new rows, data row {row}, column 'weight': found '900 g', expected numbers in 'kg'"
        ):
            columns_of_frame(pd.DataFrame({"weight": cells, "n": 1}), data)
    mixed = columns_of_frame(pd.DataFrame({"weight": ["50 kg", "51"], "n": 1}), data)
    np.testing.assert_array_equal(mixed[:, 0], [50, 51])


def test_new_rows_have_the_separators_of_the_fit(tmp_path: Path) -> None:
    """A comma in new rows may be that of decimals, unless the fit has it between thousands."""
    plain = read_table(write(tmp_path, "weight,n\n50.1 kg,1\n51 kg,2\n"))
    with pytest.raises(
        ValueError,
        match="data row 1, column 'weight': found '50,512 kg', expected numbers without thousands separators as in the data of "
        "the fit; write them without separators, and with decimal points",
    ):
        columns_of_frame(pd.DataFrame({"weight": ["50,512 kg"], "n": [1]}), plain)
    grouped = read_table(write(tmp_path, 'price,n\n"1,234",1\n"12,345.5",2\n', "grouped.csv"))
    assert grouped.separators == {"price": ","}
    new = columns_of_frame(pd.DataFrame({"price": ["2,345", "2345", "7"], "n": 1}), grouped)
    np.testing.assert_array_equal(new[:, 0], [2345, 2345, 7])
    with pytest.raises(
        ValueError, match="found '2 345', expected numbers with ',' between thousands as in the data of the fit"
    ):
        columns_of_frame(pd.DataFrame({"price": ["2 345"], "n": [1]}), grouped)
    with pytest.raises(ValueError, match="found '2,5', expected numbers with ',' between thousands"):
        columns_of_frame(pd.DataFrame({"price": ["2,5"], "n": [1]}), grouped)
    # spaces of all widths are the same, and groups that are alike in the new rows are no telephone numbers
    spaces = read_table(write(tmp_path, "price,n\n1 234,1\n12 345 678,2\n5,3\n", "spaces.csv"))
    new = columns_of_frame(pd.DataFrame({"price": ["2\u202f345", "2 346", "2 347"], "n": 1}), spaces)
    np.testing.assert_array_equal(new[:, 0], [2345, 2346, 2347])


@pytest.mark.parametrize(
    ("fitted", "new", "message"),
    [
        (["20 %", "30 %"], ["0.2"], "found '0.2', expected numbers in '%'"),
        (["20 %", "30 %"], [0.2], "found '0.2', expected numbers in '%'"),
        (["20 %", "30 %"], ["0.2 %"], ""),
        (["20 %", "30 %"], [25], ""),
        (["0.2", "0.3"], ["20 %"], "found '20 %', expected numbers without a unit"),
        (["1,500", "2,500"], ["1.500"], "found '1.500', expected numbers with ',' between thousands"),
        (["1,500", "2,500"], ["1.5"], ""),
        (["1.500.000", "2.500"], ["1.500", "2500"], ""),
        (["1.500.000", "2.500"], ["1.5"], "found '1.5', expected numbers with '.' between thousands"),
        (["1.500.000", "2.500"], ["1,500"], "found '1,500', expected numbers with '.' between thousands"),
        (["USD 45", "USD 46"], ["45 USD", "45", "45,-"], ""),
        (["USD 45", "USD 46"], ["EUR 45"], "found 'EUR 45', expected numbers in 'USD'"),
        (["(1,500)", "2,500"], ["(1,500)", "-1500"], ""),
    ],
)
def test_new_rows_in_another_notation(fitted: list[str], new: list[object], message: str) -> None:
    data = from_frame(pd.DataFrame({"a": fitted, "n": [1, 2]}))
    rows = pd.DataFrame({"a": ["", *new], "n": 1}) if isinstance(new[0], str) else pd.DataFrame({"a": [np.nan, *new], "n": 1})
    if not message:
        assert np.isfinite(columns_of_frame(rows, data)[1:]).all()
        return
    with pytest.raises(ValueError, match=f"data row 2, column 'a': {message} as in the data of the fit"):
        columns_of_frame(rows, data)


AMOUNTS = {
    "parentheses": (["(1,300)", "1,200", "900"], [-1300, 1200, 900]),
    "code": (["USD 45", "USD 30", "USD 7.5"], [45, 30, 7.5]),
    "sign": (["₩1500", "₩2500", "₩1"], [1500, 2500, 1]),
    "dash": (["500,-", "2.500,-", "1.200.000,-"], [500, 2500, 1200000]),
    "points": (["1.200.000", "2.300", "400"], [1200000, 2300, 400]),
    "letter": (["45K", "30K", "7K"], [45, 30, 7]),
    "letters": (["R$ 45", "R$ 30", "R$ 7"], [45, 30, 7]),
    "all in parentheses": (["(45)", "(30)", "(7)"], None),
    "different letters": (["45K", "2M", "3M"], None),
    "different currencies": (["$45", "€30", "€7"], None),
    "dates": (["2024-01-01", "2024-02-01", "2024-03-01"], None),
    "quarters": (["2024Q1", "2024Q2", "2024Q3"], None),
    "durations as text": (["0 days 10:00:00", "1 days 00:00:00", "2 days 00:00:00"], None),
    "timedelta": (list(pd.to_timedelta([1, 2, 3], unit="D")), None),
    "Period": (list(pd.period_range("2024-01", periods=3, freq="M")), None),
    "date": ([datetime.date(2024, 1, day) for day in (1, 2, 3)], None),
    "time": ([datetime.time(hour) for hour in (1, 2, 3)], None),
    "time zone": (list(pd.date_range("2024-01-01", periods=3, tz="UTC")), None),
}


@pytest.mark.parametrize("times", [1, 8])
@pytest.mark.parametrize(("cells", "values"), AMOUNTS.values(), ids=AMOUNTS.keys())
def test_repetition_makes_no_categories_of_amounts_and_dates(
    cells: list[object], values: list[float] | None, times: int
) -> None:
    frame = pd.DataFrame({"a": cells * times, "n": np.arange(3 * times) / 7})
    if values is not None:
        np.testing.assert_array_equal(from_frame(frame).X[:, 0], values * times)
        return
    with pytest.raises(ValueError, match=r"data row [12], column 'a': found the text .*to drop all: --drop a"):
        from_frame(frame)
    assert from_frame(frame, drop=["a"]).feature_names == ("n",)
    assert len(from_frame(frame, kinds={"a": "category"}).levels["a"]) == 3


def test_mixed_units_and_ambiguous_separators_are_errors(tmp_path: Path) -> None:
    weights = "".join(f"{10 + i / 8} kg,{i}\n" for i in range(30))
    path = write(tmp_path, f"weight,n\n{weights}950 g,31\n")
    with pytest.raises(
        ValueError,
        match=r"line 32, column 'weight': found the text '950 g'.*different units: 30 in 'kg' \(such as '10.0 kg'\), 1 in 'g' "
        r"\(such as '950 g'\); convert all of them to the same unit \(to drop all: --drop weight\)",
    ):
        read_table(path)
    with pytest.raises(ValueError, match="line 32, column 'weight': found numbers with different units.*: convert all"):
        read_table(path, kinds={"weight": "log"})
    comma = write(tmp_path, 'a,n\n"1,234",1\n"3,5",2\n"1,234",1\n"3,5",2\n', "comma.csv")
    with pytest.raises(ValueError, match="comma.csv, line 3, column 'a'.*'3,5', which seems to have a decimal comma"):
        read_table(comma)
    # what may be the name of a category stays one
    ranks = read_table(write(tmp_path, "place,n\n" + "1st,1\n2nd,2\n3rd,3\n" * 3, "ranks.csv"))
    assert ranks.levels == {"place": ("1st", "2nd", "3rd")} and ranks.units == {}
    doses = read_table(write(tmp_path, "dose,n\n" + "500 mg,1\n1 g,2\n250 mg,3\n" * 8, "doses.csv"))
    assert doses.levels == {"dose": ("1 g", "250 mg", "500 mg")}
    assert doses.notes == (
        "'dose' is taken as a category because of numbers with different units: 16 in 'mg' (such as '500 mg'), 8 in 'g' (such "
        "as '1 g')",
    )
    asked = read_table(tmp_path / "doses.csv", kinds={"dose": "category"})
    assert asked.levels == doses.levels and asked.notes == ()
    # dates are no numbers with a unit
    with pytest.raises(ValueError, match="'day': dates or times"):
        read_table(write(tmp_path, "day,n\n1 May 2024,1\n2 May 2024,2\n", "days.csv"))


def test_a_scale_of_numbers_with_units(tmp_path: Path) -> None:
    path = write(tmp_path, "stars,n\n1 star,1\n3 star,2\n2 star,3\n1 star,1\n")
    data = read_table(path, kinds={"stars": "ordered"})
    assert data.kinds == {"stars": "1 star<2 star<3 star"}
    np.testing.assert_array_equal(data.X[:, :3], np.eye(3)[[0, 2, 1, 0]])
    gap = read_table(write(tmp_path, "stars,n\n1 star,1\n4 star,2\n2 star,3\n", "gap.csv"), kinds={"stars": "ordered"})
    assert gap.kinds == {"stars": "1<2<3<4"}  # the numbers give the scale
    np.testing.assert_array_equal(gap.X[:, :4], np.eye(4)[[0, 3, 1]])
    assert gap.units == {"stars": "star"} and data.units == {}
    new = columns_of_frame(pd.DataFrame({"stars": ["3 star", "2"], "n": 1}), gap)
    np.testing.assert_array_equal(new[:, :4], np.eye(4)[[2, 1]])
    for cell in ("3 kg", "5 star"):
        with pytest.raises(ValueError, match=f"data row 2, column 'stars': found '{cell}', expected one of '1', '2', '3', '4'"):
            columns_of_frame(pd.DataFrame({"stars": ["1 star", cell], "n": 1}), gap)
    with pytest.raises(ValueError, match="found '4 stars', expected one of '1 star', '2 star', '3 star'"):
        columns_of_frame(pd.DataFrame({"stars": ["4 stars", "4 stars"], "n": 1}), data)
    assert read_table(path, kinds={"stars": "category"}).levels == {"stars": ("1 star", "2 star", "3 star")}


@pytest.mark.parametrize("kind", ["category", "1<2<3"])
@pytest.mark.parametrize("cell", ["2 kg", "2%", "$2"])
def test_levels_of_plain_numbers_have_no_units(tmp_path: Path, kind: str, cell: str) -> None:
    data = read_table(write(tmp_path, "a,n\n1,1\n2,2\n3,3\n1,4\n2,5\n3,6\n"), kinds={"a": kind})
    again = columns_of_frame(pd.DataFrame({"a": ["2", "3"], "n": 1}), data)
    np.testing.assert_array_equal(again[:, :-1], data.X[1:3, :-1])
    with pytest.raises(ValueError, match=f"found {re.escape(repr(cell))}, expected one of '1', '2', '3'"):
        columns_of_frame(pd.DataFrame({"a": [cell], "n": [1]}), data)


def test_telephone_numbers_and_dates_are_no_quantities(tmp_path: Path) -> None:
    rows = "".join(f"612 345 {100 + 7 * i},{i % 28 + 1} Jan,{i % 5}\n" for i in range(30))
    with pytest.raises(ValueError) as caught:
        read_table(write(tmp_path, f"phone,day,n\n{rows}"))
    message = str(caught.value)
    assert "'day': dates or times" in message and message.endswith("(to drop all: --drop phone,day)")
    assert (
        "'phone': groups of digits such as '612 345 100', which may be identifiers or telephone numbers; drop them, or"
        in message
    )


def test_a_category_for_almost_every_row_is_an_error(tmp_path: Path) -> None:
    weights = "".join(f"{10 + i / 8} kg,{i % 7},p{i % 25}\n" for i in range(40))
    path = write(tmp_path, f"weight,n,who\n{weights}")
    with pytest.raises(
        ValueError,
        match=r"column 'weight': found 40 distinct values in 40 cells, such as '10.0 kg' and '10.125 kg', .*"
        r"says nothing about clusters; group the values, or leave out --kinds or kinds= to take it for numbers",
    ):
        read_table(path, kinds={"weight": "category"})
    with pytest.raises(ValueError, match=r"found 25 distinct values in 40 cells.*group the values, or drop it"):
        read_table(path, kinds={"who": "category"})
    with pytest.raises(ValueError, match=r"'who': if the column contains.*with items= or --items; otherwise drop it"):
        read_table(path)  # advice that would lead to the next error is not given
    assert len(read_table(path, drop=["who"], kinds={"n": "category"}).levels["n"]) == 7


def test_columns_are_those_of_the_file(tmp_path: Path) -> None:
    """The indicators of a category or a scale are one column; the column of names is remembered."""
    text = "size,colour,who,n\n1,red,a,3\n2,blue,b,4\n3,green,c,5\n1,red,d,6\n2,blue,e,7\n3,green,f,8\n"
    data = read_table(write(tmp_path, text), items="who", kinds={"size": "ordered", "n": "log"})
    assert data.feature_names == (
        *("size=1", "size=2", "size=3", "colour=blue", "colour=green", "colour=red"),
        "log(n)",
    )
    assert tuple(data.source_columns) == ("size", "colour", "n") and data.items == "who"
    assert read_table(tmp_path / "table.csv", drop=["who"]).items is None


def test_the_usable_part_of_a_file(tmp_path: Path) -> None:
    i = np.arange(20)
    columns = {
        "who": [f"p{k}" for k in i],
        "day": pd.date_range("2024-01-01", periods=20).astype(str),
        "size": i + 0.5,
        "n": i % 5,
        "id": i + 100,
        "version": 7,
        "note": [f"note {k % 13}" for k in i],
        "comma": np.where(i, "1,5", "2,5"),
    }
    path = tmp_path / "table.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    table = RawTable.read(path)
    unusable = table.unusable(Roles(drop=["n"]))
    reasons = {column.name: column.reason for column in unusable}
    assert reasons == {
        "who": "a different text in almost every row, perhaps the names of the rows",
        "day": "dates or times",
        "id": "an identifier (100, 101, ..., 119: increases by one in every row)",
        "version": "7 in every row",
        "note": "13 different texts, such as 'note 0'",
        "comma": "'2,5', which seems to have a decimal comma; write all numbers with decimal points and without thousands "
        "separators",
    }
    assert [column.name for column in unusable if column.names_rows] == ["who"]
    # without text and constants, nothing has to be left out
    assert table.unusable(Roles(drop=["who,day,version,note,comma"])) == ()
    assert len(table.unusable(Roles(drop=["size,n"]))) == 6
    with pytest.raises(ValueError, match="no columns left besides"):
        table.unusable(Roles(drop=["who,day,size,n,id,version,note,comma"]))
    with pytest.raises(ValueError, match="there is no column 'nota'"):
        table.unusable(Roles(drop=["nota"]))


def test_bytes_are_texts(tmp_path: Path) -> None:
    """As in arrays of NumPy's type S, tables of scipy.io.loadarff, and binary columns of Parquet; b"?" is missing."""
    labels = np.array(["a", "b", "a", "b"], dtype="S3")
    np.savez(tmp_path / "t.npz", X=np.eye(4)[:, :2], y=labels, who=labels, feature_names=np.array(["p", "q"], dtype="S1"))
    data = read_table(tmp_path / "t.npz", items="who")
    assert data.y is not None and data.y.tolist() == ["a", "b", "a", "b"] and data.item_names == ("a", "b", "a", "b")
    assert data.feature_names == ("p", "q")
    frame = pd.DataFrame({"kind": [b"x", b"?", b"y", b"x", b"y"], "size": [b"1", b"2.5", b"4", b"?", b"3"]})
    frame.to_parquet(tmp_path / "t.parquet")
    for found in (from_frame(frame), read_table(tmp_path / "t.parquet")):
        assert found.levels == {"kind": ("x", "y")}
        np.testing.assert_array_equal(found.X, [[0, 1], [np.nan, 2.5], [1, 4], [0, np.nan], [1, 3]])
    assert frame["kind"][0] == b"x"


def test_columns_of_lists_can_be_left_out(tmp_path: Path) -> None:
    """The message says which column it is, and the others can be used."""
    frame = pd.DataFrame({"parts": [[1, 2], [3], [4], [5]], "length": [0.5, 1.5, 4.5, 9.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"data row 1, column 'parts': found the text '\[1 2\]', expected a number"):
        read_table(tmp_path / "t.parquet")
    assert [column.name for column in RawTable.read(tmp_path / "t.parquet").unusable(Roles())] == ["parts"]
    assert read_table(tmp_path / "t.parquet", drop="parts").feature_names == ("length",)


def test_long_whole_numbers_stay_different_categories() -> None:
    """Even where they are the same float64."""
    codes = [1234567890123456789, 1234567890123456790]
    data = from_frame(pd.DataFrame({"code": codes * 2, "length": [0.5, 1.5, 4.5, 9.0]}), kinds={"code": "category"})
    assert data.levels == {"code": tuple(map(str, codes))} and data.X[:, 0].tolist() == [0, 1, 0, 1]


def test_whole_numbers_as_labels_are_integers_in_any_type() -> None:
    frame = pd.DataFrame({"class": [0.0, 1.0, 0.0], "length": [0.5, 1.5, 4.5]})
    labels = from_frame(frame, truth="class").y
    assert labels is not None and labels.dtype == np.int64 and labels.tolist() == [0, 1, 0]


def test_a_column_and_an_array_of_the_same_name(tmp_path: Path) -> None:
    """The column would be left out without a word."""
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=np.arange(3), feature_names=np.array(["x", "y", "z"]))
    with pytest.raises(ValueError, match="found 'y' both among the feature_names and as an array; expected distinct names"):
        read_table(tmp_path / "t.npz")
