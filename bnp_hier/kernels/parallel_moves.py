"""Exact moves of all rows of a partition at once: label draws given the cluster leaders, and many splits and merges.

Given weights, parameters and leaders (the row of lowest priority in each cluster, with newly drawn priorities), the labels of
all other rows are independent, and no cluster can become empty. Splits and merges of disjoint sets of clusters do not
interfere. All functions are pure; a partition of n rows is stored in K slots, some of which may be empty.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.seating import Prior
from bnp_hier.kernels.chunked_rows import (
    Coefficients,
    RowChunks,
    counts_of,
    flat,
    in_chunks,
    linear_scores,
    no_parts,
    row_scores,
    sums_of,
    totals,
)
from bnp_hier.partitions.row_features import Features, features_of, statistics_of

__all__ = ["Table", "Units", "draw_labels", "split_and_merge", "sum_clusters", "units_of_clusters", "units_of_rows"]

EM_STEPS = 3
"""Number of soft two-cluster steps from the anchors to the discriminant that proposes a split."""


class Table(NamedTuple):
    """The data in the form used by the moves.

    - **component** - conjugate component.
    - **of_rows** - the component in the precision of the rows.
    - **X** - (n, d) rows.
    - **chunks** - the rows in chunks.
    - **features** - which statistics of a row are distinct.
    """

    component: Component
    of_rows: Component
    X: Float[Array, "n d"]
    chunks: RowChunks
    features: Features

    def features_of(self, rows: Float[Array, "c d"]) -> Float[Array, "c f"]:
        """Features of some rows, in their own precision."""
        return features_of(self.of_rows, rows, self.features).astype(rows.dtype)


class Clusters(NamedTuple):
    """A partition.

    - **labels** - (n,) slots; −1 for rows that are in no cluster.
    - **stats** - statistics of the rows in each slot.
    - **counts** - (k,) numbers of rows in each slot.
    """

    labels: Int[Array, " n"]
    stats: Statistics
    counts: Float[Array, " k"]


class Units(NamedTuple):
    """Disjoint sets of one or two clusters, each with two anchors: rows that a split separates or a merge joins.

    - **anchors** - (m, 2) rows.
    - **slots** - (m, 2) slots of the anchors; the same slot twice for a split.
    - **of_slot** - (k,) unit of each slot, m for none.
    - **pairs** - number of units with two clusters, counted only if `by_cluster`.
    - **by_cluster** - whether clusters were drawn, and then rows within them, instead of rows.
    """

    anchors: Int[Array, "m 2"]
    slots: Int[Array, "m 2"]
    of_slot: Int[Array, " k"]
    pairs: Int[Array, ""]
    by_cluster: Bool[Array, ""]


def _onehot(index: Int[Array, " c"], size: int, dtype: Any) -> Float[Array, "c k"]:
    return (index[:, None] == jnp.arange(size)[None]).astype(dtype)


def sum_clusters(table: Table, labels: Int[Array, " n"], slots: int) -> Clusters:
    """Compute the statistics and counts of a partition from its rows."""
    X, there = table.chunks

    def add(sums: Array, chunk: Any) -> tuple[Array, None]:
        rows, valid, label = chunk
        phi = table.features_of(rows)
        return sums + sums_of(_onehot(jnp.where(valid, label, slots), slots, phi.dtype), phi), None

    sums, _ = jax.lax.scan(add, no_parts(slots, table.features.width), (X, there, in_chunks(labels)))
    (found,) = totals(sums)
    stats = statistics_of(found, table.features, table.component.empty((slots,)))
    return Clusters(labels, stats, _count(labels, slots))


def _count(labels: Int[Array, " n"], slots: int) -> Float[Array, " k"]:
    return jax.ops.segment_sum(jnp.ones(labels.shape, int), labels, slots).astype(float)


def _first(priority: Array, labels: Int[Array, " n"], slots: int) -> tuple[Array, Int[Array, " k"]]:
    """Lowest priority in each slot and its row (the first one if several tie); n for an empty slot."""
    n = labels.shape[0]
    lowest = jax.ops.segment_min(priority, labels, slots)
    row = jax.ops.segment_min(jnp.where(priority == lowest[labels], jnp.arange(n), n), labels, slots)
    return lowest, jnp.minimum(row, n)


def draw_labels(key: Array, table: Table, clusters: Clusters, prior: Prior) -> Int[Array, " n"]:
    """Draw new slots for all rows except the cluster leaders, in parallel; the draw is exact and empties no cluster.

    Weights are drawn from Gamma(N_k − δ), parameters from their posteriors, and priorities anew. The leader of a cluster, its
    row of lowest priority, stays; any other row may join the clusters whose leaders have a lower priority than the row itself.
    """
    component, slots, n = table.component, clusters.counts.shape[0], clusters.labels.shape[0]
    keys = jax.random.split(key, 4)
    priority = jax.random.bits(keys[0], (n,), jnp.uint32)
    lowest, leader = _first(priority, clusters.labels, slots)
    occupied = clusters.counts > 0
    weight = jax.random.loggamma(keys[1], jnp.where(occupied, clusters.counts - prior.discount, 1.0))
    weight = jnp.where(occupied, weight, -jnp.inf)
    parameters = component.sample_parameters(keys[2], clusters.stats)
    dtype = table.chunks.X.dtype
    coefficients = _likelihood(table, parameters, weight)
    upto = jnp.triu(jnp.ones((slots, slots), dtype))

    def draw(_: None, chunk: Any) -> tuple[None, Array]:
        rows, label, order, row, uniform = chunk
        if coefficients is None:
            likelihood = jax.vmap(component.likelihood)(parameters)
            score = jax.vmap(lambda x: likelihood.log_prob(x))(rows).astype(dtype) + weight.astype(dtype)[None]
        else:
            score = row_scores(table.features_of(rows), coefficients)
        later = (order[:, None] > lowest[None]) | ((order[:, None] == lowest[None]) & (row[:, None] > leader[None]))
        score = jnp.where(later & occupied[None], score, -jnp.inf)
        mass = jnp.exp(score - score.max(1, keepdims=True))
        # inversion of the distribution function; a cumulative sum is slower than a product with a triangular matrix of ones
        cumulative = jnp.matmul(mass, upto, precision="highest")
        drawn = (cumulative < (uniform * cumulative[:, -1])[:, None]).sum(1)
        drawn = jnp.minimum(drawn, slots - 1)
        allowed = jnp.take_along_axis(mass, drawn[:, None], 1)[:, 0] > 0  # false for the very first row, and on underflow
        stays = (row == leader[label]) | ~allowed | (label < 0)
        return None, jnp.where(stays, label, drawn.astype(label.dtype))

    uniforms = jax.random.uniform(keys[3], (n,), dtype)
    per_row = (clusters.labels, priority, jnp.arange(n), uniforms)
    _, drawn = jax.lax.scan(draw, None, (table.chunks.X, *map(in_chunks, per_row)))
    return flat(drawn, n)


def _likelihood(table: Table, parameters: Array, weight: Float[Array, " k"]) -> Coefficients | None:
    """Log weight plus log likelihood of a row as a linear function of its features, if the family supports this."""
    try:
        natural = table.component.natural_parameters(parameters)
    except NotImplementedError:
        return None
    return linear_scores(natural, weight, table.features, table.chunks.X.dtype)


def units_of_rows(key: Array, clusters: Clusters) -> Units:
    """Draw pairs of rows uniformly and keep, in order, those whose clusters belong to no pair kept before.

    A move within a unit changes neither its rows nor other units, so the same pairs are kept for the new partition. The number
    of pairs drawn depends only on the capacity.
    """
    n, slots = clusters.labels.shape[0], clusters.counts.shape[0]
    tries = max(1, slots // 2)
    key_first, key_shift = jax.random.split(key)
    first = jax.random.randint(key_first, (tries,), 0, n)
    second = (first + jax.random.randint(key_shift, (tries,), 1, n)) % n
    anchors = jnp.stack([first, second], axis=1)
    of_pair = clusters.labels[anchors]

    def keep(of_slot: Array, pair: Any) -> tuple[Array, None]:
        slot, number = pair
        free = ((slot >= 0) & (of_slot[slot] == slots)).all()
        return jnp.where(free, of_slot.at[slot].set(number), of_slot), None

    of_slot, _ = jax.lax.scan(keep, jnp.full(slots, slots), (of_pair, jnp.arange(tries)))
    kept = of_slot[of_pair[:, 0]] == jnp.arange(tries)
    filling = ((0, slots - tries), (0, 0))
    anchors = jnp.pad(jnp.where(kept[:, None], anchors, n), filling, constant_values=n)
    return Units(anchors, jnp.pad(of_pair, filling), of_slot, jnp.zeros((), int), jnp.zeros((), bool))


def units_of_clusters(key: Array, clusters: Clusters) -> Units:
    """Group all clusters into a random number of pairs and leave the others single; draw two anchors within each unit.

    Small clusters are reached this way. The number of pairs is uniform on 0, ..., ⌊K/2⌋, the pairing is uniform given this
    number, and the anchors are uniform within the clusters.
    """
    n, slots = clusters.labels.shape[0], clusters.counts.shape[0]
    keys = jax.random.split(key, 3)
    occupied = clusters.counts > 0
    k = occupied.sum()
    pairs = jnp.minimum((jax.random.uniform(keys[0]) * (k // 2 + 1).astype(float)).astype(int), k // 2)
    order = jnp.argsort(jax.random.uniform(keys[1], (slots,)) + jnp.where(occupied, 0.0, 2.0))
    place = jnp.argsort(order)
    of_slot = jnp.where(place < 2 * pairs, place // 2, place - pairs)
    _, first = _first(priority := jax.random.bits(keys[2], (n,), jnp.uint32), clusters.labels, slots)
    others = jnp.where(jnp.arange(n) == first[clusters.labels], slots, clusters.labels)
    _, second = _first(priority, others, slots + 1)
    unit = jnp.arange(slots)
    is_pair = unit < pairs
    left = order[jnp.minimum(jnp.where(is_pair, 2 * unit, unit + pairs), slots - 1)]
    right = jnp.where(is_pair, order[jnp.minimum(2 * unit + 1, slots - 1)], left)
    anchors = jnp.stack([first[left], jnp.where(is_pair, first[right], second[left])], axis=1)
    # a cluster of one row cannot be split
    active = (unit < k - pairs) & (is_pair | (clusters.counts[left] > 1))
    of_slot = jnp.where(occupied & active[jnp.minimum(of_slot, slots - 1)], of_slot, slots)
    anchors = jnp.where(active[:, None], anchors, n)
    return Units(anchors, jnp.stack([left, right], axis=1), of_slot, pairs, jnp.ones((), bool))


def _log_pairing(clusters: Array, pairs: Array) -> Float[Array, ""]:
    """Log probability of one pairing of the clusters with this many pairs."""
    k, p = clusters.astype(float), pairs.astype(float)
    pairings = gammaln(k + 1) - gammaln(k - 2 * p + 1) - gammaln(p + 1) - p * jnp.log(2.0)
    return -pairings - jnp.log(k // 2 + 1)


def _turns(units: Units) -> Int[Array, " m"]:
    """Order in which proposals are decided: by the lowest anchor of each unit.

    Acceptances interact through the number of clusters, the number of pairs and the capacity. Each is valid given the others,
    but a sequence of them is valid only in an order that no acceptance changes. The unit numbers, with pairs first, are not
    such an order, because an accepted proposal turns a single cluster into a pair or the reverse; the anchors stay the same.
    """
    return jnp.argsort(units.anchors.min(1))


class _Contents(NamedTuple):
    """Contents of each unit, and the role of each row.

    - **active** - (m,) whether the unit exists.
    - **splits** - (m,) whether the unit is a single cluster, to be split.
    - **whole** - statistics of the unit's rows.
    - **size** - (m,) number of rows in the unit; 2 where there is no unit.
    - **of_row** - (n,) unit of each row, m for none.
    - **role** - (n,) 1 or 2 for the first or second anchor of a unit, 0 for others.
    """

    active: Bool[Array, " m"]
    splits: Bool[Array, " m"]
    whole: Statistics
    size: Float[Array, " m"]
    of_row: Int[Array, " n"]
    role: Int[Array, " n"]


class _Sides(NamedTuple):
    """The two sides of each unit, proposed for a split or present before a merge.

    - **is_left** - which rows are on the first side, in chunks.
    - **left**, **right** - statistics of the sides.
    - **left_count**, **right_count** - (m,) numbers of rows on the sides.
    - **log_probability** - (m,) log probability that the discriminant proposes these sides (nats).
    """

    is_left: Array
    left: Statistics
    right: Statistics
    left_count: Float[Array, " m"]
    right_count: Float[Array, " m"]
    log_probability: Float[Array, " m"]


def split_and_merge(
    key: Array, table: Table, clusters: Clusters, prior: Prior, units: Units
) -> tuple[Int[Array, " n"], Int[Array, ""], Int[Array, ""]]:
    """Propose to split every unit of one cluster and to merge every unit of two, with Metropolis-Hastings correction.

    A few soft two-cluster steps from the anchors lead to a discriminant D. A split sends each row to either side with
    probability σ(±D) or, half of the time, with a uniformly drawn probability that is the same for all rows. The discriminant
    depends only on the unit's rows and anchors, and on a coin flip, so that a merge can replay it.

    Returns
    -------
    labels, accepted, refused
        New slots, the number of accepted moves, and the number of splits that found no free slot.
    """
    slots, n = clusters.counts.shape[0], clusters.labels.shape[0]
    key_side, key_kind, key_rate, key_accept, key_start = jax.random.split(key, 5)
    contents = _contents(clusters, units)
    chunks = (*table.chunks, in_chunks(contents.of_row), in_chunks(contents.role))
    coefficients = _discriminants(key_start, table, units, contents, chunks)
    sides = _propose((key_side, key_kind, key_rate), table, clusters, units, contents, chunks, coefficients)
    ratios = _log_ratio(table.component, prior, contents, sides)
    decided, accepted, refused = _decide(key_accept, clusters, prior, units, contents, ratios)
    unit = jnp.minimum(contents.of_row, slots - 1)
    moved = decided[unit, jnp.where(flat(sides.is_left, n), 0, 1)].astype(clusters.labels.dtype)
    labels = jnp.where(contents.of_row < slots, moved, clusters.labels)
    return labels, accepted.sum(), refused.sum()


def _contents(clusters: Clusters, units: Units) -> _Contents:
    n = clusters.labels.shape[0]
    active = units.anchors[:, 0] < n
    splits = units.slots[:, 0] == units.slots[:, 1]
    of_first, of_second = (
        jax.tree.map(lambda leaf, slot=slot: jnp.where(_wide(active, leaf), leaf[slot], 0.0), clusters.stats)
        for slot in units.slots.T
    )
    whole = jax.tree.map(lambda a, b: a + jnp.where(_wide(splits, b), 0.0, b), of_first, of_second)
    first_count = jnp.where(active, clusters.counts[units.slots[:, 0]], 2.0)
    count = first_count + jnp.where(splits | ~active, 0.0, clusters.counts[units.slots[:, 1]])
    role = jnp.zeros(n, jnp.int8).at[units.anchors[:, 0]].set(1, mode="drop").at[units.anchors[:, 1]].set(2, mode="drop")
    of_row = jnp.where(clusters.labels < 0, clusters.counts.shape[0], units.of_slot[clusters.labels])
    return _Contents(active, splits, whole, count, of_row, role)


def _scored(table: Table, slots: int, coefficients: Coefficients, chunk: Any) -> tuple[Array, Array, Array]:
    """Features of a chunk's rows, their units (one-hot), and their log odds of the first side (infinite for anchors)."""
    rows, valid, unit, role = chunk
    phi = table.features_of(rows)
    mine = _onehot(jnp.where(valid, unit, slots), slots, table.chunks.X.dtype)
    log_odds = jnp.where(mine > 0, row_scores(phi, coefficients), 0.0).sum(1)
    return phi, mine, jnp.where(role == 1, jnp.inf, jnp.where(role == 2, -jnp.inf, log_odds))


def _soft_sides(table: Table, slots: int, coefficients: Coefficients, chunks: Any) -> tuple[Statistics, Array]:
    """Statistics and number of each unit's rows on the first side, with rows weighted by their probability of that side."""

    def add(carry: Any, chunk: Any) -> tuple[Any, None]:
        phi, mine, log_odds = _scored(table, slots, coefficients, chunk)
        share = mine * jax.nn.sigmoid(log_odds)[:, None]
        sums, counts = carry
        return (sums + sums_of(share, phi), counts + counts_of(share)), None

    (sums, counts), _ = jax.lax.scan(add, (no_parts(slots, table.features.width), no_parts(slots)), chunks)
    sums, counts = totals(sums, counts)
    return statistics_of(sums, table.features, table.component.empty((slots,))), counts


def _discriminants(key: Array, table: Table, units: Units, contents: _Contents, chunks: Any) -> Coefficients:
    """Discriminant between the two sides of each unit, from a few soft steps that begin at its anchors.

    A side begins either with its anchor alone, which scales distances by the prior, or, with probability 1/4, with several
    copies of its anchor and as many of the unit's average row, which scales distances by the spread of the unit.
    """
    component, whole, count = table.component, contents.whole, contents.size
    slots, n = count.shape[0], contents.of_row.shape[0]
    spread = jax.random.bernoulli(key, 0.25, (slots,))
    pull = jnp.minimum(count, component.dim + 2.0)
    average = jax.tree.map(lambda leaf: leaf * _wide(pull / count, leaf), whole)
    anchors = jax.tree.map(lambda leaf: leaf.astype(float), component.suff_stats(table.X[jnp.minimum(units.anchors, n - 1)]))
    first, second = (
        jax.tree.map(
            lambda a, mean, side=side: jnp.where(_wide(spread, mean), mean + a[:, side] * _wide(pull, mean), a[:, side]),
            anchors,
            average,
        )
        for side in range(2)
    )

    def soften(_: Any, carry: Any) -> Any:
        soft, soft_count = _soft_sides(table, slots, _discriminant(table, *carry), chunks)
        log_odds = jnp.log(jnp.maximum(soft_count, 0.5)) - jnp.log(jnp.maximum(count - soft_count, 0.5))
        return soft, jax.tree.map(jnp.subtract, whole, soft), log_odds

    return _discriminant(table, *jax.lax.fori_loop(0, EM_STEPS, soften, (first, second, jnp.zeros(slots))))


def _propose(
    keys: tuple[Array, Array, Array],
    table: Table,
    clusters: Clusters,
    units: Units,
    contents: _Contents,
    chunks: Any,
    coefficients: Coefficients,
) -> _Sides:
    """Propose sides for units to be split, and take the present sides of others; `keys` are for sides, kinds and rates."""
    slots, n, dtype = contents.size.shape[0], contents.of_row.shape[0], table.chunks.X.dtype
    key_side, key_kind, key_rate = keys
    by_rate = jax.random.bernoulli(key_kind, 0.5, (slots,))
    rate = jax.random.uniform(key_rate, (slots,), dtype)
    is_first = clusters.labels == units.slots[:, 0][jnp.minimum(contents.of_row, slots - 1)]

    def propose(carry: Any, chunk: Any) -> tuple[Any, Array]:
        *rest, current, uniform = chunk
        phi, mine, log_odds = _scored(table, slots, coefficients, rest)
        unit, role = jnp.minimum(rest[2], slots - 1), rest[3]
        threshold = jnp.where(by_rate[unit] & (role == 0), rate[unit], jax.nn.sigmoid(log_odds))
        first = jnp.where(contents.splits[unit], uniform < threshold, current)
        log_q = jnp.where(role == 0, jax.nn.log_sigmoid(jnp.where(first, log_odds, -log_odds)), 0.0)
        chosen = mine * first[:, None].astype(dtype)
        sums, counts, log_proposal = carry
        return (
            sums + sums_of(chosen, phi),
            counts + counts_of(chosen),
            log_proposal + counts_of(mine * log_q[:, None]),
        ), first

    start = (no_parts(slots, table.features.width), no_parts(slots), no_parts(slots))
    extra = (in_chunks(is_first), in_chunks(jax.random.uniform(key_side, (n,), dtype)))
    parts, is_left = jax.lax.scan(propose, start, (*chunks, *extra))
    sums, left_count, log_q = totals(*parts)
    left = statistics_of(sums, table.features, table.component.empty((slots,)))
    right = jax.tree.map(jnp.subtract, contents.whole, left)
    left_count = jnp.where(contents.active, left_count, 1.0)
    return _Sides(is_left, left, right, left_count, jnp.where(contents.active, contents.size - left_count, 1.0), log_q)


def _log_ratio(component: Component, prior: Prior, contents: _Contents, sides: _Sides) -> tuple[Array, Array]:
    """Log acceptance ratio of splitting each unit, without terms that depend on other units, and the term for cluster draws.

    `_decide` adds the prior's factor for the number of clusters, and the factor for the pairing.
    """
    count, left_count, right_count = contents.size, sides.left_count, sides.right_count
    by_discriminant = sides.log_probability - jnp.log(2.0)
    at_one_rate = gammaln(left_count) + gammaln(right_count) - gammaln(count) - jnp.log(2.0)
    log_marginals = component.log_marginal(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), sides.left, sides.right, contents.whole)
    )
    discount = prior.discount
    log_ratio = (
        gammaln(left_count - discount)
        + gammaln(right_count - discount)
        - gammaln(count - discount)
        - gammaln(1.0 - jnp.asarray(discount, count.dtype))
        + log_marginals[0]
        + log_marginals[1]
        - log_marginals[2]
        - jnp.logaddexp(by_discriminant, at_one_rate)
    )
    return log_ratio, jnp.log(count * jnp.maximum(count - 1.0, 1.0) / (2.0 * left_count * right_count))


def _decide(
    key: Array, clusters: Clusters, prior: Prior, units: Units, contents: _Contents, ratios: tuple[Array, Array]
) -> tuple[Int[Array, "m 2"], Bool[Array, " m"], Bool[Array, " m"]]:
    """Decide on the proposals one by one; return the slots of the units' sides, acceptances, and splits without a free slot."""

    def decide(carry: Any, unit: Any) -> tuple[Any, Any]:
        occupied, pairs = carry
        present, split, slot, ratio, anchored, uniform = unit
        merged = occupied.sum() - (~split).astype(int)  # clusters in the state in which the unit is merged
        merged_pairs = pairs - (~split).astype(pairs.dtype)
        chosen = _log_pairing(merged + 1, merged_pairs + 1) - _log_pairing(merged, merged_pairs) + anchored
        ratio = (
            ratio
            + jnp.log(prior.concentration + merged.astype(ratio.dtype) * prior.discount)
            + jnp.where(units.by_cluster, chosen, 0.0)
        )
        refused = present & split & occupied.all()
        # log1p(−u), because a uniform draw can be 0, whose logarithm would accept anything, but never 1
        accepted = present & ~refused & (jnp.log1p(-uniform) <= jnp.where(split, ratio, -ratio))
        new = jnp.argmin(occupied).astype(slot.dtype)
        goes = jnp.where(accepted, jnp.where(split, jnp.stack([slot[0], new]), slot[:1]), slot)
        after = jnp.where(split, occupied.at[new].set(True), occupied.at[slot[1]].set(False))
        occupied = jnp.where(accepted, after, occupied)
        pairs = pairs + jnp.where(accepted, jnp.where(split, 1, -1), 0)
        return (occupied, pairs), (goes, accepted, refused)

    turn = _turns(units)
    uniforms = jax.random.uniform(key, contents.active.shape)
    moves = (contents.active, contents.splits, units.slots, *ratios, uniforms)
    start = (clusters.counts > 0, units.pairs)
    _, (decided, accepted, refused) = jax.lax.scan(decide, start, jax.tree.map(lambda leaf: leaf[turn], moves))
    return decided[jnp.argsort(turn)], accepted, refused


def _wide(vector: Array, leaf: Array) -> Array:
    """Append dimensions of size one to a vector, so that it broadcasts with a leaf."""
    return vector.reshape(-1, *(1,) * (leaf.ndim - 1))


def _discriminant(table: Table, first: Statistics, second: Statistics, log_odds: Float[Array, " m"]) -> Coefficients:
    """Expected log likelihood of a row on the first side minus that on the second, plus log odds, in terms of its features."""
    both = jax.tree.map(lambda one, other: jnp.stack([one, other]), first, second)
    difference = jax.tree.map(lambda leaf: leaf[0] - leaf[1], table.component.expected_natural_parameters(both))
    return linear_scores(difference, log_odds, table.features, table.chunks.X.dtype)
