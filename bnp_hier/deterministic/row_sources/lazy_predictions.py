"""Predictions for Dask arrays and DataFrames: lazy arrays, computed partition by partition where the rows are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from bnp_hier.deterministic.row_sources.dask_rows import is_dask_table, whole_rows
from bnp_hier.deterministic.row_sources.input_validation import input_rows
from bnp_hier.partitions.scoring import CHUNK

__all__ = ["lazy_on_dask"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def lazy_on_dask(method: _Method) -> _Method:
    """Let a method that predicts something for each row return a lazy Dask array for a Dask array or DataFrame.

    The estimator, without its labels, is sent once to every worker. Columns are checked at once, rows when they are computed.
    Partitions are filled up to a multiple of 4,096 rows, so that a process compiles one program for all of them.
    """

    @wraps(method)
    def predict(self: Any, X: Any) -> Any:
        return _lazy(self, method, X) if is_dask_table(X) else method(self, X)

    return cast(_Method, predict)


def _lazy(estimator: Any, method: Callable[..., Any], X: Any) -> Any:
    import dask
    import dask.array as da
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator, "n_clusters_")
    X, is_frame = whole_rows(X), hasattr(X, "columns")
    example = X._meta_nonempty if is_frame else np.zeros((1, X.shape[1]))
    input_rows(estimator, example, reset=False)  # raises if the columns are not those of `fit`
    width: tuple[int, ...] = (estimator.n_clusters_ + 1,) if method.__name__ == "predict_proba" else ()
    dtype = np.int64 if method.__name__ == "predict" else np.float64
    parts = list(X.to_delayed()) if is_frame else list(X.to_delayed().ravel())
    lengths = [np.nan] * len(parts) if is_frame else X.chunks[0]
    one = dask.delayed(
        _Predictor(_without_rows(estimator), method.__name__, np.empty((0, *width), dtype)), pure=False
    )  # once to each worker
    blocks = [dask.delayed(_predicted, pure=False)(one, part) for part in parts]
    arrays = [da.from_delayed(block, (length, *width), dtype=dtype) for block, length in zip(blocks, lengths, strict=True)]
    return da.concatenate(arrays, axis=0)


def _without_rows(estimator: Any) -> Any:
    """A copy of the estimator without the attributes that have an entry for each row of `fit`."""
    light = copy.copy(estimator)
    for name in estimator._of_rows:
        light.__dict__.pop(name, None)
    return light


class _Predictor:
    """An estimator, the method that predicts, and its result for no rows, as data of the task graph."""

    def __init__(self, estimator: Any, method: str, nothing: np.ndarray) -> None:
        self.estimator, self.method, self.nothing = estimator, method, nothing


def _predicted(predictor: _Predictor, part: Any) -> Any:
    m = len(part)
    if m == 0:
        return predictor.nothing
    matrix = input_rows(predictor.estimator, part, reset=False)
    whole = np.concatenate([matrix, np.broadcast_to(matrix[:1], (-m % CHUNK, matrix.shape[1]))])
    if hasattr(predictor.estimator, "feature_names_in_"):
        import pandas as pd

        whole = pd.DataFrame(whole, columns=predictor.estimator.feature_names_in_)
    return getattr(predictor.estimator, predictor.method)(whole)[:m]
