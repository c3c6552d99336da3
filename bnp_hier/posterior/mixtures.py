"""Evaluation of a mixture model at one draw: its log joint, and densities of rows with their labels summed out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.inspection.collapsed import MixtureSites, MixtureValues, as_arrays, find_missing, read_values
from bnp_hier.inspection.model_arguments import ModelArguments
from bnp_hier.inspection.trace import Model, feasible, run_model
from bnp_hier.partitions.leave_one_out import joint_and_densities, observed_densities, observed_mixture_densities
from bnp_hier.partitions.scoring import mixture_log_weights
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["CollapsedMixture", "Mixture", "Values"]

Values = Mapping[str, Any]
"""One draw of the sites other than the partition: name -> value."""


@dataclass(frozen=True)
class Mixture(ABC):
    """A mixture model on one data set.

    - **model** - the NumPyro model.
    - **data** - its arguments.
    """

    model: Model
    data: ModelArguments

    @cached_property
    def X(self) -> Float[np.ndarray, "n d"]:
        """The table that is the only argument, or what the model observes, side by side."""
        return np.asarray(self.data.args[0]) if self.data.is_table else self.observed_table(self.data)

    def observed_table(self, data: ModelArguments) -> Float[np.ndarray, "m q"]:
        """What the model observes when it is run on the arguments: the columns of all observed sites."""
        with double_precision(), jax.ensure_compile_time_eval():
            trace = run_model(self.model, data.args, data.kwargs, feasible)
        columns = [np.asarray(trace[name]["value"], dtype=np.float64).reshape(len(data), -1) for name in self.observed_sites]
        return np.concatenate(columns, axis=1)

    def table(self, rows: ModelArguments) -> Float[np.ndarray, "m d"]:
        """The rows as the mixture sees them: a table as it is, or what the model makes of several arguments."""
        return np.asarray(rows.args[0]) if rows.is_table else self.observed_table(rows)

    @property
    def observed_sites(self) -> tuple[str, ...]:
        """Names of the observed sites."""
        return (self.observed,)

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

    @property
    def entries(self) -> int | None:
        """Number of entries of a site with the parameters of all clusters; None if they are integrated out."""
        return None

    def conjugate(self, values: Values) -> MixtureValues:
        """Concentration, conjugate component and data at one draw.

        Raises
        ------
        ValueError
            If the model has no conjugate component.
        """
        raise ValueError("the model has no conjugate component from which to draw the parameters of a cluster given its rows")

    @abstractmethod
    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """Number of slots for these labels."""

    @abstractmethod
    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return the log joint, and the log density of each row given the other rows with its label summed out (nats)."""

    @abstractmethod
    def log_predictive(self, labels: Int[Array, " n"], values: Values, slots: int, rows: ModelArguments) -> Float[Array, " m"]:
        """Return the log predictive density of each new row (nats)."""

    def log_weights(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: ModelArguments
    ) -> Float[Array, "m slots1"]:
        """Return the log of (seating probability × predictive density) for each cluster and, last, a new one (nats).

        Raises
        ------
        ValueError
            If the labels are summed out, so that there are no clusters to which a row could belong.
        """
        raise ValueError(
            "the labels are summed out in the model, so the draws have no clusters that a new row could join: sample a "
            "partition with PartitionGibbs or AuxiliaryGibbs"
        )

    @abstractmethod
    def validate(self, values: Values, rows: ModelArguments) -> None:
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
        return as_arrays(read_values(self.model, self.sites, values, self.data.args, self.data.kwargs))

    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """Number of slots for these labels, rounded up to a multiple of 8 so that similar runs share a compiled program."""
        return -(-(int(labels.max()) + 1) // 8) * 8

    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return log p(X, partition), and log p(x_i | labels and rows of the others) for each row."""
        read = self.conjugate(values)
        found = joint_and_densities(read, labels, slots, self._most)
        if self.sites.missing is None:
            return found.log_joint, found.left_out
        absent = self.absent
        seen = observed_densities(read, labels, slots, self._most, absent)
        return found.log_joint, found.left_out.at[np.flatnonzero(absent.any(axis=1))].set(seen)

    @cached_property
    def absent(self) -> Bool[np.ndarray, "n d"]:
        """The missing values that the model completes."""
        return find_missing(self.model, self.sites, self.data.args, self.data.kwargs)

    def log_predictive(self, labels: Int[Array, " n"], values: Values, slots: int, rows: ModelArguments) -> Float[Array, " m"]:
        """Return log p(x | X, labels): predictive densities of the clusters and a new one, weighted by the partition prior."""
        read, table = self.conjugate(values), self.table(rows)
        found = joint_and_densities(read, labels, slots, self._most, jnp.asarray(_completed(read, table)), leave_out=False).new
        absent = _incomplete(read, table)
        if not len(absent):
            return found
        weights = observed_mixture_densities(read, labels, slots, self._most, table[absent])
        return found.at[absent].set(logsumexp(weights, axis=1))

    def log_weights(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: ModelArguments
    ) -> Float[Array, "m slots1"]:
        """Return the log of (seating probability × predictive density) for each cluster and, last, a new one (nats)."""
        read, table = self.conjugate(values), self.table(rows)
        stats = cluster_statistics(read.component.suff_stats(read.X), labels, slots)
        prior = read.prior.of_a_further_item
        counts = cluster_counts(labels, slots).astype(float)
        found = mixture_log_weights(read.component, stats, counts, prior, jnp.asarray(_completed(read, table)), self._most)
        absent = _incomplete(read, table)
        if not len(absent):
            return found
        return found.at[absent].set(observed_mixture_densities(read, labels, slots, self._most, table[absent]))

    def validate(self, values: Values, rows: ModelArguments) -> None:
        """Check that the rows are valid for the component."""
        component = read_values(self.model, self.sites, values, self.data.args, self.data.kwargs).component
        component.validate_new_rows(self.table(rows))


def _incomplete(values: MixtureValues, rows: Float[np.ndarray, "m d"]) -> Int[np.ndarray, " r"]:
    """Rows with missing values of dependent columns, which are integrated out."""
    return np.flatnonzero(values.component.incomplete_cells(rows).any(axis=1))


def _completed(values: MixtureValues, rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
    """The rows with a number in place of these missing values."""
    absent = values.component.incomplete_cells(rows)
    return np.where(absent, 0.0, rows) if absent.any() else rows
