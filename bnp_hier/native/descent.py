"""Searches for a probable partition: descents by single rows, merges of two clusters, and annealed sweeps."""

from __future__ import annotations

import math

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import copy, integers, numbers
from bnp_hier.native.mixtures import cluster_statistics, features, joined, log_marginals, mixture_from
from bnp_hier.native.partitions import log_joint, renumber, slots_of
from bnp_hier.native.seats import prior_of, seats_of
from bnp_hier.native.sorting import sort_by
from bnp_hier.native.sweeps import sweep

__all__ = ["ANNEAL", "DESCEND", "MERGE_PAIR"]

LEAST_GAIN = 1e-9
"""Gain of a merge, relative to the log marginals, below which it is taken for a rounding error."""


def descend(table):
    """Make sweeps in a fixed order until one brings no gain.

    Arguments: component, rows, labels (−1 for a row without a cluster), order, prior with the log joint before (NaN if
    unknown), slots. Results: labels in order of appearance; log joint after every sweep, as many as there is room for; number
    of sweeps, whether the last one brought no gain, and whether a density was not finite, so that some label is −1.
    """
    labels, settings, trace, state = integers(table, 8), numbers(table, 6), numbers(table, 9), integers(table, 10)
    copy(integers(table, 4), labels)
    mixture, none = mixture_from(table, 0, 1), np.empty(0)
    prior, before = prior_of(settings, integers(table, 7)[0]), settings[2]
    old, sweeps, gained = np.empty(len(labels), np.int64), 0, True
    while gained and sweeps < len(trace):
        copy(labels, old)
        seats = seats_of(mixture, labels, prior, none, none)
        _, _, undefined = sweep(mixture, prior, seats, labels, integers(table, 5), none, 1.0)
        if undefined:
            state[2] = 1
            return
        moved = False
        for i in range(len(labels)):
            moved = moved or labels[i] != old[i]
        reached = log_joint(mixture, prior, labels, slots_of(labels))
        # rows that fit two clusters equally well could move back and forth forever
        gained = moved and not reached <= before
        trace[sweeps], before, sweeps = reached, reached, sweeps + 1
    renumber(labels)
    state[0], state[1] = sweeps, not gained


DESCEND = Kernel(descend, 1, 1, 1, 2, 1, 1, 1, 0, 1, 1, 1)


def merge_pair(table):
    """Merge the two clusters whose union increases the log joint most, if any does.

    Arguments: component, rows, labels, prior. Results: labels; whether two were merged, and whether a density was not finite,
    so that the rows of both clusters have label −1.
    """
    labels, settings, state = integers(table, 6), numbers(table, 5), integers(table, 7)
    copy(integers(table, 4), labels)
    mixture = mixture_from(table, 0, 1)
    row, k, prior = mixture.row, slots_of(labels), prior_of(settings, 0)
    stats, sizes, marginals = cluster_statistics(mixture, labels, k), np.zeros(k), np.empty(k)
    log_marginals(mixture, stats, k, marginals)
    for label in labels:
        sizes[label] += 1
    columns, ones, clusters, total = np.empty(row * k), np.empty(row * k), 0, 0.0
    for cluster in range(k):
        one = ones[cluster * row : (cluster + 1) * row]
        features(mixture, stats[cluster * row : (cluster + 1) * row], one)
        for t in range(row):
            columns[t * k + cluster] = one[t]
        clusters += sizes[cluster] > 0
        total += marginals[cluster]
    discount = prior.discount
    opening = (prior.log_open[clusters - 2] if clusters > 1 else 0.0) - math.lgamma(1.0 - discount)
    best, first, second, unions = -np.inf, 0, 0, np.empty(k)
    for one in range(k):
        for other in range(one + 1, k):
            unions[other] = 0.0
        at = columns.ctypes.data + 8 * (one + 1)
        joined(mixture, at, k, k - one - 1, ones[one * row :], unions.ctypes.data + 8 * (one + 1))
        for other in range(one + 1, k):
            if sizes[one] > 0 and sizes[other] > 0:
                apart = marginals[one] + math.lgamma(sizes[one] - discount) + marginals[other]
                apart += math.lgamma(sizes[other] - discount) + opening
                gain = unions[other] + math.lgamma(sizes[one] + sizes[other] - discount) - apart
                if not gain <= best and best < np.inf:
                    best, first, second = gain if gain == gain else np.inf, one, other
    state[0], state[1] = LEAST_GAIN * abs(total) < best < np.inf, best == np.inf
    for i in range(len(labels)):
        if state[1] and (labels[i] == first or labels[i] == second):
            labels[i] = -1
        elif state[0] and labels[i] == second:
            labels[i] = first


MERGE_PAIR = Kernel(merge_pair, 1, 1, 1, 2, 1, 1, 1, 1)


def anneal(table):
    """Make Gibbs sweeps at given temperatures.

    Arguments: component, rows, labels, uniforms (for every sweep 2n: for the order of the rows, and for the rows),
    temperatures, prior, slots. Results: labels, −1 where a density is not finite.
    """
    labels, temperatures, settings, n = integers(table, 9), numbers(table, 6), numbers(table, 7), len(integers(table, 4))
    copy(integers(table, 4), labels)
    mixture, none, order = mixture_from(table, 0, 0), np.empty(0), np.empty(n, np.int64)
    prior, undefined = prior_of(settings, integers(table, 8)[0]), False
    for turn in range(len(temperatures)):
        if not undefined:
            draws = numbers(table, 5)[2 * n * turn : 2 * n * (turn + 1)]
            for i in range(n):
                order[i] = i
            sort_by(draws, order)
            seats = seats_of(mixture, labels, prior, none, none)
            _, _, undefined = sweep(mixture, prior, seats, labels, order, draws[n:], 1.0 / temperatures[turn])


ANNEAL = Kernel(anneal, 1, 1, 1, 2, 1, 1, 1, 1, 0, 1)
