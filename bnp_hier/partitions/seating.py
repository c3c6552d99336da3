"""Probabilities with which an item joins the clusters of a partition."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

__all__ = ["Prior", "draw_index", "log_seating", "log_slot_seating"]


class Prior(NamedTuple):
    """Parameters of the partition prior.

    - **concentration** - α.
    - **discount** - Pitman-Yor discount, 0 for the Dirichlet process.
    """

    concentration: ArrayLike
    discount: ArrayLike = 0.0


def log_seating(
    counts: Float[Array | np.ndarray, " k"], prior: Prior, max_clusters: ArrayLike = jnp.inf
) -> Float[Array | np.ndarray, " k1"]:
    """Log probability that the next item joins each cluster (−inf where empty) and, last, opens a new one.

    If there are already `max_clusters` clusters, no new one opens, and its probability is shared among the others in proportion
    to their own.
    """
    xp = np if isinstance(counts, np.ndarray) else jnp
    concentration, discount = prior
    occupied = counts > 0
    clusters = occupied.sum(dtype=counts.dtype)
    room = clusters < max_clusters
    weights = xp.append(xp.where(occupied, counts - discount, 0.0), concentration + clusters * discount)
    possible = xp.append(occupied, room)
    logs = xp.where(possible, xp.log(xp.where(possible, weights, 1.0)), -xp.inf)
    return logs - xp.log(xp.where(room, counts.sum() + concentration, weights[:-1].sum()))


def log_slot_seating(counts: Float[Array, " k"], prior: Prior) -> Float[Array, " k"]:
    """Log probability that the next item joins each slot, where a new cluster is equally likely to take any empty slot.

    Proportional to (n_k − δ) for an occupied slot and (α + cδ)/(K − c) for an empty one, with c of K slots occupied. If no
    slot is empty, this is the partition prior restricted to the existing clusters.
    """
    concentration, discount = prior
    occupied = counts > 0
    clusters = occupied.sum(dtype=counts.dtype)
    opening = (concentration + clusters * discount) / jnp.maximum(counts.shape[0] - clusters, 1)
    weights = jnp.where(occupied, counts - discount, opening)
    return jnp.log(weights) - jnp.log(weights.sum())


def draw_index(weights: Float[Array, " k"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Draw an index with probability proportional to its weight, by inversion: first a block of indices, then one within it.

    Two short cumulative sums cost less than one long one. Trailing indices with zero weight affect only the rounding.
    """
    k = weights.shape[0]
    width = max(1, round(k**0.5))
    blocks = jnp.pad(weights, (0, -k % width)).reshape(-1, width)

    def invert(weights: Array, target: Array) -> tuple[Array, Array]:
        upto = jnp.where(jnp.tri(weights.shape[0], dtype=bool), weights, 0.0).sum(1)
        # kept within (0, total] despite rounding, so that an index with zero weight is never drawn
        target = jnp.clip(target, jnp.finfo(weights.dtype).tiny, upto[-1])
        index = (upto < target).sum()
        return index, target - upto[index] + weights[index]

    totals = blocks.sum(1)
    block, rest = invert(totals, uniform * totals.sum())
    index, _ = invert(blocks[block], rest)
    return block * width + index
