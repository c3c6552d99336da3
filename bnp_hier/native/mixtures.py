"""A mixture inside a kernel: the parts of its component, the statistics of the rows, and densities of clusters.

A component is a list of parts, each a family with its own columns; statistics and caches of the parts follow one another, and
log densities are the sums over parts. A kernel gets a component as four arrays, see `components.native`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.families.operations import (
    FEATURES,
    JOINED,
    LENGTHS,
    MARGINALS,
    NUMBER,
    PREDICT,
    PREPARE,
    REFRESH,
    ROWS,
    SIZE,
    UPDATE,
    call_features,
    call_joined,
    call_lengths,
    call_marginals,
    call_predict,
    call_prepare,
    call_refresh,
    call_rows,
    call_size,
    call_update,
    operation,
)
from bnp_hier.native.memory import compiled, integers, numbers, separate

__all__ = [
    "Mixture",
    "cluster_statistics",
    "features",
    "joined",
    "log_marginals",
    "mixture_from",
    "mixture_of",
    "predict",
    "refresh",
    "update",
]

# fields of a part, followed by the addresses of its operations
D, WORK, ROW, CACHE, FIRST = range(5)


class Mixture(NamedTuple):
    """A component and rows.

    - **parts** - for every part: number of columns, where its work, statistics and cache begin, and the addresses of its
      operations.
    - **work** - what the families computed from their hyperparameters.
    - **rows** - statistics of the rows, one row after another.
    - **row**, **cache** - lengths of the statistics and of the cache of a cluster.
    - **n** - number of rows.
    """

    parts: Any
    work: Any
    rows: Any
    row: Any
    cache: Any
    n: Any


@compiled
def mixture_of(spec, columns, constants, X, most, tabulate):
    """Prepare a component and the statistics of the rows.

    Parameters
    ----------
    spec
        For every part: number of the family, number of columns, and number of constants.
    columns, constants
        Columns and hyperparameters of all parts, one part after another.
    X
        The rows, one after another.
    most
        Number of further rows that a cluster may have.
    tabulate
        1 if log marginals of many clusters will be computed, otherwise 0.
    """
    count, d = len(spec) // 3, len(columns)
    n = len(X) // d
    parts = np.empty((count, FIRST + NUMBER), np.int64)
    lengths = np.zeros(2, np.int64)
    row = cache = 0
    for p in range(count):
        for place in range(NUMBER):
            parts[p, FIRST + place] = operation(spec[3 * p], place)
        parts[p, D], parts[p, ROW], parts[p, CACHE] = spec[3 * p + 1], row, cache
        call_lengths(parts[p, FIRST + LENGTHS], parts[p, D], lengths.ctypes.data)
        row += lengths[0]
        cache += lengths[1]
    rows, total = np.empty(n * row), np.zeros(row)
    at_columns = at_constants = 0
    for p in range(count):
        call_rows(
            parts[p, FIRST + ROWS],
            constants.ctypes.data + 8 * at_constants,
            parts[p, D],
            X.ctypes.data,
            d,
            columns.ctypes.data + 8 * at_columns,
            n,
            rows.ctypes.data + 8 * parts[p, ROW],
            row,
        )
        at_columns += parts[p, D]
        at_constants += spec[3 * p + 2]
    for i in range(n):
        for t in range(row):
            total[t] += rows[i * row + t] * (1 + (most + n - 1) // max(n, 1))
    size = at_constants = 0
    for p in range(count):
        parts[p, WORK] = size
        call_size(
            parts[p, FIRST + SIZE],
            constants.ctypes.data + 8 * at_constants,
            parts[p, D],
            n + most,
            total.ctypes.data + 8 * parts[p, ROW],
            tabulate,
            lengths.ctypes.data,
        )
        size += lengths[0]
        at_constants += spec[3 * p + 2]
    work = np.empty(size)
    at_constants = 0
    for p in range(count):
        call_prepare(
            parts[p, FIRST + PREPARE],
            constants.ctypes.data + 8 * at_constants,
            parts[p, D],
            n + most,
            total.ctypes.data + 8 * parts[p, ROW],
            tabulate,
            work.ctypes.data + 8 * parts[p, WORK],
        )
        at_constants += spec[3 * p + 2]
    return Mixture(parts, work, rows, row, cache, n)


@separate
def mixture_from(table, most, tabulate):
    """Prepare the component and the rows from the first four arguments of a kernel, those of `mixtures.mixture_of`."""
    return mixture_of(integers(table, 0), integers(table, 1), numbers(table, 2), numbers(table, 3), most, tabulate)


@compiled
def cluster_statistics(mixture, labels, k):
    """Sum the statistics of the rows with each of the labels 0, ..., k − 1; others are ignored."""
    row, stats = mixture.row, np.zeros(k * mixture.row)
    for i in range(len(labels)):
        if 0 <= labels[i] < k:
            for t in range(row):
                stats[labels[i] * row + t] += mixture.rows[i * row + t]
    return stats


@compiled
def refresh(mixture, stats, cache):
    """Compute the cache of a cluster from its statistics; both are addresses."""
    work = mixture.work.ctypes.data
    for p in range(len(mixture.parts)):
        part = mixture.parts[p]
        call_refresh(part[FIRST + REFRESH], work + 8 * part[WORK], part[D], stats + 8 * part[ROW], cache + 8 * part[CACHE])


@compiled
def update(mixture, cache, row, sign):
    """Update the cache of a cluster after a row has been added or removed; both are addresses."""
    work = mixture.work.ctypes.data
    for p in range(len(mixture.parts)):
        part = mixture.parts[p]
        call_update(part[FIRST + UPDATE], work + 8 * part[WORK], part[D], cache + 8 * part[CACHE], row + 8 * part[ROW], sign)


@compiled
def predict(mixture, caches, k, row, out):
    """Add the log predictive densities of a row in k clusters to `out`; all are addresses but k."""
    work = mixture.work.ctypes.data
    for p in range(len(mixture.parts)):
        part = mixture.parts[p]
        at = caches + 8 * part[CACHE]
        call_predict(part[FIRST + PREDICT], work + 8 * part[WORK], part[D], at, mixture.cache, k, row + 8 * part[ROW], out)


@compiled
def log_marginals(mixture, stats, m, found):
    """Write the log marginal likelihoods of m clusters."""
    work = mixture.work.ctypes.data
    for c in range(m):
        found[c] = 0.0
    for p in range(len(mixture.parts)):
        part = mixture.parts[p]
        at = stats.ctypes.data + 8 * part[ROW]
        out = found.ctypes.data
        call_marginals(part[FIRST + MARGINALS], work + 8 * part[WORK], part[D], at, mixture.row, m, out)


@compiled
def features(mixture, stats, out):
    """Compute what `joined` needs of a cluster; both are arrays with the length of the statistics."""
    work = mixture.work.ctypes.data
    for p in range(len(mixture.parts)):
        part = mixture.parts[p]
        given, made = stats.ctypes.data + 8 * part[ROW], out.ctypes.data + 8 * part[ROW]
        call_features(part[FIRST + FEATURES], work + 8 * part[WORK], part[D], given, made)


@compiled
def joined(mixture, columns, stride, m, one, found):
    """Add the log marginals of the unions of m clusters with another one.

    Parameters
    ----------
    columns, stride
        Address of the features of the first cluster, whose values are `stride` apart; those of the others follow each value.
    m
        Number of clusters.
    one
        Features of the other cluster.
    found
        Address of the sums.
    """
    work = mixture.work.ctypes.data
    for p in range(len(mixture.parts)):
        part = mixture.parts[p]
        at, other = columns + 8 * stride * part[ROW], one.ctypes.data + 8 * part[ROW]
        call_joined(part[FIRST + JOINED], work + 8 * part[WORK], part[D], at, stride, m, other, found)
