"""Independent normal columns, with missing values; see `components.normal_inverse_gamma`.

Constants, each of length d: κ, shape, log rate, 1/√rate, origin, and the prior mean in standardised coordinates.
"""

from __future__ import annotations

import math

from bnp_hier.native.families.gamma_functions import log_gamma_ratio
from bnp_hier.native.memory import compiled, copy, floats, words

LOG_2PI = math.log(2 * math.pi)

# work: room for numbers of cells, then κ, shape, log rate, m and the position of the table of every column, then the tables:
# for every number of cells, lgamma(s + 1/2) − lgamma(s) at s = shape + n/2, and what the log marginal needs beside the rate
ROOM, VECTORS = 0, 1
KAPPA, SHAPE, LOG_RATE, MEAN, TABLE, TABLES = range(6)

# cache: whether all columns have equally many cells and the same shape, and then the normalisation and exponent of their
# density; then for every column its number of cells, mean, rate, scale of the square, normalisation and exponent
EVEN, LOG_NORM, EXPONENT, COLUMNS = range(4)
N, CENTRE, RATE, INVERSE_SPREAD, NORM, POWER, FIELDS = range(7)

LARGE = 1e100
"""Product of factors above which its logarithm is taken."""


def lengths(d, out):
    pair = words(out, 2)
    pair[0], pair[1] = 3 * d, COLUMNS + FIELDS * d


def rows(constants, d, X, ldx, columns, n, out, ldo):
    given, column = floats(constants, 6 * d), words(columns, d)
    for i in range(n):
        x, row = floats(X + 8 * i * ldx, ldx), floats(out + 8 * i * ldo, 3 * d)
        for j in range(d):
            value = x[column[j]]
            there = not math.isnan(value)
            y = (value - given[4 * d + j]) * given[3 * d + j] if there else 0.0
            row[j], row[d + j], row[2 * d + j] = 1.0 if there else 0.0, y, y * y


@compiled
def _first_alike(given, d, j):
    """First column with the same κ and shape as column j, which share their tables."""
    for i in range(j):
        if given[i] == given[j] and given[d + i] == given[d + j]:
            return i
    return j


def size(constants, d, n, total, tabulate, out):
    given, tables = floats(constants, 6 * d), 0
    for j in range(d):
        tables += _first_alike(given, d, j) == j
    words(out, 1)[0] = VECTORS + TABLES * d + 2 * (n + 2) * tables


def prepare(constants, d, n, total, tabulate, work):
    given, room = floats(constants, 6 * d), n + 2
    head = floats(work, VECTORS + TABLES * d)
    head[ROOM], used = room, VECTORS + TABLES * d
    for j in range(d):
        for field, source in ((KAPPA, 0), (SHAPE, 1), (LOG_RATE, 2), (MEAN, 5)):
            head[VECTORS + field * d + j] = given[source * d + j]
        alike = _first_alike(given, d, j)
        if alike < j:
            head[VECTORS + TABLE * d + j] = head[VECTORS + TABLE * d + alike]
            continue
        head[VECTORS + TABLE * d + j] = used
        kappa, shape, table = given[j], given[d + j], floats(work + 8 * used, 2 * room)
        used += 2 * room
        # s grows by one every two cells
        this, following, marginal = log_gamma_ratio(shape, 0.5), log_gamma_ratio(shape + 0.5, 0.5), 0.0
        for count in range(room):
            table[count] = this
            table[room + count] = marginal - math.log1p(count / kappa) / 2 - count / 2 * LOG_2PI
            marginal += this
            this, following = following, this + math.log1p(0.5 / (shape + count / 2))


@compiled
def _finish(work, d, cache):
    """Compute what follows from the numbers of cells, means and rates."""
    head = floats(work, VECTORS + TABLES * d)
    even, log_norm = True, 0.0
    for j in range(d):
        at = COLUMNS + j * FIELDS
        n, kappa, shape = cache[at + N], head[VECTORS + j], head[VECTORS + SHAPE * d + j]
        table = int(head[VECTORS + TABLE * d + j])
        spread = 2.0 * cache[at + RATE] * (kappa + n + 1) / (kappa + n)
        cache[at + INVERSE_SPREAD] = 1.0 / spread
        ratio = floats(work + 8 * (table + int(n)), 1)[0]
        cache[at + NORM] = ratio - (math.log(math.pi * spread) + head[VECTORS + LOG_RATE * d + j]) / 2
        cache[at + POWER] = shape + n / 2 + 0.5
        log_norm += cache[at + NORM]
        even = even and cache[at + POWER] == cache[COLUMNS + POWER]
    cache[EVEN], cache[LOG_NORM], cache[EXPONENT] = 1.0 if even else 0.0, log_norm, cache[COLUMNS + POWER]


@compiled
def _centre_and_rate(n, total, squares, kappa, mean):
    """Posterior mean and rate of a column, in standardised coordinates."""
    pull = kappa * mean / (kappa + n)
    rate = 1.0 + (squares - total * total / (kappa + n)) / 2 + pull * (n * mean - 2.0 * total) / 2
    return pull + total / (kappa + n), rate


def refresh(work, d, stats, cache):
    given, kept, head = floats(stats, 3 * d), floats(cache, COLUMNS + FIELDS * d), floats(work, VECTORS + TABLES * d)
    for j in range(d):
        at = COLUMNS + j * FIELDS
        kept[at + N] = given[j]
        kept[at + CENTRE], kept[at + RATE] = _centre_and_rate(
            given[j], given[d + j], given[2 * d + j], head[VECTORS + j], head[VECTORS + MEAN * d + j]
        )
    _finish(work, d, kept)


def update(work, d, cache, row, sign):
    kept, given, head = floats(cache, COLUMNS + FIELDS * d), floats(row, 3 * d), floats(work, VECTORS + TABLES * d)
    for j in range(d):
        at = COLUMNS + j * FIELDS
        step, kappa = sign * given[j], head[VECTORS + j] + kept[at + N]
        difference = given[d + j] - kept[at + CENTRE]
        kept[at + N] += step
        kept[at + CENTRE] += step / (kappa + step) * difference
        kept[at + RATE] = max(kept[at + RATE] + step * kappa / (kappa + step) * difference * difference / 2, 1.0)
    _finish(work, d, kept)


def predict(work, d, caches, ldc, k, row, out):
    given, density, every = floats(row, 3 * d), floats(out, k), floats(caches, k * ldc)
    complete = True
    for j in range(d):
        complete = complete and given[j] > 0
    for c in range(k):
        at = c * ldc
        if complete and every[at + EVEN] > 0:
            log, product = 0.0, 1.0
            for j in range(d):
                column = at + COLUMNS + j * FIELDS
                difference = given[d + j] - every[column + CENTRE]
                product *= 1.0 + difference * difference * every[column + INVERSE_SPREAD]
                if product > LARGE:
                    log, product = log + math.log(product), 1.0
            density[c] += every[at + LOG_NORM] - every[at + EXPONENT] * (log + math.log(product))
        else:
            for j in range(d):
                if given[j] > 0:
                    column = at + COLUMNS + j * FIELDS
                    difference = given[d + j] - every[column + CENTRE]
                    log = math.log(1.0 + difference * difference * every[column + INVERSE_SPREAD])
                    density[c] += every[column + NORM] - every[column + POWER] * log


@compiled
def _log_marginal(work, d, n, total, squares, j):
    """Contribution of a column to a log marginal, except for that of its rate; and the rate with its exponent."""
    head = floats(work, VECTORS + TABLES * d)
    room, table = int(head[ROOM]), int(head[VECTORS + TABLE * d + j])
    rate = _centre_and_rate(n, total, squares, head[VECTORS + j], head[VECTORS + MEAN * d + j])[1]
    constant = floats(work + 8 * (table + room + int(n)), 1)[0] - n / 2 * head[VECTORS + LOG_RATE * d + j]
    return constant, rate, head[VECTORS + SHAPE * d + j] + n / 2


def marginals(work, d, stats, lds, m, out):
    found = floats(out, m)
    for c in range(m):
        given = floats(stats + 8 * c * lds, 3 * d)
        for j in range(d):
            constant, rate, power = _log_marginal(work, d, given[j], given[d + j], given[2 * d + j], j)
            found[c] += constant - power * math.log(rate)


def features(work, d, stats, out):
    copy(floats(stats, 3 * d), floats(out, 3 * d))


def joined(work, d, features, ldf, m, one, out):
    every, other, found = floats(features, (3 * d - 1) * ldf + m), floats(one, 3 * d), floats(out, m)
    for c in range(m):
        product, last = 1.0, 0.0
        for j in range(d):
            n, total = every[j * ldf + c] + other[j], every[(d + j) * ldf + c] + other[d + j]
            squares = every[(2 * d + j) * ldf + c] + other[2 * d + j]
            constant, rate, power = _log_marginal(work, d, n, total, squares, j)
            found[c] += constant
            # one logarithm for several columns with the same exponent
            if power != last or product > LARGE:
                found[c] -= last * math.log(product)
                product, last = 1.0, power
            product *= rate
        found[c] -= last * math.log(product)
