"""Randomized BHC: builds exact trees of random subsets and filters the other rows through them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import BAR_FROM, row_leaves
from bnp_hier.deterministic.agglomeration.tree_evidence import in_merge_order, merge_odds
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.clusters import joint_and_statistics, log_predictives
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.directions import principal_axis
from bnp_hier.utils.progress_bars import ProgressBar

__all__ = ["Assembly", "filled", "randomized_tree"]

SUBSET = 100
"""Number of rows in a subset; the exact tree is built for sets of at most this size."""

ROWS_AT_ONCE = 16_384
"""Number of rows that are assigned to clusters at once, to bound memory."""


class Assembly:
    """A binary tree assembled from the root down, by attaching parts to open branches."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._pairs = np.full((max(n - 1, 1), 2), -1)
        self._made = 0

    def hang(self, merges: Int[np.ndarray, "k 2"], leaves: list[int], branch: tuple[int, int] | None) -> list[tuple[int, int]]:
        """Attach a tree with len(merges) + 1 leaves to a branch; a leaf is an item number, or −1 for a part added later.

        Returns
        -------
        branches
            Open branches for the parts added later, in the order of the leaves.
        """
        k = len(leaves)
        first = self._made
        self._made += len(merges)
        nodes = np.concatenate([np.asarray(leaves), self.n + first + np.arange(len(merges))])
        open_branches: dict[int, tuple[int, int]] = {}
        for t, pair in enumerate(merges):
            for side, child in enumerate(pair):
                self._pairs[first + t, side] = nodes[child]
                if child < k and leaves[child] < 0:
                    open_branches[int(child)] = (first + t, side)
        if branch is not None:
            self._pairs[branch] = nodes[-1]
        return [open_branches[i] for i in sorted(open_branches)]

    def children(self, component: Component, X: np.ndarray, concentration: float) -> Int[np.ndarray, "m 2"]:
        """Merges of the complete tree, in decreasing order of their odds as far as the tree allows."""
        children = in_merge_order(self._pairs, np.zeros(len(self._pairs)))
        return in_merge_order(children, merge_odds(component, X, concentration, children))

    def halve(self, points: Float[np.ndarray, "s d"], rows: Int[np.ndarray, " s"], branch: tuple[int, int] | None) -> None:
        """Attach a balanced tree of the given rows, built by repeated halving along the axis of largest variance."""
        waiting = [(rows, branch)]
        while waiting:
            some, on = waiting.pop()
            if len(some) == 1:
                self.hang(np.empty((0, 2), int), [int(some[0])], on)
                continue
            halves = halves_of(points[some])
            parts = [some[half] for half in halves]
            waiting += zip(parts, self.hang(np.array([[0, 1]]), [-1, -1], on), strict=True)


def halves_of(points: Float[np.ndarray, "s d"]) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the lower and the upper half of the points along their principal axis."""
    centred = points - points.mean(0)
    order = np.argsort(centred @ principal_axis(centred), kind="stable")
    return order[: len(order) // 2], order[len(order) // 2 :]


def filled(X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the data with missing values replaced by column means."""
    there = ~np.isnan(X)
    mean = np.where(there, X, 0.0).sum(0) / np.maximum(there.sum(0), 1)
    return np.where(there, X, mean)


def _parts(
    component: Component, X: np.ndarray, rows: np.ndarray, subset: np.ndarray, labels: np.ndarray
) -> list[Int[np.ndarray, " _"]]:
    """Rows of each cluster of the subset, together with the other rows assigned to it by cluster size × predictive density."""
    _, stats = joint_and_statistics(component, X[subset], labels, Prior(1.0))
    log_items, rest = np.log(np.bincount(labels)), np.setdiff1d(rows, subset, assume_unique=True)
    where = [labels]
    for start in range(0, len(rest), ROWS_AT_ONCE):
        some = rest[start : start + ROWS_AT_ONCE]
        weights = log_predictives(component, stats, X[some], len(subset))[:, :-1] + log_items
        undefined = np.isnan(weights).any(1)
        if undefined.any():
            raise ValueError(f"the predictive density of row {some[undefined][0]} under {type(component).__name__} is NaN")
        where.append(weights.argmax(1))
    joined, part = np.concatenate([subset, rest]), np.concatenate(where)
    return [joined[part == k] for k in range(len(log_items))]


def randomized_tree(
    component: Component,
    X: Float[np.ndarray, "n d"],
    concentration: float,
    rng: np.random.Generator,
    progress_bar: bool = False,
) -> Int[np.ndarray, "m 2"]:
    """Build a tree in O(n log n) time by recursion on random subsets. Call in float64.

    The exact tree of a random subset is kept above its cut, the other rows are assigned to the clusters of the cut by size ×
    predictive density, and the procedure is repeated for each of the resulting sets.

    Parameters
    ----------
    component, X, concentration
        Component, data (n, d), and α of the Dirichlet process.
    rng
        Random number generator for the subsets.
    progress_bar
        Whether to show a progress bar if there are many rows.

    Returns
    -------
    children
        (n − 1, 2) merges; every binary tree yields a valid bound.

    Notes
    -----
    Heller & Ghahramani, "Randomized algorithms for fast Bayesian hierarchical clustering" (2005), with two changes: the
    subset is cut into all its clusters instead of its top two branches, and a set whose subset is one cluster is halved
    along its principal axis, so that no branch receives almost all rows.
    """
    n = len(X)
    points, tree = filled(X), Assembly(n)
    waiting: list[tuple[np.ndarray, tuple[int, int] | None]] = [(np.arange(n), None)]
    with ProgressBar(total=n, desc="BHC", disable=not progress_bar or n < BAR_FROM, unit="row") as bar:
        while waiting:
            rows, branch = waiting.pop()
            if len(rows) <= SUBSET:
                merges = np.empty((0, 2), int)
                if len(rows) > 1:
                    merges, *_ = agglomerate(component, row_leaves(X[rows], rows), concentration)
                tree.hang(merges, rows.tolist(), branch)
                bar.update(len(rows))
                continue
            subset = rng.choice(rows, SUBSET, replace=False)
            merges, log_odds, _ = agglomerate(component, row_leaves(X[subset], subset), concentration)
            labels = Dendrogram(merges, log_odds).cut()
            if labels.max() == 0:
                parts = [rows[half] for half in halves_of(points[rows])]
                above = np.array([[0, 1]])
            else:
                parts = _parts(component, X, rows, subset, labels)
                above = _above_cut(merges, labels)
            waiting += zip(parts, tree.hang(above, [-1] * len(parts), branch), strict=True)
    return tree.children(component, X, concentration)


def _above_cut(merges: Int[np.ndarray, "m 2"], labels: Int[np.ndarray, " s"]) -> Int[np.ndarray, "k 2"]:
    """Merges above the cut: a tree whose leaves are the clusters."""
    k = int(labels.max()) + 1
    place = np.concatenate([labels, np.zeros(len(merges), int)])
    above: list[tuple[int, int]] = []
    for t, (left, right) in enumerate(merges):
        place[len(labels) + t] = place[left]
        if place[left] != place[right]:
            place[len(labels) + t] = k + len(above)
            above.append((place[left], place[right]))
    return np.array(above)
