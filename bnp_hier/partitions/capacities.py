"""Numbers of cluster slots in fixed-shape routines, and the probability truncated by a full capacity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.seating import GibbsTypePrior
from bnp_hier.utils.arrays import take

__all__ = ["default_capacity", "in_steps", "more_slots", "spread_rows", "truncated_probability", "with_enough_slots"]


def in_steps(clusters: int) -> int:
    """Round a number of clusters up to a multiple of 16 slots, so that similar fits share a compiled program."""
    return -(-clusters // 16) * 16


def more_slots(stats: Statistics, extra: int) -> Statistics:
    """Append empty slots to the clusters' statistics."""
    # in NumPy: JAX would compile a padding program for every new length
    return jax.tree.map(lambda leaf: np.pad(leaf, [(0, extra)] + [(0, 0)] * (np.ndim(leaf) - 1)), stats)


def with_enough_slots(program: Callable[[int], tuple[Any, ...]], slots: int, limit: int) -> tuple[int, list[Any]]:
    """Run a program with twice as many slots until there is one for every row that opens a cluster, or the limit is reached.

    The program returns, last, how often no slot was free. The result is the number of slots, and all that it returns before.
    """
    while True:
        *results, refused = program(slots)
        if slots >= limit or not int(refused):
            return slots, results
        slots = min(2 * slots, limit)


def default_capacity(n: int) -> int:
    """Initial number of slots in fixed-shape routines: n, but at most 64."""
    return min(n, 64)


def spread_rows(n: int) -> Int[np.ndarray, " m"]:
    """Indices of at most 1,024 evenly spaced rows, over which `truncated_probability` is averaged."""
    return np.linspace(0, n - 1, min(n, 1024)).astype(int)


def truncated_probability(
    component: Component,
    stats: Statistics,
    counts: Float[Array, " k"],
    rows: Statistics,
    labels: Int[Array, " m"],
    prior: GibbsTypePrior,
) -> Float[Array, ""]:
    """Mean conditional probability, over some items, of a new cluster that a full capacity rules out.

    Parameters
    ----------
    component, prior
        Component and partition prior.
    stats, counts
        Statistics and item counts of the slots, leading dimension k.
    rows, labels
        Statistics and slots of the items to average over, leading dimension m; those with slot −1 do not count.
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
        opening = prior.log_open(jnp.asarray(counts.shape[0], float)) + component.log_marginal(rows)
        # an item alone in its cluster can stay there: nothing is truncated
        truncated = jnp.where((labels >= 0) & (counts[labels] > 1), jax.nn.sigmoid(opening - seated), 0.0)
        return (truncated.sum() / jnp.maximum((labels >= 0).sum(dtype=truncated.dtype), 1.0)).astype(float)

    return jax.lax.cond((counts > 0).all(), mass, lambda: jnp.zeros(()))
