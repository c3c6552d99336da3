"""Bayes k-means BHC: rows are assigned to clusters one by one, and the exact tree is built over the clusters."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import cluster_leaves
from bnp_hier.deterministic.agglomeration.randomized_bhc import Assembly, filled
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.partitions.search import descend, merge_clusters
from bnp_hier.utils.labels import canonical_labels

__all__ = ["bayes_kmeans", "build_bayes_kmeans_tree"]


def bayes_kmeans(
    component: Component, X: Float[np.ndarray, "n d"], concentration: float, rng: np.random.Generator
) -> Int[np.ndarray, " n"]:
    """Partition found by greedy seating, one reassignment of all rows, and merges. Call in float64.

    √n random rows start as singleton clusters. Every other row in turn is assigned to the cluster, possibly a new one, that
    maximises the log joint of the partition so far. Then all rows are reassigned once, and clusters are merged as long as the
    log joint increases.

    Returns
    -------
    labels
        (n,) cluster labels, integers from 0 in order of appearance.

    Notes
    -----
    Xu, Heller & Ghahramani (2009), section 5, with one reassignment of all rows before the merges.
    """
    n, values, order = len(X), MixtureValues(Prior(concentration), component, X), rng.permutation(len(X))
    seeds = max(int(np.sqrt(n)), 1)
    labels = np.full(n, -1)
    labels[order[:seeds]] = np.arange(seeds)
    for turns in (order[seeds:], order):
        labels = descend(values, turns[None], labels[None], n, 1).labels[0]
    return canonical_labels(merge_clusters(values, labels))


def build_bayes_kmeans_tree(
    component: Component, X: Float[np.ndarray, "n d"], concentration: float, rng: np.random.Generator
) -> Int[np.ndarray, "m 2"]:
    """Build the exact tree over the clusters of `bayes_kmeans`; inside a cluster, rows are halved along the principal axis.

    Takes about O(nk + k²) time for k clusters. Call in float64.

    Returns
    -------
    children
        (n − 1, 2) merges.

    Notes
    -----
    Xu, Heller & Ghahramani (2009), section 5. A cluster of n_i rows has log d_i = log α + lgamma(n_i); the printed d_i = α
    is correct only for at most two rows.
    """
    labels = bayes_kmeans(component, X, concentration, rng)
    k = int(labels.max()) + 1
    merges = np.empty((0, 2), int)
    if k > 1:
        merges, *_ = agglomerate(component, cluster_leaves(X, labels), concentration)
    points, tree = filled(X), Assembly(len(X))
    members = [np.flatnonzero(labels == cluster) for cluster in range(k)]
    branches = tree.hang(merges, [-1] * k, None) if k > 1 else [None]
    for rows, branch in zip(members, branches, strict=True):
        tree.halve(points, rows, branch)
    return tree.children(component, X, concentration)
