"""Masses of the partitions of a tree, and prune and regraft; the native form of `tree_evidence` and `prune_and_regraft`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import compiled, copy, integers, numbers, separate
from bnp_hier.native.mixtures import features, joined, log_marginals, mixture_from

__all__ = ["NODE_STATISTICS", "PRUNE_REGRAFT", "TREE_MASSES"]

LEAST_GAIN = 1e-3
"""Gain in nats below which a subtree is not moved."""


@compiled
def _log_sum(one, other):
    """log(exp(one) + exp(other)), also where one of them is −inf."""
    high = max(one, other)
    return high if high == -np.inf else high + math.log1p(math.exp(min(one, other) - high))


@separate
def _all_statistics(mixture, children):
    """Statistics and sizes of all nodes; the rows are the leaves, and every merge comes after those of its children."""
    n, row = mixture.n, mixture.row
    stats, sizes = np.empty((2 * n - 1) * row), np.empty(2 * n - 1, np.int64)
    for i in range(n):
        sizes[i] = 1
    copy(mixture.rows, stats)
    for t in range(n - 1):
        left, right, node = children[2 * t], children[2 * t + 1], n + t
        sizes[node] = sizes[left] + sizes[right]
        for k in range(row):
            stats[node * row + k] = stats[left * row + k] + stats[right * row + k]
    return stats, sizes


@separate
def _masses(mixture, stats, sizes, log_alpha, children, single, mass):
    """Compute φ1 and φ of all nodes; see `tree_evidence.tree_masses`."""
    n = mixture.n
    log_marginals(mixture, stats, 2 * n - 1, single)
    for node in range(2 * n - 1):
        single[node] += log_alpha + math.lgamma(sizes[node])
        if node < n:
            mass[node] = single[node]
        else:
            left, right = children[2 * (node - n)], children[2 * (node - n) + 1]
            mass[node] = _log_sum(single[node], mass[left] + mass[right])


def tree_masses(table):
    """Arguments: component, rows, children, α. Results: φ1 and φ of all nodes."""
    children = integers(table, 4)
    mixture = mixture_from(table, 0, 1)
    stats, sizes = _all_statistics(mixture, children)
    _masses(mixture, stats, sizes, math.log(numbers(table, 5)[0]), children, numbers(table, 6), numbers(table, 7))


TREE_MASSES = Kernel(tree_masses, 1, 1, 1, 2, 2, 0, 1, 1)


def node_statistics(table):
    """Arguments: component, rows, children, nodes. Result: statistics of these nodes."""
    nodes, found = integers(table, 5), numbers(table, 6)
    mixture = mixture_from(table, 0, 0)
    stats, _ = _all_statistics(mixture, integers(table, 4))
    for place in range(len(nodes)):
        start = nodes[place] * mixture.row
        copy(stats[start : start + mixture.row], found[place * mixture.row :])


NODE_STATISTICS = Kernel(node_statistics, 1, 1, 1, 2, 2, 1, 2)


class Tree(NamedTuple):
    """A binary tree whose nodes keep their numbers when subtrees move.

    - **parent**, **children** - parent of each node (the root is its own), and two children (a leaf is its own child).
    - **columns** - features, one statistic of all nodes after another.
    - **sizes** - number of items under each node.
    - **single**, **mass** - φ1 and φ of each node.
    - **log_gamma** - log α + lgamma of every number of items.
    """

    parent: Any
    children: Any
    columns: Any
    sizes: Any
    single: Any
    mass: Any
    log_gamma: Any


@compiled
def _replace_child(tree, node, old, new):
    tree.children[2 * node + (0 if tree.children[2 * node] == old else 1)] = new


@compiled
def _sibling(tree, node):
    left = tree.children[2 * tree.parent[node]]
    return tree.children[2 * tree.parent[node] + 1] if left == node else left


@separate
def _renew(tree, single, mass, node):
    """Recompute φ of the node and all its ancestors from the φ of their children."""
    while True:
        left, right = tree.children[2 * node], tree.children[2 * node + 1]
        mass[node] = _log_sum(single[node], mass[left] + mass[right])
        if tree.parent[node] == node:
            return
        node = tree.parent[node]


@separate
def _mark(tree, marks, node):
    """Mark a node and all its ancestors."""
    marks[node] = 1
    while tree.parent[node] != node:
        node = tree.parent[node]
        marks[node] = 1


class Space(NamedTuple):
    """What one visit computes of every node.

    - **single**, **single_with** - φ1 without and with the subtree.
    - **mass** - φ without the subtree.
    - **lighter**, **heavier** - whether it is above the old, and above the new, place of the subtree.
    - **above**, **beside**, **stack** - see `_best_target`.
    """

    single: Any
    single_with: Any
    mass: Any
    lighter: Any
    heavier: Any
    above: Any
    beside: Any
    stack: Any


@separate
def _best_target(tree, root, space, moved):
    """Node above which a subtree of mass φ `moved` would make φ of the root largest, and that φ; NaN if one is NaN.

    Let V be the mass (not its log) of a node after the subtree has been attached somewhere under it. Then the mass of the root
    is A + B·V, with A = 0 and B = 1 at the root, and A' = A + B·exp φ1(node ∪ subtree) and B' = B·exp φ(sibling) one level
    down. The logs of A and B are `above` and `beside`.
    """
    above, beside, stack = space.above, space.beside, space.stack
    n, size, best, target = (len(tree.parent) + 1) // 2, 1, -np.inf, root
    stack[0], above[root], beside[root] = root, -np.inf, 0.0
    while size > 0:
        size -= 1
        node = stack[size]
        here = _log_sum(space.single_with[node], space.mass[node] + moved)
        score = _log_sum(above[node], beside[node] + here)
        if score != score:
            return node, np.nan
        if score > best or (score == best and node < target):
            best, target = score, node
        if node >= n:
            left, right = tree.children[2 * node], tree.children[2 * node + 1]
            above[left] = above[right] = _log_sum(above[node], beside[node] + space.single_with[node])
            beside[left], beside[right] = beside[node] + space.mass[right], beside[node] + space.mass[left]
            stack[size], stack[size + 1] = left, right
            size += 2
    return target, best


@separate
def _weigh(mixture, tree, space, node, over, ones):
    """Compute φ1 of every node with a subtree and without it; `over` is the node above its joint, or −1 if there is none."""
    nodes, row, n = len(tree.parent), mixture.row, mixture.n
    for t in range(row):
        ones[t] = tree.columns[t * nodes + node]
        ones[row + t] = -ones[t]
    for u in range(nodes):
        space.lighter[u], space.heavier[u], space.single_with[u] = 0, 0, 0.0
    joined(mixture, tree.columns.ctypes.data, nodes, nodes, ones[:row], space.single_with.ctypes.data)
    for u in range(nodes):
        space.single[u], space.mass[u] = tree.single[u], tree.mass[u]
        space.single_with[u] += tree.log_gamma[min(tree.sizes[u] + tree.sizes[node], 2 * n)]
    if over >= 0:
        _mark(tree, space.lighter, over)
        for u in range(n, nodes):
            if space.lighter[u]:  # it has the subtree
                space.single_with[u], space.single[u] = tree.single[u], 0.0
                at = tree.columns.ctypes.data + 8 * u
                joined(mixture, at, nodes, 1, ones[row:], space.single.ctypes.data + 8 * u)
                space.single[u] += tree.log_gamma[tree.sizes[u] - tree.sizes[node]]


@separate
def _attach(mixture, tree, space, node, joint, target, root):
    """Attach a subtree above a node of the tree without it; return the root."""
    parent, n, nodes = tree.parent, mixture.n, len(tree.parent)
    tops, upper = target == root, parent[target]
    parent[target], parent[node] = joint, joint
    parent[joint] = joint if tops else upper
    tree.children[2 * joint], tree.children[2 * joint + 1] = target, node
    if not tops:
        _replace_child(tree, upper, target, joint)
        _mark(tree, space.heavier, upper)
    for u in range(n, nodes):
        if u != joint and space.lighter[u] != space.heavier[u]:
            sign = 1 if space.heavier[u] else -1
            tree.sizes[u] += sign * tree.sizes[node]
            for t in range(mixture.row):
                tree.columns[t * nodes + u] += sign * tree.columns[t * nodes + node]
    for u in range(nodes):
        tree.single[u], tree.mass[u] = space.single_with[u] if space.heavier[u] else space.single[u], space.mass[u]
    for t in range(mixture.row):
        tree.columns[t * nodes + joint] = tree.columns[t * nodes + target] + tree.columns[t * nodes + node]
    tree.sizes[joint], tree.single[joint] = tree.sizes[target] + tree.sizes[node], space.single_with[target]
    _renew(tree, tree.single, tree.mass, joint)
    return joint if tops else root


def prune_regraft(table):
    """Move every subtree in turn to the place that makes φ of the root largest.

    Arguments: component, rows, children, α, order of the nodes. Results: children of all nodes, φ1 and φ, and the root, the
    number of moves, and whether a density was not finite.
    """
    start, order, state = integers(table, 4), integers(table, 6), integers(table, 10)
    log_alpha = math.log(numbers(table, 5)[0])
    mixture = mixture_from(table, len(start) // 2 + 1, 1)  # the unions with a subtree have up to 2n items
    n, row = mixture.n, mixture.row
    nodes = 2 * n - 1
    stats, sizes = _all_statistics(mixture, start)
    parent, columns, log_gamma = np.empty(nodes, np.int64), np.empty(row * nodes), np.empty(2 * n + 1)
    tree = Tree(parent, integers(table, 7), columns, sizes, numbers(table, 8), numbers(table, 9), log_gamma)
    _masses(mixture, stats, sizes, log_alpha, start, tree.single, tree.mass)
    for count in range(1, 2 * n + 1):
        log_gamma[count] = log_alpha + math.lgamma(count)
    ones = np.empty(2 * row)
    for node in range(nodes):
        features(mixture, stats[node * row : (node + 1) * row], ones[:row])
        for t in range(row):
            columns[t * nodes + node] = ones[t]
        tree.children[2 * node] = tree.children[2 * node + 1] = parent[node] = node
    for t in range(n - 1):
        for side in range(2):
            tree.children[2 * (n + t) + side] = start[2 * t + side]
            parent[start[2 * t + side]] = n + t
    reals, marks = np.empty((5, nodes)), np.empty((3, nodes), np.int64)
    space = Space(reals[0], reals[1], reals[2], marks[0], marks[1], reals[3], reals[4], marks[2])
    root, moves = nodes - 1, 0
    for node in order:
        if node == root:
            continue
        joint, other = parent[node], _sibling(tree, node)
        over = -1 if joint == root else parent[joint]
        _weigh(mixture, tree, space, node, over, ones)
        # without the subtree and its joint, which will be inserted above the target
        parent[node], parent[joint] = node, joint
        parent[other] = other if over < 0 else over
        if over >= 0:
            _replace_child(tree, over, joint, other)
            _renew(tree, space.single, space.mass, over)
        target, best = _best_target(tree, other if over < 0 else root, space, tree.mass[node])
        if best != best:
            state[2] = 1
            return
        if best > tree.mass[root] + LEAST_GAIN:
            root, moves = _attach(mixture, tree, space, node, joint, target, other if over < 0 else root), moves + 1
            continue
        parent[node], parent[other], parent[joint] = joint, joint, joint if over < 0 else over
        if over >= 0:
            _replace_child(tree, over, other, joint)
    state[0], state[1] = root, moves


PRUNE_REGRAFT = Kernel(prune_regraft, 1, 1, 1, 2, 2, 0, 1, 2, 1, 1, 1)
