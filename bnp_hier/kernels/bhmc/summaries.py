"""Summaries of a tree and its components that do not depend on the numbering of nodes or components."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array

from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.nested_chinese_restaurant import log_tree_prior, read_tree
from bnp_hier.inspection.nested import TreeSites, TreeValues
from bnp_hier.partitions.sizes import size_summaries

__all__ = ["tree_summaries"]


def tree_summaries(sites: TreeSites, values: TreeValues, z: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the fields of `BHMCGibbsState` that are functions of the values of the sites."""
    paths, labels = z[sites.paths], z[sites.labels]
    tree = read_tree(paths, sites.max_nodes)
    prior = log_tree_prior(tree, values.concentration, sites.depth)
    weight = jnp.log(z[sites.mixing][paths[:, -1], labels]).sum()
    rows = values.component.likelihood(z[sites.parameters][labels]).log_prob(values.X).sum()
    levels = (tree.level[:, None] == jnp.arange(1, sites.depth + 1)[None]).sum(0)
    components, _, entropy = size_summaries(cluster_counts(labels, sites.components))
    n = tree.counts.astype(rows.dtype)
    below = tree.level > 0
    pairs = max(sites.size * (sites.size - 1) / 2, 1.0)
    meeting = jnp.where(below, n * (n - 1.0) / 2.0, 0.0).sum() / pairs
    top = jnp.where(tree.level == 1, n, 0.0).max() / sites.size
    return {
        "log_joint": prior + weight + rows,
        "log_likelihood": rows,
        "log_tree_prior": prior,
        "n_nodes": levels.sum() + 1,
        "n_leaves": levels[-1],
        "nodes_per_level": levels,
        "n_components": components,
        "entropy": entropy,
        "largest_branch": top,
        "lca_depth": meeting,
    }
