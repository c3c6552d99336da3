"""Split-merge moves with Metropolis-Hastings correction; the native form of `partitions.split_merge`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import compiled, copy, integers, numbers, separate
from bnp_hier.native.mixtures import cluster_statistics, log_marginals, mixture_from
from bnp_hier.native.seats import Prior, join, leave, prior_of, seats_of, weigh
from bnp_hier.native.sorting import sort_by

__all__ = ["SPLIT_MERGE", "Move", "split_or_merge"]


class Move(NamedTuple):
    """How a move is proposed: number of items in the partition, and of restricted Gibbs scans, −1 for sequential allocation."""

    seated: Any
    scans: Any


@compiled
def _scan(mixture, prior, sides, order, uniforms, given, seated):
    """Put the items of an order on side 0 or 1, one by one; return the log probability of all choices.

    If `given` is not empty, it has the sides to choose. If the items are `seated`, each first leaves its side.
    """
    none = np.empty(0)
    seats, total = seats_of(mixture, sides, prior, none, none), 0.0
    for t in range(len(order)):
        item = order[t]
        if seated:
            leave(mixture, seats, prior, item, sides[item])
        weigh(mixture, seats, prior, item)
        first, second = seats.weights[0], seats.weights[1]
        highest = max(first, second)
        norm = highest + math.log(math.exp(first - highest) + math.exp(second - highest))
        side = 1 if math.log1p(-uniforms[t]) <= second - norm else 0
        if len(given) > 0:
            side = given[item]
        sides[item] = side
        total += (second if side == 1 else first) - norm
        seats = join(mixture, seats, prior, item, side)
    return total


@separate
def split_or_merge(mixture, prior, labels, draws, move):
    """Make one move; labels change in place. Returns whether it was accepted, and whether a split found no free slot."""
    n, items = len(labels), move.seated
    thrown = move.scans >= 0
    scans = 1 + max(move.scans, 0)
    first = min(int(draws[0] * items), items - 1)
    other = (first + 1 + min(int(draws[1] * (items - 1)), items - 2)) % items
    one, two = labels[first], labels[other]
    splits = one == two
    # other items of the two clusters, in random order, on random sides or on none; −2 for all others
    order, sides, size, top = np.empty(n, np.int64), np.empty(n, np.int64), 0, 0
    for i in range(n):
        sides[i], top = -2, max(top, labels[i] + 1)
        if (labels[i] == one or labels[i] == two) and i != first and i != other:
            order[size] = i
            size += 1
            sides[i] = (1 if draws[3 + n + i] < 0.5 else 0) if thrown else -1
    order = order[:size]
    sort_by(draws[3:], order)
    sides[first], sides[other] = 0, 1
    replayed = np.empty(0 if splits else n, np.int64)
    for i in range(len(replayed)):
        replayed[i] = 1 if labels[i] == two else 0
    free_choice, log_proposal, pair = np.empty(0, np.int64), 0.0, Prior(prior.discount, prior.log_whole, prior.log_open, 2)
    for scan in range(scans):
        # for a merge, the last scan replays the split that it would undo
        given = replayed if scan == scans - 1 else free_choice
        start = 3 + (1 + scan + (1 if thrown else 0)) * n
        log_proposal = _scan(mixture, pair, sides, order, draws[start : start + size], given, thrown)

    row, stats, marginals = mixture.row, cluster_statistics(mixture, sides, 3), np.empty(3)
    for t in range(row):
        stats[2 * row + t] = stats[t] + stats[row + t]
    log_marginals(mixture, stats, 3, marginals)
    for side in range(3):
        if not marginals[side] < np.inf:  # a NaN would otherwise look like an ordinary rejection
            labels[first], labels[other] = -1, -1
            return False, False
    occupied, clusters, sizes = np.zeros(top + 1, np.int64), 0, np.zeros(2)
    for i in range(n):
        if labels[i] >= 0:
            occupied[labels[i]] = 1
        if sides[i] >= 0:
            sizes[sides[i]] += 1
    for k in range(top):
        clusters += occupied[k]
    merged = clusters if splits else clusters - 1
    discount = prior.discount
    log_ratio = (
        prior.log_open[merged - 1]
        + math.lgamma(sizes[0] - discount)
        + math.lgamma(sizes[1] - discount)
        - math.lgamma(sizes[0] + sizes[1] - discount)
        - math.lgamma(1.0 - discount)
        + marginals[0]
        + marginals[1]
        - marginals[2]
        - log_proposal
    )
    refused = splits and clusters == prior.slots
    if refused or not math.log1p(-draws[2]) <= (log_ratio if splits else -log_ratio):
        return False, refused
    free = 0
    while occupied[free] == 1:
        free += 1
    for i in range(n):
        if splits and sides[i] == 1:
            labels[i] = free
        elif not splits and labels[i] == two:
            labels[i] = one
    return True, False


def move_once(table):
    """Make one split-merge move.

    Arguments: component, rows, labels, draws, prior, slots with number of items and of scans. Results: labels, whether the
    move was accepted, whether a slot was lacking.
    """
    labels, settings, counts = integers(table, 8), numbers(table, 6), integers(table, 7)
    copy(integers(table, 4), labels)
    mixture = mixture_from(table, 0, 0)
    prior, move = prior_of(settings, counts[0]), Move(counts[1], counts[2])
    accepted, refused = split_or_merge(mixture, prior, labels, numbers(table, 5), move)
    integers(table, 9)[0], integers(table, 10)[0] = accepted, refused


SPLIT_MERGE = Kernel(move_once, 1, 1, 1, 2, 1, 1, 1, 1, 1, 0, 0)
