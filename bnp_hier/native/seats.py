"""Clusters that rows leave and join one at a time; the same conditionals as in `partitions.seats`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.drawing import index_at
from bnp_hier.native.memory import compiled, copy, hold, separate
from bnp_hier.native.mixtures import cluster_statistics, predict, refresh, update

__all__ = ["Prior", "Seats", "draw", "join", "leave", "prior_of", "seats_of", "weigh"]


class Prior(NamedTuple):
    """Partition prior of Gibbs type.

    - **discount** - σ.
    - **log_whole** - log V(n, 1).
    - **log_open** - log weights with which a row opens a cluster, given 1, 2, ... clusters of the others.
    - **slots** - the largest number of clusters.
    """

    discount: Any
    log_whole: Any
    log_open: Any
    slots: Any


@compiled
def prior_of(settings, slots):
    """Read σ, log V(n, 1), a number that is not of the prior, and the log weights of a new cluster."""
    return Prior(settings[0], settings[1], settings[3:], slots)


class Seats(NamedTuple):
    """Clusters in slots; there is room for a few more than have been used, and more is made when needed.

    - **counts** - sizes.
    - **log_counts** - log(n_k − δ), −inf where empty.
    - **caches** - caches, one after another; that of an empty slot is that of the empty cluster.
    - **empty** - cache of an empty cluster.
    - **weights** - log weights of the row that is weighed.
    - **state** - number of slots up to the last occupied one, number of occupied slots, and first free slot.
    """

    counts: Any
    log_counts: Any
    caches: Any
    empty: Any
    weights: Any
    state: Any


TOP, OCCUPIED, FREE = range(3)


@compiled
def _room(mixture, room, empty):
    counts, log_counts, caches = np.empty(room), np.empty(room), np.empty(room * mixture.cache)
    for k in range(room):
        counts[k], log_counts[k] = 0.0, -np.inf
        copy(empty, caches[k * mixture.cache :])
    return counts, log_counts, caches


@separate
def seats_of(mixture, labels, prior, stats, sizes):
    """Build the clusters from labels, −1 for rows without a cluster; `stats` and `sizes` are those of further rows by slot."""
    top = len(sizes)
    for i in range(len(labels)):
        top = max(top, labels[i] + 1)
    empty, nothing = np.empty(mixture.cache), np.zeros(mixture.row)
    refresh(mixture, nothing.ctypes.data, empty.ctypes.data)
    hold(nothing)
    counts, log_counts, caches = _room(mixture, top + 8, empty)
    own = cluster_statistics(mixture, labels, top)
    for i in range(len(labels)):
        if labels[i] >= 0:
            counts[labels[i]] += 1
    for k in range(len(sizes)):
        counts[k] += sizes[k]
        for t in range(mixture.row):
            own[k * mixture.row + t] += stats[k * mixture.row + t]
    state = np.zeros(3, np.int64)
    for k in range(top):
        if counts[k] > 0:
            state[TOP], state[OCCUPIED] = k + 1, state[OCCUPIED] + 1
            log_counts[k] = math.log(counts[k] - prior.discount)
            refresh(mixture, own.ctypes.data + 8 * k * mixture.row, caches.ctypes.data + 8 * k * mixture.cache)
    while counts[state[FREE]] > 0:
        state[FREE] += 1
    return Seats(counts, log_counts, caches, empty, np.empty(len(counts)), state)


@compiled
def _grown(mixture, seats):
    """Make room for twice as many clusters."""
    old = len(seats.counts)
    counts, log_counts, caches = _room(mixture, 2 * old, seats.empty)
    copy(seats.counts, counts)
    copy(seats.log_counts, log_counts)
    copy(seats.caches, caches)
    return Seats(counts, log_counts, caches, seats.empty, np.empty(2 * old), seats.state)


@compiled
def leave(mixture, seats, prior, item, slot):
    """Remove a row from its slot."""
    left, cache = seats.counts[slot] - 1, mixture.cache
    seats.counts[slot] = left
    if left > 0:
        seats.log_counts[slot] = math.log(left - prior.discount)
        row = mixture.rows.ctypes.data + 8 * item * mixture.row
        update(mixture, seats.caches.ctypes.data + 8 * slot * cache, row, -1.0)
        return
    # reset exactly, without rounding errors
    seats.log_counts[slot] = -np.inf
    copy(seats.empty, seats.caches[slot * cache :])
    seats.state[OCCUPIED] -= 1
    seats.state[FREE] = min(seats.state[FREE], slot)
    while seats.state[TOP] > 0 and seats.counts[seats.state[TOP] - 1] == 0:
        seats.state[TOP] -= 1


@compiled
def weigh(mixture, seats, prior, item):
    """Compute the log weights of a row for the slots; return how many there are, and the largest weight.

    The first free slot stands for a new cluster, unless all `prior.slots` are occupied. The largest weight is NaN if the
    weights are not those of a distribution.
    """
    occupied, free = seats.state[OCCUPIED], seats.state[FREE]
    opens = occupied < prior.slots
    size = max(seats.state[TOP], free + 1) if opens else seats.state[TOP]
    weights = seats.weights
    for k in range(size):
        if seats.counts[k] > 0:
            weights[k] = seats.log_counts[k]
        elif k == free and opens:
            # the first row always opens a cluster
            weights[k] = prior.log_open[occupied - 1] if occupied > 0 else 0.0
        else:
            weights[k] = -np.inf
    row = mixture.rows.ctypes.data + 8 * item * mixture.row
    predict(mixture, seats.caches.ctypes.data, size, row, weights.ctypes.data)
    highest = -np.inf
    for k in range(size):
        if not weights[k] < np.inf:
            return size, np.nan
        highest = max(highest, weights[k])
    return size, highest if highest > -np.inf else np.nan


@compiled
def draw(seats, size, highest, uniform, inverse_temperature):
    """Draw a slot with probability proportional to exp(weight / temperature), by inversion; overwrites the weights."""
    weights, total = seats.weights, 0.0
    for k in range(size):
        weights[k] = math.exp((weights[k] - highest) * inverse_temperature)
        total += weights[k]
    return index_at(weights, size, total, uniform)


@compiled
def best(seats, size, highest):
    """First slot with the largest weight."""
    for k in range(size):
        if seats.weights[k] == highest:
            return k
    return 0


@compiled
def join(mixture, seats, prior, item, slot):
    """Add a row to a slot; return the clusters, which may have been moved to make room."""
    if slot + 1 >= len(seats.counts):
        seats = _grown(mixture, seats)
    seats.counts[slot] += 1
    seats.log_counts[slot] = math.log(seats.counts[slot] - prior.discount)
    row = mixture.rows.ctypes.data + 8 * item * mixture.row
    update(mixture, seats.caches.ctypes.data + 8 * slot * mixture.cache, row, 1.0)
    if seats.counts[slot] == 1:
        seats.state[OCCUPIED] += 1
        seats.state[TOP] = max(seats.state[TOP], slot + 1)
        while seats.counts[seats.state[FREE]] > 0:
            seats.state[FREE] += 1
    return seats
