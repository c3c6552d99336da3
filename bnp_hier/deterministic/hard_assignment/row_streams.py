"""Streams of rows that do not fit in memory: read in chunks, repeatedly, and labelled chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.assignment import (
    CHUNK,
    Pass,
    Scores,
    added,
    assign_blocks,
    in_blocks,
    joined,
)
from bnp_hier.partitions.row_features import feature_map
from bnp_hier.utils.arrays import as_matrix

__all__ = ["RowSample", "RowStream", "StreamAssigner"]


class RowStream:
    """A table that can be read in chunks any number of times.

    Parameters
    ----------
    source
        Called for every reading; returns an iterable of chunks (m, d) of any sizes, with the same rows every time. It may
        reuse one array for all chunks.

    Attributes
    ----------
    n_rows
        Number of rows in a reading; None before the first reading is complete.
    readings
        Number of readings started.
    """

    def __init__(self, source: Callable[[], Iterable[ArrayLike]]) -> None:
        self._source = source
        self.n_rows: int | None = None
        self.n_columns: int | None = None
        self.readings = 0

    @classmethod
    def over(cls, X: Any) -> RowStream | None:
        """Stream for a memory-mapped table or a function that returns an iterator of chunks; None for a table in memory.

        Raises
        ------
        TypeError
            If X is an iterator, which can be read only once.
        ValueError
            If a memory-mapped array is not two-dimensional.
        """
        if isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None:  # a copy of a memmap has its class but no file
            if X.ndim != 2:
                raise ValueError(f"X must have two dimensions, shape (n, d), but the memory-mapped array has shape {X.shape}")
            return cls(lambda: (X[at : at + CHUNK] for at in range(0, len(X), CHUNK)))
        if callable(X):
            return cls(X)
        if isinstance(X, Iterator):
            raise TypeError(
                f"X is an iterator ({type(X).__name__}), which can be read only once; give a function that returns a new "
                "iterator of chunks each time it is called"
            )
        return None

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
                matrix = as_matrix(chunk, name=f"chunk {number}")
                if self.n_columns is None:
                    self.n_columns = matrix.shape[1]
                if matrix.shape[1] != self.n_columns:
                    raise ValueError(
                        f"chunk {number} has {matrix.shape[1]} columns, but the chunks before it have {self.n_columns}"
                    )
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
        """Read the rows once, in chunks of the given size; the last one may be shorter."""
        waiting: list[np.ndarray] = []
        held = 0
        for chunk in self.chunks():
            while held + len(chunk) >= size:
                taken, chunk = chunk[: size - held], chunk[size - held :]
                yield np.concatenate([*waiting, taken])
                waiting, held = [], 0
            if len(chunk):
                waiting.append(chunk.copy())  # the source may reuse its memory for the next chunk
                held += len(chunk)
        if waiting:
            yield np.concatenate(waiting)


class StreamAssigner:
    """Assignment passes over a stream by matrix products; memory does not grow with the number of rows.

    Parameters
    ----------
    component
        Conjugate component.
    stream
        The rows; the component validates them in the first pass.
    """

    def __init__(self, component: Component, stream: RowStream) -> None:
        self.component, self.stream = component, stream
        self._features = feature_map(component)
        self._checked = False

    def _passes(self, scores: Scores) -> Iterator[tuple[int, Pass]]:
        """Yield the number of rows and the result of each chunk."""
        at = 0
        for chunk in self.stream.chunks_of(CHUNK):
            if not self._checked:
                try:
                    self.component.validate(chunk)
                    self.component.check_precision(chunk)
                except ValueError as error:
                    error.add_note(f"(row numbers are relative to row {at} of the stream)")
                    raise
            yield len(chunk), assign_blocks(self.component, in_blocks(chunk), len(chunk), scores, self._features)
            at += len(chunk)
        self._checked = True

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array, " k"]]:
        """Statistics and number of the rows of each cluster."""
        return added(self._passes(scores))

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row; the first one in case of ties."""
        return joined(self._passes(scores))

    def appearance(self, scores: Scores, clusters: int) -> Int[np.ndarray, " k"]:
        """Clusters in order of appearance; reads the stream until the given number of clusters has been seen."""
        seen: dict[int, None] = {}
        for size, found in self._passes(scores):
            labels, first = np.unique(np.asarray(found.labels)[:size], return_index=True)
            for label in labels[np.argsort(first)].tolist():
                seen.setdefault(label)
            if len(seen) == clusters:
                break
        return np.array(list(seen))


class RowSample:
    """A simple random sample of streamed rows, in their order; contains all rows if there are at most `size`.

    The sample depends only on the rows and the generator, not on how the rows are divided into chunks.

    Attributes
    ----------
    n_rows
        Number of rows added so far.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self._rng, self.n_rows = size, rng, 0
        self._kept: list[np.ndarray] = []
        self._keys, self._places = np.empty(0), np.empty(0, int)

    def add(self, chunk: Float[np.ndarray, "m d"]) -> None:
        """Add the next rows."""
        keys = np.concatenate([self._keys, self._rng.random(len(chunk))])
        places = np.concatenate([self._places, self.n_rows + np.arange(len(chunk))])
        # every row gets a random key; the rows with the smallest keys are kept
        chosen = np.sort(np.argpartition(keys, self.size)[: self.size]) if len(keys) > self.size else np.arange(len(keys))
        old = chosen[chosen < len(self._keys)]
        held = [np.concatenate(self._kept)[old]] if len(old) < len(self._keys) else self._kept
        self._kept = [*held, chunk[chosen[len(old) :] - len(self._keys)]]
        self._keys, self._places = keys[chosen], places[chosen]
        self.n_rows += len(chunk)

    @property
    def rows(self) -> Float[np.ndarray, "s d"]:
        """The sampled rows."""
        return np.concatenate(self._kept)
