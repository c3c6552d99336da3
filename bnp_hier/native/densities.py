"""Densities of rows and of clusters, and sufficient statistics."""

from __future__ import annotations

import math

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import copy, integers, numbers, separate
from bnp_hier.native.mixtures import cluster_statistics, log_marginals, mixture_from, mixture_of, predict, refresh
from bnp_hier.native.partitions import log_joint, slots_of
from bnp_hier.native.seats import join, leave, prior_of, seats_of, weigh

__all__ = ["JOINT", "MARGINALS_OF", "PREDICTIVES", "ROWS_OF", "ROW_DENSITIES"]


def rows_of(table):
    """Arguments: component, rows. Result: the statistics of every row."""
    copy(mixture_from(table, 0, 0).rows, numbers(table, 4))


ROWS_OF = Kernel(rows_of, 1, 1, 1, 2, 2)


def joint(table):
    """Arguments: component, rows, labels, prior. Results: statistics of the clusters, log joint."""
    labels, settings, stats = integers(table, 4), numbers(table, 5), numbers(table, 6)
    mixture, k = mixture_from(table, 0, 0), slots_of(integers(table, 4))
    copy(cluster_statistics(mixture, labels, k), stats)
    numbers(table, 7)[0] = log_joint(mixture, prior_of(settings, k), labels, k)


JOINT = Kernel(joint, 1, 1, 1, 2, 1, 1, 2, 0)


def marginals_of(table):
    """Arguments: component, no rows, statistics of clusters, largest number of rows in a cluster. Result: log marginals."""
    found = numbers(table, 6)
    log_marginals(mixture_from(table, integers(table, 5)[0], 0), numbers(table, 4), len(found), found)


MARGINALS_OF = Kernel(marginals_of, 1, 1, 1, 2, 2, 0, 1)


def predictives(table):
    """Arguments: component, rows, statistics of clusters, largest number of rows in a cluster. Result: the log predictive
    density of every row in every cluster.
    """
    stats, found, most = numbers(table, 4), numbers(table, 6), integers(table, 5)[0]
    mixture = mixture_from(table, most, 0)
    k = len(stats) // mixture.row
    caches = np.empty(k * mixture.cache)
    for cluster in range(k):
        at = stats.ctypes.data + 8 * cluster * mixture.row
        refresh(mixture, at, caches.ctypes.data + 8 * cluster * mixture.cache)
    for i in range(len(found)):
        found[i] = 0.0
    for i in range(mixture.n):
        row = mixture.rows.ctypes.data + 8 * i * mixture.row
        predict(mixture, caches.ctypes.data, k, row, found.ctypes.data + 8 * i * k)


PREDICTIVES = Kernel(predictives, 1, 1, 1, 2, 2, 0, 2)


def row_densities(table):
    """Arguments: component, rows, labels, prior, prior of one more row, largest number of clusters, new rows. Results: log
    joint; log predictive density of every row given all others and their labels, and of every new row.
    """
    labels, settings, new = integers(table, 4), numbers(table, 5), numbers(table, 8)
    left_out, found = numbers(table, 10), numbers(table, 11)
    mixture, none, n = mixture_from(table, 0, 0), np.empty(0), len(labels)
    prior, slots = prior_of(settings, integers(table, 7)[0]), slots_of(labels)
    numbers(table, 9)[0] = log_joint(mixture, prior, labels, slots)
    seats = seats_of(mixture, labels, prior, none, none)
    for i in range(len(left_out)):
        leave(mixture, seats, prior, i, labels[i])
        left_out[i] = _log_density(mixture, seats, prior, i, n - 1)
        seats = join(mixture, seats, prior, i, labels[i])
    if len(found) > 0:
        others = mixture_of(integers(table, 0), integers(table, 1), numbers(table, 2), new, n, 0)
        again, further = seats_of(mixture, labels, prior, none, none), prior_of(numbers(table, 6), prior.slots)
        for i in range(len(found)):
            found[i] = _log_density(others, again, further, i, n)


@separate
def _log_density(mixture, seats, prior, item, n):
    """Log density of a row given n others, with its label summed out."""
    size, highest = weigh(mixture, seats, prior, item)
    occupied, total = seats.state[1], 0.0
    for k in range(size):
        total += math.exp(seats.weights[k] - highest)
    opening = math.exp(prior.log_open[occupied - 1]) if occupied < prior.slots else 0.0
    return highest + math.log(total) - math.log(n - occupied * prior.discount + opening)


ROW_DENSITIES = Kernel(row_densities, 1, 1, 1, 2, 1, 1, 1, 0, 2, 0, 1, 1)
