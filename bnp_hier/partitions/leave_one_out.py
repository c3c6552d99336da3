"""Leave-one-out predictive densities of a hard partition, in closed form."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import GibbsTypePrior, log_seating
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.partitions.engine import call_kernel, has_calls, kernel_arguments, settings
from bnp_hier.partitions.incomplete_rows import log_densities_of_observed
from bnp_hier.partitions.joint_density import log_joint
from bnp_hier.partitions.scoring import log_weighted_densities, mixture_log_weights, with_empty
from bnp_hier.utils.padding import masked

__all__ = [
    "DensitiesWithoutRows",
    "densities_without_rows",
    "joint_and_densities",
    "leave_one_out_densities",
    "observed_densities",
    "observed_mixture_densities",
]


class RowDensities(NamedTuple):
    """Densities of a hard partition and of rows (nats).

    - **log_joint** - log p(X, partition).
    - **left_out** - log predictive density of each row given all other rows and their labels.
    - **new** - log predictive density of each new row.
    """

    log_joint: Float[Array, ""]
    left_out: Float[Array, " n"]
    new: Float[Array, " m"]


class DensitiesWithoutRows(NamedTuple):
    """Predictive densities without each of b rows.

    - **of_rows** - log density of each of these rows given all others (nats).
    - **of_new** - density of new rows given the same, divided by exp(`reference`).
    - **reference** - for each new row (nats).
    - **given_all** - log density of new rows given all rows (nats).
    """

    of_rows: Float[Array, " b"]
    of_new: Float[Array, "b m"]
    reference: Float[Array, " m"]
    given_all: Float[Array, " m"]


def joint_and_densities(
    values: MixtureValues,
    labels: Int[Array, " n"],
    slots: int,
    max_clusters: float,
    new: Float[Array, "m d"] | None = None,
    *,
    leave_out: bool = True,
) -> RowDensities:
    """Compute the densities of a partition with labels below `slots`; works under ``jit`` and ``vmap``, without derivatives.

    Parameters
    ----------
    values
        Partition prior, component and rows.
    labels, slots
        (n,) clusters from 0, below `slots`.
    max_clusters
        Maximum number of clusters under the prior.
    new
        New rows, (m, d); none by default.
    leave_out
        Whether to compute `left_out`, which is empty otherwise.
    """
    prior, further = values.prior, values.prior.of_a_further_item
    rows = jnp.zeros((0, values.component.dim)) if new is None else new
    if has_calls(values.component):
        # beside n rows that are all alone, a new row can still open a cluster
        most, given = int(min(max_clusters, len(values.X) + 1)), kernel_arguments(values.component, values.X)
        results = [((), float), ((len(values.X) if leave_out else 0,), float), ((len(rows),), float)]
        arguments = *given, labels, *(settings(each, len(values.X), most) for each in (prior, further)), np.array(most), rows
        return RowDensities(*call_kernel("densities.ROW_DENSITIES", results, *arguments))
    component, stats = values.component, cluster_statistics(values.component.suff_stats(values.X), labels, slots)
    joint = log_joint(component, component.suff_stats(values.X), labels, prior, slots)
    left_out = leave_one_out_densities(component, values.X, labels, prior, slots, max_clusters) if leave_out else jnp.zeros(0)
    counts = cluster_counts(labels, slots).astype(float)
    weights = mixture_log_weights(component, stats, counts, further, rows, max_clusters)
    return RowDensities(joint, left_out, logsumexp(weights, axis=1))


@partial(jax.jit, static_argnames="slots")
def leave_one_out_densities(
    component: Component,
    X: Float[Array, "n d"],
    labels: Int[Array, " n"],
    prior: GibbsTypePrior,
    slots: int,
    max_clusters: ArrayLike = jnp.inf,
) -> Float[Array, " n"]:
    """Log predictive density of each row given all other rows and their labels (nats).

    For a Pitman-Yor process, log p(x_i|D∖i, v∖i) = log [Σ_k (n_k∖i − δ) p(x_i|D_k∖i) + (α + K∖i δ) p(x_i)] − log (n − 1 + α),
    where the label of the row itself is summed out; other priors have other weights of a new cluster. The row's statistics are
    subtracted from those of its cluster, so no refit is needed.

    Parameters
    ----------
    component, X, prior
        Component, data (n, d), and prior of the partition.
    labels
        (n,) clusters from 0, below `slots`; the label `slots` marks padding, which is left out and has density 0.
    slots
        Number of slots.
    max_clusters
        Maximum number of clusters under the prior; if the other rows already have this many, the row cannot open another.
    """
    there = labels < slots
    rows = masked(component.suff_stats(X), there)  # no NaN appears for padding, not even in derivatives
    stats = cluster_statistics(rows, labels, slots)
    counts = cluster_counts(labels, slots).astype(float)
    labels = jnp.where(there, labels, 0)
    cache = component.cache(stats)
    whole = jax.vmap(lambda row: component.cached_log_predictive(cache, row))(rows)  # (n, k), own cluster included
    without = jax.tree.map(lambda leaf, row: leaf[labels] - row, stats, rows)
    own = component.log_marginal(stats)[labels] - component.log_marginal(without)
    found = _over_labels(whole, own, component.log_marginal(rows), labels, counts, prior, max_clusters)
    return jnp.where(there, found, 0.0)


def _over_labels(
    whole: Float[Array, "r k"],
    own: Float[Array, " r"],
    opened: Float[Array, " r"],
    labels: Int[Array, " r"],
    counts: Float[Array, " k"],
    prior: GibbsTypePrior,
    max_clusters: ArrayLike,
) -> Float[Array, " r"]:
    """Sum over the labels of rows whose densities are given: in all clusters, in their own without them, and in a new one."""
    discount = jnp.asarray(prior.discount, float)
    mine = labels[:, None] == jnp.arange(len(counts), dtype=labels.dtype)[None]
    left = counts[None] - mine.astype(counts.dtype)
    clusters = (counts > 0).sum(dtype=counts.dtype) - (counts[labels] == 1).astype(counts.dtype)
    seats = jnp.where(left > 0, jnp.log(jnp.where(left > 0, left - discount, 1.0)), -jnp.inf)
    density = jnp.where(mine, own[:, None], whole)
    joined = seats + jnp.where(left > 0, density, 0.0)
    room = clusters < max_clusters
    log_open = jnp.asarray(prior.log_open(jnp.maximum(clusters, 1.0)))
    new = jnp.where(room, log_open + opened, -jnp.inf)
    total = counts.sum() - 1 - clusters * discount + jnp.where(room, jnp.exp(log_open), 0.0)
    return logsumexp(jnp.column_stack([joined, new]), axis=1) - jnp.log(total)


def observed_densities(
    values: MixtureValues, labels: Int[Array, " n"], slots: int, max_clusters: float, absent: Bool[np.ndarray, "n d"]
) -> Float[Array, " r"]:
    """`left_out` of the rows with missing values, for the cells that are there; works under ``jit``.

    Parameters
    ----------
    values
        Partition prior, component and completed rows.
    labels, slots, max_clusters
        As for `joint_and_densities`.
    absent
        Which cells are missing and completed.
    """
    component = values.component
    rows, prior = np.flatnonzero(absent.any(axis=1)), values.prior
    each = component.suff_stats(jnp.asarray(values.X))
    stats, counts = cluster_statistics(each, labels, slots), cluster_counts(labels, slots).astype(float)
    seen, labels = jnp.where(absent, jnp.nan, values.X)[rows], labels[rows]
    alone = counts[labels] == 1
    without = jax.tree.map(lambda leaf, row: leaf[labels] - row[rows], stats, each)
    without = jax.tree.map(lambda leaf: jnp.where(alone.reshape(-1, *[1] * (leaf.ndim - 1)), 0.0, leaf), without)
    own = component.log_density_of_cells(component.density_of_cells(without), seen)
    opened = component.log_density_of_cells(component.density_of_cells(component.empty()), seen)
    return _over_labels(log_densities_of_observed(component, stats, seen), own, opened, labels, counts, prior, max_clusters)


def densities_without_rows(
    values: MixtureValues,
    labels: Int[Array, " n"],
    slots: int,
    max_clusters: float,
    rows: Int[Array, " b"],
    new: Float[Array, "m d"],
    *,
    incomplete: bool,
) -> DensitiesWithoutRows:
    """Compute the predictive densities of some rows given all others, and of new rows given the same; works under ``jit``.

    Parameters
    ----------
    values
        Partition prior, component and completed rows.
    labels, slots, max_clusters
        As for `joint_and_densities`.
    rows
        (b,) numbers of the rows that are left out, one at a time.
    new
        New rows, (m, d). Columns in which they have no values are left out of all densities.
    incomplete
        Whether any of these columns depends on others, so that its values must be integrated out.
    """
    component, prior, m = values.component, values.prior, len(new)
    X = jnp.asarray(values.X)
    each = component.suff_stats(X)
    stats, counts = cluster_statistics(each, labels, slots), cluster_counts(labels, slots).astype(float)
    mine = labels[rows]
    left = counts[mine] - 1
    without = masked(jax.tree.map(lambda leaf, row: leaf[mine] - row[rows], stats, each), left > 0)
    both = with_empty(component, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), stats, without))
    seen = jnp.concatenate([new, jnp.where(jnp.isnan(new).all(0), jnp.nan, X[rows])])
    if incomplete:
        densities = log_densities_of_observed(component, both, seen)
    else:
        densities = log_weighted_densities(component, both, jnp.zeros(slots + len(rows) + 1), seen)
    whole, own, opened = densities[:, :slots], densities[:, slots:-1], densities[:, -1]
    of_rows = _over_labels(whole[m:], jnp.diag(own[m:]), opened[m:], mine, counts, prior, max_clusters)

    # at new rows: sums of positive terms, in units of the largest
    seats, opened = jnp.asarray(log_seating(counts, prior.of_a_further_item, max_clusters)), opened[:m]
    joined = jnp.log(jnp.where(counts > 0, counts - prior.discount, 0.0))[None] + whole[:m]
    reference = jnp.maximum(joined.max(1), opened)
    unlike = (jnp.arange(slots, dtype=mine.dtype)[:, None] != mine[None]).astype(joined.dtype)
    beside = jnp.exp(joined - reference[:, None]) @ unlike
    joined_own = jnp.log(jnp.where(left > 0, left - prior.discount, 0.0))[None] + own[:m] - reference[:, None]
    clusters = (counts > 0).sum(dtype=counts.dtype) - (left == 0).astype(counts.dtype)
    room = clusters < max_clusters
    opening = jnp.where(room, jnp.exp(prior.log_open(jnp.maximum(clusters, 1.0))), 0.0)
    total = counts.sum() - 1 - clusters * prior.discount + opening
    of_new = beside + jnp.where(left[None] > 0, jnp.exp(joined_own), 0.0) + jnp.outer(jnp.exp(opened - reference), opening)
    given_all = logsumexp(jnp.column_stack([whole[:m], opened]) + seats[None], axis=1)
    return DensitiesWithoutRows(of_rows, (of_new / total[None]).T, reference, given_all)


def observed_mixture_densities(
    values: MixtureValues, labels: Int[Array, " n"], slots: int, max_clusters: float, X: Float[np.ndarray, "m d"]
) -> Float[Array, "m k1"]:
    """`mixture_log_weights` of new rows with missing values (NaN), which are integrated out; works under ``jit``."""
    component = values.component
    stats = cluster_statistics(component.suff_stats(jnp.asarray(values.X)), labels, slots)
    counts, prior = cluster_counts(labels, slots).astype(float), values.prior.of_a_further_item
    weights = jnp.asarray(log_seating(counts, prior, max_clusters))
    return log_densities_of_observed(component, with_empty(component, stats), jnp.asarray(X)) + weights[None]
