"""Assignment passes over tables that are read in parts: scores go to the parts; statistics and counts come back."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.assignment import Scores, assign
from bnp_hier.deterministic.row_sources.appearance import first_rows, in_order_of_appearance
from bnp_hier.deterministic.row_sources.protocol import RowSource, counted_from
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["SourceAssigner", "Sums", "added_sums", "in_numpy", "validate_part"]


class Sums(NamedTuple):
    """What a pass needs to know about one part.

    - **stats**, **counts** - statistics and number of the rows of each cluster.
    - **first** - (k,) number of the first row of each cluster, in the table; the largest integer without one.
    """

    stats: Statistics
    counts: Float[np.ndarray, " k"]
    first: Int[np.ndarray, " k"]


def _sums(component: Component, scores: Scores, check: bool, rows: Float[np.ndarray, "m d"], start: int) -> Sums:
    if check:
        validate_part(component, rows, start)
    found = assign(component, rows, scores)
    labels, counts = np.asarray(found.labels), np.asarray(found.counts)
    return Sums(found.stats, counts, first_rows(labels, start, len(counts)))


def validate_part(component: Component, rows: Float[np.ndarray, "m d"], start: int) -> None:
    """Raise the component's ValueError if it does not accept a row of the part."""
    with counted_from(start), double_precision():
        component.validate(rows)
        component.check_precision(rows)


def _labels(component: Component, scores: Scores, rows: Float[np.ndarray, "m d"], start: int) -> Int[np.ndarray, " m"]:
    return np.asarray(assign(component, rows, scores).labels)


class SourceAssigner:
    """Assignment passes over a row source by matrix products; memory does not grow with the number of rows.

    Parameters
    ----------
    component
        Conjugate component.
    source
        The rows; the component validates them in the first pass.
    """

    def __init__(self, component: Component, source: RowSource) -> None:
        # JAX arrays lose digits when they are unpickled in a process in single precision
        self.component, self.source = in_numpy(component), source
        self._checked = False
        self._firsts: list[tuple[Scores, Int[np.ndarray, " k"]]] = []

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[np.ndarray, " k"]]:
        """Statistics and number of the rows of each cluster."""
        total: Sums | None = None
        for found in self.source.map(partial(_sums, self.component, in_numpy(scores), not self._checked)):
            total = found if total is None else added_sums(total, found)
        if total is None:
            raise ValueError("X is empty: the row source has no parts; expected at least two rows")
        self._checked = True
        self._firsts.append((scores, total.first))
        return total.stats, total.counts

    def validate(self) -> None:
        """Read all rows; raise the component's ValueError if it does not accept one of them."""
        for _ in self.source.map(partial(validate_part, self.component)):
            pass

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row; the first one in case of ties."""
        return np.concatenate(list(self.source.map(partial(_labels, self.component, in_numpy(scores)))))

    def appearance(self, scores: Scores) -> Int[np.ndarray, " k"]:
        """Clusters with rows, in order of appearance, in the earlier pass with these scores."""
        first = next(first for used, first in self._firsts if used is scores)
        return in_order_of_appearance(first)


def added_sums(one: Sums, other: Sums) -> Sums:
    """What a pass knows about two parts together."""
    stats, counts = jax.tree.map(np.add, (one.stats, one.counts), (other.stats, other.counts))
    return Sums(stats, counts, np.minimum(one.first, other.first))


def in_numpy(tree: Any) -> Any:
    """The arrays as NumPy arrays in double precision."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), tree)
