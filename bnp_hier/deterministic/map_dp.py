"""MAP-DP: search for the most probable partition by single-row moves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.utils._param_validation import StrOptions

from bnp_hier.deterministic.hard_assignment.free_energies import labels_and_slots, log_joint_objective
from bnp_hier.deterministic.hard_assignment.source_seating import SeatedRows, SourceSeating
from bnp_hier.deterministic.hard_assignment.splits import seeded, spaces_of
from bnp_hier.deterministic.learned_hyperparameters import learn, starting_hyperparameters
from bnp_hier.deterministic.row_sources.protocol import RowSource
from bnp_hier.deterministic.row_sources.sampling import SKETCH, RowSample, size_of
from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.distributions.seating import process_of
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Objective, Problem, by_gradient
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm
from bnp_hier.partitions.leave_one_out import leave_one_out_densities
from bnp_hier.partitions.search import descend
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import RANDOM_STATE, WholeNumber
from bnp_hier.utils.randomness import random_generators

__all__ = ["MAPDP"]


INITS = ("sequential", "single", "k-means++")
"""Named initialisations."""

SEEDINGS = (2, 4, 8, 16)
"""Numbers of clusters of the k-means++ initialisations, used in turn."""


PASSES = 10
"""Maximum number of passes over the rows of a table that is read in parts, after the sample."""

LEAST_RISE_PER_ROW = 1e-5
"""Increase of the log joint per row (nats) below which passes over such a table stop."""

REORDERED = 2
"""Maximum number of orders tried again after every change of the hyperparameters, besides the partition found before."""


class _Found(NamedTuple):
    """Result of the descents from all initialisations.

    - **labels** - (n,) cluster labels of the best result, in order of appearance.
    - **trace** - log joint of the best descent after each sweep.
    - **reached** - (r,) final log joint of each descent.
    - **converged** - whether the best descent converged.
    """

    labels: Int[np.ndarray, " n"]
    trace: Float[np.ndarray, " sweeps"]
    reached: Float[np.ndarray, " r"]
    converged: bool


def _log_leave_one_out(
    values: MixtureValues, labels: Int[Array, " n"], table: Float[Array, " slots"], limit: float
) -> Float[Array, ""]:
    prior = values.process
    return leave_one_out_densities(values.component, jnp.asarray(values.X), labels, prior, table.shape[0], limit).sum()


@lru_cache(maxsize=64)
def _leave_one_out_objective(limit: float) -> Callable[..., Float[Array, ""]]:
    """The same function for the same limit, so that later problems need not trace it again."""
    return partial(_log_leave_one_out, limit=limit)


class MAPDP(StreamingClustering):
    """Maximum a posteriori partition of a Dirichlet-process (or Pitman-Yor) mixture (Raykov et al.).

    Rows are visited one at a time: each is removed from its cluster and assigned to the cluster, possibly a new one, for
    which log p(X, partition) is largest, until a sweep brings no improvement. The log joint never decreases. The result
    depends on the order of the rows, so several random orders are run in parallel and the best result is kept.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it. The default has
        normal clusters with unrestricted covariances; its hyperparameters, those of `NormalInverseWishart.from_data` and the
        concentration, have weakly informative priors.
    n_init
        Number of row orders tried; the first is the order of the rows in X.
    init
        "sequential": start without clusters and assign the rows one by one. "k-means++": seedings with 2, 4, 8 and 16
        clusters in turn. "single": all rows in one cluster, as in the paper; raises a warning because the search seldom
        leaves this partition. Alternatively, initial labels, (n,) integers, with −1 for a row that is not assigned yet.
    max_iter
        Maximum number of sweeps per order.
    optimize
        "auto": fit the hyperparameters that have priors, if there are any, by alternating partition searches with gradient
        steps on log joint + log prior, from the best of several starts: the prior medians, values that sites declare, and a fit
        by single-row moves. True: the same, and raise an error if there are none. "leave_one_out": the gradient steps are on
        the leave-one-out log predictive density + log prior instead. False: fix them at their prior medians. A dictionary: fix
        them at these values, such as the `hyperparameters_` of another fit.
    merge
        Whether to try merging pairs of clusters once no single-row move improves the partition; False is the paper's
        algorithm.
    max_rounds
        Maximum number of rounds of `optimize`.
    random_state
        Integer or JAX key for the random orders and seedings.

    Attributes
    ----------
    labels_ : ndarray
        (n,) cluster labels, from 0, in order of appearance.
    log_joint_ : float
        log p(X, `labels_`) at the fitted hyperparameters (nats).
    objective_trace_ : ndarray
        Log joint after each sweep of the best order; never decreases.
    n_iter_ : int
        Number of sweeps of the best order, including those after merges.
    converged_ : bool
        Whether the search converged for the best order: its last sweep brought no improvement within `max_iter`. If not,
        `fit` raises a warning. For a table that is read in parts, whether the last pass increased the log joint by less than
        10⁻⁵ nats per row.
    n_passes_ : int
        Number of times that `fit` has read a table that is read in parts; 0 for a table in memory.
    init_log_joints_ : ndarray
        (n_init,) final log joint for each order, at the hyperparameters from which the fit started.
    n_clusters_, component_, concentration_, hyperparameters_
        Number of clusters, component, concentration, and dictionary of the hyperparameters.

    Notes
    -----
    Raykov, Boukouvalas & Little (2014), Algorithm 1. The objective as printed there (Eq. 4) can increase; the quantity that
    never increases is −log p(X, partition), whose negative is reported here.

    A table that is read in parts is first searched on a sample of 8,192 rows. Then at most 10 passes are made over all rows. In
    a pass, every row chooses the cluster for which seating weight × predictive density is largest, given all rows in their
    earlier clusters, its own included. Rows that prefer a new cluster are seated one at a time among themselves, and clusters
    are merged wherever their statistics alone show that this increases log p(X, partition). The best pass is kept; its log
    joint is that of `labels_`, and `objective_trace_` and `n_iter_` are those of the passes that increased it. Clusters are
    not split: those that the sample does not tell apart stay together (`BayesianKMeans` searches on 200,000 rows).

    Examples
    --------
    >>> import numpy as np
    >>> from functools import lru_cache, partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> bnp.MAPDP(partial(bnp.models.dpm, component=component)).fit([[0.0], [0.2], [0.1], [6.0], [6.1]]).labels_
    array([0, 0, 0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StreamingClustering._parameter_constraints,
        "n_init": [WholeNumber()],
        "init": [StrOptions(set(INITS)), "array-like"],
        "max_iter": [WholeNumber()],
        "optimize": ["boolean", StrOptions({"auto", "leave_one_out"}), Mapping],
        "merge": ["boolean"],
        "max_rounds": [WholeNumber()],
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        model: Model = dpm,
        n_init: int = 10,
        init: str | ArrayLike = "sequential",
        max_iter: int = 100,
        optimize: bool | str | Mapping[str, ArrayLike] = "auto",
        *,
        merge: bool = True,
        max_rounds: int = 20,
        random_state: int | Array = 0,
    ) -> None:
        self.model = model
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.optimize = optimize
        self.merge = merge
        self.max_rounds = max_rounds
        self.random_state = random_state

    def _fit(self, problem: Problem) -> None:
        if isinstance(self.init, str) and self.init == "single":
            warnings.warn(
                'init="single" starts from one cluster, which single-row moves seldom split; the default is "sequential"',
                UserWarning,
                stacklevel=4,
            )
        n = problem.X.shape[0]
        rng = random_generators(self.random_state)[0]
        orders = np.stack([np.arange(n), *(rng.permutation(n) for _ in range(self.n_init - 1))])
        # a max_clusters declared by the model is part of the model
        limit = min(n, problem.sites.max_clusters or n)
        starts = self._starts(problem.values, limit)

        def again(values: MixtureValues, before: _Found) -> _Found:
            anew = starts[:REORDERED]
            turned = np.stack([np.arange(n), *(rng.permutation(n) for _ in anew)])
            return self._descended(values, turned, np.vstack([before.labels, anew]), limit)

        most = problem.sites.max_clusters or np.inf  # not n, for which another program would be compiled
        objective: Objective[_Found] = (
            by_gradient(problem, _leave_one_out_objective(most), labels_and_slots)
            if self.optimize == "leave_one_out"
            else log_joint_objective(problem, "dp")
        )
        rounds = self._rounds(problem)
        initial = starts[0] if starts[0].min() >= 0 else None
        hyperparameters, labels = starting_hyperparameters(problem, rng, initial) if rounds else ([], None)

        def first(values: MixtureValues) -> _Found:
            if labels is None:
                best = self._descended(values, orders, starts, limit)
            else:
                best = self._descended(values, np.vstack([orders, orders[:1]]), np.vstack([starts, labels]), limit)
            self.init_log_joints_ = best.reached[: self.n_init]
            return best

        best, _ = learn(problem, first, again, objective, rounds, hyperparameters)
        if not best.converged:
            warnings.warn(
                "MAPDP did not converge within the time budget; increase it"
                if current_deadline().has_cut
                else f"MAPDP did not converge within max_iter={self.max_iter} sweeps; increase max_iter",
                RuntimeWarning,
                stacklevel=4,
            )
        self.objective_trace_ = best.trace
        self.n_iter_, self.converged_, self.n_passes_ = len(best.trace), best.converged, 0
        self._finish(problem, best.labels)

    def _check_in_parts(self) -> None:
        if not isinstance(self.init, str):
            raise ValueError("initial labels need rows in memory, but X is read in parts; use one of the named initialisations")

    def _fit_source(self, source: RowSource, sample: RowSample, problem: Problem) -> None:
        prior = process_of(self._prior)
        seating = SourceSeating(self.component_, prior, source, problem.sites.max_clusters or sample.n_rows)
        stats, counts, share = self.statistics_, self.counts_.astype(float), sample.n_rows / self.n_seen_
        trace: list[float] = []
        origin, read = f"of {size_of(sample, SKETCH)}", 1
        try:
            for _ in range(PASSES):
                seated = seating(stats, counts, share)
                read += 1
                rise = seated.log_joint - trace[-1] if trace else np.inf
                if not rise <= 0:
                    trace.append(seated.log_joint)
                    self._keep(seated, seating, trace)
                    origin = f"of the best pass over all {sample.n_rows} rows"
                self.converged_ = bool(rise <= LEAST_RISE_PER_ROW * sample.n_rows)
                if self.converged_:
                    break
                stats, counts, share = seated.stats, seated.counts, 1.0
        except BaseException as error:
            self.converged_ = False
            error.add_note(f"(the estimator keeps the clusters {origin})")
            raise
        finally:
            self.n_passes_ = getattr(source, "readings", read)

    def _keep(self, seated: SeatedRows, seating: SourceSeating, trace: list[float]) -> None:
        """Set the attributes after a pass over all rows."""
        self._set_clusters(seated.stats, seated.counts, np.arange(len(seated.counts)))
        self._label_later(lambda: seating.labels(seated))
        self.objective_trace_, self.n_iter_ = np.array(trace), len(trace)

    def _starts(self, values: MixtureValues, limit: int) -> Int[np.ndarray, "r n"]:
        """Initial labels, one row per order."""
        X = np.asarray(values.X)
        shape = (self.n_init, len(X))
        if not isinstance(self.init, str):
            return np.broadcast_to(_checked_labels(self.init, len(X), limit), shape)
        if self.init != "k-means++":
            return np.full(shape, 0 if self.init == "single" else -1)
        spaces = spaces_of(values.component, X)
        rng = random_generators(self.random_state)[1]
        most = min(len(np.unique(spaces[0], axis=0)), limit)
        turns = [(points, min(clusters, most)) for clusters in SEEDINGS for points in spaces]
        starts = [canonical_labels(seeded(*turns[r % len(turns)], rng)) for r in range(self.n_init)]
        return np.stack(starts)

    def _descended(self, values: MixtureValues, orders: np.ndarray, starts: np.ndarray, limit: int) -> _Found:
        """Find the best partition over all orders and initialisations."""
        result = descend(values, orders, starts, limit, self.max_iter, merge=self.merge)
        best = int(result.log_joint.argmax())
        return _Found(result.labels[best], result.traces[best], result.log_joint, bool(result.converged[best]))


def _checked_labels(init: ArrayLike, n: int, limit: int) -> Int[np.ndarray, " n"]:
    """Return the initial labels renumbered from 0, with −1 unchanged."""
    labels = np.asarray(init)
    if labels.shape != (n,) or not np.issubdtype(labels.dtype, np.integer) or labels.min() < -1:
        whole = labels.size and np.issubdtype(labels.dtype, np.integer)
        what = f"shape {labels.shape} and type {labels.dtype}" + (f", with minimum {labels.min()}" if whole else "")
        raise ValueError(f"init must contain one whole number of at least -1 for each of the {n} rows, but it has {what}")
    seated = labels >= 0
    renumbered = np.full(n, -1)
    renumbered[seated] = canonical_labels(labels[seated])
    if renumbered.max() >= limit:
        raise ValueError(f"init has {renumbered.max() + 1} clusters, but the model allows at most {limit}")
    return renumbered
