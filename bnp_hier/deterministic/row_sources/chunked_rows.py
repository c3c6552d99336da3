"""Streams of rows that do not fit in memory: read in chunks, repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.deterministic.row_sources.protocol import PartFunction
from bnp_hier.utils.arrays import as_rows

__all__ = ["ROWS_AT_ONCE", "RowStream"]

ROWS_AT_ONCE = 1 << 16
"""Number of rows of a stream that are in memory at once."""


class RowStream:
    """A table that can be read in chunks any number of times.

    Parameters
    ----------
    source
        Called for every reading; returns an iterable of chunks (m, d) of any sizes, with the same rows every time. It may
        reuse one array for all chunks. Chunks in single precision stay in it.
    feature_names
        Names of the columns; None to take those of the chunks, if they are DataFrames.

    Attributes
    ----------
    n_rows
        Number of rows in a reading; None before the first reading is complete.
    readings
        Number of readings started.
    """

    def __init__(self, source: Callable[[], Iterable[ArrayLike]], feature_names: Sequence[str] | None = None) -> None:
        self._source = source
        self.feature_names = feature_names
        self.n_rows: int | None = None
        self.n_columns: int | None = None
        self.readings = 0

    def chunks(self) -> Iterator[Float[np.ndarray, "m d"]]:
        """Read the rows once, chunk by chunk.

        Raises
        ------
        ValueError
            If a chunk is not a table, has a different number of columns from the first one, or if the total number of rows
            differs from that of the first reading. Exceptions raised by the source are passed on. A note on every exception
            says at which row and chunk the reading stopped.
        """
        self.readings += 1
        rows = number = 0
        try:
            for chunk in self._source():
                if np.ndim(chunk) == 2 and len(np.asarray(chunk)) == 0:
                    number += 1
                    continue
                matrix, names = as_rows(chunk, name=f"chunk {number}"), _names_of(chunk)
                if self.n_columns is None:
                    self.n_columns = matrix.shape[1]
                    self.feature_names = self.feature_names or names
                if matrix.shape[1] != self.n_columns:
                    raise ValueError(
                        f"chunk {number} has {matrix.shape[1]} columns, but the chunks before it have {self.n_columns}"
                    )
                if names is not None and names != self.feature_names:
                    raise ValueError(f"chunk {number} has the columns {names}, but the first chunk has {self.feature_names}")
                yield matrix
                rows += len(matrix)
                number += 1
            if self.n_rows is not None and rows != self.n_rows:
                raise ValueError(
                    f"the chunks ended after {rows} rows, but the first reading had {self.n_rows} rows; the function must "
                    "return a new iterator over the same rows each time it is called"
                )
            if rows == 0:
                raise ValueError("X is empty: the function returned no chunks; expected at least two rows")
        except Exception as error:
            error.add_note(f"(reading {self.readings} of the chunks stopped after {rows} rows, at chunk {number})")
            raise
        self.n_rows = rows

    def chunks_of(self, size: int) -> Iterator[Float[np.ndarray, "m d"]]:
        """Read the rows once, in chunks of the given size; the last one, or the last before a failure, may be shorter."""
        waiting: list[np.ndarray] = []
        held = 0
        try:
            for chunk in self.chunks():
                while held + len(chunk) >= size:
                    taken, chunk = chunk[: size - held], chunk[size - held :]
                    yield np.concatenate([*waiting, taken]) if waiting else taken
                    waiting, held = [], 0
                if len(chunk):
                    waiting.append(chunk.copy())  # the source may reuse its memory for the next chunk
                    held += len(chunk)
        except Exception:
            if waiting:
                yield np.concatenate(waiting)
            raise
        if waiting:
            yield np.concatenate(waiting)

    def map(self, function: PartFunction[Any]) -> Iterator[Any]:
        """Apply a function to chunks of `ROWS_AT_ONCE` rows in this process and yield the results."""
        start = 0
        for chunk in self.chunks_of(ROWS_AT_ONCE):
            yield function(chunk, start)
            start += len(chunk)


def _names_of(chunk: Any) -> list[str] | None:
    """Names of the columns of a DataFrame whose names are strings."""
    names = list(getattr(chunk, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None
