"""DataFrames and arrays in memory, as rows of a fitted `Dataset`."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from bnp_hier.datasets.dataset import Dataset
from bnp_hier.datasets.tabular import columns_of_frame
from bnp_hier.utils.arrays import as_matrix

__all__ = ["is_frame", "rows_like"]


def is_frame(X: Any) -> bool:
    """Whether the data are a pandas or polars DataFrame."""
    # asked last, because a lazy table would compute them
    return (hasattr(X, "iloc") or hasattr(X, "to_pandas")) and hasattr(X, "columns")


def rows_like(fitted: Dataset, X: Any, *, what: str = "new rows") -> Float[np.ndarray, "m d"]:
    """Rows with the columns of the fitted data: those of a DataFrame are found by name, and converted.

    Parameters
    ----------
    fitted
        The fitted data.
    X
        A DataFrame; or an array, (m, d), if an array was fitted, with the same columns, or no column was converted.
    what
        What the rows are, for messages.

    Raises
    ------
    TypeError, ValueError
        If a column is missing, a value does not suit it, or an array has converted columns or another number of columns.
    """
    if is_frame(X):
        return columns_of_frame(X, fitted)
    converted, known = [*fitted.levels, *fitted.kinds], {*fitted.source_columns, *fitted.others}
    if converted or fitted.others:
        import pandas as pd

        rows = as_matrix(X, name="X")
        numbered = [f"x{j}" for j in range(rows.shape[1])]  # as those of the array that was fitted
        if known == set(numbered):
            return columns_of_frame(pd.DataFrame(rows, columns=numbered), fitted)
    if converted:
        raise TypeError(
            f"{what} must be a DataFrame, because the column {converted[0]!r} of the data was converted, but they are "
            f"of the type {type(X).__name__}"
        )
    rows = as_matrix(X, name="X")
    if rows.shape[1] != fitted.X.shape[1]:
        raise ValueError(f"X has {rows.shape[1]} columns, but {fitted.X.shape[1]} were fitted")
    return rows
