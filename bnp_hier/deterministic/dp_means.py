"""DP-means: the small-variance limit of a Dirichlet process mixture of spherical normals."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from bnp_hier.deterministic.input_validation import input_rows
from bnp_hier.utils.arrays import first_cell
from bnp_hier.utils.options import PositiveNumber, WholeNumber

__all__ = ["DPMeans"]

MOST = 1e150
"""Largest absolute value whose squared distances can be summed in double precision."""

HALVINGS = 60
"""Maximum number of bisection steps in the search for a penalty."""


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


@jax.jit
def _sweep(
    X: Float[Array, "n d"], centers: Float[Array, "s d"], clusters: Int[Array, ""], penalty: Float[Array, ""]
) -> tuple[Int[Array, " n"], Int[Array, ""], Int[Array, ""]]:
    """Return the labels, the number of clusters, and how often a row needed a new cluster but no slot was free."""
    index = jnp.arange(centers.shape[0])

    def visit(carry: tuple[Array, Array, Array], x: Array) -> tuple[tuple[Array, Array, Array], Array]:
        centers, clusters, refused = carry
        gaps = jnp.where(index < clusters, ((centers - x[None]) ** 2).sum(1), jnp.inf)
        nearest = gaps.argmin()
        far = gaps[nearest] > penalty
        opens = far & (clusters < centers.shape[0])
        label = jnp.where(opens, clusters, nearest)
        centers = centers.at[label].set(jnp.where(opens, x, centers[label]))
        return (centers, clusters + opens.astype(int), refused + (far & ~opens).astype(int)), label

    (_, clusters, refused), labels = jax.lax.scan(visit, (centers, clusters, jnp.int64(0)), X)
    return labels, clusters, refused


@partial(jax.jit, static_argnames="slots")
def _means(X: Float[Array, "n d"], labels: Int[Array, " n"], slots: int) -> tuple[Float[Array, "s d"], Float[Array, ""]]:
    """Return the mean of each cluster and the sum of squared distances of the rows to their cluster means."""
    counts = jax.ops.segment_sum(jnp.ones(len(X)), labels, slots)
    centers = jax.ops.segment_sum(X, labels, slots) / jnp.maximum(counts, 1.0)[:, None]
    return centers, ((X - centers[labels]) ** 2).sum()


class DPMeans(ClusterMixin, BaseEstimator):
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
        Maximum number of sweeps.

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
    n_clusters_, n_iter_, n_features_in_, fit_seconds_
        Number of clusters, sweeps and columns, and run time of `fit` in seconds.

    Notes
    -----
    Kulis & Jordan (2012), Algorithm 1. The result depends on the order of the rows.

    Examples
    --------
    >>> from bnp_hier import DPMeans
    >>> DPMeans(penalty=4.0).fit([[0.0], [0.2], [0.1], [6.0], [6.1]]).labels_
    array([0, 0, 0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [PositiveNumber(), None],
        "n_clusters": [WholeNumber(), None],
        "max_iter": [WholeNumber()],
    }

    def __init__(self, penalty: float | None = None, n_clusters: int | None = None, *, max_iter: int = 100) -> None:
        self.penalty = penalty
        self.n_clusters = n_clusters
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Cluster the rows of X, (n, d), n ≥ 2.

        Raises
        ------
        ValueError
            If the penalty is not positive, if both or neither of `penalty` and `n_clusters` are given, or if X is not a table
            of finite numbers.
        """
        started = time.perf_counter()
        self._validate_params()
        matrix = self._finite_rows(X, reset=True, min_rows=2)
        if (self.penalty is None) == (self.n_clusters is None):
            raise ValueError("specify either penalty or n_clusters, but not both")
        with jax.enable_x64(True):
            if self.penalty is not None:
                penalty = float(self.penalty)
                found = self._run(matrix, penalty)
            else:
                wanted = cast(int, self.n_clusters)
                if wanted > len(matrix):
                    raise ValueError(f"n_clusters is {wanted}, but X has only {len(matrix)} rows")
                penalty, found = self._reach(matrix, wanted)
        if not found.converged:
            message = f"DPMeans did not converge within max_iter={self.max_iter} sweeps; increase max_iter"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        self.labels_, self.cluster_centers_, self.penalty_ = found.labels, found.centers, penalty
        self.objective_trace_ = np.array(found.trace)
        self.objective_, self.n_iter_ = found.trace[-1], len(found.trace)
        self.n_clusters_ = len(found.centers)
        self.fit_seconds_ = time.perf_counter() - started
        return self

    def _finite_rows(self, X: ArrayLike, *, reset: bool, min_rows: int = 1) -> Float[np.ndarray, "n d"]:
        matrix = input_rows(self, X, reset=reset, min_rows=min_rows)
        wrong = ~np.isfinite(matrix)
        if wrong.any():
            what = "a missing value (NaN)" if np.isnan(matrix[wrong][0]) else "an infinite value (inf)"
            raise ValueError(f"X has {what} at {first_cell(wrong)}; DPMeans needs finite numbers")
        beyond = np.abs(matrix) > MOST
        if beyond.any():
            raise ValueError(
                f"X has {matrix[beyond][0]:g} at {first_cell(beyond)}, which is too large to be squared in double precision"
            )
        return matrix

    def _run(self, X: np.ndarray, penalty: float) -> _Found:
        """Run sweeps, starting from one cluster, until no label changes."""
        slots = min(len(X), 64)
        while True:
            found = self._sweeps(X, penalty, slots)
            if found is not None:
                return found
            slots = min(len(X), 4 * slots)

    def _sweeps(self, X: np.ndarray, penalty: float, slots: int) -> _Found | None:
        """Run sweeps with a fixed number of slots; None if the slots do not suffice."""
        centers = np.zeros((slots, X.shape[1]))
        centers[0] = X.mean(0)
        labels, clusters, trace = np.full(len(X), -1), 1, []
        for _ in range(self.max_iter):
            new, _, refused = _sweep(X, centers, np.asarray(clusters), np.asarray(penalty))
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
            found = self._run(X, middle)
            gap = len(found.centers) - clusters
            if best is None or abs(gap) < abs(len(best[1].centers) - clusters):
                best = middle, found
            if gap == 0 or high - low < 1e-9 * high:
                break
            low, high = (middle, high) if gap > 0 else (low, middle)
        assert best is not None
        if len(best[1].centers) != clusters:
            message = f"no penalty tried yields {clusters} clusters; the closest result has {len(best[1].centers)} clusters"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return best

    def predict(self, X: ArrayLike) -> Int[np.ndarray, " m"]:
        """Cluster with the nearest mean, for each new row.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are not finite or have a different number of columns.
        """
        check_is_fitted(self, "labels_")
        matrix = self._finite_rows(X, reset=False)
        return ((matrix[:, None] - self.cluster_centers_) ** 2).sum(2).argmin(1)
