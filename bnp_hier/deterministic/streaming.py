"""Incremental fitting: new rows are assigned to a fitted partition one at a time, using the clusters' statistics only."""

from __future__ import annotations

from typing import Any, Self

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.partitions.clusters import joint_of_clusters
from bnp_hier.partitions.incremental import seat_rows
from bnp_hier.partitions.seating import Prior
from bnp_hier.utils.options import require_count

__all__ = ["StreamingClustering"]

LARGEST = 4096
"""Maximum number of rows seated in one compiled call; chunk sizes are powers of two, so that few programs are compiled."""


class StreamingClustering(DeterministicClustering):
    """Base class of the estimators of a single partition that support incremental fitting with `partial_fit`."""

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
        with jax.enable_x64(True):
            self._take_in(matrix, refinements)
        return self

    @property
    def n_seen_(self) -> int:
        """Number of rows seen so far by `fit` and `partial_fit`."""
        return int(self.counts_.sum())

    def _take_in(self, X: Float[np.ndarray, "m d"], refinements: int) -> None:
        prior = Prior(self.concentration_, self.discount_)
        # a max_clusters declared by the model is part of the model
        limit = self._max_clusters_ or self.n_seen_ + len(X)
        clusters: tuple[Any, np.ndarray] = (self._stats_, self.counts_.astype(float))
        found: list[np.ndarray] = []
        at = 0
        while at < len(X):
            size = min(LARGEST, 1 << (len(X) - at).bit_length() - 1)
            labels, *seated = seat_rows(self.component_, X[at : at + size], clusters, prior, limit, refinements + 1, at)
            clusters = (seated[0], seated[1])
            found.append(labels)
            at += size
        # a cluster that was opened and then abandoned leaves its number unused; existing clusters never become empty
        used = np.flatnonzero(clusters[1] > 0)
        number = np.full(len(clusters[1]), -1)
        number[used] = np.arange(len(used))
        self.labels_ = number[np.concatenate(found)]
        self._set_clusters(clusters[0], clusters[1], used)

    def _set_clusters(self, stats: Statistics, counts: Float[np.ndarray, " s"], order: Int[np.ndarray, " k"]) -> None:
        """Set the attributes that describe the clusters in the given slots, in this order; all other slots are empty."""
        self.counts_ = np.asarray(counts)[order].astype(np.int64)
        self.n_clusters_ = len(order)
        self._stats_ = jax.tree.map(lambda leaf: np.asarray(leaf)[order], stats)
        prior = Prior(self.concentration_, self.discount_)
        self.log_joint_ = joint_of_clusters(self.component_, self._stats_, self.counts_, prior)
        if np.isnan(self.log_joint_):
            raise ValueError(
                f"log p(X, labels) is NaN: the log marginal likelihood of {type(self.component_).__name__} is NaN for a cluster"
            )
