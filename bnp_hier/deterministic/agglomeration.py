"""Exact greedy agglomeration by a merge score, without a matrix of pairs."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int
from tqdm import tqdm

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.conjugate_mixture import cluster_statistics

__all__ = ["CRITERIA", "TIE", "Leaves", "agglomerate", "cluster_leaves", "greedy_tree", "row_leaves"]

TIE = 1e-9
"""Scores that differ by less than this, relatively, are equal; then the pair with the smallest node numbers is merged."""

BAR_FROM = 2000
"""Number of leaves from which a progress bar is worth showing."""

CRITERIA = ("odds", "ratio", "normalised", "dp", "finite")
"""Merge scores: posterior odds of one cluster (the paper's), marginal likelihood ratio, that ratio per √size, and the gain in
log joint of two clusters' merger but for a constant, by the prior over partitions or over labels with Dirichlet weights."""

BLOCK = 512
"""Slots evaluated at once; capacities above it are multiples of it."""

PAIR_BLOCK = 128
"""Leaves on each side of a block of leaf pairs."""


class Leaves(NamedTuple):
    """What is merged: single rows, or clusters or trees that are kept whole.

    - **stats** - sufficient statistics of each leaf, the leading dimension padded to a capacity.
    - **items** - number of rows in each leaf, padded.
    - **n** - number of leaves.
    """

    stats: Statistics
    items: Int[np.ndarray, " s"]
    n: int


class _Trees(NamedTuple):
    """Trees still to be merged, one in each slot.

    - **stats** - sufficient statistics, the slot axis last, so that every statistic is contiguous.
    - **mass** - φ: log mass of all tree-consistent partitions of the tree's items.
    - **marginal** - log marginal likelihood of its items as one cluster.
    - **items** - number of items.
    - **node** - node number.
    - **group** - only trees of one group are merged.
    """

    stats: Statistics
    mass: Float[Array, "..."]
    marginal: Float[Array, "..."]
    items: Int[Array, "..."]
    node: Int[Array, "..."]
    group: Int[Array, "..."]


class _Best(NamedTuple):
    """What each slot remembers of its last evaluation.

    - **score** - the largest score with another tree; an upper bound where `stale`.
    - **partner** - node number of the tree that gives it.
    - **stale** - whether the partner has gone since.
    """

    score: Float[Array, "..."]
    partner: Int[Array, "..."]
    stale: Array


class _Forest(NamedTuple):
    """State of the agglomeration.

    - **trees**, **best** - one entry per slot; the first `left` slots are in use, the others have score −inf.
    - **slot_of** - slot of each node number.
    - **left** - number of trees left.
    - **step** - number of merges made.
    - **children**, **log_odds** - the merges made.
    """

    trees: _Trees
    best: _Best
    slot_of: Int[Array, " s2"]
    left: Int[Array, ""]
    step: Int[Array, ""]
    children: Int[Array, "s 2"]
    log_odds: Float[Array, " s"]


class _Scorer(NamedTuple):
    """Scores of merging two trees; see `CRITERIA`.

    With N the number of items of the pair, "odds" is log α + lgamma(N) + m(D_i ∪ D_j) − φ_i − φ_j, "ratio" is
    m(D_i ∪ D_j) − m(D_i) − m(D_j), and "dp" and "finite" are that plus g(N) − g(N_i) − g(N_j), g(N) = lgamma(N) or
    lgamma(N + α).
    """

    log_marginal: Any
    log_alpha: Float[Array, ""]
    log_gamma: Float[Array, " counts"]
    log_label: Float[Array, " counts"]
    criterion: str

    def score(self, joint: Array, a: _Trees, b: _Trees, criterion: str | None = None) -> Float[Array, "..."]:
        """Score of pairs from the log marginal likelihood of their unions; the trees' fields broadcast."""
        criterion = criterion or self.criterion
        if criterion == "odds":
            return self.log_alpha + self.log_gamma[a.items + b.items] + joint - a.mass - b.mass
        ratio = joint - a.marginal - b.marginal
        if criterion == "ratio":
            return ratio
        if criterion in ("dp", "finite"):
            return ratio + self.log_label[a.items + b.items] - self.log_label[a.items] - self.log_label[b.items]
        return ratio * jax.lax.rsqrt(a.items * b.items / (a.items + b.items).astype(ratio.dtype))

    def merged(self, a: _Trees, b: _Trees, node: Array) -> tuple[_Trees, Float[Array, ""]]:
        """The tree that joins two, and the log odds of the merge."""
        stats = jax.tree.map(jnp.add, a.stats, b.stats)
        marginal = self.log_marginal(stats)
        odds = self.score(marginal, a, b, "odds")
        mass = a.mass + b.mass + jnp.logaddexp(odds, 0.0)
        return _Trees(stats, mass, marginal, a.items + b.items, node, a.group), odds

    def block(self, trees: _Trees, left: Array, slot: Array, start: Array, width: int) -> Float[Array, " w"]:
        """Scores of the tree in a slot with those in a block of slots; −inf where the two may not be merged."""
        one, others = _at(trees, slot), _cut(trees, start, width)
        joint = jax.tree.map(lambda leaf, mine: leaf + mine[..., None], others.stats, one.stats)
        scores = self.score(jax.vmap(self.log_marginal, in_axes=-1)(joint), others, one)
        index = start + jnp.arange(width)
        return jnp.where((index < left) & (index != slot) & (others.group == one.group), scores, -jnp.inf)


def _at(columns: Any, slot: Array) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, slot, -1, keepdims=False), columns)


def _cut(columns: Any, start: Array, width: int) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, width, -1), columns)


def _put(columns: Any, values: Any, slot: Array) -> Any:
    return jax.tree.map(lambda leaf, value: jax.lax.dynamic_update_index_in_dim(leaf, value, slot, -1), columns, values)


def _paste(columns: Any, values: Any, start: Array) -> Any:
    return jax.tree.map(lambda leaf, value: jax.lax.dynamic_update_slice_in_dim(leaf, value, start, -1), columns, values)


def _tolerance(score: Float[Array, "..."]) -> Float[Array, "..."]:
    return TIE * jnp.maximum(1.0, jnp.abs(score))


_LAST = np.iinfo(np.int64).max


def _best_of(scores: Float[Array, "*b s"], node: Int[Array, " s"]) -> tuple[Float[Array, "*b"], Int[Array, "*b"]]:
    """Largest score along the last axis, and its tree: of tied ones, the smallest node number."""
    best = scores.max(-1)
    ties = scores >= (best - _tolerance(best))[..., None]
    return best, jnp.where(ties, node, _LAST).min(-1)


def _better_of(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The better of two results of `_best_of`."""
    best = jnp.maximum(one[0], other[0])
    low = best - _tolerance(best)
    return best, jnp.minimum(jnp.where(one[0] >= low, one[1], _LAST), jnp.where(other[0] >= low, other[1], _LAST))


def _scorer(component: Component, concentration: Array, n_items: int, criterion: str) -> _Scorer:
    counts = jnp.arange(n_items + 1).astype(float)
    log_gamma = gammaln(counts)
    log_label = gammaln(counts + concentration) if criterion == "finite" else log_gamma
    return _Scorer(component.log_marginal_up_to(n_items), jnp.log(concentration), log_gamma, log_label, criterion)


@partial(jax.jit, static_argnames=("n_items", "criterion", "rows"))
def _plant(
    component: Component,
    stats: Statistics,
    items: Array,
    group: Array,
    n: Array,
    concentration: Array,
    n_items: int,
    criterion: str,
    rows: bool,
) -> _Forest:
    """Every leaf a tree of its own, with its best partner; `rows` says that every leaf is one row."""
    scorer = _scorer(component, concentration, n_items, criterion)
    slots = items.shape[0]
    index = jnp.arange(slots)
    active = index < n
    stats = jax.tree.map(lambda leaf: jnp.where(active.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0.0), stats)
    marginal = scorer.log_marginal(stats)
    trees = _Trees(
        stats=jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), stats),
        mass=scorer.log_alpha + scorer.log_gamma[jnp.where(active, items, 1)] + marginal,
        marginal=marginal,
        items=jnp.where(active, items, 0),
        node=index,
        group=group,
    )
    best = _pair_up_rows(component, scorer, trees, n, stats) if rows else _pair_up(scorer, trees, n)
    zero, children, log_odds = jnp.int64(0), jnp.zeros((slots, 2), int), jnp.zeros(slots)
    return _Forest(trees, best, jnp.tile(index, 2), n, zero, children, log_odds)


def _alone(slots: int) -> _Best:
    return _Best(jnp.full(slots, -jnp.inf), jnp.zeros(slots, int), jnp.zeros(slots, bool))


def _pair_up(scorer: _Scorer, trees: _Trees, left: Array) -> _Best:
    """Best partner of every slot, one row of scores at a time."""
    slots = trees.node.shape[0]

    def one(slot: Array, best: _Best) -> _Best:
        scores = scorer.block(trees, left, slot, jnp.int64(0), slots)
        return _put(best, _Best(*_best_of(scores, trees.node), jnp.bool_(False)), slot)

    return jax.lax.fori_loop(0, left, one, _alone(slots))


def _pair_up_rows(component: Component, scorer: _Scorer, trees: _Trees, left: Array, rows: Statistics) -> _Best:
    """Best partner of every slot when all trees are single rows: every pair once, in blocks."""
    slots = trees.node.shape[0]
    width = min(PAIR_BLOCK, slots)
    blocks = (left + width - 1) // width

    def part(k: Array) -> Statistics:
        return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, k * width, width, 0), rows)

    def block(one: Array, two: Array, best: _Best) -> _Best:
        a, b = (_cut(trees._replace(stats=()), k * width, width) for k in (one, two))
        joint = component.log_marginal_of_row_pairs(part(one), part(two))
        scores = scorer.score(joint, jax.tree.map(lambda leaf: leaf[:, None], a), b)
        possible = (a.node[:, None] < b.node) & (b.node < left) & (a.group[:, None] == b.group)
        scores = jnp.where(possible, scores, -jnp.inf)
        for side, table, nodes in ((one, scores, b.node), (two, scores.T, a.node)):
            old = _cut(best, side * width, width)
            new = _better_of((old.score, old.partner), _best_of(table, nodes))
            best = _paste(best, _Best(*new, old.stale), side * width)
        return best

    def row_of_blocks(one: Array, best: _Best) -> _Best:
        return jax.lax.fori_loop(one, blocks, lambda two, best: block(one, two, best), best)

    return jax.lax.fori_loop(0, blocks, row_of_blocks, _alone(slots))


@partial(jax.jit, static_argnames=("n_items", "criterion"))
def _release(component: Component, forest: _Forest, concentration: Array, n_items: int, criterion: str) -> _Forest:
    """Let all trees merge, whatever their group."""
    scorer = _scorer(component, concentration, n_items, criterion)
    trees = forest.trees._replace(group=jnp.zeros_like(forest.trees.group))
    return forest._replace(trees=trees, best=_pair_up(scorer, trees, forest.left))


@partial(jax.jit, static_argnames=("n_items", "criterion"), donate_argnames="forest")
def _grow(
    component: Component, forest: _Forest, n: Array, concentration: Array, until: Array, n_items: int, criterion: str
) -> _Forest:
    """Merge until `until` merges have been made or none is allowed.

    Every turn evaluates one row, of a new tree or of a stale one.
    """
    slots = forest.log_odds.shape[0]
    width = min(BLOCK, slots)
    scorer = _scorer(component, concentration, n_items, criterion)

    def turn(forest: _Forest) -> _Forest:
        trees, best = forest.trees, forest.best
        top = best.score.max()
        ties = best.score >= top - _tolerance(top)
        rescan = (ties & best.stale).any()
        merge = ~rescan
        # of the tied pairs the one with the smallest node numbers; of stale slots any
        low, high = jnp.minimum(trees.node, best.partner), jnp.maximum(trees.node, best.partner)
        ranks = jnp.where(rescan, jnp.where(best.stale, trees.node, _LAST), low * (2 * slots) + high)
        rank = jnp.where(ties, ranks, _LAST).min()
        first = jnp.where(rescan, rank, rank // (2 * slots))
        pair = jnp.stack([first, rank % (2 * slots)])
        slot, gone, last = forest.slot_of[pair[0]], forest.slot_of[pair[1]], forest.left - 1
        node = n + forest.step
        new, odds = scorer.merged(_at(trees, slot), _at(trees, gone), node)
        # the merged tree takes one slot of the two, the last tree the other
        home = jnp.where(merge & (slot == last), gone, slot)

        def join(_: Array, forest: _Forest) -> _Forest:
            moving = _at((forest.trees, forest.best), last)
            fresh = new, _Best(jnp.asarray(-jnp.inf), jnp.int64(0), jnp.bool_(False))
            columns = _put((forest.trees, forest.best), moving, gone)
            trees, best = _put(columns, fresh, home)
            return _Forest(
                trees,
                best._replace(score=_put(best.score, -jnp.inf, last)),
                _put(_put(forest.slot_of, gone, moving[0].node), home, node),
                last,
                forest.step + 1,
                jax.lax.dynamic_update_index_in_dim(forest.children, pair, forest.step, 0),
                _put(forest.log_odds, odds, forest.step),
            )

        # a loop of one turn or none changes its arrays where they are, where a choice of two results would copy them
        forest = jax.lax.fori_loop(0, merge.astype(int), join, forest)

        def block(b: Array, state: tuple[_Best, tuple[Array, Array]]) -> tuple[_Best, tuple[Array, Array]]:
            best, found = state
            start = b * width
            scores = scorer.block(forest.trees, forest.left, home, start, width)
            old = _cut(best, start, width)
            # others: their partner may have gone, and the new tree may be their best; its node number is the largest,
            # so it never wins a tie
            better = merge & (scores > old.score + _tolerance(scores))
            orphaned = merge & ((old.partner == pair[0]) | (old.partner == pair[1]))
            changed = _Best(
                jnp.where(better, scores, old.score),
                jnp.where(better, node, old.partner),
                (old.stale | orphaned) & ~better,
            )
            nodes = _cut(forest.trees.node, start, width)
            return _paste(best, changed, start), _better_of(found, _best_of(scores, nodes))

        nothing = jnp.asarray(-jnp.inf, scorer.log_gamma.dtype), jnp.int64(_LAST)
        blocks = (forest.left + width - 1) // width
        best, found = jax.lax.fori_loop(0, blocks, block, (forest.best, nothing))
        score, partner = found
        best = _put(best, _Best(score, partner, jnp.bool_(False)), home)
        return forest._replace(best=best)

    def unfinished(forest: _Forest) -> Array:
        return (forest.step < until) & (forest.best.score.max() > -jnp.inf)

    return jax.lax.while_loop(unfinished, turn, forest)


def _capacity(n: int) -> int:
    unit = 64 if n <= BLOCK else BLOCK
    return -(-n // unit) * unit


def _pad(leaf: np.ndarray, slots: int) -> np.ndarray:
    # padding repeats the first leaf, a valid value for any family; its slots are never active
    return np.concatenate([leaf, np.broadcast_to(leaf[:1], (slots - len(leaf), *leaf.shape[1:]))])


@jax.jit
def _row_statistics(component: Component, X: Array) -> Statistics:
    return component.suff_stats(X)


def row_leaves(component: Component, X: np.ndarray) -> Leaves:
    """Every row a leaf."""
    slots = _capacity(len(X))
    return Leaves(_row_statistics(component, _pad(np.asarray(X), slots)), np.ones(slots, int), len(X))


def cluster_leaves(component: Component, X: np.ndarray, labels: Int[np.ndarray, " n"]) -> Leaves:
    """Every cluster a leaf, in the order of the labels 0, 1, ...; it stands for its rows as one cluster."""
    k = int(labels.max()) + 1
    slots = _capacity(k)
    stats = _cluster_statistics(component, jnp.asarray(X), jnp.asarray(labels), slots)
    return Leaves(stats, np.bincount(labels, minlength=slots), k)


@partial(jax.jit, static_argnames="slots")
def _cluster_statistics(component: Component, X: Array, labels: Array, slots: int) -> Statistics:
    return cluster_statistics(component.suff_stats(X), labels, slots)


def agglomerate(
    component: Component,
    leaves: Leaves,
    concentration: float,
    criterion: str = "odds",
    groups: Int[np.ndarray, " n"] | None = None,
    progress_bar: bool = False,
) -> tuple[Int[np.ndarray, "m 2"], Float[np.ndarray, " m"]]:
    """Merge, again and again, the two trees with the largest score.

    Every tree remembers its best partner; when the partner is merged away the remembered score stays as an upper bound and
    the tree is evaluated again only once it comes out on top. Time O(n²) in practice, memory O(n). Call in float64.

    Parameters
    ----------
    component
        Conjugate component.
    leaves
        What is merged.
    concentration
        α of the Dirichlet process.
    criterion
        One of `CRITERIA`.
    groups
        (n,) labels: leaves are merged inside each group until every group is one tree, then the groups by their odds.
    progress_bar
        Whether to show a bar when there are many leaves.

    Returns
    -------
    children, log_odds
        As in `Dendrogram`: (n − 1, 2) node numbers, smaller first, and (n − 1,) log odds of each merge (nats).
    """
    n, slots = leaves.n, len(leaves.items)
    rows = bool((leaves.items[:n] == 1).all())
    n_items = slots if rows else _capacity(int(leaves.items[:n].sum()))
    size, alpha = np.asarray(n), np.asarray(concentration, float)
    group = np.zeros(slots, int)
    if groups is not None:
        group[:n] = groups
    forest = _plant(component, leaves.stats, leaves.items, group, size, alpha, n_items, criterion, rows)
    shown = progress_bar and n >= BAR_FROM
    chunk = max(n // 50, 1) if shown else n
    done = 0
    with tqdm(total=n - 1, desc="BHC", disable=not shown, unit="merge") as bar:
        while done < n - 1:
            goal = np.asarray(min(done + chunk, n - 1))
            forest = _grow(component, forest, size, alpha, goal, n_items, criterion)
            made = int(forest.step)
            if made < int(goal):  # every group is one tree
                criterion = "odds"
                forest = _release(component, forest, alpha, n_items, criterion)
            bar.update(made - done)
            done = made
    return np.asarray(forest.children)[: n - 1], np.asarray(forest.log_odds)[: n - 1]


def greedy_tree(
    component: Component, X: np.ndarray, concentration: float, progress_bar: bool = True
) -> tuple[Int[np.ndarray, "m 2"], Float[np.ndarray, " m"]]:
    """The paper's tree: always the merge with the largest posterior odds of being one cluster.

    Returns
    -------
    children, log_odds
        See `agglomerate`.

    Notes
    -----
    Heller & Ghahramani (2005), section 2, in log space: the pair with the largest r is the pair with the largest odds
    r/(1 − r), which do not saturate.
    """
    return agglomerate(component, row_leaves(component, X), concentration, progress_bar=progress_bar)
