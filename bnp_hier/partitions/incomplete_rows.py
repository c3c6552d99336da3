"""Gibbs updates of rows with missing values: their clusters and their cells together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.utils.arrays import take
from bnp_hier.utils.labels import first_come_labels

__all__ = ["log_densities_of_observed", "redraw_incomplete_rows"]

BLOCK = 8
"""Number of clusters whose densities are computed at once: those of empty slots cost time as well."""


@jax.jit
def log_densities_of_observed(component: Component, stats: Statistics, X: Float[Array, "m d"]) -> Float[Array, "m k"]:
    """Log predictive density of each row in each cluster, with its missing values (NaN) integrated out (nats)."""
    clusters = component.density_of_cells(stats)
    return jax.vmap(lambda row: component.log_density_of_cells(clusters, row))(X)


def redraw_incomplete_rows(
    values: MixtureValues, labels: Int[Array, " n"], absent: Bool[np.ndarray, "n d"], slots: int, key: Array
) -> tuple[Int[Array, " n"], Float[Array, " m"]]:
    """Draw the cluster of each row with missing values, and then these cells, given all other rows; works under ``jit``.

    Both are drawn at once, row by row: the cluster with the missing values of the row and all parameters integrated out, and
    the cells from their conditional distribution in this cluster. If the clusters were drawn given the cells, and the cells
    given the clusters, a row would hardly ever leave its cluster, because its cells fit no other one.

    Parameters
    ----------
    values
        Partition prior, component and completed rows.
    labels
        (n,) clusters, numbered in order of appearance, below `slots`.
    absent
        Which cells are missing and completed.
    slots
        Capacity.
    key
        Random key.

    Returns
    -------
    labels, cells
        New clusters, numbered in order of appearance, and the missing values, row by row.
    """
    component = values.component
    X, incomplete = jnp.asarray(values.X), np.flatnonzero(absent.any(axis=1))
    capacity = -(-slots // BLOCK) * BLOCK
    stats, counts = cluster_statistics(component.suff_stats(X), labels, capacity), cluster_counts(labels, capacity)
    rows, fresh = component.density_of_cells(stats), component.density_of_cells(component.empty())
    prior, discount = values.prior, jnp.asarray(values.prior.discount, X.dtype)

    def place(tree: Any, slot: Array, new: Any) -> Any:
        return jax.tree.map(lambda leaf, value: leaf.at[slot].set(value), tree, new)

    def redraw(carried: Any, given: tuple[Array, Array]) -> tuple[Any, None]:
        (X, labels, stats, counts, rows), (row, key) = carried, given
        key_label, key_cells = jax.random.split(key)
        own, x = labels[row], X[row]
        counts = counts.at[own].add(-1)
        # zeros for an empty cluster, free of rounding errors
        others = jax.tree.map(jnp.subtract, take(stats, own), component.suff_stats(x))
        left = jax.tree.map(lambda leaf: jnp.where(counts[own] > 0, leaf, 0.0), others)
        stats, rows = place(stats, own, left), place(rows, own, component.density_of_cells(left))
        seen = jnp.where(jnp.asarray(absent)[row], jnp.nan, x)

        def densities(b: Array, found: Array) -> Array:
            block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, b * BLOCK, BLOCK), rows)
            return jax.lax.dynamic_update_slice_in_dim(found, component.log_density_of_cells(block, seen), b * BLOCK, 0)

        used = jnp.max(jnp.where(counts > 0, jnp.arange(capacity), -1)) // BLOCK + 1
        found = jax.lax.fori_loop(0, used, densities, jnp.zeros(capacity, X.dtype))
        size, clusters = counts.astype(X.dtype), (counts > 0).sum().astype(X.dtype)
        weights = jnp.where(counts > 0, jnp.log(jnp.where(counts > 0, size - discount, 1.0)) + found, -jnp.inf)
        new = jnp.asarray(prior.log_open(clusters), X.dtype) + component.log_density_of_cells(fresh, seen)
        free = jnp.argmin(counts > 0)
        weights = jnp.where((jnp.arange(capacity) == free) & (clusters < slots), new, weights)
        slot = jax.random.categorical(key_label, weights)
        drawn = component.draw_cells(take(rows, slot), seen, key_cells)
        joined = jax.tree.map(jnp.add, take(stats, slot), component.suff_stats(drawn))
        stats, rows = place(stats, slot, joined), place(rows, slot, component.density_of_cells(joined))
        return (X.at[row].set(drawn), labels.at[row].set(slot.astype(labels.dtype)), stats, counts.at[slot].add(1), rows), None

    given = jnp.asarray(incomplete), jax.random.split(key, len(incomplete))
    start: Any = X, labels, stats, counts, rows
    (X, labels, *_), _ = jax.lax.scan(redraw, start, given)
    return first_come_labels(labels, capacity), X[np.nonzero(absent)]
