"""Passes of MAP-DP over tables in parts: clusters go to the parts; statistics of their rows and new clusters come back."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.source_assigner import Sums, added_sums, in_numpy, validate_part
from bnp_hier.deterministic.hard_assignment.splits import sum_by_label
from bnp_hier.deterministic.row_sources.appearance import NONE, first_rows
from bnp_hier.deterministic.row_sources.protocol import RowSource, counted_from
from bnp_hier.distributions.seating import Prior, log_seating
from bnp_hier.partitions.cluster_unions import merge_by_joint
from bnp_hier.partitions.clusters import joint_of_clusters, log_predictives
from bnp_hier.partitions.incremental import seat_in_turn
from bnp_hier.partitions.scoring import check_log_weights
from bnp_hier.utils.arrays import take
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["SeatedRows", "SourceSeating"]

ROWS_AT_ONCE = 8192
"""Number of rows whose log densities under all clusters are in memory at once."""


class GivenClusters(NamedTuple):
    """Clusters that rows choose from.

    - **stats** - their statistics, leading dimension k.
    - **log_weights** - (k + 1,) log seating weights of the clusters and, last, of a new one.
    - **total** - a number of rows that none of them exceeds.
    """

    stats: Statistics
    log_weights: Float[np.ndarray, " k1"]
    total: int


class SeatedRows(NamedTuple):
    """Partition of all rows after a pass.

    - **stats**, **counts** - statistics and sizes of the clusters, in order of appearance.
    - **log_joint** - log p(X, labels) (nats).
    - **chosen_from** - the clusters that the rows chose from.
    - **names** - for each part, the numbers of the k clusters chosen from and of those opened in the part.
    """

    stats: Statistics
    counts: Float[np.ndarray, " k"]
    log_joint: float
    chosen_from: GivenClusters
    names: list[Int[np.ndarray, " _"]]


class SourceSeating:
    """Passes in which every row of a source joins the cluster with the largest seating weight × predictive density.

    Rows do not leave their cluster before they choose, which makes little difference for clusters of many rows. Those that
    prefer a new cluster are seated one at a time among themselves in each part, and the clusters of all parts are merged
    wherever their statistics show that this increases the log joint.

    Parameters
    ----------
    component, prior
        Conjugate component and partition prior.
    source
        The rows; the component validates them in the first pass.
    limit
        Maximum number of clusters.
    """

    def __init__(self, component: Component, prior: Prior, source: RowSource, limit: int) -> None:
        self.component, self.prior, self.source, self.limit = in_numpy(component), prior, source, limit
        self._checked = False

    def __call__(self, stats: Statistics, counts: Float[np.ndarray, " k"], share: float = 1.0) -> SeatedRows:
        """Make a pass with clusters of these statistics and sizes, of which each row represents `share` rows."""
        weights = np.asarray(log_seating(share * counts, self.prior, float(self.limit)))
        given = GivenClusters(in_numpy(stats), weights, int(counts.max()))
        k, old, opened = len(counts), None, list[Sums]()
        seat = partial(_seat, self.component, self.prior, self.limit - k, given, not self._checked)
        for one, new in self.source.map(seat):
            old = one if old is None else added_sums(old, one)
            opened.append(new)
        if old is None:
            raise ValueError("X is empty: the row source has no parts; expected at least two rows")
        self._checked = True
        every: Sums = jax.tree.map(lambda *leaves: np.concatenate(leaves), old, *opened)
        used = np.flatnonzero(every.counts > 0)
        groups, stats, counts = merge_by_joint(
            self.component, take(every.stats, used), every.counts[used], self.prior, self.limit
        )
        first = np.full(len(counts), NONE)
        np.minimum.at(first, groups, every.first[used])
        order = np.argsort(first)
        place = np.full(len(every.counts), -1)
        place[used] = np.argsort(order)[groups]
        ends = k + np.cumsum([0, *(len(new.counts) for new in opened)])
        names = [np.append(place[:k], place[one:other]) for one, other in zip(ends, ends[1:], strict=False)]
        stats, counts = take(stats, order), counts[order]
        return SeatedRows(stats, counts, joint_of_clusters(self.component, stats, counts, self.prior), given, names)

    def labels(self, found: SeatedRows) -> Int[np.ndarray, " n"]:
        """Cluster of each row after a pass, by another reading."""
        k = len(found.chosen_from.log_weights) - 1
        choose = partial(_labels, self.component, self.prior, self.limit - k, found.chosen_from)
        return np.concatenate([name[part] for name, part in zip(found.names, self.source.map(choose), strict=True)])


def _labels(
    component: Component, prior: Prior, room: int, clusters: GivenClusters, rows: Float[np.ndarray, "m d"], start: int
) -> Int[np.ndarray, " m"]:
    return _seated(component, prior, room, clusters, rows, start)[0]


def _seat(
    component: Component,
    prior: Prior,
    room: int,
    clusters: GivenClusters,
    check: bool,
    rows: Float[np.ndarray, "m d"],
    start: int,
) -> tuple[Sums, Sums]:
    """Sums of the rows that join the clusters, and of those that open new ones."""
    if check:
        validate_part(component, rows, start)
    labels, stats, counts = _seated(component, prior, room, clusters, rows, start)
    sums, k = Sums(stats, counts, first_rows(labels, start, len(counts))), len(clusters.log_weights) - 1
    old, new = (jax.tree.map(lambda leaf, some=some: leaf[some], sums) for some in (slice(k), slice(k, None)))
    return old, new


def _seated(
    component: Component, prior: Prior, room: int, clusters: GivenClusters, rows: Float[np.ndarray, "m d"], start: int
) -> tuple[Int[np.ndarray, " m"], Statistics, Float[np.ndarray, " k"]]:
    """Labels of the rows of a part, and the statistics and sizes of the clusters in it: first those given, then new ones."""
    X, k = rows.astype(np.float64), len(clusters.log_weights) - 1
    labels = np.empty(len(X), np.int64)
    with counted_from(start), double_precision():
        for at in range(0, len(X), ROWS_AT_ONCE):
            some = X[at : at + ROWS_AT_ONCE]
            weights = log_predictives(component, clusters.stats, some, clusters.total) + clusters.log_weights
            labels[at : at + ROWS_AT_ONCE] = check_log_weights(weights, some).argmax(1)
        new = labels == k
        if new.any():
            nothing = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape[1:])), clusters.stats)
            labels[new] += seat_in_turn(component, X[new], (nothing, np.empty(0)), prior, min(room, int(new.sum())))[0]
        stats, counts = sum_by_label(component, X, labels, max(k, int(labels.max()) + 1))
    return labels, stats, counts
