"""Mass of the tree-consistent partitions of a fixed tree, as a differentiable function, and the quantities derived from it."""

from __future__ import annotations

import heapq
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from scipy.special import gammaln as gammaln_in_numpy

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.special import log_gamma_ratio, log_gamma_ratio_in_numpy
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.clusters import joint_and_statistics, marginals_by, packed, row_length, unpacked
from bnp_hier.partitions.engine import has_kernels, kernel_arguments
from bnp_hier.utils.padding import masked, padded_size

__all__ = [
    "TreeEvidence",
    "evidence_of",
    "in_merge_order",
    "merge_odds",
    "node_statistics",
    "node_table",
    "node_weights",
    "padded_tree",
    "single_cluster_mass",
    "single_masses",
    "statistics_of_nodes",
    "tree_bound",
    "tree_masses",
]


@jax.jit
def node_statistics(rows: Statistics, children: Int[Array, "m 2"]) -> Statistics:
    """Statistics of the items under each of the 2n − 1 nodes, with leading dimension 2n − 1."""
    n = children.shape[0] + 1

    def merge(table: Statistics, step: tuple[Array, Array]) -> tuple[Statistics, None]:
        node, (left, right) = step
        put = partial(jax.lax.dynamic_update_index_in_dim, index=node, axis=0)
        return jax.tree.map(lambda leaf: put(leaf, leaf[left] + leaf[right]), table), None

    table = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.zeros((n - 1, *leaf.shape[1:]), leaf.dtype)]), rows)
    return jax.lax.scan(merge, table, (jnp.arange(n, 2 * n - 1), children))[0]


def single_cluster_mass(
    component: Component,
    X: Float[Array, "n d"],
    concentration: ArrayLike,
    children: Int[Array, "m 2"],
    items: ArrayLike | None = None,
) -> Float[Array, " nodes"]:
    """φ1 of each node: log α + lgamma(n_k) + m(D_k), the log mass of the event that all its items form one cluster.

    With `items`, the tree and the rows are padded as by `padded_tree`. The mass of a padding leaf is that of no items, and no
    mass is added where such a leaf joins the root, so that the root's φ stays the same.
    """
    n = children.shape[0] + 1
    there = jnp.arange(n) < (n if items is None else items)
    stats, sizes = node_statistics((masked(component.suff_stats(X), there), there.astype(float)), children)
    single = jnp.log(concentration) + gammaln(sizes) + component.log_marginal(stats)
    return jnp.where(jnp.append(there, there[1:]), single, jnp.append(jnp.zeros(n), jnp.full(n - 1, -jnp.inf)))


def tree_masses(
    single: Float[Array, " nodes"], children: Int[Array, "m 2"]
) -> tuple[Float[Array, " nodes"], Float[Array, " m"]]:
    """Compute φ of each node, the root last, and the log odds of each merge from φ1 of all nodes.

    φ_k = logaddexp(φ1_k, φ_left + φ_right), and the log odds are φ1_k − (φ_left + φ_right).
    """
    n = children.shape[0] + 1

    def merge(mass: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
        node, (left, right) = step
        whole = jnp.logaddexp(single[node], mass[left] + mass[right])
        return jax.lax.dynamic_update_index_in_dim(mass, whole, node, 0), None

    mass = jnp.concatenate([single[:n], jnp.zeros(n - 1, single.dtype)])
    mass, _ = jax.lax.scan(merge, mass, (jnp.arange(n, 2 * n - 1), children))
    # computed outside the loop: reading the masses a second time inside it would copy them at every step
    return mass, single[n:] - mass[children].sum(1)


class TreeEvidence(NamedTuple):
    """Masses of a tree with 2n − 1 nodes, as NumPy arrays.

    - **single** - φ1 of each node: log α + lgamma(n_k) + m(D_k).
    - **log_odds** - (n − 1,) log odds of each merge (nats).
    - **bound** - lower bound on log p(X), as in `tree_bound` (nats).
    """

    single: Float[np.ndarray, " nodes"]
    log_odds: Float[np.ndarray, " m"]
    bound: float


def evidence_of(
    component: Component, X: Float[np.ndarray, "n d"], concentration: float, children: Int[np.ndarray, "m 2"]
) -> TreeEvidence:
    """Compute the masses of a fixed tree; call in float64. Unlike `tree_bound`, it has no derivatives, but runs natively."""
    n = len(X)
    if has_kernels(component):
        from bnp_hier.native.trees import TREE_MASSES

        single, mass = np.empty(2 * n - 1), np.empty(2 * n - 1)
        tree = np.ascontiguousarray(children, dtype=np.int64)
        TREE_MASSES(*kernel_arguments(component, X), tree, np.array(concentration, float), single, mass)
    else:
        table = node_table(component, X, children)
        single = single_masses(component, table, concentration)
        mass = single.copy()
        for t, pair in enumerate(children):
            mass[n + t] = np.logaddexp(single[n + t], mass[pair].sum())
    bound = mass[-1] - log_gamma_ratio_in_numpy(concentration, n)
    return TreeEvidence(single, single[n:] - mass[children].sum(1), float(bound))


def merge_odds(
    component: Component, X: Float[np.ndarray, "n d"], concentration: float, children: Int[np.ndarray, "m 2"]
) -> Float[np.ndarray, " m"]:
    """Log odds of each merge of a fixed tree (nats)."""
    return evidence_of(component, X, concentration, children).log_odds


def node_table(
    component: Component, X: Float[np.ndarray, "n d"], children: Int[np.ndarray, "m 2"]
) -> Float[np.ndarray, "nodes p1"]:
    """Packed statistics and, last, numbers of the items under each of the 2n − 1 nodes."""
    n = len(X)
    rows = packed(joint_and_statistics(component, X, np.arange(n), Prior(1.0))[1])
    table = np.concatenate([np.column_stack([rows, np.ones(n)]), np.zeros((n - 1, rows.shape[1] + 1))])
    for t, (left, right) in enumerate(children):
        table[n + t] = table[left] + table[right]
    return table


def single_masses(
    component: Component, table: Float[np.ndarray, "nodes p1"], concentration: float
) -> Float[np.ndarray, " nodes"]:
    """φ1 of each node of a `node_table`."""
    sizes = table[:, -1]
    return np.log(concentration) + gammaln_in_numpy(sizes) + marginals_by(component)(table[:, :-1], sizes)


def statistics_of_nodes(
    component: Component, X: Float[np.ndarray, "n d"], children: Int[np.ndarray, "m 2"], nodes: Int[np.ndarray, " k"]
) -> Statistics:
    """Statistics of the items under some of the nodes, as NumPy arrays with leading dimension k."""
    if has_kernels(component):
        from bnp_hier.native.trees import NODE_STATISTICS

        found = np.empty((len(nodes), row_length(component)))
        tree = np.ascontiguousarray(children, dtype=np.int64)
        NODE_STATISTICS(*kernel_arguments(component, X), tree, np.ascontiguousarray(nodes, dtype=np.int64), found)
        return unpacked(component, found)
    return unpacked(component, node_table(component, X, children)[nodes, :-1])


@jax.jit
def tree_bound(
    component: Component,
    X: Float[Array, "n d"],
    concentration: Float[Array, ""],
    children: Int[Array, "m 2"],
    items: ArrayLike | None = None,
) -> Float[Array, ""]:
    """Lower bound on log p(X) from the partitions that are consistent with the tree (nats).

    φ_root + lgamma(α) − lgamma(n + α), Heller & Ghahramani (2005), Corollary 1; differentiable in all hyperparameters.
    `items` is the number of items n if the tree and the rows are padded.
    """
    alpha = jnp.asarray(concentration)
    n = jnp.asarray(children.shape[0] + 1 if items is None else items, alpha.dtype)
    mass, _ = tree_masses(single_cluster_mass(component, X, alpha, children, items), children)
    return mass[-1] - log_gamma_ratio(alpha, n)


def padded_tree(children: Int[np.ndarray, "m 2"]) -> tuple[Int[np.ndarray, "p 2"], Int[np.ndarray, ""]]:
    """Return a tree with as many leaves as `padding.padded` makes of the items, and the number of items.

    The padding leaves join the root one by one.
    """
    n = len(children) + 1
    size = padded_size(n)
    renumbered = np.where(children < n, children, children + size - n)
    joins = np.column_stack([np.arange(n, size), np.arange(n, size) + size - 2])
    return np.concatenate([renumbered, joins]), np.array(n)


def node_weights(log_odds: Float[np.ndarray, " m"], children: Int[np.ndarray, "m 2"]) -> Float[np.ndarray, " nodes"]:
    """Posterior probability, over tree-consistent partitions, that D_k is a cluster: ω_k = r_k Π_{ancestors} (1 − r).

    This is the gradient of φ_root with respect to φ1. Σ ω_k n_k = n, and Σ ω_k is the expected number of clusters.
    """
    n = len(children) + 1
    log_r = np.concatenate([np.zeros(n), -np.logaddexp(0.0, -log_odds)])
    log_rest = -np.logaddexp(0.0, log_odds)
    above = np.zeros(2 * n - 1)  # log probability that no ancestor is a cluster
    for t in range(n - 2, -1, -1):
        above[children[t]] = above[n + t] + log_rest[t]
    return np.exp(above + log_r)


def in_merge_order(pairs: Int[np.ndarray, "m 2"], log_odds: Float[np.ndarray, " m"]) -> Int[np.ndarray, "m 2"]:
    """Renumber the internal nodes of a tree in order of merging: the next merge is the possible one with the largest odds.

    Parameters
    ----------
    pairs
        (n − 1, 2) children of the internal nodes n, n + 1, ..., 2n − 2, in any order.
    log_odds
        (n − 1,) log odds of each of these nodes.

    Returns
    -------
    children
        (n − 1, 2) merges as in `Dendrogram`: every node comes after its children, and each pair has the smaller number first.
    """
    m = len(pairs)
    n = m + 1
    parent = np.full(2 * n - 1, -1)
    parent[pairs] = np.arange(n, 2 * n - 1)[:, None]
    waiting = (pairs >= n).sum(1)
    ready = [(-log_odds[t], t) for t in np.flatnonzero(waiting == 0)]
    heapq.heapify(ready)
    number, children = np.arange(2 * n - 1), []
    while ready:
        _, t = heapq.heappop(ready)
        children.append(number[pairs[t]])
        number[n + t] = n + len(children) - 1
        above = parent[n + t] - n
        if above >= 0:
            waiting[above] -= 1
            if waiting[above] == 0:
                heapq.heappush(ready, (-log_odds[above], above))
    return np.sort(np.array(children), axis=1)
