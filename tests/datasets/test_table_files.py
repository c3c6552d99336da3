"""CSV files as spreadsheets and other programs write them: marks between fields, decimal commas, headers, encodings."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bnp_hier.datasets import read_table


def _write(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text", ["5.1,3.5,setosa\n4.9,3,setosa\n6,2,virginica\n6,1,virginica\n", "34,31,ann\n40,51,bob\n", "p,x\np,x\ne,x\n"]
)
def test_a_first_row_of_numbers_and_texts_is_no_header(tmp_path: Path, text: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ValueError, match=r"line 1: found .*expected the names of the columns.*header=False or --no-header"):
        read_table(path)
    assert len(read_table(path, header=False, drop=["x1"], kinds={"x0": "category"}, items=None if "x" in text else "x2").X) > 1
    with pytest.raises(ValueError, match="line 1"):
        read_table(_write(tmp_path, text.replace(",", ";").replace(".", ",")))


@pytest.mark.parametrize("header", ["name,2019,2020", "gene,0,0.5,1,24", "name,1", "name,kind,size"])
def test_numbers_that_increase_are_names(tmp_path: Path, header: str) -> None:
    values = ",".join(["4"] * header.count(","))
    data = read_table(_write(tmp_path, f"{header}\na,{values}\nb,{values.replace('4', '5')}\n"), items=header.split(",")[0])
    assert data.feature_names == tuple(header.split(",")[1:]) and data.X.shape[0] == 2


@pytest.mark.parametrize(
    ("text", "values", "notes"),
    [
        ("a;b\n1,5;2\n2,25;3\n", [[1.5, 2], [2.25, 3]], 2),
        ("a;b\n1.5;2\n2.25;3\n", [[1.5, 2], [2.25, 3]], 1),
        ("sep=;\na;b\n1,5;2\n2;3\n", [[1.5, 2], [2, 3]], 2),
        ("a, m;b\n1,5;2\n2,5;3\n", [[1.5, 2], [2.5, 3]], 2),
        ("a\tb\n1,5\t2\n2\t3\n", [[1.5, 2], [2, 3]], 2),
        ("a|b\n1|2\n2|3\n", [[1, 2], [2, 3]], 1),
        ("a;b\n1.234,5;1.000\n0,5;2.000\n", [[1234.5, 1000], [0.5, 2000]], 3),
        ("a;b\n0,5 kg;3.25\n-2,5 kg;1.5\n", [[0.5, 3.25], [-2.5, 1.5]], 3),
        ('"a;b",c\n1,2\n3,4\n', [[1, 2], [3, 4]], 0),
    ],
)
def test_other_marks_between_fields(tmp_path: Path, text: str, values: list[list[float]], notes: int) -> None:
    data = read_table(_write(tmp_path, text))
    np.testing.assert_array_equal(data.X, values)
    assert len(data.notes) == notes


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a;b\n1,234;2\n2,345;3\n", "line 2, column 'a': found '1,234'"),
        ("a;b\n1,5;2\n2.5;3\n", "line 3, column 'a': found '2.5'"),
        ("a;b\n1;2\n2\n", r"line 3: found 1 field\(s\), expected 2"),
        ("sep=:\na:b\n1:2\n", "line 1: found 'sep=:'"),
    ],
)
def test_commas_of_two_meanings_are_errors(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        read_table(_write(tmp_path, text))


@pytest.mark.parametrize("text", ["a,b,\n1,2,\n3,4,\n", "a,b\n1,2,\n3,4,\n", "a;b;\n1;2;\n3;4;\n"])
def test_a_comma_at_the_end_of_each_line(tmp_path: Path, text: str) -> None:
    data = read_table(_write(tmp_path, text))
    np.testing.assert_array_equal(data.X, [[1, 2], [3, 4]])
    assert data.feature_names == ("a", "b")


def test_a_named_column_without_values_is_kept(tmp_path: Path) -> None:
    assert read_table(_write(tmp_path, "a,b\n1,\n2,\n")).feature_names == ("a", "b")
    with pytest.raises(ValueError, match="column 3 has no name"):
        read_table(_write(tmp_path, "a,b,\n1,2,\n3,4,5\n"))


def _workbook() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (_workbook(), "an Excel workbook"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "an old Excel workbook"),
        ("a,b\n1,2\n".encode("utf-32"), "UTF-32"),
        ("a,b\n1,2\n".encode("utf-32-be"), "NUL bytes"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08\0", "gzipped"),
        (b"PAR1\x15\x04", "Parquet"),
    ],
)
def test_files_of_other_formats(tmp_path: Path, data: bytes, found: str) -> None:
    with pytest.raises(ValueError, match=f"table.csv: found .*{found}.*expected CSV text in UTF-8"):
        read_table(_write(tmp_path, data))
