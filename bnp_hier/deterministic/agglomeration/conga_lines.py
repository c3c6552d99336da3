"""Exact greedy agglomeration with conga lines, Eppstein's data structure for dynamic closest pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.leaves import BAR_FROM, Leaves, Merges
from bnp_hier.deterministic.agglomeration.merge_scores import Forest, forest_of_leaves, tolerance
from bnp_hier.utils.progress_bars import ProgressBar

__all__ = ["conga_line_merges"]


def _line(forest: Forest, members: Bool[np.ndarray, " nodes"], criterion: str) -> tuple[list[int], list[float]]:
    """Draw the conga line of a subset: its nodes, and the score of each with the next one.

    From a member of the subset, the line continues to the best partner that is not on the line yet; from a non-member, to the
    best such member. It ends when there is no candidate left.
    """
    free, path, scores = forest.alive.copy(), [int(members.argmax())], list[float]()
    while True:
        here = path[-1]
        free[here] = False
        candidates = np.flatnonzero(free & (members | members[here]))
        if not len(candidates):
            return path, scores
        found = forest.scores(here, candidates, criterion)
        top = found.max()
        path.append(int(candidates[found >= top - tolerance(top)][0]))
        scores.append(top)


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
        tied = self.score >= top - tolerance(top)
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

    def add(self, subset: int, path: list[int], scores: list[float]) -> None:
        """Add the line of a subset, given its nodes and the score of each with the next one."""
        new = _Edges(np.full(len(scores), subset), np.array(path[:-1], int), np.array(path[1:], int), np.array(scores))
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
    n, forest = leaves.n, forest_of_leaves(component, leaves, concentration)
    subsets, fresh = _Subsets(n), [0]
    with ProgressBar(total=n - 1, desc="conga lines", disable=not progress_bar or n < BAR_FROM, unit="merge") as bar:
        for _ in range(n - 1):
            for subset in fresh:
                subsets.add(subset, *_line(forest, subsets.of == subset, criterion))
            if subsets.edges.score.max() == -np.inf:
                raise forest.undefined(int(subsets.edges.tail[0]), int(subsets.edges.head[0]))
            pair = subsets.edges.best(2 * n)
            fresh = subsets.replace(pair, forest.merge(*pair))
            bar.update()
    return forest.merges
