"""The joint density of data and a partition."""

from __future__ import annotations

from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import GibbsTypePrior

__all__ = ["log_joint"]


def log_joint(
    component: Component, rows: Statistics, labels: Int[Array, " n"], prior: GibbsTypePrior, slots: int
) -> Float[Array, ""]:
    """Log p(X, partition): log prior of the partition plus the clusters' log marginal likelihoods (nats)."""
    stats = cluster_statistics(rows, labels, slots)
    return prior.log_prob(cluster_counts(labels, slots)) + component.log_marginal(stats).sum()
