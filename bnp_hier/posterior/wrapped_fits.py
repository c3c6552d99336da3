"""Fits inside pipelines, searches and results, with the rows that they were fitted to, and new rows in the same form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bnp_hier.capabilities import FitsWithData
from bnp_hier.datasets.tabular import rows_like
from bnp_hier.inspection.model_arguments import Data

__all__ = ["Unwrapped", "unwrapped"]


class Unwrapped(NamedTuple):
    """A fit and rows as it takes them.

    - **fit** - the fit itself.
    - **X** - the data it was fitted to.
    - **new_rows** - new rows.
    """

    fit: Any
    X: Data
    new_rows: Any


def unwrapped(fit: Any, X: Any, new_rows: Any = None) -> Unwrapped:
    """Take a fit out of a pipeline, a search or the result of `bnp_hier.cluster`, and convert rows as it did.

    Parameters
    ----------
    fit
        A `Pipeline` whose last step is a fit; a search for the best of such pipelines or fits; a result, whose leading method
        is taken; or a fit.
    X
        The data that were passed to the pipeline, the search or `cluster`; None, or the array `data.X`, for all fitted rows of
        a result.
    new_rows
        New rows of the same form, or None; for a result, a DataFrame if any column was converted.

    Raises
    ------
    NotFittedError, TypeError, ValueError
        If the pipeline is not fitted, rows do not have the columns of the data, or an array would have to be converted.
    """
    from sklearn.pipeline import Pipeline

    fit = getattr(fit, "best_estimator_", fit)
    if isinstance(fit, Pipeline):
        if len(fit.steps) > 1:
            X, new_rows = (None if rows is None else fit[:-1].transform(rows) for rows in (X, new_rows))
        return Unwrapped(fit[-1], X, new_rows)
    if not isinstance(fit, FitsWithData):
        return Unwrapped(fit, X, new_rows)

    is_data = X is None or (isinstance(X, np.ndarray) and np.array_equal(X, fit.data.X, equal_nan=True))
    rows = fit.data.X if is_data else rows_like(fit.data, X, what="the fitted rows")
    return Unwrapped(fit.fits[fit.method], rows, None if new_rows is None else rows_like(fit.data, new_rows))
