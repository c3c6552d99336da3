"""New rows that join a fitted partition one at a time, using the clusters' statistics only; call in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.capacities import in_steps, more_slots, with_enough_slots
from bnp_hier.partitions.clusters import joint_and_statistics, packed, unpacked
from bnp_hier.partitions.engine import has_kernels, kernel, kernel_arguments, settings
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import check_seated, sweep
from bnp_hier.utils.arrays import take

__all__ = ["seat_in_turn", "seat_rows"]

LARGEST = 4096
"""Maximum number of rows seated in one compiled call; chunk sizes are powers of two, so that few programs are compiled."""


def seat_in_turn(
    component: Component,
    X: Float[np.ndarray, "m d"],
    clusters: tuple[Statistics, Float[np.ndarray, " k"]],
    prior: Prior,
    limit: int,
    refinements: int = 0,
) -> tuple[Int[np.ndarray, " m"], Statistics, Float[np.ndarray, " k1"]]:
    """Seat any number of new rows, at least one, chunk by chunk, with additional sweeps over each chunk.

    Parameters and errors are those of `seat_rows`.

    Returns
    -------
    labels, stats, counts
        Clusters of the new rows, and the statistics and sizes of all clusters. Existing clusters keep their numbers; new ones
        are numbered in order of appearance, and none of them is empty.
    """
    found: list[np.ndarray] = []
    at = 0
    while at < len(X):
        size = min(LARGEST, 1 << (len(X) - at).bit_length() - 1)
        labels, *seated = seat_rows(component, X[at : at + size], clusters, prior, limit, refinements + 1, at)
        clusters = (seated[0], seated[1])
        found.append(labels)
        at += size
    # a cluster that was opened and then abandoned leaves its number unused; existing clusters never become empty
    used = np.flatnonzero(clusters[1] > 0)
    number = np.full(len(clusters[1]), -1)
    number[used] = np.arange(len(used))
    return number[np.concatenate(found)], take(clusters[0], used), clusters[1][used]


def seat_rows(
    component: Component,
    X: Float[np.ndarray, "c d"],
    clusters: tuple[Statistics, Float[np.ndarray, " k"]],
    prior: Prior,
    limit: int,
    sweeps: int,
    first: int = 0,
) -> tuple[Int[np.ndarray, " c"], Statistics, Float[np.ndarray, " s"]]:
    """Seat new rows one at a time, each in its most probable cluster, then sweep over them again.

    Parameters
    ----------
    component, X, prior
        Component, new rows (c, d), and partition prior.
    clusters
        Statistics and sizes of the existing clusters, as NumPy arrays.
    limit
        Maximum number of clusters.
    sweeps
        Number of sweeps over the new rows, of which the first one seats them.
    first
        Number of the first row in error messages.

    Returns
    -------
    labels, stats, counts
        Clusters of the new rows, and the statistics and sizes of all clusters, some of which may be empty.

    Raises
    ------
    ValueError
        If a density is not finite; the message names the row.
    """
    if has_kernels(component):
        return _seat_natively(component, X, clusters, prior, limit, sweeps, first)
    stats, counts = clusters

    def program(slots: int) -> tuple[Any, ...]:
        given = more_slots(stats, slots - len(counts)), jnp.asarray(np.pad(counts, (0, slots - len(counts))))
        return _seated(component, jnp.asarray(X), given, prior, slots, sweeps)

    _, (labels, added, seated) = with_enough_slots(program, min(in_steps(len(counts) + 1), limit), limit)
    check_seated(component, np.asarray(labels), first=first)
    size = max(len(counts), int(labels.max()) + 1)
    return np.asarray(labels), jax.tree.map(lambda leaf: np.asarray(leaf)[:size], added), np.asarray(seated)[:size]


def _seat_natively(
    component: Component,
    X: Float[np.ndarray, "c d"],
    clusters: tuple[Statistics, Float[np.ndarray, " k"]],
    prior: Prior,
    limit: int,
    sweeps: int,
    first: int,
) -> tuple[Int[np.ndarray, " c"], Statistics, Float[np.ndarray, " s"]]:
    stats, counts = packed(clusters[0]), np.asarray(clusters[1], dtype=np.float64)
    given, order, none = kernel_arguments(component, X), np.arange(len(X)), np.empty(0)
    slots, opened = np.array(limit), min(limit, len(counts) + len(X))
    weights = settings(prior, len(X), opened, 1.0)
    labels, refused = np.full(len(X), -1), np.empty((), np.int64)
    for _ in range(sweeps):
        moved = np.empty(len(X), np.int64)
        kernel("sweeps.SWEEP")(*given, labels, order, none, weights, slots, stats, counts, moved, refused)
        check_seated(component, moved, first=first)
        labels = moved
    _, more = joint_and_statistics(component, X, labels, prior)
    extra = packed(more)
    size = max(len(counts), len(extra))
    stats = np.pad(stats, ((0, size - len(stats)), (0, 0))) + np.pad(extra, ((0, size - len(extra)), (0, 0)))
    return labels, unpacked(component, stats), np.pad(counts, (0, size - len(counts))) + np.bincount(labels, minlength=size)


@partial(jax.jit, static_argnames=("slots", "sweeps"))
def _seated(
    component: Component,
    X: Float[Array, "c d"],
    clusters: tuple[Statistics, Float[Array, " k"]],
    prior: Prior,
    slots: int,
    sweeps: int,
) -> tuple[Int[Array, " c"], Statistics, Float[Array, " s"], Int[Array, ""]]:
    """Also returns how often a row needed a new cluster but no slot was free."""
    seating, order = Seating(component, X, prior), jnp.arange(X.shape[0])

    def once(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return sweep(seating, state[0], order, None, slots, others=clusters)

    labels, refused = jax.lax.fori_loop(0, sweeps, once, (jnp.full(X.shape[0], -1), jnp.int32(0)))
    stats = jax.tree.map(jnp.add, clusters[0], cluster_statistics(seating.rows, labels, slots))
    return labels, stats, clusters[1] + jax.ops.segment_sum(jnp.ones(labels.shape), labels, slots), refused
