"""Exact greedy agglomeration by a merge score, without storing a matrix of pairs."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.leaves import BAR_FROM, Leaves, Merges, row_leaves, undefined_score
from bnp_hier.deterministic.agglomeration.merge_scores import Forest, forest_of_leaves, tolerance
from bnp_hier.partitions.clusters import row_length
from bnp_hier.partitions.engine import has_kernels, kernel_arguments
from bnp_hier.utils.progress_bars import ProgressBar

__all__ = ["agglomerate", "greedy_tree", "merge_greedily"]

WORK_PER_CALL = 300_000_000
"""Sufficient statistics read in one call of the kernel, which Ctrl-C does not interrupt."""


def agglomerate(
    component: Component,
    leaves: Leaves,
    concentration: float,
    criterion: str = "odds",
    groups: Int[np.ndarray, " n"] | None = None,
    progress_bar: bool = False,
) -> Merges:
    """Repeatedly merge the two trees with the largest score; `merge_greedily` is the plain form.

    Every tree stores its best partner. When the partner is merged, the stored score remains as an upper bound and the tree is
    evaluated again only when this bound is the largest score. O(n²) time in practice and O(n) memory. Call in float64.

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
    groups
        (n,) group labels, from 0. If given, leaves are first merged inside each group until every group is one tree, and then
        the groups are merged by their odds.
    progress_bar
        Whether to show a progress bar if there are many leaves.

    Returns
    -------
    merges
        The tree.

    Raises
    ------
    ValueError
        If a merge has no finite score because a log marginal likelihood is not finite; the message names the pair.
    """
    if leaves.n == 1:
        return Merges(np.empty((0, 2), int), np.empty(0), 0)
    with ProgressBar(
        total=leaves.n - 1, desc="BHC", disable=not (progress_bar and leaves.n >= BAR_FROM), unit="merge", leave=True
    ) as bar:
        if has_kernels(component):
            return _Agglomeration(component, leaves, concentration, criterion, groups).run(bar)
        return merge_greedily(forest_of_leaves(component, leaves, concentration), criterion, groups, bar)


def merge_greedily(
    forest: Forest, criterion: str = "odds", groups: Int[np.ndarray, " n"] | None = None, bar: ProgressBar | None = None
) -> Merges:
    """Make the merges of `agglomerate` from the statistics of the leaves; this plain form serves families without kernels."""
    n, nodes = len(forest.names), len(forest.alive)
    group = np.zeros(nodes, int)
    if groups is not None:
        group[:n] = groups
    # best partner of each tree and its score, only an upper bound if the partner has been merged since
    best, partner = np.full(nodes, -np.inf), np.zeros(nodes, int)

    def visit(node: int, first: int = 0) -> None:
        """Score a tree with those from `first` on, and remember the better partners."""
        others = first + np.flatnonzero(forest.alive[first:] & (group[first:] == group[node]))
        others = others[others != node]
        if not len(others):
            return
        scores = forest.scores(node, others, criterion)
        top = scores.max()
        better = scores > best[others] + tolerance(scores)
        best[others[better]], partner[others[better]] = scores[better], node
        if top > best[node] + tolerance(top):
            best[node], partner[node] = top, others[scores >= top - tolerance(top)].min()

    def visit_pairs() -> None:
        for node in np.flatnonzero(forest.alive).tolist():
            visit(node, node + 1)

    visit_pairs()
    while forest.alive[:-1].any():
        top = best.max()
        if top == -np.inf:
            if groups is None:
                raise forest.undefined(*np.flatnonzero(forest.alive)[:2])
            group[:], groups, criterion = 0, None, "odds"  # every group has become one tree
            visit_pairs()
            continue
        tied = np.flatnonzero(best >= top - tolerance(top))
        stale = tied[~forest.alive[partner[tied]]]
        if len(stale):
            best[stale[0]] = -np.inf
            visit(stale[0])
            continue
        pairs = np.sort(np.column_stack([tied, partner[tied]]))
        pair = pairs[np.lexsort(pairs.T[::-1])[0]]
        node = forest.merge(*pair)
        best[pair], group[node] = -np.inf, group[pair[0]]
        visit(node)
        if bar is not None:
            bar.update(1)
    return forest.merges


class _Agglomeration:
    """State of an agglomeration by the native kernel, which makes a part of the merges in every call."""

    def __init__(
        self, component: Component, leaves: Leaves, concentration: float, criterion: str, groups: Int[np.ndarray, " n"] | None
    ) -> None:
        from bnp_hier.native.agglomeration import PROGRESS

        n, self.component, self.leaves = leaves.n, component, leaves
        self.given = kernel_arguments(component, leaves.X)
        self.concentration, self.criterion, self.apart = np.array(concentration, float), criterion, groups is not None
        group = np.zeros(n, np.int64) if groups is None else np.asarray(groups, np.int64)
        single = np.bincount(leaves.labels, minlength=n) == 1
        self.order = np.lexsort((~single, group))
        ends = np.cumsum(np.bincount(group))
        starts = np.r_[0, ends[:-1]]
        self.columns = np.empty((row_length(component), n))
        self.reals, self.whole, self.slot_of = np.empty((4, n)), np.zeros((5, n), np.int64), np.zeros(2 * n, np.int64)
        self.whole[2] = group[self.order]
        self.ranges = np.column_stack([starts, starts + np.bincount(group[single], minlength=len(ends)), ends]).astype(np.int64)
        self.progress = np.zeros(len(PROGRESS), np.int64)
        self.children, self.log_odds = np.zeros((n - 1, 2), np.int64), np.empty(n - 1)

    def run(self, bar: ProgressBar) -> Merges:
        from bnp_hier.native.agglomeration import AGGLOMERATE, CRITERIA, PROGRESS

        n = self.leaves.n
        labels = np.ascontiguousarray(self.leaves.labels, dtype=np.int64)
        budget = max(1, WORK_PER_CALL // len(self.columns))
        while True:
            goal = np.array([CRITERIA.index(self.criterion), n - 1, budget])
            state = (
                self.columns,
                self.reals,
                self.whole,
                self.slot_of,
                self.ranges,
                self.progress,
                self.children,
                self.log_odds,
            )
            before = dict(zip(PROGRESS, self.progress.tolist(), strict=True))
            AGGLOMERATE(*self.given, labels, self.order, self.concentration, goal, *state)
            now = dict(zip(PROGRESS, self.progress.tolist(), strict=True))
            bar.update(now["merges"] - before["merges"])
            if now["undefined"]:
                pair = sorted((now["one"], now["other"]))
                raise undefined_score(self.component, self.leaves.names, (pair[0], pair[1]), self.children)
            if now["merges"] == n - 1:
                return Merges(self.children, self.log_odds, now["evaluations"])
            if now["paired"] == n and self.reals[2].max() == -np.inf:
                if not self.apart:
                    nodes = sorted(self.whole[1][: now["left"]].tolist()[:2])
                    raise undefined_score(self.component, self.leaves.names, (nodes[0], nodes[1]), self.children)
                self._release(now["left"])

    def _release(self, left: int) -> None:
        """Allow the groups, of which each has become one tree, to be merged by their odds."""
        slots = self.ranges[:, 0]
        self.columns[:, :left], self.reals[:2, :left] = self.columns[:, slots], self.reals[:2, slots]
        self.whole[:2, :left] = self.whole[:2, slots]
        self.slot_of[self.whole[1, :left]] = np.arange(left)
        self.reals[2:], self.whole[2], self.whole[3], self.whole[4] = -np.inf, 0, np.iinfo(np.int64).max, 0
        self.ranges = np.array([[0, 0, left]], np.int64)
        self.progress[3] = 0
        self.criterion, self.apart = "odds", False


def greedy_tree(
    component: Component, X: np.ndarray, concentration: float, progress_bar: bool = True
) -> tuple[Int[np.ndarray, "m 2"], Float[np.ndarray, " m"]]:
    """Build the paper's greedy tree: each merge joins the pair with the largest posterior odds of being one cluster.

    Returns
    -------
    children, log_odds
        See `agglomerate`.

    Notes
    -----
    Heller & Ghahramani (2005), section 2, in log space: the pair with the largest r is also the pair with the largest odds
    r/(1 − r), which do not saturate numerically.
    """
    return agglomerate(component, row_leaves(X), concentration, progress_bar=progress_bar)[:2]
