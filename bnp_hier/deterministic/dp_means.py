"""DP-means: the small-variance limit of a Dirichlet process mixture of spherical normals."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from bnp_hier.deterministic.hard_assignment.penalized_means import (
    MeansPass,
    check_finite,
    first_come,
    nearest_labels,
    next_centers,
    pass_over,
)
from bnp_hier.deterministic.row_sources.appearance import in_order_of_appearance
from bnp_hier.deterministic.row_sources.detection import row_source
from bnp_hier.deterministic.row_sources.input_validation import input_rows
from bnp_hier.deterministic.row_sources.late_labels import LateLabels
from bnp_hier.deterministic.row_sources.lazy_predictions import lazy_on_dask
from bnp_hier.deterministic.row_sources.protocol import RowSource
from bnp_hier.deterministic.row_sources.sampling import SAMPLE, SKETCH, RowSample, named_rows, size_of
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.options import PositiveNumber, WholeNumber
from bnp_hier.utils.randomness import random_generators

__all__ = ["DPMeans"]

HALVINGS = 60
"""Maximum number of bisection steps in the search for a penalty."""

LEAST_GAIN = 1e-5
"""Decrease of the objective, relative to it, below which the centres have stopped moving in passes over such a table."""


class _Found(NamedTuple):
    """Result of one run at one penalty.

    - **labels** - (n,) cluster labels.
    - **centers** - (k, d) cluster means.
    - **trace** - objective after each sweep.
    - **converged** - whether the last sweep changed no label.
    """

    labels: Int[np.ndarray, " n"]
    centers: Float[np.ndarray, "k d"]
    trace: list[float]
    converged: bool


@partial(jax.jit, static_argnames="slots")
def _means(X: Float[Array, "n d"], labels: Int[Array, " n"], slots: int) -> tuple[Float[Array, "s d"], Float[Array, ""]]:
    """Return the mean of each cluster and the sum of squared distances of the rows to their cluster means."""
    counts = jax.ops.segment_sum(jnp.ones(len(X)), labels, slots)
    centers = jax.ops.segment_sum(X, labels, slots) / jnp.maximum(counts, 1.0)[:, None]
    return centers, ((X - centers[labels]) ** 2).sum()


class DPMeans(LateLabels, ClusterMixin, BaseEstimator):
    """DP-means: k-means that opens a new cluster for a row farther than √penalty from all means (Kulis & Jordan).

    Finds a local minimum of Σ ‖x − mean‖² + penalty × K, the objective of a Dirichlet process mixture of spherical normals in
    the limit of zero variance. DP-means is a baseline for the Bayesian estimators; it has no evidence and no predictive
    density.

    Parameters
    ----------
    penalty
        λ > 0, in squared units of the data. Specify either this or `n_clusters`.
    n_clusters
        Target number of clusters, for which a penalty is found by bisection. If no penalty yields this number, the result
        with the closest number of clusters is kept and a warning is raised.
    max_iter
        Maximum number of sweeps, or of passes over a table that is read in parts.

    Attributes
    ----------
    labels_ : ndarray
        (n,) cluster labels, from 0.
    cluster_centers_ : ndarray
        (K, d) cluster means.
    penalty_ : float
        The λ used.
    objective_trace_ : ndarray
        Σ ‖x − mean‖² + λK after each sweep; never increases.
    objective_ : float
        Final value of the objective.
    converged_ : bool
        Whether the last sweep changed no label, or the passes ended as the notes say, within `max_iter`.
    n_passes_ : int
        Number of times that `fit` has read a table that is read in parts; 0 for a table in memory.
    n_clusters_, n_iter_, n_features_in_, fit_seconds_
        Number of clusters, sweeps (or passes) and columns, and run time of `fit` in seconds.

    Notes
    -----
    Kulis & Jordan (2012), Algorithm 1. The result depends on the order of the rows.

    In a pass over a table that is read in parts, rows within √penalty of a centre join the nearest one. The others open
    clusters among themselves by the same rule in each part; these are then accepted one after the other, unless an earlier one
    is within √penalty (optimistic concurrency control, Pan et al. 2013). So the result may also depend on how the rows that are
    far from all clusters of the sample are divided into parts. In such a fit, `labels_` are those of the nearest
    `cluster_centers_`, and the objective is that of these centres and labels. The passes end when no row is farther than
    √penalty from all centres and the last pass has decreased the objective by less than 10⁻⁵ of its value.

    Examples
    --------
    >>> from bnp_hier import DPMeans
    >>> DPMeans(penalty=4.0).fit([[0.0], [0.2], [0.1], [6.0], [6.1]]).labels_
    array([0, 0, 0, 1, 1])
    """

    _of_rows: ClassVar[tuple[str, ...]] = ("_labels",)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [PositiveNumber(), None],
        "n_clusters": [WholeNumber(), None],
        "max_iter": [WholeNumber()],
    }

    def __init__(self, penalty: float | None = None, n_clusters: int | None = None, *, max_iter: int = 100) -> None:
        self.penalty = penalty
        self.n_clusters = n_clusters
        self.max_iter = max_iter

    @blas_on_one_core()
    def fit(self, X: ArrayLike | Callable[[], Iterable[ArrayLike]] | RowSource | Any, y: Any = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X
            Data, (n, d), n ≥ 2. These are read in parts and never loaded as a whole: memory-mapped arrays, functions that
            return an iterator over chunks (m, d), Arrow tables and data sets, Dask arrays and DataFrames, and any
            `bnp_hier.distributed.RowSource`, as in `BayesianKMeans.fit`. The passes start from the clusters of a sample of
            8,192 rows, from which the penalty is found if `n_clusters` is given. `labels_` is computed by one more reading
            when it is first accessed. Data of at most 200,000 rows are loaded and clustered like an array.
        y
            Ignored.

        Raises
        ------
        ValueError, TypeError
            If an option is out of range, if both or neither of `penalty` and `n_clusters` are given, if `n_clusters` exceeds
            the number of rows, or if X is not a table of finite numbers or would be read as a whole although it need not be in
            memory.
        Exception
            Any exception raised when parts are read; the estimator keeps the result of the last complete pass, as a note on
            the exception says.

        Warns
        -----
        RuntimeWarning
            If the sweeps or passes have not converged within `max_iter`, or no penalty yields `n_clusters` clusters.
        """
        started = time.perf_counter()
        self._validate_params()
        if (self.penalty is None) == (self.n_clusters is None):
            raise ValueError("specify either penalty or n_clusters, but not both")
        source = row_source(X)
        if source is None:
            self._fit_rows(X)
        else:
            self._fit_source(source)
        self.fit_seconds_ = time.perf_counter() - started
        return self

    def _fit_rows(self, X: ArrayLike | Any) -> None:
        matrix = self._finite_rows(X, reset=True, min_rows=2)
        with double_precision():
            if self.penalty is not None:
                penalty = float(self.penalty)
                result = self._run(matrix, penalty)
            else:
                wanted = cast(int, self.n_clusters)
                if wanted > len(matrix):
                    raise ValueError(f"n_clusters is {wanted}, but X has only {len(matrix)} rows")
                penalty, result = self._reach(matrix, wanted)
        if not result.converged:
            self._warn_of_sweeps("sweeps")
        self.labels_, self.penalty_, self.n_passes_ = result.labels, penalty, 0
        self._describe(result.centers, result.trace, result.converged)

    def _fit_source(self, source: RowSource) -> None:
        """Find centres of a sample, and make passes over all rows; after every pass, its result is kept."""
        sample = RowSample(SAMPLE, random_generators(0)[0])
        sample.read(source)
        if sample.n_rows <= sample.size:
            self._fit_rows(named_rows(sample.rows, source))
            self.n_passes_ = getattr(source, "readings", 1)
            return
        self._fit_rows(named_rows(sample.first(SKETCH), source))
        origin, centers, trace = size_of(sample, SKETCH), self.cluster_centers_, list[float]()
        try:
            for _ in range(self.max_iter):
                result = pass_over(source, centers, self.penalty_, not trace)
                trace.append(result.objective)
                origin = f"a pass over all {sample.n_rows} rows"
                self._keep(source, result, trace)
                centers = next_centers(result, self.penalty_)
                if len(trace) > 1 and trace[-2] - trace[-1] <= LEAST_GAIN * trace[-1] and not len(result.far.counts):
                    self.converged_ = True
                    break
            else:
                self._warn_of_sweeps("passes")
        except BaseException as error:
            error.add_note(f"(the estimator keeps the clusters of {origin})")
            raise
        finally:
            self.n_passes_ = getattr(source, "readings", 1 + len(trace))

    def _keep(self, source: RowSource, result: MeansPass, trace: list[float]) -> None:
        """Set the attributes after a pass, with the centres in the order of their first rows."""
        centers = result.near.points[in_order_of_appearance(result.first)]
        self._label_later(lambda: np.concatenate(list(source.map(partial(nearest_labels, centers)))))
        self._describe(centers, trace, False)

    def _describe(self, centers: Float[np.ndarray, "k d"], trace: list[float], converged: bool) -> None:
        self.cluster_centers_, self.n_clusters_ = centers, len(centers)
        self.objective_trace_ = np.array(trace)
        self.objective_, self.n_iter_, self.converged_ = trace[-1], len(trace), converged

    def _warn_of_sweeps(self, what: str) -> None:
        message = f"DPMeans did not converge within max_iter={self.max_iter} {what}; increase max_iter"
        warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _finite_rows(self, X: ArrayLike, *, reset: bool, min_rows: int = 1) -> Float[np.ndarray, "n d"]:
        matrix = input_rows(self, X, reset=reset, min_rows=min_rows)
        check_finite(matrix)
        return matrix

    def _run(self, X: np.ndarray, penalty: float) -> _Found:
        """Run sweeps, starting from one cluster, until no label changes."""
        slots = min(len(X), 64)
        while True:
            result = self._sweeps(X, penalty, slots)
            if result is not None:
                return result
            slots = min(len(X), 4 * slots)

    def _sweeps(self, X: np.ndarray, penalty: float, slots: int) -> _Found | None:
        """Run sweeps with a fixed number of slots; None if the slots do not suffice."""
        centers = np.zeros((slots, X.shape[1]))
        centers[0] = X.mean(0)
        labels, clusters, trace = np.full(len(X), -1), 1, []
        for _ in range(self.max_iter):
            new, _, refused = first_come(X, centers, np.asarray(clusters), np.asarray(penalty))
            if refused and slots < len(X):
                return None
            used, new = np.unique(np.asarray(new), return_inverse=True)
            clusters = len(used)
            means, scatter = _means(X, new, slots)
            centers = np.asarray(means)
            trace.append(float(scatter) + penalty * clusters)
            if (new == labels).all():
                return _Found(labels, centers[:clusters], trace, True)
            labels = new
        return _Found(labels, centers[:clusters], trace, False)

    def _reach(self, X: np.ndarray, clusters: int) -> tuple[float, _Found]:
        """Find, by bisection, a penalty that yields the given number of clusters, or as close to it as possible.

        The penalty lies between 0 and the largest squared distance from the mean.
        """
        low, high = 0.0, float(((X - X.mean(0)) ** 2).sum(1).max()) * (1 + 1e-9) + np.finfo(float).tiny
        best: tuple[float, _Found] | None = None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            result = self._run(X, middle)
            gap = len(result.centers) - clusters
            if best is None or abs(gap) < abs(len(best[1].centers) - clusters):
                best = middle, result
            if gap == 0 or high - low < 1e-9 * high:
                break
            low, high = (middle, high) if gap > 0 else (low, middle)
        assert best is not None
        if len(best[1].centers) != clusters:
            message = f"no penalty tried yields {clusters} clusters; the closest result has {len(best[1].centers)} clusters"
            warnings.warn(message, RuntimeWarning, stacklevel=5)
        return best

    @lazy_on_dask
    def predict(self, X: ArrayLike) -> Int[np.ndarray, " m"]:
        """Cluster with the nearest mean, for each new row; a lazy Dask array for a Dask array or DataFrame.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are not finite or have a different number of columns.
        """
        check_is_fitted(self, "cluster_centers_")
        return nearest_labels(self.cluster_centers_, self._finite_rows(X, reset=False))
