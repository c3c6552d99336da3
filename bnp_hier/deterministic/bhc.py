"""Bayesian hierarchical clustering (BHC)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.agglomeration.bayes_kmeans_tree import build_bayes_kmeans_tree
from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree
from bnp_hier.deterministic.agglomeration.randomized_bhc import randomized_tree
from bnp_hier.deterministic.agglomeration.tree_ascent import bound_of, tree_objective
from bnp_hier.deterministic.agglomeration.tree_evidence import (
    evidence_of,
    node_weights,
    statistics_of_nodes,
)
from bnp_hier.deterministic.agglomeration.tree_search import FULL_GAIN, ratio_inside_clusters, search
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.deterministic.learned_hyperparameters import alternate, learn, starting_hyperparameters
from bnp_hier.deterministic.row_sources.lazy_predictions import lazy_on_dask
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm
from bnp_hier.partitions.clusters import log_predictives
from bnp_hier.partitions.scoring import check_log_weights
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import RANDOM_STATE, WholeNumber, require_count
from bnp_hier.utils.randomness import random_generators, random_key

__all__ = ["BHC", "METHODS"]

SEARCHES = 2
"""Maximum number of searches for better trees while the hyperparameters are fitted: each costs as much as several trees."""

METHODS = ("exact", "randomized", "bayes_kmeans")
"""Algorithms that build the initial tree."""


class BHC(DeterministicClustering):
    """Bayesian hierarchical clustering (Heller & Ghahramani 2005): a tree and a lower bound on the evidence.

    Trees are merged greedily: each merge joins the pair with the largest posterior odds of being one cluster rather than any
    partition consistent with the two trees. A search for better trees follows. The tree represents exponentially many
    partitions of a Dirichlet-process mixture: their total mass is a lower bound on the evidence, and predictions and samples
    average over them.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site (discount 0, no `max_clusters`) and one observed
        `ConjugateMixture` on it. The default has normal clusters with unrestricted covariances; its hyperparameters, those of
        `NormalInverseWishart.from_data` and the concentration, have weakly informative priors.
    method
        "exact": consider all pairs, in O(n²) time and O(n) memory. "randomized": build exact trees of random subsets and
        filter the other rows through them, in O(n log n). "bayes_kmeans": assign the rows one by one to small clusters and
        build the exact tree over these clusters.
    refine
        Tree search for `method="exact"`. None: return the paper's greedy tree. "polish": take the best of four trees
        (greedy, greedy by a score normalised for size, Ward and average linkage) and of trees rebuilt on good hard
        partitions near their cuts. "full": then repeat rounds that move every subtree to its best position and polish again,
        until a round improves the bound by less than 0.05 nats. The bound is never below that of the greedy tree.
    shape
        "bound": return the tree that was found. "ratio": rebuild the tree inside each cluster by the plain marginal
        likelihood ratio, which yields balanced trees for plotting at little cost to the bound; the reported bound is that of
        the returned tree.
    optimize
        "auto": fit the hyperparameters that have priors, if there are any, by alternating tree construction with gradient steps
        on bound + log prior, from the best of several starts: the prior medians, values that sites declare, and a fit by
        single-row moves. True: the same, and raise an error if there are none. False: fix them at their prior medians. A
        dictionary: fix them at these values, such as the `hyperparameters_` of another fit.
    max_rounds
        Maximum number of rounds of `optimize`.
    random_state
        Integer or JAX key for the search and for the random subsets and orders.
    progress_bar
        Whether to show progress bars: of the rounds of `refine="full"` and, for 2,000 rows or more, of the construction of the
        initial tree.

    Attributes
    ----------
    dendrogram_ : Dendrogram
        The tree, with the log odds of each merge.
    labels_ : ndarray
        (n,) cluster labels, from 0, obtained by cutting the tree at merges with probability below 0.5.
    log_evidence_bound_ : float
        Lower bound on log p(X) at the fitted hyperparameters (nats).
    bound_kind_ : str
        "tree".
    objective_trace_ : ndarray
        Bound + log prior of the hyperparameters (nats) for the initial tree, after each round of `optimize` and after each
        step of `refine`; never decreases. Does not include the rebuilding by `shape="ratio"`.
    n_iter_ : int
        Number of steps after the initial tree, which is one less than the length of the trace.
    X_fit_ : ndarray
        (n, d) data as seen by the model's component.
    node_weights_ : ndarray
        (2n − 1,) posterior probability, under the tree, that each node's items form one cluster.
    n_clusters_, component_, concentration_, hyperparameters_, log_joint_
        Number of clusters, component, concentration, dictionary of the hyperparameters, and log p(X, `labels_`) (nats).

    Notes
    -----
    The predictive density is a corrected form of the paper's Eq. 9, which as printed integrates to the expected number of
    clusters: the weight of every node is multiplied by its share n_k/(n + α), and α/(n + α) p(x) is added for a new cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> bhc = bnp.BHC(model, refine=None).fit([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> bhc.labels_, round(bhc.log_evidence_bound_, 2)
    (array([0, 0, 0, 1, 1]), -13.45)
    """

    _of_rows = ()  # its predictions need the labels

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeterministicClustering._parameter_constraints,
        "method": [StrOptions(set(METHODS))],
        "refine": [StrOptions({"polish", "full"}), None],
        "shape": [StrOptions({"bound", "ratio"})],
        "max_rounds": [WholeNumber()],
        "random_state": RANDOM_STATE,
        "progress_bar": ["boolean"],
    }

    def __init__(
        self,
        model: Model = dpm,
        method: str = "exact",
        refine: str | None = "polish",
        shape: str = "bound",
        optimize: bool | str | Mapping[str, ArrayLike] = "auto",
        *,
        max_rounds: int = 20,
        random_state: int | Array = 0,
        progress_bar: bool = True,
    ) -> None:
        self.model = model
        self.method = method
        self.refine = refine
        self.shape = shape
        self.optimize = optimize
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.progress_bar = progress_bar

    def _check_options(self) -> None:
        super()._check_options()
        if self.method != "exact" and self.refine == "full":
            raise ValueError(f'refine="full" needs method="exact", but method is {self.method!r}')

    def _fit(self, problem: Problem) -> None:
        values = problem.values
        if np.asarray(values.discount) != 0:
            raise ValueError("BHC needs a Dirichlet process: the model's discount must be the number 0")
        if problem.sites.max_clusters is not None and problem.sites.max_clusters < problem.sites.size:
            raise ValueError("BHC sums over partitions into any number of clusters, so the model must not set max_clusters")
        rng_first, rng_search = random_generators(self.random_state)
        rng_starts = np.random.default_rng(0)
        build = partial(self._first_tree, seed=int(rng_first.integers(2**63)))
        rounds = self._rounds(problem)
        if rounds:
            # a new tree can be worse than the tree for which the hyperparameters were fitted
            def again(values: MixtureValues, before: np.ndarray) -> np.ndarray:
                return max(build(values), before, key=partial(bound_of, values))

            starts, _ = starting_hyperparameters(problem, rng_starts)
            children, trace = learn(problem, build, again, tree_objective(problem), rounds, starts)
        else:
            children = build(problem.values)
            trace = [self._objective(problem, children)]
        if self.method == "exact" and self.refine is not None:
            children = self._searched(problem, children, trace, rng_search)
        values = problem.values
        X = np.asarray(values.X)
        alpha = float(values.concentration)
        evidence = evidence_of(values.component, X, alpha, children)
        if self.shape == "ratio":
            tree = Dendrogram(children, evidence.log_odds)
            children, _ = ratio_inside_clusters(values.component, X, alpha, tree)
            evidence = evidence_of(values.component, X, alpha, children)
        log_odds = evidence.log_odds
        self.X_fit_ = X
        self.dendrogram_ = Dendrogram(children, log_odds)
        self.log_evidence_bound_ = evidence.bound
        self.bound_kind_ = "tree"
        self.objective_trace_, self.n_iter_ = np.array(trace), len(trace) - 1
        self.node_weights_ = node_weights(log_odds, children)
        self._finish(problem, self.dendrogram_.cut())
        # nodes of negligible weight do not affect predictions, and a large tree has many of them
        self._nodes_ = np.flatnonzero(self.node_weights_ * self.dendrogram_.sizes > 1e-12 * len(self.labels_))
        self._node_stats_ = statistics_of_nodes(self.component_, X, children, self._nodes_)

    def _restate(self, values: MixtureValues, added: Statistics) -> None:
        self.X_fit_ = np.asarray(values.X)
        tree, nodes = self.dendrogram_, self._nodes_
        first, order = tree.first_positions(), tree.leaf_order()
        start, end = first[nodes], first[nodes] + tree.sizes[nodes]

        def with_added(total: np.ndarray, part: np.ndarray) -> np.ndarray:
            upto = np.concatenate([np.zeros_like(part[:1]), np.cumsum(part[order], axis=0)])
            return np.asarray(total) + upto[end] - upto[start]

        stats = statistics_of_nodes(self.component_, self.X_fit_, tree.children, nodes)
        self._node_stats_ = jax.tree.map(with_added, stats, added)

    def _first_tree(self, values: MixtureValues, seed: int) -> np.ndarray:
        """Build the initial tree with the chosen method, before any search."""
        component, X, alpha = values.component, np.asarray(values.X), float(values.concentration)
        if self.method == "randomized":
            return randomized_tree(component, X, alpha, np.random.default_rng(seed), self.progress_bar)
        if self.method == "bayes_kmeans":
            return build_bayes_kmeans_tree(component, X, alpha, np.random.default_rng(seed))
        return greedy_tree(component, X, alpha, self.progress_bar)[0]

    def _searched(self, problem: Problem, children: np.ndarray, trace: list[float], rng: np.random.Generator) -> np.ndarray:
        """Improve the tree as set by `refine`, alternating with gradient steps if `optimize` is set; extends the trace."""
        assert self.refine is not None
        rounds = self._rounds(problem)
        for _ in range(min(rounds, SEARCHES) or 1):
            before = trace[-1]
            values, log_prior = problem.values, float(problem.prior.log_prob(problem.hyperparameters))
            X, alpha = np.asarray(values.X), float(values.concentration)
            found = search(values.component, X, alpha, children, self.refine, rng, self.progress_bar)
            children = found.children
            trace.extend(found.trace[1:] + log_prior)
            if rounds:
                children, risen = alternate(problem, children, lambda _, tree: tree, tree_objective(problem), rounds)
                trace.extend(risen[1:])
            if trace[-1] - before < FULL_GAIN:
                break
        return children

    @staticmethod
    def _objective(problem: Problem, children: np.ndarray) -> float:
        return bound_of(problem.values, children) + float(problem.prior.log_prob(problem.hyperparameters))

    def _log_node_weights(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Log of (weight × predictive density) of new rows for each retained node and, last, for a new cluster (nats)."""
        matrix, n = self._new_rows(X), len(self.labels_)
        expected = self.node_weights_[self._nodes_] * self.dendrogram_.sizes[self._nodes_]
        weights = np.log(np.append(expected, self.concentration_)) - np.log(n + self.concentration_)  # Σ ω_k n_k = n
        with double_precision():
            densities = log_predictives(self.component_, self._node_stats_, matrix, n)
        return check_log_weights(densities + weights, matrix)

    @lazy_on_dask
    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row, averaged over the partitions of the tree (nats).

        p(x|D) = Σ_k ω_k n_k/(n + α) p(x|D_k) + α/(n + α) p(x).

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are invalid for the component.
        """
        check_is_fitted(self, "counts_")
        return np.logaddexp.reduce(self._log_node_weights(X), axis=1)

    @lazy_on_dask
    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability that each new row belongs to each cluster of `labels_` and, in the last column, to a new cluster.

        The probabilities are averaged over the partitions of the tree: if the row joins the cluster of node k, its label
        distribution is that of the node's items in `labels_`.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are invalid for the component.
        """
        check_is_fitted(self, "counts_")
        log_weights = self._log_node_weights(X)
        shares = np.exp(log_weights - np.logaddexp.reduce(log_weights, axis=1, keepdims=True))
        return np.column_stack([shares[:, :-1] @ self._label_shares(), shares[:, -1]])

    def _label_shares(self) -> Float[np.ndarray, "kept k"]:
        """Proportion of each label among the items of each retained node."""
        n, children = len(self.labels_), self.dendrogram_.children
        counts = np.zeros((2 * n - 1, self.n_clusters_))
        counts[np.arange(n), self.labels_] = 1.0
        for t, (left, right) in enumerate(children):
            counts[n + t] = counts[left] + counts[right]
        kept = counts[self._nodes_]
        return kept / kept.sum(1, keepdims=True)

    def sample_partitions(self, key: int | Array, num_samples: int) -> Int[np.ndarray, "s items"]:
        """Draw exact, independent samples from the posterior over the partitions of the tree.

        Starting at the root, each node becomes a cluster with its merge probability r; otherwise, its children are visited.

        Parameters
        ----------
        key
            JAX key or integer seed.
        num_samples
            Number of samples.

        Returns
        -------
        labels
            (num_samples, items) cluster labels, integers from 0 in order of appearance.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or `num_samples` is not an integer of at least 1.
        """
        check_is_fitted(self, "counts_")
        require_count("num_samples", num_samples)
        tree = self.dendrogram_
        items = tree.n_items
        with double_precision():
            uniforms = np.asarray(jax.random.uniform(random_key(key), (items - 1, num_samples)))
        stops = uniforms < tree.probabilities[:, None]
        top = np.repeat(np.arange(2 * items - 1)[:, None], num_samples, axis=1)
        for t in range(items - 2, -1, -1):
            node = items + t
            stopped = stops[t] | (top[node] != node)
            for child in tree.children[t]:
                top[child, stopped] = top[node, stopped]
        return np.stack([canonical_labels(draw) for draw in top[:items].T])

    def coclustering(self) -> Float[np.ndarray, "n n"]:
        """Posterior co-clustering probability of each pair of items, over the partitions of the tree.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        """
        check_is_fitted(self, "counts_")
        tree = self.dendrogram_
        n, order, sizes = tree.n_items, tree.leaf_order(), tree.sizes
        first = tree.first_positions()
        together = self.node_weights_.copy()  # Σ of ω from the root down to each node
        out = np.ones((n, n))
        for t in range(n - 2, -1, -1):
            left, right = tree.children[t]
            together[[left, right]] += together[n + t]
            a, b, c = first[left], first[right], first[right] + sizes[right]
            out[a:b, b:c] = out[b:c, a:b] = together[n + t]
        back = np.argsort(order)
        return out[np.ix_(back, back)]
