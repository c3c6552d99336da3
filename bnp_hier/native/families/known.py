"""Normal rows with unknown mean and known covariance; see `components.normal_known_covariance`.

In whitened coordinates y, the prior covariance of the mean is U diag(v) Uᵀ. In the basis U, everything is diagonal for every
number of rows.

Constants: log density of a row at its mean, origin (d), inverse Cholesky factor of the covariance (d, d), prior mean in
whitened coordinates (d), v (d), U (d, d).
"""

from __future__ import annotations

import math

import numpy as np

from bnp_hier.native.memory import compiled, floats, words

# work: log density at the mean, then v, the prior mean in the basis, and U
AT_MEAN, VALUES = 0, 1

# cache: number of rows and normalisation, then Σ y, predictive mean and inverse predictive deviation in the basis
N, LOG_NORM, TOTAL = range(3)

LARGE = 1e100
"""Product of factors above which its logarithm is taken."""


def lengths(d, out):
    pair = words(out, 2)
    pair[0], pair[1] = 2 + d, TOTAL + 3 * d


def rows(constants, d, X, ldx, columns, n, out, ldo):
    given, column = floats(constants, 1 + d + d * d), words(columns, d)
    shifted = np.empty(d)
    for i in range(n):
        x, row = floats(X + 8 * i * ldx, ldx), floats(out + 8 * i * ldo, 2 + d)
        square = 0.0
        for j in range(d):
            shifted[j] = x[column[j]] - given[1 + j]
            value = 0.0
            for k in range(j + 1):
                value += given[1 + d + j * d + k] * shifted[k]
            row[1 + j] = value
            square += value * value
        row[0], row[1 + d] = 1.0, given[0] - square / 2


def size(constants, d, n, total, tabulate, out):
    words(out, 1)[0] = VALUES + 2 * d + d * d


def prepare(constants, d, n, total, tabulate, work):
    given, space = floats(constants, 1 + 3 * d + 2 * d * d), floats(work, VALUES + 2 * d + d * d)
    mean, values, basis = 1 + d + d * d, 1 + 2 * d + d * d, 1 + 3 * d + d * d
    space[AT_MEAN] = given[0]
    for j in range(d):
        space[VALUES + j] = given[values + j]
        space[VALUES + d + j] = 0.0
        for i in range(d):
            space[VALUES + d + j] += given[basis + i * d + j] * given[mean + i]
            space[VALUES + 2 * d + j * d + i] = given[basis + i * d + j]  # transposed: one vector after the other


@compiled
def _rotated(space, d, y, out):
    for j in range(d):
        value = 0.0
        for i in range(d):
            value += space[VALUES + 2 * d + j * d + i] * y[i]
        out[j] = value


@compiled
def _finish(space, d, cache):
    n, log, product = cache[N], 0.0, 1.0
    for j in range(d):
        v, widened = space[VALUES + j], 1.0 + n * space[VALUES + j]
        variance = 1.0 + v / widened
        cache[TOTAL + d + j] = (space[VALUES + d + j] + v * cache[TOTAL + j]) / widened
        cache[TOTAL + 2 * d + j] = 1.0 / math.sqrt(variance)
        product *= variance
        if product > LARGE:
            log, product = log + math.log(product), 1.0
    cache[LOG_NORM] = space[AT_MEAN] - (log + math.log(product)) / 2


def refresh(work, d, stats, cache):
    given, kept, space = floats(stats, 2 + d), floats(cache, TOTAL + 3 * d), floats(work, VALUES + 2 * d + d * d)
    kept[N] = given[0]
    _rotated(space, d, given[1:], kept[TOTAL:])
    _finish(space, d, kept)


def update(work, d, cache, row, sign):
    given, kept, space = floats(row, 2 + d), floats(cache, TOTAL + 3 * d), floats(work, VALUES + 2 * d + d * d)
    kept[N] += sign
    for j in range(d):
        value = 0.0
        for i in range(d):
            value += space[VALUES + 2 * d + j * d + i] * given[1 + i]
        kept[TOTAL + j] += sign * value
    _finish(space, d, kept)


def predict(work, d, caches, ldc, k, row, out):
    given, density, every = floats(row, 2 + d), floats(out, k), floats(caches, k * ldc)
    y = np.empty(d)
    _rotated(floats(work, VALUES + 2 * d + d * d), d, given[1:], y)
    for c in range(k):
        at, square = c * ldc, 0.0
        for j in range(d):
            z = (y[j] - every[at + TOTAL + d + j]) * every[at + TOTAL + 2 * d + j]
            square += z * z
        density[c] += every[at + LOG_NORM] - square / 2


@compiled
def _column(n, total, v, mean):
    """Twice the contribution of a coordinate to the log marginal, and the factor whose logarithm is subtracted from it."""
    widened = 1.0 + n * v
    return (total * total * v + mean * (2.0 * total - n * mean)) / widened, widened


def marginals(work, d, stats, lds, m, out):
    space, found, total = floats(work, VALUES + 2 * d + d * d), floats(out, m), np.empty(d)
    for c in range(m):
        given = floats(stats + 8 * c * lds, 2 + d)
        _rotated(space, d, given[1:], total)
        squares, log, product = 0.0, 0.0, 1.0
        for j in range(d):
            square, widened = _column(given[0], total[j], space[VALUES + j], space[VALUES + d + j])
            squares += square
            product *= widened
            if product > LARGE:
                log, product = log + math.log(product), 1.0
        found[c] += given[1 + d] + (squares - log - math.log(product)) / 2


def features(work, d, stats, out):
    given, found = floats(stats, 2 + d), floats(out, 2 + d)
    found[0], found[1 + d] = given[0], given[1 + d]
    _rotated(floats(work, VALUES + 2 * d + d * d), d, given[1:], found[1:])


def joined(work, d, features, ldf, m, one, out):
    space, other, found = floats(work, VALUES + 2 * d), floats(one, 2 + d), floats(out, m)
    every = floats(features, (1 + d) * ldf + m)
    for c in range(m):
        n = every[c] + other[0]
        squares, log, product = 0.0, 0.0, 1.0
        for j in range(d):
            total = every[(1 + j) * ldf + c] + other[1 + j]
            square, widened = _column(n, total, space[VALUES + j], space[VALUES + d + j])
            squares += square
            product *= widened
            if product > LARGE:
                log, product = log + math.log(product), 1.0
        found[c] += every[(1 + d) * ldf + c] + other[1 + d] + (squares - log - math.log(product)) / 2
