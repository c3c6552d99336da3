"""Recursive k-means, a model-free baseline: a tree of fixed depth and branching factor."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from bnp_hier.trees import Hierarchy
from bnp_hier.utils.arrays import as_matrix, first_cell
from bnp_hier.utils.options import require_count

__all__ = ["recursive_kmeans"]


def recursive_kmeans(X: ArrayLike, depth: int, branching: int, random_state: int = 0) -> Hierarchy:
    """Build a hierarchy by splitting the rows into `branching` clusters with k-means, recursively down to a given depth.

    A cluster with fewer distinct rows than `branching` is split into as many clusters as it has distinct rows. Each split is
    made by scikit-learn's `KMeans` with ten initialisations.

    Parameters
    ----------
    X
        Rows, (n, d).
    depth
        Number of levels below the root.
    branching
        Number of clusters per split.
    random_state
        Seed of the random number generator.

    Returns
    -------
    tree
        `Hierarchy` of the rows.

    Raises
    ------
    ValueError
        If `depth` or `branching` is not an integer of at least 1, or X has missing or infinite values.

    Examples
    --------
    >>> import numpy as np
    >>> from bnp_hier import recursive_kmeans
    >>> tree = recursive_kmeans([[0.0], [0.1], [9.0], [9.1], [30.0], [32.0]], depth=2, branching=2)
    >>> [np.bincount(tree.labels_at(level)).tolist() for level in (1, 2)]
    [[4, 2], [2, 2, 1, 1]]
    """
    from sklearn.cluster import KMeans

    require_count("depth", depth)
    require_count("branching", branching)
    X = as_matrix(X)
    for what, bad in (("a missing", np.isnan(X)), ("an infinite", np.isinf(X))):
        if bad.any():
            raise ValueError(f"X has {what} value at {first_cell(bad)}; k-means needs complete rows of finite numbers")
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
