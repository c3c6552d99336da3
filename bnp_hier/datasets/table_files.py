"""Files of tables: the cells of CSV and Parquet files, and arrays of NumPy, in DataFrames."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bnp_hier.utils.npy_files import read_arrays as read_npy
from bnp_hier.utils.wording import listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_text", "decoded", "is_number", "on_one_line", "read_arrays", "read_csv", "read_parquet"]


def read_csv(path: Path, header: bool | None) -> tuple[pd.DataFrame, list[int]]:
    """Read the cells of a CSV file as texts, and the line of each row; the first row has the names unless `header` is False."""
    # the standard library's reader, because pandas silently pads short rows with NaN
    import pandas as pd

    text = _text(path)
    if not text.strip():
        raise ValueError(f"{path.name}: the file is empty; expected a header row and data rows")
    _expect_commas(path.name, text.partition("\n")[0])
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, lines = [], []
    try:
        for fields in reader:
            if not fields:
                continue
            rows.append(fields)
            lines.append(reader.line_num)
            if len(fields) != len(rows[0]):
                comment = "; if lines that begin with # are comments, remove them" if rows[0][0].startswith("#") else ""
                raise ValueError(
                    f"{path.name}, line {reader.line_num}: found {len(fields)} field(s), "
                    f"expected {len(rows[0])} as in the header{comment}"
                )
    except csv.Error as error:
        raise ValueError(
            f"{path.name}, line {reader.line_num}: not readable as CSV ({error}); "
            "expected commas between fields and double quotes around text"
        ) from error
    if header is False:
        return pd.DataFrame(rows, columns=[f"x{j}" for j in range(len(rows[0]))], dtype=object), lines
    names = [on_one_line(name) for name in rows[0]]
    if header is None and all(map(is_number, names)):
        raise ValueError(
            f"{path.name}, line 1: found only numbers ({listed(map(repr, names), 3)}), expected the "
            "names of the columns; if the file has no header row, use header=False or --no-header; if these are the names, use "
            "header=True or --header"
        )
    return pd.DataFrame(rows[1:], columns=names, dtype=object), lines[1:]


def _expect_commas(name: str, line: str) -> None:
    """Raise a ValueError if the first line of a CSV file has semicolons or tabs between its fields."""
    for mark, marks in ((";", "semicolons"), ("\t", "tabs")):
        if mark not in line:
            continue
        if "," not in line:
            raise ValueError(f"{name}, line 1: found {marks} between fields; expected commas")
        if all(is_number(field.strip().replace(",", ".", 1)) for field in line.split(mark)):
            raise ValueError(
                f"{name}, line 1: found {marks} between numbers with decimal commas; expected commas between fields and "
                "decimal points"
            )


def _text(path: Path) -> str:
    """Return the text of a CSV file, decompressed if its name ends in .gz."""
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path.name}: not readable as gzip ({error}); expected a gzipped CSV file") from error
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path.name}: found text in UTF-16; expected CSV text in UTF-8 (Excel offers 'CSV UTF-8' to save it)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path.name}, line {line}: found byte 0x{data[error.start]:02x}, which is not UTF-8; expected CSV text in UTF-8"
        ) from error
    if "\0" in text:
        raise ValueError(f"{path.name}: found NUL bytes, so this is a binary file; expected CSV text in UTF-8")
    return text


def read_parquet(path: Path) -> tuple[pd.DataFrame, None]:
    """Read a Parquet file, whose rows have no lines."""
    import pandas as pd

    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{path.name}: reading Parquet needs pyarrow: pip install 'bnp-hier[parquet]'") from error
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (ValueError, OSError) as error:
        raise ValueError(f"{path.name}: not readable as Parquet ({error}); expected a Parquet file") from error
    return decoded(frame), None


def decoded(frame: pd.DataFrame) -> pd.DataFrame:
    """A new table with texts in one line as names of columns; cells that are bytes become the texts that they are in UTF-8."""
    frame = frame.set_axis([on_one_line(str(as_text(name))) for name in frame.columns], axis=1)
    for place, (_, column) in enumerate(frame.items()):
        if _has_bytes(column):
            frame.isetitem(place, column.map(as_text))
    return frame


def _has_bytes(column: pd.Series) -> bool:
    return column.dtype.kind not in "biufcmM" and any(isinstance(cell, bytes) for cell in column)


def on_one_line(name: str) -> str:
    """A name with single spaces for line breaks and other white space, as in names from spreadsheets, and none around it."""
    return " ".join(name.split())


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
