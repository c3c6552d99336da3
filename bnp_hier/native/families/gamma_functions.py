"""Ratios of gamma functions on the log scale; see `components.special`."""

from __future__ import annotations

import math

from bnp_hier.native.memory import compiled

__all__ = ["log_gamma_ratio", "log_rising"]

LARGE = 20.0
"""Argument above which Stirling's series is accurate to double precision."""

LARGEST_PRODUCT = 1e250
"""Products are replaced by their logarithm before they become larger."""

FEW = 16.0
"""Length of a rising factorial up to which its factors are multiplied."""


@compiled
def _stirling_tail(a):
    square = 1.0 / (a * a)
    return (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680))) / a


@compiled
def log_gamma_ratio(a, x):
    """``lgamma(a + x) - lgamma(a)`` for a > 0 and x ≥ 0."""
    if a > LARGE:
        return x * math.log(a) + (a + x - 0.5) * math.log1p(x / a) - x + _stirling_tail(a + x) - _stirling_tail(a)
    return math.lgamma(a + x) - math.lgamma(a)


@compiled
def log_rising(a, x, product):
    """Log of a (a + 1) ... (a + x − 1), for a whole number x, as a sum and a factor whose logarithm is still to be added.

    `product` is the factor so far, so that one logarithm serves many ratios: the caller adds the log of the last one.
    """
    if x > FEW or a > 1e14:
        return log_gamma_ratio(a, x), product
    log = 0.0
    for i in range(int(x)):
        product *= a + i
        if product > LARGEST_PRODUCT or product < 1.0 / LARGEST_PRODUCT:
            log += math.log(product)
            product = 1.0
    return log, product
