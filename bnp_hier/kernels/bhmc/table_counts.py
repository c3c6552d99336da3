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
from bnp_hier.partitions.engine import call_kernel, has_calls, key_words

__all__ = ["draw_mixing", "open_tables", "papers_customers", "tables_of_counts"]


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
    gamma = jnp.broadcast_to(concentration, (nodes,)).astype(customers.dtype)
    if has_calls():
        smallest = np.array(jnp.finfo(customers.dtype).tiny, customers.dtype)
        arguments = tree.level, tree.parent, customers, root.shares.astype(customers.dtype), gamma, smallest
        return call_kernel("tree_mixing.DRAW_MIXING", [(customers.shape, customers.dtype)], key_words(key), *arguments)[0]
    unused, parent = tree.level < 0, jnp.maximum(tree.parent, 0)
    # keys by the order of the nodes in use
    turn = jnp.argsort(jnp.argsort(jnp.where(unused, nodes, tree.level), stable=True))
    keys = jax.random.split(key, nodes)[turn]

    def draw_level(at: Array, mixing: Array) -> Array:
        base = jnp.where((tree.level == 0)[:, None], root.shares[None], gamma[:, None] * mixing[parent])
        now = (tree.level == at)[:, None]
        drawn = proportions(jax.vmap(log_dirichlet_draw)(keys, jnp.where(now, base + customers, 1.0)))
        return jnp.where(now, drawn, mixing)

    return jax.lax.fori_loop(0, tree.level.max() + 1, draw_level, jnp.zeros((nodes, components), customers.dtype))


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
