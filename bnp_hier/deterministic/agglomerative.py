"""Agglomerative Bayesian clustering: each greedy merge is the one that reduces the free energy the most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int
from scipy.special import gammaln
from sklearn.utils._param_validation import StrOptions

from bnp_hier.components import Component
from bnp_hier.components.special import log_gamma_ratio_in_numpy
from bnp_hier.deterministic.agglomeration.conga_lines import conga_line_merges
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import Merges, row_leaves
from bnp_hier.deterministic.agglomeration.tree_evidence import evidence_of
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.deterministic.hard_assignment.free_energies import LABEL_MODELS, log_joint_objective
from bnp_hier.deterministic.learned_hyperparameters import learn, starting_hyperparameters
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import WholeNumber

__all__ = ["AgglomerativeBayesianClustering"]

ENGINES = ("row_best", "conga_line")
"""Algorithms that find the best pair; both yield the same merges."""


def _energies(
    component: Component, X: Float[np.ndarray, "n d"], alpha: float, merges: Merges, labels: str
) -> Float[np.ndarray, " n"]:
    """Free energy of the partitions into n, n − 1, ..., 1 clusters that the merges produce (nats)."""
    n, children = len(X), merges.children
    sizes = Dendrogram(children, merges.log_odds).sizes
    cluster = evidence_of(component, X, alpha, children).single  # log α + lgamma(n_k) + log marginal
    if labels == "finite":
        cluster = cluster - np.log(alpha) - gammaln(sizes) + log_gamma_ratio_in_numpy(alpha, sizes)
    change = cluster[n:] - cluster[children].sum(1)
    inside = cluster[:n].sum() + np.concatenate([np.zeros(1), np.cumsum(change)])
    total = alpha if labels == "dp" else alpha * np.arange(n, 0, -1)
    return -(inside - log_gamma_ratio_in_numpy(total, n))


class _Found(NamedTuple):
    """Result of one agglomeration.

    - **labels** - (n,) cluster labels of the best partition along the merges.
    - **merges** - all merges.
    - **energies** - (n,) free energy of the partitions along the merges (nats).
    """

    labels: Int[np.ndarray, " n"]
    merges: Merges
    energies: Float[np.ndarray, " n"]


class AgglomerativeBayesianClustering(DeterministicClustering):
    """Agglomerative clustering (Kurihara & Welling): each merge reduces the free energy −log p(X, labels) as much as possible.

    Every row starts as its own cluster and merging continues until one cluster is left; the partition with the lowest free
    energy along the way is kept. The matching data-dependent prior is
    ``NormalInverseWishart.from_data(X, rule="agglomerative", learn=False)``.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site (discount 0, no `max_clusters`) and one observed
        `ConjugateMixture` on it. The default has normal clusters with unrestricted covariances; its
        hyperparameters, those of `NormalInverseWishart.from_data` and the concentration, have weakly informative priors.
    label_prior
        "dp": the model's partition prior. "finite": K labels with Dirichlet(α, ..., α) weights, where K is the number of
        non-empty clusters and α the model's concentration.
    optimize
        "auto": fit the hyperparameters that have priors, if there are any, by alternating fits with gradient steps on log p(X,
        labels) + log prior, from the best of several starts: the prior medians, values that sites declare, and a fit by single-
        row moves. True: the same, and raise an error if there are none. False: fix them at their prior medians. A dictionary:
        fix them at these values, such as the `hyperparameters_` of another fit.
    engine
        "row_best": every cluster stores its best partner. "conga_line": Eppstein's data structure, used in the paper; it
        makes the same merges with O(n² log² n) evaluations in the worst case, but needs more than "row_best" in practice.
    max_rounds
        Maximum number of rounds of `optimize`.
    progress_bar
        Whether to show a progress bar for 2,000 rows or more.

    Attributes
    ----------
    labels_ : ndarray
        (n,) cluster labels of the partition with the lowest free energy, from 0, in order of appearance.
    dendrogram_ : Dendrogram
        The merges; `log_odds` are the log posterior odds of the partition after each merge against the one before it. The
        drawn heights never decrease towards the root, although these odds need not be monotonic.
    free_energies_ : ndarray
        (n,) free energy of the partitions into n, n − 1, ..., 1 clusters (nats).
    free_energy_ : float
        Minimum of `free_energies_`: −log p(X, `labels_`) under `label_prior`.
    evaluations_ : int
        Number of pairs for which the change in free energy was computed while building this tree; scanning all pairs before
        each merge would take (n − 1) n (n + 1)/6.
    n_clusters_, log_joint_, component_, concentration_, hyperparameters_
        Number of clusters, log p(X, `labels_`) (nats), component, concentration, and dictionary of the hyperparameters.

    Notes
    -----
    Kurihara & Welling (2009), section 7. The search is greedy: use it for the tree rather than for the number of clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> fit = bnp.AgglomerativeBayesianClustering(model).fit([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> fit.labels_, fit.free_energies_.round(1)
    (array([0, 0, 0, 1, 1]), array([18.8, 16.2, 15.4, 13.8, 29.7]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeterministicClustering._parameter_constraints,
        "label_prior": [StrOptions(set(LABEL_MODELS))],
        "engine": [StrOptions(set(ENGINES))],
        "max_rounds": [WholeNumber()],
        "progress_bar": ["boolean"],
    }

    def __init__(
        self,
        model: Model = dpm,
        label_prior: str = "dp",
        optimize: bool | str | Mapping[str, ArrayLike] = "auto",
        *,
        engine: str = "row_best",
        max_rounds: int = 20,
        progress_bar: bool = True,
    ) -> None:
        self.model = model
        self.label_prior = label_prior
        self.optimize = optimize
        self.engine = engine
        self.max_rounds = max_rounds
        self.progress_bar = progress_bar

    def _fit(self, problem: Problem) -> None:
        values = problem.values
        if float(values.discount) or problem.sites.max_clusters:
            what = "a discount" if float(values.discount) else "max_clusters"
            raise ValueError(f"agglomerative clustering needs a plain Dirichlet process, but the model has {what}")
        jax.eval_shape(values.component.cache, values.component.empty())  # raises for a family without single-row densities
        rounds = self._rounds(problem)
        objective = log_joint_objective(problem, self.label_prior)
        starts = starting_hyperparameters(problem, np.random.default_rng(0))[0] if rounds else ()
        found, _ = learn(problem, self._tree, self._tree, objective, rounds, starts)
        self.free_energies_ = found.energies
        self.free_energy_ = float(found.energies.min())
        self.evaluations_ = found.merges.evaluations
        self.dendrogram_ = Dendrogram(found.merges.children, -np.diff(found.energies))
        self._finish(problem, found.labels)

    def _tree(self, values: MixtureValues, _: _Found | None = None) -> _Found:
        component, X, alpha = values.component, np.asarray(values.X), float(values.concentration)
        engine = agglomerate if self.engine == "row_best" else conga_line_merges
        merges = engine(component, row_leaves(X), alpha, self.label_prior, progress_bar=self.progress_bar)
        energies = _energies(component, X, alpha, merges, self.label_prior)
        return _Found(_after(merges.children, int(energies.argmin())), merges, energies)


def _after(children: Int[np.ndarray, "m 2"], merges: int) -> Int[np.ndarray, " n"]:
    """Labels, in order of appearance, after the given number of merges."""
    n = len(children) + 1
    top = np.arange(2 * n - 1)
    for t in range(merges - 1, -1, -1):
        top[children[t]] = top[n + t]
    return canonical_labels(top[:n])
