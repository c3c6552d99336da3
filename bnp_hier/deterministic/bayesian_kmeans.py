"""Bayesian k-means: hard assignment by expected log likelihood, with splits and merges that reduce the free energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.utils._param_validation import StrOptions

from bnp_hier.components import Component
from bnp_hier.deterministic.hard_assignment.assignment import Assigner, DenseAssigner, Scores, WeightedAssigner
from bnp_hier.deterministic.hard_assignment.free_energies import LABEL_MODELS, free_energy, log_joint_objective
from bnp_hier.deterministic.hard_assignment.kd_tree import AutoAssigner, KDTreeAssigner
from bnp_hier.deterministic.hard_assignment.source_assigner import SourceAssigner
from bnp_hier.deterministic.hard_assignment.splits import Clusters, SplitMergeSearch, seeded, slots_for, sum_by_label
from bnp_hier.deterministic.learned_hyperparameters import learn, starting_hyperparameters
from bnp_hier.deterministic.row_sources.protocol import RowSource
from bnp_hier.deterministic.row_sources.sampling import SKETCH, RowSample, size_of
from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm
from bnp_hier.partitions.search import descend
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import RANDOM_STATE, WholeNumber, require_count
from bnp_hier.utils.randomness import random_generators

__all__ = ["BayesianKMeans"]

ASSIGNERS: dict[str, Callable[[Component, np.ndarray], Assigner]] = {
    "auto": AutoAssigner,
    "dense": DenseAssigner,
    "kd_tree": KDTreeAssigner,
}
"""Implementations of the assignment pass; all return the same labels."""

PASSES, MORE_PASSES = 7, 3
"""Maximum number of passes over all rows of such a table before clusters are merged, and after that."""

LEAST_GAIN_PER_ROW = 1e-5
"""Decrease of the free energy per row (nats) below which passes over such a table stop."""

POLISH_UP_TO = 20_000
"""Maximum number of rows for which the final single-row moves are made."""


class _Found(NamedTuple):
    """Result of one search.

    - **labels** - (n,) cluster labels, in order of appearance.
    - **trace** - free energy after each accepted step.
    - **starts** - final free energy for each initialisation.
    - **converged** - whether every series of passes converged.
    - **assigner** - the object that made the passes over all rows.
    """

    labels: Int[np.ndarray, " n"]
    trace: list[float]
    starts: Float[np.ndarray, " starts"]
    converged: bool
    assigner: Assigner


class BayesianKMeans(StreamingClustering):
    """Bayesian k-means: maximisation-expectation clustering with splits and merges (Kurihara & Welling).

    Each pass assigns every row to the cluster with the largest expected log likelihood and then updates the clusters'
    posteriors. From each of several initialisations, clusters are split and merged as long as the free energy
    −log p(X, labels) decreases; the best result is kept and refined by moves of single rows. The number of clusters is
    inferred.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it. The default has
        normal clusters with unrestricted covariances; its hyperparameters, those of `NormalInverseWishart.from_data` and the
        concentration, have weakly informative priors.
    label_prior
        "dp": the model's partition prior. "finite": K labels with Dirichlet(α, ..., α) weights, where K is the number of
        non-empty clusters and α the model's concentration.
    assignment
        "dense": matrix products over all rows and clusters. "kd_tree": a kd-tree, which assigns whole boxes of rows at once.
        "auto": matrix products, except that for at least 200,000 rows with at most 3 columns a kd-tree is built after 30
        passes, which is about when it starts to pay off.
    n_init
        Number of initialisations, which have 1, 2, 4, ... clusters; or a sequence with the number of clusters of each
        initialisation. One cluster is the paper's initialisation; the others are k-means++ seedings.
    max_iter
        Maximum number of passes after each change of the clusters.
    polish
        Whether to finish with single-row moves (MAP-DP), for up to 20,000 rows.
    optimize
        "auto": fit the hyperparameters that have priors, if there are any, by alternating fits with gradient steps on log p(X,
        labels) + log prior, from the best of several starts: the prior medians, values that sites declare, and a fit by single-
        row moves. True: the same, and raise an error if there are none. False: fix them at their prior medians. A dictionary:
        fix them at these values, such as the `hyperparameters_` of another fit.
    max_rounds
        Maximum number of rounds of `optimize`.
    random_state
        Integer or JAX key for the seedings and, with more than 8,192 rows, for the samples of rows on which initialisations
        and splits are tried.

    Attributes
    ----------
    labels_ : ndarray
        (n,) cluster labels, from 0, in order of appearance.
    free_energy_ : float
        −log p(X, `labels_`) under `label_prior` at the fitted hyperparameters (nats).
    objective_trace_ : ndarray
        Free energy after each accepted step; never increases.
    n_iter_ : int
        Number of accepted steps, which is the length of the trace.
    n_passes_ : int
        Number of times that `fit` has read a table that is read in parts, at most 12; 0 for a table in memory.
    converged_ : bool
        Whether every series of passes converged within `max_iter`; for a table that is read in parts, whether the last pass
        lowered the free energy by less than 10⁻⁵ nats per row.
    init_free_energies_ : ndarray
        Final free energy for each initialisation, in increasing order of their numbers of clusters, on at most 8,192 rows. A
        number above that of the distinct rows is reduced to it, and equal numbers are tried once.
    assignment_ : str
        "dense" or "kd_tree": the method used in the last pass.
    visited_nodes_, touched_rows_ : int
        Number of boxes examined and of rows scored individually in the last pass with a kd-tree; 0 and n without one.
    n_clusters_, log_joint_, component_, concentration_, hyperparameters_
        Number of clusters, log p(X, `labels_`) under the model's partition prior, even with another `label_prior` (nats),
        component, concentration, and dictionary of the hyperparameters.

    Notes
    -----
    Kurihara & Welling (2009). Their split criterion (Eq. 47) is infinite as printed. The corrected form used here is a
    divergence from the rows' empirical density, with the predictive density in place of the density at the mean parameters,
    which is not available for every family.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> fit = bnp.BayesianKMeans(model).fit([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> fit.labels_, round(fit.free_energy_, 2)
    (array([0, 0, 0, 1, 1]), 13.77)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StreamingClustering._parameter_constraints,
        "label_prior": [StrOptions(set(LABEL_MODELS))],
        "assignment": [StrOptions(set(ASSIGNERS))],
        "n_init": [WholeNumber(), "array-like"],
        "max_iter": [WholeNumber()],
        "polish": ["boolean"],
        "max_rounds": [WholeNumber()],
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        model: Model = dpm,
        label_prior: str = "dp",
        assignment: str = "auto",
        n_init: int | Sequence[int] = 5,
        max_iter: int = 100,
        optimize: bool | str | Mapping[str, ArrayLike] = "auto",
        *,
        polish: bool = True,
        max_rounds: int = 20,
        random_state: int | Array = 0,
    ) -> None:
        self.model = model
        self.label_prior = label_prior
        self.assignment = assignment
        self.n_init = n_init
        self.max_iter = max_iter
        self.optimize = optimize
        self.polish = polish
        self.max_rounds = max_rounds
        self.random_state = random_state

    def _check_options(self) -> None:
        super()._check_options()
        if not len(self._init_clusters):
            raise ValueError("n_init must contain at least one number of clusters, but it is empty")
        for clusters in self._init_clusters:
            require_count("n_init", clusters)

    @property
    def _init_clusters(self) -> Sequence[int]:
        """Number of clusters of each initialisation."""
        return [2**k for k in range(self.n_init)] if isinstance(self.n_init, int | np.integer) else self.n_init

    @property
    def n_iter_(self) -> int:
        """Number of accepted steps."""
        return len(self.objective_trace_)

    def _fit(self, problem: Problem) -> None:
        limit = problem.sites.max_clusters or len(problem.X)
        if self.polish:
            component = problem.values.component
            jax.eval_shape(lambda: component.cache(component.empty()))  # raises before the search if the family has no cache

        def again(values: MixtureValues, _: _Found) -> _Found:
            return self._found(values, limit)

        rounds = self._rounds(problem)
        objective = log_joint_objective(problem, self.label_prior)
        starts = starting_hyperparameters(problem, random_generators(self.random_state)[0])[0] if rounds else ()
        found, _ = learn(problem, lambda values: self._found(values, limit), again, objective, rounds, starts)
        if not np.isfinite(found.trace[-1]):
            family = type(problem.values.component).__name__
            raise ValueError(
                f"no partition with a finite free energy was found under {family}; use a proper prior, under which every "
                "partition has one"
            )
        self.objective_trace_ = np.array(found.trace)
        self.free_energy_ = found.trace[-1]
        self.init_free_energies_, self.converged_, self.n_passes_ = found.starts, found.converged, 0
        used = found.assigner.current if isinstance(found.assigner, AutoAssigner) else found.assigner
        self.assignment_ = "kd_tree" if isinstance(used, KDTreeAssigner) else "dense"
        self.visited_nodes_ = getattr(used, "visited_nodes", 0)
        self.touched_rows_ = getattr(used, "touched_rows", len(problem.X))
        self._finish(problem, found.labels)

    def _check_in_parts(self) -> None:
        if self.assignment == "kd_tree":
            raise ValueError('assignment="kd_tree" needs rows in memory, but X is read in chunks; use "auto" or "dense"')

    def _fit_source(self, source: RowSource, sample: RowSample, problem: Problem) -> None:
        rows = sample.first(SKETCH).astype(np.float64)
        values, limit = problem.values, problem.sites.max_clusters or sample.n_rows
        assigner = SourceAssigner(values.component, source)
        search = self._search(values, assigner, rows, limit)
        search.least_gain, search.max_passes = LEAST_GAIN_PER_ROW * sample.n_rows, PASSES
        try:
            try:
                found = self._clusters_of_sample(values, sample, rows, limit)
            except ValueError:
                assigner.validate()  # raises an error that names the row
                raise
            state, search.trace = search.settle(found)
            search.max_passes = PASSES + MORE_PASSES
            state = search.prune(state)
        except BaseException as error:
            if search.kept is None:
                error.add_note(f"(the estimator keeps the clusters of {size_of(sample, SKETCH)})")
            else:
                trace = [energy for energy in search.trace if energy > search.kept.free_energy]
                trace.append(search.kept.free_energy)
                self._keep(search.kept, trace, assigner)
                self.converged_ = False
                error.add_note(f"(the estimator keeps the best clusters of the completed passes over all {sample.n_rows} rows)")
            raise
        finally:
            self.n_passes_ = getattr(source, "readings", 1 + search.passes)
        self._keep(state, search.trace, assigner)
        self.converged_ = search.converged

    def _clusters_of_sample(self, values: MixtureValues, sample: RowSample, sketch: np.ndarray, limit: int) -> Scores:
        """Find clusters of a sample in memory, then split them as if it had as many rows as the table that it represents."""
        rows = sample.rows.astype(np.float64)
        values.component.validate(rows)
        assigner = self._assigner(values.component, rows)
        search = self._search(values, assigner, sketch, limit)
        search.least_gain = LEAST_GAIN_PER_ROW * len(rows)
        state = search.climb(self.labels_, len(rows))
        weighted = self._search(values, WeightedAssigner(assigner, sample.n_rows / len(rows)), sketch, limit)
        weighted.least_gain = LEAST_GAIN_PER_ROW * sample.n_rows
        return weighted.split_all(weighted.settle(state.scores)[0]).scores

    def _keep(self, state: Clusters, trace: list[float], assigner: SourceAssigner) -> None:
        """Set the attributes after a fit to a row source, with the clusters renumbered 0, 1, ... in order of appearance."""
        order = assigner.appearance(state.scores)
        name = np.full(len(state.counts), -1)
        name[order] = np.arange(len(order))
        self._label_later(lambda: name[assigner.labels(state.scores)])
        self._set_clusters(state.stats, state.counts, order)
        self.objective_trace_, self.free_energy_ = np.array(trace), state.free_energy
        self.assignment_, self.visited_nodes_, self.touched_rows_ = "dense", 0, self.n_seen_

    def _assigner(self, component: Component, X: np.ndarray) -> Assigner:
        return ASSIGNERS[self.assignment](component, X)

    def _search(self, values: MixtureValues, assigner: Assigner, sketch: np.ndarray, limit: int) -> SplitMergeSearch:
        return SplitMergeSearch(values.component, _prior(values), self.label_prior, assigner, sketch, self.max_iter, limit)

    def _found(self, values: MixtureValues, limit: int) -> _Found:
        """Find the best partition over the initialisations, polished if there are not too many rows."""
        X = np.asarray(values.X)
        if len(X) <= SKETCH:
            return self._polished(values, self._from_starts(values, limit), limit)
        sample = RowSample(SKETCH, random_generators(self.random_state)[0])
        sample.add(X)
        first = self._found(values._replace(X=jnp.asarray(sample.rows)), min(limit, SKETCH))
        assigner = self._assigner(values.component, X)
        search = self._search(values, assigner, sample.rows, limit)
        state = search.climb(first.labels, len(X))
        labels = canonical_labels(assigner.labels(state.scores))
        return self._polished(values, _Found(labels, search.trace, first.starts, search.converged, assigner), limit)

    def _from_starts(self, values: MixtureValues, limit: int) -> _Found:
        """Return the best of the partitions reached by splits and merges from the initialisations."""
        X = np.asarray(values.X)
        assigner = self._assigner(values.component, X)
        search = self._search(values, assigner, X, limit)
        _, rng = random_generators(self.random_state)
        most = min(len(np.unique(search.spaces[0], axis=0)), limit)
        reached: list[tuple[Clusters, list[float], bool]] = []
        for clusters in sorted({min(int(wanted), most) for wanted in self._init_clusters}):
            seedings = [seeded(points, clusters, rng) for points in search.spaces]
            labels = min(seedings, key=search.free_energy_of) if clusters > 1 else seedings[0]
            reached.append((search.climb(labels, len(X)), search.trace, search.converged))
        energies = np.array([state.free_energy for state, *_ in reached])
        if np.isnan(energies).any():
            name = type(values.component).__name__
            raise ValueError(
                f"the free energy of an initialisation is NaN: the log marginal likelihood of {name} is NaN for one of its "
                "clusters"
            )
        state, trace, converged = reached[int(energies.argmin())]
        return _Found(canonical_labels(assigner.labels(state.scores)), trace, energies, converged, assigner)

    def _polished(self, values: MixtureValues, found: _Found, limit: int) -> _Found:
        """Refine a partition by single-row moves; kept only if the free energy decreases, not guaranteed under "finite"."""
        n = len(found.labels)
        if not self.polish or n > POLISH_UP_TO:
            return found
        component, X, prior = values.component, np.asarray(values.X), _prior(values)
        descent = descend(values, np.arange(n)[None], found.labels[None], min(n, limit), self.max_iter)
        moved = descent.labels[0]
        stats, counts = sum_by_label(component, X, moved, slots_for(int(moved.max()) + 1))
        energy = free_energy(component, stats, counts, prior, self.label_prior)
        return found._replace(labels=moved, trace=[*found.trace, energy]) if energy < found.trace[-1] else found


def _prior(values: MixtureValues) -> Prior:
    return Prior(float(values.concentration), float(values.discount))
