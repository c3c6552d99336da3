"""Numbers of clusters: against all partitions, the mean's closed form, and the concentration that gives it back."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import digamma
from scipy.stats import gamma

import bnp_hier as bnp
from bnp_hier.distributions.chinese_restaurant import log_partition_prior
from tests.oracles.partitions import all_partitions
from tests.parameters import few


@pytest.mark.parametrize(("alpha", "discount"), few([(0.3, 0.0), (1.0, 0.4), (-0.2, 0.5), (5.0, 0.0)], 2, 2))
def test_equals_the_sum_over_all_partitions(alpha: float, discount: float, x64: None) -> None:
    n = 7
    found = bnp.prior_clusters(alpha, n, discount)
    expected = np.zeros(n + 1)
    for labels in all_partitions(n):
        counts = np.bincount(labels, minlength=n)
        expected[np.count_nonzero(counts)] += np.exp(float(log_partition_prior(counts.astype(float), alpha, discount)))
    np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 50.0, pytest.param(1e5, marks=pytest.mark.slow)])
def test_many_items(alpha: float) -> None:
    """The Dirichlet process: mean and variance of a sum of independent openings, also where a million could be clusters."""
    n = 20_000
    found = bnp.prior_clusters(alpha, n)
    assert found.shape == (n + 1,) and found.sum() == pytest.approx(1.0, abs=1e-10)
    opening = alpha / (alpha + np.arange(n))
    mean = np.arange(n + 1) @ found
    assert (
        mean == pytest.approx(opening.sum(), rel=1e-9) == pytest.approx(alpha * (digamma(alpha + n) - digamma(alpha)), rel=1e-9)
    )
    assert (np.arange(n + 1) - mean) ** 2 @ found == pytest.approx((opening * (1 - opening)).sum(), rel=1e-7, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    share=st.floats(0.01, 0.99),
    n=st.sampled_from([2, 10, 150, 1000]),
    discount=st.sampled_from([0.0, 1e-4, 0.25, 0.9]),
)
def test_the_concentration_gives_the_number_back(share: float, n: int, discount: float) -> None:
    wanted = 1 + share * (n - 1)
    alpha = bnp.concentration_for(wanted, n, discount)
    assert alpha > -discount
    assert np.arange(n + 1) @ bnp.prior_clusters(alpha, n, discount) == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize(("shape", "discount"), few([(2.0, 0.0), (1.0, 0.3), (500.0, 0.0)], 2, 1))
def test_a_prior_on_the_concentration_by_quadrature(shape: float, discount: float) -> None:
    n, prior = 6, gamma(shape, scale=1 / 4)
    found = bnp.prior_clusters(dist.Gamma(shape, 4.0), n, discount)
    assert found.shape == (n + 1,) and found.sum() == pytest.approx(1.0, abs=1e-12)

    def integrand(u: float, k: int) -> float:
        return float(prior.pdf(np.exp(u)) * np.exp(u) * bnp.prior_clusters(float(np.exp(u)), n, discount)[k])

    middle = np.log(prior.mean())
    for k in (1, 3, 6):
        parts = [quad(integrand, middle + low, middle + low + 4, args=(k,), limit=200)[0] for low in (-20, -16, -12, -8, -4, 0)]
        assert found[k] == pytest.approx(sum(parts), abs=1e-7)


@pytest.mark.parametrize(
    "prior",
    few([bnp.models.DEFAULT_CONCENTRATION, dist.LogNormal(0.0, 1.5), dist.Uniform(0.5, 3.0), dist.Exponential(0.2)], 2, 2),
)
def test_a_prior_on_the_concentration_by_simulation(prior: dist.Distribution) -> None:
    """20,000 concentrations with a partition each: no share is 4.5 standard errors off, but by chance with probability 4e-4."""
    rng, n, s = np.random.default_rng(0), 50, 20_000
    alpha = np.asarray(prior.sample(jax.random.key(0), (s,)), dtype=float)[:, None]
    numbers = (rng.random((s, n)) < alpha / (alpha + np.arange(n))).sum(1)
    found, shares = bnp.prior_clusters(prior, n), np.bincount(numbers, minlength=n + 1) / s
    assert (np.abs(shares - found) < 4.5 * np.sqrt(found * (1 - found) / s) + 3 / s).all()


def test_bad_input() -> None:
    for call, message in (
        (lambda: bnp.prior_clusters(0.0, 5), "concentration must be a number above -?0, but it is 0.0"),
        (lambda: bnp.prior_clusters(-0.5, 5, 0.3), "concentration must be a number above -0.3, but it is -0.5"),
        (lambda: bnp.prior_clusters(float("nan"), 5), "concentration must be"),
        (lambda: bnp.prior_clusters(1.0, 0), "n must be a whole number of items, at least 1, but it is 0"),
        (lambda: bnp.prior_clusters(1.0, 5.5), "n must be a whole number"),
        (lambda: bnp.prior_clusters(1.0, 5, 1.0), r"discount must be a number in \[0, 1\), but it is 1.0"),
        (lambda: bnp.prior_clusters(None, 5), "concentration must be a number above 0, but it is None"),
        (lambda: bnp.prior_clusters(np.nan, 5), "concentration must be a number above 0, but it is nan"),
        (lambda: bnp.prior_clusters("1", 5), "concentration must be a number above 0, but it is '1'"),
        (lambda: bnp.prior_clusters(np.ones(2), 5), "concentration must be a number above 0, but it is array"),
        (lambda: bnp.prior_clusters(1.0, 5, None), r"discount must be a number in \[0, 1\), but it is None"),
        (lambda: bnp.prior_clusters(dist.Poisson(3.0), 5), "a continuous distribution of one number"),
        (lambda: bnp.prior_clusters(dist.Gamma(np.ones(2), 1.0), 5), "a continuous distribution of one number"),
        (lambda: bnp.prior_clusters(dist.Normal(0.0, 1.0), 5), "concentration must be a number above 0, but its prior has"),
        (lambda: bnp.concentration_for(None, 5), "expected_clusters must lie strictly between 1 and n = 5, but it is None"),
        (lambda: bnp.concentration_for(1.0, 5), "expected_clusters must lie strictly between 1 and n = 5, but it is 1.0"),
        (lambda: bnp.concentration_for(5, 5), "strictly between 1 and n = 5, but it is 5"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
