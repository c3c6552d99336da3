"""Protocols for the capabilities of fitted objects: any object with the required attributes is accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.datasets import Dataset
from bnp_hier.trees import Dendrogram

__all__ = ["BinaryTree", "Chains", "Clustering", "EvidenceBound", "FitsWithData", "TreePosterior"]


@runtime_checkable
class Chains(Protocol):
    """Markov chains of a NumPyro kernel: an `MCMC` object, a `ResumableRun`, or any object with the same attributes."""

    @property
    def sampler(self) -> Any:
        """The kernel; its attribute `model` is the NumPyro model."""

    @property
    def num_chains(self) -> int:
        """Number of chains."""

    @property
    def last_state(self) -> Any:
        """State of the kernel after the last step; None before the first step."""

    def get_samples(self, group_by_chain: bool = False) -> Any:
        """Draws by site name, (chain, draw, ...) if grouped by chain."""

    def get_extra_fields(self, group_by_chain: bool = False) -> Any:
        """Requested fields of the kernel's state by name, (chain, draw, ...) if grouped by chain."""


@runtime_checkable
class Clustering(Protocol):
    """A partition of the data under a mixture model, with its predictive density."""

    @property
    def model(self) -> Callable[..., Any]:
        """The NumPyro model."""

    @property
    def labels_(self) -> Int[np.ndarray, " n"]:
        """Cluster of each row, (n,), numbered from 0."""

    @property
    def hyperparameters_(self) -> Mapping[str, Any]:
        """Values of the hyperparameters by site name."""

    @property
    def log_joint_(self) -> float:
        """Log p(X, `labels_`) (nats)."""

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row (nats)."""

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability of each cluster for each new row; the last column is that of a new cluster."""


@runtime_checkable
class EvidenceBound(Protocol):
    """A lower bound on the log evidence of the model at `hyperparameters_`."""

    @property
    def log_evidence_bound_(self) -> float:
        """The bound (nats)."""

    @property
    def bound_kind_(self) -> str:
        """Short name of the kind of bound, for tables."""


@runtime_checkable
class FitsWithData(Protocol):
    """Several fits of one data set and the recommended one, e.g. a `ClusteringResult`."""

    @property
    def fits(self) -> Mapping[str, Any]:
        """Title of a method -> its fit."""

    @property
    def method(self) -> str:
        """Title of the recommended method."""

    @property
    def data(self) -> Dataset:
        """The fitted rows as numbers, and how columns were converted."""


@runtime_checkable
class BinaryTree(Protocol):
    """A binary tree over the rows, built for a partition that it contains."""

    @property
    def dendrogram_(self) -> Dendrogram:
        """The tree."""

    @property
    def log_joint_(self) -> float:
        """Log p(X, partition) (nats)."""


@runtime_checkable
class TreePosterior(Protocol):
    """A posterior over the partitions in a binary tree, whose normalising constant is a lower bound on the evidence."""

    @property
    def dendrogram_(self) -> Dendrogram:
        """The tree, with the posterior odds of its merges."""

    @property
    def log_evidence_bound_(self) -> float:
        """The bound (nats)."""

    @property
    def component_(self) -> Component:
        """The component at the fitted hyperparameters."""

    @property
    def concentration_(self) -> float:
        """Concentration α."""

    @property
    def X_fit_(self) -> Float[np.ndarray, "n d"]:
        """The data in the form passed to the component."""

    def sample_partitions(self, key: int | Array, num_samples: int) -> Int[np.ndarray, "s items"]:
        """Partitions drawn from the posterior, (num_samples, items)."""
