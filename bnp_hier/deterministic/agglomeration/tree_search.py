"""Search for trees with a better bound than the greedy tree: other initial trees, hard partitions, and moves of subtrees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import Leaves, row_leaves
from bnp_hier.deterministic.agglomeration.partition_search import Effort, search_partitions
from bnp_hier.deterministic.agglomeration.prune_and_regraft import prune_regraft
from bnp_hier.deterministic.agglomeration.tree_evidence import evidence_of, merge_odds
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.progress_bars import ProgressBar

__all__ = ["SearchedTree", "ratio_inside_clusters", "search"]

EFFORT = {"polish": Effort(sweeps=80, generations=8, idle=2), "full": Effort(sweeps=200, generations=40, idle=4)}
"""Effort of the search for hard partitions in each round."""

MOST_REBUILT = 4
"""Maximum number of partitions for which trees are built."""

FAR = 10.0
"""Partitions more than this many nats below the best one are discarded."""

LINKAGE_UP_TO = 4000
"""Maximum number of rows for which linkage trees, whose memory grows as n², are tried."""

FULL_GAIN = 0.05
"""`refine="full"` stops when a round improves the bound by less than this many nats."""

MOST_ROUNDS = 50
"""Maximum number of rounds of `refine="full"`."""


class SearchedTree(NamedTuple):
    """A tree and the trace of the search.

    - **children** - (n − 1, 2) merges.
    - **log_odds** - (n − 1,) log odds of each merge (nats).
    - **trace** - best bound so far (nats), for the greedy tree and after each step of the search.
    """

    children: Int[np.ndarray, "m 2"]
    log_odds: Float[np.ndarray, " m"]
    trace: Float[np.ndarray, " steps"]


class _Search:
    """Builds and scores trees of one data set."""

    def __init__(self, component: Component, X: np.ndarray, concentration: float) -> None:
        self.component, self.X, self.concentration = component, X, concentration
        self.leaves: Leaves = row_leaves(X)

    def bound(self, children: np.ndarray) -> float:
        value = evidence_of(self.component, self.X, self.concentration, children).bound
        if np.isnan(value):
            raise ValueError(
                f"the bound of a tree is NaN: the log marginal likelihood of {type(self.component).__name__} is NaN for a node"
            )
        return value

    def log_odds(self, children: np.ndarray) -> np.ndarray:
        return merge_odds(self.component, self.X, self.concentration, children)

    def starts(self) -> list[np.ndarray]:
        """Initial trees other than the greedy one."""
        from scipy.cluster.hierarchy import linkage

        normalized, *_ = agglomerate(self.component, self.leaves, self.concentration, "normalised")
        trees = [normalized]
        if len(self.X) <= LINKAGE_UP_TO:
            points = _euclidean(self.X)
            trees += [linkage(points, method)[:, :2].astype(int) for method in ("ward", "average")]
        return trees

    def polish(self, trees: list[np.ndarray], rng: np.random.Generator, refine: str) -> list[np.ndarray]:
        """Build greedy trees inside and across the clusters of good hard partitions near the cuts of the trees."""
        cuts = np.stack([Dendrogram(children, self.log_odds(children)).cut() for children in trees])
        labels, log_joint = search_partitions(self.component, self.X, self.concentration, cuts, rng, EFFORT[refine])
        good = labels[log_joint > log_joint[0] - FAR][:MOST_REBUILT]
        return [agglomerate(self.component, self.leaves, self.concentration, groups=groups)[0] for groups in good]


def _euclidean(X: np.ndarray) -> np.ndarray:
    """The rows as points: missing values imputed by column means, real-valued columns scaled to unit standard deviation."""
    with np.errstate(invalid="ignore"):
        there = ~np.isnan(X)
        mean = np.where(there, X, 0.0).sum(0) / np.maximum(there.sum(0), 1)
    filled = np.where(there, X, mean)
    if (X[there] == np.round(X[there])).all():  # binary data and counts are on a common scale already
        return filled
    scale = filled.std(0)
    return (filled - mean) / np.where(scale > 0, scale, 1.0)


def search(
    component: Component,
    X: Float[np.ndarray, "n d"],
    concentration: float,
    greedy: Int[np.ndarray, "m 2"],
    refine: str,
    rng: np.random.Generator,
    progress_bar: bool = False,
) -> SearchedTree:
    """Search for a tree whose bound is at least that of the greedy tree. Call in float64.

    Parameters
    ----------
    component, X, concentration
        Component, data (n, d), and α of the Dirichlet process.
    greedy
        Merges of the greedy tree, from which the search starts.
    refine
        "polish": cut four trees (greedy; greedy by a score normalised for size; Ward and average linkage), improve the
        resulting hard partitions by descents, annealed Gibbs runs and crossover, and build greedy trees inside and across
        their clusters. "full": then repeat rounds of prune and regraft and a longer polish until a round improves the bound
        by less than 0.05 nats.
    rng
        Random number generator.
    progress_bar
        Whether to show a progress bar over the rounds of "full".
    """
    found = _Search(component, X, concentration)
    best, bound = greedy, found.bound(greedy)
    trace = [bound]

    def offer(children: np.ndarray) -> None:
        nonlocal best, bound
        reached = found.bound(children)
        if reached > bound:
            best, bound = children, reached
        trace.append(bound)

    starts = found.starts()
    for tree in [*starts, *found.polish([greedy, *starts], rng, "polish")]:
        offer(tree)
    if refine == "full" and len(X) > 2:
        with ProgressBar(
            total=MOST_ROUNDS, desc="BHC: tree search", disable=not progress_bar, unit="round", leave=False
        ) as bar:
            for _ in range(MOST_ROUNDS):
                before = bound
                offer(prune_regraft(component, X, concentration, best, rng.permutation(2 * len(X) - 1))[0])
                for tree in found.polish([best], rng, "full"):
                    offer(tree)
                bar.update()
                if bound - before < FULL_GAIN:
                    break
    return SearchedTree(best, found.log_odds(best), np.array(trace))


def ratio_inside_clusters(
    component: Component, X: Float[np.ndarray, "n d"], concentration: float, tree: Dendrogram
) -> tuple[Int[np.ndarray, "m 2"], Float[np.ndarray, " m"]]:
    """Rebuild a tree inside its clusters by the plain marginal likelihood ratio; the merges above the cut are unchanged.

    Inside a cluster, the posterior odds favour adding rows one by one to a large tree; the ratio yields balanced trees.

    Returns
    -------
    children, log_odds
        Merges and their log odds in the new tree (nats).
    """
    labels = tree.cut()
    n, k = tree.n_items, int(labels.max()) + 1
    inside, *_ = agglomerate(component, row_leaves(X), concentration, "ratio", groups=labels)
    inside = inside[: n - k]
    cluster = np.concatenate([labels, np.zeros(n - k, int)])
    for t, (left, _) in enumerate(inside):
        cluster[n + t] = cluster[left]
    root = np.zeros(k, int)
    root[cluster] = np.arange(2 * n - k)  # the last node of each cluster is its root
    # new node that replaces each old node: the root of its cluster, or a merge above the cut
    place = np.concatenate([root[labels], np.zeros(n - 1, int)])
    children = inside.tolist()
    for t, (left, right) in enumerate(tree.children):
        place[n + t] = place[left]
        if place[left] != place[right]:
            place[n + t] = n + len(children)
            children.append(sorted((place[left], place[right])))
    merges = np.array(children, int)
    return merges, merge_odds(component, X, concentration, merges)
