"""Greedy merges of clusters from their statistics; call in float64."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.seating import GibbsTypePrior
from bnp_hier.partitions.clusters import marginals_of
from bnp_hier.utils.arrays import take

__all__ = ["Unions", "merge_by_joint"]

PAIRS_AT_ONCE = 1 << 16
"""Maximum number of unions whose statistics are in memory at the same time, unless one cluster has more partners."""

LEAST_GAIN = 1e-9
"""Increase of the log joint, relative to the log marginal likelihood, that rounding errors may account for."""


class Unions:
    """Clusters, one in each slot, and the scores of merging all pairs of them; `score` must be called first.

    Parameters
    ----------
    component
        Conjugate component.
    stats, counts
        Statistics and sizes of the clusters, as NumPy arrays.

    Attributes
    ----------
    stats, counts, marginals
        Statistics, sizes and log marginal likelihoods (nats) of the clusters that are left, in their slots.
    """

    def __init__(self, component: Component, stats: Statistics, counts: Float[np.ndarray, " k"]) -> None:
        self.component, self.counts = component, counts.astype(float)
        self.stats = jax.tree.map(lambda leaf: np.array(leaf, dtype=np.float64), stats)
        k = len(counts)
        self.marginals = marginals_of(component, self.stats, self.counts)
        self._left = np.ones(k, dtype=bool)
        self._joint, self._scores = np.full((k, k), -np.inf), np.full((k, k), -np.inf)

    def score(self, score: Callable[[Unions, np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> None:
        """Compute the scores of all pairs, and later those of pairs with a union.

        Parameters
        ----------
        score
            Called with this object, two arrays of slots and the log marginal likelihoods of the unions of their clusters;
            returns the scores of these pairs.
        """
        self._score = score
        one, other = np.triu_indices(len(self.counts), 1)
        for at in range(0, len(one), PAIRS_AT_ONCE):
            self._compute(one[at : at + PAIRS_AT_ONCE], other[at : at + PAIRS_AT_ONCE])

    def best(self) -> tuple[int, int, float]:
        """The two slots, the smaller one first, whose merge has the highest score, and this score; it is never NaN."""
        one, other = divmod(int(self._scores.argmax()), len(self.counts))
        return one, other, float(self._scores[one, other])

    def merge(self, into: int, slot: int) -> None:
        """Merge two clusters, the smaller slot first; the union has this slot."""
        self.counts[into] += self.counts[slot]
        for leaf in jax.tree.leaves(self.stats):
            leaf[into] += leaf[slot]
        self.marginals[into], self._left[slot] = self._joint[into, slot], False
        self._scores[slot], self._scores[:, slot] = -np.inf, -np.inf
        others = np.setdiff1d(np.flatnonzero(self._left), into)
        if len(others):
            self._compute(np.minimum(others, into), np.maximum(others, into))

    def _compute(self, one: Int[np.ndarray, " p"], other: Int[np.ndarray, " p"]) -> None:
        both = jax.tree.map(np.add, take(self.stats, one), take(self.stats, other))
        joint = marginals_of(self.component, both, self.counts[one] + self.counts[other])
        scores = self._score(self, one, other, joint)
        self._joint[one, other], self._scores[one, other] = joint, np.where(np.isnan(scores), -np.inf, scores)


def merge_by_joint(
    component: Component,
    stats: Statistics,
    counts: Float[np.ndarray, " k"],
    prior: GibbsTypePrior,
    limit: float = np.inf,
    merges: int | None = None,
) -> tuple[Int[np.ndarray, " k"], Statistics, Float[np.ndarray, " k1"]]:
    """Merge the two clusters whose union increases log p(X, labels) most, as long as any does.

    Parameters
    ----------
    component, prior
        Component and partition prior.
    stats, counts
        Statistics and sizes of the clusters, all of them with rows.
    limit
        Maximum number of clusters: as long as there are more, the best pair is merged even if the log joint decreases.
    merges
        Maximum number of merges; None for any number.

    Returns
    -------
    names, stats, counts
        New number of each cluster, and the statistics and sizes of the new clusters, in the order of their first members.
    """
    discount = np.asarray(prior.discount, np.float64)

    def gain(of: Unions, one: np.ndarray, other: np.ndarray, joint: np.ndarray) -> np.ndarray:
        """Increase of the log joint, up to the term of the prior that depends only on the number of clusters."""
        sizes = gammaln(of.counts - discount)
        together = gammaln(of.counts[one] + of.counts[other] - discount)
        return joint - of.marginals[one] - of.marginals[other] + together - sizes[one] - sizes[other]

    unions = Unions(component, stats, counts)
    unions.score(gain)
    name, least = np.arange(len(counts)), LEAST_GAIN * abs(unions.marginals.sum())
    for clusters in range(len(counts), 1 if merges is None else max(1, len(counts) - merges), -1):
        one, other, score = unions.best()
        opening = prior.log_open(clusters - 1) - gammaln(1.0 - discount)
        if score == -np.inf or (clusters <= limit and not score - opening > least):
            break
        unions.merge(one, other)
        name[name == other] = one
    used, names = np.unique(name, return_inverse=True)
    return names, take(unions.stats, used), unions.counts[used]
