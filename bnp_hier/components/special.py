"""Ratios of gamma functions on the log scale, accurate for large arguments."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float

__all__ = ["log_beta", "log_gamma_ratio", "log_gamma_ratio_in_numpy"]

LARGE = 20.0
"""Argument above which the Stirling series below is accurate to double precision."""


def _stirling_tail(a: Any) -> Any:
    square = 1.0 / (a * a)
    return (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680))) / a


def log_gamma_ratio(a: ArrayLike, x: ArrayLike) -> Float[Array, "..."]:
    """``lgamma(a + x) - lgamma(a)`` for a > 0 and x ≥ 0, without cancellation between two large numbers.

    In single precision, the direct difference is off by tenths of a nat at a = 10⁴ and meaningless at 10⁶.
    """
    return _ratio(jnp, gammaln, jnp.asarray(a), jnp.asarray(x))


def log_gamma_ratio_in_numpy(a: ArrayLike, x: ArrayLike) -> Any:
    """The same in double precision, for numbers that are not traced: JAX would compile a program for every step."""
    return _ratio(np, scipy.special.gammaln, np.asarray(a, np.float64), np.asarray(x, np.float64))


def _ratio(xp: Any, log_gamma: Any, a: Any, x: Any) -> Any:
    large = a > LARGE
    big = xp.where(large, a, LARGE)
    series = x * xp.log(big) + (big + x - 0.5) * xp.log1p(x / big) - x + _stirling_tail(big + x) - _stirling_tail(big)
    small = xp.where(large, 1.0, a)
    return xp.where(large, series, log_gamma(small + x) - log_gamma(small))


def log_beta(a: ArrayLike, b: ArrayLike) -> Float[Array, "..."]:
    """Log beta function from three log gamma functions; JAX's own `betaln` is accurate only to single precision."""
    return gammaln(a) + gammaln(b) - gammaln(jnp.add(a, b))
