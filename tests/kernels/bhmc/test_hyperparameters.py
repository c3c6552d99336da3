"""Draws of concentrations and variances follow their conditionals, computed by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from bnp_hier.kernels.bhmc.hyperparameters import draw_concentration, draw_variance, truncated_gamma
from tests.oracles.monte_carlo import effective_draws
from tests.parameters import few

STEPS = 20_000


def run(step: Callable[[jax.Array, jax.Array], jax.Array], start: float, seed: int = 0) -> np.ndarray:
    """A chain of one number."""

    def one(value: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        value = step(value, key)
        return value, value

    return np.asarray(jax.jit(lambda v: jax.lax.scan(one, v, jax.random.split(jax.random.key(seed), STEPS))[1])(start))


def assert_follows(chain: np.ndarray, log_density: Callable[[Any], Any], low: float, high: float) -> None:
    """Nine tenths' and the median's shares within five standard errors: a false-alarm rate below 1e-5."""
    x = np.linspace(low, high, 20_001)[1:-1]
    density = np.exp(log_density(x) - log_density(x).max())
    cumulative = integrate.cumulative_trapezoid(density, x, initial=0.0)
    cumulative /= cumulative[-1]
    for share in (0.1, 0.5, 0.9):
        below = chain < np.interp(share, cumulative, x)
        error = np.sqrt(share * (1 - share) / effective_draws(below))
        assert abs(below.mean() - share) < 5 * error, (share, below.mean(), error)


PRIORS = {
    "gamma": dist.Gamma(3.0, 1.0),
    "exponential": dist.Exponential(0.5),
    "uniform": dist.Uniform(0.0, 1.5),
    "far uniform": dist.Uniform(2.0, 2.5),
}


@pytest.mark.parametrize("name", few(PRIORS))
def test_concentration(name: str) -> None:
    """Three restaurants, of 7, 1 and 12 customers at nine tables; the last prior is far from where the likelihood is."""
    prior = PRIORS[name]
    groups, tables = np.array([7.0, 0.0, 1.0, 12.0]), 9
    chain = run(lambda a, key: draw_concentration(prior, a, jnp.asarray(groups), jnp.asarray(tables), key), 2.2)

    def log_density(a: np.ndarray) -> np.ndarray:
        n = groups[groups > 0][:, None]
        prior_term = np.asarray(prior.log_prob(a)) if not isinstance(prior, dist.Uniform) else 0.0
        return prior_term + tables * np.log(a) + (gammaln(a) - gammaln(a + n)).sum(0)

    low, high = (float(prior.low), float(prior.high)) if isinstance(prior, dist.Uniform) else (1e-6, 30.0)
    assert_follows(chain, log_density, low, high)


VARIANCES = {
    "inverse gamma": dist.InverseGamma(2.0, 1.0),
    "low uniform": dist.Uniform(0.0, 0.1),
    "uniform": dist.Uniform(0.3, 3.0),
}


@pytest.mark.parametrize("name", few(VARIANCES))
def test_variance(name: str) -> None:
    """Twelve numbers with squares that sum to 5: the uniform priors lie below, and around, the likelihood's peak."""
    prior = VARIANCES[name]
    chain = run(lambda v, key: draw_variance(prior, v, jnp.asarray(5.0), 12, key), 0.09 if prior.support(0.09) else 0.5)

    def log_density(v: np.ndarray) -> np.ndarray:
        prior_term = np.asarray(prior.log_prob(v)) if isinstance(prior, dist.InverseGamma) else 0.0
        return prior_term - 6 * np.log(v) - 2.5 / v

    low, high = (float(prior.low), float(prior.high)) if isinstance(prior, dist.Uniform) else (1e-3, 10.0)
    assert_follows(chain, log_density, low, high)


@pytest.mark.parametrize(
    ("shape", "rate", "low", "high"),
    few([(30.0, 1.0, 0.0, 12.0), (3.0, 2.0, 0.5, 2.0), (1.0, 0.5, 20.0, 30.0), (0.3, 1.0, 0.1, 5.0), (4.0, 1.0, 18.0, np.inf)]),
)
def test_truncated_gamma(shape: float, rate: float, low: float, high: float) -> None:
    """Bounds around the mass, and far in either tail, where slices take over."""
    arguments = map(jnp.asarray, (shape, rate, low, high))
    shape_, rate_, low_, high_ = arguments
    start = (low + min(high, low + 1.0)) / 2
    chain = run(lambda x, key: truncated_gamma(key, x, shape_, rate_, low_, high_), start)
    assert (chain >= low).all() and (chain <= high).all()
    law = stats.gamma(shape, scale=1 / rate)
    assert_follows(chain, law.logpdf, low, min(high, low + 40.0 / rate))
