"""All trees of a given depth over a few items, and the nested Chinese restaurant process one customer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import log

from tests.oracles.partitions import all_partitions

__all__ = ["all_trees", "in_order_of_opening", "log_nested_crp", "node_count"]

Path = tuple[int, ...]


@cache
def all_trees(n: int, depth: int) -> tuple[tuple[Path, ...], ...]:
    """Every tree once, as the paths of its items from the root's child down, nodes numbered in order of opening."""

    def grow(items: tuple[int, ...], levels: int) -> Iterator[dict[int, tuple[tuple[int, ...], ...]]]:
        """The blocks above every item, from the top level down."""
        if levels == 0:
            yield dict.fromkeys(items, ())
            return
        for labels in all_partitions(len(items)):
            blocks = [tuple(item for item, z in zip(items, labels, strict=True) if z == k) for k in range(max(labels) + 1)]
            below: list[dict[int, tuple[tuple[int, ...], ...]]] = [{}]
            for block in blocks:
                below = [
                    {**done, **{item: (block, *rest) for item, rest in tree.items()}}
                    for done in below
                    for tree in grow(block, levels - 1)
                ]
            yield from below

    trees = []
    for blocks in grow(tuple(range(n)), depth):
        trees.append(in_order_of_opening([[(level, block) for level, block in enumerate(blocks[i])] for i in range(n)]))
    return tuple(trees)


def in_order_of_opening(paths) -> tuple[Path, ...]:
    """The paths with their nodes renumbered 1, 2, ... in the order in which items, and levels within them, first show them."""
    numbers: dict[object, int] = {}
    return tuple(tuple(numbers.setdefault(node, len(numbers) + 1) for node in path) for path in paths)


def log_nested_crp(paths, alpha: float) -> float:
    """Log probability of the tree, every item walking down from the root by the counts of those before it (nats)."""
    counts: dict[int, int] = {}
    children: dict[int, set[int]] = {}
    total = 0.0
    for path in paths:
        at = 0
        for node in path:
            known = children.setdefault(at, set())
            seated = sum(counts[child] for child in known)
            total += log((counts[node] if node in known else alpha) / (seated + alpha))
            known.add(node)
            at = node
        for node in path:
            counts[node] = counts.get(node, 0) + 1
    return total


def node_count(paths) -> int:
    """Number of nodes, the root included."""
    return 1 + len({node for path in paths for node in path})
