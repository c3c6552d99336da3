"""Moves of single items between clusters in sweeps; shared by samplers and optimisers.

All functions are pure and have fixed shapes: a partition of n items lives in K slots, some of them empty.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.seating import Prior, draw_index
from bnp_hier.utils.arrays import pack, take

__all__ = ["check_seated", "sweep"]


def sweep(
    component: Component,
    rows: Statistics,
    labels: Int[Array, " n"],
    prior: Prior,
    order: Int[Array, " m"],
    uniforms: Float[Array, " n"] | None,
    slots: int,
    temperature: ArrayLike = 1.0,
    others: tuple[Statistics, Float[Array, " k"]] | None = None,
) -> tuple[Int[Array, " n"], Int[Array, ""]]:
    """Visit the items in the given order; take each out of its cluster and put it into one by its conditional.

    Parameters
    ----------
    component
        Conjugate component.
    rows
        Sufficient statistics of each row, leading dimension n.
    labels
        (n,) slots, −1 for an item that has no cluster yet.
    prior
        Partition prior.
    order
        The items to visit, each once: all of them, or some.
    uniforms
        (n,) uniform draws: each item's slot is drawn from its conditional (Neal 2000, Algorithm 3). None takes the most
        probable slot instead (MAP-DP).
    slots
        Capacity K. When no slot is free an item cannot open a cluster.
    temperature
        Conditionals are raised to 1/temperature.
    others
        Statistics and numbers of items that are in the slots besides these, and stay there.

    Returns
    -------
    labels, refused
        New labels, −1 for an item whose conditional is no distribution (a density is NaN or infinite, or all are zero); and
        the number of items that met a full capacity.
    """
    # every cluster's cache is one row of a table: one small read and one small write per change
    empty, unpack = ravel_pytree(component.cache(component.empty()))
    stats = cluster_statistics(rows, labels, slots)
    counts = jax.ops.segment_sum(jnp.ones(labels.shape), labels, slots)
    if others is not None:
        stats, counts = jax.tree.map(jnp.add, (stats, counts), others)
    table = pack(component.cache(stats), 1)
    concentration, discount = prior
    visits = take((rows, labels), order)
    noise = jnp.zeros(labels.shape) if uniforms is None else uniforms

    def log_seat(count: Array) -> Array:
        return jnp.where(count > 0, jnp.log(jnp.where(count > 0, count - discount, 1.0)), -jnp.inf)

    def visit(carry: Any, item: Any) -> Any:
        counts, seats, table, refused = carry
        (row, old), uniform = item
        seated = (old >= 0).astype(counts.dtype)
        slot = jnp.maximum(old, 0)
        left = counts[slot] - seated
        remaining = pack(component.update_cache(unpack(table[slot]), row, -seated), 0)
        table = table.at[slot].set(jnp.where(left > 0, remaining, empty))
        counts, seats = counts.at[slot].set(left), seats.at[slot].set(log_seat(left))

        occupied = counts > 0
        full = occupied.all()
        opens = jnp.arange(slots) == jnp.argmin(occupied)
        clusters = occupied.sum(dtype=counts.dtype)
        # with nothing seated yet the only choice is a new cluster, whatever the concentration
        opening = jnp.log(jnp.where(clusters > 0, concentration + clusters * discount, 1.0))
        weight = jnp.where(opens & ~occupied, opening, seats) + component.cached_log_predictive(jax.vmap(unpack)(table), row)
        if uniforms is None:
            new = jnp.argmax(weight)
        else:
            new = draw_index(jnp.exp((weight - weight.max()) / temperature), uniform)
        new = new.astype(old.dtype)
        # said in so many words: the maximum of NaN and a number may be either
        defined = (weight < jnp.inf).all() & (weight > -jnp.inf).any()
        table = table.at[new].set(pack(component.update_cache(unpack(table[new]), row, 1.0), 0))
        size = counts[new] + 1.0
        state = counts.at[new].set(size), seats.at[new].set(log_seat(size)), table, refused + full.astype(refused.dtype)
        return state, jnp.where(defined, new, -1)

    start = (counts, log_seat(counts), table, jnp.int32(0))
    (*_, refused), moved = jax.lax.scan(visit, start, (visits, noise[order]))
    return labels.at[order].set(moved), refused


def check_seated(component: Component, labels: Int[np.ndarray, "... n"], first: int = 0) -> None:
    """Check what `sweep` and `merge_best_pair` made of some items, the rows from `first` on.

    Raises
    ------
    ValueError
        If an item has label −1; its row is named.
    """
    left = np.argwhere(labels < 0)
    if len(left):
        raise ValueError(
            f"row {first + left[0, -1]} fits no cluster: {type(component).__name__} gives it, or clusters that it is in, no "
            "finite log density"
        )
