"""Moves of tables and of items between components."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.nested_chinese_restaurant import Tree
from bnp_hier.distributions.seating import draw_index
from bnp_hier.kernels.bhmc.paths import Concentrations, Mixture
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.kernels.bhmc.table_counts import draw_mixing
from bnp_hier.partitions.engine import call_kernel, has_calls, kernel_arguments, key_words
from bnp_hier.utils.arrays import in_floats, take

__all__ = ["ANEW", "TRIES", "relabel_tables", "split_merge_components"]

TRIES = 16
"""Number of items of which the one most like another is taken, in half of the attempts to split or merge."""

ANEW = 0.5
"""Probability that two components are divided anew, and not merged."""


def relabel_tables(
    log_likelihood: Float[Array, "n k"],
    group: Int[Array, " n"],
    labels: Int[Array, " n"],
    shares: Float[Array, "n k"],
    key: Array,
) -> Int[Array, " n"]:
    """Draw the component of every table from its conditional given the items at it.

    Parameters
    ----------
    log_likelihood
        Log density of each item under each component (nats).
    group
        For every item, the item that represents its table.
    labels
        Components of the items.
    shares
        For every item that represents a table, the proportions at the parent of the table's node.
    """
    n, components = log_likelihood.shape
    logs = jax.ops.segment_sum(log_likelihood, group, n) + jnp.log(shares)
    weights = jnp.exp(logs - logs.max(1, keepdims=True))
    upto = jnp.cumsum(weights, axis=1)
    target = jax.random.uniform(key, (n, 1), weights.dtype) * upto[:, -1:]
    drawn = jnp.minimum((upto <= target).sum(1), components - 1).astype(labels.dtype)
    # where every density underflows, the table keeps its component
    return jnp.where(jnp.isfinite(logs.max(1)), drawn, labels)[group]


class Allocation(NamedTuple):
    """Allocation of the items of two components to two sides, with the customers of each side at every node.

    - **sides** - (n,) 0 or 1, meaningless for other items.
    - **customers** - (M, 2) numbers of customers of each side at each node: items at leaves, tables of the children elsewhere.
    - **log_joint** - log density of the sides, the rows and the tables, minus the log probability of drawing these tables
      (nats).
    - **log_probability** - log probability of drawing these sides one by one, except for the first item of each (nats).
    """

    sides: Int[Array, " n"]
    customers: Float[Array, "m 2"]
    log_joint: Float[Array, ""]
    log_probability: Float[Array, ""]


class Items(NamedTuple):
    """Items on the paths of a tree.

    - **log_marginal** - log marginal likelihood of a cluster from its statistics (nats).
    - **rows** - statistics of each item.
    - **empty** - statistics of two empty clusters.
    - **along** - (n, levels) nodes from the root to the leaf of each item.
    """

    log_marginal: Callable[[Statistics], Float[Array, "..."]]
    rows: Statistics
    empty: Statistics
    along: Int[Array, "n levels"]


class Tables(NamedTuple):
    """How the two sides share the nodes of a tree.

    - **log_root** - log P_root of the two sides as a function of their customers there. P_root is a probability or, with
      infinitely many components and a side without customers, the weight of opening it.
    - **log_opening** - (M,) log c_z.
    - **log_shares** - (M, 2) log of c_z times the present shares of the sides at the parent.
    """

    log_root: Callable[[Float[Array, " 2"]], Float[Array, " 2"]]
    log_opening: Float[Array, " m"]
    log_shares: Float[Array, "m 2"]


def allocate(
    items: Items,
    tables: Tables,
    order: Int[Array, " n"],
    number: Int[Array, ""],
    given: Int[Array, " n"],
    seated: Bool[Array, ""],
    key: Array,
) -> Allocation:
    """Put items on two sides one by one, in a given order, and seat them from their leaves upwards.

    For an item, a side has the weight P_leaf, where P_z = (N_z + c_z P_parent) / (N_z. + c_z) at a node with N_z customers of
    this side and N_z. of both sides, and c_z is γ times the total share of the two components at its parent. The item then
    opens a table on its side of z with probability c_z P_parent / (N_z + c_z P_parent), and only then becomes a customer of the
    parent. The joint density of sides and tables is the product of all weights and of all table probabilities.

    Parameters
    ----------
    items, tables
        The items, and how the sides share the nodes.
    order, number
        Items in the order of their allocation, and the number of items to allocate.
    given
        Sides, −1 for those to be drawn from their conditional.
    seated
        Whether to replay the present allocation, with tables drawn given the present proportions: `log_shares` replaces
        c_z P_parent.
    key
        Random key.
    """
    log_marginal, rows, empty, along = items
    log_root, log_opening, log_shares = tables
    n, levels = along.shape
    draws = jax.random.uniform(key, (n, levels), log_opening.dtype)

    def visit(t: Array, state: Any) -> Any:
        sides, customers, totals, scores, log_prior, log_probability = state
        item = order[t]
        path = along[item]
        here, log_c = customers[path], log_opening[path]
        logs = [log_root(here[0])]
        for level in range(1, levels):
            upper = jnp.logaddexp(jnp.log(here[level]), log_c[level] + logs[-1])
            logs.append(upper - jnp.logaddexp(jnp.log(here[level].sum()), log_c[level]))
        joined = jax.tree.map(lambda total, leaf: total + leaf[item][None], totals, rows)
        with_item = log_marginal(joined)
        log_conditional = jax.nn.log_softmax(logs[-1] + with_item - scores)
        drawn = (jnp.log1p(-draws[item, 0]) < log_conditional[1]).astype(sides.dtype)
        side = jnp.where(given[item] < 0, drawn, given[item])
        chosen = jnp.arange(2) == side
        totals = jax.tree.map(lambda new, old: jnp.where(chosen.reshape(2, *[1] * (old.ndim - 1)), new, old), joined, totals)
        # whether the item opens a table on every level below the root
        opening = jnp.where(seated, log_shares[path[1:], side], log_c[1:] + jnp.stack(logs[:-1])[:, side])
        at_tables = here[1:, side]
        opens = (at_tables == 0) | (jnp.log1p(-draws[item, 1:]) < opening - jnp.logaddexp(jnp.log(at_tables), opening))
        comes = jnp.append(jnp.cumprod(opens[::-1])[::-1], 1).astype(customers.dtype)
        return (
            sides.at[item].set(side),
            customers.at[path, side].add(comes),
            totals,
            jnp.where(chosen, with_item, scores),
            log_prior + logs[-1][side],
            log_probability + jnp.where(t < 2, 0.0, log_conditional[side]),
        )

    zero = jnp.zeros((), log_opening.dtype)
    customers = jnp.zeros((log_opening.shape[0], 2), log_opening.dtype)
    start = jnp.zeros(n, order.dtype), customers, empty, log_marginal(empty), zero, zero
    sides, customers, _, scores, log_prior, log_probability = jax.lax.fori_loop(0, number, visit, start)
    # marginals at the end instead of a sum of predictives, for accuracy in single precision
    return Allocation(sides, customers, log_prior + scores.sum(), log_probability)


def split_merge_components(
    component: Component,
    X: Num[Array | np.ndarray, "n d"],
    state: Mixture,
    tree: Tree,
    concentrations: Concentrations,
    count: int,
    key: Array,
) -> tuple[Int[Array, " n"], Float[Array, "m k"], Int[Array, ""], Int[Array, ""]]:
    """Attempt to split a component in two, to merge two, or to divide two anew, item by item, a given number of times.

    Two items are drawn. If they belong to the same component, it is split into itself and an empty one (of an infinite root,
    whose numbers mean nothing, the first; otherwise a random one), and the other items are allocated one by one. Otherwise, the
    two components are merged or, with probability `ANEW`, their items are allocated anew, which avoids a state with one
    component less in between. The total share of the two components at every node (with infinitely many components, including
    those without items) stays fixed, and its division is integrated out through tables, which are drawn anew for either state.
    Whole tables would not work as units: a table with items of both halves would rule out their split.

    The first item is drawn from all items. The second is, with probability 1/2, any other item; otherwise, it is that of
    `TRIES` other items with the highest density given the first, relative to its density alone: similar items more often reveal
    a good split or merge. As neither depends on the labels, a pair is as likely after the move as before. The number of
    attempts is fixed, and the random order is that of the items of both components, which are the same before and after. An
    attempt that finds no empty component changes nothing, and no accepted attempt with the same two items leads to or from such
    a state.

    Parameters
    ----------
    component, X
        The component, and the items.
    state, tree
        The mixture, whose parameters are integrated out, and the tree of its paths.
    concentrations
        Concentrations of its priors.
    count
        Number of attempts.
    key
        Random key.

    Returns
    -------
    labels, mixing, accepted, refused
        New components and proportions, the number of attempts that changed components, and the number of splits that found
        no empty component.
    """
    if has_calls(component):
        return _native_moves(component, X, state, concentrations, count, key)
    paths, labels, mixing, _ = state
    root, concentration, n = concentrations.root, concentrations.mixing, labels.shape[0]
    along = jnp.column_stack([jnp.zeros(n, paths.dtype), paths])
    parent = jnp.maximum(tree.parent, 0)
    log_marginal = component.log_marginal_up_to(n)  # terms common to all clusters are computed once
    items = Items(log_marginal, component.suff_stats(X), component.empty((2,)), along)
    last = jnp.full(int(root.infinite), root.components - 1)  # the share of all other components
    pair_root = RootPrior(root.concentration if root.infinite else 2 * root.share, 2 + int(root.infinite), root.infinite)

    def attempt(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        labels, mixing, accepted, refused, key = state
        key, key_anchors, key_order, key_allocate, key_mixing = jax.random.split(key, 5)
        u = jax.random.uniform(key_anchors, (6 + TRIES,), mixing.dtype)
        draws = jnp.concatenate([u[jnp.array([0, 4, 1])], u[5:-1]])
        anchors = _draw_anchors(log_marginal, items.rows, draws)
        slot = labels[anchors]
        splits = slot[0] == slot[1]
        anew = ~splits & (u[-1] < ANEW)
        divides = splits | anew
        empty = (cluster_counts(labels, root.components) == 0) & root.usable
        choices = empty.sum() + (~splits).astype(int)  # empty components in the merged state
        new = draw_index(empty.astype(mixing.dtype), jnp.zeros_like(u[3]) if root.infinite else u[3])
        pair = jnp.stack([slot[0], jnp.where(splits, new, slot[1])])
        columns = jnp.concatenate([pair, last])
        shares = mixing[:, columns]
        mass = shares.sum(1)
        opening = concentration * mass[parent]

        member = (labels == pair[0]) | (labels == pair[1])
        present = (labels == pair[1]).astype(labels.dtype)
        proposed = jnp.full_like(present, jnp.where(divides, -1, 0))
        proposed = proposed.at[anchors].set(jnp.where(divides, jnp.arange(2), 0).astype(present.dtype))
        rank = jax.random.uniform(key_order, (n,)) + jnp.where(member, 0.0, 2.0)
        order = jnp.argsort(rank.at[anchors].set(jnp.array([-2.0, -1.0])))
        tables = Tables(partial(_log_root, root), _log_of(opening), _log_of(concentration * shares[parent, :2]))
        both = jax.vmap(lambda given, seated, key: allocate(items, tables, order, member.sum(), given, seated, key))(
            jnp.stack([present, proposed]), jnp.array([True, False]), jax.random.split(key_allocate)
        )
        # of the moves from the merged state and to it
        log_choices = jnp.log1p(-ANEW) + (jnp.zeros(()) if root.infinite else jnp.log(choices))
        log_ratio = both.log_joint[1] - both.log_joint[0]
        log_ratio += jnp.where(anew, 0.0, jnp.where(splits, log_choices, -log_choices))
        log_ratio += jnp.where(splits, 0.0, both.log_probability[0]) - jnp.where(divides, both.log_probability[1], 0.0)
        possible = (n > 1) & (~splits | (choices > 0))
        accept = possible & (jnp.log1p(-u[2]) < log_ratio)
        sides, customers = (jnp.where(accept, value[1], value[0]) for value in (both.sides, both.customers))
        before, labels = labels, jnp.where(possible & member, pair[sides], labels).astype(labels.dtype)
        customers = jnp.pad(customers, ((0, 0), (0, int(root.infinite))))
        shared = mass[:, None] * draw_mixing(customers, tree, pair_root, opening, key_mixing)
        shared = jnp.where(shared < jnp.finfo(shared.dtype).tiny, 0.0, shared)  # as in `TreeMixing`
        mixing = jnp.where(possible, mixing.at[:, columns].set(shared), mixing)
        return (
            labels,
            mixing,
            accepted + (labels != before).any().astype(accepted.dtype),
            refused + (splits & (choices == 0)).astype(refused.dtype),
            key,
        )

    start = labels, mixing, jnp.zeros((), int), jnp.zeros((), int), key
    labels, mixing, accepted, refused, _ = jax.lax.fori_loop(0, count, attempt, start)
    return labels, mixing, accepted, refused


def _log_root(root: RootPrior, customers: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Log P_root of two sides with these customers; see `Tables`."""
    if root.infinite:
        return jnp.log(jnp.where(customers > 0, customers, root.concentration) / (customers.sum() + root.concentration))
    return jnp.log((root.share + customers) / (2 * root.share + customers.sum()))


def _log_of(values: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """Logarithm of positive numbers, also of those that underflow."""
    return jnp.log(jnp.maximum(values, jnp.finfo(values.dtype).tiny))


def _native_moves(
    component: Component,
    X: Num[Array | np.ndarray, "n d"],
    state: Mixture,
    concentrations: Concentrations,
    count: int,
    key: Array,
) -> tuple[Int[Array, " n"], Float[Array, "m k"], Int[Array, ""], Int[Array, ""]]:
    results = [(state.labels.shape, state.labels.dtype), (state.mixing.shape, state.mixing.dtype), ((), int), ((), int)]
    root, tiny = concentrations.root, jnp.finfo(state.mixing.dtype).tiny
    labels, mixing, accepted, refused = call_kernel(
        "component_moves.DIVIDE_COMPONENTS",
        results,
        *kernel_arguments(component, X),
        key_words(key),
        in_floats(root.concentration, concentrations.mixing, tiny),
        np.array([count, root.components, root.infinite]),
        *state[:3],
    )
    return labels, mixing, accepted, refused


def _draw_anchors(
    log_marginal: Callable[[Statistics], Float[Array, "..."]], rows: Statistics, u: Float[Array, " tries"]
) -> Int[Array, " 2"]:
    """Draw an item and another: any, or the most like the first of `TRIES`; `u` are 3 + `TRIES` uniform draws."""
    n = len(jax.tree.leaves(rows)[0])
    first = jnp.minimum((u[0] * n).astype(int), n - 1)
    others = (first + 1 + jnp.minimum((u[2:] * (n - 1)).astype(int), n - 2)) % n
    alone = take(rows, others[1:])
    together = jax.tree.map(lambda leaf, other: leaf[first][None] + other, rows, alone)
    similar = others[1 + (log_marginal(together) - log_marginal(alone)).argmax()]
    return jnp.stack([first, jnp.where(u[1] < 0.5, similar, others[0])])
