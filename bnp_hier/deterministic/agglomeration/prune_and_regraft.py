"""Prune and regraft: moves subtrees of a tree to better positions, scoring all targets of a subtree exactly and at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.tree_evidence import in_merge_order, node_table, single_masses
from bnp_hier.partitions.engine import has_kernels, kernel_arguments

__all__ = ["prune_regraft"]

LEAST_GAIN = 1e-3
"""Gain in nats below which a subtree is not moved: moves between ties only degrade the shape of the tree."""


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
    tree, moves = _Tree(component, X, concentration, children), 0
    for node in order:
        moves += tree.move(int(node))
    return _in_order(tree.children, tree.single, tree.mass), moves


class _Tree:
    """A binary tree whose nodes keep their numbers when subtrees move: the plain form of the kernel.

    - **parent** - (2n − 1,) parent of each node; −1 for the root.
    - **children** - (2n − 1, 2) children of each node; −1 for a leaf.
    - **table** - statistics and numbers of items, see `node_table`.
    - **single**, **mass** - φ1 and φ of each node, see `tree_evidence`.
    """

    def __init__(self, component: Component, X: np.ndarray, concentration: float, children: Int[np.ndarray, "m 2"]) -> None:
        n = len(X)
        self.component, self.concentration = component, concentration
        self.children = np.concatenate([np.full((n, 2), -1), children])
        self.parent = np.full(2 * n - 1, -1)
        self.parent[children] = np.arange(n, 2 * n - 1)[:, None]
        self.table = node_table(component, X, children)
        self.single = single_masses(component, self.table, concentration)
        self.mass = self.single.copy()
        self._renew_masses(range(n, 2 * n - 1))

    def _renew_masses(self, nodes: Iterable[int]) -> None:
        """Compute φ of these nodes, each after those below it, from the φ of their children."""
        for node in nodes:
            self.mass[node] = np.logaddexp(self.single[node], self.mass[self.children[node]].sum())

    def _up_from(self, node: int) -> list[int]:
        """The node and all its ancestors."""
        path = []
        while node >= 0:
            path.append(node)
            node = int(self.parent[node])
        return path

    def _replace(self, old: int, new: int) -> None:
        """Hang a node where another one hangs."""
        above = self.parent[old]
        self.parent[new] = above
        if above >= 0:
            self.children[above] = np.where(self.children[above] == old, new, self.children[above])

    def move(self, node: int) -> bool:
        """Move a subtree to the position that maximises φ of the root, if that is a gain; return whether it was moved."""
        joint = int(self.parent[node])  # removed with the subtree, and reinserted above the target
        if joint < 0:
            return False
        before = self.parent.copy(), self.children.copy(), self.single.copy(), self.mass.copy()
        reached = self.mass[self._up_from(node)[-1]]
        beside = int(self.children[joint].sum() - node)
        self._replace(joint, beside)
        lighter = self._up_from(beside)[1:]
        sign = np.ones(len(self.mass))
        sign[lighter] = -1.0
        # φ1 of each node without and with the subtree
        other = single_masses(self.component, self.table + sign[:, None] * self.table[node], self.concentration)
        with_subtree = np.where(sign < 0, self.single, other)
        self.single[lighter] = other[lighter]
        self._renew_masses(lighter)
        scores = self._insertion_masses([beside, *lighter][-1], node, with_subtree)
        target = int(scores.argmax())
        if not scores[target] > reached + LEAST_GAIN:
            self.parent, self.children, self.single, self.mass = before
            return False
        self._replace(target, joint)
        self.children[joint] = target, node
        self.parent[[target, node]] = joint
        heavier = self._up_from(joint)[1:]
        self.table[np.setdiff1d(lighter, heavier).astype(int)] -= self.table[node]
        self.table[np.setdiff1d(heavier, lighter).astype(int)] += self.table[node]
        self.table[joint] = self.table[target] + self.table[node]
        self.single[[joint, *heavier]] = with_subtree[[target, *heavier]]
        self._renew_masses([joint, *heavier])
        return True

    def _insertion_masses(self, root: int, node: int, with_subtree: Float[np.ndarray, " v"]) -> Float[np.ndarray, " v"]:
        """φ of the root if the subtree were attached to the branch above each node, −inf for nodes that are not under the root.

        Let V be the mass (not its log) of a node after the subtree has been attached somewhere under it. Then the mass of the
        root is A + B·V, with A = 0 and B = 1 at the root, and A' = A + B·exp φ1(node ∪ subtree) and B' = B·exp φ(sibling) one
        level down.
        """
        scores = np.full(len(self.mass), -np.inf)
        level, log_a, log_b = np.array([root]), np.array([-np.inf]), np.zeros(1)
        while len(level):
            if np.isnan(with_subtree[level]).any():
                raise _undefined(self.component)
            attached = np.logaddexp(with_subtree[level], self.mass[level] + self.mass[node])
            scores[level] = np.logaddexp(log_a, log_b + attached)
            inner = self.children[level, 0] >= 0
            log_a = np.repeat(np.logaddexp(log_a, log_b + with_subtree[level])[inner], 2)
            children = self.children[level[inner]]
            log_b = (log_b[inner, None] + self.mass[children[:, ::-1]]).ravel()
            level = children.ravel()
        return scores


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
