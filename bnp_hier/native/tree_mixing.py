"""Draws of the proportions at all nodes of a tree; the native form of `kernels.bhmc.table_counts.draw_mixing`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.dirichlet import draw_proportions
from bnp_hier.native.memory import compiled, integers, numbers, separate
from bnp_hier.native.threefry import child, key_at

__all__ = ["DRAW_MIXING", "Prior", "draw_tree"]


class Prior(NamedTuple):
    """Prior of the proportions: Dir(shares) at the root, and Dir(γβ_parent) with a γ of its own at every other node.

    - **smallest** - smallest proportion that is not zero.
    """

    shares: Any
    gamma: Any
    smallest: Any


@compiled
def _from_root_down(level):
    """Nodes in use, level by level."""
    m, order, size, at = len(level), np.empty(len(level), np.int64), 0, 0
    more = True
    while more:
        before = size
        for z in range(m):
            if level[z] == at:
                order[size] = z
                size += 1
        more, at = size > before, at + 1
    return order[:size]


@separate
def draw_tree(level, parent, customers, prior, key, mixing):
    """Draw the proportions of every node given its parent's and its customers."""
    shares, gamma = prior.shares, prior.gamma
    k, order, base = len(shares), _from_root_down(level), np.empty(len(shares))
    for place in range(len(mixing)):
        mixing[place] = 0.0
    for at in range(len(order)):
        node = order[at]
        for c in range(k):
            share = shares[c] if node == 0 else gamma[node] * mixing[parent[node] * k + c]
            base[c] = share + customers[node * k + c]
        draw_proportions(child(key, at), 0, base, prior.smallest, mixing[node * k : (node + 1) * k])


def mixing_of(table):
    """Draw the proportions of a tree.

    Arguments: key, levels, parents, customers, Dirichlet parameters of the root, γ by node, smallest proportion. Result:
    proportions.
    """
    level, parent, customers = integers(table, 1), integers(table, 2), numbers(table, 3)
    prior = Prior(numbers(table, 4), numbers(table, 5), numbers(table, 6)[0])
    draw_tree(level, parent, customers, prior, key_at(integers(table, 0), 0), numbers(table, 7))


DRAW_MIXING = Kernel(mixing_of, 1, 1, 1, 2, 1, 1, 0, 2)
