"""Rows that do not fit in memory: read in chunks, as often as wanted, and labelled chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.assignment import (
    BLOCK,
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
    """A table that is read in chunks, over and over.

    Parameters
    ----------
    source
        Called for every reading; gives an iterable of chunks (m, d) of any numbers of rows, the same rows every time. It may
        use one array for all chunks.

    Attributes
    ----------
    n_rows
        Rows that a reading gives; None before one has come to its end.
    readings
        Readings begun.
    """

    def __init__(self, source: Callable[[], Iterable[ArrayLike]]) -> None:
        self._source = source
        self.n_rows: int | None = None
        self.n_columns: int | None = None
        self.readings = 0

    @classmethod
    def over(cls, X: Any) -> RowStream | None:
        """The stream behind what was handed to `fit`: a memory-mapped table, or a function that returns an iterator of chunks.

        None for a table in memory.

        Raises
        ------
        TypeError
            If X is an iterator, which can be read only once.
        ValueError
            If a memory-mapped array has not two dimensions.
        """
        if isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None:  # a copy of one has its class, but is in memory
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
        """One reading, chunk by chunk.

        Raises
        ------
        ValueError
            If a chunk is no table, has other columns than the first, or the reading gives another number of rows than the
            first one did. Whatever the source raises passes through. All say how far the reading had come.
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
                        f"chunk {number} has {matrix.shape[1]} columns, but chunks before it have {self.n_columns}"
                    )
                yield matrix
                rows += len(matrix)
                number += 1
            if self.n_rows is not None and rows != self.n_rows:
                raise ValueError(
                    f"the chunks ended after {rows} rows, but gave {self.n_rows} at the first reading; the function must begin "
                    "anew, with the same rows, each time it is called"
                )
            if rows == 0:
                raise ValueError("X is empty: the function gave no chunks; expected at least two rows")
        except Exception as error:
            error.add_note(f"(reading {self.readings} of the chunks stopped after {rows} rows, at chunk {number})")
            raise
        self.n_rows = rows

    def chunks_of(self, size: int) -> Iterator[Float[np.ndarray, "m d"]]:
        """One reading in chunks of one size, the last one shorter."""
        waiting: list[np.ndarray] = []
        held = 0
        for chunk in self.chunks():
            while held + len(chunk) >= size:
                taken, chunk = chunk[: size - held], chunk[size - held :]
                yield np.concatenate([*waiting, taken])
                waiting, held = [], 0
            if len(chunk):
                waiting.append(chunk.copy())  # the source may use its memory for the next chunk
                held += len(chunk)
        if waiting:
            yield np.concatenate(waiting)


class StreamAssigner:
    """Passes over a stream by matrix products; memory does not grow with the number of rows.

    Parameters
    ----------
    component
        Conjugate component.
    stream
        The rows. They are checked against the component at the first pass.
    """

    def __init__(self, component: Component, stream: RowStream) -> None:
        self.component, self.stream = component, stream
        self._features = feature_map(component)
        self._checked = False

    def _passes(self, scores: Scores) -> Iterator[tuple[int, Pass]]:
        """Number of rows and result of each chunk."""
        at = 0
        for chunk in self.stream.chunks_of(CHUNK):
            if not self._checked:
                try:
                    self.component.validate(chunk)
                    self.component.check_precision(chunk)
                except ValueError as error:
                    error.add_note(f"(rows are counted from row {at} of the stream)")
                    raise
            # in powers of two of blocks: the last chunk shares few programs
            blocks = in_blocks(chunk, 1 << (-(-len(chunk) // BLOCK) - 1).bit_length())
            yield len(chunk), assign_blocks(self.component, blocks, len(chunk), scores, self._features)
            at += len(chunk)
        self._checked = True

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array, " k"]]:
        """Statistics of the rows of each cluster, and their numbers."""
        return added(self._passes(scores))

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row, the first of those that tie."""
        return joined(self._passes(scores))

    def appearance(self, scores: Scores, clusters: int) -> Int[np.ndarray, " k"]:
        """The clusters in the order of their first rows; reads until so many have been seen."""
        seen: dict[int, None] = {}
        for size, found in self._passes(scores):
            labels, first = np.unique(np.asarray(found.labels)[:size], return_index=True)
            for label in labels[np.argsort(first)].tolist():
                seen.setdefault(label)
            if len(seen) == clusters:
                break
        return np.array(list(seen))


class RowSample:
    """A simple random sample of the rows of chunks, in their order; all of them if there are no more than `size`.

    The sample depends on the rows and the generator only, not on how the rows are cut into chunks.

    Attributes
    ----------
    n_rows
        Rows that were added.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self._rng, self.n_rows = size, rng, 0
        self._kept: list[np.ndarray] = []
        self._keys, self._places = np.empty(0), np.empty(0, int)

    def add(self, chunk: Float[np.ndarray, "m d"]) -> None:
        """Rows that come after those added before."""
        keys = np.concatenate([self._keys, self._rng.random(len(chunk))])
        places = np.concatenate([self._places, self.n_rows + np.arange(len(chunk))])
        # of each row a number; the rows with the smallest ones stay
        chosen = np.sort(np.argpartition(keys, self.size)[: self.size]) if len(keys) > self.size else np.arange(len(keys))
        old = chosen[chosen < len(self._keys)]
        held = [np.concatenate(self._kept)[old]] if len(old) < len(self._keys) else self._kept
        self._kept = [*held, chunk[chosen[len(old) :] - len(self._keys)]]
        self._keys, self._places = keys[chosen], places[chosen]
        self.n_rows += len(chunk)

    @property
    def rows(self) -> Float[np.ndarray, "s d"]:
        """The sample."""
        return np.concatenate(self._kept)
