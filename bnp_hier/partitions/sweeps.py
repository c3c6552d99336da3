"""Sweeps that move single items between clusters, shared by samplers and optimisers.

All functions are pure and have fixed shapes: a partition of n items is stored in K slots, some of which may be empty.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.seating import draw_index
from bnp_hier.partitions.engine import call_kernel, kernel_arguments, settings
from bnp_hier.partitions.seats import Seating, Seats
from bnp_hier.utils.arrays import pack, take

__all__ = ["check_seated", "sweep"]


def sweep(
    seating: Seating,
    labels: Int[Array, " n"],
    order: Int[Array, " m"],
    uniforms: Float[Array, " n"] | None,
    slots: int,
    temperature: ArrayLike = 1.0,
    others: tuple[Statistics, Float[Array, " k"]] | None = None,
) -> tuple[Int[Array, " n"], Int[Array, ""]]:
    """Visit the items in the given order, and move each one to a cluster by its conditional given all others.

    Parameters
    ----------
    seating
        Rows, component, and prior of the partition.
    labels
        (n,) slots, −1 for an item that has no cluster yet.
    order
        The items to visit, all or some of them, each once.
    uniforms
        (n,) uniform draws, with which each item's slot is drawn from its conditional (Neal 2000, Algorithm 3). None selects the
        most probable slot instead (MAP-DP).
    slots
        Capacity K. If no slot is free, an item cannot open a cluster.
    temperature
        Conditionals are raised to the power 1/temperature.
    others
        Statistics and counts, by slot, of further items that do not move.

    Returns
    -------
    labels, refused
        New labels, −1 for an item whose conditional is not a distribution (a density is NaN or infinite, or all are zero); and
        the number of items for which no slot was free.
    """
    if seating.native:
        stats, sizes = (jnp.zeros(0), jnp.zeros(0)) if others is None else (pack(others[0], 1).ravel(), others[1])
        draws, numbers = (
            jnp.zeros(0) if uniforms is None else uniforms,
            settings(seating.prior, labels.shape[0], slots, temperature),
        )
        given, results = kernel_arguments(seating.component, seating.X), [(labels.shape, labels.dtype), ((), jnp.int32)]
        moved, refused = call_kernel(
            "sweeps.SWEEP", results, *given, labels, order, draws, numbers, np.array(slots), stats, sizes
        )
        return moved, refused
    visits = take((seating.rows, labels), order)
    noise = jnp.zeros(labels.shape) if uniforms is None else uniforms

    def visit(carry: tuple[Seats, Array], item: Any) -> tuple[tuple[Seats, Array], Array]:
        seats, refused = carry
        (row, old), uniform = item
        seats = seating.leave(seats, row, jnp.maximum(old, 0), old >= 0)
        weight, full = seating.log_weights(seats, row)
        if uniforms is None:
            new = jnp.argmax(weight)
        else:
            new = draw_index(jnp.exp((weight - weight.max()) / temperature), uniform)
        new = new.astype(old.dtype)
        # tested entry by entry, because the maximum of NaN and a number may be either
        defined = (weight < jnp.inf).all() & (weight > -jnp.inf).any()
        return (seating.join(seats, row, new), refused + full.astype(refused.dtype)), jnp.where(defined, new, -1)

    start = seating.seats(labels, slots, others), jnp.int32(0)
    (_, refused), moved = jax.lax.scan(visit, start, (visits, noise[order]))
    return labels.at[order].set(moved), refused


def check_seated(component: Component, labels: Int[np.ndarray, "... n"], first: int = 0) -> None:
    """Check the labels that `sweep`, or a merge of clusters, returned for the rows from `first` on.

    Raises
    ------
    ValueError
        If an item has label −1; the message names its row.
    """
    left = np.argwhere(labels < 0)
    if len(left):
        raise ValueError(
            f"row {first + left[0, -1]} fits no cluster: under {type(component).__name__}, the log density of the row, or of a "
            "cluster that contains it, is not finite"
        )
