"""Files of tables: the cells of CSV and Parquet files, and arrays of NumPy, in DataFrames."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bnp_hier.datasets.written_numbers import with_decimal_points
from bnp_hier.utils.npy_files import read_arrays as read_npy
from bnp_hier.utils.wording import listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PYARROW", "as_text", "decoded", "is_number", "on_one_line", "read_arrays", "read_csv", "read_parquet"]

PYARROW = "pip install 'bnp-hier[parquet]'"
"""How to install pyarrow."""

MOST_JUDGED = 200
"""Number of rows from which the mark between fields is judged."""

MOST_COMPARED = 10_000
"""Number of rows in which the texts of the first row are looked for."""

YEARS = range(1700, 2101)
"""Whole numbers that may be years, as names of columns."""


_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""Marks between the fields of a file, and what they are called."""

_SIGNATURES = {
    codecs.BOM_UTF32_LE: "text in UTF-32",
    codecs.BOM_UTF32_BE: "text in UTF-32",
    codecs.BOM_UTF16_LE: "text in UTF-16",
    codecs.BOM_UTF16_BE: "text in UTF-16",
    b"PK\x03\x04": "an Excel workbook or another ZIP archive",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\x1f\x8b": "a gzipped file, whose name should end in .csv.gz",
    b"PAR1": "a Parquet file, whose name should end in .parquet",
}
"""First bytes of files that are no CSV text in UTF-8 -> what they are; UTF-32 before UTF-16, whose marks begin alike."""

_MAY_BE_THOUSANDS = re.compile(r"[^\d]*[1-9]\d{0,2}(,\d{3})+(?!\d)")


class _Rows(NamedTuple):
    """Fields of a CSV file, the line of each row, and whether all rows have the same number of fields, at least two."""

    fields: list[list[str]]
    lines: list[int]
    is_even: bool


def read_csv(path: Path, header: bool | None) -> tuple[pd.DataFrame, list[int], dict[str, pd.Series], tuple[str, ...]]:
    """Read the cells of a CSV file as texts, and the line of each row; the first row has the names unless `header` is False.

    Fields may be separated by semicolons, tabs or vertical bars instead of commas; numbers may then have decimal commas, which
    become points. Commas at the end of every line are left out. There is nothing beside the table; the notes say what is not
    evident.
    """
    import pandas as pd

    text = _text(path)
    if not text.strip():
        raise ValueError(f"{path.name}: the file is empty; expected a header row and data rows")
    mark, (rows, lines, _) = _separated(path.name, text)
    trailing = len(rows) > 1 and {len(fields) for fields in rows[1:]} == {len(rows[1])} and len(rows[1]) > 1
    if trailing and all(fields[-1] == "" for fields in rows[1:]):
        if len(rows[0]) == len(rows[1]) and rows[0][-1].strip() == "":
            rows = [fields[:-1] for fields in rows]
        elif len(rows[0]) == len(rows[1]) - 1:
            rows = [rows[0], *(fields[:-1] for fields in rows[1:])]
    for fields, line in zip(rows, lines, strict=True):
        if len(fields) != len(rows[0]):
            comment = "; if lines that begin with # are comments, remove them" if rows[0][0].startswith("#") else ""
            raise ValueError(
                f"{path.name}, line {line}: found {len(fields)} field(s), expected {len(rows[0])} as in the header{comment}"
            )
    notes = [] if mark == "," else [f"{path.name} has {_MARKS[mark]} between fields"]
    if mark != "," and (example := _exchange_decimal_commas(path.name, rows, lines)):
        notes.append(f"decimal commas are read, as in {example!r}")
    if header is False:
        return pd.DataFrame(rows, columns=[f"x{j}" for j in range(len(rows[0]))], dtype=object), lines, {}, tuple(notes)
    names = [on_one_line(name) for name in rows[0]]
    if header is None and (found := _data_in_header(names, rows)):
        raise ValueError(
            f"{path.name}, line 1: found {found}, expected the names of the columns; if the file has no header row, use "
            "header=False or --no-header; if these are the names, use header=True or --header"
        )
    return pd.DataFrame(rows[1:], columns=names, dtype=object), lines[1:], {}, tuple(notes)


def _separated(name: str, text: str) -> tuple[str, _Rows]:
    """The fields of a file and the mark between them: of those in the first line, the one that gives even rows of numbers."""
    first = text.lstrip().partition("\n")[0]
    if declared := re.fullmatch(r"sep=(.)\s*", first, re.IGNORECASE):  # as Excel writes and reads
        if declared[1] not in _MARKS:
            raise ValueError(f"{name}, line 1: found {first.strip()!r}, expected {', '.join(map(repr, _MARKS))} between fields")
        read = _rows(name, text, declared[1])
        return declared[1], _Rows(read.fields[1:], read.lines[1:], read.is_even)
    marks = [mark for mark in _MARKS if mark in first] or [","]
    if len(marks) == 1:
        return marks[0], _rows(name, text, marks[0])
    found = {}
    for mark in marks:
        with contextlib.suppress(ValueError):
            found[mark] = _rows(name, text, mark)
    even = [mark for mark in found if found[mark].is_even]
    if not even:
        return marks[0], _rows(name, text, marks[0])
    best = max(even, key=lambda mark: _share_of_numbers(found[mark].fields, mark))
    return best, found[best]


def _rows(name: str, text: str, mark: str) -> _Rows:
    # the standard library's reader, because pandas silently pads short rows with NaN
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    rows, lines = [], []
    try:
        for fields in reader:
            if fields:
                rows.append(fields)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(
            f"{name}, line {reader.line_num}: not readable as CSV ({error}); "
            f"expected {_MARKS[mark]} between fields and double quotes around text"
        ) from error
    return _Rows(rows, lines, len(set(map(len, rows))) == 1 and len(rows[0]) > 1)


def _share_of_numbers(rows: list[list[str]], mark: str) -> float:
    """Share of the fields that are numbers; they may have decimal commas if no commas are between them."""
    cells = [cell.strip() for fields in rows[:MOST_JUDGED] for cell in fields]
    return sum(is_number(cell if mark == "," else cell.replace(",", ".", 1)) for cell in cells) / len(cells)


def _exchange_decimal_commas(name: str, rows: list[list[str]], lines: list[int]) -> str:
    """Replace decimal commas by points in the columns that have them; return an example, empty if there is none.

    Points between thousands become commas in the same columns, and also in columns that have points only if all of them may be
    between thousands.
    """
    columns = [[fields[place].strip() for fields in rows] for place in range(len(rows[0]))]
    marked = [{row: cell for row, cell in enumerate(cells) if "," in cell or "." in cell} for cells in columns]
    exchanged = [{row: with_decimal_points(cell) for row, cell in cells.items()} for cells in marked]
    commas = [
        (row, place)
        for place, cells in enumerate(marked)
        for row, cell in cells.items()
        if "," in cell and exchanged[place][row] is not None
    ]
    if not commas:
        return ""
    evident = [(row, place) for row, place in commas if not _MAY_BE_THOUSANDS.match(marked[place][row])]
    if not evident:
        row, place = commas[0]
        raise ValueError(
            f"{name}, line {lines[row]}, column {rows[0][place]!r}: found {marked[place][row]!r}, whose comma may be decimal "
            "or between thousands; expected decimal points and no commas"
        )
    for place, cells in enumerate(marked):
        if not any(new is not None for new in exchanged[place].values()):
            continue
        other = next((row for row in cells if exchanged[place][row] is None and is_number(cells[row])), None)
        if other is not None and any(place == column for _, column in commas):
            raise ValueError(
                f"{name}, line {lines[other]}, column {rows[0][place]!r}: found {cells[other]!r}, expected a decimal comma as "
                "in other numbers of the column"
            )
        for row, new in exchanged[place].items() if other is None else ():
            rows[row][place] = rows[row][place] if new is None else new
    row, place = evident[0]
    return marked[place][row]


def _data_in_header(names: list[str], rows: list[list[str]]) -> str:
    """What in the names, those of the first row of a file, is more likely data, in words; empty if nothing is.

    Numbers may be names if they increase, as years and times do, and so may texts that do not occur again in their columns.
    """
    numbers = [name for name in names if is_number(name)]
    texts = [(place, name) for place, name in enumerate(names) if name and not is_number(name)]
    shown = listed(map(repr, numbers), 3)
    if numbers and not texts:
        return f"only numbers ({shown})"
    again = [name for place, name in texts if any(fields[place] == rows[0][place] for fields in rows[1:MOST_COMPARED])]
    if again and (numbers or len(again) == len(texts)):
        also = f"the numbers {shown} and " if numbers else ""
        return f"{also}{listed(map(repr, again), 3)}, which also occurs in rows below"
    values = list(map(float, numbers))
    increase = all(low < high for low, high in itertools.pairwise(values))
    if not numbers or (increase and (len(values) > 2 or all(value in YEARS or value in range(10) for value in values))):
        return ""
    return f"the numbers {shown} beside {texts[0][1]!r}"


def _text(path: Path) -> str:
    """Return the text of a CSV file, decompressed if its name ends in .gz."""
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path.name}: not readable as gzip ({error}); expected a gzipped CSV file") from error
    signature = next((first for first in _SIGNATURES if data.startswith(first)), None)
    if signature is not None:
        raise ValueError(
            f"{path.name}: found {_SIGNATURES[signature]}; expected CSV text in UTF-8 (Excel offers 'CSV UTF-8' to save it)"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path.name}, line {line}: found byte 0x{data[error.start]:02x}, which is not UTF-8; expected CSV text in UTF-8"
        ) from error
    if "\0" in text:
        raise ValueError(f"{path.name}: found NUL bytes, so this is a binary file or not in UTF-8; expected CSV text in UTF-8")
    return text


def read_parquet(path: Path) -> tuple[pd.DataFrame, None]:
    """Read a Parquet file, whose rows have no lines."""
    import pandas as pd

    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{path.name}: reading Parquet needs pyarrow: {PYARROW}") from error
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (ValueError, OSError) as error:
        raise ValueError(f"{path.name}: not readable as Parquet ({error}); expected a Parquet file") from error
    return decoded(frame), None


def decoded(frame: pd.DataFrame) -> pd.DataFrame:
    """A new table with texts in one line as names of columns; cells that are bytes become the texts that they are in UTF-8."""
    frame = frame.set_axis([on_one_line(name) for name in frame.columns], axis=1)
    for place, (_, column) in enumerate(frame.items()):
        if _has_bytes(column):
            frame.isetitem(place, column.map(as_text))
    return frame


def _has_bytes(column: pd.Series) -> bool:
    return column.dtype.kind not in "biufcmM" and any(isinstance(cell, bytes) for cell in column)


def on_one_line(name: object) -> str:
    """A name as text, with single spaces for line breaks and other white space, as in spreadsheets, and none around it."""
    return " ".join(str(as_text(name)).split())


def as_text(cell: object) -> object:
    """The text of bytes in UTF-8; anything else as it is."""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell


def read_arrays(path: Path) -> tuple[pd.DataFrame, None, dict[str, pd.Series]]:
    """Read the table of a .npy or .npz file, and other arrays with one entry per row, such as labels."""
    import pandas as pd

    try:
        arrays = read_npy(path)
    except ValueError as error:
        raise ValueError(f"{path.name}: not readable as arrays ({error}); expected arrays of numbers or text") from error
    if "header" in arrays and arrays["header"].shape == ():
        raise ValueError(f"{path.name}: found a saved fit or run, expected a table")
    tables = [name for name, array in arrays.items() if array.ndim == 2]
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
    if "X" not in tables and len(tables) != 1:
        raise ValueError(f"{path.name}: found {shapes}; expected a table (n, d) named X, or a single two-dimensional array")
    key = "X" if "X" in tables else tables[0]
    table = arrays.pop(key)
    names = arrays.pop("feature_names", np.array([f"x{j}" for j in range(table.shape[1])]))
    if names.shape != (table.shape[1],):
        raise ValueError(f"{path.name}: feature_names has shape {names.shape}, but {key} has {table.shape[1]} columns")
    wrong = [name for name, array in arrays.items() if array.shape != (len(table),)]
    if wrong:
        raise ValueError(
            f"{path.name}: {wrong[0]} has shape {arrays[wrong[0]].shape}; expected one entry for each of the {len(table)} rows"
        )
    beside = {
        name: pd.Series(list(map(as_text, array)) if array.dtype.kind == "S" else array, name=name)
        for name, array in arrays.items()
    }
    return decoded(pd.DataFrame(table, columns=names.tolist())), None, beside


def is_number(text: str) -> bool:
    """Whether Python reads the text as a number, without underscores."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
