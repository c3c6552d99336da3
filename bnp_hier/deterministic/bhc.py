"""Bayesian hierarchical clustering."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.agglomeration.bayes_kmeans_tree import build_bayes_kmeans_tree
from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree
from bnp_hier.deterministic.agglomeration.randomized_bhc import randomized_tree
from bnp_hier.deterministic.agglomeration.tree_evidence import merge_odds, node_statistics, node_weights, tree_bound
from bnp_hier.deterministic.agglomeration.tree_search import FULL_GAIN, ratio_inside_clusters, search
from bnp_hier.deterministic.alternation import alternate
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm
from bnp_hier.partitions.scoring import check_log_weights, in_chunks, log_weighted_densities, with_empty
from bnp_hier.partitions.seating import Prior
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import RANDOM_STATE, WholeNumber, require_count
from bnp_hier.utils.randomness import random_key

__all__ = ["BHC", "METHODS"]

METHODS = ("exact", "randomized", "bayes_kmeans")
"""Ways to build the first tree."""


class BHC(DeterministicClustering):
    """Bayesian hierarchical clustering (Heller & Ghahramani 2005): a tree, and a lower bound on the evidence.

    Trees are merged greedily, always the pair with the largest posterior odds of being one cluster rather than any
    partition consistent with the two trees; then better trees are searched for. The tree holds exponentially many partitions
    of a Dirichlet-process mixture; their total mass bounds the evidence from below, and predictions and draws average over
    them.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site (discount 0) and one observed `ConjugateMixture` on it. By
        default normals of any covariance under `NormalInverseWishart.from_data`, and concentration 1.
    method
        "exact": all pairs, O(n²) time and O(n) memory. "randomized": exact trees of random subsets, through which the other
        rows are filtered, O(n log n). "bayes_kmeans": rows are put into small clusters one by one, and the exact tree is
        built over the clusters.
    refine
        For method "exact". None: the paper's greedy tree as it is. "polish": the best of four trees (greedy, greedy by a
        score normalised for size, Ward and average linkage) and of trees rebuilt on good hard partitions near their cuts.
        "full": after that, rounds of moving every subtree to its best place and of polish, until a round gains less than
        0.05 nats. The bound is never below the greedy tree's.
    shape
        "bound": the tree that was found. "ratio": rebuilt inside its clusters by the plain marginal likelihood ratio, which
        gives balanced trees for drawing and costs little of the bound; the bound reported is that of the returned tree.
    optimize
        Whether to fit the hyperparameters that have priors, by alternating trees with gradient steps on bound + log prior;
        otherwise they sit at their prior medians.
    max_rounds
        Most rounds of `optimize`.
    random_state
        Whole number or JAX key for the search and for the random subsets and orders.
    progress_bar
        Whether to show a progress bar on large data.

    Attributes
    ----------
    dendrogram_ : Dendrogram
        The tree, with the log odds of each merge.
    labels_ : ndarray
        (n,) clusters, from 0: the tree cut where merges have probability below 0.5.
    log_evidence_bound_ : float
        Lower bound on log p(X) at the fitted hyperparameters (nats).
    bound_kind_ : str
        "tree".
    objective_trace_ : ndarray
        Bound + log prior of the hyperparameters (nats): of the first tree, after each round of `optimize`, and after each
        step of `refine`; never falls. `shape="ratio"` comes after it.
    n_iter_ : int
        Steps after the first tree: one less than the length of the trace.
    X_fit_ : ndarray
        (n, d) the data as the model's component sees it.
    node_weights_ : ndarray
        (2n − 1,) posterior probability, under the tree, that each node's items are one cluster.
    n_clusters_, component_, concentration_, hyperparameters_, log_joint_
        As for every estimator.

    Notes
    -----
    The predictive is the paper's Eq. 9 corrected: every node's weight is multiplied by its share n_k/(n + α) and the new
    cluster's α/(n + α) p(x) is added; as printed it integrates to the expected number of clusters.

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
        optimize: bool = False,
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
            raise ValueError("BHC counts partitions into any number of clusters: the model must not set max_clusters")
        key_first, key_search = jax.random.split(random_key(self.random_state))
        build = partial(self._first_tree, key=key_first)
        children = build(problem.values)
        trace = [self._objective(problem, children)]
        if self.optimize:
            children, trace = self._alternate(problem, children, build)
        if self.method == "exact" and self.refine is not None:
            children = self._searched(problem, children, trace, key_search)
        values = problem.values
        X = np.asarray(values.X)
        log_odds = np.asarray(merge_odds(values.component, X, values.concentration, jnp.asarray(children)))
        if self.shape == "ratio":
            tree = Dendrogram(children, log_odds)
            children, log_odds = ratio_inside_clusters(values.component, X, float(values.concentration), tree)
        self.X_fit_ = X
        self.dendrogram_ = Dendrogram(children, log_odds)
        self.log_evidence_bound_ = float(_bound_at(values, jnp.asarray(children)))
        self.bound_kind_ = "tree"
        self.objective_trace_, self.n_iter_ = np.array(trace), len(trace) - 1
        self.node_weights_ = node_weights(log_odds, children)
        self._finish(problem, self.dendrogram_.cut())
        # nodes without weight never matter for prediction, and a large tree has many
        self._nodes_ = np.flatnonzero(self.node_weights_ * self.dendrogram_.sizes > 1e-12 * len(self.labels_))
        stats = _tree_statistics(self.component_, values.X, jnp.asarray(children))
        # padded to a power of two, so that fits with different numbers of kept nodes share a compiled program
        padding = max(16, 1 << (len(self._nodes_) - 1).bit_length()) - len(self._nodes_)
        self._node_stats_ = jax.tree.map(
            lambda leaf: np.concatenate([leaf := np.asarray(leaf)[self._nodes_], np.zeros((padding, *leaf.shape[1:]))]), stats
        )

    def _first_tree(self, values: MixtureValues, key: Array) -> np.ndarray:
        """The tree of the method, before any search."""
        component, X, alpha = values.component, np.asarray(values.X), float(values.concentration)
        if self.method == "randomized":
            return randomized_tree(component, X, alpha, key, self.progress_bar)
        if self.method == "bayes_kmeans":
            return build_bayes_kmeans_tree(component, X, alpha, key)
        return greedy_tree(component, X, alpha, self.progress_bar)[0]

    def _searched(self, problem: Problem, children: np.ndarray, trace: list[float], key: Array) -> np.ndarray:
        """The tree found by `refine`, by turns with gradient steps if wanted; adds its steps to the trace."""
        assert self.refine is not None
        for key_round in jax.random.split(key, self.max_rounds if self.optimize else 1):
            before = trace[-1]
            values, log_prior = problem.values, float(problem.prior.log_prob(problem.hyperparameters))
            X, alpha = np.asarray(values.X), float(values.concentration)
            found = search(values.component, X, alpha, children, self.refine, key_round, self.progress_bar)
            children = found.children
            trace.extend(found.trace[1:] + log_prior)
            if self.optimize:
                children, risen = self._alternate(problem, children, None)
                trace.extend(risen[1:])
            if trace[-1] - before < FULL_GAIN:
                break
        return children

    def _alternate(
        self, problem: Problem, children: np.ndarray, build: Callable[[MixtureValues], np.ndarray] | None
    ) -> tuple[np.ndarray, list[float]]:
        """Gradient steps on a fixed tree and new trees by turns, or the steps alone without `build`; and the bounds reached."""

        def again(values: MixtureValues, before: np.ndarray) -> np.ndarray:
            if build is None:
                return before
            # a new tree at the new values can be worse than the tree that they were fitted on
            return max(build(values), before, key=lambda tree: float(_bound_at(values, jnp.asarray(tree))))

        return alternate(problem, children, again, _bound_at, lambda tree: (jnp.asarray(tree),), self.max_rounds)

    @staticmethod
    def _objective(problem: Problem, children: np.ndarray) -> float:
        return float(_bound_at(problem.values, jnp.asarray(children)) + problem.prior.log_prob(problem.hyperparameters))

    def _log_node_weights(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Log of (weight × predictive density) of new rows at each kept node and, last, at a new cluster (nats)."""
        matrix = self._new_rows(X)
        kept = len(self._nodes_)
        expected = np.zeros(len(jax.tree.leaves(self._node_stats_)[0]))
        expected[:kept] = self.node_weights_[self._nodes_] * self.dendrogram_.sizes[self._nodes_]
        prior = Prior(self.concentration_)
        with jax.enable_x64(True):
            log_weights = in_chunks(
                lambda rows: _node_log_weights(self.component_, self._node_stats_, jnp.asarray(expected), prior, rows), matrix
            )
        return check_log_weights(np.column_stack([log_weights[:, :kept], log_weights[:, -1]]), matrix)

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row, averaged over the partitions of the tree (nats).

        p(x|D) = Σ_k ω_k n_k/(n + α) p(x|D_k) + α/(n + α) p(x).

        Raises
        ------
        NotFittedError, ValueError
            Before `fit`; or if the rows do not fit the component.
        """
        check_is_fitted(self, "counts_")
        return np.logaddexp.reduce(self._log_node_weights(X), axis=1)

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability of each label for a uniformly chosen item of the new row's cluster; last column: a new cluster.

        Averaged over the partitions of the tree: node k seats the row next to each of its items with equal probability, and
        the items' labels in `labels_` count.

        Raises
        ------
        NotFittedError, ValueError
            Before `fit`; or if the rows do not fit the component.
        """
        check_is_fitted(self, "counts_")
        log_weights = self._log_node_weights(X)
        shares = np.exp(log_weights - np.logaddexp.reduce(log_weights, axis=1, keepdims=True))
        return np.column_stack([shares[:, :-1] @ self._label_shares(), shares[:, -1]])

    def _label_shares(self) -> Float[np.ndarray, "kept k"]:
        """Share of each label among the items of each kept node."""
        n, children = len(self.labels_), self.dendrogram_.children
        counts = np.zeros((2 * n - 1, self.n_clusters_))
        counts[np.arange(n), self.labels_] = 1.0
        for t, (left, right) in enumerate(children):
            counts[n + t] = counts[left] + counts[right]
        kept = counts[self._nodes_]
        return kept / kept.sum(1, keepdims=True)

    def sample_partitions(self, key: int | Array, num_samples: int) -> Int[np.ndarray, "s items"]:
        """Exact draws of partitions from the posterior over the tree's partitions.

        From the root down, a node is made a cluster with its merge probability r.

        Parameters
        ----------
        key
            JAX key or whole number.
        num_samples
            Number of draws.

        Returns
        -------
        labels
            (num_samples, items) whole numbers from 0, in order of appearance.
        """
        check_is_fitted(self, "counts_")
        require_count("num_samples", num_samples)
        tree = self.dendrogram_
        items = tree.n_items
        with jax.enable_x64(True):
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
        """Posterior probability, over the tree's partitions, that two items share a cluster."""
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


def _bound_at(values: MixtureValues, children: Int[Array, "m 2"]) -> Float[Array, ""]:
    """Bound of a fixed tree at the hyperparameters of the values (nats)."""
    return tree_bound(values.component, values.X, values.concentration, children)


@jax.jit
def _tree_statistics(component: Component, X: Float[Array, "n d"], children: Int[Array, "m 2"]) -> Statistics:
    return node_statistics(component.suff_stats(X), children)


@jax.jit
def _node_log_weights(
    component: Component, stats: Statistics, expected: Float[Array, " k"], prior: Prior, X: Float[Array, "m d"]
) -> Float[Array, "m k1"]:
    n = jnp.round(expected.sum())  # Σ ω_k n_k = n
    weights = jnp.log(jnp.append(expected, prior.concentration)) - jnp.log(n + prior.concentration)
    return log_weighted_densities(component, with_empty(component, stats), weights, X)
