"""Layout of a tree for drawing: chains of single children as one branch, small siblings grouped, and positions for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bnp_hier.trees import Hierarchy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Branch", "branches", "checked_level", "draw_edges", "heights", "largest_first"]

_EDGE = "0.6"


class Branch(NamedTuple):
    """One unit of the drawing: a node with the chain of only children below it, or several small siblings.

    Attributes
    ----------
    nodes
        The node at the top of the chain, or the siblings.
    parent
        Index of the parent branch; −1 for the root.
    top, bottom
        Levels of its first and last node.
    is_end
        Whether nothing is drawn below it.
    """

    nodes: tuple[int, ...]
    parent: int
    top: int
    bottom: int
    is_end: bool


def checked_level(tree: Hierarchy, level: int | None) -> int:
    """Return the lowest level to draw, by default that of the leaves.

    Raises
    ------
    ValueError
        If the tree does not have this level below the root.
    """
    if level is None:
        return tree.depth
    if level != int(level) or not 1 <= level <= tree.depth:
        raise ValueError(f"level must be a whole number from 1 to the tree's depth, {tree.depth}, but it is {level}")
    return int(level)


def largest_first(tree: Hierarchy, lowest: int) -> Int[np.ndarray, " nodes"]:
    """Nodes down to a level, largest first; every node comes before its descendants."""
    levels = tree.levels
    order = np.lexsort([levels, -tree.sizes])
    return order[levels[order] <= lowest]


def branches(tree: Hierarchy, individual: Bool[np.ndarray, " nodes"], lowest: int) -> list[Branch]:
    """Split a tree into branches, with every branch before its descendants and larger siblings before smaller ones.

    Parameters
    ----------
    tree
        The tree.
    individual
        (nodes,) which nodes are drawn individually; the ancestors of such a node must be among them. The other nodes are drawn
        together with their siblings that are not either, and without their descendants.
    lowest
        Level below which nothing is drawn.
    """
    levels, sizes = tree.levels.tolist(), tree.sizes
    children: list[list[int]] = [[] for _ in levels]
    for node, parent in enumerate(tree.parents.tolist()[1:], 1):
        children[parent].append(node)
    result: list[Branch] = []
    waiting: list[tuple[tuple[int, ...], int]] = [((0,), -1)]
    while waiting:
        nodes, parent = waiting.pop()
        last = nodes[0]
        while len(nodes) == 1 and levels[last] < lowest and len(children[last]) == 1:
            last = children[last][0]
        below = children[last] if len(nodes) == 1 and individual[last] and levels[last] < lowest else []
        result.append(Branch(nodes, parent, levels[nodes[0]], levels[last], not below))
        groups = [(child,) for child in sorted(below, key=lambda child: -sizes[child]) if individual[child]]
        hidden = tuple(child for child in below if not individual[child])
        waiting += [(group, len(result) - 1) for group in reversed([*groups, *([hidden] if hidden else [])])]
    return result


def heights(shown: Sequence[Branch], needed: Float[np.ndarray, " b"]) -> tuple[Float[np.ndarray, " b"], float]:
    """Return the vertical middle of each branch, counted downwards, and the total height.

    Each branch gets the height that it needs in its column, and is centred on its children.
    """
    spans = np.zeros(len(shown))
    for index in range(len(shown) - 1, -1, -1):
        spans[index] = max(spans[index], needed[index])
        if shown[index].parent >= 0:
            spans[shown[index].parent] += spans[index]
    starts, middles = np.zeros(len(shown)), np.zeros(len(shown))
    below: list[list[int]] = [[] for _ in shown]
    for index, branch in enumerate(shown):
        if branch.parent >= 0:
            below[branch.parent].append(index)
    for index in range(len(shown)):
        start = starts[index] + (spans[index] - sum(spans[child] for child in below[index])) / 2
        for child in below[index]:
            starts[child] = start
            start += spans[child]
    for index in range(len(shown) - 1, -1, -1):
        ends = middles[[below[index][0], below[index][-1]]] if below[index] else starts[index] + spans[[index]] / 2
        half = needed[index] / 2
        middles[index] = np.clip(ends.mean(), starts[index] + half, starts[index] + spans[index] - half)
    return middles, float(spans[0])


def draw_edges(
    axes: Axes, shown: Sequence[Branch], middles: Float[np.ndarray, " b"], turn: float
) -> Float[np.ndarray, "lines 4"]:
    """Draw thin lines from each branch to its children, and along chains.

    Parameters
    ----------
    axes
        Axes with levels on the horizontal axis.
    shown
        Result of `branches`.
    middles
        Vertical middles from `heights`.
    turn
        Distance, in levels, between a branch and the point where its line forks.

    Returns
    -------
    boxes
        (lines, 4) left, bottom, right and top of every line.
    """
    from matplotlib.collections import LineCollection

    lines: list[list[tuple[float, float]]] = []
    for branch, y in zip(shown, middles.tolist(), strict=True):
        if branch.parent >= 0:
            fork = shown[branch.parent].bottom + turn
            lines += [[(fork, middles[branch.parent]), (fork, y)], [(fork, y), (branch.top, y)]]
        end = branch.bottom + (0.0 if branch.is_end else turn)
        if end > branch.top:
            lines.append([(branch.top, y), (end, y)])
    drawn = LineCollection(lines, colors=_EDGE, linewidths=0.7, capstyle="projecting", zorder=1, label="edges")
    drawn.set_rasterized(len(lines) > 3000)
    axes.add_collection(drawn)
    ends = np.array(lines, dtype=np.float64).reshape(-1, 2, 2)
    return np.concatenate([ends.min(axis=1), ends.max(axis=1)], axis=1)
