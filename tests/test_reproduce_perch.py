"""PERCH in the reproductions against its definition, with nested pairs of rows."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.reproductions import FOLDER

Tree = Any
"""A row, or a pair of trees."""


@pytest.fixture
def perch(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    sys.modules.pop("perch", None)
    import perch as module

    return module.perch


def rows(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else rows(tree[0]) + rows(tree[1])


def inserted(tree: Tree, row: int, near: int) -> Tree:
    """The tree with a row beside another."""
    if isinstance(tree, int):
        return (tree, row) if tree == near else tree
    return inserted(tree[0], row, near), inserted(tree[1], row, near)


def at(tree: Tree, way: tuple[int, ...]) -> Tree:
    for turn in way:
        tree = tree[turn]
    return tree


def replaced(tree: Tree, way: tuple[int, ...], new: Tree) -> Tree:
    if not way:
        return new
    parts = list(tree)
    parts[way[0]] = replaced(tree[way[0]], way[1:], new)
    return tuple(parts)


def way_to(tree: Tree, row: int) -> tuple[int, ...]:
    if isinstance(tree, int):
        return ()
    turn = int(row in rows(tree[1]))
    return turn, *way_to(tree[turn], row)


def oracle(X: np.ndarray, order: list[int]) -> Tree:
    """Row by row, every check a loop over all pairs of distances."""
    d = np.sqrt(((X[:, None] - X) ** 2).sum(-1))
    tree: Tree = order[0]
    for place, row in enumerate(order[1:], 1):
        near = min(order[:place], key=lambda other: d[row, other])
        tree = inserted(tree, row, near)
        way = way_to(tree, near)
        while len(way) >= 2:
            node, sibling = at(tree, way), at(tree, (*way[:-1], 1 - way[-1]))
            aunt = at(tree, (*way[:-2], 1 - way[-2]))
            quadruples = product(rows(node), rows(node), rows(sibling), rows(aunt))
            if all(d[w, z] < d[x, y] for w, x, y, z in quadruples):
                tree = replaced(tree, way[:-2], ((node, aunt), sibling))
                way = (*way[:-2], 0)
            elif isinstance(node, tuple):
                break
            else:
                way = way[:-1]
    return tree


def clusters_of(tree: Tree) -> set[frozenset[int]]:
    own = {frozenset(rows(tree))}
    return own if isinstance(tree, int) else own | clusters_of(tree[0]) | clusters_of(tree[1])


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_follows_the_definition(seed: int, perch: Any) -> None:
    X = np.random.default_rng(10 + seed).normal(size=(14, 2))
    tree = perch(X, seed)
    sets = [frozenset([row]) for row in range(14)]
    for one, other in tree.children:
        sets.append(sets[one] | sets[other])
    order = np.random.default_rng(seed).permutation(14).tolist()
    assert set(sets) == clusters_of(oracle(X, order))
    assert (np.diff(tree.log_odds) <= 0).all()  # heights do not decrease


def test_separated_clusters_are_pure(perch: Any) -> None:
    """Kobren et al. (2017), Theorem 1: distances within clusters are at most 2√2, those between clusters at least 6."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 12)
    X = np.array([[0, 0], [8, 0], [0, 8], [8, 8]])[y] + rng.uniform(-1, 1, (48, 2))
    for seed in range(5):
        assert perch(X, seed).purity(y) == 1.0
