"""Exact greedy agglomeration with conga lines, Eppstein's data structure for dynamic closest pairs."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.agglomeration.leaves import BAR_FROM, Leaves, Merges, undefined_score
from bnp_hier.deterministic.agglomeration.merge_scores import (
    LAST,
    TIE,
    MergeScore,
    Trees,
    at,
    best_of,
    better_of,
    cut,
    leaf_trees,
    merge_scorer,
    put,
)
from bnp_hier.deterministic.agglomeration.xla_merging import BLOCK, capacity, leaf_statistics, worst_pair
from bnp_hier.utils.progress_bars import ProgressBar

__all__ = ["conga_line_merges"]


class _Line(NamedTuple):
    """A conga line under construction: a path through the slots.

    - **free** - mask of the slots in use that are not on the line.
    - **order** - slots on the line, in order; entries from `length` on are meaningless.
    - **scores** - score of each slot on the line with the next one.
    - **length** - number of slots on the line.
    - **evaluations** - number of scores computed so far.
    """

    free: Bool[Array, " s"]
    order: Int[Array, " s"]
    scores: Float[Array, " s"]
    length: Int[Array, ""]
    evaluations: Int[Array, ""]


@jax.jit
def _plant(by: MergeScore, stats: Statistics, items: Array, n: Array) -> Trees:
    return leaf_trees(merge_scorer(by), stats, items, jnp.zeros_like(items), n)


@jax.jit
def _draw(by: MergeScore, trees: Trees, left: Array, members: Bool[Array, " s"]) -> _Line:
    """Build the conga line of a subset.

    From a member of the subset, the line continues to the best partner that is not on the line yet; from a non-member, to the
    best such member. It ends when there is no candidate left. Every step scores one tree with all others at once.
    """
    scorer = merge_scorer(by)
    slots = members.shape[0]
    width = min(BLOCK, slots)

    def candidates(line: _Line) -> Bool[Array, " s"]:
        return line.free & (members | members[line.order[line.length - 1]])

    def step(line: _Line) -> _Line:
        here, wanted = line.order[line.length - 1], candidates(line)

        def block(b: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
            start = b * width
            scores = jnp.where(cut(wanted, start, width), scorer.block(trees, left, here, start, width), -jnp.inf)
            return better_of(found, best_of(scores, cut(trees.node, start, width)))

        nothing = jnp.asarray(-jnp.inf, scorer.log_gamma.dtype), jnp.int64(LAST)
        score, partner = jax.lax.fori_loop(0, (left + width - 1) // width, block, nothing)
        there = jnp.argmax(wanted & (trees.node == partner))
        return _Line(
            line.free.at[there].set(False),
            line.order.at[line.length].set(there),
            line.scores.at[line.length - 1].set(score),
            line.length + 1,
            line.evaluations + wanted.sum(),
        )

    first = jnp.argmin(jnp.where(members, trees.node, LAST))
    start = _Line(
        (jnp.arange(slots) < left).at[first].set(False),
        jnp.zeros(slots, first.dtype).at[0].set(first),
        jnp.full(slots, -jnp.inf, scorer.log_gamma.dtype),
        jnp.int64(1),
        jnp.int64(0),
    )
    return jax.lax.while_loop(lambda line: candidates(line).any() & (line.length < slots), step, start)


@partial(jax.jit, donate_argnames="trees")
def _join(by: MergeScore, trees: Trees, pair: Array, last: Array, node: Array) -> tuple[Trees, Float[Array, ""]]:
    """Merge the trees of two slots into the first slot and move the last tree to the second; also return the log odds."""
    scorer = merge_scorer(by)
    new, odds = scorer.merged(at(trees, pair[0]), at(trees, pair[1]), node)
    trees = put(trees, at(trees, last), pair[1])
    return put(trees, new, jnp.where(pair[0] == last, pair[1], pair[0])), odds


class _Edges(NamedTuple):
    """Edges of conga lines: the subset of the line, the tail and head nodes, and their score."""

    subset: Int[np.ndarray, " e"]
    tail: Int[np.ndarray, " e"]
    head: Int[np.ndarray, " e"]
    score: Float[np.ndarray, " e"]

    def where(self, keep: Bool[np.ndarray, " e"]) -> _Edges:
        """Select edges by a mask."""
        return _Edges(*(column[keep] for column in self))

    def best(self, nodes: int) -> tuple[int, int]:
        """Nodes of the edge with the largest score, smaller number first; ties go to the smallest node numbers."""
        top = self.score.max()
        tied = self.score >= top - TIE * max(1.0, abs(top))
        low, high = np.minimum(self.tail, self.head)[tied], np.maximum(self.tail, self.head)[tied]
        return divmod(int((low * nodes + high).min()), nodes)


class _Subsets:
    """Partition of the n remaining trees into at most log2(n) subsets, numbered by age, each with its conga line.

    For any two trees, the line of the younger of their subsets has an edge that scores at least as high as the pair itself;
    therefore the best edge overall is the best pair. The edge starts at whichever of the two trees comes first on the line,
    and a tree whose edge loses its other end is moved to a new subset.
    """

    def __init__(self, n: int) -> None:
        self.of = np.full(2 * n - 1, -1)  # -1: merged already, or not created yet
        self.of[:n] = 0
        self.count = 1  # number of subsets created so far
        nothing = np.zeros(0, int)
        self.edges = _Edges(nothing, nothing, nothing, np.zeros(0))

    def _found(self, nodes: Int[np.ndarray, " m"]) -> None:
        self.of[nodes] = self.count
        self.count += 1

    def replace(self, pair: tuple[int, int], node: int) -> list[int]:
        """Replace two nodes by one; returns the subsets that now need a line, oldest first."""
        oldest = self.count
        gone = np.isin(self.edges.head, pair)
        orphans = np.setdiff1d(self.edges.tail[gone], pair)
        self.of[list(pair)] = -1
        if len(orphans):
            self._found(orphans)
        self._found(np.array([node]))
        subsets, sizes = np.unique(self.of[self.of >= 0], return_counts=True)
        while len(subsets) > max(1, int(sizes.sum()).bit_length() - 1):
            order = np.argsort(sizes, kind="stable")
            closest = int((sizes[order][1:] / sizes[order][:-1]).argmin())
            self._found(np.flatnonzero(np.isin(self.of, subsets[order[closest : closest + 2]])))
            subsets, sizes = np.unique(self.of[self.of >= 0], return_counts=True)
        # the edge of a tree remains valid only if its line is not older than the tree's subset
        whose = self.of[self.edges.tail]
        here = (whose >= 0) & (self.of[self.edges.head] >= 0) & np.isin(self.edges.subset, subsets)
        self.edges = self.edges.where(here & (self.edges.subset >= whose))
        return [int(subset) for subset in subsets if subset >= oldest]

    def add(self, subset: int, path: Int[np.ndarray, " p"], scores: Float[np.ndarray, " p"]) -> None:
        """Add the line of a subset, given its nodes and the score of each with the next one."""
        new = _Edges(np.full(len(path) - 1, subset), path[:-1], path[1:], scores[:-1])
        self.edges = _Edges(*map(np.concatenate, zip(self.edges, new, strict=True)))


def conga_line_merges(
    component: Component, leaves: Leaves, concentration: float, criterion: str = "odds", progress_bar: bool = False
) -> Merges:
    """Repeatedly merge the two trees with the largest score; makes the same merges as `agglomerate`.

    Computes O(n log² n) scores per merge, amortised, in O(n) memory, for any score of pairs. Call in float64.

    Parameters
    ----------
    component
        Conjugate component.
    leaves
        Rows or clusters to merge.
    concentration
        α of the Dirichlet process.
    criterion
        One of `CRITERIA`.
    progress_bar
        Whether to show a progress bar if there are many leaves.

    Raises
    ------
    ValueError
        If a merge has no finite score; the message names the pair.

    Notes
    -----
    Eppstein (2000), Fast hierarchical clustering and other applications of dynamic closest pairs. The two deletions and the
    insertion of a merge are made together, and new lines are built only after subsets have been combined until they are few
    enough again.
    """
    n = leaves.n
    stats, items = leaf_statistics(component, leaves)
    slots = len(items)
    n_items = max(slots, capacity(len(leaves.X)))
    by = MergeScore(component, np.asarray(concentration, float), criterion, n_items)
    trees = _plant(by, stats, items, np.asarray(n))
    node, slot = np.arange(slots), np.tile(np.arange(slots), 2)
    subsets = _Subsets(n)
    children, log_odds, evaluations = np.zeros((n - 1, 2), int), [], 0
    fresh = [0]
    for t in ProgressBar(range(n - 1), desc="conga lines", disable=not (progress_bar and n >= BAR_FROM), unit="merge"):
        left = n - t
        for subset in fresh:
            members = np.zeros(slots, bool)
            members[slot[np.flatnonzero(subsets.of == subset)]] = True
            line = _draw(by, trees, np.asarray(left), members)
            length = int(line.length)
            steps = np.asarray(line.scores)[: length - 1]
            if (steps == np.inf).any():
                tail = int(line.order[steps.argmax()])
                raise undefined_score(component, leaves, worst_pair(by, trees, left, tail), children)
            subsets.add(subset, node[np.asarray(line.order)[:length]], np.asarray(line.scores)[:length])
            evaluations += int(line.evaluations)
        if subsets.edges.score.max() == -np.inf:
            tail = int(slot[subsets.edges.tail[0]])
            raise undefined_score(component, leaves, worst_pair(by, trees, left, tail), children)
        pair, last = subsets.edges.best(2 * n), left - 1
        places = slot[list(pair)]
        trees, odds = _join(by, trees, places, np.asarray(last), np.asarray(n + t))
        home = places[1] if places[0] == last else places[0]
        node[places[1]], slot[node[last]] = node[last], places[1]
        node[home], slot[n + t] = n + t, home
        children[t] = pair
        log_odds.append(odds)
        fresh = subsets.replace(pair, n + t)
    return Merges(children, np.array(log_odds, float), evaluations)
