"""Counterparts in SciPy have the densities and distribution functions of NumPyro's own."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from bnp_hier.inspection import hyperpriors
from bnp_hier.inspection.scipy_distributions import scipy_distribution

PRIORS = {
    "beta": lambda: dist.Beta(2.0, 3.5),
    "exponential": lambda: dist.Exponential(0.3),
    "gamma": lambda: dist.Gamma(1.5, 0.2),
    "half-normal": lambda: dist.HalfNormal(2.0),
    "inverse gamma": lambda: dist.InverseGamma(2.5, 4.0),
    "log-normal": lambda: dist.LogNormal(np.array([0.5, -1.0]), np.array([0.7, 1.3])),
    "normal": lambda: dist.Normal(-1.0, 2.0),
    "truncated normal": lambda: dist.TruncatedNormal(0.2, 0.4, low=0.0, high=1.0),
    "uniform": lambda: dist.Uniform(-1.0, 3.0),
}


@pytest.mark.parametrize("name", PRIORS)
def test_counterparts_agree(name: str) -> None:
    with jax.enable_x64(True):
        prior = PRIORS[name]()
        own = scipy_distribution(prior)
        for probability in (0.01, 0.3, 0.5, 0.9):
            value = own.ppf(probability)
            np.testing.assert_allclose(prior.cdf(value), np.full(prior.shape(), probability), rtol=1e-10)
            np.testing.assert_allclose(prior.log_prob(value), own.logpdf(value), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PRIORS)
def test_medians_and_tails_are_those_without_a_counterpart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with jax.enable_x64(True):
        prior = PRIORS[name]()
        value = np.asarray(scipy_distribution(prior).ppf(0.95))
        found = hyperpriors._median(prior), hyperpriors._tail(prior, value)
        monkeypatch.setattr(hyperpriors, "scipy_distribution", lambda _: None)
        expected = hyperpriors._median(prior), hyperpriors._tail(prior, value)
    np.testing.assert_allclose(found[0], np.asarray(expected[0]), rtol=1e-9, atol=1e-12)
    assert (found[1] is None) == (expected[1] is None)
    if found[1] is not None:
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-8)


def test_others_have_none() -> None:
    assert scipy_distribution(dist.Cauchy(0.0, 1.0)) is None
    assert scipy_distribution(dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.ExpTransform())) is None
    jax.jit(lambda rate: [] if scipy_distribution(dist.Exponential(rate)) is None else 1 / 0)(1.0)
