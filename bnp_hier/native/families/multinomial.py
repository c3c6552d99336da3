"""Rows of category counts given their totals; see `components.dirichlet_multinomial`.

Constants: the prior's concentration (d).
"""

from __future__ import annotations

import math

from bnp_hier.native.families.gamma_functions import log_gamma_ratio, log_rising
from bnp_hier.native.memory import compiled, copy, floats, words

# work: Σ a, a (d), positions of the tables of every category and of the total (d + 1, 0 without), then the tables of the logs
# of rising factorials
SUM, PRIOR = 0, 1

LARGEST = 4_000_000
"""Largest number of entries of all tables; without tables, log gamma functions are computed."""


def lengths(d, out):
    pair = words(out, 2)
    pair[0], pair[1] = d + 1, d + 1


def rows(constants, d, X, ldx, columns, n, out, ldo):
    column = words(columns, d)
    for i in range(n):
        x, row = floats(X + 8 * i * ldx, ldx), floats(out + 8 * i * ldo, d + 1)
        total, coefficient = 0.0, 0.0
        for j in range(d):
            value = x[column[j]]
            row[j] = value
            total += value
            if value > 1:
                coefficient -= math.lgamma(value + 1)
        row[d] = coefficient + math.lgamma(total + 1)


@compiled
def _entries(total, d, tabulate):
    """Number of entries of all tables, 0 if there are none."""
    every = 0.0
    for j in range(d):
        every += total[j]
    needed = 2 * every + d + 1
    return int(needed) if tabulate > 0 and needed <= LARGEST else 0


def size(constants, d, n, total, tabulate, out):
    words(out, 1)[0] = PRIOR + 2 * d + 1 + _entries(floats(total, d), d, tabulate)


@compiled
def _fill(space, at, base, largest):
    """Tabulate log Γ(base + count) − log Γ(base) for the counts 0, ..., `largest`; return the position after the table."""
    log = 0.0
    for count in range(int(largest) + 1):
        space[at + count] = log
        log += math.log(base + count)
    return at + int(largest) + 1


def prepare(constants, d, n, total, tabulate, work):
    given, most = floats(constants, d), floats(total, d)
    entries = _entries(most, d, tabulate)
    space = floats(work, PRIOR + 2 * d + 1 + entries)
    space[SUM], at, every = 0.0, PRIOR + 2 * d + 1, 0.0
    for j in range(d):
        space[SUM] += given[j]
        space[PRIOR + j] = given[j]
        every += most[j]
    for j in range(d + 1):
        space[PRIOR + d + j] = at if entries > 0 else 0
        if entries > 0:
            at = _fill(space, at, given[j] if j < d else space[SUM], most[j] if j < d else every)


def refresh(work, d, stats, cache):
    given, kept, space = floats(stats, d), floats(cache, d + 1), floats(work, PRIOR + d)
    kept[d] = space[SUM]
    for j in range(d):
        kept[j] = space[PRIOR + j] + given[j]
        kept[d] += given[j]


def update(work, d, cache, row, sign):
    given, kept = floats(row, d), floats(cache, d + 1)
    for j in range(d):
        kept[j] += sign * given[j]
        kept[d] += sign * given[j]


def predict(work, d, caches, ldc, k, row, out):
    given, density, every = floats(row, d + 1), floats(out, k), floats(caches, k * ldc)
    for c in range(k):
        at, log, product, total = c * ldc, 0.0, 1.0, 0.0
        for j in range(d):
            if given[j] > 0:
                more, product = log_rising(every[at + j], given[j], product)
                log += more
                total += given[j]
        density[c] += given[d] + log + math.log(product) - log_gamma_ratio(every[at + d], total)


@compiled
def _log_rising_of(space, d, j, count):
    """Log rising factorial of the prior of a category, or of their sum for j = d."""
    at = int(space[PRIOR + d + j])
    if at > 0:
        return space[at + int(count)]
    return log_gamma_ratio(space[PRIOR + j] if j < d else space[SUM], count)


@compiled
def _space(work, d):
    head = floats(work, PRIOR + 2 * d + 1)
    # the last table is that of the sum, and at most as long as all others together
    return floats(work, PRIOR + 2 * d + 1 + (LARGEST if head[PRIOR + d] > 0 else 0))


def marginals(work, d, stats, lds, m, out):
    space, found = _space(work, d), floats(out, m)
    for c in range(m):
        given, total = floats(stats + 8 * c * lds, d + 1), 0.0
        for j in range(d):
            if given[j] > 0:
                found[c] += _log_rising_of(space, d, j, given[j])
                total += given[j]
        found[c] += given[d] - _log_rising_of(space, d, d, total)


def features(work, d, stats, out):
    copy(floats(stats, d + 1), floats(out, d + 1))


def joined(work, d, features, ldf, m, one, out):
    space, every, other, found = _space(work, d), floats(features, d * ldf + m), floats(one, d + 1), floats(out, m)
    of_other = 0.0
    for j in range(d):
        of_other += other[j]
    for c in range(m):
        total = of_other
        for j in range(d):
            total += every[j * ldf + c]
        found[c] += every[d * ldf + c] + other[d] - _log_rising_of(space, d, d, total)
    for j in range(d):  # one column after another, so that its table stays in the processor's cache
        for c in range(m):
            count = every[j * ldf + c] + other[j]
            if count > 0:
                found[c] += _log_rising_of(space, d, j, count)
