"""Moves of single items between clusters in sweeps, and the best merge; shared by samplers and optimisers.

All functions are pure and have fixed shapes: a partition of n items lives in K slots, some of them empty.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln, logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.distributions.conjugate_mixture import cluster_statistics

__all__ = [
    "Prior",
    "check_seated",
    "default_capacity",
    "draw_index",
    "first_come_labels",
    "log_joint",
    "log_seating",
    "log_slot_seating",
    "merge_best_pair",
    "refused_mass",
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
    """Labels renamed 0, 1, ... in the order in which the items first show them; labels lie below `slots`, −1 stays."""
    n = labels.shape[0]
    first = jax.ops.segment_min(jnp.arange(n), labels, slots)
    rank = jnp.argsort(jnp.argsort(first))
    return jnp.where(labels < 0, -1, rank[labels]).astype(labels.dtype)


def log_joint(component: Component, rows: Statistics, labels: Int[Array, " n"], prior: Prior, slots: int) -> Float[Array, ""]:
    """Log p(X, partition): log prior of the partition plus the clusters' log marginal likelihoods (nats)."""
    stats = cluster_statistics(rows, labels, slots)
    return log_partition_prior(cluster_counts(labels, slots), *prior) + component.log_marginal(stats).sum()


def log_seating(counts: Float[Array, " k"], prior: Prior, max_clusters: ArrayLike = jnp.inf) -> Float[Array, " k1"]:
    """Log probability that the next item joins each cluster (−inf where empty) and, last, opens a new one.

    Once there are `max_clusters`, none opens, and the others share its probability as they share theirs.
    """
    concentration, discount = prior
    occupied = counts > 0
    clusters = occupied.sum(dtype=counts.dtype)
    room = clusters < max_clusters
    weights = jnp.append(jnp.where(occupied, counts - discount, 0.0), concentration + clusters * discount)
    possible = jnp.append(occupied, room)
    logs = jnp.where(possible, jnp.log(jnp.where(possible, weights, 1.0)), -jnp.inf)
    return logs - jnp.log(jnp.where(room, counts.sum() + concentration, weights[:-1].sum()))


def log_slot_seating(counts: Float[Array, " k"], prior: Prior) -> Float[Array, " k"]:
    """Log probability that the next item joins each slot, a new cluster taking any of the empty ones alike.

    (n_k − δ) of an occupied slot and (α + cδ)/(K − c) of an empty one, with c of K slots occupied, normalised: what is left of
    the partition prior if no slot is empty.
    """
    concentration, discount = prior
    occupied = counts > 0
    clusters = occupied.sum(dtype=counts.dtype)
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


def refused_mass(
    component: Component,
    stats: Statistics,
    counts: Float[Array, " k"],
    rows: Statistics,
    labels: Int[Array, " m"],
    prior: Prior,
) -> Float[Array, ""]:
    """Conditional probability of a new cluster that a full capacity refuses to an item, mean over some items.

    Parameters
    ----------
    component, prior
        Component and partition prior.
    stats, counts
        Statistics and numbers of items of the slots, leading dimension k.
    rows, labels
        Statistics and slots of the items asked about, leading dimension m.
    """

    def mass() -> Array:
        mine = labels[:, None] == jnp.arange(counts.shape[0], dtype=labels.dtype)[None]
        without = jax.tree.map(lambda leaf, row: leaf[labels] - row, stats, rows)
        own = component.log_marginal(_take(stats, labels)) - component.log_marginal(without)
        cache = component.cache(stats)
        others = jax.vmap(lambda row: component.cached_log_predictive(cache, row))(rows)
        left = counts[None] - mine.astype(counts.dtype) - prior.discount
        seats = jnp.where(left > 0, jnp.log(jnp.where(left > 0, left, 1.0)), -jnp.inf)
        seated = logsumexp(seats + jnp.where(mine, own[:, None], others), axis=1)
        opening = jnp.log(prior.concentration + counts.shape[0] * prior.discount) + component.log_marginal(rows)
        # an item that is alone may stay so: nothing is refused to it
        return jnp.where(counts[labels] > 1, jax.nn.sigmoid(opening - seated), 0.0).mean().astype(float)

    return jax.lax.cond((counts > 0).all(), mass, lambda: jnp.zeros(()))


def merge_best_pair(
    component: Component, rows: Statistics, labels: Int[Array, " n"], prior: Prior, slots: int
) -> tuple[Int[Array, " n"], Array]:
    """Merge the two clusters whose union raises log p(X, partition) most, if any does; also says whether one did.

    Of two whose union has no finite log marginal likelihood the items get −1.
    """
    stats, counts = cluster_statistics(rows, labels, slots), cluster_counts(labels, slots)
    marginal = component.log_marginal(stats)
    size = counts.astype(float)
    concentration, discount = prior
    terms = marginal + gammaln(jnp.where(counts > 0, size, 1.0) - discount)
    opening = jnp.log(concentration + ((counts > 0).sum(dtype=size.dtype) - 1) * discount) - gammaln(1.0 - discount)

    def row(k: Array) -> Array:
        union = component.log_marginal(jax.tree.map(lambda leaf: leaf + leaf[k][None], stats))
        gain = union + gammaln(jnp.maximum(size + size[k], 1.0) - discount) - terms - terms[k] - opening
        possible = (counts > 0) & (counts[k] > 0) & (jnp.arange(slots) > k)
        return jnp.where(possible, jnp.where(jnp.isnan(gain), jnp.inf, gain), -jnp.inf)

    gains = jax.lax.map(row, jnp.arange(slots))
    first, second = jnp.unravel_index(gains.argmax(), gains.shape)
    best = gains.max()
    better = (best > 1e-9 * jnp.abs(marginal.sum())) & (best < jnp.inf)
    undefined = (best == jnp.inf) & ((labels == first) | (labels == second))
    return jnp.where(undefined, -1, jnp.where(better & (labels == second), first, labels)), better
