"""Initial partitions of Markov chains."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.distributions.chinese_restaurant import seat_by_weights, seat_customers
from bnp_hier.distributions.seating import GibbsTypePrior, Prior
from bnp_hier.kernels.base import check_whole_labels
from bnp_hier.partitions.engine import call_kernel, kernel_arguments, settings
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import sweep
from bnp_hier.utils.labels import first_come_labels

__all__ = ["STARTS", "check_labels", "check_singletons", "starting_labels"]

STARTS = ("overdispersed", "one", "singletons", "prior", "map_dp")
"""Names of initialisations; the first one chooses among the others."""

MOST_SEATED = 256
"""Number of clusters up to which a start is drawn from priors without a kernel."""

GREEDY_SWEEPS = 4
"""Sweeps of the greedy initialisation: the first one seats the items, and the others refine the result."""


def starting_labels(start: str, seating: Seating, draws: Float[Array, " n1"], slots: int) -> Int[Array, " n"]:
    """Return the initial labels of one chain, in order of appearance; works under ``jit`` and ``vmap``.

    Parameters
    ----------
    start
        "one": a single cluster. "singletons": every item alone. "prior": a draw from the partition prior, one item after the
        other; the weight of a new cluster is that for the last item, which matters only if it depends on the number of items.
        "map_dp": each item in random order joins its most probable cluster, followed by a few more sweeps. "overdispersed": one
        of these, chosen by the last draw; "singletons" only if there are slots for all items.
    seating
        Rows, component, and prior of the partition.
    draws
        (n + 1,) uniform draws.
    slots
        Capacity.
    """
    size = len(draws) - 1
    found: dict[str, Callable[[], Array]] = {
        "one": lambda: jnp.zeros(size, int),
        "singletons": lambda: jnp.arange(size),
        "prior": lambda: _seated(seating.prior, draws[:size], slots),
        "map_dp": lambda: _greedy_labels(seating, draws[:size], slots),
    }
    if start != "overdispersed":
        return found[start]()
    choices = [draw for name, draw in found.items() if name != "singletons" or size <= slots]
    return jax.lax.switch((draws[size] * len(choices)).astype(int), choices)


def _seated(prior: GibbsTypePrior, draws: Float[Array, " n"], slots: int) -> Int[Array, " n"]:
    if isinstance(prior, Prior):
        return seat_customers(draws, *prior, slots, slots)
    opening = lambda tables: jnp.exp(prior.log_open(tables)).astype(draws.dtype)  # noqa: E731
    room = min(slots, MOST_SEATED)
    return seat_by_weights(draws, prior.discount, opening, room, room)


def _greedy_labels(seating: Seating, draws: Float[Array, " n"], slots: int) -> Int[Array, " n"]:
    if seating.native:
        size = len(draws)
        arguments = *kernel_arguments(seating.component, seating.X), draws, settings(seating.prior, size, slots)
        numbers = np.array([slots, GREEDY_SWEEPS])
        return call_kernel("starts.SEAT_GREEDILY", [(draws.shape, int)], *arguments, numbers)[0]
    order = jnp.argsort(draws)
    step = lambda _, labels: sweep(seating, labels, order, None, slots)[0]  # noqa: E731
    return first_come_labels(jax.lax.fori_loop(0, GREEDY_SWEEPS, step, jnp.full(draws.shape, -1)), slots)


def check_singletons(size: int, slots: int) -> None:
    """Check that there are enough slots for every item to be alone.

    Raises
    ------
    ValueError
        If there are more items than slots.
    """
    if size > slots:
        raise ValueError(
            f'init="singletons" needs a cluster for each of the {size} items, but there are only {slots} slots: raise '
            f"max_clusters to {size}, or choose another init"
        )


def check_labels(labels: np.ndarray, size: int, slots: int) -> None:
    """Check that labels are a partition of the items into clusters 0, 1, ..., K − 1; leading dimensions are chains.

    Raises
    ------
    ValueError
        If the labels have the wrong length or type, are negative, skip a number, or form more clusters than there are slots.
    """
    check_whole_labels(labels, size, size)
    for chain in labels.reshape(-1, size):
        missing = np.setdiff1d(np.arange(chain.max() + 1), chain)
        if len(missing):
            raise ValueError(
                f"initial labels must use all of 0, 1, ..., K - 1, but the largest is {chain.max()} and no item has label "
                f"{missing[0]}"
            )
        if chain.max() >= slots:
            raise ValueError(
                f"initial labels form {chain.max() + 1} clusters, but there are only {slots} slots: raise max_clusters"
            )
