"""PERCH (Kobren, Monath, Krishnamurthy & McCallum 2017): a binary tree built row by row, with rotations for purity.

A row is added beside its nearest neighbour. If all distances between a node and its aunt are smaller than all those between
the node and its sibling, sibling and aunt are exchanged; the check goes on at the parent until it fails at an inner node. This
is the condition of the authors' program, which bounds the distances by boxes around the rows of a node; here, they are exact.
(The paper calls a node masked if one of its rows is closer to a row of the aunt than to one of the sibling. Where clusters
overlap, nearly all nodes are, and the rotations destroy the tree.) If all distances within the true clusters are smaller than
all those between them, the tree contains every cluster as a subtree, whatever the order of the rows. There are no rotations for
balance and no collapsed subtrees, which the paper uses for speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

import bnp_hier as bnp

__all__ = ["perch"]


class _Node:
    """A node with the rows below it; a leaf has no children."""

    def __init__(self, rows: list[int], children: Sequence[_Node] = ()) -> None:
        self.rows, self.children, self.parent = rows, list(children), None

    parent: _Node | None

    def sibling(self) -> _Node | None:
        """The other child of the parent; None for the root."""
        if self.parent is None:
            return None
        one, other = self.parent.children
        return other if one is self else one


def perch(X: np.ndarray, seed: int) -> bnp.Dendrogram:
    """The tree of PERCH for the rows in random order; the height of a node is the diagonal of the box around its rows."""
    n = len(X)
    distances = cdist(X, X)
    leaves: dict[int, _Node] = {}
    order = np.random.default_rng(seed).permutation(n).tolist()
    root = leaves[order[0]] = _Node([order[0]])
    for place, row in enumerate(order[1:], 1):
        there = order[:place]
        near = leaves[there[int(distances[row, there].argmin())]]
        leaves[row] = leaf = _Node([row])
        root = _split(root, near, leaf)
        node: _Node | None = near
        while node is not None:
            if _closer_to_aunt(node, distances):
                _rotate(node)
            elif node.children:
                break
            node = node.parent
    return _dendrogram(root, X)


def _split(root: _Node, near: _Node, leaf: _Node) -> _Node:
    """Put a new parent above a leaf and the new one; return the root."""
    above = near.parent
    pair = _Node([*near.rows, *leaf.rows], (near, leaf))
    near.parent = leaf.parent = pair
    pair.parent = above
    if above is None:
        return pair
    above.children[above.children.index(near)] = pair
    while above is not None:
        above.rows = [*above.rows, *leaf.rows]
        above = above.parent
    return root


def _closer_to_aunt(node: _Node, distances: np.ndarray) -> bool:
    """Whether all distances between the node and its aunt are smaller than all those between the node and its sibling."""
    sibling, aunt = node.sibling(), None if node.parent is None else node.parent.sibling()
    if sibling is None or aunt is None:
        return False
    return bool(distances[np.ix_(node.rows, aunt.rows)].max() < distances[np.ix_(node.rows, sibling.rows)].min())


def _rotate(node: _Node) -> None:
    """Exchange the sibling and the aunt of a node."""
    parent, sibling = node.parent, node.sibling()
    assert parent is not None and sibling is not None and parent.parent is not None
    aunt, above = parent.sibling(), parent.parent
    assert aunt is not None
    parent.children, parent.rows = [node, aunt], [*node.rows, *aunt.rows]
    above.children = [parent, sibling]
    aunt.parent, sibling.parent = parent, above


def _dendrogram(root: _Node, X: np.ndarray) -> bnp.Dendrogram:
    """The tree as a linkage, with its nodes in the order of their heights."""
    inner: list[tuple[float, int, _Node]] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.children:
            # of equal heights, those of the smaller nodes come first, so that children precede their parents
            inner.append((float(np.linalg.norm(np.ptp(X[node.rows], axis=0))), len(node.rows), node))
            waiting += node.children
    inner.sort(key=lambda each: each[:2])
    names = {id(node): len(X) + place for place, (_, _, node) in enumerate(inner)}

    def name(node: _Node) -> int:
        return names[id(node)] if node.children else node.rows[0]

    linkage = [[name(node.children[0]), name(node.children[1]), height, size] for height, size, node in inner]
    return bnp.Dendrogram.from_linkage(np.array(linkage, dtype=np.float64))
