"""Moves of whole nodes of a tree, with the proportions at their level and below integrated out."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.distributions.seating import draw_index
from bnp_hier.distributions.tree_mixing import log_dirichlet_draw, proportions
from bnp_hier.kernels.bhmc.sequential_allocation import divide

__all__ = ["Climb", "log_polya", "log_polya_of_few", "prune_regraft", "split_merge_siblings"]


class Climb(NamedTuple):
    """State of a pass from the leaves of a tree to its root.

    - **paths** - (n, depth + 2) numbers of the nodes from the root, 0, to the leaf, followed by the item's own number.
    - **labels** - (n,) components of the items.
    - **group** - (n,) for every item, the item that represents it among the customers of its node on the present level.
    - **mixing** - (M, K) proportions; only those of nodes above the present level are used.
    """

    paths: Int[Array, "n columns"]
    labels: Int[Array, " n"]
    group: Int[Array, " n"]
    mixing: Float[Array, "m k"]


def log_polya(customers: Float[Array, "... k"], shares: Float[Array, "... k"]) -> Float[Array, "..."]:
    """Log probability of a sequence of component draws from proportions with the prior Dir(shares) (nats)."""
    # a share that underflows to zero is in fact positive
    shares = jnp.maximum(shares, jnp.finfo(shares.dtype).tiny)
    terms = jnp.where(customers > 0, gammaln(shares + customers) - gammaln(shares), 0.0)
    total = shares.sum(-1)
    return terms.sum(-1) - gammaln(total + customers.sum(-1)) + gammaln(total)


def log_polya_of_few(customers: Float[Array, " k"], shares: Float[Array, "m k"]) -> Float[Array, " m"]:
    """Compute `log_polya` for every row of `shares`, where few components have customers: these are visited one by one."""
    shares = jnp.maximum(shares, jnp.finfo(shares.dtype).tiny)
    held, total = jnp.argsort(customers <= 0, stable=True), shares.sum(-1)

    def add(at: Array, terms: Array) -> Array:
        share = jnp.take(shares, held[at], axis=1)
        return terms + gammaln(share + customers[held[at]]) - gammaln(share)

    start = gammaln(total) - gammaln(total + customers.sum())
    return jax.lax.fori_loop(0, (customers > 0).sum(), add, start)


def split_merge_siblings(
    climb: Climb,
    level: Int[Array, ""],
    concentration: Float[Array, ""],
    mixing_concentration: Float[Array, ""],
    count: int,
    key: Array,
) -> tuple[Climb, Int[Array, ""], Int[Array, ""]]:
    """Attempt to split a node of the level in two, or to merge two children of the same parent, a given number of times.

    The units are items at leaves, and child nodes elsewhere. Two units are drawn whose nodes have the same parent. If they
    belong to the same node, it is split and its other units are allocated one by one; otherwise the two nodes are merged.

    No attempt changes what determines the next choice: the units, their number, and which of them have the same grandparent.
    The capacity is read anew in every attempt, and each attempt is valid on its own.

    Returns
    -------
    climb, accepted, refused
        The tree, the number of accepted attempts, and the number of otherwise accepted splits that found no free node number.
    """
    paths, labels, group, mixing = climb
    n, columns = paths.shape
    nodes, components = mixing.shape
    size = max(n, nodes)
    inner = level < columns - 2
    node_of, unit_of, top_of = (jnp.take(paths, level + step, axis=1) for step in (0, 1, -1))
    heads = group == jnp.arange(n)
    customers = jnp.zeros((size, components), mixing.dtype).at[unit_of, labels].add(heads.astype(mixing.dtype))
    items = jnp.zeros(size, mixing.dtype).at[unit_of].add(1.0)
    node = jnp.zeros(size, paths.dtype).at[unit_of].set(node_of)
    top = jnp.zeros(size, paths.dtype).at[unit_of].set(top_of)
    active = items > 0
    listed, number = jnp.argsort(~active, stable=True), active.sum()
    used = read_tree(paths[:, 1:-1], nodes).level >= 0

    def attempt(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        node, used, accepted, refused, key = state
        key, key_anchors, key_divide = jax.random.split(key, 3)
        u = jax.random.uniform(key_anchors, (3,), mixing.dtype)
        first = listed[jnp.minimum((u[0] * number.astype(u.dtype)).astype(int), number - 1)]
        others = active & (top == top[first]) & (jnp.arange(size) != first)
        second = draw_index(others.astype(mixing.dtype), u[1])
        a, b = node[first], node[second]
        splits = a == b
        member = active & ((node == a) | (node == b))
        shares = mixing_concentration * mixing[top[first]]

        def score(units: tuple[Array, Array]) -> Array:
            customers, items = units
            restaurant = jnp.where(inner, gammaln(concentration) - gammaln(items + concentration), 0.0)
            return log_polya(customers, jnp.broadcast_to(shares, customers.shape)) + gammaln(items) + restaurant

        anchors = jnp.stack([first, second])
        division = divide(score, (customers, items), member, anchors, (node == b).astype(int), splits, key_divide)
        log_ratio = jnp.log(concentration) + division.log_ratio
        accept = others.any() & (jnp.log1p(-u[2]) < jnp.where(splits, log_ratio, -log_ratio))
        full = splits & used.all()
        refused += (accept & full).astype(refused.dtype)
        accept &= ~full
        free = jnp.argmin(used)
        proposal = jnp.where(splits, jnp.where(division.sides == 1, free, node), jnp.where(member, a, node))
        changed = jnp.where(splits, free, b)
        used = used.at[changed].set(jnp.where(accept, splits, used[changed]))
        return (
            jnp.where(accept, proposal, node).astype(node.dtype),
            used,
            accepted + accept.astype(accepted.dtype),
            refused,
            key,
        )

    zero = jnp.zeros((), int)
    node, _, accepted, refused, _ = jax.lax.fori_loop(0, count, attempt, (node, used, zero, zero, key))
    here = jnp.arange(columns) == level
    return climb._replace(paths=jnp.where(here, node[unit_of][:, None], paths)), accepted, refused


class Grafting(NamedTuple):
    """A tree with M node numbers whose nodes change their parents.

    - **parent**, **level**, **items** - parent (0 at the root), level (−1 where unused) and number of items of each node.
    - **mixing** - proportions.
    """

    parent: Int[Array, " m"]
    level: Int[Array, " m"]
    items: Float[Array, " m"]
    mixing: Float[Array, "m k"]


def prune_regraft(
    climb: Climb,
    level: Int[Array, ""],
    concentration: Float[Array, ""],
    mixing_concentration: Float[Array, ""],
    count: int,
    key: Array,
) -> tuple[Climb, Int[Array, ""]]:
    """Prune a random node of the level with its subtree and regraft it by its conditional, a given number of times.

    The node is attached to a node of the level above, or to a new chain of nodes below a higher one. The proportions of the
    chain are drawn from their prior, like the auxiliary parameters of Neal (2000), Algorithm 8; if the node is alone at the end
    of its present chain, that chain is the auxiliary one. On level 1, where every node is a child of the root, nothing happens.

    A graft changes only nodes closer to the root, so that the nodes to draw from, and their number, stay the same.

    Returns
    -------
    climb, moved
        The tree, and the number of grafts that changed the parent.
    """
    paths, labels, group, mixing = climb
    (n, columns), nodes = paths.shape, len(mixing)
    depth = columns - 2
    tree = read_tree(paths[:, 1:-1], nodes)
    heads = (group == jnp.arange(n)).astype(mixing.dtype)
    customers = jnp.zeros_like(mixing).at[jnp.take(paths, level, axis=1), labels].add(heads)
    listed, number = jnp.argsort(tree.level != level, stable=True), (tree.level == level).sum()

    def attempt(_: Array, state: tuple[Grafting, Array, Array]) -> tuple[Grafting, Array, Array]:
        before, moved, key = state
        key, key_choice, key_chain = jax.random.split(key, 3)
        u = jax.random.uniform(key_choice, (3,), mixing.dtype)
        node = listed[jnp.minimum((u[0] * number.astype(u.dtype)).astype(int), number - 1)]
        parent, size, above = before.parent[node], before.items[node], _ancestors(before.parent, node, depth)
        items = before.items - jnp.where(above, size, 0.0)
        emptied = above & (items <= 0) & (jnp.arange(nodes) > 0)
        pruned = before._replace(level=jnp.where(emptied, -1, before.level), items=items)
        log_weight, longer = _log_weights(pruned, level, size, concentration, depth)

        # a chain from the prior, or the current one
        top = draw_index(jnp.where(jnp.isfinite(longer), jnp.exp(longer - longer.max()), 0.0), u[1])
        chain = _draw_chain(pruned, top, level, mixing_concentration, depth, key_chain)
        last = jnp.where(emptied[parent], before.mixing[parent], chain[-1])
        shares = mixing_concentration * jnp.concatenate([before.mixing, last[None]])
        weights = jnp.append(log_weight, logsumexp(longer))
        logs = jnp.where(jnp.isfinite(weights), weights + log_polya_of_few(customers[node], shares), -jnp.inf)
        choice = draw_index(jnp.exp(logs - logs.max()), u[2])
        opens = (choice == nodes) & ~emptied[parent]
        stays = (choice == nodes) & emptied[parent] | (choice == parent)
        after = _graft(pruned, node, jnp.where(opens, top, choice), opens, level, chain)
        after = after._replace(items=items + jnp.where(_ancestors(after.parent, node, depth), size, 0.0))
        kept = jax.tree.map(lambda new, old: jnp.where(stays, old, new), after, before)
        return kept, moved + (~stays).astype(moved.dtype), key

    start = Grafting(jnp.maximum(tree.parent, 0), tree.level, tree.counts.astype(mixing.dtype), mixing)
    begin = start, jnp.zeros((), int), key
    end, moved, _ = jax.lax.fori_loop(0, jnp.where(level > 1, count, 0), attempt, begin)
    column = [paths[:, depth]]
    for _ in range(depth - 1):
        column.append(end.parent[column[-1]])
    paths = jnp.stack([paths[:, 0], *column[::-1], paths[:, -1]], axis=1).astype(paths.dtype)
    return climb._replace(paths=paths, mixing=end.mixing), moved


def _ancestors(parent: Int[Array, " m"], node: Int[Array, ""], depth: int) -> Bool[Array, " m"]:
    """Mark the nodes above a node."""
    above = jnp.zeros(len(parent), bool)
    for _ in range(depth):
        node = parent[node]
        above = above.at[node].set(True)
    return above


def _log_weights(
    pruned: Grafting, level: Int[Array, ""], size: Float[Array, ""], concentration: Float[Array, ""], depth: int
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Log weights of the pruned subtree's parents: nodes of the level above, and new chains by the node that they hang from.

    For a subtree of s items, a node with N items on its path contributes Γ(N+s)Γ(N+α) / (Γ(N)Γ(N+s+α)), a node that is opened
    α Γ(s), and an opened node above another Γ(α) / Γ(s+α).
    """
    place = pruned.level
    counts = jnp.where(place > 0, pruned.items, 1.0)
    step = gammaln(counts + size) - gammaln(counts)
    step += gammaln(counts + concentration) - gammaln(counts + size + concentration)
    log_weight = jnp.zeros_like(counts)
    for at in range(1, depth):
        log_weight = jnp.where(place == at, log_weight[pruned.parent] + step, log_weight)
    opened = level - 1 - place  # nodes of a chain below each node
    added = opened.astype(counts.dtype)
    log_weight += (added + 1) * (jnp.log(concentration) + gammaln(size))
    log_weight += added * (gammaln(concentration) - gammaln(size + concentration))
    usable = (place >= 0) & (place < level)
    chains = usable & (opened > 0) & (opened <= (place < 0).sum())
    return jnp.where(usable & (opened == 0), log_weight, -jnp.inf), jnp.where(chains, log_weight, -jnp.inf)


def _draw_chain(
    pruned: Grafting, top: Int[Array, ""], level: Int[Array, ""], mixing_concentration: Float[Array, ""], depth: int, key: Array
) -> Float[Array, "depth k"]:
    """Draw the proportions of a chain from below a node to the level above `level` from their prior; copies elsewhere."""

    def draw_next(shares: Array, at: Array) -> tuple[Array, Array]:
        def draw(shares: Array) -> Array:
            drawn = log_dirichlet_draw(jax.random.fold_in(key, at), mixing_concentration * shares)
            return proportions(drawn).astype(shares.dtype)

        drawn = jax.lax.cond((at > pruned.level[top]) & (at < level), draw, lambda shares: shares, shares)
        return drawn, drawn

    return jax.lax.scan(draw_next, pruned.mixing[top], jnp.arange(1, depth + 1))[1]


def _graft(
    pruned: Grafting,
    node: Int[Array, ""],
    below: Int[Array, ""],
    opens: Bool[Array, ""],
    level: Int[Array, ""],
    chain: Float[Array, "depth k"],
) -> Grafting:
    """Attach the pruned node to a node, or to the end of a new chain below it; the numbers of items stay as they are."""
    nodes, depth, place = len(pruned.mixing), len(chain), pruned.level
    levels = jnp.arange(1, depth + 1)
    free = jnp.nonzero(place < 0, size=depth, fill_value=nodes)[0]
    opened = (levels > place[below]) & (levels < level) & opens
    number_of = jnp.where(opened, free[jnp.maximum(levels - place[below] - 1, 0)], nodes)  # beyond the end: dropped
    parent_of = jnp.where(levels == place[below] + 1, below, jnp.roll(number_of, 1))
    joined = jnp.where(opens, number_of[jnp.maximum(level - 2, 0)], below)
    parent = pruned.parent.at[number_of].set(parent_of, mode="drop")
    return pruned._replace(
        parent=parent.at[node].set(joined.astype(parent.dtype)),
        level=place.at[number_of].set(levels, mode="drop"),
        mixing=pruned.mixing.at[number_of].set(chain, mode="drop"),
    )
