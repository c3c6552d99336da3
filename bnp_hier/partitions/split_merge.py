"""Moves that split one cluster in two or merge two clusters, Metropolis-Hastings corrected.

Pure and of fixed shapes, as the sweeps of `allocation`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.seating import Prior
from bnp_hier.utils.arrays import pack

__all__ = ["split_or_merge"]


def split_or_merge(
    component: Component,
    rows: Statistics,
    labels: Int[Array, " n"],
    prior: Prior,
    key: Array,
    slots: int,
    seated: ArrayLike | None = None,
    restricted_scans: int | None = None,
) -> tuple[Int[Array, " n"], Int[Array, ""], Int[Array, ""]]:
    """One merge-split move, Metropolis-Hastings corrected.

    Two items are drawn, the anchors. Together: their cluster is split, its other items put one by one, in random order, on the
    side of one anchor or the other by their conditional. Apart: their clusters are merged, and the reverse split is replayed
    for its probability. The anchors are drawn from all items and the order from all orders of the other items of their
    clusters, which are the same before and after, so that neither depends on what the move changes.

    Parameters
    ----------
    component, rows, labels, prior
        Component, sufficient statistics of each row, (n,) clusters below `slots`, and prior of the partition.
    key
        Random key.
    slots
        Capacity.
    seated
        If given, only the first so many items (at least two) are in the partition, and the others have label −1.
    restricted_scans
        None: sequential allocation, in which the items join two sides that hold only the anchors (Dahl 2005). A number: each
        item is first thrown on a side, then so many restricted Gibbs scans find a likely split, and one more scan from there
        is the proposal (Jain & Neal 2004).

    Returns
    -------
    labels, accepted, refused
        New labels; whether the move was accepted; whether a split found no free slot.
    """
    n = labels.shape[0]
    concentration, discount = prior
    thrown = restricted_scans is not None
    scans = 1 + (restricted_scans or 0)
    # one call for all draws: every call of a random function is compiled on its own, and slowly
    draws = jax.random.uniform(key, ((1 + thrown + scans) * n + 3,))
    items = n if seated is None else jnp.asarray(seated)
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
        return _scan(component, rows, sides, prior, order, moving.sum(), uniforms, replayed, replay, leave=thrown)

    # of a merge, the last scan replays the split that it undoes
    replays = (jnp.arange(scans) == scans - 1) & ~splits
    sides, log_proposals = jax.lax.scan(scan, sides, (per_item[1 + thrown :], replays))

    halves, counts = cluster_statistics(rows, sides, 2), cluster_counts(sides, 2).astype(float)
    whole = jax.tree.map(lambda leaf: leaf.sum(0), halves)
    marginals, whole_marginal = component.log_marginal(halves), component.log_marginal(whole)
    occupied = cluster_counts(labels, slots) > 0
    merged_clusters = (occupied.sum() - (~splits).astype(int)).astype(float)  # clusters in the state in which the two are one
    log_ratio = (
        jnp.log(concentration + merged_clusters * discount)
        + gammaln(counts - discount).sum()
        - gammaln(counts.sum() - discount)
        - gammaln(1.0 - jnp.asarray(discount, counts.dtype))
        + marginals.sum()
        - whole_marginal
        - log_proposals[-1]
    )
    refused = splits & occupied.all()
    log_accept = jnp.where(splits, log_ratio, -log_ratio)
    # a uniform draw may be 0, whose logarithm would accept anything; it is never 1
    accepted = (jnp.log1p(-draws[2]) <= log_accept) & ~refused
    free = jnp.argmin(occupied).astype(labels.dtype)
    proposal = jnp.where(splits, jnp.where(sides == 1, free, labels), jnp.where(member, slot[0], labels))
    # a NaN would be a refusal like any other
    undefined = ~((marginals < jnp.inf).all() & (whole_marginal < jnp.inf))
    labels = jnp.where(accepted, proposal, labels)
    return jnp.where(undefined, labels.at[anchors].set(-1), labels), accepted.astype(int), refused.astype(int)


def _scan(
    component: Component,
    rows: Statistics,
    sides: Int[Array, " n"],
    prior: Prior,
    order: Int[Array, " n"],
    size: Int[Array, ""],
    uniforms: Float[Array, " n"],
    replayed: Int[Array, " n"],
    replay: Bool[Array, ""],
    *,
    leave: bool,
) -> tuple[Int[Array, " n"], Float[Array, ""]]:
    """Put the first `size` items of the order, one after the other, on side 0 or 1, and the log probability of all choices.

    Each side is drawn from its conditional given those of the other items, or taken from `replayed` if `replay`. Items without
    a side have −1; with `leave`, every item visited has one and leaves it first.
    """
    _, unpack = ravel_pytree(component.cache(component.empty()))
    # from the statistics in every scan: rounding errors of updates do not add up
    table = pack(component.cache(cluster_statistics(rows, sides, 2)), 1)
    counts = cluster_counts(sides, 2).astype(float)

    def update(counts: Array, table: Array, side: Array, row: Statistics, sign: float) -> tuple[Array, Array]:
        changed = pack(component.update_cache(unpack(table[side]), row, sign), 0)
        return counts.at[side].add(sign), table.at[side].set(changed)

    def visit(t: Array, carry: Any) -> Any:
        sides, counts, table, log_probability = carry
        item = order[t]
        row = jax.tree.map(lambda leaf: leaf[item], rows)
        if leave:
            counts, table = update(counts, table, sides[item], row, -1.0)
        predictive = component.cached_log_predictive(jax.vmap(unpack)(table), row)
        log_conditional = jax.nn.log_softmax(jnp.log(counts - prior.discount) + predictive)
        drawn = (jnp.log1p(-uniforms[t]) <= log_conditional[1]).astype(int)
        side = jnp.where(replay, replayed[item], drawn)
        counts, table = update(counts, table, side, row, 1.0)
        return sides.at[item].set(side), counts, table, log_probability + log_conditional[side]

    start = (sides, counts, table, jnp.zeros((), table.dtype))
    sides, _, _, log_probability = jax.lax.fori_loop(0, size, visit, start)
    return sides, log_probability
