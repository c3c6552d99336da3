"""Normal rows with unknown mean and full covariance; see `components.normal_inverse_wishart`.

In whitened coordinates y about the origin, with prior mean m, B = I + Σ (y − ȳ)(y − ȳ)ᵀ and v = ȳ − m, the posterior scale is
B + h v vᵀ, where h = κN/(κ + N). The two terms are kept apart because the prior mean may lie far away.

Constants: κ, ν, log |scale|, m (d), origin (d), inverse Cholesky factor of the scale (d, d).
"""

from __future__ import annotations

import math

import numpy as np

from bnp_hier.native.arithmetic import LANES, all_equal, everywhere, get, load, log, put, store
from bnp_hier.native.families.gamma_functions import log_gamma_ratio
from bnp_hier.native.families.operations import JOINED, call_joined, operation
from bnp_hier.native.families.small_matrices import invert
from bnp_hier.native.memory import compiled, copy, floats, hold, separate, words
from bnp_hier.native.names import FAMILIES

FAMILY = FAMILIES.index("normal")

LOG_PI = math.log(math.pi)

# work: κ, ν, room for numbers of rows, m, then for every number of rows the log density at the centre of a cluster without
# scatter, and the log marginal of a cluster of coinciding rows at the prior mean
KAPPA, NU, ROOM, MEAN = range(4)

# cache: number of rows, log |B|, vᵀB⁻¹v, normalisation, exponent and factor of the square in the predictive density,
# κ/(κ + N), h, 1 + h vᵀB⁻¹v, then ȳ, B⁻¹, B⁻¹v and B
N, LOG_DET, FORM, LOG_NORM, EXPONENT, SHRINK, PULL, LAG, WIDENED, AVERAGE = range(10)

LEAST_FACTOR = 1e-2
"""Factor of |B| below which removing a row costs digits, so that B⁻¹ is computed anew."""


def lengths(d, out):
    pair = words(out, 2)
    pair[0], pair[1] = 1 + d + d * d, AVERAGE + 2 * d + 2 * d * d


def rows(constants, d, X, ldx, columns, n, out, ldo):
    given, column = floats(constants, 3 + 2 * d + d * d), words(columns, d)
    shifted = np.empty(d)
    for i in range(n):
        x, row = floats(X + 8 * i * ldx, ldx), floats(out + 8 * i * ldo, 1 + d + d * d)
        row[0] = 1.0
        for j in range(d):
            shifted[j] = x[column[j]] - given[3 + d + j]
            value = 0.0
            for k in range(j + 1):
                value += given[3 + 2 * d + j * d + k] * shifted[k]
            row[1 + j] = value
        for j in range(d):
            for k in range(d):
                row[1 + d + j * d + k] = row[1 + j] * row[1 + k]


def size(constants, d, n, total, tabulate, out):
    words(out, 1)[0] = MEAN + d + 2 * (n + 2)


def prepare(constants, d, n, total, tabulate, work):
    given, space, room = floats(constants, 3 + d), floats(work, MEAN + d + 2 * (n + 2)), n + 2
    kappa, nu, log_det_scale = given[0], given[1], given[2]
    space[KAPPA], space[NU], space[ROOM] = kappa, nu, room
    for j in range(d):
        space[MEAN + j] = given[3 + j]
    # lgamma(h + d/2) − lgamma(h) at h = (ν + N + 1 − d)/2, which grows by one every two rows
    half = (nu + 1 - d) / 2
    this, following = log_gamma_ratio(half, d / 2), log_gamma_ratio(half + 0.5, d / 2)
    before = math.log(kappa)
    marginal = lost = 0.0
    for count in range(room):
        after = math.log(kappa + count + 1)
        norm = this + d / 2 * (before - after - LOG_PI) - log_det_scale / 2
        space[MEAN + d + count], space[MEAN + d + room + count] = norm, marginal
        # every row adds its log density at the centre: a compensated sum
        term = norm - lost
        raised = marginal + term
        lost, marginal = raised - marginal - term, raised
        before, this, following = after, following, this + math.log1p(d / 2 / (half + count / 2))


@compiled
def _finish(space, d, cache):
    """Compute what follows from the number of rows, their average, and the inverse and log determinant of B."""
    n, kappa, inverse, pull = cache[N], space[KAPPA], AVERAGE + d, AVERAGE + d + d * d
    form = 0.0
    for i in range(d):
        value = 0.0
        for j in range(d):
            value += cache[inverse + i * d + j] * (cache[AVERAGE + j] - space[MEAN + j])
        cache[pull + i] = value
        form += value * (cache[AVERAGE + i] - space[MEAN + i])
    lag = kappa * n / (kappa + n)
    cache[FORM], cache[LAG], cache[WIDENED] = form, lag, 1.0 + lag * form
    cache[PULL] = kappa / (kappa + n)
    cache[SHRINK] = (kappa + n) / (kappa + n + 1)
    cache[EXPONENT] = (space[NU] + n + 1) / 2
    cache[LOG_NORM] = space[MEAN + d + int(n)] - (cache[LOG_DET] + math.log(1.0 + lag * form)) / 2


@compiled
def _without_scatter(cache, d, n):
    cache[N], cache[LOG_DET] = n, 0.0
    for i in range(d):
        for j in range(d):
            cache[AVERAGE + d + i * d + j] = cache[AVERAGE + 2 * d + (d + i) * d + j] = 1.0 if i == j else 0.0


@compiled
def _invert(cache, d):
    """Compute B⁻¹ and log |B| from B."""
    copy(cache[AVERAGE + 2 * d + d * d : AVERAGE + 2 * d + 2 * d * d], cache[AVERAGE + d :])
    cache[LOG_DET] = invert(cache[AVERAGE + d :], d)


def refresh(work, d, stats, cache):
    given, kept = floats(stats, 1 + d + d * d), floats(cache, AVERAGE + 2 * d + 2 * d * d)
    n, scatter = given[0], AVERAGE + 2 * d + d * d
    for j in range(d):
        kept[AVERAGE + j] = given[1 + j] / n if n > 0 else 0.0
    _without_scatter(kept, d, n)
    if n > 1:
        for i in range(d):
            for j in range(d):
                kept[scatter + i * d + j] += given[1 + d + i * d + j] - given[1 + i] * kept[AVERAGE + j]
        _invert(kept, d)
    _finish(floats(work, MEAN + d + int(n) + 1), d, kept)


def update(work, d, cache, row, sign):
    kept, y = floats(cache, AVERAGE + 2 * d + 2 * d * d), floats(row + 8, d)
    inverse, projected, scatter = AVERAGE + d, AVERAGE + d + d * d, AVERAGE + 2 * d + d * d
    n = kept[N]
    new = n + sign
    if new < 1.5:  # exact, whatever the rounding errors of earlier updates
        for i in range(d):
            if new < 0.5:
                kept[AVERAGE + i] = 0.0
            else:
                kept[AVERAGE + i] = y[i] if sign > 0 else 2.0 * kept[AVERAGE + i] - y[i]
        _without_scatter(kept, d, new)
    else:
        form, ratio = 0.0, sign * n / new
        for i in range(d):
            value, e = 0.0, y[i] - kept[AVERAGE + i]
            for j in range(d):
                other = y[j] - kept[AVERAGE + j]
                value += kept[inverse + i * d + j] * other
                kept[scatter + i * d + j] += ratio * e * other
            kept[projected + i] = value
            form += value * e
        factor = 1.0 + ratio * form
        if factor < LEAST_FACTOR:
            _invert(kept, d)
        else:
            for i in range(d):
                change = ratio / factor * kept[projected + i]
                for j in range(d):
                    kept[inverse + i * d + j] -= change * kept[projected + j]
            kept[LOG_DET] += math.log(factor)
        for i in range(d):
            kept[AVERAGE + i] += sign / new * (y[i] - kept[AVERAGE + i])
        kept[N] = new
    _finish(floats(work, MEAN + d + int(new) + 1), d, kept)


def predict(work, d, caches, ldc, k, row, out):
    y, density, every = floats(row + 8, d), floats(out, k), floats(caches, k * ldc)
    inverse, pull = AVERAGE + d, AVERAGE + d + d * d
    for c in range(k):
        at = c * ldc
        square = along = 0.0
        for i in range(d):
            e = y[i] - every[at + AVERAGE + i]
            along += every[at + pull + i] * e
            value = 0.0
            for j in range(i):
                value += every[at + inverse + i * d + j] * (y[j] - every[at + AVERAGE + j])
            square += e * (2.0 * value + every[at + inverse + i * d + i] * e)
        # (e + w v)ᵀ S⁻¹ (e + w v), with e = y − ȳ, w = κ/(κ + N) and the posterior scale S
        weight = every[at + PULL]
        rest = 2 * weight * along + weight * weight * every[at + FORM] - every[at + LAG] * along * along
        square = max(square + rest / every[at + WIDENED], 0.0)
        density[c] += every[at + LOG_NORM] - every[at + EXPONENT] * math.log(1.0 + every[at + SHRINK] * square)


@compiled
def _solve_row(lower, row, size):
    """Subtract from the first entries of a row the products with the finished rows of the factor above it, in every lane."""
    for j in range(0, size - 1, 2):  # two at a time, which share what they read
        first = lower + 8 * LANES * (j * (j + 1) // 2)
        second = first + 8 * LANES * (j + 1)
        one, two = get(row, LANES * j), get(row, LANES * (j + 1))
        for k in range(j):
            value = get(row, LANES * k)
            one, two = one - value * get(first, LANES * k), two - value * get(second, LANES * k)
        put(row, LANES * j, one)
        put(row, LANES * (j + 1), two - one * get(second, LANES * j))
    if size % 2 == 1:
        last = lower + 8 * LANES * ((size - 1) * size // 2)
        one = get(row, LANES * (size - 1))
        for k in range(size - 1):
            one = one - get(row, LANES * k) * get(last, LANES * k)
        put(row, LANES * (size - 1), one)


@separate
def _log_dets(lower, vector, lag, d):
    """Compute log |B + h v vᵀ| in every lane from the lower triangle of B, row after row, v and h: B = L D Lᵀ, D in the
    diagonal.

    The first two are addresses of entries, each with eight lanes, and are overwritten.
    """
    log_det, form, product = everywhere(0.0), everywhere(0.0), everywhere(1.0)
    for i in range(d):
        row = lower + 8 * LANES * (i * (i + 1) // 2)
        _solve_row(lower, row, i)
        pivot = get(row, LANES * i)
        for k in range(i):
            value = get(row, LANES * k)
            scaled = value * get(lower, LANES * (k * (k + 1) // 2 + k))
            put(row, LANES * k, scaled)
            pivot = pivot - value * scaled
        product = product * pivot
        put(row, LANES * i, everywhere(1.0) / pivot)  # the inverse, since divisions cost more than everything else
        if i % 4 == 3:  # one logarithm for several pivots, few enough that their product cannot overflow on sensible data
            log_det, product = log_det + log(product), everywhere(1.0)
    _solve_row(lower, vector, d)
    for i in range(d):
        form = form + get(vector, LANES * i) * get(vector, LANES * i) * get(lower, LANES * (i * (i + 1) // 2 + i))
    return log_det + log(product * (everywhere(1.0) + lag * form))


def marginals(work, d, stats, lds, m, out):
    # each cluster alone is its union with an empty one
    p = 1 + d + d * d
    columns, one = np.empty(p * m), np.zeros(p)
    for c in range(m):
        for t in range(p):
            columns[t * m + c] = load(stats, c * lds + t)
    # by address, because compiling it twice takes long
    call_joined(operation(FAMILY, JOINED), work, d, columns.ctypes.data, m, m, one.ctypes.data, out)
    hold(columns)
    hold(one)


def features(work, d, stats, out):
    copy(floats(stats, 1 + d + d * d), floats(out, 1 + d + d * d))


@compiled
def _log_det_of_two(work, here, ldf, one):
    """Log |B + h v vᵀ| of the unions of eight clusters with another one, for d = 2: |B| + h times the adjugate form of v."""
    kappa = everywhere(load(work, KAPPA))
    n = get(here, 0) + everywhere(load(one, 0))
    a, b = get(here, ldf) + everywhere(load(one, 1)), get(here, 2 * ldf) + everywhere(load(one, 2))
    inverse = everywhere(1.0) / (n * (kappa + n))  # one division for two
    x, y, lag = a * inverse * (kappa + n), b * inverse * (kappa + n), kappa * n * n * inverse
    p = get(here, 3 * ldf) + everywhere(1.0 + load(one, 3)) - a * x
    q = get(here, 5 * ldf) + everywhere(load(one, 5)) - b * x
    r = get(here, 6 * ldf) + everywhere(1.0 + load(one, 6)) - b * y
    u, v = x - everywhere(load(work, MEAN)), y - everywhere(load(work, MEAN + 1))
    form = u * u * r - (u * v * q + u * v * q) + v * v * p
    return log(p * r - q * q + lag * form)


@compiled
def _log_det_of_many(work, d, here, ldf, one, lower, vector):
    """Log |B + h v vᵀ| of the unions of eight clusters with another one; needs space for a triangle and a vector of lanes."""
    kappa, n, entry = everywhere(load(work, KAPPA)), get(here, 0) + everywhere(load(one, 0)), lower
    for i in range(d):
        total = get(here, (1 + i) * ldf) + everywhere(load(one, 1 + i))
        put(vector, LANES * i, total / n)
        for j in range(i + 1):
            place = 1 + d + i * d + j
            scatter = get(here, place * ldf) + everywhere(load(one, place) + (1.0 if i == j else 0.0))
            put(entry, 0, scatter - total * get(vector, LANES * j))
            entry += 8 * LANES
    for i in range(d):
        put(vector, LANES * i, get(vector, LANES * i) - everywhere(load(work, MEAN + i)))
    return _log_dets(lower, vector, kappa * n / (kappa + n), d)


@separate
def _prepare_one(work, d, one, space):
    """What `_with_a_row` needs of a cluster: c, h, log |B|, vᵀB⁻¹v, 1/(N + 1), then ȳ, B⁻¹v and B⁻¹."""
    n, kappa = load(one, 0), load(work, KAPPA)
    made = floats(space, 5 + 2 * d + d * d)
    inverse = made[5 + 2 * d :]
    for i in range(d):
        made[5 + i] = load(one, 1 + i) / n
        for j in range(d):
            scatter = load(one, 1 + d + i * d + j) - load(one, 1 + j) * made[5 + i]
            inverse[i * d + j] = scatter + 1.0 if i == j else scatter
    made[0], made[1], made[4] = n / (n + 1.0), kappa * (n + 1.0) / (kappa + n + 1.0), 1.0 / (n + 1.0)
    made[2], made[3] = invert(inverse, d), 0.0
    for i in range(d):
        value = 0.0
        for j in range(d):
            value += inverse[i * d + j] * (made[5 + j] - load(work, MEAN + j))
        made[5 + d + i] = value
        made[3] += value * (made[5 + i] - load(work, MEAN + i))


@compiled
def _with_a_row(d, here, ldf, made, deltas):
    """Log determinants of the unions of eight single rows with a cluster, by rank-one updates.

    With δ = y − ȳ, c = N/(N + 1) and w = v + δ/(N + 1), the new offset, it is |B| times
    (1 + c δᵀB⁻¹δ) (1 + h wᵀB⁻¹w) − c h (δᵀB⁻¹w)².
    """
    q = p = everywhere(0.0)
    inverse = made + 8 * (5 + 2 * d)
    for i in range(d):
        delta = get(here, (1 + i) * ldf) - everywhere(load(made, 5 + i))
        put(deltas, LANES * i, delta)
        p = p + delta * everywhere(load(made, 5 + d + i))
        half = everywhere(0.0)
        for j in range(i):
            half = half + everywhere(load(inverse, i * d + j)) * get(deltas, LANES * j)
        q = q + delta * (half + half + everywhere(load(inverse, i * d + i)) * delta)
    c, h, share = everywhere(load(made, 0)), everywhere(load(made, 1)), everywhere(load(made, 4))
    along = p + q * share
    form = everywhere(load(made, 3)) + (p + along) * share
    return everywhere(load(made, 2)) + log((everywhere(1.0) + c * q) * (everywhere(1.0) + h * form) - c * h * along * along)


@separate
def _in_two_columns(work, features, ldf, m, one, found):
    space, alone = np.empty(13 + 2 * LANES), load(one, 0) > 0
    made, deltas = space.ctypes.data, space.ctypes.data + 8 * 13
    if alone:
        _prepare_one(work, 2, one, made)
    for start in range(0, m, LANES):
        at = min(start, m - LANES)  # the last lanes may be evaluated twice
        if alone and all_equal(get(features, at), 1.0):
            put(found, at, _with_a_row(2, features + 8 * at, ldf, made, deltas))
        else:
            put(found, at, _log_det_of_two(work, features + 8 * at, ldf, one))
    hold(space)


@separate
def _in_many_columns(work, d, features, ldf, m, one, found):
    space, alone = np.empty((d * (d + 1) // 2 + d) * LANES + 5 + 2 * d + d * d), load(one, 0) > 0
    vector, lower = space.ctypes.data, space.ctypes.data + 8 * LANES * d
    made = lower + 8 * LANES * (d * (d + 1) // 2)
    if alone:
        _prepare_one(work, d, one, made)
    for start in range(0, m, LANES):
        at = min(start, m - LANES)  # the last lanes may be evaluated twice
        if alone and all_equal(get(features, at), 1.0):
            put(found, at, _with_a_row(d, features + 8 * at, ldf, made, vector))
        else:
            put(found, at, _log_det_of_many(work, d, features + 8 * at, ldf, one, lower, vector))
    hold(space)


def joined(work, d, features, ldf, m, one, out):
    p, room, wide = 1 + d + d * d, int(load(work, ROOM)), max(m, LANES)
    nu, table = load(work, NU), work + 8 * (MEAN + d + room)
    space = np.empty(wide + p * LANES)
    found, padded = space.ctypes.data, space.ctypes.data + 8 * wide
    at, stride = features, ldf
    if m < LANES:  # the last cluster is repeated
        for t in range(p):
            for lane in range(LANES):
                store(padded, t * LANES + lane, load(features, t * ldf + min(lane, m - 1)))
        at, stride = padded, LANES
    if d == 2:
        _in_two_columns(work, at, stride, wide, one, found)
    else:
        _in_many_columns(work, d, at, stride, wide, one, found)
    for c in range(m):
        n = load(features, c) + load(one, 0)
        if n > 0:
            store(out, c, load(out, c) + load(table, int(n)) - (nu + n) / 2 * load(found, c))
    hold(space)
