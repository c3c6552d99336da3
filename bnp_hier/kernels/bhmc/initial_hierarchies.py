"""Initial trees of the Markov chains of a hierarchical mixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic import BHC
from bnp_hier.distributions import NestedChineseRestaurantProcess, TreeMixing
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.nested import TreeSites, TreeValues
from bnp_hier.kernels.initial_labels import starting_labels
from bnp_hier.models import dpm
from bnp_hier.partitions.seats import Seating
from bnp_hier.trees import Dendrogram

__all__ = ["GIVEN_TREES", "MOST_ROWS", "TREE_STARTS", "starting_tree"]

TREE_STARTS = ("overdispersed", "one_path", "prior", "map_dp", "bhc", "ward")
"""Names of initialisations; the first one chooses among the others."""

MOST_COLUMNS, MOST_ROWS = 64, {"bhc": 1000, "ward": 5000}
"""Largest data for which "overdispersed" includes a start; the columns matter to "map_dp" and "bhc"."""

GivenTree = tuple[Int[np.ndarray, "n depth"], Int[np.ndarray, " n"]]
"""Paths and labels."""


def bhc_tree(component: Component, X: Float[np.ndarray, "n d"], depth: int, components: int, max_nodes: int) -> GivenTree:
    """The tree of Bayesian hierarchical clustering with its clusters as leaves; see `cut_tree`."""
    if len(X) == 1:
        return _single(depth)
    bhc = BHC(partial(dpm, component=component), refine=None, progress_bar=False).fit(X)
    return cut_tree(bhc.dendrogram_, min(bhc.n_clusters_, components), depth, max_nodes)


def ward_tree(component: Component, X: Float[np.ndarray, "n d"], depth: int, components: int, max_nodes: int) -> GivenTree:
    """The tree of Ward's method with √n leaves; see `cut_tree`."""
    if len(X) == 1:
        return _single(depth)
    from scipy.cluster.hierarchy import linkage

    dendrogram = Dendrogram.from_linkage(linkage(np.asarray(X, np.float64), "ward"))
    return cut_tree(dendrogram, min(int(np.ceil(np.sqrt(len(X)))), components), depth, max_nodes)


GIVEN_TREES = {"bhc": bhc_tree, "ward": ward_tree}
"""Starts that are computed in NumPy, outside any compiled program."""


def cut_tree(dendrogram: Dendrogram, leaves: int, depth: int, max_nodes: int) -> GivenTree:
    """Cut a binary tree to levels, with as many leaves as given or there is room for, each with its own component.

    The levels above the leaves contain the clusters that result from undoing the last merges; their numbers grow geometrically
    with the level.
    """
    for clusters in range(leaves, 0, -1):
        counts = [int(np.ceil(clusters ** (level / depth) - 1e-9)) for level in range(1, depth + 1)]
        if sum(counts) < max_nodes:
            break
    tree = dendrogram.to_hierarchy(counts)
    return tree.paths, tree.labels_at(depth)


def _single(depth: int) -> GivenTree:
    return np.arange(1, depth + 1)[None], np.zeros(1, dtype=np.int64)


def starting_tree(
    start: str,
    sites: TreeSites,
    values: TreeValues,
    key: Array,
    given: Mapping[str, tuple[Int[Array, "n depth"], Int[Array, " n"]]],
) -> tuple[Int[Array, "n depth"], Int[Array, " n"]]:
    """Return the initial paths and labels of one chain; works under ``jit`` and ``vmap``.

    Parameters
    ----------
    start
        "one_path": one path and one component for all items. "prior": a draw from the prior. "map_dp": components from a few
        greedy sweeps, each on its own branch. Others: given trees. "overdispersed": one of all these, chosen by the key.
    sites, values
        Sites with their sizes, and the model's values at the current hyperparameters.
    key
        Random key of the chain.
    given
        Results of some of `GIVEN_TREES`.
    """
    n, depth, components = sites.size, sites.depth, sites.components - sites.infinite

    def one_path(key: Array) -> tuple[Array, Array]:
        return jnp.tile(jnp.arange(1, depth + 1), (n, 1)), jnp.zeros(n, int)

    def prior(key: Array) -> tuple[Array, Array]:
        key_paths, key_mixing, key_labels = jax.random.split(key, 3)
        paths = NestedChineseRestaurantProcess(values.concentration, n, depth, sites.max_nodes).sample(key_paths)
        concentrations = values.root_concentration, values.mixing_concentration
        mixing = TreeMixing(paths, *concentrations, components, sites.max_nodes).sample(key_mixing)
        return paths.astype(int), jax.random.categorical(key_labels, jnp.log(mixing[paths[:, -1]]))

    def greedy(key: Array) -> tuple[Array, Array]:
        branches = min(n, components, (sites.max_nodes - 1) // depth)
        draws = jax.random.uniform(key, (n + 1,))
        labels = starting_labels("map_dp", Seating(values.component, values.X, Prior(1.0)), draws, branches)
        return labels[:, None] * depth + jnp.arange(1, depth + 1)[None], labels

    draws: dict[str, Callable[[Array], tuple[Array, Array]]] = {"one_path": one_path, "prior": prior, "map_dp": greedy}

    def fixed(key: Array, paths: Array, labels: Array) -> tuple[Array, Array]:
        return paths.astype(int), labels.astype(int)

    draws |= {name: partial(fixed, paths=paths, labels=labels) for name, (paths, labels) in given.items()}
    if start != "overdispersed":
        return draws[start](key)
    if values.X.shape[1] > MOST_COLUMNS:
        del draws["map_dp"]
    key_choice, key_draw = jax.random.split(key)
    return jax.lax.switch(jax.random.randint(key_choice, (), 0, len(draws)), list(draws.values()), key_draw)
