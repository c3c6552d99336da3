"""Evaluation of a mixture model at one draw: its log joint, and densities of rows with their labels summed out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from bnp_hier.components.incomplete_rows import DependentColumns
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.inspection.collapsed import MixtureSites, MixtureValues, as_arrays, read_values
from bnp_hier.inspection.trace import Model
from bnp_hier.partitions.leave_one_out import joint_and_densities, observed_densities, observed_mixture_densities
from bnp_hier.partitions.scoring import mixture_log_weights
from bnp_hier.partitions.seating import Prior

__all__ = ["CollapsedMixture", "Mixture", "Values"]

Values = Mapping[str, Any]
"""One draw of the sites other than the partition: name -> value."""


@dataclass(frozen=True)
class Mixture(ABC):
    """A mixture model on one data set.

    - **model** - the NumPyro model.
    - **X** - the data, (n, d) float64.
    """

    model: Model
    X: Float[np.ndarray, "n d"]

    @property
    @abstractmethod
    def partition(self) -> str:
        """Name of the labels."""

    @property
    @abstractmethod
    def observed(self) -> str:
        """Name of the observed site."""

    @property
    @abstractmethod
    def integrated(self) -> bool:
        """Whether the log joint is log p(X, partition), with the cluster parameters integrated out."""

    def conjugate(self, values: Values) -> MixtureValues:
        """Concentration, conjugate component and data at one draw.

        Raises
        ------
        ValueError
            If the model has no conjugate component.
        """
        raise ValueError(
            "the model has no conjugate component from which to draw the parameters of a cluster given its rows; "
            "use the draws of its parameter sites"
        )

    @abstractmethod
    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """Number of slots for these labels."""

    @abstractmethod
    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return the log joint, and the log density of each row given the other rows with its label summed out (nats)."""

    @abstractmethod
    def log_predictive(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: Float[np.ndarray, "m d"]
    ) -> Float[Array, " m"]:
        """Return the log predictive density of each new row (nats)."""

    @abstractmethod
    def validate(self, values: Values, rows: Float[np.ndarray, "m d"]) -> None:
        """Check new rows.

        Raises
        ------
        ValueError
            If they are not valid for the model.
        """


@dataclass(frozen=True)
class CollapsedMixture(Mixture):
    """A mixture of conjugate components with their parameters integrated out.

    - **sites** - the model's sites.
    """

    sites: MixtureSites

    @property
    def partition(self) -> str:
        """The partition site."""
        return self.sites.partition

    @property
    def observed(self) -> str:
        """The observed site."""
        return self.sites.observed

    @property
    def integrated(self) -> bool:
        """True: the parameters are integrated out."""
        return True

    @property
    def _most(self) -> float:
        """Largest number of clusters that the model allows."""
        return float(self.sites.max_clusters or np.inf)

    def conjugate(self, values: Values) -> MixtureValues:
        """Read from the model."""
        return as_arrays(read_values(self.model, self.sites, values, (self.X,)))

    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """Number of slots for these labels, rounded up to a multiple of 8 so that similar runs share a compiled program."""
        return -(-(int(labels.max()) + 1) // 8) * 8

    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return log p(X, partition), and log p(x_i | labels and rows of the others) for each row."""
        read = self.conjugate(values)
        found = joint_and_densities(read, labels, slots, self._most)
        if self.sites.missing is None:
            return found.log_joint, found.left_out
        absent = np.isnan(self.X)
        seen = observed_densities(read, labels, slots, self._most, absent)
        return found.log_joint, found.left_out.at[np.flatnonzero(absent.any(axis=1))].set(seen)

    def log_predictive(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: Float[np.ndarray, "m d"]
    ) -> Float[Array, " m"]:
        """Return log p(x | X, labels): predictive densities of the clusters and a new one, weighted by the partition prior."""
        read = self.conjugate(values)
        found = joint_and_densities(read, labels, slots, self._most, jnp.asarray(_completed(read, rows)), leave_out=False).new
        absent = _incomplete(read, rows)
        if not len(absent):
            return found
        weights = observed_mixture_densities(read, labels, slots, self._most, rows[absent])
        return found.at[absent].set(logsumexp(weights, axis=1))

    def log_weights(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: Float[np.ndarray, "m d"]
    ) -> Float[Array, "m slots1"]:
        """Return the log of (seating probability × predictive density) for each cluster and, last, a new one (nats)."""
        read = self.conjugate(values)
        stats = cluster_statistics(read.component.suff_stats(read.X), labels, slots)
        prior = Prior(read.concentration, read.discount)
        counts = cluster_counts(labels, slots).astype(float)
        found = mixture_log_weights(read.component, stats, counts, prior, jnp.asarray(_completed(read, rows)), self._most)
        absent = _incomplete(read, rows)
        if not len(absent):
            return found
        return found.at[absent].set(observed_mixture_densities(read, labels, slots, self._most, rows[absent]))

    def validate(self, values: Values, rows: Float[np.ndarray, "m d"]) -> None:
        """Check that the rows are valid for the component."""
        read_values(self.model, self.sites, values, (self.X,)).component.validate_new_rows(rows)


def _incomplete(values: MixtureValues, rows: Float[np.ndarray, "m d"]) -> Int[np.ndarray, " r"]:
    """Rows whose missing values are integrated out."""
    return np.flatnonzero(np.isnan(rows).any(axis=1) & isinstance(values.component, DependentColumns))


def _completed(values: MixtureValues, rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
    """The rows with a number in place of missing values that are integrated out."""
    return np.nan_to_num(rows) if len(_incomplete(values, rows)) else rows
