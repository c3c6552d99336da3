"""Randomized BHC: builds exact trees of random subsets and filters the other rows through them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from tqdm import tqdm

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import BAR_FROM, cluster_leaves, row_leaves
from bnp_hier.deterministic.agglomeration.tree_evidence import in_merge_order, merge_odds
from bnp_hier.trees import Dendrogram

__all__ = ["Assembly", "filled", "randomized_tree"]

SUBSET = 100
"""Number of rows in a subset; the exact tree is built for sets of at most this size."""


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
        return in_merge_order(children, np.asarray(merge_odds(component, X, concentration, jnp.asarray(children))))

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
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1] if points.shape[1] > 1 else np.ones(1)
    order = np.argsort(centred @ axis, kind="stable")
    return order[: len(order) // 2], order[len(order) // 2 :]


def filled(X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the data with missing values replaced by column means."""
    there = ~np.isnan(X)
    mean = np.where(there, X, 0.0).sum(0) / np.maximum(there.sum(0), 1)
    return np.where(there, X, mean)


@jax.jit
def _filter(component: Component, stats: Statistics, items: Array, X: Float[Array, "m d"]) -> Int[Array, " m"]:
    """Most probable cluster of each row by cluster size × predictive density; −1 where a density is NaN."""
    cache = component.cache(stats)
    log_items = jnp.log(items)
    rows = component.suff_stats(X)

    def best(row: Statistics) -> Array:
        weights = component.cached_log_predictive(cache, row) + log_items
        return jnp.where(jnp.isnan(weights).any(), -1, weights.argmax())

    return jax.lax.map(best, rows, batch_size=min(256, X.shape[0]))


def _parts(
    component: Component, X: np.ndarray, rows: np.ndarray, subset: np.ndarray, labels: np.ndarray
) -> list[Int[np.ndarray, " _"]]:
    """Rows of each cluster of the subset, together with the other rows assigned to it."""
    rest = np.setdiff1d(rows, subset, assume_unique=True)
    leaves = cluster_leaves(X[subset], labels)
    # padded to a power of two, so that few programs are compiled
    padded = np.concatenate([rest, np.full((1 << (len(rest) - 1).bit_length()) - len(rest), rest[0])])
    filtered = np.asarray(_filter(component, leaves.stats, leaves.items, X[padded]))[: len(rest)]
    if (filtered < 0).any():
        raise ValueError(f"the predictive density of row {rest[filtered < 0][0]} under {type(component).__name__} is NaN")
    joined, where = np.concatenate([subset, rest]), np.concatenate([labels, filtered])
    return [joined[where == k] for k in range(leaves.n)]


def randomized_tree(
    component: Component, X: Float[np.ndarray, "n d"], concentration: float, key: Array, progress_bar: bool = False
) -> Int[np.ndarray, "m 2"]:
    """Build a tree in O(n log n) time by recursion on random subsets. Call in float64.

    The exact tree of a random subset is kept above its cut, the other rows are assigned to the clusters of the cut by size ×
    predictive density, and the procedure is repeated for each of the resulting sets.

    Parameters
    ----------
    component, X, concentration
        Component, data (n, d), and α of the Dirichlet process.
    key
        JAX key for the subsets.
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
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))).tolist())
    points, tree = filled(X), Assembly(n)
    waiting: list[tuple[np.ndarray, tuple[int, int] | None]] = [(np.arange(n), None)]
    with tqdm(total=n, desc="BHC", disable=not progress_bar or n < BAR_FROM, unit="row") as bar:
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
