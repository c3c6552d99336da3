"""Moves that split one cluster in two or merge two clusters, with Metropolis-Hastings correction.

All functions are pure and have fixed shapes, like those in `sweeps`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.engine import call_kernel, kernel_arguments, settings
from bnp_hier.partitions.seats import Seating, Seats

__all__ = ["draws_per_move", "split_or_merge"]


def split_or_merge(
    seating: Seating,
    labels: Int[Array, " n"],
    draws: Float[Array, " r"],
    slots: int,
    seated: ArrayLike | None = None,
    restricted_scans: int | None = None,
) -> tuple[Int[Array, " n"], Int[Array, ""], Int[Array, ""]]:
    """Make one split-merge move with Metropolis-Hastings correction.

    Two items, the anchors, are drawn. If they share a cluster, it is split: its other items, one by one and in random order,
    join the side of one anchor or the other by their conditionals. Otherwise the two clusters are merged, and the reverse split
    is replayed to obtain its probability. The anchors are drawn from all items, and the order from all orders of the other
    items in their clusters; these items are the same before and after, so neither choice depends on what the move changes.

    Parameters
    ----------
    seating
        Rows, component, and prior of the partition.
    labels
        (n,) clusters below `slots`.
    draws
        Uniform draws, as many as `draws_per_move` tells.
    slots
        Capacity.
    seated
        If given, the number of items (at least two) in the partition: the first ones; all others have label −1.
    restricted_scans
        None for sequential allocation, in which the items join two sides that initially contain only the anchors (Dahl 2005).
        Otherwise each item starts on a random side, this number of restricted Gibbs scans leads to a likely split, and one
        further scan is the proposal (Jain & Neal 2004).

    Returns
    -------
    labels, accepted, refused
        New labels; whether the move was accepted; whether a split found no free slot.
    """
    n, component = labels.shape[0], seating.component
    items = n if seated is None else jnp.asarray(seated)
    if seating.native:
        given, scans = kernel_arguments(component, seating.X), -1 if restricted_scans is None else restricted_scans
        numbers = jnp.stack([jnp.asarray(number, int) for number in (slots, items, scans)])
        results = [(labels.shape, labels.dtype), ((), int), ((), int)]
        moved, *done = call_kernel(
            "split_merge.SPLIT_MERGE", results, *given, labels, draws, settings(seating.prior, n, slots), numbers
        )
        return moved, done[0], done[1]
    thrown = restricted_scans is not None
    scans = 1 + (restricted_scans or 0)
    first = jnp.minimum((draws[0] * items).astype(int), items - 1)
    shift = 1 + jnp.minimum((draws[1] * (items - 1)).astype(int), items - 2)
    anchors = jnp.stack([first, (first + shift) % items])
    slot = labels[anchors]
    splits = slot[0] == slot[1]
    member = (labels == slot[0]) | (labels == slot[1])
    moving = member.at[anchors].set(False)
    per_item = draws[3:].reshape(-1, n)
    order = jnp.argsort(per_item[0] + jnp.where(moving, 0.0, 2.0))

    launch = (per_item[1] < 0.5).astype(int) if thrown else -1
    sides = jnp.where(moving, launch, -1).at[anchors].set(jnp.arange(2))
    replayed = (labels == slot[1]).astype(int)

    def scan(sides: Array, turn: tuple[Array, Array]) -> tuple[Array, Array]:
        uniforms, replay = turn
        given = jnp.where(replay, replayed, -1)
        return _scan(seating, sides, order, moving.sum(), uniforms, given, leave=thrown)

    # for a merge, the last scan replays the split that it would undo
    replays = (jnp.arange(scans) == scans - 1) & ~splits
    sides, log_proposals = jax.lax.scan(scan, sides, (per_item[1 + thrown :], replays))

    halves, counts = cluster_statistics(seating.rows, sides, 2), cluster_counts(sides, 2).astype(float)
    whole = jax.tree.map(lambda leaf: leaf.sum(0), halves)
    marginals, whole_marginal = component.log_marginal(halves), component.log_marginal(whole)
    occupied = cluster_counts(labels, slots) > 0
    merged_clusters = (occupied.sum() - (~splits).astype(int)).astype(float)  # clusters in the merged state
    discount = jnp.asarray(seating.prior.discount, counts.dtype)
    # p(split)/p(merged)/q(split):
    # V(n, K + 1)/V(n, K) Γ(n_1 − δ) Γ(n_2 − δ) / (Γ(n − δ) Γ(1 − δ)) × m(X_1) m(X_2) / m(X) / Π conditionals
    log_ratio = (
        seating.prior.log_open(merged_clusters)
        + gammaln(counts - discount).sum()
        - gammaln(counts.sum() - discount)
        - gammaln(1.0 - discount)
        + marginals.sum()
        - whole_marginal
        - log_proposals[-1]
    )
    refused = splits & occupied.all()
    log_accept = jnp.where(splits, log_ratio, -log_ratio)
    # log1p(−u), because a uniform draw can be 0, whose logarithm would accept anything, but never 1
    accepted = (jnp.log1p(-draws[2]) <= log_accept) & ~refused
    free = jnp.argmin(occupied).astype(labels.dtype)
    proposal = jnp.where(splits, jnp.where(sides == 1, free, labels), jnp.where(member, slot[0], labels))
    # a NaN would otherwise look like an ordinary rejection
    undefined = ~((marginals < jnp.inf).all() & (whole_marginal < jnp.inf))
    labels = jnp.where(accepted, proposal, labels)
    return jnp.where(undefined, labels.at[anchors].set(-1), labels), accepted.astype(int), refused.astype(int)


def draws_per_move(n: int, restricted_scans: int | None = None) -> int:
    """Number of uniform draws for one move of a partition of n items."""
    thrown = restricted_scans is not None
    return 3 + (2 + thrown + (restricted_scans or 0)) * n


def _scan(
    seating: Seating,
    sides: Int[Array, " n"],
    order: Int[Array, " n"],
    size: Int[Array, ""],
    uniforms: Float[Array, " n"],
    given: Int[Array, " n"],
    *,
    leave: bool,
) -> tuple[Int[Array, " n"], Float[Array, ""]]:
    """Put the first `size` items of the order on side 0 or 1, one by one; also return the log probability of all choices.

    Where `given` is −1, the side is drawn from its conditional given the sides of the other items. Items without a side have
    −1; with `leave`, every visited item has a side and first leaves it.
    """

    def visit(t: Array, carry: tuple[Array, Seats, Array]) -> tuple[Array, Seats, Array]:
        sides, seats, log_probability = carry
        item = order[t]
        row = seating.row(item)
        if leave:
            seats = seating.leave(seats, row, sides[item])
        log_conditional = jax.nn.log_softmax(seating.log_weights(seats, row)[0])
        drawn = (jnp.log1p(-uniforms[t]) <= log_conditional[1]).astype(int)
        side = jnp.where(given[item] < 0, drawn, given[item])
        return sides.at[item].set(side), seating.join(seats, row, side), log_probability + log_conditional[side]

    seats = seating.seats(sides, 2)
    sides, _, log_probability = jax.lax.fori_loop(0, size, visit, (sides, seats, jnp.zeros((), seats.caches.dtype)))
    return sides, log_probability
