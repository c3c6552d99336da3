"""MAP-DP in plain Python: every move scored from log marginal likelihoods of index lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

from tests.oracles.partitions import log_prior

LogMarginal = Callable[[list[int]], float]


def joint(labels: Sequence[int], log_marginal: LogMarginal, alpha: float, discount: float = 0.0) -> float:
    """Log p(X, partition) (nats)."""
    names = list(dict.fromkeys(labels))
    clusters = [[i for i, label in enumerate(labels) if label == name] for name in names]
    canonical = tuple(names.index(label) for label in labels)
    return log_prior(canonical, alpha, discount) + sum(log_marginal(rows) for rows in clusters)


def scores(item: int, clusters: list[list[int]], log_marginal: LogMarginal, alpha: float, discount: float = 0.0) -> list[float]:
    """Log weight of putting an item that sits nowhere into each slot: −inf for free slots but the first (nats)."""
    occupied = sum(bool(rows) for rows in clusters)
    out, opened = [], False
    for rows in clusters:
        if rows:
            out.append(math.log(len(rows) - discount) + log_marginal([*rows, item]) - log_marginal(rows))
        elif not opened:
            opened = True
            out.append((math.log(alpha + occupied * discount) if occupied else 0.0) + log_marginal([item]))
        else:
            out.append(-math.inf)
    return out


def map_dp(
    order: Sequence[int],
    log_marginal: LogMarginal,
    alpha: float,
    discount: float = 0.0,
    max_sweeps: int = 100,
) -> tuple[list[int], list[float]]:
    """Labels in order of appearance, and the log joint after each sweep, from an empty table; the first maximum wins."""
    n = len(order)
    clusters: list[list[int]] = [[] for _ in range(n)]
    where: list[int] = [-1] * n
    trace: list[float] = []
    for _ in range(max_sweeps):
        before = list(where)
        for item in order:
            if where[item] >= 0:
                clusters[where[item]].remove(item)
            weights = scores(item, clusters, log_marginal, alpha, discount)
            where[item] = weights.index(max(weights))
            clusters[where[item]].append(item)
        trace.append(joint(where, log_marginal, alpha, discount))
        if where == before:
            break
    names = list(dict.fromkeys(where))
    return [names.index(label) for label in where], trace


def best_single_move(labels: Sequence[int], log_marginal: LogMarginal, alpha: float, discount: float = 0.0) -> float:
    """Largest log joint among all partitions that differ from the given one in the place of one item (nats)."""
    best = -math.inf
    for item in range(len(labels)):
        for target in {*labels, max(labels) + 1} - {labels[item]}:
            moved = list(labels)
            moved[item] = target
            best = max(best, joint(moved, log_marginal, alpha, discount))
    return best


def best_merge(labels: Sequence[int], log_marginal: LogMarginal, alpha: float, discount: float = 0.0) -> float:
    """Largest log joint among all partitions that join two clusters of the given one (nats)."""
    return max(
        (
            joint([a if label == b else label for label in labels], log_marginal, alpha, discount)
            for a, b in combinations(sorted(set(labels)), 2)
        ),
        default=-math.inf,
    )
