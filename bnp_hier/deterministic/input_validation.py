"""Rows as they come into an estimator, checked as scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from bnp_hier.utils.input_cells import real_cells

__all__ = ["input_rows"]


def input_rows(estimator: BaseEstimator, X: ArrayLike | Any, *, reset: bool, min_rows: int = 1) -> np.ndarray:
    """The rows as a float64 matrix of their own; arrays, lists, and pandas or polars DataFrames will do.

    Parameters
    ----------
    estimator
        Whose rows they are: with `reset` it gets `n_features_in_` and, from a DataFrame whose columns have text for names,
        `feature_names_in_`; without, the rows must have the same columns.
    X
        The rows, (n, d). Missing values, masked cells among them, and infinities pass: whether they are allowed is the
        component's to say.
    reset
        Whether these are the rows of `fit`.
    min_rows
        Fewest rows accepted.

    Raises
    ------
    ValueError, TypeError
        If this is no table of numbers with enough rows, is sparse, or has other columns than those fitted; a cell that is no
        number is named. `TypeError` if it holds dates, times or durations; complex numbers are scikit-learn's `ValueError`.
    """
    X = real_cells(X, allow_complex=True)
    try:
        # a copy, for the reason that `own_arrays` gives
        return validate_data(
            estimator,
            X,
            reset=reset,
            dtype=np.float64,
            order="C",  # a DataFrame gives exactly the numbers that an array gives
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
    """Where the first cell that cannot be read as a number is; None if all can, or this is no table."""
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
