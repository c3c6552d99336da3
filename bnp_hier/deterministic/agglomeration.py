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

CRITERIA = ("odds", "ratio", "normalised")
"""Merge scores: posterior odds of one cluster (the paper's), marginal likelihood ratio, and that ratio per √size."""

BLOCK = 256
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


class _Forest(NamedTuple):
    """Trees still to be merged, in the first `trees` slots.

    - **stats** - statistics of each slot, the slot axis last, so that every statistic is contiguous.
    - **mass** - φ of each slot: log mass of all tree-consistent partitions of its items.
    - **marginal** - log marginal likelihood of each slot's items as one cluster.
    - **items** - number of items of each slot.
    - **node** - node number of each slot.
    - **group** - only slots of one group are merged.
    - **best** - for each slot, the largest score with another; an upper bound where `stale`.
    - **partner** - the slot that gives `best`.
    - **stale** - whether the partner has gone since `best` was found.
    - **trees** - number of trees left.
    - **step** - number of merges made.
    - **rescans** - number of times a stale slot was evaluated again.
    - **children**, **log_odds** - the merges made.
    """

    stats: Statistics
    mass: Float[Array, " s"]
    marginal: Float[Array, " s"]
    items: Int[Array, " s"]
    node: Int[Array, " s"]
    group: Int[Array, " s"]
    best: Float[Array, " s"]
    partner: Int[Array, " s"]
    stale: Array
    trees: Int[Array, ""]
    step: Int[Array, ""]
    rescans: Int[Array, ""]
    children: Int[Array, "s 2"]
    log_odds: Float[Array, " s"]


class _Scorer(NamedTuple):
    """Scores of merging two trees; see `CRITERIA`.

    With N the number of items of the pair, "odds" is log α + lgamma(N) + m(D_i ∪ D_j) − φ_i − φ_j, and "ratio" is
    m(D_i ∪ D_j) − m(D_i) − m(D_j).
    """

    log_marginal: Any
    log_alpha: Float[Array, ""]
    log_gamma: Float[Array, " counts"]
    criterion: str

    def score(self, joint: Array, a: _Forest, b: _Forest, criterion: str | None = None) -> Float[Array, "..."]:
        """Score of pairs from the log marginal likelihood of their unions; the slots' fields broadcast."""
        criterion = criterion or self.criterion
        if criterion == "odds":
            return self.log_alpha + self.log_gamma[a.items + b.items] + joint - a.mass - b.mass
        ratio = joint - a.marginal - b.marginal
        if criterion == "ratio":
            return ratio
        return ratio * jax.lax.rsqrt(a.items * b.items / (a.items + b.items).astype(ratio.dtype))

    def pair(self, forest: _Forest, i: Array, j: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Log odds of one merge, and the log marginal likelihood of its union."""
        joint = self.log_marginal(jax.tree.map(lambda leaf: leaf[..., i] + leaf[..., j], forest.stats))
        return self.score(joint, _slots(forest, i), _slots(forest, j), "odds"), joint

    def row(self, forest: _Forest, slot: Array) -> Float[Array, " s"]:
        """Scores of a slot with every other one it may be merged with, −inf elsewhere."""
        slots = forest.mass.shape[0]
        width = min(BLOCK, slots)
        one = _slots(forest, slot)
        own = jax.tree.map(lambda leaf: leaf[..., slot, None], forest.stats)

        def block(b: Array, out: Array) -> Array:
            start = b * width
            part = partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=width, axis=-1)
            # the slot axis goes first as components expect; the transpose is fused away
            joint = jax.tree.map(lambda leaf, mine: jnp.moveaxis(part(leaf) + mine, -1, 0), forest.stats, own)
            others = jax.tree.map(part, _fields(forest))
            scores = self.score(self.log_marginal(joint), others, one)
            index = start + jnp.arange(width)
            possible = (index < forest.trees) & (index != slot) & (others.group == one.group)
            return jax.lax.dynamic_update_slice_in_dim(out, jnp.where(possible, scores, -jnp.inf), start, 0)

        empty = jnp.full(slots, -jnp.inf)
        return jax.lax.fori_loop(0, (forest.trees + width - 1) // width, block, empty)


def _fields(forest: _Forest) -> _Forest:
    """The fields that scores read, one entry per slot; the others are left empty."""
    blank = _Forest(*[()] * len(_Forest._fields))  # type: ignore[arg-type]
    names = ("mass", "marginal", "items", "node", "group")
    return blank._replace(**{name: getattr(forest, name) for name in names})


def _slots(forest: _Forest, index: Any) -> _Forest:
    return jax.tree.map(lambda leaf: leaf[index], _fields(forest))


def _tolerance(score: Float[Array, "..."]) -> Float[Array, "..."]:
    return TIE * jnp.maximum(1.0, jnp.abs(score))


_LAST = np.iinfo(np.int64).max


def _best_of(scores: Float[Array, "*b s"], node: Int[Array, " s"]) -> tuple[Float[Array, "*b"], Int[Array, "*b"]]:
    """Largest score along the last axis, and its index: of tied ones, the smallest node number."""
    best = scores.max(-1)
    ties = scores >= (best - _tolerance(best))[..., None]
    return best, jnp.argmin(jnp.where(ties, node, _LAST), axis=-1)


def _scorer(component: Component, concentration: Array, n_items: int, criterion: str) -> _Scorer:
    log_gamma = gammaln(jnp.arange(n_items + 1).astype(float))
    return _Scorer(component.log_marginal_up_to(n_items), jnp.log(concentration), log_gamma, criterion)


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
    forest = _Forest(
        stats=jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), stats),
        mass=scorer.log_alpha + scorer.log_gamma[jnp.where(active, items, 1)] + marginal,
        marginal=marginal,
        items=jnp.where(active, items, 0),
        node=index,
        group=group,
        best=jnp.full(slots, -jnp.inf),
        partner=index,
        stale=jnp.zeros(slots, bool),
        trees=n,
        step=jnp.int64(0),
        rescans=jnp.int64(0),
        children=jnp.zeros((slots, 2), int),
        log_odds=jnp.zeros(slots),
    )
    return _pair_up_rows(component, scorer, forest, stats) if rows else _pair_up(scorer, forest)


def _pair_up(scorer: _Scorer, forest: _Forest) -> _Forest:
    """Best partner of every slot, one row of scores at a time."""
    slots = forest.mass.shape[0]

    def one(slot: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        best, partner = _best_of(scorer.row(forest, slot), forest.node)
        return found[0].at[slot].set(best), found[1].at[slot].set(partner)

    best, partner = jax.lax.fori_loop(0, forest.trees, one, (jnp.full(slots, -jnp.inf), jnp.arange(slots)))
    return forest._replace(best=best, partner=partner, stale=jnp.zeros(slots, bool))


def _pair_up_rows(component: Component, scorer: _Scorer, forest: _Forest, rows: Statistics) -> _Forest:
    """Best partner of every slot when all slots are single rows: every pair once, in blocks."""
    slots = forest.mass.shape[0]
    width = min(PAIR_BLOCK, slots)
    fields = _fields(forest)
    blocks = (forest.trees + width - 1) // width

    def cut(tree: Any, b: Array) -> Any:
        return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, b * width, width, 0), tree)

    def update(found: tuple[Array, Array], b: Array, best: Array, partner: Array) -> tuple[Array, Array]:
        old_best, old_partner = cut(found, b)
        # blocks come in the order of their node numbers: of tied partners the older one stays
        better = best > old_best + _tolerance(best)
        new = jnp.maximum(best, old_best), jnp.where(better, partner, old_partner)
        write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=b * width, axis=0)
        return write(found[0], new[0]), write(found[1], new[1])

    def block(left: Array, right: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = cut(fields, left), cut(fields, right)
        joint = component.log_marginal_of_row_pairs(cut(rows, left), cut(rows, right))
        scores = scorer.score(joint, jax.tree.map(lambda leaf: leaf[:, None], a), b)
        possible = (a.node[:, None] < b.node) & (b.node < forest.trees) & (a.group[:, None] == b.group)
        scores = jnp.where(possible, scores, -jnp.inf)
        for side, table, nodes in ((left, scores, b.node), (right, scores.T, a.node)):
            best, partner = _best_of(table, nodes)
            found = update(found, side, best, nodes[partner])
        return found

    def left_block(left: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        return jax.lax.fori_loop(left, blocks, lambda right, found: block(left, right, found), found)

    start = jnp.full(slots, -jnp.inf), jnp.arange(slots)
    best, partner = jax.lax.fori_loop(0, blocks, left_block, start)
    return forest._replace(best=best, partner=partner)


@partial(jax.jit, static_argnames=("n_items", "criterion"))
def _release(component: Component, forest: _Forest, concentration: Array, n_items: int, criterion: str) -> _Forest:
    """Let all trees merge, whatever their group."""
    scorer = _scorer(component, concentration, n_items, criterion)
    return _pair_up(scorer, forest._replace(group=jnp.zeros_like(forest.group)))


@partial(jax.jit, static_argnames=("n_items", "criterion"), donate_argnames="forest")
def _grow(
    component: Component, forest: _Forest, n: Array, concentration: Array, until: Array, n_items: int, criterion: str
) -> _Forest:
    """Merge until `until` merges have been made or none is allowed.

    Every turn evaluates one row, of a new tree or of a stale one.
    """
    slots = forest.mass.shape[0]
    index = jnp.arange(slots)
    scorer = _scorer(component, concentration, n_items, criterion)

    def turn(forest: _Forest) -> _Forest:
        top = forest.best.max()
        ties = forest.best >= top - _tolerance(top)
        stale = ties & forest.stale
        rescan = stale.any()
        merge = ~rescan

        def first_of_ties() -> Array:
            """The pair with the smallest node numbers."""
            partner = forest.node[forest.partner]
            low, high = jnp.minimum(forest.node, partner), jnp.maximum(forest.node, partner)
            return jnp.where(rescan, jnp.argmax(stale), jnp.argmin(jnp.where(ties, low * (2 * slots) + high, _LAST)))

        # as a rule only the two trees of one pair are on top
        slot = jax.lax.cond(rescan | (ties.sum() > 2), first_of_ties, lambda: jnp.argmax(forest.best))
        gone = forest.partner[slot]
        pair = jnp.sort(jnp.stack([forest.node[slot], forest.node[gone]]))
        last = forest.trees - 1
        step = forest.step

        def keep(new: Array, old: Array) -> Array:
            return jnp.where(merge, new, old)

        odds, joint = scorer.pair(forest, slot, gone)
        mass = forest.mass[slot] + forest.mass[gone] + jnp.logaddexp(odds, 0.0)

        def moved(leaf: Array, value: Array) -> Array:
            """The merged tree takes one slot of the two, and the last tree the other."""
            # everything is read first: then the array is changed where it is, without a copy
            first, second = keep(value, leaf[..., slot]), keep(leaf[..., last], leaf[..., gone])
            second = jnp.where(merge & (slot == last), first, second)
            return leaf.at[..., slot].set(first).at[..., gone].set(second)

        # if the merged tree itself sits in the last slot it moves to the freed one
        home = keep(jnp.where(slot == last, gone, slot), slot)
        grown = forest._replace(
            stats=jax.tree.map(lambda leaf: moved(leaf, leaf[..., slot] + leaf[..., gone]), forest.stats),
            mass=moved(forest.mass, mass),
            marginal=moved(forest.marginal, joint),
            items=moved(forest.items, forest.items[slot] + forest.items[gone]),
            node=moved(forest.node, n + step),
            group=moved(forest.group, forest.group[slot]),
            trees=forest.trees - merge,
            children=forest.children.at[step].set(keep(pair, forest.children[step])),
            log_odds=forest.log_odds.at[step].set(keep(odds, forest.log_odds[step])),
            step=step + merge,
            rescans=forest.rescans + rescan,
        )
        row = scorer.row(grown, home)
        row_best, row_partner = _best_of(row, grown.node)
        # others: their partner may have gone, and the new tree may be their best; its node number is the largest,
        # so it never wins a tie
        orphaned = moved(forest.stale | (merge & ((forest.partner == slot) | (forest.partner == gone))), jnp.bool_(False))
        best = moved(forest.best, row_best)
        partner = moved(forest.partner, row_partner)
        partner = jnp.where(merge & (partner == last), gone, partner)
        better = merge & (row > best + _tolerance(row))
        active = index < grown.trees
        return grown._replace(
            best=jnp.where(active, jnp.where(better, row, best), -jnp.inf).at[home].set(row_best),
            partner=jnp.where(better, home, partner).at[home].set(row_partner),
            stale=(~better & orphaned & active).at[home].set(False),
        )

    def unfinished(forest: _Forest) -> Array:
        return (forest.step < until) & (forest.best.max() > -jnp.inf)

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
