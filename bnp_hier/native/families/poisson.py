"""Independent columns of counts, with missing values; see `components.gamma_poisson`.

Constants, each of length d: shape, rate.
"""

from __future__ import annotations

import math

from bnp_hier.native.families.gamma_functions import log_gamma_ratio, log_rising
from bnp_hier.native.memory import compiled, copy, floats, words

# work: shape and rate (d), positions of the tables of log rising factorials of the shapes and of logs of the rates by number of
# cells (d each, 0 without), then the tables
PRIOR = 0

# cache, for every column: number of cells, posterior shape, and what a new cell needs of the posterior rate
N, SHAPE, LOG_MORE, LOG_RATE, FIELDS = range(5)

LARGEST = 4_000_000
"""Largest number of entries of all tables; without tables, log gamma functions are computed."""


def lengths(d, out):
    pair = words(out, 2)
    pair[0], pair[1] = 2 * d + 1, FIELDS * d


def rows(constants, d, X, ldx, columns, n, out, ldo):
    column = words(columns, d)
    for i in range(n):
        x, row = floats(X + 8 * i * ldx, ldx), floats(out + 8 * i * ldo, 2 * d + 1)
        row[2 * d] = 0.0
        for j in range(d):
            value = x[column[j]]
            there = not math.isnan(value)
            row[j], row[d + j] = 1.0 if there else 0.0, value if there else 0.0
            if value > 1:
                row[2 * d] += math.lgamma(value + 1)


@compiled
def _entries(total, d, n, tabulate):
    """Number of entries of all tables, 0 if there are none."""
    needed = float(d * (n + 1))
    for j in range(d):
        needed += total[d + j] + 1
    return int(needed) if tabulate > 0 and needed <= LARGEST else 0


def size(constants, d, n, total, tabulate, out):
    words(out, 1)[0] = PRIOR + 4 * d + _entries(floats(total, 2 * d), d, n, tabulate)


def prepare(constants, d, n, total, tabulate, work):
    given, most = floats(constants, 2 * d), floats(total, 2 * d)
    entries = _entries(most, d, n, tabulate)
    space, at = floats(work, PRIOR + 4 * d + entries), PRIOR + 4 * d
    for j in range(d):
        space[PRIOR + j], space[PRIOR + d + j] = given[j], given[d + j]
        space[PRIOR + 2 * d + j], space[PRIOR + 3 * d + j] = 0, 0
        if entries > 0:
            space[PRIOR + 2 * d + j], log = at, 0.0
            for count in range(int(most[d + j]) + 1):
                space[at + count] = log
                log += math.log(given[j] + count)
            at += int(most[d + j]) + 1
            space[PRIOR + 3 * d + j] = at
            for count in range(n + 1):
                space[at + count] = math.log(given[d + j] + count)
            at += n + 1


@compiled
def _set(space, d, cache, j, n, shape):
    at, rate = j * FIELDS, space[PRIOR + d + j] + n
    cache[at + N], cache[at + SHAPE] = n, shape
    cache[at + LOG_MORE], cache[at + LOG_RATE] = math.log1p(1.0 / rate), math.log(rate + 1.0)


def refresh(work, d, stats, cache):
    given, kept, space = floats(stats, 2 * d), floats(cache, FIELDS * d), floats(work, PRIOR + 2 * d)
    for j in range(d):
        _set(space, d, kept, j, given[j], space[PRIOR + j] + given[d + j])


def update(work, d, cache, row, sign):
    given, kept, space = floats(row, 2 * d), floats(cache, FIELDS * d), floats(work, PRIOR + 2 * d)
    for j in range(d):
        if given[j] > 0:
            at = j * FIELDS
            _set(space, d, kept, j, kept[at + N] + sign, kept[at + SHAPE] + sign * given[d + j])


def predict(work, d, caches, ldc, k, row, out):
    given, density, every = floats(row, 2 * d + 1), floats(out, k), floats(caches, k * ldc)
    for c in range(k):
        log, product = 0.0, 1.0
        for j in range(d):
            if given[j] > 0:
                at, x = c * ldc + j * FIELDS, given[d + j]
                more, product = log_rising(every[at + SHAPE], x, product)
                log += more - every[at + SHAPE] * every[at + LOG_MORE] - x * every[at + LOG_RATE]
        density[c] += log + math.log(product) - given[2 * d]


@compiled
def _log_marginal(space, d, j, n, total):
    """Contribution of a column, except for the factorials."""
    shape, rate = space[PRIOR + j], space[PRIOR + d + j]
    factorials, logs = int(space[PRIOR + 2 * d + j]), int(space[PRIOR + 3 * d + j])
    if factorials > 0:
        return space[factorials + int(total)] + shape * space[logs] - (shape + total) * space[logs + int(n)]
    return log_gamma_ratio(shape, total) - shape * math.log1p(n / rate) - total * math.log(rate + n)


@compiled
def _space(work, d):
    head = floats(work, PRIOR + 4 * d)
    return floats(work, PRIOR + 4 * d + (LARGEST if head[PRIOR + 2 * d] > 0 else 0))


def marginals(work, d, stats, lds, m, out):
    space, found = _space(work, d), floats(out, m)
    for c in range(m):
        given = floats(stats + 8 * c * lds, 2 * d + 1)
        found[c] -= given[2 * d]
        for j in range(d):
            found[c] += _log_marginal(space, d, j, given[j], given[d + j])


def features(work, d, stats, out):
    copy(floats(stats, 2 * d + 1), floats(out, 2 * d + 1))


def joined(work, d, features, ldf, m, one, out):
    space, every, other, found = _space(work, d), floats(features, 2 * d * ldf + m), floats(one, 2 * d + 1), floats(out, m)
    for c in range(m):
        found[c] -= every[2 * d * ldf + c] + other[2 * d]
    for j in range(d):  # one column after another, so that its tables stay in the processor's cache
        for c in range(m):
            found[c] += _log_marginal(space, d, j, every[j * ldf + c] + other[j], every[(d + j) * ldf + c] + other[d + j])
