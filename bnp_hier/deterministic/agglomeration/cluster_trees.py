"""Bayesian hierarchical clustering of whole clusters, from their statistics alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.special import log_gamma_ratio_in_numpy
from bnp_hier.partitions.cluster_unions import Unions
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["ClusterTree", "tree_from_statistics"]


class ClusterTree(NamedTuple):
    """A tree whose leaves are clusters.

    - **dendrogram** - `Dendrogram` whose items are the clusters, with the log odds of each merge (nats).
    - **counts** - (K,) number of rows of each cluster.
    - **log_evidence_bound** - lower bound on log p(X) from the partitions of the rows that are consistent with the tree, none
      of which splits a cluster (nats).
    """

    dendrogram: Dendrogram
    counts: Int[np.ndarray, " k"]
    log_evidence_bound: float


def tree_from_statistics(
    component: Component, stats: Statistics, counts: Int[np.ndarray, " k"], concentration: float
) -> ClusterTree:
    """Repeatedly merge the two trees with the largest posterior odds of being one cluster; call in float64.

    Same merges as `agglomerate` makes of `cluster_leaves`, up to ties, but all pairs of trees are held in memory.
    """
    k, alpha = len(counts), float(np.log(concentration))

    def odds(of: Unions, one: np.ndarray, other: np.ndarray, joint: np.ndarray) -> np.ndarray:
        return alpha + gammaln(of.counts[one] + of.counts[other]) + joint - mass[one] - mass[other]

    with double_precision():
        mass: Float[np.ndarray, " k"] = np.empty(k)
        unions = Unions(component, stats, counts.astype(float))
        mass[:] = alpha + gammaln(unions.counts) + unions.marginals
        unions.score(odds)
        node, children, log_odds = np.arange(k), np.empty((k - 1, 2), np.int64), np.empty(k - 1)
        for t in range(k - 1):
            one, other, log_odds[t] = unions.best()
            if not np.isfinite(log_odds[t]):
                raise ValueError(
                    "no merge has finite odds: the log marginal likelihood of "
                    f"{type(component).__name__} is not finite for a cluster or for a union of clusters"
                )
            mass[one] += mass[other] + np.logaddexp(log_odds[t], 0.0)
            unions.merge(one, other)
            children[t] = sorted((node[one], node[other]))
            node[one] = k + t
    bound = mass[0] - log_gamma_ratio_in_numpy(concentration, counts.sum())
    return ClusterTree(Dendrogram(children, log_odds), np.asarray(counts), float(bound))
