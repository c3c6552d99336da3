"""Fits inside pipelines, searches and results, with the rows that they were fitted to, and new rows in the same form."""

from __future__ import annotations

from typing import Any, NamedTuple

from bnp_hier.capabilities import FitsWithData
from bnp_hier.datasets.tabular import columns_of_frame
from bnp_hier.inspection.model_arguments import Data
from bnp_hier.utils.arrays import as_matrix

__all__ = ["Unwrapped", "unwrapped"]


class Unwrapped(NamedTuple):
    """A fit and rows as it takes them.

    - **fit** - the fit itself.
    - **X** - the data it was fitted to.
    - **new_rows** - new rows.
    """

    fit: Any
    X: Data
    new_rows: Data


def unwrapped(fit: Any, X: Any, new_rows: Any) -> Unwrapped:
    """Take a fit out of a pipeline, a search or the result of `bnp_hier.cluster`, and convert rows as it did.

    Parameters
    ----------
    fit
        A `Pipeline` whose last step is a fit; a search for the best of such pipelines or fits; a result, whose leading method
        is taken; or a fit.
    X
        The data that were passed to the pipeline, the search or `cluster`; None for all fitted rows of a result.
    new_rows
        New rows of the same form. Arrays have the columns of a result's `data.X`.

    Raises
    ------
    NotFittedError, TypeError, ValueError
        If the pipeline is not fitted, or rows do not have the columns of the data.
    """
    from sklearn.pipeline import Pipeline

    fit = getattr(fit, "best_estimator_", fit)
    if isinstance(fit, Pipeline):
        if len(fit.steps) > 1:
            X, new_rows = fit[:-1].transform(X), fit[:-1].transform(new_rows)
        return Unwrapped(fit[-1], X, new_rows)
    if not isinstance(fit, FitsWithData):
        return Unwrapped(fit, X, new_rows)

    def converted(rows: Any) -> Data:
        is_frame = hasattr(rows, "columns") and (hasattr(rows, "iloc") or hasattr(rows, "to_pandas"))
        return columns_of_frame(rows, fit.data) if is_frame else as_matrix(rows)

    return Unwrapped(fit.fits[fit.method], fit.data.X if X is None else converted(X), converted(new_rows))
