"""A step of `PartitionGibbs`: one sweep, split-merge moves, and summaries of the resulting partition."""

from __future__ import annotations

import math

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import compiled, copy, integers, numbers, separate
from bnp_hier.native.mixtures import mixture_from
from bnp_hier.native.partitions import log_joint, renumber, slots_of
from bnp_hier.native.seats import Prior, join, leave, prior_of, seats_of, weigh
from bnp_hier.native.sorting import sort_by
from bnp_hier.native.split_merge import Move, split_or_merge
from bnp_hier.native.sweeps import sweep

__all__ = ["GIBBS_STEP", "SUMMARIES_OF"]

LOOKED_AT = 1024
"""Largest number of rows over which the truncated probability is averaged."""


@compiled
def _truncated_probability(mixture, prior, labels):
    """Mean probability of a new cluster that a full capacity rules out, over evenly spaced rows."""
    n, none = len(labels), np.empty(0)
    seats, looked_at, total = seats_of(mixture, labels, prior, none, none), min(n, LOOKED_AT), 0.0
    unlimited = Prior(prior.discount, prior.log_whole, prior.log_open, prior.slots + 1)
    for place in range(looked_at):
        item = int(place * (n - 1) / max(looked_at - 1, 1))
        slot = labels[item]
        if seats.counts[slot] > 1:  # a row alone in its cluster can stay there: nothing is truncated
            leave(mixture, seats, prior, item, slot)
            size, highest = weigh(mixture, seats, unlimited, item)
            every = 0.0
            for k in range(size):
                every += math.exp(seats.weights[k] - highest)
            total += math.exp(seats.weights[seats.state[2]] - highest) / every
            seats = join(mixture, seats, prior, item, slot)
    return total / looked_at


@separate
def _summarize(mixture, prior, labels, reals, whole):
    """Write the log joint and the entropy of the shares, and the numbers of clusters and of rows in the largest of them."""
    clusters = slots_of(labels)
    sizes, largest, entropy = np.zeros(clusters), 0.0, 0.0
    for label in labels:
        sizes[label] += 1
    for size in sizes:
        if size > 0:
            largest = max(largest, size)
            entropy -= size / len(labels) * math.log(size / len(labels))
            whole[0] += 1
    reals[0], reals[1] = log_joint(mixture, prior, labels, clusters), entropy
    whole[1] = int(largest)


def step_of_gibbs(table):
    """Make one step.

    Arguments: component, rows, labels, draws, prior, slots with number of moves and of scans. Results: labels; log joint,
    entropy of the shares and truncated probability; number of clusters, largest cluster, accepted moves and lacking slots. If a
    density is not finite, the log joint is NaN and some label is −1.
    """
    n, labels, draws = len(integers(table, 4)), integers(table, 8), numbers(table, 5)
    settings, counts, reals, whole = numbers(table, 6), integers(table, 7), numbers(table, 9), integers(table, 10)
    copy(integers(table, 4), labels)
    mixture, none = mixture_from(table, 0, 0), np.empty(0)
    prior, move = prior_of(settings, counts[0]), Move(n, counts[2])
    order = np.empty(n, np.int64)
    for i in range(n):
        order[i] = i
    sort_by(draws, order)
    seats = seats_of(mixture, labels, prior, none, none)
    _, refused, undefined = sweep(mixture, prior, seats, labels, order, draws[n : 2 * n], 1.0)
    size, accepted = 3 + (2 if move.scans < 0 else 3 + move.scans) * n, 0
    for turn in range(counts[1]):
        if not undefined:
            start = 2 * n + turn * size
            moved, lacked = split_or_merge(mixture, prior, labels, draws[start : start + size], move)
            accepted += moved
            refused += lacked
            undefined = labels.min() < 0
    clusters = renumber(labels)
    reals[0], reals[1], reals[2] = np.nan, 0.0, 0.0
    whole[0], whole[1], whole[2], whole[3] = 0, 0, accepted, refused
    if not undefined:
        _summarize(mixture, prior, labels, reals, whole)
        if clusters == prior.slots:
            reals[2] = _truncated_probability(mixture, prior, labels)


GIBBS_STEP = Kernel(step_of_gibbs, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1)


def summaries_of(table):
    """Summarise a partition.

    Arguments: component, rows, labels, prior. Results: log joint, entropy of the shares; number of clusters, largest cluster.
    """
    settings, whole = numbers(table, 5), integers(table, 7)
    whole[0] = 0
    _summarize(mixture_from(table, 0, 0), prior_of(settings, 0), integers(table, 4), numbers(table, 6), whole)


SUMMARIES_OF = Kernel(summaries_of, 1, 1, 1, 2, 1, 1, 1, 1)
