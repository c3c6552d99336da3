"""The joint density of data and a partition."""

from __future__ import annotations

from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.seating import Prior

__all__ = ["log_joint"]


def log_joint(component: Component, rows: Statistics, labels: Int[Array, " n"], prior: Prior, slots: int) -> Float[Array, ""]:
    """Log p(X, partition): log prior of the partition plus the clusters' log marginal likelihoods (nats)."""
    stats = cluster_statistics(rows, labels, slots)
    return log_partition_prior(cluster_counts(labels, slots), *prior) + component.log_marginal(stats).sum()
