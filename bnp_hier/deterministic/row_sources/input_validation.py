"""Validation of an estimator's input rows with scikit-learn's checks."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from bnp_hier.deterministic.row_sources.detection import only_in_memory
from bnp_hier.utils.input_cells import real_cells

__all__ = ["input_rows"]


def input_rows(estimator: BaseEstimator, X: ArrayLike | Any, *, reset: bool, min_rows: int = 1) -> np.ndarray:
    """Return the rows as a new float64 matrix; accepts arrays, lists, Arrow tables, and pandas or polars DataFrames.

    Parameters
    ----------
    estimator
        The estimator that receives the rows. With `reset`, its `n_features_in_` is set and, for a DataFrame whose column
        names are strings, its `feature_names_in_`; otherwise the rows must have the same columns as in `fit`.
    X
        The rows, (n, d). Missing values, including masked cells, and infinities are accepted here: the component decides
        whether they are allowed.
    reset
        Whether these are the rows passed to `fit`.
    min_rows
        Minimum number of rows.

    Raises
    ------
    ValueError, TypeError
        If X is not a numeric table with enough rows, is sparse, or has columns other than those seen in `fit`; the message
        locates a cell that is not a number. `TypeError` for dates, times or durations, and for rows that are distributed or on
        disk (memory-mapped arrays are accepted); complex numbers raise scikit-learn's `ValueError`.
    """
    X = real_cells(only_in_memory(X, type(estimator).__name__), allow_complex=True)
    try:
        # a copy, for the reason given in `own_arrays`
        return validate_data(
            estimator,
            X,
            reset=reset,
            dtype=np.float64,
            order="C",  # so that a DataFrame and an array give exactly the same results
            copy=True,
            ensure_all_finite=False,
            ensure_min_samples=min_rows,
        )
    except (ValueError, TypeError) as error:
        place = _not_a_number(X)
        if place is None:
            raise
        raise type(error)(f"{place} ({error})") from error


def _not_a_number(X: Any) -> str | None:
    """Describe the first cell that cannot be read as a number; None if there is no such cell or X is not a table."""
    import pandas as pd

    try:
        cells = np.asarray(X)
    except ValueError:  # rows of different lengths
        return None
    if cells.ndim != 2 or cells.dtype.kind not in "OUS":
        return None
    frame = pd.DataFrame(cells, columns=getattr(X, "columns", None))
    wrong = frame.apply(pd.to_numeric, errors="coerce").isna() & frame.notna()
    if not wrong.to_numpy().any():
        return None
    row, column = np.argwhere(wrong.to_numpy())[0]
    return f"X has {str(cells[row, column])!r} at row {row}, column {frame.columns[column]!r}; expected a number"
