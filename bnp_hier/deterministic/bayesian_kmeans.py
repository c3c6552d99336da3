"""Bayesian k-means: hard assignments by expected log likelihood, with splits and merges that lower the free energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.cluster import kmeans_plusplus

from bnp_hier.allocation import Prior
from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.assignment import Assigner, DenseAssigner, Scores
from bnp_hier.deterministic.base import Problem, mixture_log_weights, random_key, require_count
from bnp_hier.deterministic.free_energy import LABEL_MODELS, free_energy, label_log_prior, scores_from
from bnp_hier.deterministic.kd_tree import KDTreeAssigner
from bnp_hier.deterministic.partition_search import descend
from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.model_sites import MixtureValues, Model

__all__ = ["BayesianKMeans"]

ASSIGNMENTS = ("auto", "dense", "kd_tree")
"""How rows are labelled; all give the same labels."""

KD_TREE_FROM, KD_TREE_UP_TO = 200_000, 3
"""Rows from which, and columns up to which, a kd-tree beats matrix products."""

SKETCH = 8192
"""Most rows on which starts are tried and clusters are split."""

POLISH_UP_TO = 20_000
"""Most rows that are moved one at a time at the end."""

LEAST_GAIN = 1e-6
"""Fall of the free energy (nats) under which passes stop and a split or merge is refused."""

LEAST_OVERLAP = 1e-3
"""Cosine of two clusters' responsibilities under which merging them is not tried."""


class _State(NamedTuple):
    """Clusters in slots, some of them empty.

    - **scores** - what labelled the rows.
    - **stats**, **counts** - of the rows of each cluster.
    - **free_energy** - −log p(X, labels) (nats).
    """

    scores: Scores
    stats: Statistics
    counts: Float[np.ndarray, " k"]
    free_energy: float


class _Search:
    """Passes, splits and merges on one data set.

    Parameters
    ----------
    component, prior, labels
        Component, prior of the partition, and label model.
    assigner
        How to make passes over all rows.
    sketch
        Rows (all or some) that say where clusters are split.
    max_iter
        Most passes in a row.
    limit
        Most clusters.
    """

    def __init__(
        self,
        component: Component,
        prior: Prior,
        labels: str,
        assigner: Assigner,
        sketch: Float[np.ndarray, "s d"],
        max_iter: int,
        limit: int,
    ) -> None:
        self.component, self.prior, self.labels = component, prior, labels
        self.assigner, self.sketch, self.max_iter, self.limit = assigner, sketch, max_iter, limit
        self._sketcher = DenseAssigner(component, sketch)
        self.points = _points(component, sketch)
        self.trace: list[float] = []

    def _pass(self, scores: Scores) -> _State:
        stats, counts = self.assigner(scores)
        energy = float(free_energy(self.component, stats, counts, self.prior, self.labels))
        return _State(scores, stats, np.asarray(counts), energy)

    def settle(self, scores: Scores) -> tuple[_State, list[float]]:
        """Passes until the free energy no longer falls; a pass that would raise it, as clusters empty, is refused."""
        state = self._pass(scores)
        trace = [state.free_energy]
        for _ in range(self.max_iter):
            following = self._pass(self.scores(state.stats, state.counts))
            if following.free_energy > state.free_energy:
                break
            gain, state = state.free_energy - following.free_energy, following
            trace.append(state.free_energy)
            if gain < LEAST_GAIN:
                break
        return state, trace

    def scores(self, stats: Statistics, counts: ArrayLike) -> Scores:
        """Scores of clusters with these statistics."""
        return scores_from(self.component, stats, jnp.asarray(counts), self.prior, self.labels)

    def from_labels(self, labels: Int[np.ndarray, " s"]) -> Scores:
        """Scores of the clusters of a partition of the sketch."""
        slots = _slots(int(labels.max()) + 1)
        stats, counts = _summed(self.component, jnp.asarray(self.sketch), jnp.asarray(labels), slots)
        return self.scores(stats, counts)

    def improve(self, state: _State) -> _State:
        """Splits, then merges, until neither lowers the free energy."""
        while True:
            state = self._split_all(state)
            merged = self._merge_one(state)
            if merged is None:
                return state
            state = merged

    def _accept(self, proposal: Scores, state: _State) -> _State | None:
        settled, trace = self.settle(proposal)
        if settled.free_energy >= state.free_energy - LEAST_GAIN:
            return None
        self.trace += [energy for energy in trace if energy < state.free_energy]
        return settled

    def _split_all(self, state: _State) -> _State:
        refused: dict[int, float] = {}  # cluster and its size: a cluster that has changed since is tried again
        while (state.counts > 0).sum() < self.limit:
            accepted = None
            labels = self._sketcher.labels(state.scores)
            for cluster in self._worst_fitting(state):
                if refused.get(cluster) == state.counts[cluster]:
                    continue
                proposal = self._split(state, cluster, np.flatnonzero(labels == cluster))
                accepted = None if proposal is None else self._accept(proposal, state)
                if accepted is not None:
                    break
                refused[cluster] = state.counts[cluster]
            if accepted is None:
                break
            state = accepted
        return state

    def _responsibilities(self, state: _State) -> tuple[Float[np.ndarray, "s k"], Float[np.ndarray, "s k"]]:
        """Log predictive density of the sketch's rows in each cluster in use, and probability of each cluster."""
        counts = jnp.asarray(state.counts)
        both = np.asarray(mixture_log_weights(self.component, state.stats, counts, self.prior, jnp.asarray(self.sketch)))[
            :, :-1
        ]
        used = state.counts > 0
        size = np.where(used, state.counts - np.asarray(self.prior.discount), 1.0)
        seat = np.where(used, np.log(size / (state.counts.sum() + np.asarray(self.prior.concentration))), 0.0)
        weight = np.exp(both - both.max(1, keepdims=True))
        return np.where(used, both - seat, 0.0), weight / weight.sum(1, keepdims=True)

    def _worst_fitting(self, state: _State) -> list[int]:
        """Clusters by falling divergence of their rows' empirical density from their predictive density.

        Σ_i w_i [log w_i − log p(x_i|cluster)], w the responsibilities of the cluster, summing to 1: Kurihara & Welling (2009),
        Eq. 47, which is infinite as printed.
        """
        density, weight = self._responsibilities(state)
        share = weight / np.maximum(weight.sum(0), np.finfo(float).tiny)
        terms = np.where(share > 0, share * (np.log(np.where(share > 0, share, 1.0)) - density), 0.0)
        order = np.argsort(-terms.sum(0), kind="stable")
        return [int(k) for k in order if state.counts[k] > 1]

    def _split(self, state: _State, cluster: int, rows: Int[np.ndarray, " m"]) -> Scores | None:
        """The cluster cut by the plane through the mean of its rows in the sketch, across their principal direction.

        That is one step of k-means from two centres on that axis (Kurihara & Welling 2009, appendix D.3).
        """
        if len(rows) < 2:
            return None
        centred = self.points[rows] - self.points[rows].mean(0)
        _, spread, directions = np.linalg.svd(centred, full_matrices=False)
        if spread[0] <= 1e-12 * max(1.0, np.abs(self.points[rows]).max()):
            return None
        side = (centred @ directions[0] > 0).astype(int)
        halves, sizes = _summed(self.component, jnp.asarray(self.sketch[rows]), jnp.asarray(side), 2)
        share = state.counts[cluster] / len(rows)
        free = np.flatnonzero(state.counts == 0)
        stats, counts = state.stats, state.counts
        if not len(free):
            stats, counts = _padded(stats, len(counts)), np.pad(counts, (0, len(counts)))
            free = np.flatnonzero(counts == 0)
        place = np.array([cluster, free[0]])
        stats = jax.tree.map(lambda leaf, half: leaf.at[place].set(share * half), stats, halves)
        counts = counts.copy()
        counts[place] = share * np.asarray(sizes)
        return self.scores(stats, counts)

    def _merge_one(self, state: _State) -> _State | None:
        """The first merge that lowers the free energy, pairs with the most alike responsibilities first."""
        _, weight = self._responsibilities(state)
        used = np.flatnonzero(state.counts > 0)
        unit = weight / np.maximum(np.linalg.norm(weight, axis=0), np.finfo(float).tiny)
        alike = unit.T @ unit
        for one, other in sorted(combinations(used, 2), key=lambda pair: -alike[pair]):
            if alike[one, other] < LEAST_OVERLAP:
                break
            counts = state.counts.copy()
            counts[one], counts[other] = counts[one] + counts[other], 0.0
            stats = jax.tree.map(lambda leaf, a=one, b=other: leaf.at[a].add(leaf[b]).at[b].set(0.0), state.stats)
            accepted = self._accept(self.scores(stats, counts), state)
            if accepted is not None:
                return accepted
        return None


def _slots(clusters: int) -> int:
    """Room for so many clusters, in powers of two so that few programs are compiled."""
    return max(8, 1 << (clusters - 1).bit_length())


def _padded(stats: Statistics, extra: int) -> Statistics:
    return jax.tree.map(lambda leaf: jnp.pad(leaf, [(0, extra)] + [(0, 0)] * (leaf.ndim - 1)), stats)


def _points(component: Component, X: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s q"]:
    """Coordinates in which rows are near or far: the component's, or the columns with missing cells at their mean."""
    try:
        return np.asarray(component.coordinates(X))
    except NotImplementedError:
        return np.where(np.isnan(X), np.nanmean(X, axis=0), X)


def _summed(
    component: Component, X: Float[Array, "n d"], labels: Int[Array, " n"], slots: int
) -> tuple[Statistics, Float[Array, " k"]]:
    """Statistics of the rows of each cluster, and their numbers."""
    n = 1 << (len(X) - 1).bit_length()  # padded, so that clusters of any size share a few programs
    rows = jnp.concatenate([X, jnp.broadcast_to(X[:1], (n - len(X), X.shape[1]))])
    return _sum_by_label(component, rows, jnp.pad(labels, (0, n - len(X)), constant_values=slots), slots)


@partial(jax.jit, static_argnames="slots")
def _sum_by_label(
    component: Component, X: Float[Array, "n d"], labels: Int[Array, " n"], slots: int
) -> tuple[Statistics, Float[Array, " k"]]:
    stats = cluster_statistics(component.suff_stats(X), labels, slots)
    return stats, cluster_counts(labels, slots).astype(float)


class BayesianKMeans(StreamingClustering):
    """Bayesian k-means: maximisation-expectation clustering with splits and merges (Kurihara & Welling).

    Passes label every row by its expected log likelihood under the clusters' posteriors, and renew these. From each of
    several starts, clusters are split and merged as long as the free energy −log p(X, labels) falls; the best start is kept,
    and single rows are moved at the end. The number of clusters is found.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it.
    prior
        "dp": the model's partition prior. "finite": K labels with Dirichlet(α, ..., α) weights, K the number of clusters in
        use and α the model's concentration.
    assignment
        "dense": matrix products. "kd_tree": boxes of rows at once. "auto": the kd-tree from 200,000 rows in at most 3 columns.
    starts
        Numbers of clusters to start from: 1 is the paper's start, others are k-means++ seedings.
    max_iter
        Most passes after each change of the clusters.
    polish
        Whether to move single rows at the end (MAP-DP), up to 20,000 rows.
    optimize
        Whether to fit the hyperparameters that have priors, by alternating fits with gradient steps on log p(X, labels) +
        log prior; otherwise they sit at their prior medians.
    max_rounds
        Most rounds of `optimize`.
    random_state
        Whole number or JAX key for the seedings and, from 8,193 rows, for the rows on which starts and splits are tried.

    Attributes
    ----------
    labels_ : ndarray
        (n,) clusters, from 0, in order of appearance.
    free_energy_ : float
        −log p(X, labels_) under `prior` at the fitted hyperparameters (nats).
    free_energy_trace_ : ndarray
        Free energy after each step that was kept; never rises.
    start_free_energies_ : ndarray
        Free energy reached from each start, on at most 8,192 rows.
    assignment_ : str
        "dense" or "kd_tree".
    visited_nodes_, touched_rows_ : int
        Boxes examined and rows scored one by one in the last pass of the kd-tree; 0 and n without it.
    n_clusters_, log_joint_, component_, concentration_, hyperparameters_
        As for every estimator; `log_joint_` is that of the partition under the model.

    Notes
    -----
    Kurihara & Welling (2009). Their split criterion (Eq. 47) is infinite as printed and is used in the corrected form of an
    empirical divergence, with the predictive density in the place of the density at the mean parameters, which not every
    family has.
    """

    def __init__(
        self,
        model: Model,
        prior: str = "dp",
        assignment: str = "auto",
        starts: Sequence[int] = (1, 2, 4, 8, 16),
        max_iter: int = 100,
        optimize: bool = False,
        *,
        polish: bool = True,
        max_rounds: int = 20,
        random_state: int | Array = 0,
    ) -> None:
        self.model = model
        self.prior = prior
        self.assignment = assignment
        self.starts = starts
        self.max_iter = max_iter
        self.optimize = optimize
        self.polish = polish
        self.max_rounds = max_rounds
        self.random_state = random_state

    def _check_options(self) -> None:
        for name, options in (("prior", LABEL_MODELS), ("assignment", ASSIGNMENTS)):
            if getattr(self, name) not in options:
                raise ValueError(f"{name} must be one of {', '.join(options)}, but it is {getattr(self, name)!r}")
        for name in ("max_iter", "max_rounds"):
            require_count(name, getattr(self, name))
        if not len(self.starts):
            raise ValueError("starts must hold at least one number of clusters, but it is empty")
        for start in self.starts:
            require_count("starts", start)

    def _fit(self, problem: Problem) -> None:
        limit = problem.sites.max_clusters or len(problem.X)
        labels, trace = self._best(problem.values, limit)
        reached = self._objective(problem, labels) if self.optimize else -np.inf
        objective = _OBJECTIVES[self.prior]
        for _ in range(self.max_rounds if self.optimize else 0):
            before, previous = problem.unconstrained, reached
            problem.climb(objective, jnp.asarray(labels))
            proposal, proposal_trace = self._best(problem.values, limit)
            reached = self._objective(problem, proposal)
            if reached <= previous:
                problem.unconstrained = before
                break
            labels, trace = proposal, proposal_trace
            if reached - previous < 1e-3:
                break
        self.free_energy_trace_ = np.array(trace)
        self.free_energy_ = trace[-1]
        self._finish(problem, labels)

    def _objective(self, problem: Problem, labels: np.ndarray) -> float:
        value = _OBJECTIVES[self.prior](problem.values, jnp.asarray(labels))
        return float(value + problem.prior.log_prob(problem.hyperparameters))

    def _assigner(self, component: Component, X: np.ndarray) -> Assigner:
        small = len(X) < KD_TREE_FROM or X.shape[1] > KD_TREE_UP_TO
        if self.assignment == "kd_tree":
            return KDTreeAssigner(component, X)
        if self.assignment == "dense" or small or np.isnan(X).any():
            return DenseAssigner(component, X)
        try:
            return KDTreeAssigner(component, X)
        except NotImplementedError:
            return DenseAssigner(component, X)

    def _best(self, values: MixtureValues, limit: int) -> tuple[np.ndarray, list[float]]:
        """The best partition over the starts, and the free energy on the way to it."""
        component, X = values.component, np.asarray(values.X)
        prior = Prior(jnp.asarray(values.concentration, float), jnp.asarray(values.discount, float))
        rng = np.random.default_rng(np.asarray(jax.random.key_data(random_key(self.random_state))))
        whole = len(X) <= SKETCH
        sketch = X if whole else X[np.sort(rng.permutation(len(X))[:SKETCH])]
        assigner = self._assigner(component, X)
        search = _Search(
            component, prior, self.prior, assigner if whole else DenseAssigner(component, sketch), sketch, self.max_iter, limit
        )
        reached = list(self._from_starts(search, rng))
        self.start_free_energies_ = np.array([state.free_energy for state, _ in reached])
        state, trace = reached[int(self.start_free_energies_.argmin())]
        if not whole:
            search = _Search(component, prior, self.prior, assigner, sketch, self.max_iter, limit)
            share = len(X) / len(sketch)
            stats = jax.tree.map(lambda leaf: share * leaf, state.stats)
            state, search.trace = search.settle(search.scores(stats, share * state.counts))
            state = search.improve(state)
            trace = search.trace
        labels = _first_come(assigner.labels(state.scores))
        self.assignment_ = "kd_tree" if isinstance(assigner, KDTreeAssigner) else "dense"
        self.visited_nodes_ = getattr(assigner, "visited_nodes", 0)
        self.touched_rows_ = getattr(assigner, "touched_rows", len(X))
        if self.polish and len(X) <= POLISH_UP_TO:
            labels, trace = self._polished(component, X, prior, labels, trace, limit)
        return labels, trace

    def _from_starts(self, search: _Search, rng: np.random.Generator) -> Iterator[tuple[_State, list[float]]]:
        distinct = len(np.unique(search.points, axis=0))
        most = min(distinct, search.limit)
        for clusters in sorted({min(int(start), most) for start in self.starts}):
            labels = np.zeros(len(search.sketch), int)
            if clusters > 1:
                centres, _ = kmeans_plusplus(search.points, clusters, random_state=int(rng.integers(1 << 31)))
                gaps = ((search.points[:, None] - centres) ** 2).sum(2)
                labels = gaps.argmin(1)
            state, search.trace = search.settle(search.from_labels(labels))
            state = search.improve(state)
            yield state, search.trace

    def _polished(
        self, component: Component, X: np.ndarray, prior: Prior, labels: np.ndarray, trace: list[float], limit: int
    ) -> tuple[np.ndarray, list[float]]:
        """Single-item moves; kept if the free energy falls, which under "finite" they do not promise."""
        n = len(X)
        slots = min(n, limit, 2 * _slots(int(labels.max()) + 1))
        order = jnp.arange(n)[None]
        found = descend(component, jnp.asarray(X), prior, order, jnp.asarray(labels)[None], slots, self.max_iter)
        moved = np.asarray(found.labels[0])
        stats, counts = _summed(component, jnp.asarray(X), jnp.asarray(moved), slots)
        energy = float(free_energy(component, stats, counts, prior, self.prior))
        return (moved, [*trace, energy]) if energy < trace[-1] else (labels, trace)


def _first_come(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Labels renamed 0, 1, ... in the order in which the rows first show them."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _log_joint(values: MixtureValues, labels: Array, model: str) -> Float[Array, ""]:
    n = labels.shape[0]
    stats = cluster_statistics(values.component.suff_stats(values.X), labels, n)
    prior = Prior(values.concentration, values.discount)
    return label_log_prior(cluster_counts(labels, n), prior, model) + values.component.log_marginal(stats).sum()


def _dp_log_joint(values: MixtureValues, labels: Array) -> Float[Array, ""]:
    return _log_joint(values, labels, "dp")


def _finite_log_joint(values: MixtureValues, labels: Array) -> Float[Array, ""]:
    return _log_joint(values, labels, "finite")


_OBJECTIVES: dict[str, Any] = {"dp": _dp_log_joint, "finite": _finite_log_joint}
