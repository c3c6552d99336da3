"""Estimators of one partition that read tables in parts, and take in new rows using the clusters' statistics only."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self, cast

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.deterministic.row_sources.detection import row_source
from bnp_hier.deterministic.row_sources.late_labels import LateLabels
from bnp_hier.deterministic.row_sources.protocol import RowSource
from bnp_hier.deterministic.row_sources.sampling import SAMPLE, SKETCH, RowSample, named_rows, size_of
from bnp_hier.distributions.seating import process_of
from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.clusters import joint_of_clusters
from bnp_hier.partitions.incremental import seat_in_turn
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.options import require_count
from bnp_hier.utils.randomness import random_generators

__all__ = ["StreamingClustering"]


class StreamingClustering(LateLabels, DeterministicClustering):
    """Base class of the estimators of a single partition that read tables in parts and take in new rows.

    Further fitted attributes: `statistics_`, the sufficient statistics of the clusters, a pytree of NumPy arrays with leading
    dimension `n_clusters_` (that of ``component_.suff_stats(rows)``, summed by label); `n_seen_`, the number of rows seen by
    `fit` and `partial_fit`; `n_passes_`, the number of times that `fit` has read a table in parts, 0 for one in memory.
    """

    random_state: Any

    def fit(self, X: ArrayLike | Callable[[], Iterable[ArrayLike]] | RowSource | Any, y: Any = None) -> Self:
        """Fit the model to the rows of X.

        Parameters
        ----------
        X
            Data, (n, d), n ≥ 2, in the form that the model's component expects. These are read in parts and never loaded as a
            whole: a memory-mapped array; a function that returns an iterator over chunks (m, d) with the same rows at every
            call; an Arrow Table or Dataset; a Dask array or DataFrame, whose rows stay on the workers; and any
            `bnp_hier.distributed.RowSource`. The clusters are first searched for on a sample of 8,192 rows (`BayesianKMeans`:
            then on one of 200,000 rows) and refined on all rows by at most 10 passes. Only the sample of 8,192 rows is passed
            to the model and used to fit hyperparameters. `labels_` is computed by one more pass over the rows when it is first
            accessed. Data of at most 200,000 rows are loaded and fitted like an array.
        y
            Ignored.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            If an option, the model or the data are invalid, or `optimize` is True or "leave_one_out" but no hyperparameter has
            a prior; also if X is an object on disk or on a cluster that would be read as a whole. The message says what to pass
            instead.
        Exception
            Any exception raised by the function or its iterator. If reading the chunks fails, the estimator keeps the best
            clusters found in the completed passes or, if there are none, the clusters of the rows read so far; a note on the
            exception says which.

        Warns
        -----
        RuntimeWarning
            If a learned hyperparameter lies at the edge of its prior; of `MAPDP`, also if it has not converged.
        UserWarning
            If the hyperparameters are learned and all of 20 or more rows are in one cluster; of `MAPDP`, also if `init` is
            "single".
        """
        source = row_source(X)
        if source is None:
            return super().fit(cast(ArrayLike, X))
        started = time.perf_counter()
        self._check_options()
        self._check_in_parts()
        try:
            with double_precision(), blas_on_one_core():
                sample = self._sample(source)
                if sample.n_rows <= sample.size:
                    self._fit_rows(named_rows(sample.rows, source))
                    self.n_passes_ = getattr(source, "readings", 1)
                else:
                    self._fit_source(source, sample, self._fit_sketch(source, sample))
        finally:
            self.fit_seconds_ = time.perf_counter() - started
        return self

    def _check_in_parts(self) -> None:  # noqa: B027
        """Raise ValueError if an option is possible only for tables in memory."""

    @abstractmethod
    def _fit_source(self, source: RowSource, sample: RowSample, problem: Problem) -> None:
        """Refine the fit to the sample's first `SKETCH` rows on all rows; if reading fails, keep the results so far."""

    def _sample(self, source: RowSource) -> RowSample:
        """Draw a sample of the rows; if reading fails, fit the estimator to the sample of the rows read so far."""
        sample = RowSample(SAMPLE, random_generators(self.random_state)[0])
        try:
            sample.read(source)
        except Exception as error:
            if sample.n_rows > 1:
                try:
                    self._fit_rows(named_rows(sample.first(SKETCH), source))
                    error.add_note(f"(the estimator keeps the clusters of {size_of(sample, SKETCH)} read so far)")
                except ValueError as unfit:
                    error.add_note(f"(the {sample.n_rows} rows read so far could not be fitted: {unfit})")
            raise
        return sample

    def _fit_sketch(self, source: RowSource, sample: RowSample) -> Problem:
        """Fit the estimator to the first `SKETCH` rows of the sample."""
        rows = sample.first(SKETCH).astype(np.float64)
        if not np.array_equal(Problem(self.model, rows).values.X, rows, equal_nan=True):
            raise ValueError(
                "the values that the model observes differ from the rows of X; rows read in chunks must be passed to the "
                "likelihood unchanged"
            )
        return self._fit_rows(named_rows(rows, source))

    def partial_fit(self, X: ArrayLike, y: Any = None, *, refinements: int = 0) -> Self:
        """Add new rows one at a time, each to the cluster for which log p(all rows so far, labels) is largest.

        Only the statistics of the clusters are stored, not the earlier rows, so memory does not grow with the number of
        rows. On an unfitted estimator, this method is equivalent to `fit`. The hyperparameters, the traces and `free_energy_`
        are left as `fit` set them. Rows are seated under the model's partition prior, even if `fit` used another label prior.

        Parameters
        ----------
        X
            New rows, (m, d), m ≥ 1 (m ≥ 2 if the estimator is not fitted yet).
        y
            Ignored.
        refinements
            Number of additional sweeps over each chunk of at most 4,096 new rows.

        Returns
        -------
        self
            `labels_` contains the labels of the rows of this call only, with the existing cluster numbers; `counts_`,
            `n_clusters_`, `n_seen_` and `log_joint_` describe all rows seen so far.

        Raises
        ------
        ValueError
            If the rows are invalid for the component, or `refinements` is not a non-negative integer; the fitted state is
            then unchanged.
        """
        require_count("refinements", refinements, 0)
        if not hasattr(self, "counts_"):
            return self.fit(X)
        matrix = self._new_rows(X)
        self.component_.validate(matrix)  # missing values of rows that join clusters are not imputed
        with double_precision():
            self._take_in(matrix, refinements)
        return self

    @property
    def n_seen_(self) -> int:
        """Number of rows seen so far by `fit` and `partial_fit`."""
        return int(self.counts_.sum())

    @property
    def _has_all_labels(self) -> bool:
        """Whether `labels_` are available, and are those of all rows seen; they are not computed for this."""
        return self._reread is not None or (self._labels is not None and len(self._labels) == self.n_seen_)

    def _take_in(self, X: Float[np.ndarray, "m d"], refinements: int) -> None:
        prior = process_of(self._prior)
        # a max_clusters declared by the model is part of the model
        limit = self._max_clusters_ or self.n_seen_ + len(X)
        clusters: tuple[Any, np.ndarray] = (self.statistics_, self.counts_.astype(float))
        self.labels_, stats, counts = seat_in_turn(self.component_, X, clusters, prior, limit, refinements)
        self._set_clusters(stats, counts, np.arange(len(counts)))

    def _set_clusters(self, stats: Statistics, counts: Float[np.ndarray, " s"], order: Int[np.ndarray, " k"]) -> None:
        """Set the attributes that describe the clusters in the given slots, in this order; all other slots are empty."""
        self.counts_ = np.asarray(counts)[order].astype(np.int64)
        self.n_clusters_ = len(order)
        self.statistics_ = jax.tree.map(lambda leaf: np.asarray(leaf)[order], stats)
        prior = process_of(self._prior)
        self.log_joint_ = joint_of_clusters(self.component_, self.statistics_, self.counts_, prior)
        if np.isnan(self.log_joint_):
            raise ValueError(
                f"log p(X, labels) is NaN: the log marginal likelihood of {type(self.component_).__name__} is NaN for a cluster"
            )
