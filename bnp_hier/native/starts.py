"""Partitions without a predecessor: draws from the prior, and greedy ones."""

from __future__ import annotations

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import compiled, integers, numbers, separate
from bnp_hier.native.mixtures import mixture_from
from bnp_hier.native.partitions import renumber
from bnp_hier.native.seats import prior_of, seats_of
from bnp_hier.native.sorting import sort_by
from bnp_hier.native.sweeps import sweep

__all__ = ["SEAT_ALL", "SEAT_GREEDILY"]


@compiled
def _grown(counts):
    longer = np.zeros(2 * len(counts))
    for k in range(len(counts)):
        longer[k] = counts[k]
    return longer


def seat_all(table):
    """Seat customers one at a time at the tables of a restaurant.

    Arguments: uniforms, α and δ, largest number of tables. Result: tables.
    """
    uniforms, settings, slots, labels = numbers(table, 0), numbers(table, 1), integers(table, 2)[0], integers(table, 3)
    counts, tables = np.zeros(8), 0
    for i in range(len(labels)):
        # the first customer always opens a table
        opening = settings[0] + tables * settings[1] if tables > 0 else 1.0
        total = 0.0
        for k in range(tables):
            total += counts[k] - settings[1]
        target, upto, label = uniforms[i] * (total + (opening if tables < slots else 0.0)), 0.0, tables
        for k in range(tables):
            upto += counts[k] - settings[1]
            if target < upto:
                label = k
                break
        if label == tables and tables == slots:  # by rounding
            label = tables - 1
        if label == tables:
            tables += 1
            if tables == len(counts):
                counts = _grown(counts)
        counts[label] += 1
        labels[i] = label


SEAT_ALL = Kernel(seat_all, 1, 1, 0, 1)


@separate
def _seat_greedily(mixture, prior, uniforms, sweeps, labels):
    order, none = np.empty(len(labels), np.int64), np.empty(0)
    for i in range(len(labels)):
        order[i], labels[i] = i, -1
    sort_by(uniforms, order)
    seats, undefined = seats_of(mixture, labels, prior, none, none), False
    for _ in range(sweeps):
        if not undefined:
            seats, _, undefined = sweep(mixture, prior, seats, labels, order, none, 1.0)
    renumber(labels)


def seat_greedily(table):
    """Seat the rows in random order, each in its most probable cluster, and visit them again.

    Arguments: component, rows, uniforms, prior, largest number of clusters and number of sweeps. Result: labels.
    """
    settings, whole = numbers(table, 5), integers(table, 6)
    prior = prior_of(settings, whole[0])
    _seat_greedily(mixture_from(table, 0, 0), prior, numbers(table, 4), whole[1], integers(table, 7))


SEAT_GREEDILY = Kernel(seat_greedily, 1, 1, 1, 2, 1, 1, 1, 1)
