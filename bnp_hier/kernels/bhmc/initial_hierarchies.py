"""Initial trees of the Markov chains of a hierarchical mixture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic import BHC
from bnp_hier.distributions import NestedChineseRestaurantProcess, TreeMixing
from bnp_hier.inspection.nested import TreeSites, TreeValues
from bnp_hier.kernels.initial_labels import starting_labels
from bnp_hier.models import dpm
from bnp_hier.partitions.seating import Prior
from bnp_hier.partitions.seats import Seating

__all__ = ["TREE_STARTS", "agglomerated_tree", "starting_tree"]

TREE_STARTS = ("overdispersed", "one_path", "prior", "map_dp", "bhc")
"""Names of initialisations; the first one chooses among the others."""

MOST_ROWS, MOST_COLUMNS = 1000, 64
"""Largest data for which "overdispersed" includes "bhc"; for "map_dp", only the number of columns is limited."""


def agglomerated_tree(
    component: Component, X: Float[np.ndarray, "n d"], depth: int, components: int, max_nodes: int
) -> tuple[Int[np.ndarray, "n depth"], Int[np.ndarray, " n"]]:
    """Paths and labels by Bayesian hierarchical clustering, in NumPy and outside any compiled program.

    The leaves are its clusters, or as many as there is room for, each with its own component. The levels above contain the
    clusters that result from undoing the last merges; their numbers grow geometrically with the level.
    """
    if len(X) == 1:
        return np.arange(1, depth + 1)[None], np.zeros(1, dtype=np.int64)
    bhc = BHC(partial(dpm, component=component), refine=None, progress_bar=False).fit(X)
    for clusters in range(min(bhc.n_clusters_, components), 0, -1):
        counts = [int(np.ceil(clusters ** (level / depth) - 1e-9)) for level in range(1, depth + 1)]
        if sum(counts) < max_nodes:
            break
    tree = bhc.dendrogram_.to_hierarchy(counts)
    return tree.paths, tree.labels_at(depth)


def starting_tree(
    start: str,
    sites: TreeSites,
    values: TreeValues,
    key: Array,
    agglomerated: tuple[Int[Array, "n depth"], Int[Array, " n"]] | None,
) -> tuple[Int[Array, "n depth"], Int[Array, " n"]]:
    """Return the initial paths and labels of one chain; works under ``jit`` and ``vmap``.

    Parameters
    ----------
    start
        "one_path": one path and one component for all items. "prior": a draw from the prior. "map_dp": components from a few
        greedy sweeps, each on its own branch. "bhc": the given tree. "overdispersed": one of these, chosen by the key.
    sites, values
        Sites with their sizes, and the model's values at the current hyperparameters.
    key
        Random key of the chain.
    agglomerated
        The result of `agglomerated_tree`, or None.
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
    if agglomerated is not None:
        paths, labels = agglomerated
        draws["bhc"] = lambda key: (paths.astype(int), labels.astype(int))
    if start != "overdispersed":
        return draws[start](key)
    if values.X.shape[1] > MOST_COLUMNS:
        del draws["map_dp"]
    key_choice, key_draw = jax.random.split(key)
    return jax.lax.switch(jax.random.randint(key_choice, (), 0, len(draws)), list(draws.values()), key_draw)
