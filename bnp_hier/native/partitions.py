"""Labels and the joint density of a partition and its rows."""

from __future__ import annotations

import math

import numpy as np

from bnp_hier.native.memory import compiled, separate
from bnp_hier.native.mixtures import cluster_statistics, log_marginals

__all__ = ["log_joint", "renumber", "slots_of"]


@compiled
def slots_of(labels):
    """Number of slots up to the last one in use."""
    top = 0
    for label in labels:
        top = max(top, label + 1)
    return top


@compiled
def renumber(labels):
    """Relabel in place as 0, 1, ... in order of appearance, except for labels of −1; return the number of clusters."""
    names, clusters = np.empty(slots_of(labels), np.int64), 0
    for k in range(len(names)):
        names[k] = -1
    for i in range(len(labels)):
        if labels[i] >= 0:
            if names[labels[i]] < 0:
                names[labels[i]] = clusters
                clusters += 1
            labels[i] = names[labels[i]]
    return clusters


@separate
def log_joint(mixture, prior, labels, k):
    """Log p(X, partition) for labels below k, of which some may be unused: see `distributions.partition_prior`."""
    sizes, marginals, clusters = np.zeros(k), np.empty(k), 0
    for label in labels:
        sizes[label] += 1
    log_marginals(mixture, cluster_statistics(mixture, labels, k), k, marginals)
    log = prior.log_whole
    for cluster in range(k):
        if sizes[cluster] > 0:
            log += marginals[cluster] + math.lgamma(sizes[cluster] - prior.discount) - math.lgamma(1.0 - prior.discount)
            if clusters > 0:
                log += prior.log_open[clusters - 1]
            clusters += 1
    return log
