"""Particles of `evidence.smc`: partitions of the rows seen so far, which rows join one at a time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import compiled, copy, integers, numbers, separate
from bnp_hier.native.mixtures import mixture_from
from bnp_hier.native.seats import Seats, draw, join, leave, prior_of, seats_of, weigh
from bnp_hier.native.split_merge import Move, split_or_merge

__all__ = ["EXTEND", "MOVE_PARTICLES", "SWEEP_PARTICLES"]


class Cloud(NamedTuple):
    """Clusters of all particles: the fields of `Seats` for one particle after another, with room for `room` clusters each."""

    counts: Any
    log_counts: Any
    caches: Any
    weights: Any
    state: Any
    room: Any


@separate
def _cloud(room, particles, cache):
    counts, log_counts = np.empty(particles * room), np.empty(particles * room)
    caches, weights = np.empty(particles * room * cache), np.empty(particles * room)
    return Cloud(counts, log_counts, caches, weights, np.empty(3 * particles, np.int64), room)


@compiled
def _view(cloud, empty, particle):
    """The clusters of a particle."""
    first, last, cache = particle * cloud.room, (particle + 1) * cloud.room, len(empty)
    return Seats(
        cloud.counts[first:last],
        cloud.log_counts[first:last],
        cloud.caches[first * cache : last * cache],
        empty,
        cloud.weights[first:last],
        cloud.state[3 * particle : 3 * particle + 3],
    )


@separate
def _put(cloud, empty, particle, seats):
    """Copy the clusters of one particle to another, which has room for at least as many."""
    target = _view(cloud, empty, particle)
    size = min(cloud.room, len(seats.counts))
    copy(seats.counts[:size], target.counts)
    copy(seats.log_counts[:size], target.log_counts)
    copy(seats.caches[: size * len(empty)], target.caches)
    copy(seats.state, target.state)
    for k in range(size, cloud.room):
        target.counts[k], target.log_counts[k] = 0.0, -np.inf
        copy(empty, target.caches[k * len(empty) :])


@compiled
def _log_sum(values, factor):
    highest, total = -np.inf, 0.0
    for value in values:
        highest = max(highest, value)
    for value in values:
        total += math.exp(factor * (value - highest))
    return factor * highest + math.log(total)


@compiled
def _chosen(log_weights, uniform, parents):
    """Systematic resampling: the expected number of copies of a particle is proportional to its weight."""
    size, total, upto, parent = len(log_weights), _log_sum(log_weights, 1.0), 0.0, 0
    upto = math.exp(log_weights[0] - total)
    for place in range(size):
        while parent < size - 1 and upto < (place + uniform) / size:
            parent += 1
            upto += math.exp(log_weights[parent] - total)
        parents[place] = parent


def extend(table):
    """Let rows join the clusters of every particle, one row at a time, and resample the particles when their weights differ
    much.

    Arguments: component, rows, labels (particles, n; −1 for rows not seen yet), log weights, prior with the threshold of the
    effective sample size, slots with the first row and the one after the last, uniforms (rows, particles), and one for each row
    in case of resampling. Results: labels, log weights, increase of the log evidence, whether a slot was lacking and whether a
    density was not finite.
    """
    settings, counts, uniforms, spins = numbers(table, 6), integers(table, 7), numbers(table, 8), numbers(table, 9)
    labels, log_weights, state = integers(table, 10), numbers(table, 11), integers(table, 13)
    copy(integers(table, 4), labels)
    copy(numbers(table, 5), log_weights)
    mixture, none = mixture_from(table, 0, 0), np.empty(0)
    particles, n, prior = len(log_weights), mixture.n, prior_of(settings, counts[0])
    cloud, parents, evidence = _cloud(8, particles, mixture.cache), np.empty(particles, np.int64), 0.0
    empty = seats_of(mixture, labels[:0], prior, none, none).empty
    for p in range(particles):
        seats = seats_of(mixture, labels[p * n : (p + 1) * n], prior, none, none)
        while seats.state[0] + 4 > cloud.room:
            cloud = _grown(cloud, empty, p)
        _put(cloud, empty, p, seats)
    for row in range(counts[1], counts[2]):
        for p in range(particles):
            while cloud.state[3 * p] + 4 > cloud.room:
                cloud = _grown(cloud, empty, particles)
        for p in range(particles):
            seats = _view(cloud, empty, p)
            size, highest = weigh(mixture, seats, prior, row)
            if not highest == highest:
                state[1] = 1
                return
            if seats.state[1] == prior.slots:
                state[0] = 1
            total = 0.0
            for k in range(size):
                total += math.exp(seats.weights[k] - highest)
            # p(row | earlier rows, partition), up to the denominator of the seating probabilities
            log_weights[p] += highest + math.log(total)
        every = _log_sum(log_weights, 1.0)
        poor = 2 * every - _log_sum(log_weights, 2.0) < math.log(particles * settings[2])
        if poor:
            _chosen(log_weights, spins[row - counts[1]], parents)
            old, before = labels.copy(), cloud
            cloud = _cloud(before.room, particles, mixture.cache)
            for p in range(particles):
                _put(cloud, empty, p, _view(before, empty, parents[p]))
                copy(old[parents[p] * n : (parents[p] + 1) * n], labels[p * n :])
                log_weights[p] = 0.0
            # the mean weight becomes a factor of the estimate; afterwards all weights are 1
            evidence += every - math.log(particles)
        for p in range(particles):
            seats = _view(cloud, empty, p)
            size, highest = weigh(mixture, seats, prior, row)
            slot = draw(seats, size, highest, uniforms[(row - counts[1]) * particles + p], 1.0)
            labels[p * n + row] = slot
            join(mixture, seats, prior, row, slot)
    numbers(table, 12)[0] = evidence


@separate
def _grown(cloud, empty, used):
    """Make room for twice as many clusters, and keep those of the first particles."""
    particles = len(cloud.state) // 3
    larger = _cloud(2 * cloud.room, particles, len(empty))
    for p in range(used):
        _put(larger, empty, p, _view(cloud, empty, p))
    return larger


EXTEND = Kernel(extend, 1, 1, 1, 2, 2, 1, 1, 1, 2, 1, 2, 1, 0, 1)


def move_particles(table):
    """Make one split-merge move of every particle.

    Arguments: component, rows, labels (particles, n), draws (particles, ...), prior, slots with the number of seated rows.
    Results: labels, whether a slot was lacking and whether a density was not finite.
    """
    draws, settings, counts = numbers(table, 5), numbers(table, 6), integers(table, 7)
    labels, state = integers(table, 8), integers(table, 9)
    copy(integers(table, 4), labels)
    mixture = mixture_from(table, 0, 0)
    n, prior, move = mixture.n, prior_of(settings, counts[0]), Move(counts[1], -1)
    particles = len(labels) // n
    each = len(draws) // particles
    for p in range(particles):
        own = labels[p * n : (p + 1) * n]
        _, refused = split_or_merge(mixture, prior, own, draws[p * each : (p + 1) * each], move)
        if refused:
            state[0] = 1
        for i in range(counts[1]):
            if own[i] < 0:
                state[1] = 1


MOVE_PARTICLES = Kernel(move_particles, 1, 1, 1, 2, 2, 2, 1, 1, 2, 1)


def sweep_particles(table):
    """Make a Gibbs sweep over the seated rows of every particle, in their order.

    Arguments: component, rows, labels (particles, n), uniforms (particles, n), prior, slots with the number of seated rows.
    Results: labels, whether a slot was lacking and whether a density was not finite.
    """
    uniforms, settings, counts = numbers(table, 5), numbers(table, 6), integers(table, 7)
    labels, state = integers(table, 8), integers(table, 9)
    copy(integers(table, 4), labels)
    mixture, none = mixture_from(table, 0, 0), np.empty(0)
    n, prior = mixture.n, prior_of(settings, counts[0])
    for p in range(len(labels) // n):
        own = labels[p * n : (p + 1) * n]
        seats = seats_of(mixture, own, prior, none, none)
        for item in range(counts[1]):
            leave(mixture, seats, prior, item, own[item])
            size, highest = weigh(mixture, seats, prior, item)
            if not highest == highest:
                state[1] = 1
                return
            if seats.state[1] == prior.slots:
                state[0] = 1
            own[item] = draw(seats, size, highest, uniforms[p * n + item], 1.0)
            seats = join(mixture, seats, prior, item, own[item])


SWEEP_PARTICLES = Kernel(sweep_particles, 1, 1, 1, 2, 2, 2, 1, 1, 2, 1)
