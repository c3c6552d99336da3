"""One pass from the leaves of a tree to its root that seats the items at tables and moves nodes and tables on the way.

The tables form a Chinese restaurant franchise: at every node, customers with the same component sit at tables, and every table
is a customer of the parent. All proportions below the level that the pass has reached are integrated out. The customers of the
root are draws from the root's proportions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.kernels.bhmc.component_moves import relabel_tables
from bnp_hier.kernels.bhmc.node_moves import Climb, prune_regraft, split_merge_siblings
from bnp_hier.kernels.bhmc.paths import Concentrations, Mixture, log_likelihood_of
from bnp_hier.kernels.bhmc.table_counts import open_tables

__all__ = ["Moves", "Seating", "climb_to_root"]


class Moves(NamedTuple):
    """Number of times that each move is attempted in one pass; every move leaves the posterior invariant.

    - **relabel** - whether every table redraws its component.
    - **sibling_split_merge** - splits and merges of sibling nodes per level.
    - **prune_regraft** - moves of a node to another parent per level.
    """

    relabel: bool = False
    sibling_split_merge: int = 0
    prune_regraft: int = 0


class Seating(NamedTuple):
    """A tree, its items' components, and the customers and tables of every node.

    - **paths**, **labels** - (n, depth) and (n,), after the moves.
    - **customers** - numbers of customers with each component at each node, (M, K): items at leaves, tables of the children
      elsewhere; the components of those at the root are draws from β_0.
    - **tables** - number of tables at each node, (M,); zero at the root, where none are needed, and at unused numbers.
    - **accepted** - numbers of accepted sibling moves and of grafts that changed the tree, (2,).
    - **refused** - number of node splits that the capacity prevented.
    """

    paths: Int[Array, "n depth"]
    labels: Int[Array, " n"]
    customers: Float[Array, "m k"]
    tables: Float[Array, " m"]
    accepted: Int[Array, " two"]
    refused: Int[Array, ""]


def climb_to_root(
    component: Component,
    rows: Statistics,
    X: Num[Array | np.ndarray, "n d"],
    state: Mixture,
    concentrations: Concentrations,
    moves: Moves,
    key: Array,
) -> Seating:
    """Draw the tables of every node, and attempt the moves.

    Levels are visited from the leaves to the root, with the same number of moves in the same order on each, whatever the tree.

    The tables of a node are drawn given its parent's proportions: the i-th customer with component k, i = 0, 1, ..., opens a
    table with probability a/(a + i), where a = γβ_parent,k. On each level, nodes are moved before the tables are drawn, and
    tables are relabelled afterwards.

    Parameters
    ----------
    component, rows, X
        The component, the items' sufficient statistics, and the items.
    state
        The mixture.
    concentrations
        Concentrations of its priors.
    moves
        The moves to attempt.
    key
        Random key.
    """
    paths, labels, mixing, parameters = state
    n, depth = paths.shape
    nodes, components = mixing.shape
    items = jnp.arange(n)
    wide = jnp.column_stack([jnp.zeros(n, paths.dtype), paths, items.astype(paths.dtype)])
    key_empty, key_levels = jax.random.split(key)
    log_likelihood = jnp.zeros((n, components), mixing.dtype)
    if moves.relabel:
        # parameters of empty components are redrawn from the prior, because the sweep has left other values
        fresh = component.sample_parameters(key_empty, component.empty((components,)))
        occupied = cluster_counts(labels, components) > 0
        parameters = jnp.where(occupied.reshape(-1, *[1] * (parameters.ndim - 1)), parameters, fresh)
        log_likelihood = log_likelihood_of(component, rows, X, parameters)

    def visit(carry: tuple[Climb, Array, Array], at: tuple[Array, Array]) -> tuple[tuple[Climb, Array, Array], Array]:
        climb, accepted, refused = carry
        level, key = at
        key_siblings, key_graft, key_seats, key_relabel = jax.random.split(key, 4)
        hyper = concentrations.tree, concentrations.mixing
        if moves.sibling_split_merge:
            climb, took, full = split_merge_siblings(climb, level, *hyper, moves.sibling_split_merge, key_siblings)
            accepted, refused = accepted.at[0].add(took), refused + full
        if moves.prune_regraft and depth > 1:
            climb, took = prune_regraft(climb, level, *hyper, moves.prune_regraft, key_graft)
            accepted = accepted.at[1].add(took)
        heads = climb.group == items
        node, above = jnp.take(climb.paths, level, axis=1), jnp.take(climb.paths, level - 1, axis=1)
        shares = climb.mixing[above]
        own = jnp.take_along_axis(shares, climb.labels[:, None], axis=1)[:, 0]
        cells = jnp.where(heads, node * components + climb.labels, nodes * components)
        climb = climb._replace(group=open_tables(cells, concentrations.mixing * own, key_seats)[climb.group])
        if moves.relabel:
            climb = climb._replace(labels=relabel_tables(log_likelihood, climb.group, climb.labels, shares, key_relabel))
        return (climb, accepted, refused), heads

    zero = jnp.zeros((), int)
    start = Climb(wide, labels, items, mixing), jnp.zeros(2, int), zero
    levels = jnp.arange(depth, 0, -1)
    (climb, accepted, refused), heads = jax.lax.scan(visit, start, (levels, jax.random.split(key_levels, depth)))
    labels = climb.labels
    seats = jnp.concatenate([heads, (climb.group == items)[None]]).astype(mixing.dtype)  # levels depth, ..., 0
    columns = climb.paths[:, depth::-1].T
    customers = jnp.zeros((nodes, components), mixing.dtype).at[columns, labels].add(seats)
    tables = jnp.zeros(nodes, mixing.dtype).at[columns[:-1]].add(seats[1:])
    return Seating(climb.paths[:, 1:-1], labels, customers, tables, accepted, refused)
