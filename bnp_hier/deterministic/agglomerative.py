"""Agglomerative Bayesian clustering: the merges that lower the free energy most, one after the other."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration import agglomerate, row_leaves
from bnp_hier.deterministic.base import DeterministicClustering, Problem
from bnp_hier.deterministic.free_energy import LABEL_MODELS
from bnp_hier.deterministic.tree_mass import node_statistics
from bnp_hier.hierarchy import Dendrogram, canonical_labels
from bnp_hier.model_sites import Model

__all__ = ["AgglomerativeBayesianClustering"]


@partial(jax.jit, static_argnames="labels")
def _energies(
    component: Component, X: Float[Array, "n d"], concentration: Float[Array, ""], children: Int[Array, "m 2"], labels: str
) -> Float[Array, " n"]:
    """Free energy of the partitions into n, n − 1, ..., 1 clusters that the merges go through (nats)."""
    n = children.shape[0] + 1
    stats, sizes = node_statistics((component.suff_stats(X), jnp.ones(n)), children)
    alpha = jnp.asarray(concentration)
    label = gammaln(sizes) + jnp.log(alpha) if labels == "dp" else gammaln(sizes + alpha) - gammaln(alpha)
    cluster = component.log_marginal(stats) + label
    change = cluster[n:] - cluster[children].sum(1)
    inside = cluster[:n].sum() + jnp.concatenate([jnp.zeros(1), jnp.cumsum(change)])
    total = alpha if labels == "dp" else alpha * jnp.arange(n, 0, -1)
    return -(inside + gammaln(total) - gammaln(n + total))


class AgglomerativeBayesianClustering(DeterministicClustering):
    """Bottom-up clustering by free energy (Kurihara & Welling): always the merge that lowers −log p(X, labels) most.

    Every row begins as a cluster; merging goes on to one cluster, and the partition on the way with the least free energy is
    kept. The data-informed prior made for it is ``NormalInverseWishart.from_data(X, rule="agglomerative")``.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it, without discount.
    prior
        "dp": the model's partition prior. "finite": K labels with Dirichlet(α, ..., α) weights, K the number of clusters in
        use and α the model's concentration.
    progress_bar
        Whether to show a bar for 2,000 rows or more.

    Attributes
    ----------
    labels_ : ndarray
        (n,) clusters of the partition with the least free energy, from 0, in order of appearance.
    dendrogram_ : Dendrogram
        The merges, with the log posterior odds of each merged partition against the one before it as `log_odds`; drawn
        heights do not sink, although these odds can rise again after they have fallen.
    free_energies_ : ndarray
        (n,) free energy of the partitions into n, n − 1, ..., 1 clusters (nats).
    free_energy_ : float
        The least of them: −log p(X, labels_) under `prior`.
    n_clusters_, log_joint_, component_, concentration_, hyperparameters_
        As for every estimator.

    Notes
    -----
    Kurihara & Welling (2009), section 7. The search is greedy: it is the tree that it is for, not the number of clusters.
    """

    optimize = False

    def __init__(self, model: Model, prior: str = "dp", *, progress_bar: bool = True) -> None:
        self.model = model
        self.prior = prior
        self.progress_bar = progress_bar

    def _check_options(self) -> None:
        if self.prior not in LABEL_MODELS:
            raise ValueError(f"prior must be one of {', '.join(LABEL_MODELS)}, but it is {self.prior!r}")

    def _fit(self, problem: Problem) -> None:
        values = problem.values
        if float(values.discount) or problem.sites.max_clusters:
            found = "a discount" if float(values.discount) else "max_clusters"
            raise ValueError(f"agglomerative clustering needs a plain Dirichlet process, but the model has {found}")
        X, alpha = np.asarray(values.X), float(values.concentration)
        leaves = row_leaves(values.component, X)
        children, _ = agglomerate(values.component, leaves, alpha, self.prior, progress_bar=self.progress_bar)
        energies = _energies(values.component, jnp.asarray(X), jnp.asarray(alpha), jnp.asarray(children), self.prior)
        self.free_energies_ = np.asarray(energies)
        merges = int(self.free_energies_.argmin())
        self.free_energy_ = float(self.free_energies_[merges])
        self.dendrogram_ = Dendrogram(children, -np.diff(self.free_energies_))
        self._finish(problem, _after(children, merges))


def _after(children: Int[np.ndarray, "m 2"], merges: int) -> Int[np.ndarray, " n"]:
    """Labels, in order of appearance, once so many merges have been made."""
    n = len(children) + 1
    top = np.arange(2 * n - 1)
    for t in range(merges - 1, -1, -1):
        top[children[t]] = top[n + t]
    return canonical_labels(top[:n])
