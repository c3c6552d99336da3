"""Split a group of units in two, or merge two, if the joint density is a product over groups with additive statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

__all__ = ["Division", "divide"]

Score = Callable[[Any], Float[Array, " two"]]
"""Log density of groups from their statistics, with one leading dimension (nats)."""


class Division(NamedTuple):
    """Division of units into two sides.

    - **sides** - (u,) 0 or 1, −1 for the units that take no part.
    - **log_ratio** - log ratio of the density of the two sides to that of their union, minus the log probability of this
      division (nats).
    """

    sides: Int[Array, " u"]
    log_ratio: Float[Array, ""]


def divide(
    score: Score,
    units: Any,
    member: Bool[Array, " u"],
    anchors: Int[Array, " two"],
    present: Int[Array, " u"],
    splits: Bool[Array, ""],
    key: Array,
) -> Division:
    """Allocate units one by one, in random order, to the side of one of two anchors by their conditional (Dahl 2005).

    Parameters
    ----------
    score
        Log density of a group.
    units
        Statistics of every unit, leading dimension u; those of a group are their sum.
    member
        The units to divide, the anchors among them.
    anchors
        The first units of side 0 and of side 1.
    present
        (u,) present sides of the members, 0 or 1, if they are to be merged.
    splits
        Whether to divide; otherwise the present division is replayed to obtain its probability.
    key
        Random key.
    """
    u = member.shape[0]
    moving = member.at[anchors].set(False)
    draws = jax.random.uniform(key, (2, u))
    order = jnp.argsort(draws[0] + jnp.where(moving, 0.0, 2.0))

    def of(index: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[index], units)

    def visit(t: Array, state: Any) -> Any:
        sides, totals, scores, log_probability = state
        unit = order[t]
        joined = jax.tree.map(lambda total, leaf: total + leaf[None], totals, of(unit))  # the unit on either side
        with_unit = score(joined)
        log_conditional = jax.nn.log_softmax(with_unit - scores)
        side = jnp.where(splits, (jnp.log1p(-draws[1, t]) < log_conditional[1]).astype(sides.dtype), present[unit])
        here = jnp.arange(2) == side
        totals = jax.tree.map(lambda new, old: jnp.where(here.reshape(2, *[1] * (old.ndim - 1)), new, old), joined, totals)
        return sides.at[unit].set(side), totals, jnp.where(here, with_unit, scores), log_probability + log_conditional[side]

    totals = of(anchors)
    scores = score(totals)
    sides = jnp.full(u, -1).at[anchors].set(jnp.arange(2))
    start = (sides, totals, scores, jnp.zeros((), scores.dtype))
    sides, totals, scores, log_probability = jax.lax.fori_loop(0, moving.sum(), visit, start)
    union = score(jax.tree.map(lambda leaf: leaf.sum(0, keepdims=True), totals))[0]
    return Division(sides, scores.sum() - union - log_probability)
