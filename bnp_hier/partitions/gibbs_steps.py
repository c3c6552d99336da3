"""One step of collapsed Gibbs sampling of a partition: a sweep over all items, followed by split-merge moves."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.capacities import spread_rows, truncated_probability
from bnp_hier.partitions.engine import call_kernel, kernel_arguments, settings
from bnp_hier.partitions.joint_density import log_joint
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sizes import size_summaries
from bnp_hier.partitions.split_merge import draws_per_move, split_or_merge
from bnp_hier.partitions.sweeps import sweep
from bnp_hier.utils.arrays import take
from bnp_hier.utils.labels import first_come_labels

__all__ = ["GibbsStep", "draws_per_step", "gibbs_step", "partition_diagnostics"]


class GibbsStep(NamedTuple):
    """Result of a step.

    - **labels** - (n,) clusters, numbered in order of appearance; −1 for an item whose conditional is not a distribution.
    - **log_joint** - log p(X, partition) (nats).
    - **n_clusters**, **largest_cluster** - number of clusters, and size of the largest.
    - **entropy** - entropy of the cluster shares (nats).
    - **accepted** - number of accepted split-merge moves.
    - **refused** - number of times that an item or a split found no free slot.
    - **truncated** - mean conditional probability of a new cluster that the capacity rules out, over at most 1,024 items.
    """

    labels: Int[Array, " n"]
    log_joint: Float[Array, ""]
    n_clusters: Int[Array, ""]
    largest_cluster: Int[Array, ""]
    entropy: Float[Array, ""]
    accepted: Int[Array, ""]
    refused: Int[Array, ""]
    truncated: Float[Array, ""]


def draws_per_step(n: int, moves: int, restricted_scans: int | None = None) -> int:
    """Number of uniform draws for one step with n items and a number of split-merge moves."""
    return 2 * n + moves * draws_per_move(n, restricted_scans)


def partition_diagnostics(
    seating: Seating, labels: Int[Array, " n"], slots: int
) -> tuple[Float[Array, ""], Int[Array, ""], Int[Array, ""], Float[Array, ""]]:
    """Log joint (nats), number of clusters, size of the largest, and entropy of the cluster shares (nats)."""
    if seating.native:
        arguments = *kernel_arguments(seating.component, seating.X), labels, settings(seating.prior, len(labels), slots)
        results = [((2,), float), ((2,), int)]
        (joint, entropy), (clusters, largest) = call_kernel("gibbs_step.SUMMARIES_OF", results, *arguments)
        return joint, clusters, largest, entropy
    joint = log_joint(seating.component, seating.rows, labels, seating.prior, slots)
    return joint, *size_summaries(cluster_counts(labels, slots))


def gibbs_step(
    seating: Seating,
    labels: Int[Array, " n"],
    draws: Float[Array, " r"],
    slots: int,
    moves: int,
    restricted_scans: int | None = None,
) -> GibbsStep:
    """Visit all items once in random order, and then attempt split-merge moves; works under ``jit`` and ``vmap``.

    Parameters
    ----------
    seating
        Rows, component, and prior of the partition.
    labels
        (n,) clusters below `slots`.
    draws
        Uniform draws, as many as `draws_per_step` tells: for the order of the items, for the items, and for every move.
    slots
        Capacity.
    moves, restricted_scans
        Number of split-merge moves, and their proposal; see `split_or_merge`.
    """
    if seating.native:
        return _native_step(seating, labels, draws, slots, moves, restricted_scans)
    n = labels.shape[0]
    # a new random order of the items and a fixed number of moves: neither depends on the partition that they change
    labels, refused = sweep(seating, labels, jnp.argsort(draws[:n]), draws[n : 2 * n], slots)

    def move(carry: tuple[Array, Array], draws: Array) -> tuple[tuple[Array, Array], Array]:
        labels, refused = carry
        labels, accepted, hit = split_or_merge(seating, labels, draws, slots, restricted_scans=restricted_scans)
        return (labels, refused + hit), accepted

    accepted = jnp.zeros((), int)
    if moves:
        (labels, refused), every = jax.lax.scan(move, (labels, refused.astype(int)), draws[2 * n :].reshape(moves, -1))
        accepted = every.sum()
    labels = first_come_labels(labels, slots)
    joint, n_clusters, largest, entropy = partition_diagnostics(seating, labels, slots)
    asked = jnp.asarray(spread_rows(n))
    stats, counts = cluster_statistics(seating.rows, labels, slots), cluster_counts(labels, slots).astype(float)
    some = take(seating.rows, asked)
    truncated = truncated_probability(seating.component, stats, counts, some, labels[asked], seating.prior)
    return GibbsStep(labels, joint, n_clusters, largest, entropy, accepted, refused, truncated)


def _native_step(
    seating: Seating, labels: Int[Array, " n"], draws: Float[Array, " r"], slots: int, moves: int, restricted_scans: int | None
) -> GibbsStep:
    scans = -1 if restricted_scans is None else restricted_scans
    given, numbers = kernel_arguments(seating.component, seating.X), np.array([slots, moves, scans])
    results = [(labels.shape, labels.dtype), ((3,), float), ((4,), int)]
    labels, (joint, entropy, truncated), (n_clusters, largest, accepted, refused) = call_kernel(
        "gibbs_step.GIBBS_STEP", results, *given, labels, draws, settings(seating.prior, len(labels), slots), numbers
    )
    return GibbsStep(labels, joint, n_clusters, largest, entropy, accepted, refused, truncated)
