"""Exact greedy agglomeration by XLA programs, for families without native kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.agglomeration.leaves import Leaves, Merges, undefined_score
from bnp_hier.deterministic.agglomeration.merge_scores import (
    LAST,
    MergeScore,
    MergeScorer,
    Trees,
    at,
    best_of,
    better_of,
    cut,
    leaf_trees,
    masked_scores,
    merge_scorer,
    paste,
    put,
    tolerance,
)
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.utils.progress_bars import ProgressBar

__all__ = ["BLOCK", "agglomerate_by_xla", "capacity", "leaf_statistics", "worst_pair"]

BLOCK = 512
"""Number of slots evaluated at once; capacities above it are multiples of it."""

PAIR_BLOCK = 128
"""Number of leaves on each side of a block of leaf pairs."""


class _Best(NamedTuple):
    """Best partner of each slot, as of its last evaluation.

    - **score** - largest score with another tree; only an upper bound where `stale`.
    - **partner** - node number of the tree with this score.
    - **stale** - whether the partner has been merged since.
    """

    score: Float[Array, "..."]
    partner: Int[Array, "..."]
    stale: Array


class _Forest(NamedTuple):
    """State of the agglomeration.

    - **trees**, **best** - one entry per slot; the first `left` slots are in use, the others have score −inf.
    - **slot_of** - slot of each node number.
    - **left** - number of remaining trees.
    - **step** - number of merges made.
    - **children**, **log_odds** - the merges made.
    - **evaluations** - number of pair scores computed so far.
    """

    trees: Trees
    best: _Best
    slot_of: Int[Array, " s2"]
    left: Int[Array, ""]
    step: Int[Array, ""]
    children: Int[Array, "s 2"]
    log_odds: Float[Array, " s"]
    evaluations: Int[Array, ""]


@partial(jax.jit, static_argnames="rows")
def _plant(by: MergeScore, stats: Statistics, items: Array, group: Array, n: Array, rows: bool) -> _Forest:
    """Make every leaf a separate tree and find its best partner; `rows` means that every leaf is a single row."""
    scorer = merge_scorer(by)
    slots = items.shape[0]
    trees = leaf_trees(scorer, stats, items, group, n)
    best = _pair_up_rows(by.component, scorer, trees, n, stats) if rows else _pair_up(scorer, trees, n)
    zero, children, log_odds = jnp.int64(0), jnp.zeros((slots, 2), int), jnp.zeros(slots)
    pairs = n * (n - 1) // 2 if rows else n * (n - 1)
    return _Forest(trees, best, jnp.tile(trees.node, 2), n, zero, children, log_odds, pairs)


def _alone(slots: int) -> _Best:
    return _Best(jnp.full(slots, -jnp.inf), jnp.zeros(slots, int), jnp.zeros(slots, bool))


def _pair_up(scorer: MergeScorer, trees: Trees, left: Array) -> _Best:
    """Find the best partner of every slot, computing the scores of one slot with all others at a time."""
    slots = trees.node.shape[0]

    def one(slot: Array, best: _Best) -> _Best:
        scores = scorer.block(trees, left, slot, jnp.int64(0), slots)
        return put(best, _Best(*best_of(scores, trees.node), jnp.bool_(False)), slot)

    return jax.lax.fori_loop(0, left, one, _alone(slots))


def _pair_up_rows(component: Component, scorer: MergeScorer, trees: Trees, left: Array, rows: Statistics) -> _Best:
    """Find the best partner of every slot if all trees are single rows, scoring every pair once, in blocks."""
    slots = trees.node.shape[0]
    width = min(PAIR_BLOCK, slots)
    blocks = (left + width - 1) // width

    def part(k: Array) -> Statistics:
        return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, k * width, width, 0), rows)

    def block(one: Array, two: Array, best: _Best) -> _Best:
        a, b = (cut(trees._replace(stats=()), k * width, width) for k in (one, two))
        joint = component.log_marginal_of_row_pairs(part(one), part(two))
        scores = scorer.score(joint, jax.tree.map(lambda leaf: leaf[:, None], a), jax.tree.map(lambda leaf: leaf[None], b))
        possible = (a.node[:, None] < b.node[None]) & (b.node < left)[None] & (a.group[:, None] == b.group[None])
        scores = masked_scores(scores, possible)
        for side, table, nodes in ((one, scores, b.node), (two, scores.T, a.node)):
            old = cut(best, side * width, width)
            new = better_of((old.score, old.partner), best_of(table, nodes))
            best = paste(best, _Best(*new, old.stale), side * width)
        return best

    def row_of_blocks(one: Array, best: _Best) -> _Best:
        return jax.lax.fori_loop(one, blocks, lambda two, best: block(one, two, best), best)

    return jax.lax.fori_loop(0, blocks, row_of_blocks, _alone(slots))


@jax.jit
def _release(by: MergeScore, forest: _Forest) -> _Forest:
    """Allow all trees to be merged, irrespective of their groups."""
    scorer = merge_scorer(by)
    trees = forest.trees._replace(group=jnp.zeros_like(forest.trees.group))
    pairs = forest.left * (forest.left - 1)
    return forest._replace(trees=trees, best=_pair_up(scorer, trees, forest.left), evaluations=forest.evaluations + pairs)


@partial(jax.jit, donate_argnames="forest")
def _grow(by: MergeScore, forest: _Forest, n: Array, until: Array) -> _Forest:
    """Merge until `until` merges have been made or no merge is allowed.

    Every turn evaluates the scores of one tree, either a newly merged or a stale one, with all others.
    """
    slots = forest.log_odds.shape[0]
    width = min(BLOCK, slots)
    scorer = merge_scorer(by)

    def turn(forest: _Forest) -> _Forest:
        trees, best = forest.trees, forest.best
        top = best.score.max()
        ties = best.score >= top - tolerance(top)
        rescan = (ties & best.stale).any()
        merge = ~rescan
        # among tied pairs, take the one with the smallest node numbers; if there are stale slots, rescan one of them instead
        low, high = jnp.minimum(trees.node, best.partner), jnp.maximum(trees.node, best.partner)
        ranks = jnp.where(rescan, jnp.where(best.stale, trees.node, LAST), low * (2 * slots) + high)
        rank = jnp.where(ties, ranks, LAST).min()
        first = jnp.where(rescan, rank, rank // (2 * slots))
        pair = jnp.stack([first, rank % (2 * slots)])
        slot, gone, last = forest.slot_of[pair[0]], forest.slot_of[pair[1]], forest.left - 1
        node = n + forest.step
        new, odds = scorer.merged(at(trees, slot), at(trees, gone), node)
        # the merged tree is stored in one of the two slots, and the last tree moves to the other
        home = jnp.where(merge & (slot == last), gone, slot)

        def join(_: Array, forest: _Forest) -> _Forest:
            moving = at((forest.trees, forest.best), last)
            fresh = new, _Best(jnp.asarray(-jnp.inf), jnp.int64(0), jnp.bool_(False))
            columns = put((forest.trees, forest.best), moving, gone)
            trees, best = put(columns, fresh, home)
            return _Forest(
                trees,
                best._replace(score=put(best.score, -jnp.inf, last)),
                put(put(forest.slot_of, gone, moving[0].node), home, node),
                last,
                forest.step + 1,
                jax.lax.dynamic_update_index_in_dim(forest.children, pair, forest.step, 0),
                put(forest.log_odds, odds, forest.step),
                forest.evaluations,
            )

        # a loop of zero or one iterations updates its arrays in place, whereas a conditional would copy them
        forest = jax.lax.fori_loop(0, merge.astype(int), join, forest)

        def block(b: Array, state: tuple[_Best, tuple[Array, Array]]) -> tuple[_Best, tuple[Array, Array]]:
            best, found = state
            start = b * width
            scores = scorer.block(forest.trees, forest.left, home, start, width)
            old = cut(best, start, width)
            # the partner of another tree may have been merged, or the new tree may be its best partner; the new tree has the
            # largest node number, so it never wins a tie
            better = merge & (scores > old.score + tolerance(scores))
            orphaned = merge & ((old.partner == pair[0]) | (old.partner == pair[1]))
            changed = _Best(
                jnp.where(better, scores, old.score),
                jnp.where(better, node, old.partner),
                (old.stale | orphaned) & ~better,
            )
            nodes = cut(forest.trees.node, start, width)
            return paste(best, changed, start), better_of(found, best_of(scores, nodes))

        nothing = jnp.asarray(-jnp.inf, scorer.log_gamma.dtype), jnp.int64(LAST)
        blocks = (forest.left + width - 1) // width
        best, found = jax.lax.fori_loop(0, blocks, block, (forest.best, nothing))
        score, partner = found
        best = put(best, _Best(score, partner, jnp.bool_(False)), home)
        return forest._replace(best=best, evaluations=forest.evaluations + forest.left - 1)

    def unfinished(forest: _Forest) -> Array:
        top = forest.best.score.max()
        return (forest.step < until) & (top > -jnp.inf) & (top < jnp.inf)

    # every turn makes a merge or rescans one stale slot, so there are at most as many turns between merges as there are slots
    return jax.lax.while_loop(unfinished, turn, forest)


@jax.jit
def _scores_of(by: MergeScore, trees: Trees, left: Array, slot: Array) -> Float[Array, " s"]:
    """Scores of merging the tree in a slot with each tree in the other slots."""
    scorer = merge_scorer(by)
    return scorer.block(trees, left, slot, jnp.int64(0), trees.node.shape[0])


def worst_pair(by: MergeScore, trees: Trees, left: int, slot: int) -> tuple[int, int]:
    """Return the nodes of two trees without a finite score.

    Parameters
    ----------
    by, trees, left
        Merge score, remaining trees, and their number.
    slot
        Slot of a tree that has no finite score with some other tree.
    """
    scores = np.array(_scores_of(by, trees, np.asarray(left), np.asarray(slot)))[:left]
    scores[slot] = -np.inf  # a tree is not merged with itself
    other = int(scores.argmax()) if scores.max() == np.inf else int(slot == 0)
    first, second = sorted((slot, other))
    return int(trees.node[first]), int(trees.node[second])


def capacity(n: int) -> int:
    """Number of slots for n trees, rounded up so that few programs are compiled."""
    unit = 64 if n <= BLOCK else BLOCK
    return -(-n // unit) * unit


def _pad(leaf: np.ndarray, slots: int) -> np.ndarray:
    # padding repeats the first leaf, which is a valid value for every family; the padded slots are never active
    return np.concatenate([leaf, np.broadcast_to(leaf[:1], (slots - len(leaf), *leaf.shape[1:]))])


@jax.jit
def _row_statistics(component: Component, X: Array) -> Statistics:
    return component.suff_stats(X)


def leaf_statistics(component: Component, leaves: Leaves) -> tuple[Statistics, Int[np.ndarray, " s"]]:
    """Sufficient statistics and numbers of rows of the leaves, padded to a capacity."""
    slots = capacity(leaves.n)
    if len(leaves.X) == leaves.n:
        return _row_statistics(component, _pad(leaves.X, slots)), np.ones(slots, int)
    stats = _cluster_statistics(component, jnp.asarray(leaves.X), jnp.asarray(leaves.labels), slots)
    return stats, np.bincount(leaves.labels, minlength=slots)


@partial(jax.jit, static_argnames="slots")
def _cluster_statistics(component: Component, X: Array, labels: Array, slots: int) -> Statistics:
    return cluster_statistics(component.suff_stats(X), labels, slots)


def agglomerate_by_xla(
    component: Component,
    leaves: Leaves,
    concentration: float,
    criterion: str,
    groups: Int[np.ndarray, " n"] | None,
    bar: ProgressBar,
) -> Merges:
    """Merge trees greedily; see `greedy_merging.agglomerate`. The progress bar is updated after each part of the merges."""
    n = leaves.n
    stats, items = leaf_statistics(component, leaves)
    slots = len(items)
    rows = len(leaves.X) == n
    n_items = slots if rows else capacity(len(leaves.X))
    size, by = np.asarray(n), MergeScore(component, np.asarray(concentration, float), criterion, n_items)
    group = np.zeros(slots, int)
    if groups is not None:
        group[:n] = groups
    forest = _plant(by, stats, items, group, size, rows)
    chunk = n if bar.disable else max(n // 50, 1)
    done, apart = 0, groups is not None
    while done < n - 1:
        goal = np.asarray(min(done + chunk, n - 1))
        forest = _grow(by, forest, size, goal)
        made = int(forest.step)
        if made < int(goal):
            score = np.asarray(forest.best.score)[: int(forest.left)]
            if score.max() == np.inf or not apart:
                pair = worst_pair(by, forest.trees, len(score), int(score.argmax()))
                raise undefined_score(component, leaves, pair, np.asarray(forest.children))
            # every group has become one tree
            by, apart = replace(by, criterion="odds"), False
            forest = _release(by, forest)
        bar.update(made - done)
        done = made
    return Merges(np.asarray(forest.children)[: n - 1], np.asarray(forest.log_odds)[: n - 1], int(forest.evaluations))
