"""Independent binary columns, with missing values; see `components.beta_bernoulli`.

Constants, each of length d: a, b.
"""

from __future__ import annotations

import math

from bnp_hier.native.families.gamma_functions import log_gamma_ratio
from bnp_hier.native.memory import compiled, copy, floats, words

# work: room of the tables, 0 without; a and b; then for every column the logs of the rising factorials of a, b and a + b
ROOM, PRIOR = 0, 1

# cache: numbers of ones and zeros, and log predictive probabilities of a one and of a zero, for every column
FIELDS = 4


def lengths(d, out):
    pair = words(out, 2)
    pair[0], pair[1] = 2 * d, FIELDS * d


def rows(constants, d, X, ldx, columns, n, out, ldo):
    column = words(columns, d)
    for i in range(n):
        x, row = floats(X + 8 * i * ldx, ldx), floats(out + 8 * i * ldo, 2 * d)
        for j in range(d):
            row[j] = 1.0 if x[column[j]] == 1.0 else 0.0
            row[d + j] = 1.0 if x[column[j]] == 0.0 else 0.0


def size(constants, d, n, total, tabulate, out):
    words(out, 1)[0] = PRIOR + 2 * d + 3 * d * (n + 1) * tabulate


def prepare(constants, d, n, total, tabulate, work):
    given, space, room = floats(constants, 2 * d), floats(work, PRIOR + 2 * d + 3 * d * (n + 1) * tabulate), n + 1
    space[ROOM] = room * tabulate
    for j in range(2 * d):
        space[PRIOR + j] = given[j]
    if tabulate > 0:
        for j in range(d):
            a, b = given[j], given[d + j]
            for kind in range(3):
                base, log = a if kind == 0 else b if kind == 1 else a + b, 0.0
                at = PRIOR + 2 * d + (3 * j + kind) * room
                for count in range(room):
                    space[at + count] = log
                    log += math.log(base + count)


def refresh(work, d, stats, cache):
    given, kept, space = floats(stats, 2 * d), floats(cache, FIELDS * d), floats(work, PRIOR + 2 * d)
    for j in range(d):
        _set(space, d, kept, j, given[j], given[d + j])


@compiled
def _set(space, d, cache, j, ones, zeros):
    a, b = space[PRIOR + j] + ones, space[PRIOR + d + j] + zeros
    log_cells = math.log(a + b)
    cache[j], cache[d + j] = ones, zeros
    cache[2 * d + j], cache[3 * d + j] = math.log(a) - log_cells, math.log(b) - log_cells


def update(work, d, cache, row, sign):
    given, kept, space = floats(row, 2 * d), floats(cache, FIELDS * d), floats(work, PRIOR + 2 * d)
    for j in range(d):
        if given[j] + given[d + j] > 0:
            _set(space, d, kept, j, kept[j] + sign * given[j], kept[d + j] + sign * given[d + j])


def predict(work, d, caches, ldc, k, row, out):
    given, density, every = floats(row, 2 * d), floats(out, k), floats(caches, k * ldc)
    for c in range(k):
        at, log = c * ldc + 2 * d, 0.0
        for j in range(2 * d):
            log += given[j] * every[at + j]
        density[c] += log


@compiled
def _log_marginal(space, d, j, ones, zeros):
    """Contribution of a column."""
    room = int(space[ROOM])
    if room > 0:
        at = PRIOR + 2 * d + 3 * j * room
        return space[at + int(ones)] + space[at + room + int(zeros)] - space[at + 2 * room + int(ones + zeros)]
    a, b = space[PRIOR + j], space[PRIOR + d + j]
    return log_gamma_ratio(a, ones) + log_gamma_ratio(b, zeros) - log_gamma_ratio(a + b, ones + zeros)


@compiled
def _space(work, d):
    return floats(work, PRIOR + 2 * d + 3 * d * int(floats(work, 1)[ROOM]))


def marginals(work, d, stats, lds, m, out):
    space, found = _space(work, d), floats(out, m)
    for c in range(m):
        given = floats(stats + 8 * c * lds, 2 * d)
        for j in range(d):
            found[c] += _log_marginal(space, d, j, given[j], given[d + j])


def features(work, d, stats, out):
    copy(floats(stats, 2 * d), floats(out, 2 * d))


def joined(work, d, features, ldf, m, one, out):
    space, every, other, found = _space(work, d), floats(features, (2 * d - 1) * ldf + m), floats(one, 2 * d), floats(out, m)
    for j in range(d):  # one column after another, so that its tables stay in the processor's cache
        for c in range(m):
            found[c] += _log_marginal(space, d, j, every[j * ldf + c] + other[j], every[(d + j) * ldf + c] + other[d + j])
