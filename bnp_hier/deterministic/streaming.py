"""Incremental fitting: new rows are assigned to a fitted partition one at a time, using the clusters' statistics only."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.distributions.chinese_restaurant import log_partition_prior
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.capacities import in_steps, more_slots
from bnp_hier.partitions.seating import Prior
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import check_seated, sweep
from bnp_hier.utils.options import require_count

__all__ = ["StreamingClustering"]

LARGEST = 4096
"""Maximum number of rows seated in one compiled call; chunk sizes are powers of two, so that few programs are compiled."""


@partial(jax.jit, static_argnames=("slots", "sweeps"))
def _seat(
    component: Component,
    X: Float[Array, "c d"],
    stats: Statistics,
    counts: Float[Array, " k"],
    prior: Prior,
    slots: int,
    sweeps: int,
) -> tuple[Int[Array, " c"], Statistics, Float[Array, " k"], Int[Array, ""]]:
    """Seat new rows in the existing clusters, then sweep over them again.

    Also returns how often a row needed a new cluster but no slot was free.
    """
    rows = component.suff_stats(X)
    seating, order = Seating(component, X, prior), jnp.arange(X.shape[0])

    def once(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        labels, _ = state
        return sweep(seating, labels, order, None, slots, others=(stats, counts))

    labels, refused = jax.lax.fori_loop(0, sweeps, once, (jnp.full(X.shape[0], -1), jnp.int32(0)))
    stats = jax.tree.map(jnp.add, stats, cluster_statistics(rows, labels, slots))
    return labels, stats, counts + jax.ops.segment_sum(jnp.ones(labels.shape), labels, slots), refused


@jax.jit
def _joint(component: Component, stats: Statistics, counts: Float[Array, " k"], prior: Prior) -> Float[Array, ""]:
    return log_partition_prior(counts, *prior) + component.log_marginal(stats).sum()


class StreamingClustering(DeterministicClustering):
    """Base class of the estimators of a single partition that support incremental fitting with `partial_fit`."""

    def partial_fit(self, X: ArrayLike, y: Any = None, *, refinements: int = 0) -> Self:
        """Add new rows one at a time, each to the cluster for which log p(all rows so far, labels) is largest.

        Only the statistics of the clusters are stored, not the earlier rows, so memory does not grow with the number of
        rows. On an unfitted estimator, this method is equivalent to `fit`. The hyperparameters, the traces and `free_energy_`
        are left as `fit` set them. Rows are seated under the model's partition prior, even if `fit` used another label prior.

        Parameters
        ----------
        X
            New rows, (m, d), m ≥ 1 (m ≥ 2 if the estimator is not fitted yet).
        y
            Ignored.
        refinements
            Number of additional sweeps over each chunk of at most 4,096 new rows.

        Returns
        -------
        self
            `labels_` contains the labels of the rows of this call only, with the existing cluster numbers; `counts_`,
            `n_clusters_`, `n_seen_` and `log_joint_` describe all rows seen so far.

        Raises
        ------
        ValueError
            If the rows are invalid for the component, or `refinements` is not a non-negative integer; the fitted state is
            then unchanged.
        """
        require_count("refinements", refinements, 0)
        if not hasattr(self, "counts_"):
            return self.fit(X)
        matrix = self._new_rows(X)
        with jax.enable_x64(True):
            self._take_in(matrix, refinements)
        return self

    @property
    def n_seen_(self) -> int:
        """Number of rows seen so far by `fit` and `partial_fit`."""
        return int(self.counts_.sum())

    def _take_in(self, X: Float[np.ndarray, "m d"], refinements: int) -> None:
        prior = Prior(jnp.asarray(self.concentration_), jnp.asarray(self.discount_))
        # a max_clusters declared by the model is part of the model; otherwise slots are added until they suffice
        limit = self._max_clusters_ or self.n_seen_ + len(X)
        slots = min(in_steps(self.n_clusters_ + 1), limit)
        stats = more_slots(self._stats_, slots - self.n_clusters_)
        counts = jnp.pad(jnp.asarray(self.counts_, float), (0, slots - self.n_clusters_))
        found: list[np.ndarray] = []
        at = 0
        while at < len(X):
            size = min(LARGEST, 1 << (len(X) - at).bit_length() - 1)
            chunk = jnp.asarray(X[at : at + size])
            labels, new_stats, new_counts, refused = _seat(self.component_, chunk, stats, counts, prior, slots, refinements + 1)
            if int(refused) and slots < limit:  # repeat the chunk with more slots
                extra = min(slots, limit - slots)
                stats, counts, slots = more_slots(stats, extra), jnp.pad(counts, (0, extra)), slots + extra
                continue
            check_seated(self.component_, np.asarray(labels), first=at)
            stats, counts = new_stats, new_counts
            found.append(np.asarray(labels))
            at += size
        # a cluster that was opened and then abandoned leaves its number unused; existing clusters never become empty
        used = np.flatnonzero(np.asarray(counts) > 0)
        number = np.full(slots, -1)
        number[used] = np.arange(len(used))
        self.labels_ = number[np.concatenate(found)]
        self._set_clusters(stats, counts, used)

    def _set_clusters(self, stats: Statistics, counts: Float[Array, " s"], order: Int[np.ndarray, " k"]) -> None:
        """Set the attributes that describe the clusters in the given slots, in this order; all other slots are empty."""
        self.counts_ = np.asarray(counts)[order].astype(np.int64)
        self.n_clusters_ = len(order)
        self._stats_ = jax.tree.map(lambda leaf: np.asarray(leaf)[order], stats)
        prior = Prior(jnp.asarray(self.concentration_), jnp.asarray(self.discount_))
        self.log_joint_ = float(_joint(self.component_, stats, jnp.asarray(counts), prior))
        if np.isnan(self.log_joint_):
            raise ValueError(
                f"log p(X, labels) is NaN: the log marginal likelihood of {type(self.component_).__name__} is NaN for a cluster"
            )
