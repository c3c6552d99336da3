"""Trees that are merged two at a time, and the scores of all merges of one of them, from sufficient statistics alone."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.leaves import Leaves, Merges, undefined_score
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.clusters import joint_and_statistics, marginals_by, packed
from bnp_hier.partitions.engine import has_kernels

__all__ = ["CRITERIA", "Forest", "forest_of_leaves", "tolerance"]

TIE = 1e-9
"""Relative difference below which scores count as tied; among tied pairs, the one with the smallest node numbers is merged."""

CRITERIA = ("odds", "ratio", "normalised", "dp", "finite")
"""Merge scores: "odds", the posterior odds of one cluster (as in the paper); "ratio", the marginal likelihood ratio;
"normalised", that ratio normalised for size; "dp" and "finite", the gain in log joint from merging two clusters, up to a
constant, under the prior over partitions or over labels with Dirichlet weights."""


def tolerance(score: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
    """Distance below a score within which other scores count as tied with it."""
    return np.where(np.isfinite(score), TIE * np.maximum(1.0, np.abs(score)), 0.0)


class Forest:
    """Trees under construction, numbered like the nodes of a `Dendrogram`; merges are made in the order of their calls.

    Parameters
    ----------
    component, concentration
        Conjugate component, and α of the Dirichlet process.
    rows, items
        (n, p) packed statistics and (n,) numbers of rows of the leaves.
    names
        Names of the leaves in error messages.

    Attributes
    ----------
    alive
        (2n − 1,) whether a node is a tree that has not been merged yet.
    merges
        The merges made so far, followed by zeros.
    """

    def __init__(
        self,
        component: Component,
        rows: Float[np.ndarray, "n p"],
        items: Int[np.ndarray, " n"],
        concentration: float,
        names: Sequence[str],
    ) -> None:
        n = len(items)
        self.component, self.names, self._alpha = component, names, concentration
        self._rows, self._items = np.zeros((2 * n - 1, rows.shape[1])), np.ones(2 * n - 1, np.int64)
        self._rows[:n], self._items[:n] = rows, items
        # log marginal likelihood as one cluster, and log mass φ of all tree-consistent partitions
        self._marginal, self._mass = np.zeros(2 * n - 1), np.zeros(2 * n - 1)
        self._marginals, self._natively = marginals_by(component), has_kernels(component)
        self._marginal[:n] = self._marginals(self._rows[:n], items)
        self._mass[:n] = np.log(concentration) + gammaln(items) + self._marginal[:n]
        self.alive, self._made = np.arange(2 * n - 1) < n, 0
        self.merges = Merges(np.zeros((n - 1, 2), int), np.zeros(n - 1), 0)

    def scores(self, node: int, others: Int[np.ndarray, " m"], criterion: str) -> Float[np.ndarray, " m"]:
        """Scores of merging a tree with each of the others.

        With N the number of rows of a pair, "odds" is log α + lgamma(N) + m(D_i ∪ D_j) − φ_i − φ_j and "ratio" is m(D_i ∪ D_j)
        − m(D_i) − m(D_j); "normalised" divides the ratio by √(N_i N_j/N); "dp" and "finite" add g(N) − g(N_i) − g(N_j) to it,
        where g(N) is lgamma(N) or lgamma(N + α), respectively.

        Raises
        ------
        ValueError
            If a score is NaN or infinite, except −inf; the message names the pair.
        """
        self.merges = self.merges._replace(evaluations=self.merges.evaluations + len(others))
        joint, items, other_items = self._joint(node, others), self._items[node], self._items[others]
        with np.errstate(invalid="ignore"):
            scores = joint - self._marginal[node] - self._marginal[others]
            if criterion == "odds":
                scores = np.log(self._alpha) + gammaln(items + other_items) + joint - self._mass[node] - self._mass[others]
        if criterion == "normalised":
            scores = scores / np.sqrt(items * other_items / (items + other_items))
        elif criterion in ("dp", "finite"):
            shift = self._alpha if criterion == "finite" else 0.0
            scores = scores + gammaln(items + other_items + shift) - gammaln(items + shift) - gammaln(other_items + shift)
        undefined = ~(scores < np.inf)
        if undefined.any():
            raise self.undefined(node, int(others[undefined.argmax()]))
        return scores

    def _joint(self, node: int, others: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Log marginal likelihoods of the unions of a tree with each of the others."""
        # XLA would compile a program for every number of others
        some = others if self._natively else np.arange(len(self._rows))
        joint = self._marginals(self._rows[some] + self._rows[node], self._items[some] + self._items[node])
        return joint if self._natively else joint[others]

    def merge(self, one: int, other: int) -> int:
        """Merge two trees, the smaller number first, and return the number of the new one."""
        joint = self._joint(one, np.array([other]))[0]
        node = len(self.names) + self._made
        self._rows[node], self._items[node] = self._rows[one] + self._rows[other], self._items[one] + self._items[other]
        apart = self._mass[one] + self._mass[other]
        odds = np.log(self._alpha) + gammaln(self._items[node]) + joint - apart
        self._marginal[node], self._mass[node] = joint, apart + np.logaddexp(odds, 0.0)
        self.merges.children[self._made], self.merges.log_odds[self._made] = (one, other), odds
        self.alive[[one, other]], self.alive[node] = False, True
        self._made += 1
        return node

    def undefined(self, one: int, other: int) -> ValueError:
        """Create the error for two trees whose merge has no finite score."""
        return undefined_score(self.component, self.names, (one, other), self.merges.children)

    @property
    def log_mass(self) -> float:
        """Log mass of the partitions that are consistent with the complete tree."""
        return float(self._mass[-1])


def forest_of_leaves(component: Component, leaves: Leaves, concentration: float) -> Forest:
    """Make every leaf a tree."""
    jax.eval_shape(component.cache, component.empty())  # families without a density of one row say so
    _, stats = joint_and_statistics(component, leaves.X, leaves.labels, Prior(1.0))
    return Forest(component, packed(stats), np.bincount(leaves.labels, minlength=leaves.n), concentration, leaves.names)
