"""What an estimator needs to know about a table that is read in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

__all__ = ["PartFunction", "RowSource", "counted_from"]

Result = TypeVar("Result")

PartFunction = Callable[[Float[np.ndarray, "m d"], int], Result]
"""Computes something from the rows of a part and the number of rows of the table before it."""


@runtime_checkable
class RowSource(Protocol):
    """A table of rows that is read in parts, any number of times, each time with the same rows in the same order.

    An object with these members can be passed to `fit` in place of a table. Rows are only seen by functions that the estimator
    passes to `map`. The functions are pure and can be pickled, so that they may run in other processes, where the rows are;
    what they return is small: statistics and counts of clusters, some rows of a sample, or the labels of the part. They select
    double precision by themselves and compile once in a process, however many parts it has.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> class Halves:
    ...     feature_names, n_rows = None, 6
    ...     def map(self, function):
    ...         yield function(np.array([[0.0], [0.2], [6.1]]), 0)
    ...         yield function(np.array([[6.0], [0.1], [5.9]]), 3)
    ...
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> bnp.MAPDP(partial(bnp.models.dpm, component=component)).fit(Halves()).labels_
    array([0, 0, 1, 1, 0, 1])
    """

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Names of the columns, or None if they have no names."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if it is not known before the first reading."""

    def map(self, function: PartFunction[Any]) -> Iterator[Any]:
        """Apply a function to every part and yield the results in the order of the rows.

        Parameters
        ----------
        function
            Called as ``function(rows, start)``: `rows` are those of one part, (m, d) with m ≥ 1, as a float64 or float32 NumPy
            array with NaN for missing values; `start` is the number of rows before the part.
        """


@contextmanager
def counted_from(start: int) -> Iterator[None]:
    """Add a note to errors about the rows of a part: their numbers are relative to its first row."""
    try:
        yield
    except ValueError as error:
        error.add_note(f"(row numbers are relative to row {start} of the stream)")
        raise
