"""Bayesian hierarchical clustering in plain NumPy: all pairs at every step; and its partitions by enumeration.

`log_marginal` is always a function of a list of row numbers (nats).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import gammaln

TIE = 1e-9

LogMarginal = Callable[[list[int]], float]


class _Forest:
    """Nodes made so far, the active ones, and the merge odds of every pair of active nodes."""

    def __init__(self, n: int, log_marginal: LogMarginal, alpha: float) -> None:
        self.log_marginal, self.log_alpha = log_marginal, math.log(alpha)
        self.members: list[list[int]] = []
        self.mass: list[float] = []
        self.active: list[int] = []
        self.odds = np.full((2 * n - 1, 2 * n - 1), -np.inf)  # upper triangle; −inf for pairs no longer there
        for item in range(n):
            self._add([item], self._single([item]))

    def _single(self, rows: list[int]) -> float:
        return self.log_alpha + float(gammaln(len(rows))) + self.log_marginal(rows)

    def _add(self, rows: list[int], mass: float) -> None:
        node = len(self.members)
        self.members.append(rows)
        self.mass.append(mass)
        for other in self.active:
            joined = self.members[other] + rows
            self.odds[other, node] = self._single(joined) - self.mass[other] - mass
        self.active.append(node)

    def merge(self, low: int, high: int) -> float:
        odds = float(self.odds[low, high])
        for gone in (low, high):
            self.active.remove(gone)
            self.odds[gone, :] = self.odds[:, gone] = -np.inf
        self._add(self.members[low] + self.members[high], self.mass[low] + self.mass[high] + float(np.logaddexp(odds, 0.0)))
        return odds


def bhc(n: int, log_marginal: LogMarginal, alpha: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Children, log odds and evidence bound of the greedy tree; ties go to the smallest node numbers."""
    forest = _Forest(n, log_marginal, alpha)
    children, log_odds = [], []
    for _ in range(n - 1):
        top = forest.odds.max()
        low, high = np.argwhere(forest.odds >= top - TIE * max(1.0, abs(top)))[0]  # row by row: smallest numbers first
        children.append((int(low), int(high)))
        log_odds.append(forest.merge(int(low), int(high)))
    bound = forest.mass[-1] + float(gammaln(alpha) - gammaln(n + alpha))
    return np.array(children), np.array(log_odds), bound


def replay(log_marginal: LogMarginal, alpha: float, children: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For given merges, the log odds of each, and the largest log odds among all pairs that were there at that step."""
    forest = _Forest(len(children) + 1, log_marginal, alpha)
    odds, best = [], []
    for low, high in children:
        best.append(float(forest.odds.max()))
        odds.append(forest.merge(int(low), int(high)))
    return np.array(odds), np.array(best)


def node_members(children: np.ndarray) -> list[list[int]]:
    """Items under each node of a tree."""
    members = [[item] for item in range(len(children) + 1)]
    for left, right in children:
        members.append(sorted(members[left] + members[right]))
    return members


def tree_partitions(children: np.ndarray) -> list[tuple[int, ...]]:
    """All tree-consistent partitions, each as the nodes that are its clusters."""
    n = len(children) + 1

    def below(node: int) -> Iterator[tuple[int, ...]]:
        yield (node,)
        if node >= n:
            left, right = children[node - n]
            for a in below(int(left)):
                for b in below(int(right)):
                    yield a + b

    return list(below(2 * n - 2))


def partition_masses(children: np.ndarray, log_marginal: LogMarginal, alpha: float) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """All tree-consistent partitions and their log p(X, partition) (nats)."""
    n = len(children) + 1
    members = node_members(children)
    single = [math.log(alpha) + float(gammaln(len(rows))) + log_marginal(rows) for rows in members]
    partitions = tree_partitions(children)
    constant = float(gammaln(alpha) - gammaln(n + alpha))
    return partitions, np.array([sum(single[node] for node in nodes) for nodes in partitions]) + constant


def labels_of(children: np.ndarray, nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Labels, in order of appearance, of a partition whose clusters are these nodes."""
    members = node_members(children)
    labels = [-1] * (len(children) + 1)
    for label, rows in enumerate(sorted(members[node] for node in nodes)):
        for row in rows:
            labels[row] = label
    return tuple(labels)


def evidence(n: int, log_marginal: LogMarginal, alpha: float) -> float:
    """Exact log evidence of a Dirichlet-process mixture: the block with the lowest item of a set, then the rest (nats)."""
    block = np.full(2**n, -np.inf)
    for subset in range(1, 2**n):
        rows = [i for i in range(n) if subset >> i & 1]
        block[subset] = math.log(alpha) + float(gammaln(len(rows))) + log_marginal(rows)
    total = np.full(2**n, -np.inf)
    total[0] = 0.0
    for subset in range(1, 2**n):
        rest = subset & (subset - 1)  # without its lowest item
        # all subsets of `rest`: those go with the lowest item
        part, parts = rest, [rest]
        while part:
            part = (part - 1) & rest
            parts.append(part)
        with_lowest = np.array(parts)
        total[subset] = np.logaddexp.reduce(block[with_lowest | (subset ^ rest)] + total[rest ^ with_lowest])
    return float(total[-1] + gammaln(alpha) - gammaln(n + alpha))
