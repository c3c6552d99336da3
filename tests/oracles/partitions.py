"""Everything by enumeration of all set partitions: slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import gammaln


def all_partitions(n: int) -> Iterator[tuple[int, ...]]:
    """All restricted growth strings of length n: labels in order of appearance."""

    def grow(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(prefix) == n:
            yield prefix
            return
        for label in range(max(prefix, default=-1) + 2):
            yield from grow((*prefix, label))

    return grow(())


def log_prior(labels: tuple[int, ...], alpha: float, discount: float = 0.0) -> float:
    """Probability of a partition, one customer at a time (chain rule of the Pitman-Yor process)."""
    total, counts = 0.0, []
    for i, label in enumerate(labels):
        if label == len(counts):
            weight = alpha + discount * len(counts) if i else 1.0
            counts.append(1)
        else:
            weight = counts[label] - discount
            counts[label] += 1
        total += math.log(weight) - (math.log(alpha + i) if i else 0.0)
    return total


class Enumeration:
    """Posterior over all partitions of a small data set, given the log marginal likelihood of any subset."""

    def __init__(self, n: int, log_marginal: Callable[[list[int]], float], alpha: float, discount: float = 0.0) -> None:
        cache: dict[tuple[int, ...], float] = {}

        def block(members: tuple[int, ...]) -> float:
            if members not in cache:
                cache[members] = float(log_marginal(list(members)))
            return cache[members]

        self.n, self.alpha = n, alpha
        self.labels = list(all_partitions(n))
        self.log_joint = np.array(
            [
                log_prior(z, alpha, discount) + sum(block(tuple(i for i in range(n) if z[i] == k)) for k in range(max(z) + 1))
                for z in self.labels
            ]
        )
        self.log_evidence = float(np.logaddexp.reduce(self.log_joint))
        self.probabilities = np.exp(self.log_joint - self.log_evidence)
        self.index = {z: i for i, z in enumerate(self.labels)}

    def coclustering(self) -> np.ndarray:
        """Posterior probability that two items share a cluster, (n, n)."""
        z = np.array(self.labels)
        return np.einsum("p,pij->ij", self.probabilities, (z[:, :, None] == z[:, None, :]).astype(float))

    def expected_clusters(self) -> float:
        """Posterior mean of the number of clusters."""
        return float(self.probabilities @ (np.array(self.labels).max(1) + 1))


def log_crp(sizes: list[int], alpha: float) -> float:
    """Closed form of the Chinese restaurant process."""
    n = sum(sizes)
    return float(len(sizes) * math.log(alpha) + gammaln(sizes).sum() + gammaln(alpha) - gammaln(n + alpha))
