"""Base class of the deterministic estimators: reads the model, validates input and predicts from clusters."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from bnp_hier.capabilities import EvidenceBound
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.completion import LEAST_RISE, first_imputation, refined_imputation
from bnp_hier.deterministic.learned_hyperparameters import warn_of_edges, warn_of_one_cluster
from bnp_hier.deterministic.row_sources.input_validation import input_rows
from bnp_hier.deterministic.row_sources.lazy_predictions import lazy_on_dask
from bnp_hier.distributions.seating import GibbsTypePrior, Prior, TabulatedPrior, log_seating
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.models import MixtureModel, dpm
from bnp_hier.partitions.clusters import joint_and_statistics, log_predictives
from bnp_hier.partitions.imputation import Imputation
from bnp_hier.partitions.scoring import check_log_weights
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.compilation_cache import keep_programs
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["DeterministicClustering"]

FITS = 5
"""Maximum number of fits to a table with missing values."""


class DeterministicClustering(ClusterMixin, BaseEstimator):
    """Base class of the estimators: a subclass fits `labels_`, from which the other attributes are computed.

    Fitted attributes: `labels_`, (n,) integers from 0; `counts_`, rows per cluster; `n_clusters_`; `component_`;
    `concentration_`; `discount_`; `hyperparameters_`, a dictionary of the model's hyperparameter sites; `log_joint_`,
    log p(X, `labels_`) (nats); `n_features_in_`; `feature_names_in_`, if X is a DataFrame; `fit_seconds_`.

    If the model completes the rows of a table with missing values (`complete_rows`, as `dpm` does for columns with a full or
    shared covariance matrix), the estimator is fitted to completed tables in turn with imputation given its labels. Then there
    are also `missing_values_` and `missing_std_`, the means and standard deviations of these missing values, row by row;
    `log_joint_` is a lower bound on log p(observed cells, `labels_`), which is also the bound on the evidence, if the estimator
    has one; and all other quantities of the fit are those of the completed table.
    """

    model: Model
    optimize: bool | str | Mapping[str, ArrayLike] = "auto"
    max_rounds: int

    _of_rows: ClassVar[tuple[str, ...]] = ("labels_", "_labels", "missing_values_", "missing_std_")
    """Attributes with an entry for each row of `fit` that predictions do not need."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [callable],
        "optimize": ["boolean", StrOptions({"auto"}), Mapping],
    }

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator, or settings of its model, such as ``model__concentration``.

        Settings turn the default model, `dpm`, into a `MixtureModel`.

        Raises
        ------
        ValueError
            If there is no such parameter or setting, or the settings of the model have no names.
        """
        if any(name.startswith("model__") for name in params):
            model = params.get("model", self.model)
            if model is dpm:
                params = {**params, "model": MixtureModel()}
            elif not hasattr(model, "set_params"):
                raise ValueError(
                    f"the model is {getattr(model, '__name__', repr(model))}, whose settings have no names: use "
                    "model=bnp_hier.models.MixtureModel(...), or search over whole models, {'model': [...]}"
                )
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # whether missing values are allowed depends on the component
        return tags

    def _finish(self, problem: Problem, labels: Int[np.ndarray, " n"]) -> None:
        """Set the attributes common to all estimators."""
        values = self._describe(problem)
        self.labels_ = np.asarray(labels, dtype=np.int64)
        self.counts_ = np.bincount(self.labels_)
        self.n_clusters_ = len(self.counts_)
        prior = values.prior
        self.log_joint_, self.statistics_ = joint_and_statistics(self.component_, np.asarray(values.X), self.labels_, prior)
        if np.isnan(self.log_joint_):
            marginals = np.asarray(self.component_.log_marginal(jax.tree.map(jnp.asarray, self.statistics_)))
            rows = np.flatnonzero(np.isnan(marginals)[self.labels_])
            raise ValueError(
                f"log p(X, labels) is NaN: the log marginal likelihood of {type(self.component_).__name__} is NaN for the "
                f"cluster of rows {', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''}"
            )

    def _check_exact_statistics(self, use: str) -> None:
        """Raise an error if the estimator is not fitted, or has imputed missing values, whose uncertainty is in its statistics.

        Parameters
        ----------
        use
            What the clusters cannot be then, for the message.
        """
        check_is_fitted(self, "counts_")
        if hasattr(self, "missing_values_"):
            raise ValueError(
                f"the clusters of this {type(self).__name__} cannot be {use} from their statistics: missing values were imputed"
            )

    def _describe(self, problem: Problem) -> MixtureValues:
        """Set the attributes that do not depend on the partition."""
        values = problem.values
        self._max_clusters_ = problem.sites.max_clusters
        self.component_ = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), values.component)
        prior = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), values.prior)
        self.discount_ = float(np.asarray(prior.discount))
        if isinstance(prior, Prior):
            self.concentration_ = float(np.asarray(prior.concentration))
        else:
            self._log_one, self._log_opens = prior.log_one, prior.log_opens
        self.hyperparameters_ = {name: np.asarray(value)[()] for name, value in problem.hyperparameters.items()}
        return values

    @property
    def _prior(self) -> GibbsTypePrior:
        """The partition prior at the fitted hyperparameters."""
        if hasattr(self, "concentration_"):
            return Prior(self.concentration_, self.discount_)
        return TabulatedPrior(self.discount_, self._log_one, self._log_opens)

    def _new_rows(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "counts_")
        matrix = input_rows(self, X, reset=False)
        self.component_.validate_new_rows(matrix)
        return matrix

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit the model to the rows of X.

        Parameters
        ----------
        X
            Data, (n, d), n ≥ 2, in the form that the model's component expects.
        y
            Ignored.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            If an option, the model or the data are invalid, or `optimize` is True but no hyperparameter has a prior; also if X
            is an object on disk or on a cluster that would be read as a whole.

        Warns
        -----
        RuntimeWarning
            If a learned hyperparameter lies at the edge of its prior; of `VariationalDP`, also if it has not converged.
        UserWarning
            If the hyperparameters are learned and all of 20 or more rows are in one cluster.
        """
        started = time.perf_counter()
        self._check_options()
        keep_programs()
        with double_precision(), blas_on_one_core():
            self._fit_rows(X)
        self.fit_seconds_ = time.perf_counter() - started
        return self

    def _fit_rows(self, X: ArrayLike) -> Problem:
        problem = Problem(self.model, input_rows(self, X, reset=True, min_rows=2), allow_missing=True)
        for name in ("missing_values_", "missing_std_"):  # those of an earlier fit
            self.__dict__.pop(name, None)
        if isinstance(self.optimize, Mapping):
            problem.set(self.optimize)
        elif self.optimize not in (False, "auto") and not problem.unconstrained:
            raise ValueError(f"optimize={self.optimize!r}, but no hyperparameter of the model has a prior")
        if problem.sites.missing is None:
            self._fit(problem)
        else:
            self._fit_completed(problem)
        if self._rounds(problem):
            warn_of_edges(problem)
            if self.n_clusters_ == 1:
                warn_of_one_cluster(len(self.labels_))
        return problem

    def _fit_completed(self, problem: Problem) -> None:
        """Alternate fits to completed tables with imputation, as long as the bound on the log joint rises.

        The hyperparameters are learned by the first fit and by the imputation. Set the attributes `missing_values_`,
        `missing_std_` and `log_joint_`; a bound on the evidence becomes that of the partition.
        """
        problem.complete(first_imputation(problem).cells)
        learn, before, best = bool(self._rounds(problem)), dict(self.__dict__), None
        for _ in range(FITS):
            if best is not None and current_deadline().is_past():
                break
            self.__dict__.clear()
            self.__dict__.update(before)
            self._fit(problem)
            problem.keep_hyperparameters = True
            own, better = refined_imputation(problem, self.labels_, learn)
            log_joint = own.log_joint + float(problem.prior.log_prob(problem.hyperparameters))
            if best is not None and not log_joint > best[0] + LEAST_RISE:
                break
            best = log_joint, own, dict(self.__dict__), problem.unconstrained
            problem.complete(better.cells)
        assert best is not None
        _, found, attributes, problem.unconstrained = best
        self.__dict__.update(attributes)
        problem.keep_hyperparameters = False
        problem.complete(found.cells)
        self._describe(problem)
        self.log_joint_, self.statistics_ = found.log_joint, found.stats
        self.missing_values_, self.missing_std_ = found.cells, found.deviations
        uncertainty = jax.tree.map(np.zeros_like, self.component_.suff_stats(np.asarray(problem.values.X)))
        for leaf, part in zip(jax.tree.leaves(uncertainty), jax.tree.leaves(self._uncertainty(found)), strict=True):
            leaf[found.rows] = part
        self._restate(problem.values, uncertainty)
        if isinstance(self, EvidenceBound):
            self.log_evidence_bound_, self.bound_kind_ = self.log_joint_, "one partition"

    def _uncertainty(self, found: Imputation) -> Statistics:
        """What the covariance matrices of incomplete rows add to the rows' statistics."""
        nothing = self.component_.empty((len(found.rows),))
        return jax.tree.map(np.asarray, self.component_.with_covariances(nothing, jnp.asarray(found.covariances)))

    def _restate(self, values: MixtureValues, added: Statistics) -> None:  # noqa: B027
        """Compute sums of rows beside those of the labels again, from completed rows and what their uncertainty adds."""

    def _rounds(self, problem: Problem) -> int:
        """Maximum number of rounds of gradient steps on the hyperparameters, 0 if they are not fitted."""
        given = isinstance(self.optimize, Mapping) or problem.keep_hyperparameters
        return self.max_rounds if not given and self.optimize and problem.unconstrained else 0

    def _check_options(self) -> None:
        """Raise ValueError if an option violates `_parameter_constraints` or conflicts with another option."""
        self._validate_params()

    @abstractmethod
    def _fit(self, problem: Problem) -> None:
        """Set the fitted attributes; called inside ``jax.enable_x64``."""

    def fit_predict(self, X: ArrayLike, y: Any = None, **kwargs: Any) -> Int[np.ndarray, " n"]:
        """Fit the model and return `labels_`."""
        return self.fit(X).labels_

    def _log_weights(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        matrix = self._new_rows(X)
        prior = self._prior.of_a_further_item
        weights = log_seating(self.counts_.astype(float), prior, float(self._max_clusters_ or np.inf))
        with double_precision(), blas_on_one_core():
            densities = log_predictives(self.component_, self.statistics_, matrix, int(self.counts_.sum()))
        return check_log_weights(densities + weights, matrix)

    @lazy_on_dask
    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability that each new row belongs to each cluster of `labels_` and, in the last column, to a new cluster.

        For a Dask array or DataFrame, this method, `predict` and `score_samples` return a lazy Dask array.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are invalid for the component.
        """
        check_is_fitted(self, "counts_")
        log_weights = self._log_weights(X)
        return np.exp(log_weights - np.logaddexp.reduce(log_weights, axis=1, keepdims=True))

    @lazy_on_dask
    def predict(self, X: ArrayLike) -> Int[np.ndarray, " m"]:
        """Most probable cluster of each new row; the label `n_clusters_` means a new cluster.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are invalid for the component.
        """
        return self.predict_proba(X).argmax(axis=1)

    @lazy_on_dask
    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row given the fitted clusters (nats).

        p(x|D, v) = Σ_k (n_k − δ)/(n + α) p(x|D_k) + (α + Kδ)/(n + α) p(x), separately for each row; the discount δ is 0 for
        the Dirichlet process. If the partition already has the model's `max_clusters` clusters, no new cluster can open and
        the other weights are renormalised.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are invalid for the component.
        """
        check_is_fitted(self, "counts_")
        return np.logaddexp.reduce(self._log_weights(X), axis=1)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples`, for scikit-learn's model selection."""
        return float(self.score_samples(X).mean())
