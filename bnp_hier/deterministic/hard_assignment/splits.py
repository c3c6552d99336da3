"""Clusters that are split and merged as long as the free energy falls, by passes over all rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.assignment import Assigner, DenseAssigner, Scores
from bnp_hier.deterministic.hard_assignment.free_energies import free_energy, scores_from
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.capacities import more_slots
from bnp_hier.partitions.seating import Prior, log_seating

__all__ = ["Clusters", "SplitMergeSearch", "seeded", "slots_for", "spaces_of", "sum_by_label"]

LEAST_GAIN = 1e-6
"""Fall of the free energy (nats) under which passes stop and a split or merge is refused."""

PATIENCE = 20
"""A split or merge is given up when so many more passes as good as the last would not make it pay."""

SAME_CUT = 0.95
"""Share of a cluster's rows on the same sides of two planes from which only one of them is tried."""

LEAST_OVERLAP = 1e-3
"""Cosine of two clusters' responsibilities under which merging them is not tried."""


class Clusters(NamedTuple):
    """Clusters in slots, some of them empty.

    - **scores** - what labelled the rows.
    - **stats**, **counts** - of the rows of each cluster, in NumPy: they are cut and joined on the host, where a new number
      of slots compiles nothing.
    - **free_energy** - −log p(X, labels) (nats).
    """

    scores: Scores
    stats: Statistics
    counts: Float[np.ndarray, " k"]
    free_energy: float


class SplitMergeSearch:
    """Passes, splits and merges on one data set.

    Parameters
    ----------
    component, prior, labels
        Component, prior of the partition, and label model.
    assigner
        How to make passes over all rows.
    sketch
        Rows (all or some) that say where clusters are split.
    max_iter
        Most passes in a row.
    limit
        Most clusters.

    Attributes
    ----------
    trace
        Free energy after each step that was kept.
    converged
        Whether no run of passes since `trace` began was cut off by `max_iter`.
    kept
        The best clusters of any pass so far, also if a pass then fails; None before the first.
    """

    def __init__(
        self,
        component: Component,
        prior: Prior,
        labels: str,
        assigner: Assigner,
        sketch: Float[np.ndarray, "s d"],
        max_iter: int,
        limit: int,
    ) -> None:
        self.component, self.prior, self.labels = component, prior, labels
        self.assigner, self.sketch, self.max_iter, self.limit = assigner, sketch, max_iter, limit
        self._sketcher = DenseAssigner(component, sketch)
        self.spaces = spaces_of(component, sketch)
        self.trace: list[float] = []
        self.converged = True
        self.kept: Clusters | None = None

    def _pass(self, scores: Scores) -> Clusters:
        stats, counts = self.assigner(scores)
        energy = float(free_energy(self.component, stats, counts, self.prior, self.labels))
        state = Clusters(scores, jax.tree.map(np.asarray, stats), np.asarray(counts), energy)
        if self.kept is None or energy < self.kept.free_energy:
            self.kept = state
        return state

    def settle(self, scores: Scores, target: float = np.inf) -> tuple[Clusters, list[float]]:
        """Passes until the free energy no longer falls; a pass that would raise it, as clusters empty, is refused.

        A free energy that falls too slowly to come below the target is given up early.
        """
        state = self._pass(scores)
        trace = [state.free_energy]
        for _ in range(self.max_iter):
            following = self._pass(self.scores(state.stats, state.counts))
            if not following.free_energy < state.free_energy:  # also if it is not finite
                break
            gain, state = state.free_energy - following.free_energy, following
            trace.append(state.free_energy)
            if gain < LEAST_GAIN or state.free_energy - target > PATIENCE * gain:
                break
        else:
            self.converged = False
        return state, trace

    def scores(self, stats: Statistics, counts: Float[np.ndarray, " k"]) -> Scores:
        """Scores of clusters with these statistics."""
        return scores_from(self.component, stats, counts, self.prior, self.labels)

    def _sums(self, labels: Int[np.ndarray, " s"]) -> tuple[Statistics, Float[np.ndarray, " k"]]:
        slots = slots_for(int(labels.max()) + 1)
        return sum_by_label(self.component, self.sketch, labels, slots)

    def free_energy_of(self, labels: Int[np.ndarray, " s"]) -> float:
        """−log p(sketch, labels) (nats)."""
        return float(free_energy(self.component, *self._sums(labels), self.prior, self.labels))

    def climb(self, labels: Int[np.ndarray, " s"], n: int) -> Clusters:
        """The best clusters found from a partition of the sketch, which stands for n rows; `trace` begins anew."""
        stats, counts = self._sums(labels)
        share = n / len(self.sketch)
        scores = self.scores(jax.tree.map(lambda leaf: share * leaf, stats), share * counts)
        self.converged = True
        state, self.trace = self.settle(scores)
        return self.improve(state)

    def improve(self, state: Clusters) -> Clusters:
        """Splits, then merges, until neither lowers the free energy."""
        while np.isfinite(state.free_energy):
            state = self._split_all(state)
            merged = self._merge_one(state)
            if merged is None:
                return state
            state = merged
        return state

    def _accept(self, proposal: Scores, state: Clusters) -> Clusters | None:
        settled, trace = self.settle(proposal, target=state.free_energy)
        if not settled.free_energy < state.free_energy - LEAST_GAIN:  # NaN is no gain: the searches end
            return None
        self.trace += [energy for energy in trace if energy < state.free_energy]
        return settled

    def _split_all(self, state: Clusters) -> Clusters:
        refused: dict[int, float] = {}  # cluster and its size: a cluster that has changed since is tried again
        while (state.counts > 0).sum() < self.limit:
            accepted = None
            labels = self._sketcher.labels(state.scores)
            for cluster in self._worst_fitting(state):
                if refused.get(cluster) == state.counts[cluster]:
                    continue
                for proposal in self._splits(state, cluster, np.flatnonzero(labels == cluster)):
                    accepted = self._accept(proposal, state)
                    if accepted is not None:
                        break
                if accepted is not None:
                    break
                refused[cluster] = state.counts[cluster]
            if accepted is None:
                break
            state = accepted
        return state

    def _responsibilities(self, state: Clusters) -> tuple[Float[np.ndarray, "s k"], Float[np.ndarray, "s k"]]:
        """Log predictive density of the sketch's rows in each cluster in use, and probability of each cluster."""
        both = np.asarray(_log_weights(self.component, state.stats, state.counts, self.prior, self.sketch))
        used = state.counts > 0
        size = np.where(used, state.counts - np.asarray(self.prior.discount), 1.0)
        seat = np.where(used, np.log(size / (state.counts.sum() + np.asarray(self.prior.concentration))), 0.0)
        weight = np.exp(both - both.max(1, keepdims=True))
        return np.where(used, both - seat, 0.0), weight / weight.sum(1, keepdims=True)

    def _worst_fitting(self, state: Clusters) -> list[int]:
        """Clusters by falling divergence of their rows' empirical density from their predictive density.

        Σ_i w_i [log w_i − log p(x_i|cluster)], w the responsibilities of the cluster, summing to 1: Kurihara & Welling (2009),
        Eq. 47, which is infinite as printed.
        """
        density, weight = self._responsibilities(state)
        share = weight / np.maximum(weight.sum(0), np.finfo(float).tiny)
        terms = np.where(share > 0, share * (np.log(np.where(share > 0, share, 1.0)) - density), 0.0)
        order = np.argsort(-terms.sum(0), kind="stable")
        return [int(k) for k in order if state.counts[k] > 1]

    def _splits(self, state: Clusters, cluster: int, rows: Int[np.ndarray, " m"]) -> Iterator[Scores]:
        """The cluster cut by the plane through the mean of its rows in the sketch, across their principal direction.

        That is one step of k-means from two centres on that axis (Kurihara & Welling 2009, appendix D.3), in each of the
        spaces unless the cuts are nearly the same.
        """
        if len(rows) < 2:
            return
        cuts: list[np.ndarray] = []
        for points in self.spaces:
            centred = points[rows] - points[rows].mean(0)
            _, spread, directions = np.linalg.svd(centred, full_matrices=False)
            side = centred @ directions[0] > 0
            flat = spread[0] <= 1e-12 * max(1.0, np.abs(points[rows]).max())
            if not flat and not any(abs(np.mean(side == cut) - 0.5) > SAME_CUT - 0.5 for cut in cuts):
                cuts.append(side)
                yield self._cut(state, cluster, rows, side.astype(int))

    def _cut(self, state: Clusters, cluster: int, rows: Int[np.ndarray, " m"], side: Int[np.ndarray, " m"]) -> Scores:
        """Scores once the rows of the cluster on side 1 are a cluster of their own."""
        halves, sizes = sum_by_label(self.component, self.sketch[rows], side, 2)
        share = state.counts[cluster] / len(rows)
        free = np.flatnonzero(state.counts == 0)
        stats, counts = state.stats, state.counts
        if not len(free):
            stats, counts = more_slots(stats, len(counts)), np.pad(counts, (0, len(counts)))
            free = np.flatnonzero(counts == 0)
        place = np.array([cluster, free[0]])
        stats = jax.tree.map(lambda leaf, half: _with(leaf, place, share * half), stats, halves)
        counts = _with(counts, place, share * sizes)
        return self.scores(stats, counts)

    def _merge_one(self, state: Clusters) -> Clusters | None:
        """The first merge that lowers the free energy, pairs with the most alike responsibilities first."""
        _, weight = self._responsibilities(state)
        used = np.flatnonzero(state.counts > 0).tolist()
        unit = weight / np.maximum(np.linalg.norm(weight, axis=0), np.finfo(float).tiny)
        alike = unit.T @ unit
        for one, other in sorted(combinations(used, 2), key=lambda pair: -alike[pair]):
            if alike[one, other] < LEAST_OVERLAP:
                break
            stats, counts = jax.tree.map(partial(_joined, one=one, other=other), (state.stats, state.counts))
            accepted = self._accept(self.scores(stats, counts), state)
            if accepted is not None:
                return accepted
        return None


def slots_for(clusters: int) -> int:
    """Room for so many clusters, in powers of two so that few programs are compiled."""
    return max(8, 1 << (clusters - 1).bit_length())


def seeded(points: Float[np.ndarray, "s q"], clusters: int, rng: np.random.Generator) -> Int[np.ndarray, " s"]:
    """Each row at the nearest of so many rows drawn by k-means++."""
    from sklearn.cluster import kmeans_plusplus

    centers, _ = kmeans_plusplus(points, clusters, random_state=int(rng.integers(1 << 31)))
    # squared distances but for what is the same for all centres
    return ((centers**2).sum(1) - 2 * points @ centers.T).argmin(1)


def spaces_of(component: Component, X: Float[np.ndarray, "s d"]) -> list[Float[np.ndarray, "s _"]]:
    """Coordinates in which rows are near or far: the columns, missing values at their mean, and the component's own if any.

    Those of a prior whose scale is like the data's covariance are round and show no direction; columns in different units
    show the wrong one.
    """
    seen = ~np.isnan(X)
    mean = np.where(seen, X, 0.0).sum(0) / np.maximum(seen.sum(0), 1)  # 0 for a column of which nothing is seen
    spaces = [np.where(seen, X, mean)]
    try:
        own = np.asarray(component.coordinates(X))
    except NotImplementedError:
        return spaces
    return spaces if own.shape == X.shape and np.array_equal(own, spaces[0]) else [*spaces, own]


def sum_by_label(
    component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], slots: int
) -> tuple[Statistics, Float[np.ndarray, " k"]]:
    """Statistics of the rows of each cluster, and their numbers, in NumPy."""
    # padded to powers of four, so that clusters of any size share a few programs
    n = len(X)
    most = max(64, 4 ** math.ceil(math.log(n, 4)))
    rows = np.concatenate([X, np.broadcast_to(X[:1], (most - n, X.shape[1]))])
    padded = np.concatenate([labels, np.full(most - n, slots)])
    return jax.tree.map(np.asarray, _sum_by_label(component, rows, padded, slots))


def _with(leaf: np.ndarray, place: Int[np.ndarray, " m"], value: np.ndarray) -> np.ndarray:
    """A copy with other values at some places."""
    changed = leaf.copy()
    changed[place] = value
    return changed


def _joined(leaf: np.ndarray, one: int, other: int) -> np.ndarray:
    """A copy in which one slot has the sum of two, and the other nothing."""
    return _with(leaf, np.array([one, other]), np.stack([leaf[one] + leaf[other], np.zeros_like(leaf[other])]))


@jax.jit
def _log_weights(
    component: Component, stats: Statistics, counts: Float[Array, " k"], prior: Prior, X: Float[Array, "m d"]
) -> Float[Array, "m k"]:
    """Log of (seating probability × predictive density) of rows at each cluster; a new one, improper maybe, is not asked."""
    # `log_weighted_densities` asks for a cache, which an improper family refuses: it may be asked for empty clusters
    density = component.log_predictive(jax.tree.map(lambda leaf: leaf[None], stats), X[:, None])
    return density + log_seating(counts, prior)[None, :-1]


@partial(jax.jit, static_argnames="slots")
def _sum_by_label(
    component: Component, X: Float[Array, "n d"], labels: Int[Array, " n"], slots: int
) -> tuple[Statistics, Float[Array, " k"]]:
    stats = cluster_statistics(component.suff_stats(X), labels, slots)
    return stats, cluster_counts(labels, slots).astype(float)
