"""Where the chains of a partition begin."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bnp_hier.distributions import ChineseRestaurantProcess
from bnp_hier.kernels.base import check_whole_labels
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import sweep
from bnp_hier.utils.labels import first_come_labels

__all__ = ["STARTS", "check_labels", "check_singletons", "starting_labels"]

STARTS = ("overdispersed", "one", "singletons", "prior", "map_dp")
"""Names of starts; the first picks one of the others."""

GREEDY_SWEEPS = 4
"""Sweeps of the greedy start: one that seats the items, and those that correct it."""


def starting_labels(start: str, seating: Seating, key: Array, size: int, slots: int) -> Int[Array, " n"]:
    """A start of one chain, labelled in order of appearance; works under ``jit`` and ``vmap``.

    Parameters
    ----------
    start
        "one" cluster; "singletons", every item alone; "prior", a draw from the partition prior; "map_dp", each item in turn, in
        random order, in its most probable place, and a few sweeps more; "overdispersed", any of these by the key, "singletons"
        only where there are slots for all items.
    seating
        Rows, component, and prior of the partition.
    key
        The chain's own key.
    size, slots
        Number of items n, and capacity.
    """
    concentration, discount = seating.prior

    def greedy(key: Array) -> Array:
        order = jnp.argsort(jax.random.uniform(key, (size,)))
        step = lambda _, labels: sweep(seating, labels, order, None, slots)[0]  # noqa: E731
        return first_come_labels(jax.lax.fori_loop(0, GREEDY_SWEEPS, step, jnp.full(size, -1)), slots)

    draws: dict[str, Callable[[Array], Array]] = {
        "one": lambda key: jnp.zeros(size, int),
        "singletons": lambda key: jnp.arange(size),
        "prior": ChineseRestaurantProcess(concentration, size, discount, slots).sample,
        "map_dp": greedy,
    }
    if start != "overdispersed":
        return draws[start](key)
    choices = [draw for name, draw in draws.items() if name != "singletons" or size <= slots]
    key_choice, key_draw = jax.random.split(key)
    return jax.lax.switch(jax.random.randint(key_choice, (), 0, len(choices)), choices, key_draw)


def check_singletons(size: int, slots: int) -> None:
    """Refuse a start with more clusters than slots.

    Raises
    ------
    ValueError
        If there are more items than slots.
    """
    if size > slots:
        raise ValueError(
            f'init="singletons" needs a cluster for each of the {size} items, but there is room for {slots}: raise '
            f"max_clusters to {size}, or choose another start"
        )


def check_labels(labels: np.ndarray, size: int, slots: int) -> None:
    """Refuse labels that are not a partition of the items into 0, 1, ..., K − 1; leading dimensions are chains.

    Raises
    ------
    ValueError
        If the labels have a wrong length or type, are negative, leave a number out, or are more than the slots.
    """
    check_whole_labels(labels, size, size)
    for chain in labels.reshape(-1, size):
        missing = np.setdiff1d(np.arange(chain.max() + 1), chain)
        if len(missing):
            raise ValueError(
                f"initial labels must be 0, 1, ..., K - 1 without gaps, but {missing[0]} is missing below {chain.max()}"
            )
        if chain.max() >= slots:
            raise ValueError(
                f"initial labels form {chain.max() + 1} clusters, but there is room for {slots}: raise max_clusters"
            )
