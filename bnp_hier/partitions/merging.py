"""The best merge of two clusters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.seating import Prior

__all__ = ["merge_best_pair"]


def merge_best_pair(
    component: Component, rows: Statistics, labels: Int[Array, " n"], prior: Prior, slots: int
) -> tuple[Int[Array, " n"], Array]:
    """Merge the two clusters whose union increases log p(X, partition) most, if any does; also return whether one did.

    If the log marginal likelihood of a union is not finite, the items of both clusters get label −1 instead.
    """
    stats, counts = cluster_statistics(rows, labels, slots), cluster_counts(labels, slots)
    marginal = component.log_marginal(stats)
    size = counts.astype(float)
    concentration, discount = prior
    terms = marginal + gammaln(jnp.where(counts > 0, size, 1.0) - discount)
    opening = jnp.log(concentration + ((counts > 0).sum(dtype=size.dtype) - 1) * discount) - gammaln(1.0 - discount)

    def row(k: Array) -> Array:
        union = component.log_marginal(jax.tree.map(lambda leaf: leaf + leaf[k][None], stats))
        gain = union + gammaln(jnp.maximum(size + size[k], 1.0) - discount) - terms - terms[k] - opening
        possible = (counts > 0) & (counts[k] > 0) & (jnp.arange(slots) > k)
        return jnp.where(possible, jnp.where(jnp.isnan(gain), jnp.inf, gain), -jnp.inf)

    gains = jax.lax.map(row, jnp.arange(slots))
    first, second = jnp.unravel_index(gains.argmax(), gains.shape)
    best = gains.max()
    better = (best > 1e-9 * jnp.abs(marginal.sum())) & (best < jnp.inf)
    undefined = (best == jnp.inf) & ((labels == first) | (labels == second))
    return jnp.where(undefined, -1, jnp.where(better & (labels == second), first, labels)), better
