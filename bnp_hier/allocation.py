"""Moves of single items between clusters: one sweep, and a split or merge; shared by samplers and optimisers.

All functions are pure and have fixed shapes: a partition of n items lives in K slots, some of them empty.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.distributions.conjugate_mixture import cluster_statistics

__all__ = [
    "Prior",
    "default_capacity",
    "draw_index",
    "first_come_labels",
    "log_joint",
    "log_seating",
    "log_slot_seating",
    "merge_best_pair",
    "split_or_merge",
    "sweep",
]

_Tree = TypeVar("_Tree")


class Prior(NamedTuple):
    """Parameters of the partition prior.

    - **concentration** - α.
    - **discount** - Pitman-Yor discount, 0 for the Dirichlet process.
    """

    concentration: ArrayLike
    discount: ArrayLike = 0.0


def default_capacity(n: int) -> int:
    """Number of slots that fixed-shape routines start with: all n partitions' worth for small n, 64 beyond."""
    return min(n, 64)


def _take(tree: _Tree, index: Array) -> _Tree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def pack(tree: Any, batch: int) -> Float[Array, "... p"]:
    """All leaves flattened after their `batch` leading dimensions and joined, in the order of `ravel_pytree`."""
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([leaf.reshape(*leaf.shape[:batch], -1) for leaf in leaves], axis=-1)


def first_come_labels(labels: Int[Array, " n"], slots: int) -> Int[Array, " n"]:
    """Labels renamed 0, 1, ... in the order in which the items first show them; labels lie below `slots`."""
    n = labels.shape[0]
    first = jax.ops.segment_min(jnp.arange(n), labels, slots)
    rank = jnp.argsort(jnp.argsort(first))
    return rank[labels].astype(labels.dtype)


def log_joint(component: Component, rows: Statistics, labels: Int[Array, " n"], prior: Prior, slots: int) -> Float[Array, ""]:
    """Log p(X, partition): log prior of the partition plus the clusters' log marginal likelihoods (nats)."""
    stats = cluster_statistics(rows, labels, slots)
    return log_partition_prior(cluster_counts(labels, slots), *prior) + component.log_marginal(stats).sum()


def log_seating(counts: Float[Array, " k"], prior: Prior) -> Float[Array, " k1"]:
    """Log probability that the next item joins each cluster (−inf where empty) and, last, opens a new one."""
    concentration, discount = prior
    occupied = counts > 0
    weights = jnp.append(jnp.where(occupied, counts - discount, 0.0), concentration + occupied.sum() * discount)
    possible = jnp.append(occupied, True)
    logs = jnp.where(possible, jnp.log(jnp.where(possible, weights, 1.0)), -jnp.inf)
    return logs - jnp.log(counts.sum() + concentration)


def log_slot_seating(counts: Float[Array, " k"], prior: Prior) -> Float[Array, " k"]:
    """Log probability that the next item joins each slot, a new cluster taking any of the empty ones alike.

    (n_k − δ) of an occupied slot and (α + cδ)/(K − c) of an empty one, with c of K slots occupied, normalised: what is left of
    the partition prior if no slot is empty.
    """
    concentration, discount = prior
    occupied = counts > 0
    clusters = occupied.sum()
    opening = (concentration + clusters * discount) / jnp.maximum(counts.shape[0] - clusters, 1)
    weights = jnp.where(occupied, counts - discount, opening)
    return jnp.log(weights) - jnp.log(weights.sum())


def draw_index(weights: Float[Array, " k"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Index drawn in proportion to the weights, by inversion: first a block of them, then one within it.

    Two short running sums cost less than one long one. Trailing indices without weight change nothing but rounding.
    """
    k = weights.shape[0]
    width = max(1, round(k**0.5))
    blocks = jnp.pad(weights, (0, -k % width)).reshape(-1, width)

    def invert(weights: Array, target: Array) -> tuple[Array, Array]:
        upto = jnp.where(jnp.tri(weights.shape[0], dtype=bool), weights, 0.0).sum(1)
        # inside (0, total], whatever the rounding: an index without weight is never drawn
        target = jnp.clip(target, jnp.finfo(weights.dtype).tiny, upto[-1])
        index = (upto < target).sum()
        return index, target - upto[index] + weights[index]

    totals = blocks.sum(1)
    block, rest = invert(totals, uniform * totals.sum())
    index, _ = invert(blocks[block], rest)
    return block * width + index


def sweep(
    component: Component,
    rows: Statistics,
    labels: Int[Array, " n"],
    prior: Prior,
    order: Int[Array, " n"],
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
        Permutation of the items.
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
        New labels, and the number of items that met a full capacity.
    """
    # every cluster's cache is one row of a table: one small read and one small write per change
    empty, unpack = ravel_pytree(component.cache(component.empty()))
    stats = cluster_statistics(rows, labels, slots)
    counts = jax.ops.segment_sum(jnp.ones(labels.shape), labels, slots)
    if others is not None:
        stats, counts = jax.tree.map(jnp.add, (stats, counts), others)
    table = pack(component.cache(stats), 1)
    concentration, discount = prior
    visits = _take((rows, labels), order)
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
        clusters = occupied.sum()
        # with nothing seated yet the only choice is a new cluster, whatever the concentration
        opening = jnp.log(jnp.where(clusters > 0, concentration + clusters * discount, 1.0))
        weight = jnp.where(opens & ~occupied, opening, seats) + component.cached_log_predictive(jax.vmap(unpack)(table), row)
        if uniforms is None:
            new = jnp.argmax(weight)
        else:
            new = draw_index(jnp.exp((weight - weight.max()) / temperature), uniform)
        new = new.astype(old.dtype)
        table = table.at[new].set(pack(component.update_cache(unpack(table[new]), row, 1.0), 0))
        size = counts[new] + 1.0
        return (counts.at[new].set(size), seats.at[new].set(log_seat(size)), table, refused + full), new

    start = (counts, log_seat(counts), table, jnp.int32(0))
    (*_, refused), moved = jax.lax.scan(visit, start, (visits, noise[order]))
    return labels.at[order].set(moved), refused


def merge_best_pair(
    component: Component, rows: Statistics, labels: Int[Array, " n"], prior: Prior, slots: int
) -> tuple[Int[Array, " n"], Array]:
    """Merge the two clusters whose union raises log p(X, partition) most, if any does; also says whether one did."""
    stats, counts = cluster_statistics(rows, labels, slots), cluster_counts(labels, slots)
    marginal = component.log_marginal(stats)
    size = counts.astype(float)
    concentration, discount = prior
    terms = marginal + gammaln(jnp.where(counts > 0, size, 1.0) - discount)
    opening = jnp.log(concentration + ((counts > 0).sum() - 1) * discount) - gammaln(1.0 - discount)

    def row(k: Array) -> Array:
        union = component.log_marginal(jax.tree.map(lambda leaf: leaf + leaf[k], stats))
        gain = union + gammaln(jnp.maximum(size + size[k], 1.0) - discount) - terms - terms[k] - opening
        possible = (counts > 0) & (counts[k] > 0) & (jnp.arange(slots) > k)
        return jnp.where(possible, gain, -jnp.inf)

    gains = jax.lax.map(row, jnp.arange(slots))
    first, second = jnp.unravel_index(gains.argmax(), gains.shape)
    better = gains.max() > 1e-9 * jnp.abs(marginal.sum())
    return jnp.where(better & (labels == second), first, labels), better


def split_or_merge(
    component: Component,
    rows: Statistics,
    labels: Int[Array, " n"],
    prior: Prior,
    key: Array,
    slots: int,
    seated: ArrayLike | None = None,
) -> tuple[Int[Array, " n"], Int[Array, ""], Int[Array, ""]]:
    """One sequentially allocated merge-split move (Dahl 2005), Metropolis-Hastings corrected.

    Two items are drawn. Together: their cluster is split, its other items allocated one by one, in random order, to the side
    of one or the other by their conditional. Apart: their clusters are merged, and the reverse allocation is replayed.
    With `seated`, only the first so many items (at least two) are in the partition, and the others have label −1.

    Returns
    -------
    labels, accepted, refused
        New labels; whether the move was accepted; whether a split found no free slot.
    """
    n = labels.shape[0]
    concentration, discount = prior
    # one call for all draws: every call of a random function is compiled on its own, and slowly
    draws = jax.random.uniform(key, (2 * n + 3,))
    items = n if seated is None else jnp.asarray(seated)
    first = jnp.minimum((draws[0] * items).astype(int), items - 1)
    shift = 1 + jnp.minimum((draws[1] * (items - 1)).astype(int), items - 2)
    anchors = jnp.stack([first, (first + shift) % items])
    slot = labels[anchors]
    splits = slot[0] == slot[1]
    is_anchor = jnp.zeros(n, bool).at[anchors].set(True)
    member = (labels == slot[0]) | (labels == slot[1])
    moving = member & ~is_anchor
    order = jnp.argsort(draws[3 : n + 3] + 2.0 * ~moving)
    uniforms = draws[n + 3 :]

    _, unpack = ravel_pytree(component.cache(component.empty()))
    anchor_rows = _take(rows, anchors)
    table = pack(component.cache(anchor_rows), 1)
    log_marginals = component.log_marginal(anchor_rows).sum()

    def allocate(t: Array, carry: Any) -> Any:
        side, counts, table, log_marginals, log_proposal = carry
        item = order[t]
        row = _take(rows, item)
        predictive = component.cached_log_predictive(jax.vmap(unpack)(table), row)
        log_probability = jax.nn.log_softmax(jnp.log(counts - discount) + predictive)
        drawn = (jnp.log(uniforms[t]) < log_probability[1]).astype(int)
        chosen = jnp.where(splits, drawn, (labels[item] == slot[1]).astype(int))
        grown = pack(component.update_cache(unpack(table[chosen]), row, 1.0), 0)
        return (
            side.at[item].set(chosen),
            counts.at[chosen].add(1.0),
            table.at[chosen].set(grown),
            log_marginals + predictive[chosen],
            log_proposal + log_probability[chosen],
        )

    start = (jnp.zeros(n, int).at[anchors[1]].set(1), jnp.ones(2), table, log_marginals, jnp.zeros_like(log_marginals))
    side, counts, _, log_marginals, log_proposal = jax.lax.fori_loop(0, moving.sum(), allocate, start)

    whole = jax.tree.map(lambda leaf: jnp.tensordot(member.astype(leaf.dtype), leaf, 1), rows)
    all_counts = cluster_counts(labels, slots)
    occupied = all_counts > 0
    merged_clusters = occupied.sum() - ~splits  # clusters in the state in which the two are one
    log_ratio = (
        jnp.log(concentration + merged_clusters * discount)
        + gammaln(counts - discount).sum()
        - gammaln(counts.sum() - discount)
        - gammaln(1.0 - jnp.asarray(discount, counts.dtype))
        + log_marginals
        - component.log_marginal(whole)
        - log_proposal
    )
    refused = splits & occupied.all()
    log_accept = jnp.where(splits, log_ratio, -log_ratio)
    accepted = (jnp.log(draws[2]) < log_accept) & ~refused
    free = jnp.argmin(occupied).astype(labels.dtype)
    proposal = jnp.where(splits, jnp.where(member & (side == 1), free, labels), jnp.where(member, slot[0], labels))
    return jnp.where(accepted, proposal, labels), accepted.astype(int), refused.astype(int)
