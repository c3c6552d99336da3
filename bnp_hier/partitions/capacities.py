"""How many slots for clusters fixed-shape routines have, and the probability that a full capacity truncates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.partitions.seating import Prior
from bnp_hier.utils.arrays import take

__all__ = ["default_capacity", "in_steps", "more_slots", "truncated_probability"]


def in_steps(clusters: int) -> int:
    """Slots for so many clusters, in steps of 16, so that similar fits share a compiled program."""
    return -(-clusters // 16) * 16


def more_slots(stats: Statistics, extra: int) -> Statistics:
    """The clusters' statistics with empty slots after them."""
    # in NumPy: padding arrays of ever new lengths would compile as many programs
    return jax.tree.map(lambda leaf: np.pad(leaf, [(0, extra)] + [(0, 0)] * (np.ndim(leaf) - 1)), stats)


def default_capacity(n: int) -> int:
    """Number of slots that fixed-shape routines start with: all n partitions' worth for small n, 64 beyond."""
    return min(n, 64)


def truncated_probability(
    component: Component,
    stats: Statistics,
    counts: Float[Array, " k"],
    rows: Statistics,
    labels: Int[Array, " m"],
    prior: Prior,
) -> Float[Array, ""]:
    """Conditional probability of a new cluster that a full capacity refuses to an item, mean over some items.

    Parameters
    ----------
    component, prior
        Component and partition prior.
    stats, counts
        Statistics and numbers of items of the slots, leading dimension k.
    rows, labels
        Statistics and slots of the items asked about, leading dimension m.
    """

    def mass() -> Array:
        mine = labels[:, None] == jnp.arange(counts.shape[0], dtype=labels.dtype)[None]
        without = jax.tree.map(lambda leaf, row: leaf[labels] - row, stats, rows)
        own = component.log_marginal(take(stats, labels)) - component.log_marginal(without)
        cache = component.cache(stats)
        others = jax.vmap(lambda row: component.cached_log_predictive(cache, row))(rows)
        left = counts[None] - mine.astype(counts.dtype) - prior.discount
        seats = jnp.where(left > 0, jnp.log(jnp.where(left > 0, left, 1.0)), -jnp.inf)
        seated = logsumexp(seats + jnp.where(mine, own[:, None], others), axis=1)
        opening = jnp.log(prior.concentration + counts.shape[0] * prior.discount) + component.log_marginal(rows)
        # an item that is alone may stay so: nothing is refused to it
        return jnp.where(counts[labels] > 1, jax.nn.sigmoid(opening - seated), 0.0).mean().astype(float)

    return jax.lax.cond((counts > 0).all(), mass, lambda: jnp.zeros(()))
