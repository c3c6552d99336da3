"""Gamma and Dirichlet variates in log space; the native form of `distributions.log_gamma` and `log_dirichlet_draw`."""

from __future__ import annotations

import math

import numpy as np

from bnp_hier.native.drawing import TINY
from bnp_hier.native.memory import compiled, separate
from bnp_hier.native.threefry import child, uniform

__all__ = ["draw_proportions", "log_gammas"]

CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
TAILS = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)
"""Polynomials of Giles (2012) for the inverse error function, to single precision."""


@compiled
def _inverse_erf(y):
    """Inverse of the error function: an approximation and steps of Halley's method."""
    size = abs(y)
    w, p = -math.log((1.0 - size) * (1.0 + size)), 0.0
    if w < 5.0:
        w -= 2.5
        for value in CENTRE:
            p = p * w + value
    else:
        w = math.sqrt(w) - 3.0
        for value in TAILS:
            p = p * w + value
    x, step = p * size, 1.0
    while abs(step) > 1e-6:  # one step is enough except far in the tails
        # the difference from one is more precise where it is small
        error = math.erf(x) - size if size < 0.5 else (1.0 - size) - math.erfc(x)
        step = error * math.exp(x * x) * (math.sqrt(math.pi) / 2)
        step /= 1.0 + x * step
        x -= step
    return math.copysign(x, y)


@separate
def log_gammas(key, first, shapes, logs):
    """Draw logs of Gamma(shape, 1) variates: adjacent entries of an array, from `first` on (Marsaglia & Tsang 2000)."""
    size, count = len(shapes), 0
    waiting = np.empty(size, np.int64)
    for i in range(size):
        logs[i] = np.nan
        # no proposal is ever accepted for a NaN, negative or infinite shape
        if 0 <= shapes[i] < np.inf:
            waiting[count] = i
            count += 1
    while count > 0:
        key, draw, left = child(key, 0), child(key, 1), 0
        for place in range(count):
            i = waiting[place]
            shape = shapes[i]
            d = (shape + 1.0 if shape < 1.0 else shape) - 1.0 / 3.0
            index = 3 * (first + i)
            x = math.sqrt(2.0) * _inverse_erf(2.0 * uniform(draw, index, TINY) - 1.0)
            root = 1.0 + x / math.sqrt(9.0 * d)
            if root > 0:
                log = 3.0 * math.log(root)
                if math.log(uniform(draw, index + 1, TINY)) < 0.5 * x * x + d - d * (root * root * root) + d * log:
                    logs[i] = math.log(d) + log
                    if shape < 1.0:
                        logs[i] += math.log(uniform(draw, index + 2, TINY)) / shape
                    continue
            waiting[left] = i
            left += 1
        count = left


@separate
def draw_proportions(key, first, concentrations, smallest, shares):
    """Draw from a Dirichlet distribution, with the gamma variates of adjacent entries of an array, from `first` on.

    A concentration of zero results in zero, and so does a proportion below `smallest`. The last entry takes the first variates.
    """
    size, highest, largest = len(concentrations), -np.inf, 0
    shapes, logs = np.empty(size), np.empty(size)
    for k in range(size):
        shapes[(k + 1) % size] = concentrations[k] if concentrations[k] > 0 else np.nan  # for which nothing is drawn
    log_gammas(key, first, shapes, logs)
    for k in range(size):
        shares[k] = logs[(k + 1) % size] if concentrations[k] > 0 else -np.inf
        highest = max(highest, shares[k])
        largest = k if concentrations[k] > concentrations[largest] else largest
    if highest == -np.inf:  # every gamma variate underflows even in log space
        shares[largest] = highest = 0.0
    norm, least = 0.0, math.log(smallest)
    for k in range(size):
        norm += math.exp(shares[k] - highest)
    norm = highest + math.log(norm)
    for k in range(size):
        log = shares[k] - norm
        shares[k] = math.exp(log) if log > least else 0.0
