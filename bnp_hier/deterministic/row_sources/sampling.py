"""Random samples of the rows of a table that is read in parts; they do not depend on how it is divided."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.deterministic.row_sources.protocol import RowSource

__all__ = ["SAMPLE", "SKETCH", "RowSample", "named_rows", "size_of"]

SKETCH = 8192
"""Maximum number of rows of a table read in parts to which a model and its hyperparameters are first fitted."""

SAMPLE = 200_000
"""Maximum number of rows of such a table that are held in memory."""


class Candidates(NamedTuple):
    """Rows of one part that may belong to the sample.

    - **n_rows** - number of rows of the part.
    - **keys** - (m,) random keys of the candidates.
    - **places** - (m,) their row numbers in the table.
    - **rows** - (m, d) the candidates.
    """

    n_rows: int
    keys: Float[np.ndarray, " m"]
    places: Int[np.ndarray, " m"]
    rows: Float[np.ndarray, "m d"]


def _candidates(size: int, rng: np.random.Generator, below: float, rows: Float[np.ndarray, "n d"], start: int) -> Candidates:
    """Draw the keys of the rows, which are a function of their numbers, and return the smallest."""
    bits: Any = copy.deepcopy(rng.bit_generator)
    keys = np.random.Generator(bits.advance(start)).random(len(rows))  # one step of the generator a number
    chosen = np.flatnonzero(keys < below)
    if len(chosen) > size:
        chosen = chosen[np.sort(np.argpartition(keys[chosen], size)[:size])]
    if len(chosen) == len(rows):
        return Candidates(len(rows), keys, start + chosen, rows)
    return Candidates(len(rows), keys[chosen], start + chosen, rows[chosen])


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
        self._kept: list[Candidates] = []
        self._held, self._below = 0, np.inf

    def add(self, chunk: Float[np.ndarray, "m d"]) -> None:
        """Add the next rows."""
        self.merge(_candidates(self.size, self._rng, self._below, chunk, self.n_rows))

    def read(self, source: RowSource) -> None:
        """Add all rows of a source, by one reading; if it fails, the sample is that of the rows read before."""
        n, below = source.n_rows, np.inf
        if n is not None and n > self.size:
            # fewer keys than `size` are smaller only once in 10^9 readings; then the sample is that much smaller
            below = (self.size + 6.0 * np.sqrt(self.size) + 10.0) / n
        for found in source.map(partial(_candidates, self.size, self._rng, below)):
            self.merge(found)

    def merge(self, found: Candidates) -> None:
        """Add the candidates of the next part."""
        chosen = found.keys < self._below
        self.n_rows += found.n_rows
        # a copy: the source may reuse its memory for the next part
        self._kept.append(Candidates(found.n_rows, found.keys[chosen], found.places[chosen], found.rows[chosen]))
        self._held += int(chosen.sum())
        if self._held > 2 * self.size:
            self._kept = [self._smallest(self.size)]
            self._held, self._below = self.size, self._kept[0].keys.max()

    def _smallest(self, size: int) -> Candidates:
        """The candidates with the smallest keys, in the order of the rows."""
        keys, places, rows = (np.concatenate([getattr(part, name) for part in self._kept]) for name in Candidates._fields[1:])
        chosen = np.sort(np.argpartition(keys, size)[:size]) if len(keys) > size else np.arange(len(keys))
        return Candidates(self.n_rows, keys[chosen], places[chosen], rows[chosen])

    @property
    def rows(self) -> Float[np.ndarray, "s d"]:
        """The sampled rows."""
        return self.first(self.size)

    def first(self, size: int) -> Float[np.ndarray, "s d"]:
        """A smaller sample, of at most `size` of the sampled rows."""
        return self._smallest(min(size, self.size)).rows


def named_rows(rows: Float[np.ndarray, "s d"], source: RowSource) -> Any:
    """The rows, in double precision, as a DataFrame if the source names its columns."""
    import pandas as pd

    exact = rows.astype(np.float64)
    return exact if source.feature_names is None else pd.DataFrame(exact, columns=list(source.feature_names))


def size_of(sample: RowSample, size: int) -> str:
    """Describe how many of the rows read are among the first `size` rows of the sample."""
    kept = min(size, sample.n_rows)
    return f"the {kept} rows" if kept == sample.n_rows else f"{kept} of the {sample.n_rows} rows"
