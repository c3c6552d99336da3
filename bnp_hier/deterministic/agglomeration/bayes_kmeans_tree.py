"""Bayes k-means BHC: rows are assigned to clusters one by one, and the exact tree is built over the clusters."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import cluster_leaves
from bnp_hier.deterministic.agglomeration.randomized_bhc import Assembly, filled
from bnp_hier.partitions.merging import merge_best_pair
from bnp_hier.partitions.seating import Prior
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import check_seated, sweep
from bnp_hier.utils.labels import canonical_labels, first_come_labels

__all__ = ["bayes_kmeans", "build_bayes_kmeans_tree"]


@partial(jax.jit, static_argnames="slots")
def _seat(
    component: Component, X: Float[Array, "n d"], prior: Prior, order: Int[Array, " n"], seeds: Int[Array, " k"], slots: int
) -> tuple[Int[Array, " n"], Int[Array, ""]]:
    """Cluster the rows: seed rows, then all other rows one by one, one reassignment of all rows, and merges while they help."""
    rows = component.suff_stats(X)
    seating, k = Seating(component, X, prior), seeds.shape[0]
    labels = jnp.full(X.shape[0], -1).at[seeds].set(jnp.arange(k))
    labels, refused = sweep(seating, labels, order[k:], None, slots)
    labels, again = sweep(seating, labels, order, None, slots)

    def merge(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return merge_best_pair(component, rows, state[0], prior, slots)

    labels, _ = jax.lax.while_loop(lambda state: state[1], merge, (labels, jnp.bool_(True)))
    return first_come_labels(labels, slots), refused + again


def bayes_kmeans(component: Component, X: Float[np.ndarray, "n d"], concentration: float, key: Array) -> Int[np.ndarray, " n"]:
    """Partition found by greedy seating, one reassignment of all rows, and merges. Call in float64.

    √n random rows start as singleton clusters. Every other row in turn is assigned to the cluster, possibly a new one, that
    maximises the log joint of the partition so far. Then all rows are reassigned once, and clusters are merged as long as the
    log joint increases.

    Returns
    -------
    labels
        (n,) cluster labels, integers from 0 in order of appearance.

    Notes
    -----
    Xu, Heller & Ghahramani (2009), section 5, with one reassignment of all rows before the merges.
    """
    n = len(X)
    order = np.asarray(jax.random.permutation(key, n))
    seeds = max(int(np.sqrt(n)), 1)
    slots = min(n, 1 << (2 * seeds - 1).bit_length())
    prior = Prior(jnp.asarray(concentration, float), jnp.zeros(()))
    while True:
        labels, refused = _seat(component, jnp.asarray(X), prior, jnp.asarray(order), jnp.asarray(order[:seeds]), slots)
        check_seated(component, np.asarray(labels))
        if slots == n or not int(refused):
            return canonical_labels(np.asarray(labels))
        slots = min(2 * slots, n)


def build_bayes_kmeans_tree(
    component: Component, X: Float[np.ndarray, "n d"], concentration: float, key: Array
) -> Int[np.ndarray, "m 2"]:
    """Build the exact tree over the clusters of `bayes_kmeans`; inside a cluster, rows are halved along the principal axis.

    Takes about O(nk + k²) time for k clusters. Call in float64.

    Returns
    -------
    children
        (n − 1, 2) merges.

    Notes
    -----
    Xu, Heller & Ghahramani (2009), section 5. A cluster of n_i rows has log d_i = log α + lgamma(n_i); the printed d_i = α
    is correct only for at most two rows.
    """
    labels = bayes_kmeans(component, X, concentration, key)
    k = int(labels.max()) + 1
    merges = np.empty((0, 2), int)
    if k > 1:
        merges, *_ = agglomerate(component, cluster_leaves(X, labels), concentration)
    points, tree = filled(X), Assembly(len(X))
    members = [np.flatnonzero(labels == cluster) for cluster in range(k)]
    branches = tree.hang(merges, [-1] * k, None) if k > 1 else [None]
    for rows, branch in zip(members, branches, strict=True):
        tree.halve(points, rows, branch)
    return tree.children(component, X, concentration)
