"""Missing values of a hard partition: their best normal approximation, and a lower bound on the density of what is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import Prior, log_seating
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.partitions.capacities import in_steps, more_slots
from bnp_hier.partitions.clusters import joint_and_statistics
from bnp_hier.partitions.incomplete_rows import log_densities_of_observed
from bnp_hier.utils.arrays import take
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.padding import padded, padded_size
from bnp_hier.utils.quick_compilation import compiled_at_first_call

__all__ = ["Imputation", "better_labels", "expected_log_joint", "impute"]

MAX_ITER = 100
"""Maximum number of updates of the cells."""

TOLERANCE = 1e-4
"""Rise of the bound (nats) at which the updates stop."""


class Imputation(NamedTuple):
    """Normal approximation of the missing values given the labels.

    - **labels** - (n,) the labels.
    - **rows** - (r,) the incomplete rows.
    - **means** - (r, d) these rows with the means of their missing values.
    - **covariances** - (r, q, q) covariance matrices of their q dependent columns, 0 where a cell is there.
    - **cells**, **deviations** - (m,) means and standard deviations of the missing values, row by row.
    - **stats** - expected statistics of the clusters.
    - **log_joint** - lower bound on log p(observed cells, labels) (nats).
    """

    labels: Int[np.ndarray, " n"]
    rows: Int[np.ndarray, " r"]
    means: Float[np.ndarray, "r d"]
    covariances: Float[np.ndarray, "r q q"]
    cells: Float[np.ndarray, " m"]
    deviations: Float[np.ndarray, " m"]
    stats: Statistics
    log_joint: float


def impute(
    values: MixtureValues, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], start: Imputation | None = None
) -> Imputation:
    """Approximate the missing values of each row by a normal distribution, given the labels.

    Variational inference with independent factors for the cells of each row and for the parameters of each cluster, whose
    optimum has the family's own form: log p(observed cells | labels) ≥ Σ_k log m(E[S_k]) + entropy of the cells, with expected
    statistics S_k. Each update of the cells, given the expected parameters, raises this bound.

    Parameters
    ----------
    values
        Partition prior and component; the rows are not used.
    X
        Data, (n, d), with NaN for missing values; those that the component leaves out of its statistics need no approximation.
    labels
        (n,) clusters 0, ..., K − 1.
    start
        An approximation for the same rows, at other labels or hyperparameters, that is updated; by default, updates start from
        the complete rows.
    """
    component, absent = values.component, values.component.incomplete_cells(X)
    incomplete = absent.any(axis=1)
    rows, k = np.flatnonzero(incomplete), int(labels.max()) + 1
    slots = in_steps(k)
    prior = Prior(1.0, 0.0)
    known = canonical_labels(labels[~incomplete])  # the kernel needs labels without gaps
    at = labels[~incomplete][np.unique(known, return_index=True)[1]]
    found = joint_and_statistics(component, X[~incomplete], known, prior)[1] if len(known) else component.empty((0,))
    base = jax.tree.map(lambda leaf: np.zeros((slots, *leaf.shape[1:])), found)
    for leaf, part in zip(jax.tree.leaves(base), jax.tree.leaves(found), strict=True):
        leaf[at] = part
    extra = padded_size(len(rows)) - len(rows)
    seen = np.concatenate([X[rows], np.zeros((extra, X.shape[1]))])
    own = np.concatenate([labels[rows], np.full(extra, slots)])
    q = len(component.dependent_columns)
    cells = (np.zeros(seen.shape), np.zeros((len(seen), q, q)))
    if start is not None:
        cells = (np.asarray(padded(start.means, 0.0)), np.asarray(padded(start.covariances, 0.0)))
    counts = np.bincount(labels, minlength=slots).astype(float)
    seating = counts, values.concentration, values.discount
    means, covariances, stats, bound = _impute(component, base, seen, own, seating, cells, np.float64(start is not None))
    means, covariances = (np.asarray(each)[: len(rows)] for each in (means, covariances))
    deviations = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))[absent[rows][:, list(component.dependent_columns)]]
    stats = jax.tree.map(lambda leaf: np.asarray(leaf)[:k], stats)
    return Imputation(labels, rows, means, covariances, means[absent[rows]], deviations, stats, float(bound))


@compiled_at_first_call
def _impute(
    component: Component,
    base: Statistics,
    seen: Float[Array, "r d"],
    labels: Int[Array, " r"],
    seating: tuple[Float[Array, " slots"], Any, Any],
    start: tuple[Float[Array, "r d"], Float[Array, "r q q"]],
    share: Float[Array, ""],
) -> tuple[Float[Array, "r d"], Float[Array, "r q q"], Statistics, Float[Array, ""]]:
    """The same for padded rows, whose label is the number of slots, and clusters of complete rows with statistics `base`.

    Seating is by the clusters' sizes, concentration and discount. The share of `start`, the first means and covariances, is 0
    if there are none.
    """
    slots = jax.tree.leaves(base)[0].shape[0]

    def expected(means: Array, covariances: Array) -> Statistics:
        each = component.with_covariances(component.suff_stats(means), covariances)
        return cluster_statistics(each, labels, slots)

    def updated(stats: Statistics) -> tuple[Array, Array, Statistics, Array]:
        parameters = take(component.expected_parameters(stats), jnp.minimum(labels, slots - 1))
        means, covariances, entropy = component.expected_cells(parameters, seen)
        stats = jax.tree.map(jnp.add, base, expected(means, covariances))
        return means, covariances, stats, component.log_marginal(stats).sum() + entropy.sum()

    def unfinished(state: Any) -> Array:
        i, rise, *_ = state
        return (i < MAX_ITER) & (rise > TOLERANCE)

    def step(state: Any) -> Any:
        i, _, before = state
        after = updated(before[2])
        return i + 1, after[3] - before[3], after

    first = updated(jax.tree.map(lambda known, rest: known + share * rest, base, expected(*start)))
    _, _, found = jax.lax.while_loop(unfinished, step, (0, jnp.asarray(jnp.inf, seen.dtype), first))
    means, covariances, stats, bound = found
    return means, covariances, stats, bound + log_partition_prior(*seating)


def better_labels(values: MixtureValues, X: Float[np.ndarray, "n d"], found: Imputation) -> Int[np.ndarray, " n"]:
    """Labels with each incomplete row in its most probable cluster, given what is there of it and all other rows."""
    component = values.component
    r, k = len(found.rows), len(jax.tree.leaves(found.stats)[0])
    counts = np.bincount(found.labels, minlength=k).astype(float)
    slots = in_steps(k + 1)
    each = component.with_covariances(component.suff_stats(jnp.asarray(found.means)), jnp.asarray(found.covariances))
    own = found.labels[found.rows]
    without = jax.tree.map(lambda leaf, row: np.asarray(leaf)[own] - np.asarray(row), found.stats, each)
    alone = counts[own] == 1
    without = jax.tree.map(lambda leaf: np.where(alone.reshape(-1, *[1] * (leaf.ndim - 1)), 0.0, leaf), without)
    extra = padded_size(r) - r
    seen = np.concatenate([X[found.rows], np.zeros((extra, X.shape[1]))])
    densities, apart = _densities(component, more_slots(found.stats, slots - k), more_slots(without, extra), seen)
    densities = np.array(densities)[:r, : k + 1]
    densities[np.arange(r), own] = np.asarray(apart)[:r]
    prior = Prior(float(values.concentration), float(values.discount))
    weights = np.stack([log_seating(counts - (np.arange(k) == j), prior) for j in range(k)])[own]
    labels = np.array(found.labels)
    best = (densities + weights).argmax(axis=1)
    opened = np.flatnonzero(best == k)
    best[opened] = k + np.arange(len(opened))  # rows that fit no cluster open one each
    labels[found.rows] = best
    return canonical_labels(labels)


@compiled_at_first_call
def _densities(
    component: Component, stats: Statistics, without: Statistics, seen: Float[Array, "r d"]
) -> tuple[Float[Array, "r slots"], Float[Array, " r"]]:
    """Log densities of what is there in every cluster, and in clusters of one row each (nats)."""
    whole = log_densities_of_observed(component, stats, seen)
    return whole, component.log_density_of_cells(component.density_of_cells(without), seen)


def expected_log_joint(
    values: MixtureValues,
    X: Float[Array, "n d"],
    labels: Int[Array, " n"],
    table: Float[Array, " slots"],
    covariances: Float[Array, "r q q"],
    own: Int[Array, " r"],
) -> Float[Array, ""]:
    """The bound of `Imputation` without the entropy, as a function of the hyperparameters; for `Problem.climb`.

    Parameters
    ----------
    values
        Partition prior and component; its rows are not used.
    X
        Rows completed by the means.
    labels, own
        Clusters of all rows and of the incomplete ones; those of padding are the number of slots.
    table
        An array with as many entries as there are slots.
    covariances
        Covariance matrices of the dependent columns of the incomplete rows.
    """
    component = values.component
    slots = table.shape[0]
    uncertain = component.with_covariances(component.empty(own.shape), covariances)
    stats = jax.tree.map(
        jnp.add,
        cluster_statistics(component.suff_stats(X), labels, slots),
        cluster_statistics(uncertain, own, slots),
    )
    prior = log_partition_prior(cluster_counts(labels, slots), values.concentration, values.discount)
    return prior + component.log_marginal(stats).sum()
