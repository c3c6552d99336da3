"""A tree of fixed depth and branching by k-means within k-means: a reference without a model."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from bnp_hier.trees import Hierarchy
from bnp_hier.utils.arrays import as_matrix

__all__ = ["recursive_kmeans"]


def recursive_kmeans(X: ArrayLike, depth: int, branching: int, random_state: int = 0) -> Hierarchy:
    """Rows split into `branching` clusters by k-means, every cluster again, and so on down to a depth.

    A cluster with fewer distinct rows than that is split into as many as it has. Splits are scikit-learn's `KMeans`, ten starts
    each.

    Parameters
    ----------
    X
        Rows, (n, d).
    depth
        Levels of the tree below the root.
    branching
        Clusters per split.
    random_state
        Seed.

    Raises
    ------
    ValueError
        If the depth or the branching is no whole number of at least 1.
    """
    from sklearn.cluster import KMeans

    for name, value in (("depth", depth), ("branching", branching)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, but it is {value!r}")
    X = as_matrix(X)
    rng = np.random.default_rng(random_state)
    node, first, paths = np.zeros(len(X), dtype=np.int64), 1, []
    for _ in range(int(depth)):
        below = np.empty_like(node)
        for parent in np.unique(node):
            items = np.flatnonzero(node == parent)
            clusters = min(int(branching), len(np.unique(X[items], axis=0)))
            if clusters > 1:
                kmeans = KMeans(clusters, n_init=10, random_state=int(rng.integers(2**31)))
                below[items] = first + kmeans.fit_predict(X[items])
            else:
                below[items] = first
            first += clusters
        node = below
        paths.append(node)
    return Hierarchy(np.column_stack(paths))
