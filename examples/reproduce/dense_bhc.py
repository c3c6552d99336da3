"""Exact BHC and Bayes k-means BHC as in Xu, Heller & Ghahramani (2009), both in plain NumPy.

They are as direct as in an interpreted language: no compiled kernel, a matrix of the scores of all pairs, and no bookkeeping
beyond it. Both spend their time in the same marginal likelihood, which counts its evaluations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import bnp_hier as bnp


class Clusters(NamedTuple):
    """Sufficient statistics of normal clusters: (k,) sizes, (k, d) sums and (k, d, d) sums of outer products."""

    size: np.ndarray
    total: np.ndarray
    outer: np.ndarray

    def take(self, index: slice | list[int] | np.ndarray) -> Clusters:
        """Some of the clusters."""
        return Clusters(self.size[index], self.total[index], self.outer[index])

    def plus(self, other: Clusters) -> Clusters:
        """Each cluster joined with one other."""
        return Clusters(*(one + new for one, new in zip(self, other, strict=True)))

    def put(self, index: int, other: Clusters) -> None:
        """Replace one cluster by the only one of `other`."""
        for one, new in zip(self, other, strict=True):
            one[index] = new[0]


def of_rows(X: np.ndarray) -> Clusters:
    """Every row as a cluster of its own."""
    return Clusters(np.ones(len(X)), X.copy(), X[:, :, None] * X[:, None, :])


class Weight:
    """log α Γ(n) p(rows | one cluster) of normal clusters under a Normal-Inverse-Wishart prior (nats).

    The program evaluates one cluster after the other, or all clusters of a call at once with ``batched=True``; `evaluations`
    counts clusters in both cases.
    """

    def __init__(self, component: bnp.NormalInverseWishart, alpha: float, batched: bool) -> None:
        self.mean, self.scale = np.asarray(component.mean, float), np.asarray(component.scale, float)
        self.kappa, self.nu, self.d = float(component.kappa), float(component.nu), len(self.mean)
        self.log_alpha, self.batched, self.evaluations = math.log(alpha), batched, 0
        self.outer = self.kappa * np.outer(self.mean, self.mean)
        self.constant = 0.5 * self.nu * float(np.linalg.slogdet(self.scale)[1]) + 0.5 * self.d * math.log(self.kappa)
        self.constant -= sum(math.lgamma((self.nu - j) / 2) for j in range(self.d))

    def __call__(self, clusters: Clusters) -> np.ndarray:
        self.evaluations += len(clusters.size)
        if self.batched:
            return self._all(clusters)
        return np.array([self._one(*cluster) for cluster in zip(*clusters, strict=True)])

    def _one(self, n: float, total: np.ndarray, outer: np.ndarray) -> float:
        kappa, nu = self.kappa + n, self.nu + n
        center = self.kappa * self.mean + total
        log_det = np.linalg.slogdet(self.scale + self.outer + outer - np.outer(center, center) / kappa)[1]
        gammas = sum(math.lgamma((nu - j) / 2) for j in range(self.d))
        fixed = self.log_alpha + math.lgamma(n) + self.constant - 0.5 * n * self.d * math.log(math.pi)
        return float(fixed + gammas - 0.5 * nu * log_det - 0.5 * self.d * math.log(kappa))

    def _all(self, clusters: Clusters) -> np.ndarray:
        from scipy.special import gammaln

        n, (kappa, nu) = clusters.size, (self.kappa + clusters.size, self.nu + clusters.size)
        center = self.kappa * self.mean + clusters.total
        inner = center[:, :, None] * center[:, None, :] / kappa[:, None, None]
        log_det = np.linalg.slogdet(self.scale + self.outer + clusters.outer - inner)[1]
        gammas = gammaln((nu[:, None] - np.arange(self.d)) / 2).sum(1)
        fixed = self.log_alpha + gammaln(n) + self.constant - 0.5 * n * self.d * math.log(math.pi)
        return fixed + gammas - 0.5 * nu * log_det - 0.5 * self.d * np.log(kappa)


class Tree(NamedTuple):
    """A tree over clusters: (k − 1, 2) merges, and the log evidence bound without its factor Γ(α)/Γ(n + α)."""

    children: np.ndarray
    log_weight: float


def _pairs(clusters: Clusters, weight: Weight, log_weight: np.ndarray) -> np.ndarray:
    """Log weight of each pair as one cluster minus those of its two parts; −∞ on and below the diagonal."""
    k = len(log_weight)
    scores = np.full((k, k), -np.inf)
    for i in range(k - 1):
        others = slice(i + 1, k)
        scores[i, others] = weight(clusters.take(others).plus(clusters.take([i]))) - log_weight[i] - log_weight[others]
    return scores


def _join(scores: np.ndarray, alive: np.ndarray, clusters: Clusters, i: int, j: int) -> np.ndarray:
    """Merge cluster j into i; returns the others, whose pairs with i are to be scored anew."""
    clusters.put(i, clusters.take([i]).plus(clusters.take([j])))
    alive[j] = False
    scores[j], scores[:, j] = -np.inf, -np.inf
    return np.flatnonzero(alive & (np.arange(len(alive)) != i))


def exact_tree(clusters: Clusters, weight: Weight) -> Tree:
    """Greedy BHC: the scores of all pairs once, and after each merge those of the new node with all others.

    Takes about n² evaluations of the marginal likelihood for n clusters, the complexity stated by Heller & Ghahramani (2005).
    """
    clusters = Clusters(*(one.copy() for one in clusters))
    k = len(clusters.size)
    log_weight = weight(clusters)
    scores, alive, names = _pairs(clusters, weight, log_weight), np.ones(k, bool), np.arange(k)
    children = np.empty((k - 1, 2), int)
    for t in range(k - 1):
        i, j = divmod(int(scores.argmax()), k)
        together = scores[i, j] + log_weight[i] + log_weight[j]
        log_weight[i] = np.logaddexp(together, log_weight[i] + log_weight[j])  # log d p(rows | tree)
        children[t], names[i] = names[[i, j]], k + t
        others = _join(scores, alive, clusters, i, j)
        new = weight(clusters.take(others).plus(clusters.take([i]))) - log_weight[i] - log_weight[others]
        scores[np.minimum(i, others), np.maximum(i, others)] = new
    return Tree(children, float(log_weight[0]))


def bayes_kmeans(X: np.ndarray, weight: Weight, order: np.ndarray) -> np.ndarray:
    """Cluster labels: √n seeds, the other rows in turn to the best cluster or to a new one, then merges that gain.

    As in the paper, rows are not reassigned.
    """
    n, rows = len(X), of_rows(X)
    k = max(int(np.sqrt(n)), 1)
    labels = np.full(n, -1)
    labels[order[:k]] = np.arange(k)
    clusters = rows.take(order[:k])
    log_weight = weight(clusters)
    for row in order[k:]:
        candidates = Clusters(*map(np.concatenate, zip(clusters.plus(rows.take([row])), rows.take([row]), strict=True)))
        proposed = weight(candidates)
        best = int((proposed - np.append(log_weight, 0.0)).argmax())
        labels[row] = best
        if best == k:
            clusters = Clusters(*map(np.concatenate, zip(clusters, rows.take([row]), strict=True)))
            log_weight, k = np.append(log_weight, proposed[best]), k + 1
        else:
            clusters.put(best, candidates.take([best]))
            log_weight[best] = proposed[best]
    scores, alive = _pairs(clusters, weight, log_weight), np.ones(k, bool)
    while k > 1 and scores.max() > 0:
        i, j = divmod(int(scores.argmax()), k)
        log_weight[i] += scores[i, j] + log_weight[j]
        labels[labels == j] = i
        others = _join(scores, alive, clusters, i, j)
        new = weight(clusters.take(others).plus(clusters.take([i]))) - log_weight[i] - log_weight[others]
        scores[np.minimum(i, others), np.maximum(i, others)] = new
    return np.unique(labels, return_inverse=True)[1]


def clusters_of(X: np.ndarray, labels: np.ndarray) -> Clusters:
    """Sufficient statistics of the clusters."""
    member = np.eye(labels.max() + 1)[labels]
    return Clusters(member.sum(0), member.T @ X, np.einsum("nk,ni,nj->kij", member, X, X))


def log_evidence_bound(tree: Tree, alpha: float, n: int) -> float:
    """The bound of Corollary 1 of Heller & Ghahramani (2005), nats."""
    return tree.log_weight + math.lgamma(alpha) - math.lgamma(n + alpha)
