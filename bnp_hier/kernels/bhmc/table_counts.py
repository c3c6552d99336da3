"""Exact draws of proportions on a tree given the items' paths and labels, by table counts of a Chinese restaurant franchise.

At every node, customers with the same component sit at tables; every table is a customer of the parent, and the customers of
the root are draws from β_0. Given the tables, the proportions of each node are a Dirichlet draw given those of its parent and
its customers, and the concentrations have the conditionals of Escobar & West (1995).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.distributions.nested_chinese_restaurant import Tree
from bnp_hier.distributions.tree_mixing import log_dirichlet_draw, proportions
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.native.availability import ffi_available
from bnp_hier.partitions.engine import key_words

__all__ = ["draw_mixing", "open_tables", "papers_customers", "tables_of_counts"]

NODES_AT_ONCE = 16
"""Number of nodes whose proportions are drawn together: the cost depends on the nodes in use, not on the capacity."""


def open_tables(cells: Int[Array, " n"], opening: Float[Array, " n"], key: Array) -> Int[Array, " n"]:
    """Seat the customers of every cell at tables; return, for each customer, the number of the one who opened the table.

    The i-th customer of a cell, i = 0, 1, ..., opens a table with probability a/(a + i), where a is its `opening`. Otherwise it
    joins the table of one of the i customers before it, drawn uniformly.
    """
    n = cells.shape[0]
    order = jnp.argsort(cells)
    ordered, at = cells[order], jnp.arange(n)
    first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    begin = jax.lax.cummax(jnp.where(first, at, 0))
    rank = (at - begin).astype(opening.dtype)
    a, (opens, friend) = opening[order], jax.random.uniform(key, (2, n), opening.dtype)
    # the first customer always opens a table, even where the parent's proportion underflows to zero
    leads = (rank == 0) | (opens * (a + rank) < a)
    leader = jnp.where(leads, at, begin + jnp.minimum(friend * rank, jnp.maximum(rank - 1, 0)).astype(int))
    for _ in range(max(1, (n - 1).bit_length())):  # friends of friends: the distance doubles each time
        leader = leader[leader]
    return jnp.zeros_like(leader).at[order].set(order[leader])


def papers_customers(
    paths: Int[Array, "n depth"], labels: Int[Array, " n"], nodes: int, components: int
) -> Float[Array, "m k"]:
    """Numbers of items of each component below each node, all treated as draws from the node's proportions.

    These are the counts in Huang et al. (2021), Eqs. 3-4. Draws given them do not leave the posterior invariant: above the
    leaves, only tables are draws from a node's proportions.
    """
    counts = jnp.zeros((nodes, components)).at[0, labels].add(1.0)
    return counts.at[paths, labels[:, None]].add(1.0)


def draw_mixing(
    customers: Float[Array, "m k"],
    tree: Tree,
    root: RootPrior,
    concentration: Float[Array, "*m"],
    key: Array,
) -> Float[Array, "m k"]:
    """Draw proportions from Dir(shares + customers) at the root and Dir(γβ_parent + customers) below; zeros at unused numbers.

    γ is one number, or one per node. All nodes are drawn anew, each given its parent: a joint draw, whatever the order. Every
    node has a key of its own, so that draws do not depend on the numbers of nodes and components for which there is room.
    """
    nodes, components = customers.shape
    if ffi_available():
        return _native_draw(customers, tree, root, concentration, key)
    unused = tree.level < 0
    order = jnp.argsort(jnp.where(unused, nodes, tree.level), stable=True)
    # padded, so that a block can extend beyond the end
    order = jnp.concatenate([order, jnp.full(NODES_AT_ONCE, nodes)])
    level = jnp.append(jnp.where(unused, -1, tree.level), -1)
    parent = jnp.append(jnp.maximum(tree.parent, 0), 0)
    counts = jnp.concatenate([customers, jnp.zeros((1, components), customers.dtype)])
    in_use = nodes - unused.sum()
    gamma = jnp.append(jnp.broadcast_to(concentration, (nodes,)), 1.0)
    keys = jax.random.split(key, len(order))

    def draw_block(state: tuple[Array, Array]) -> tuple[Array, Array]:
        mixing, at = state
        block = jax.lax.dynamic_slice(order, (at,), (NODES_AT_ONCE,))
        # only nodes of one level, whose parents have been drawn
        now = (level[block] == level[block[0]]) & (level[block] >= 0)
        base = jnp.where((block == 0)[:, None], root.shares[None], gamma[block][:, None] * mixing[parent[block]])
        base = jnp.where(now[:, None], base + counts[block], 1.0)
        drawn = proportions(jax.vmap(log_dirichlet_draw)(keys[at + jnp.arange(NODES_AT_ONCE)], base))
        mixing = mixing.at[jnp.where(now, block, nodes)].set(drawn)
        return mixing, at + now.sum()

    # an additional row receives the draws to be discarded
    start = jnp.zeros((nodes + 1, components), customers.dtype), jnp.zeros((), order.dtype)
    return jax.lax.while_loop(lambda state: state[1] < in_use, draw_block, start)[0][:nodes]


def _native_draw(
    customers: Float[Array, "m k"], tree: Tree, root: RootPrior, concentration: Float[Array, "*m"], key: Array
) -> Float[Array, "m k"]:
    from bnp_hier.native.tree_mixing import DRAW_MIXING

    gamma = jnp.broadcast_to(concentration, tree.level.shape).astype(customers.dtype)
    smallest = np.array(jnp.finfo(customers.dtype).tiny, customers.dtype)
    shares = root.shares.astype(customers.dtype)
    result = jax.ShapeDtypeStruct(customers.shape, customers.dtype)
    arguments = tree.level, tree.parent, customers, shares, gamma, smallest
    return DRAW_MIXING.ffi_call([result], key_words(key), *arguments)[0]


def tables_of_counts(
    counts: Float[Array, "... k"], concentrations: Float[Array, "... k"], largest: int, key: Array
) -> Float[Array, "... k"]:
    """Draw the numbers of tables in Chinese restaurants with given numbers of customers: Σ_{i<n} Bernoulli(a/(a + i)).

    Parameters
    ----------
    counts
        Number of customers n of each restaurant, at most `largest`.
    concentrations
        Concentration a > 0 of each restaurant.
    """
    a = concentrations[..., None]
    i = jnp.arange(largest).astype(a.dtype).reshape(*[1] * concentrations.ndim, largest)
    opens = jax.random.uniform(key, (*counts.shape, largest)) * (a + i) < a
    return jnp.where(i < counts[..., None], opens, False).at[..., 0].set(counts > 0).sum(-1).astype(counts.dtype)
