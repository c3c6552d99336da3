"""Rows as vectors of distinct sufficient statistics, for matrix products over many rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.utils.arrays import is_traced, pack
from bnp_hier.utils.programs import compiled

__all__ = ["Features", "coefficients_of", "feature_map", "features_of", "statistics_of", "unflatten"]


class Features(NamedTuple):
    """Which entries of a row's flattened statistics are distinct functions of the row.

    - **kept** - positions, within each leaf, of one entry per group of equal entries.
    - **group** - group of every entry of all leaves.
    """

    kept: tuple[tuple[int, ...], ...]
    group: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of groups."""
        return sum(map(len, self.kept))


def feature_map(component: Component) -> Features:
    """Keep all entries except the upper triangles of square leaves that are symmetric for every row, such as x xᵀ."""
    if is_traced(component):  # values cannot be compared: keep every entry
        leaves = jax.tree.leaves(component.empty())
        sizes = [leaf.size for leaf in leaves]
        return Features(tuple(tuple(range(size)) for size in sizes), tuple(range(sum(sizes))))
    rng = np.random.default_rng(0)
    kinds = (
        rng.uniform(0.1, 3.0, (4, component.dim)),
        rng.integers(0, 2, (4, component.dim)),
        rng.integers(0, 9, (4, component.dim)),
    )
    rows = np.concatenate(kinds)
    leaves = compiled(_row_statistics, component, rows)(component, rows)  # not traced, even where a chain method traces `init`
    kept: list[tuple[int, ...]] = []
    group: list[int] = []
    for leaf in map(np.asarray, leaves):
        own = np.arange(leaf[0].size).reshape(leaf.shape[1:])
        if leaf.ndim == 3 and leaf.shape[1] == leaf.shape[2] and (leaf == leaf.transpose(0, 2, 1)).all():
            own = np.maximum(own, own.T)
        different, place = np.unique(own, return_inverse=True)
        group += (sum(map(len, kept)) + place.ravel()).tolist()
        kept.append(tuple(different.tolist()))
    return Features(tuple(kept), tuple(group))


def _row_statistics(component: Component, X: Float[Array, "n d"]) -> list[Array]:
    return jax.tree.leaves(component.suff_stats(X))


def features_of(component: Component, X: Float[Array, "n d"], features: Features) -> Float[Array, "n f"]:
    """Return the kept entries of the rows' statistics."""
    leaves = jax.tree.leaves(component.suff_stats(X))
    # selected leaf by leaf, so that the compiler never materialises the other entries
    parts = [leaf.reshape(len(X), -1)[:, np.array(kept)] for leaf, kept in zip(leaves, features.kept, strict=True)]
    return jnp.concatenate(parts, axis=1)


def unflatten(flat: Float[Array, "k p"], like: Statistics) -> Statistics:
    """Reshape the rows of `flat` to the structure of a pytree whose leaves have leading dimension k."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([int(np.prod(leaf.shape[1:])) for leaf in leaves])
    parts = jnp.split(flat, ends[:-1].tolist(), axis=1)
    return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])


def coefficients_of(natural: Statistics, features: Features) -> Float[Array, "f k"]:
    """Coefficients of the features in ⟨natural, suff_stats(x)⟩; leaves of `natural` have leading dimension k."""
    return jax.ops.segment_sum(pack(natural, 1).T, np.array(features.group), features.width)


def statistics_of(sums: Float[Array, "k f"], features: Features, like: Statistics) -> Statistics:
    """Convert sums of features to sufficient statistics with leading dimension k and the structure of `like`."""
    return unflatten(sums[:, np.array(features.group)], like)
