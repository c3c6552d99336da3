"""Hierarchical mixtures over a tree by sums over everything: slow and obvious."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from math import exp, lgamma, log

import numpy as np

from tests.oracles.trees import all_trees, in_order_of_opening, log_nested_crp, node_count

__all__ = ["HierarchyEnumeration", "first_come", "log_labels"]


@cache
def stirling(n: int, t: int) -> float:
    """Unsigned Stirling number of the first kind: seatings of n customers at t tables, each with its (size − 1)!."""
    if n == 0 or t == 0:
        return float(n == t)
    return stirling(n - 1, t - 1) + (n - 1) * stirling(n - 1, t)


def log_labels(
    paths, labels, components: int, root_concentration: float, concentration: float, infinite: bool = False
) -> float:
    """Log p(labels | paths) with all proportions integrated out, summed over the tables of every node (nats).

    With an infinite root that of the partition by component, of which the labels, below `components`, name the parts.
    """
    children: dict[int, set[int]] = {}
    for path in paths:
        for parent, node in zip((0, *path), path, strict=False):
            children.setdefault(parent, set()).add(node)

    def customers(node: int) -> dict[tuple[int, ...], float]:
        """Weight of each vector of customers of a node, by component."""
        if node not in children:
            counts = [0] * components
            for path, label in zip(paths, labels, strict=True):
                counts[label] += path[-1] == node
            return {tuple(counts): 1.0}
        found = {(0,) * components: 1.0}
        for child in children[node]:
            found = {
                total: sum(
                    weight * more
                    for before, weight in found.items()
                    for tables, more in seated(child).items()
                    if tuple(map(sum, zip(before, tables, strict=True))) == total
                )
                for total in {tuple(map(sum, zip(before, tables, strict=True))) for before in found for tables in seated(child)}
            }
        return found

    def seated(node: int) -> dict[tuple[int, ...], float]:
        """Weight of each vector of tables of a node: its customers of the parent."""
        weights: dict[tuple[int, ...], float] = {}
        for counts, weight in customers(node).items():
            n = sum(counts)
            normaliser = exp(lgamma(concentration) - lgamma(concentration + n))
            for tables in product(*(range(1, c + 1) if c else (0,) for c in counts)):
                ways = np.prod([stirling(c, t) for c, t in zip(counts, tables, strict=True)])
                weights[tables] = weights.get(tables, 0.0) + weight * ways * concentration ** sum(tables) * normaliser
        return weights

    share = root_concentration / components
    total = 0.0
    for counts, weight in customers(0).items():
        polya = lgamma(root_concentration) - lgamma(root_concentration + sum(counts))
        if infinite:
            polya += sum(log(root_concentration) + lgamma(c) for c in counts if c)
        else:
            polya += sum(lgamma(share + c) - lgamma(share) for c in counts)
        total += weight * exp(polya)
    return log(total)


def first_come(labels) -> tuple[int, ...]:
    """Labels renamed in order of appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(int(label), len(names)) for label in labels)


class HierarchyEnumeration:
    """Posterior of all states (tree, partition by component) of a few items, proportions and parameters integrated out."""

    def __init__(
        self,
        n: int,
        depth: int,
        components: int,
        alpha: float,
        root_concentration: float,
        concentration: float,
        log_marginal: Callable[[list[int]], float],
        max_nodes: int | None = None,
        infinite: bool = False,
    ) -> None:
        self.states: list[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]] = []
        joint = []
        blocks: dict[tuple[int, ...], float] = {}

        def likelihood(labels: tuple[int, ...]) -> float:
            total = 0.0
            for k in range(components):
                rows = tuple(i for i in range(n) if labels[i] == k)
                if rows and rows not in blocks:
                    blocks[rows] = float(log_marginal(list(rows)))
                total += blocks[rows] if rows else 0.0
            return total

        every = [z for z in product(range(components), repeat=n) if not infinite or z == first_come(z)]
        for tree in all_trees(n, depth):
            if max_nodes is not None and node_count(tree) > max_nodes:
                continue
            masses: dict[tuple[int, ...], list[float]] = {}
            for labels in every:
                weight = log_labels(tree, labels, components, root_concentration, concentration, infinite)
                weight += likelihood(labels)
                masses.setdefault(first_come(labels), []).append(weight)
            for partition, weights in masses.items():
                self.states.append((tree, partition))
                joint.append(log_nested_crp(tree, alpha) + np.logaddexp.reduce(weights))
        self.log_joint = np.array(joint)
        self.log_evidence = float(np.logaddexp.reduce(self.log_joint))
        self.probabilities = np.exp(self.log_joint - self.log_evidence)
        self.index = {state: i for i, state in enumerate(self.states)}

    def state_of(self, paths, labels) -> int:
        """Index of a draw, whatever its numbers."""
        return self.index[in_order_of_opening(paths.tolist()), first_come(labels)]

    @staticmethod
    def summaries(paths: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Of states, (s, n, depth) and (s, n): nodes, components, and the pairs in one branch, one leaf and one component."""
        levels = [*np.moveaxis(paths, -1, 0), labels]
        *nodes, components = (1 + (np.diff(np.sort(level, axis=1), axis=1) > 0).sum(1) for level in levels)
        n = labels.shape[1]
        pairs = [z[:, i] == z[:, j] for z in (levels[0], levels[-2], labels) for i in range(n) for j in range(i)]
        return np.column_stack([1 + sum(nodes), components, *pairs]).astype(float)

    def expected_summaries(self) -> np.ndarray:
        """Posterior means of the summaries."""
        paths, labels = (np.array(part) for part in zip(*self.states, strict=True))
        return self.probabilities @ self.summaries(paths, labels)
