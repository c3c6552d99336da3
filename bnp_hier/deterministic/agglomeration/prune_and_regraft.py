"""Prune and regraft: moves subtrees of a tree to better positions, scoring all targets of a subtree exactly and at once."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.agglomeration.tree_evidence import in_merge_order, node_statistics, tree_masses
from bnp_hier.partitions.engine import has_kernels, kernel_arguments

__all__ = ["prune_regraft"]

LEAST_GAIN = 1e-3
"""Gain in nats below which a subtree is not moved: moves between ties only degrade the shape of the tree."""


class _Tree(NamedTuple):
    """A binary tree whose nodes keep their numbers when subtrees move.

    - **parent** - (2n − 1,) parent of each node; the root is its own parent.
    - **children** - (2n − 1, 2) children of each node; a leaf is its own child, twice.
    - **stats** - statistics of the items under each node.
    - **sizes** - number of items under each node.
    - **single** - φ1: log mass of the event that all items of the node form one cluster.
    - **mass** - φ: log mass of the node's tree-consistent partitions.
    - **root** - number of the root node.
    - **moves** - number of subtrees moved so far.
    """

    parent: Int[Array, " v"]
    children: Int[Array, "v 2"]
    stats: Statistics
    sizes: Float[Array, " v"]
    single: Float[Array, " v"]
    mass: Float[Array, " v"]
    root: Int[Array, ""]
    moves: Int[Array, ""]


def _sibling(tree: _Tree, node: Array) -> Array:
    left, right = tree.children[tree.parent[node]]
    return jnp.where(left == node, right, left)


def _towards_root(parent: Array, root: Array, node: Array) -> Bool[Array, " v"]:
    """Mark the node and all its ancestors."""

    def up(state: tuple[Array, Array]) -> tuple[Array, Array]:
        at, marked = state
        return parent[at], marked.at[at].set(True)

    at, marked = jax.lax.while_loop(lambda s: s[0] != root, up, (node, jnp.zeros(parent.shape, bool)))
    return marked.at[at].set(True)


def _renew(mass: Array, single: Array, children: Array, parent: Array, root: Array, node: Array) -> Array:
    """Recompute φ of the node and all its ancestors from the φ of their children."""

    def renew(mass: Array, at: Array) -> Array:
        return mass.at[at].set(jnp.logaddexp(single[at], mass[children[at]].sum()))

    def up(state: tuple[Array, Array]) -> tuple[Array, Array]:
        at, mass = state
        return parent[at], renew(mass, at)

    at, mass = jax.lax.while_loop(lambda s: s[0] != root, up, (node, mass))
    return renew(mass, at)


def _insertion_masses(
    parent: Array, root: Array, single_with: Array, beside: Array, mass: Array, moved: Array
) -> tuple[Float[Array, " v"], Bool[Array, " v"]]:
    """φ of the root if the subtree were attached to the branch above each node; and which nodes lie under the root.

    Let V be the mass (not its log) of a node after the subtree has been attached somewhere under it. Then the mass of the root
    is A + B·V, with A = 0 and B = 1 at the root, and A' = A + B·exp φ1(node ∪ subtree) and B' = B·exp φ(sibling) one level
    down. Both are sums along the path and are computed by pointer doubling.
    """
    nodes = jnp.arange(parent.shape[0])

    def double(combine: Any, start: Array) -> tuple[Array, Array]:
        def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
            total, jump = state
            return combine(total, total[jump]), jump[jump]

        def unfinished(state: tuple[Array, Array]) -> Array:
            return (state[1] != state[1][state[1]]).any()

        return jax.lax.while_loop(unfinished, step, (start, parent))

    top = parent == nodes  # the root, and the roots of the parts that were cut off
    log_b, end = double(jnp.add, jnp.where(top, 0.0, beside))
    above = jnp.where(top, -jnp.inf, log_b[parent] + single_with[parent])
    log_a, _ = double(jnp.logaddexp, above)
    return jnp.logaddexp(log_a, log_b + jnp.logaddexp(single_with, mass + moved)), end == root


@partial(jax.jit, donate_argnames="tree")
def _sweep(component: Component, tree: _Tree, concentration: Array, order: Int[Array, " v"]) -> _Tree:
    """Move every subtree in turn to the position that maximises φ of the root."""
    n_leaves = (tree.parent.shape[0] + 1) // 2
    nodes = jnp.arange(tree.parent.shape[0])
    log_marginal = component.log_marginal_up_to(n_leaves)
    log_gamma = gammaln(jnp.arange(n_leaves + 1).astype(float))
    log_alpha = jnp.log(concentration)

    def visit(tree: _Tree, node: Array) -> tuple[_Tree, None]:
        joint = tree.parent[node]  # removed with the subtree, and reinserted above the target
        beside = _sibling(tree, node)
        over = tree.parent[joint]
        joint_is_root = joint == tree.root
        root = jnp.where(joint_is_root, beside, tree.root)

        # without the subtree
        parent = tree.parent.at[beside].set(jnp.where(joint_is_root, beside, over)).at[node].set(node).at[joint].set(joint)
        swapped = jnp.where(tree.children[over] == joint, beside, tree.children[over])
        children = tree.children.at[over].set(jnp.where(joint_is_root, tree.children[over], swapped))
        lighter = _towards_root(parent, root, jnp.where(joint_is_root, root, over)) & ~joint_is_root
        sign = jnp.where(lighter, -1.0, 1.0)
        change = jax.tree.map(lambda leaf: sign.reshape((-1,) + (1,) * (leaf.ndim - 1)) * leaf[node][None], tree.stats)
        changed = jax.tree.map(jnp.add, tree.stats, change)
        sizes = tree.sizes + sign * tree.sizes[node]
        other = log_alpha + log_gamma[jnp.clip(sizes, 0, n_leaves).astype(int)] + log_marginal(changed)
        # φ1 of each node without and with the subtree
        single = jnp.where(lighter, other, tree.single)
        single_with = jnp.where(lighter, tree.single, other)
        renewed = _renew(tree.mass, single, children, parent, root, jnp.where(joint_is_root, root, over))
        mass = jnp.where(joint_is_root, tree.mass, renewed)

        left, right = children[parent].T
        sibling = jnp.where(left == nodes, right, left)
        scores, under_root = _insertion_masses(parent, root, single_with, mass[sibling], mass, tree.mass[node])
        scores = jnp.where(under_root, scores, -jnp.inf)
        # a failure makes the counter so negative that later moves cannot make it positive again
        tree = tree._replace(moves=tree.moves - jnp.where((jnp.isnan(scores) & under_root).any(), 1 << 40, 0))
        target = scores.argmax()
        better = (scores[target] > tree.mass[tree.root] + LEAST_GAIN) & (node != tree.root)

        def move(_: None) -> _Tree:
            at_root = target == root
            above = parent[target]
            new_parent = parent.at[target].set(joint).at[node].set(joint).at[joint].set(jnp.where(at_root, joint, above))
            taken = jnp.where(children[above] == target, joint, children[above])
            new_children = children.at[above].set(jnp.where(at_root, children[above], taken))
            new_children = new_children.at[joint].set(jnp.stack([target, node]))
            new_root = jnp.where(at_root, joint, root)
            heavier = _towards_root(new_parent, new_root, joint)

            def pick(without: Array, with_subtree: Array, whole: Array) -> Array:
                """Statistics of every node after the subtree is attached above `target`."""
                mask = heavier.reshape((-1,) + (1,) * (without.ndim - 1))
                return jnp.where(mask, with_subtree, without).at[joint].set(whole)

            def with_and_without(old: Array, new: Array) -> tuple[Array, Array]:
                mask = lighter.reshape((-1,) + (1,) * (old.ndim - 1))
                return jnp.where(mask, new, old), jnp.where(mask, old, new)

            stats = jax.tree.map(
                lambda old, new: pick(*with_and_without(old, new), with_and_without(old, new)[1][target]), tree.stats, changed
            )
            new_sizes = pick(*with_and_without(tree.sizes, sizes), with_and_without(tree.sizes, sizes)[1][target])
            new_single = pick(single, single_with, single_with[target])
            new_mass = _renew(mass, new_single, new_children, new_parent, new_root, joint)
            return _Tree(new_parent, new_children, stats, new_sizes, new_single, new_mass, new_root, tree.moves + 1)

        return jax.lax.cond(better, move, lambda _: tree, None), None

    return jax.lax.scan(visit, tree, order)[0]


@jax.jit
def _plant(component: Component, X: Array, concentration: Array, children: Int[Array, "m 2"]) -> _Tree:
    n = X.shape[0]
    internal = jnp.arange(n, 2 * n - 1)
    stats = node_statistics(component.suff_stats(X), children)
    sizes = node_statistics(jnp.ones(n), children)
    single = jnp.log(concentration) + gammaln(sizes) + component.log_marginal(stats)
    mass, _ = tree_masses(single, children)
    leaves = jnp.arange(n)
    parent = jnp.full(2 * n - 1, 2 * n - 2).at[children[:, 0]].set(internal).at[children[:, 1]].set(internal)
    own = jnp.concatenate([jnp.stack([leaves, leaves], axis=1), children])
    return _Tree(parent, own, stats, sizes, single, mass, jnp.asarray(2 * n - 2), jnp.int64(0))


def prune_regraft(
    component: Component, X: np.ndarray, concentration: float, children: Int[np.ndarray, "m 2"], order: Int[np.ndarray, " v"]
) -> tuple[Int[np.ndarray, "m 2"], int]:
    """Make one sweep of prune and regraft over all subtrees, at the cost of about 4n² marginal likelihoods.

    Parameters
    ----------
    component, X, concentration
        Component, data (n, d), and α of the Dirichlet process.
    children
        (n − 1, 2) merges of the tree, n ≥ 3.
    order
        Permutation of the 2n − 1 nodes: the order in which their subtrees are visited.

    Returns
    -------
    children, moves
        Merges of the new tree, whose bound is at least that of the old one, and the number of subtrees moved.
    """
    if has_kernels(component):
        return _natively(component, X, concentration, children, order)
    alpha = jnp.asarray(concentration, float)
    tree = _sweep(component, _plant(component, jnp.asarray(X), alpha, jnp.asarray(children)), alpha, jnp.asarray(order))
    if int(tree.moves) < 0:
        raise _undefined(component)
    return _in_order(np.asarray(tree.children), np.asarray(tree.single), np.asarray(tree.mass)), int(tree.moves)


def _natively(
    component: Component, X: np.ndarray, concentration: float, children: Int[np.ndarray, "m 2"], order: Int[np.ndarray, " v"]
) -> tuple[Int[np.ndarray, "m 2"], int]:
    from bnp_hier.native.trees import PRUNE_REGRAFT

    nodes = 2 * len(X) - 1
    pairs, single, mass, state = np.empty((nodes, 2), np.int64), np.empty(nodes), np.empty(nodes), np.zeros(3, np.int64)
    tree, turns = (np.ascontiguousarray(values, dtype=np.int64) for values in (children, order))
    alpha = np.array(concentration, float)
    PRUNE_REGRAFT(*kernel_arguments(component, X), tree, alpha, turns, pairs, single, mass, state)
    if state[2]:
        raise _undefined(component)
    return _in_order(pairs, single, mass), int(state[1])


def _undefined(component: Component) -> ValueError:
    return ValueError(
        f"prune and regraft failed: the log marginal likelihood of {type(component).__name__} is NaN for some set of rows"
    )


def _in_order(
    pairs: Int[np.ndarray, "v 2"], single: Float[np.ndarray, " v"], mass: Float[np.ndarray, " v"]
) -> Int[np.ndarray, "m 2"]:
    """Merges of a tree from the children and masses of all nodes."""
    inner = np.arange((len(pairs) + 1) // 2, len(pairs))
    return in_merge_order(pairs[inner], single[inner] - mass[pairs[inner]].sum(1))
