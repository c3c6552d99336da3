"""Clusters that items leave and join one at a time, and the conditionals of these moves."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import GibbsTypePrior
from bnp_hier.partitions.engine import has_calls
from bnp_hier.utils.arrays import pack, take

__all__ = ["Seating", "Seats"]


class Seats(NamedTuple):
    """Clusters of a partition in K slots, some of which may be empty.

    - **counts** - (K,) cluster sizes.
    - **log_counts** - (K,) log(n_k − δ), −inf where empty.
    - **caches** - (K, c) the component's cache of each cluster, one per row, so that a change reads and writes a single row.
    """

    counts: Float[Array, "*b k"]
    log_counts: Float[Array, "*b k"]
    caches: Float[Array, "*b k c"]


class Seating:
    """Conditionals of single items given the clusters of all others, with cluster parameters integrated out.

    Neal (2000), Algorithm 3: item i joins cluster k with probability ∝ (n_k − δ) p(x_i | X_k) and opens a new one with
    probability ∝ V(n, K + 1)/V(n, K) p(x_i), which is (α + Kδ) p(x_i) for a Pitman-Yor process; n_k, X_k and the number of
    clusters K exclude item i.

    Parameters
    ----------
    component
        Conjugate component.
    X
        Rows, (n, d).
    prior
        Partition prior.

    Notes
    -----
    With native kernels, `native` is true, and only the functions of `partitions` that run a kernel accept the object: the other
    methods are those of the XLA programs.
    """

    def __init__(self, component: Component, X: Num[Array | np.ndarray, "n d"], prior: GibbsTypePrior) -> None:
        self.component, self.X, self.prior = component, X, prior
        self.native = has_calls(component)
        if not self.native:  # here, because a loop that first needed them would keep them to itself
            self._rows = component.suff_stats(X)
            self._empty, self._unpack = ravel_pytree(component.cache(component.empty()))

    @property
    def rows(self) -> Statistics:
        """Sufficient statistics of each row, leading dimension n."""
        return self.component.suff_stats(self.X) if self.native else self._rows

    def _log_count(self, count: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.where(count > 0, jnp.log(jnp.where(count > 0, count - self.prior.discount, 1.0)), -jnp.inf)

    def seats(self, labels: Int[Array, " n"], slots: int, others: tuple[Statistics, Float[Array, " k"]] | None = None) -> Seats:
        """Build the clusters from labels, −1 for items without a cluster; `others` are statistics and counts of further items.

        They are computed from the statistics of all items, so that rounding errors of earlier updates do not accumulate.
        """
        stats, counts = cluster_statistics(self.rows, labels, slots), cluster_counts(labels, slots).astype(float)
        if others is not None:
            stats, counts = jax.tree.map(jnp.add, (stats, counts), others)
        return Seats(counts, self._log_count(counts), pack(self.component.cache(stats), 1))

    def row(self, item: Array) -> Statistics:
        """Return the sufficient statistics of one row."""
        return take(self.rows, item)

    def leave(self, seats: Seats, row: Statistics, slot: Array, seated: ArrayLike = 1.0) -> Seats:
        """Remove a row from its slot; `seated` 0 means that the row is not in the slot, and nothing changes."""
        counts, log_counts, caches = seats
        there = jnp.asarray(seated).astype(counts.dtype)
        left = counts[slot] - there
        remaining = pack(self.component.update_cache(self._unpack(caches[slot]), row, -there), 0)
        # an emptied slot is reset exactly, without rounding errors
        caches = caches.at[slot].set(jnp.where(left > 0, remaining, self._empty))
        return Seats(counts.at[slot].set(left), log_counts.at[slot].set(self._log_count(left)), caches)

    def log_weights(self, seats: Seats, row: Statistics) -> tuple[Float[Array, " k"], Bool[Array, ""]]:
        """Log of (seating weight × predictive density) of a row for each slot, and whether all slots are occupied.

        The first free slot stands for a new cluster; the other free slots have weight 0. The weights omit the denominator of
        the seating probabilities, α + (number of items seated).
        """
        occupied = seats.counts > 0
        opens = (jnp.arange(occupied.shape[0]) == jnp.argmin(occupied)) & ~occupied
        clusters = occupied.sum(dtype=seats.counts.dtype)
        # the first item always opens a cluster
        opening = jnp.where(clusters > 0, self.prior.log_open(jnp.maximum(clusters, 1.0)), 0.0)
        predictive = self.component.cached_log_predictive(jax.vmap(self._unpack)(seats.caches), row)
        return jnp.where(opens, opening, seats.log_counts) + predictive, occupied.all()

    def join(self, seats: Seats, row: Statistics, slot: Array) -> Seats:
        """Add a row to the slot."""
        counts, log_counts, caches = seats
        size = counts[slot] + 1.0
        grown = pack(self.component.update_cache(self._unpack(caches[slot]), row, 1.0), 0)
        return Seats(counts.at[slot].set(size), log_counts.at[slot].set(self._log_count(size)), caches.at[slot].set(grown))
