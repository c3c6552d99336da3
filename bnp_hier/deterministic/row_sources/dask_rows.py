"""Dask arrays and DataFrames: functions run where the partitions are, and only their results travel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bnp_hier.deterministic.row_sources.protocol import PartFunction
from bnp_hier.utils.arrays import as_rows

__all__ = ["DaskRows", "is_dask_table", "whole_rows"]

PARTS_AT_ONCE = 1024
"""Maximum number of partitions whose results are held at the same time."""


def is_dask_table(X: Any) -> bool:
    """Whether X is a Dask array or a Dask DataFrame; does not import Dask for other objects."""
    if type(X).__module__.partition(".")[0] != "dask":
        return False
    import dask.array

    return isinstance(X, dask.array.Array) or (hasattr(X, "to_delayed") and hasattr(X, "columns"))


def whole_rows(X: Any) -> Any:
    """Return a Dask array with every row in one chunk; a DataFrame is returned as it is.

    Raises
    ------
    ValueError, TypeError
        If an array does not have two dimensions, or a column of a DataFrame does not contain numbers.
    """
    if hasattr(X, "columns"):
        from pandas.api.types import is_complex_dtype, is_numeric_dtype

        for name, dtype in X.dtypes.items():
            if not is_numeric_dtype(dtype) or is_complex_dtype(dtype):
                raise TypeError(
                    f"column {name!r} of X has type {dtype}; expected numbers: select the numeric columns, or convert it to "
                    "numbers"
                )
        return X
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, shape (n, d), but the Dask array has shape {X.shape}")
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


class DaskRows:
    """Row source over a Dask array or DataFrame.

    The scheduler is that of `dask.compute`: the active client of `dask.distributed`, or threads of this process.

    Parameters
    ----------
    X
        The table. Numbers of rows that Dask does not know are counted once, by a reading of their own.

    Attributes
    ----------
    readings
        Number of readings started.
    """

    def __init__(self, X: Any) -> None:
        X = whole_rows(X)
        self.feature_names: Sequence[str] | None = None
        self.readings = 0
        self._lengths: list[int] | None = None
        if hasattr(X, "columns"):
            names = list(X.columns)
            self.feature_names = names if all(isinstance(name, str) for name in names) else None
            self._parts = list(X.to_delayed())
        else:
            self._parts = list(X.to_delayed().ravel())
            if not np.isnan(X.chunks[0]).any():
                self._lengths = list(X.chunks[0])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self._known_lengths())

    def map(self, function: PartFunction[Any]) -> Iterator[Any]:
        """Apply a function to every partition that has rows, and yield the results in their order."""
        import dask

        lengths = self._known_lengths()
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        shipped = dask.delayed(_Shipped(function), pure=False)  # once to each worker
        tasks = [
            _on_part(shipped, part, start) for part, start, length in zip(self._parts, starts, lengths, strict=True) if length
        ]
        self.readings += 1
        return _computed(tasks)

    def _known_lengths(self) -> list[int]:
        if self._lengths is None:
            import dask

            self.readings += 1
            count: Callable[..., Any] = dask.delayed(len, pure=False)
            self._lengths = list(dask.compute(*map(count, self._parts)))
        if not sum(self._lengths):
            raise ValueError("X is empty: it has 0 rows; expected at least two rows")
        return self._lengths


class _Shipped:
    """A function as data of the task graph: Dask would embed a bare one in every task."""

    def __init__(self, function: PartFunction[Any]) -> None:
        self.function = function


def _on_part(shipped: Any, part: Any, start: int) -> Any:
    import dask

    return dask.delayed(_apply, pure=False)(shipped, part, start)


def _apply(shipped: _Shipped, part: Any, start: int) -> Any:
    return shipped.function(as_rows(part, name=f"the partition of X from row {start} on"), start)


def _computed(tasks: list[Any]) -> Iterator[Any]:
    import dask

    for at in range(0, len(tasks), PARTS_AT_ONCE):
        yield from dask.compute(*tasks[at : at + PARTS_AT_ONCE])
