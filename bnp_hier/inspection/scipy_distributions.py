"""SciPy's counterparts of NumPyro's distributions, whose quantiles need no XLA program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro.distributions as dist
from scipy import stats

from bnp_hier.utils.arrays import is_traced

__all__ = ["scipy_distribution"]

_COUNTERPARTS: dict[type[dist.Distribution], Callable[..., Any]] = {
    dist.Beta: lambda concentration1, concentration0: stats.beta(concentration1, concentration0),
    dist.Exponential: lambda rate: stats.expon(scale=1.0 / rate),
    dist.Gamma: lambda concentration, rate: stats.gamma(concentration, scale=1.0 / rate),
    dist.HalfNormal: lambda scale: stats.halfnorm(scale=scale),
    dist.InverseGamma: lambda concentration, rate: stats.invgamma(concentration, scale=rate),
    dist.LogNormal: lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)),
    dist.Normal: lambda loc, scale: stats.norm(loc, scale),
    dist.Uniform: lambda low, high: stats.uniform(low, high - low),
}


def scipy_distribution(distribution: dist.Distribution) -> Any:
    """Return the same distribution of SciPy, frozen at concrete parameters, in float64; None if it is not among those here."""
    if isinstance(distribution, dist.TwoSidedTruncatedDistribution) and type(distribution.base_dist) is dist.Normal:
        given = distribution.base_dist.loc, distribution.base_dist.scale, distribution.low, distribution.high
        make = _truncated_normal
    elif type(distribution) in _COUNTERPARTS:
        make = _COUNTERPARTS[type(distribution)]
        names = make.__code__.co_varnames[: make.__code__.co_argcount]
        given = tuple(getattr(distribution, name) for name in names)
    else:
        return None
    if is_traced(given):
        return None
    return make(*(np.asarray(value, dtype=np.float64) for value in given))


def _truncated_normal(loc: Any, scale: Any, low: Any, high: Any) -> Any:
    return stats.truncnorm((low - loc) / scale, (high - loc) / scale, loc, scale)
