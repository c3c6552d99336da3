"""Checks of the types of cells in input data before conversion to float64, which would discard this information."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["real_cells"]

TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
"""Types of dates, times and durations; datetime and pandas' Timestamp and NaT count as dates."""

COMPLEX = "expected real numbers: pass real and imaginary parts as two columns"
TEMPORAL = "expected numbers: convert to durations in a unit of your choice, such as (t - t.min()) / np.timedelta64(1, 'D')"


def real_cells(X: Any, name: str = "X", *, allow_complex: bool = False) -> Any:
    """Return the data with NaN in place of masked values, whose underlying data NumPy would otherwise use.

    In masked arrays and arrays of Python objects, missing values become NaN; all other data are returned unchanged.

    Parameters
    ----------
    X
        The input data: an array, a pandas or polars DataFrame, a list, or anything else.
    name
        Name of the data in error messages.
    allow_complex
        Whether complex numbers are allowed, for callers that check for them separately.

    Raises
    ------
    TypeError
        If the data are text, a single column of a DataFrame, dictionaries, or a sparse, structured or lazy table; the message
        says what to pass instead. If they contain complex numbers, which would lose their imaginary parts, or dates, times or
        durations, which would become counts of ticks.
    """
    advice = _instead(X)
    if advice:
        raise TypeError(f"{name} must be an array or a DataFrame, but it is {advice}")
    densified = getattr(getattr(X, "sparse", None), "to_dense", None)  # of a pandas DataFrame with sparse columns
    X = X if densified is None else densified()
    if isinstance(X, list | tuple):
        masked = any(isinstance(row, np.ma.MaskedArray) for row in X)
        try:
            cells = np.ma.stack(X) if masked else np.asarray(X)
        except (TypeError, ValueError):  # rows of different lengths, which the caller reports
            return X
        X = cells if masked or cells.dtype.kind not in "fiub" else X
    for dtype, place, cells in _columns(X):
        kind = getattr(dtype, "kind", None)
        if kind == "O":
            wrong = np.array([_unfit(cell) for cell in cells.ravel()])
            if wrong.any():
                at = np.unravel_index(int(np.argmax(wrong != "")), cells.shape)
                kind, place = wrong[wrong != ""][0], f"{place} at row {at[0]}" if cells.ndim == 1 else f" at {_cell(at)}"
        elif hasattr(dtype, "is_temporal") and dtype.is_temporal():  # polars
            kind = "m" if str(dtype).startswith("Duration") else "M"
        if kind == "c" and not allow_complex:
            raise TypeError(f"{name} contains complex numbers{place}; {COMPLEX}")
        if kind in ("m", "M"):
            raise TypeError(f"{name} contains {'durations' if kind == 'm' else 'dates or times'}{place}; {TEMPORAL}")
    if isinstance(X, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(X)
        return np.where(mask, np.nan, X.data.astype(object if X.dtype.kind in "OUS" else np.float64))
    if isinstance(X, np.ndarray) and X.dtype.kind == "O":
        import pandas as pd

        return np.where(pd.isna(X), np.nan, X)
    return X


def _instead(X: Any) -> str:
    """What an object is that is no table, and what to pass instead; empty for others."""
    if isinstance(X, str | os.PathLike):
        return (
            f"the text {str(X)!r}; read a file with bnp_hier.datasets.read_table, and load a data set with "
            "bnp_hier.datasets.load"
        )
    if hasattr(X, "toarray"):
        return "a sparse matrix; pass X.toarray()"
    if hasattr(X, "collect") and hasattr(X, "collect_schema"):
        return "a polars LazyFrame; pass X.collect()"
    if isinstance(X, Mapping) or isinstance(X, list | tuple) and any(isinstance(row, Mapping) for row in X):
        return f"a {'list of dictionaries' if isinstance(X, list | tuple) else 'dictionary'}; pass pandas.DataFrame(X)"
    if isinstance(X, np.ndarray) and X.dtype.names:
        return "a structured array; pass pandas.DataFrame(X)"
    return "a single column; pass X.to_frame()" if hasattr(X, "to_frame") else ""


def _columns(X: Any) -> Iterator[tuple[Any, str, np.ndarray]]:
    """Yield dtype, location and, for Python objects, the cells of each column of a DataFrame or of a whole array."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        for j, (label, dtype) in enumerate(zip(X.columns, X.dtypes, strict=True)):
            cells = np.empty(0)
            if getattr(dtype, "kind", None) == "O":
                cells = X.iloc[:, j].to_numpy(dtype=object)
            yield dtype, f" in column {label!r}", cells
    elif hasattr(X, "dtype"):
        yield X.dtype, "", X if isinstance(X, np.ndarray) else np.empty(0)


def _unfit(cell: Any) -> str:
    """NumPy's kind code of a Python object that is complex or temporal; empty if it may be a real number."""
    if isinstance(cell, datetime.timedelta | np.timedelta64):
        return "m"
    if isinstance(cell, TIMES) or type(cell).__name__ == "Period":
        return "M"
    return "c" if isinstance(cell, complex | np.complexfloating) else ""


def _cell(at: tuple[Any, ...]) -> str:
    return ", ".join(f"{what} {int(index)}" for what, index in zip(("row", "column"), at, strict=False))
