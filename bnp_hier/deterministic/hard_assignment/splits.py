"""Search by splits and merges, which are accepted if passes over all rows then reach a lower free energy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.assignment import Assigner, DenseAssigner, Scores, coordinates_of
from bnp_hier.deterministic.hard_assignment.free_energies import free_energy, scores_from
from bnp_hier.distributions.seating import Prior, log_seating
from bnp_hier.partitions.capacities import more_slots
from bnp_hier.partitions.clusters import joint_and_statistics, log_predictives
from bnp_hier.partitions.engine import has_kernels
from bnp_hier.partitions.scoring import in_chunks
from bnp_hier.utils.directions import principal_axis

__all__ = ["Clusters", "SplitMergeSearch", "seeded", "slots_for", "spaces_of", "sum_by_label"]

LEAST_GAIN = 1e-6
"""Decrease of the free energy (nats) below which passes stop and a split or merge is rejected."""

PATIENCE = 20
"""A split or merge is abandoned if this many further passes with the gain of the last one would not lower the free energy."""

SAME_CUT = 0.95
"""Proportion of a cluster's rows on the same sides of two planes above which only the first plane is tried."""

LEAST_OVERLAP = 1e-3
"""Cosine similarity of two clusters' responsibilities below which merging them is not tried."""


class Clusters(NamedTuple):
    """Clusters in slots, some of them empty.

    - **scores** - the scores with which the rows were labelled.
    - **stats**, **counts** - statistics and number of the rows of each cluster, as NumPy arrays: splits and merges change
      them on the host, where a new number of slots requires no compilation.
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
        Component, prior of the partition, and label prior (one of `LABEL_MODELS`).
    assigner
        Makes passes over all rows.
    sketch
        All rows or a sample of them, used to propose splits.
    max_iter
        Maximum number of consecutive passes.
    limit
        Maximum number of clusters.
    least_gain
        Decrease of the free energy (nats) below which passes stop.
    max_passes
        Maximum number of passes in total; None for no limit.

    Attributes
    ----------
    trace
        Free energy after each accepted step.
    converged
        Whether every series of passes since the start of `trace` converged within `max_iter`.
    kept
        Best clusters of all passes so far, available even if a later pass fails; None before the first pass.
    passes
        Number of passes so far.
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
        *,
        least_gain: float = LEAST_GAIN,
        max_passes: int | None = None,
    ) -> None:
        self.component, self.prior, self.labels = component, prior, labels
        self.assigner, self.sketch, self.max_iter, self.limit = assigner, sketch, max_iter, limit
        self.least_gain, self.max_passes, self.passes = least_gain, max_passes, 0
        self._sketcher = DenseAssigner(component, sketch)
        self.spaces = spaces_of(component, sketch)
        self.trace: list[float] = []
        self.converged = True
        self.kept: Clusters | None = None

    def _pass(self, scores: Scores) -> Clusters:
        stats, counts = jax.tree.map(np.asarray, self.assigner(scores))
        self.passes += 1
        energy = free_energy(self.component, stats, counts, self.prior, self.labels)
        state = Clusters(scores, stats, counts, energy)
        if self.kept is None or energy < self.kept.free_energy:
            self.kept = state
        return state

    def settle(self, scores: Scores, target: float = np.inf) -> tuple[Clusters, list[float]]:
        """Make passes until the free energy no longer decreases; reject a pass that increases it because clusters empty.

        Stops early if the free energy decreases too slowly to reach the target.
        """
        state = self._pass(scores)
        trace = [state.free_energy]
        for _ in range(self.max_iter):
            if self.max_passes is not None and self.passes >= self.max_passes:
                self.converged = False
                break
            following = self._pass(self.scores(state.stats, state.counts))
            if not following.free_energy < state.free_energy:  # also if it is not finite
                break
            gain, state = state.free_energy - following.free_energy, following
            trace.append(state.free_energy)
            if gain < self.least_gain or state.free_energy - target > PATIENCE * gain:
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
        return free_energy(self.component, *self._sums(labels), self.prior, self.labels)

    def climb(self, labels: Int[np.ndarray, " s"], n: int) -> Clusters:
        """Find the best clusters from an initial partition of the sketch, which represents n rows; restarts `trace`."""
        stats, counts = self._sums(labels)
        share = n / len(self.sketch)
        scores = self.scores(jax.tree.map(lambda leaf: share * leaf, stats), share * counts)
        self.converged = True
        state, self.trace = self.settle(scores)
        return self.improve(state)

    def improve(self, state: Clusters) -> Clusters:
        """Alternate splits and merges until neither reduces the free energy."""
        while np.isfinite(state.free_energy):
            state = self.split_all(state)
            merged = self._merge_one(state)
            if merged is None:
                return state
            state = merged
        return state

    def prune(self, state: Clusters) -> Clusters:
        """Merge clusters wherever the statistics alone show that it reduces the free energy, then make passes.

        Rows keep their labels but for the names of merged clusters, so that choosing the merges takes no pass.
        """
        stats, counts, energy = state.stats, state.counts, state.free_energy
        for one, other in self._overlapping(state):
            if not (counts[one] and counts[other]):
                continue
            joined, sizes = jax.tree.map(partial(_joined, one=one, other=other), (stats, counts))
            lower = free_energy(self.component, joined, sizes, self.prior, self.labels)
            if lower < energy - LEAST_GAIN:
                stats, counts, energy = joined, sizes, lower
        if energy == state.free_energy:
            return state
        return self._accept(self.scores(stats, counts), state) or state

    def _accept(self, proposal: Scores, state: Clusters) -> Clusters | None:
        settled, trace = self.settle(proposal, target=state.free_energy)
        if not settled.free_energy < state.free_energy - self.least_gain:  # NaN counts as no gain, so that the search ends
            return None
        self.trace += [energy for energy in trace if energy < state.free_energy]
        return settled

    def split_all(self, state: Clusters) -> Clusters:
        """Split clusters until no split reduces the free energy."""
        refused: dict[int, float] = {}  # size of each rejected cluster: a cluster that has changed since is tried again
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
        """Log predictive density of the sketch's rows under each cluster, 0 for an empty one, and their responsibilities."""
        density = self._log_densities(state)
        both = density + log_seating(state.counts, self.prior)[:-1]
        weight = np.exp(both - both.max(1, keepdims=True))
        return density, weight / weight.sum(1, keepdims=True)

    def _log_densities(self, state: Clusters) -> Float[np.ndarray, "s k"]:
        """Log predictive density of the sketch's rows under each cluster, 0 for an empty one."""
        used = state.counts > 0
        density = np.zeros((len(self.sketch), len(used)))
        if has_kernels(self.component):
            taken = jax.tree.map(lambda leaf: leaf[used], state.stats)
            density[:, used] = log_predictives(self.component, taken, self.sketch, int(state.counts.max()))[:, :-1]
        else:
            density[:, used] = in_chunks(partial(_log_predictives, self.component, state.stats), self.sketch)[:, used]
        return density

    def _worst_fitting(self, state: Clusters) -> list[int]:
        """Clusters in decreasing order of the divergence of their rows' empirical density from their predictive density.

        The divergence is Σ_i w_i [log w_i − log p(x_i|cluster)], where w are the cluster's responsibilities, normalised to
        sum to 1: a corrected form of Kurihara & Welling (2009), Eq. 47, which is infinite as printed.
        """
        density, weight = self._responsibilities(state)
        share = weight / np.maximum(weight.sum(0), np.finfo(float).tiny)
        terms = np.where(share > 0, share * (np.log(np.where(share > 0, share, 1.0)) - density), 0.0)
        order = np.argsort(-terms.sum(0), kind="stable")
        return [int(k) for k in order if state.counts[k] > 1]

    def _splits(self, state: Clusters, cluster: int, rows: Int[np.ndarray, " m"]) -> Iterator[Scores]:
        """Propose splits of a cluster by a plane through the mean of its rows in the sketch, across their principal axis.

        This is one step of k-means from two centres on that axis (Kurihara & Welling 2009, appendix D.3). One split is
        proposed in each of the coordinate spaces, unless the cuts are nearly the same.
        """
        if len(rows) < 2:
            return
        cuts: list[np.ndarray] = []
        for points in self.spaces:
            centred = points[rows] - points[rows].mean(0)
            along = centred @ principal_axis(centred)
            side = along > 0
            flat = np.linalg.norm(along) <= 1e-12 * max(1.0, np.abs(points[rows]).max())
            if not flat and not any(abs(np.mean(side == cut) - 0.5) > SAME_CUT - 0.5 for cut in cuts):
                cuts.append(side)
                yield self._cut(state, cluster, rows, side.astype(int))

    def _cut(self, state: Clusters, cluster: int, rows: Int[np.ndarray, " m"], side: Int[np.ndarray, " m"]) -> Scores:
        """Scores after the rows on side 1 have been moved to a new cluster."""
        labels = np.full(len(self.sketch), 2)  # the other rows are summed too, so that all proposals share one program
        labels[rows] = side
        halves, sizes = jax.tree.map(lambda leaf: leaf[:2], sum_by_label(self.component, self.sketch, labels, 3))
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

    def _overlapping(self, state: Clusters) -> list[tuple[int, int]]:
        """Pairs of clusters in decreasing cosine similarity of their responsibilities, which is at least `LEAST_OVERLAP`."""
        _, weight = self._responsibilities(state)
        unit = weight / np.maximum(np.linalg.norm(weight, axis=0), np.finfo(float).tiny)
        alike = unit.T @ unit
        used = np.flatnonzero(state.counts > 0).tolist()
        pairs = sorted(combinations(used, 2), key=lambda pair: -alike[pair])
        return [pair for pair in pairs if alike[pair] >= LEAST_OVERLAP]

    def _merge_one(self, state: Clusters) -> Clusters | None:
        """Make the first merge that reduces the free energy, trying pairs in decreasing similarity of responsibilities."""
        for one, other in self._overlapping(state):
            stats, counts = jax.tree.map(partial(_joined, one=one, other=other), (state.stats, state.counts))
            accepted = self._accept(self.scores(stats, counts), state)
            if accepted is not None:
                return accepted
        return None


def slots_for(clusters: int) -> int:
    """Number of slots for the given number of clusters, a power of two so that few programs are compiled."""
    return max(16, 1 << (clusters - 1).bit_length())


def seeded(points: Float[np.ndarray, "s q"], clusters: int, rng: np.random.Generator) -> Int[np.ndarray, " s"]:
    """Label each row by the nearest of the given number of centres drawn by k-means++."""
    from sklearn.cluster import kmeans_plusplus

    centers, _ = kmeans_plusplus(points, clusters, random_state=int(rng.integers(1 << 31)))
    # squared distances up to a term that is the same for all centres
    return ((centers**2).sum(1) - 2 * points @ centers.T).argmin(1)


def spaces_of(component: Component, X: Float[np.ndarray, "s d"]) -> list[Float[np.ndarray, "s _"]]:
    """Coordinate spaces for distances between rows: the columns (mean-imputed) and the component's coordinates, if any.

    Both are needed: if the prior's scale resembles the data's covariance, the component's coordinates are isotropic and show
    no direction; columns in different units show the wrong one.
    """
    seen = ~np.isnan(X)
    mean = np.where(seen, X, 0.0).sum(0) / np.maximum(seen.sum(0), 1)  # 0 for a column without observed values
    spaces = [np.where(seen, X, mean)]
    try:
        own = coordinates_of(component, X)
    except NotImplementedError:
        return spaces
    return spaces if own.shape == X.shape and np.array_equal(own, spaces[0]) else [*spaces, own]


def sum_by_label(
    component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], slots: int
) -> tuple[Statistics, Float[np.ndarray, " k"]]:
    """Statistics and number of the rows of each cluster, as NumPy arrays."""
    _, stats = joint_and_statistics(component, X, labels, Prior(1.0))
    counts = np.bincount(labels, minlength=slots).astype(float)
    return more_slots(stats, slots - len(jax.tree.leaves(stats)[0])), counts


def _with(leaf: np.ndarray, place: Int[np.ndarray, " m"], value: np.ndarray) -> np.ndarray:
    """Return a copy with new values at the given places."""
    changed = leaf.copy()
    changed[place] = value
    return changed


def _joined(leaf: np.ndarray, one: int, other: int) -> np.ndarray:
    """Return a copy in which slot `one` contains the sum of both slots and slot `other` is empty."""
    return _with(leaf, np.array([one, other]), np.stack([leaf[one] + leaf[other], np.zeros_like(leaf[other])]))


@jax.jit
def _log_predictives(component: Component, stats: Statistics, X: Float[Array, "m d"]) -> Float[Array, "m k"]:
    """Log predictive density of the rows for each cluster."""
    # `log_weighted_densities` needs a cache, which an improper family lacks because it may be used for empty clusters
    return component.log_predictive(jax.tree.map(lambda leaf: leaf[None], stats), X[:, None])
