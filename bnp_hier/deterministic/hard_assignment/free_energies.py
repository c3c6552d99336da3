"""Free energy of a hard partition, and the scores of the maximisation-expectation steps that reduce it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from jaxtyping import Array, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.deterministic.hard_assignment.assignment import Scores
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import GibbsTypePrior, Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Objective, Problem, by_gradient
from bnp_hier.partitions.capacities import in_steps, more_slots
from bnp_hier.partitions.clusters import joint_and_statistics, joint_of_clusters, marginals_of
from bnp_hier.utils.padding import padded

__all__ = ["LABEL_MODELS", "free_energy", "label_log_prior", "labels_and_slots", "log_joint_objective", "scores_from"]

LARGE = 5000
"""Work for a cluster, as `_work` counts it, from which on empty clusters take longer than compiling one more program without
them: in 300 evaluations, 200 empty clusters of 64 columns with covariances take 15 s, and a program compiles in 0.5 s."""

LABEL_MODELS = ("dp", "finite")
"""Label priors: a Dirichlet (or Pitman-Yor) process over partitions, or symmetric Dirichlet weights over labels."""


def label_log_prior(counts: Num[Array, " k"], prior: GibbsTypePrior, labels: str) -> Float[Array, ""]:
    """Log prior of the labels (nats).

    "dp": prior of the partition under the Chinese restaurant process. "finite": prior of one labelling with K clusters, where
    K is the number of non-empty clusters and their weights are Dirichlet(α, ..., α):
    log Γ(Kα) − log Γ(n + Kα) + Σ_k [log Γ(n_k + α) − log Γ(α)].
    """
    if labels == "dp":
        return prior.log_prob(counts)
    assert isinstance(prior, Prior)
    counts = jnp.asarray(counts, float)
    used = counts > 0
    alpha = jnp.asarray(prior.concentration, float)
    total = alpha * used.sum(dtype=alpha.dtype)
    each = jnp.where(used, log_gamma_ratio(alpha, counts), 0.0)
    return each.sum() - log_gamma_ratio(total, counts.sum())


_label_log_prior = jax.jit(label_log_prior, static_argnames="labels")


def free_energy(
    component: Component, stats: Statistics, counts: Float[Array | np.ndarray, " k"], prior: Prior, labels: str
) -> float:
    """Objective of maximisation-expectation: −log p(X, labels) with the parameters integrated out (nats).

    Kurihara & Welling (2009), Eq. 19 for "finite" and Eq. 23 for "dp"; empty clusters contribute nothing.
    """
    used = np.asarray(counts) > 0
    sizes, taken = jax.tree.map(lambda leaf: np.asarray(leaf)[used], (counts, stats))
    if labels == "dp":
        return -joint_of_clusters(component, taken, sizes, prior)
    return -float(_label_log_prior(jnp.asarray(counts), prior, labels) + marginals_of(component, taken, sizes).sum())


@runtime_checkable
class Labelled(Protocol):
    """A fit that has labels."""

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """(n,) cluster labels, from 0."""


def labels_and_slots(fit: Labelled) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " slots"]]:
    """Return the labels of a hard partition, and an array with one entry per cluster slot.

    The labels of padding rows are the number of slots, so that sums by label leave them out.
    """
    slots = in_steps(int(fit.labels.max()) + 1)
    return np.asarray(padded(fit.labels, slots)), np.zeros(slots)


def _log_joint(values: MixtureValues, labels: Int[Array, " n"], table: Float[Array, " slots"], model: str) -> Float[Array, ""]:
    slots = table.shape[0]
    stats = cluster_statistics(values.component.suff_stats(values.X), labels, slots)
    prior = values.prior if model == "dp" else values.process
    return label_log_prior(cluster_counts(labels, slots), prior, model) + values.component.log_marginal(stats).sum()


_LOG_JOINTS = {model: partial(_log_joint, model=model) for model in LABEL_MODELS}


def log_joint_objective(problem: Problem, model: str, X: Num[np.ndarray, "m d"] | None = None) -> Objective[Any]:
    """Log p(X, labels) of hard partitions, at any hyperparameters from the statistics of the clusters alone if possible.

    Parameters
    ----------
    problem
        The problem.
    model
        Label prior, one of `LABEL_MODELS`.
    X
        (m, d) the rows that are labelled; None for those of the problem. Others are possible only if the family's statistics
        can be converted between hyperparameters.
    """
    values = problem.values
    anchor = values.component.anchor()
    if anchor is None:
        return by_gradient(problem, _LOG_JOINTS[model], labels_and_slots)
    anchor = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), anchor)
    none, rows = jax.eval_shape(anchor.empty), np.asarray(values.X if X is None else X)
    structure, large = jax.tree.structure((anchor, none)), sum(map(_work, jax.tree.leaves(none))) > LARGE

    def arrays(fit: Labelled) -> tuple[Any, ...]:
        k = int(fit.labels.max()) + 1
        problem.most_clusters = max(problem.most_clusters, k)
        slots = in_steps(k if large else problem.most_clusters)
        _, stats = joint_and_statistics(anchor, rows, fit.labels, Prior(1.0, 0.0))
        counts = np.bincount(fit.labels, minlength=slots).astype(np.float64)
        return (counts, *jax.tree.leaves((anchor, more_slots(stats, slots - k))))

    return by_gradient(problem, _joint_of_sums(structure, model), arrays)


def _work(leaf: jax.ShapeDtypeStruct) -> int:
    """Numbers in a sum of a cluster, times the columns of a matrix, which is factorised."""
    return leaf.size * (leaf.shape[-1] if leaf.ndim > 1 else 1)


@lru_cache(maxsize=64)
def _joint_of_sums(structure: Any, model: str) -> Callable[..., Float[Array, ""]]:
    """The function of `log_joint_objective`: the same one for the same family, so that it is compiled once for a problem."""

    def objective(values: MixtureValues, counts: Float[Array, " slots"], *leaves: Array) -> Float[Array, ""]:
        source, stats = jax.tree.unflatten(structure, leaves)
        prior = values.prior if model == "dp" else values.process
        marginals = values.component.log_marginal_of_restated(stats, source)
        return label_log_prior(counts, prior, model) + marginals.sum()

    return objective


@partial(jax.jit, static_argnames="labels")
def scores_from(component: Component, stats: Statistics, counts: Float[Array, " k"], prior: Prior, labels: str) -> Scores:
    """E[log p(x, label)] under the posterior of each cluster's parameters and of the weights, up to a constant.

    Kurihara & Welling (2009), Eqs. 20, 24, 40 and 46 with the opposite sign; their Eq. 24 is the limit in which a label's
    weight is ψ(n_k), or ψ(n_k − δ) with a discount. Empty clusters receive no rows.
    """
    used = counts > 0
    shift = -jnp.asarray(prior.discount, float) if labels == "dp" else jnp.asarray(prior.concentration, float)
    weight = jnp.where(used, digamma(jnp.where(used, counts + shift, 1.0)), -jnp.inf)
    return Scores(component.expected_natural_parameters(stats), weight)
