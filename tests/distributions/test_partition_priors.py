"""Partition priors: density, conditionals, draws, numbers of clusters, and parameters that are integrated out."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln, logsumexp
from scipy import stats
from scipy.special import gammaln as log_gamma

import bnp_hier as bnp
from bnp_hier.distributions.partition_prior import PartitionPrior
from tests.oracles.partitions import all_partitions


class TwoConcentrations(PartitionPrior):
    """A prior from outside the package: one of two Dirichlet processes, with equal probability."""

    arg_constraints = {"alphas": dist.constraints.positive}

    def __init__(self, size, alphas=(0.5, 2.0)):
        self.alphas = np.asarray(alphas)
        super().__init__(size)

    def log_v(self, n, clusters):
        alphas = jnp.asarray(self.alphas, jnp.result_type(float))
        k, n = jnp.asarray(clusters, alphas.dtype)[..., None], jnp.asarray(n, alphas.dtype)
        log_v = logsumexp(k * jnp.log(alphas) + gammaln(alphas) - gammaln(alphas + n), -1) - np.log(2)
        return jnp.where(k[..., 0] <= n, log_v, -jnp.inf)


PRIORS = {
    "Dirichlet": lambda n: bnp.ChineseRestaurantProcess(0.8, n),
    "Pitman-Yor": lambda n: bnp.ChineseRestaurantProcess(-0.2, n, discount=0.4),
    "finite": lambda n: bnp.FiniteDirichlet(n, 4, 0.3),
    "mixture of finite mixtures": lambda n: bnp.MixtureOfFiniteMixtures(n, dist.Poisson(1.0)),
    "heavy tail": lambda n: bnp.MixtureOfFiniteMixtures(n, dist.Geometric(0.05), 0.3),
    "generalized gamma": lambda n: bnp.NormalizedGeneralizedGamma(n, 0.5, 1.0),
    "integrated": lambda n: bnp.IntegratedConcentration(n, dist.Gamma(2.0, 1.0)),
    "integrated Pitman-Yor": lambda n: bnp.IntegratedConcentration(n, dist.Gamma(2.0, 1.0), 0.3),
    "from outside": TwoConcentrations,
}
every_prior = pytest.mark.parametrize("name", PRIORS)


@cache
def partitions(n):
    return np.array(list(all_partitions(n)))


@cache
def probabilities(name, n):
    """Probabilities of `partitions(n)`, in double precision."""
    with jax.enable_x64(True):
        return np.exp(np.asarray(jax.jit(PRIORS[name](n).log_prob)(partitions(n))))


@every_prior
def test_probabilities_of_all_partitions_and_of_their_numbers_of_clusters(name):
    """Their sum is one, and those of five items are those of six after the last has been left out."""
    n = 6
    assert probabilities(name, n).sum() == pytest.approx(1.0, abs=1e-13)
    expected = np.bincount(partitions(n).max(1) + 1, weights=probabilities(name, n), minlength=n + 1)
    np.testing.assert_allclose(PRIORS[name](n).cluster_number_probabilities(), expected, atol=1e-13)
    assert PRIORS[name](2).expected_clusters(n) == pytest.approx(np.arange(n + 1) @ expected)
    fewer = {z: p for z, p in zip(map(tuple, partitions(n - 1)), probabilities(name, n - 1), strict=True)}
    for z, p in zip(map(tuple, partitions(n)), probabilities(name, n), strict=True):
        fewer[z[:-1]] -= p
    assert max(map(abs, fewer.values())) < 1e-13


@every_prior
def test_one_item_given_the_others(name, x64):
    """Weights n_c − σ and `log_open` are proportional to the probabilities of the partitions that result."""
    prior, others = PRIORS[name](6), np.array([0, 0, 1, 0, 1])
    log_probs = np.asarray(prior.log_prob(np.array([[*others, label] for label in (0, 1, 2)])))
    sigma = float(prior.discount)
    weights = np.array([3 - sigma, 2 - sigma, np.exp(float(prior.log_open(6, 2)))])
    np.testing.assert_allclose(np.exp(log_probs - logsumexp(log_probs)), weights / weights.sum(), rtol=1e-11)
    # labels describe a partition, whatever they are
    assert float(prior.log_prob(np.array([5, 5, 3, 5, 3, 0]))) == pytest.approx(log_probs[2], abs=1e-12)


@every_prior
@pytest.mark.parametrize("generic", [False, True])
def test_frequencies_of_draws(name, generic):
    """χ² of 20,000 draws over the 15 partitions of four items; false alarms: 1e-4 in each of 18 tests."""
    prior, key = PRIORS[name](4), jax.random.key(3)
    draw = PartitionPrior.sample if generic else type(prior).sample
    draws = np.asarray(jax.jit(lambda key: draw(prior, key, (20_000,)))(key))
    found, counts = np.unique(draws, axis=0, return_counts=True)
    assert {tuple(z) for z in found} <= {tuple(z) for z in partitions(4)}  # in order of appearance
    frequency = dict(zip(map(tuple, found), counts, strict=True))
    observed = np.array([frequency.get(tuple(z), 0) for z in partitions(4)])
    possible = probabilities(name, 4) > 0
    expected = 20_000 * probabilities(name, 4)[possible]
    assert observed[~possible].sum() == 0
    assert stats.chisquare(observed[possible], expected * observed.sum() / expected.sum()).pvalue > 1e-4


@every_prior
def test_many_items(name):
    """The recursion of V holds among a million items in double precision, and numbers of clusters sum to one among 10,000."""
    with jax.enable_x64(True):
        prior, k, n = PRIORS[name](1_000_000), jnp.array([1.0, 2.0, 4.0, 30.0, 1000.0]), 1_000_000
        both = jax.jit(lambda n: (prior.log_v(n, k), prior.log_v(n + 1, k), prior.log_v(n + 1, k + 1)))
        left, same, more = map(np.asarray, both(np.asarray(n)))
    possible = left > -np.inf
    with np.errstate(invalid="ignore"):
        right = np.logaddexp(np.log(n - np.asarray(k) * float(prior.discount)) + same, more)
    np.testing.assert_allclose(right[possible], left[possible], rtol=1e-13)
    assert possible[:3].all() and (possible == (right > -np.inf)).all()
    single = np.asarray(jax.jit(lambda n: PRIORS[name](10_000).log_v(n, k))(np.asarray(10_000)))
    with jax.enable_x64(True):
        double = np.asarray(jax.jit(lambda n: PRIORS[name](10_000).log_v(n, k))(np.asarray(10_000)))
    np.testing.assert_allclose(single, double, rtol=3e-6)
    if float(prior.discount) <= 0:  # with a discount, thousands of clusters
        assert PRIORS[name](10_000).cluster_number_probabilities().sum() == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda p: bnp.ChineseRestaurantProcess(p[0], 9, p[1]), (0.7, 0.3)),
        (lambda p: bnp.FiniteDirichlet(9, 5, p[0]), (0.6,)),
        (lambda p: bnp.MixtureOfFiniteMixtures(9, dist.Poisson(p[1]), p[0]), (0.6, 1.5)),
        (lambda p: bnp.NormalizedGeneralizedGamma(9, p[1], p[0]), (1.2, 0.4)),
        (lambda p: bnp.IntegratedConcentration(9, dist.Gamma(p[0], 2.0)), (1.5,)),
    ],
)
def test_gradients_in_the_parameters(make, value, x64):
    """Central differences with step 1e-6."""
    labels, value, step = np.array([0, 0, 1, 0, 2, 1, 0, 0, 3]), np.array(value), 1e-6
    log_prob = jax.jit(lambda p: make(p).log_prob(labels))
    differences = [(log_prob(value + e) - log_prob(value - e)) / (2 * step) for e in step * np.eye(len(value))]
    np.testing.assert_allclose(jax.jit(jax.grad(lambda p: make(p).log_prob(labels)))(value), differences, rtol=1e-6, atol=1e-8)


def test_special_cases(x64):
    """σ → 0 of the generalised gamma process is a Dirichlet process; a known number of components is a finite mixture."""
    z = partitions(6)
    gamma, process = bnp.NormalizedGeneralizedGamma(6, 0.0, 0.8), bnp.ChineseRestaurantProcess(0.8, 6)
    np.testing.assert_allclose(gamma.log_prob(z), process.log_prob(z), rtol=1e-11)
    known = bnp.MixtureOfFiniteMixtures(6, dist.Categorical(np.eye(5)[3]), 0.3)
    np.testing.assert_allclose(np.exp(known.log_prob(z)), np.exp(bnp.FiniteDirichlet(6, 4, 0.3).log_prob(z)), atol=1e-13)
    several = bnp.FiniteDirichlet(6, np.array([2, 4]), 0.3)
    np.testing.assert_allclose(several.log_prob(z[:, None])[:, 1], bnp.FiniteDirichlet(6, 4, 0.3).log_prob(z), rtol=1e-12)
    assert several.sample(jax.random.key(0), (3,)).shape == (3, 2, 6)


def test_parameters_given_the_number_of_clusters(x64):
    """5,000 draws against the posterior by a fine grid; Kolmogorov-Smirnov and χ², false alarms 1e-4 each."""
    n, k, keys = 50, 3, jax.random.split(jax.random.key(0), 5_000)
    prior = bnp.IntegratedConcentration(n, dist.Gamma(2.0, 4.0))
    draws = np.asarray(jax.jit(jax.vmap(lambda key: prior.concentration_given(key, k)))(keys))
    grid = np.exp(np.linspace(-15, 5, 40_001))
    log_density = stats.gamma(2.0, scale=0.25).logpdf(grid) + k * np.log(grid) + log_gamma(grid) - log_gamma(grid + n)
    cumulative = np.cumsum(np.exp(log_density - log_density.max()) * grid)
    assert stats.kstest(draws, lambda a: np.interp(a, grid, cumulative / cumulative[-1])).pvalue > 1e-4

    mixture = bnp.MixtureOfFiniteMixtures(n, dist.Poisson(1.0))
    numbers = np.asarray(jax.jit(jax.vmap(lambda key: mixture.components_given(key, k)))(keys))
    K = np.arange(k, 40)
    logs = stats.poisson(1).logpmf(K - 1) + log_gamma(K + 1) - log_gamma(K - k + 1) + log_gamma(K) - log_gamma(K + n)
    expected = np.exp(logs - logs.max())[:4] / np.exp(logs - logs.max()).sum()
    assert numbers.min() == k
    observed = np.array([(numbers == value).sum() for value in K[:4]])
    assert stats.chisquare([*observed, 5_000 - observed.sum()], 5_000 * np.array([*expected, 1 - expected.sum()])).pvalue > 1e-4


class Forgetful(TwoConcentrations):
    """Its parameter is not declared."""

    def __init__(self, size):
        self.undeclared = 1.0
        super().__init__(size)


class Improper(PartitionPrior):
    def log_v(self, n, clusters):
        return -jnp.asarray(clusters, float)


def test_bad_input():
    for call, message in (
        (lambda: bnp.FiniteDirichlet(0, 3), "FiniteDirichlet: size must be a whole number of at least 1, but it is 0"),
        (lambda: bnp.FiniteDirichlet(5, 2.5), "components must be whole numbers of at least 1, but they are 2.5"),
        (lambda: bnp.FiniteDirichlet(5, 3, 0.0), "weight must be positive and finite, but it is 0.0"),
        (lambda: bnp.MixtureOfFiniteMixtures(5, 3), "components must be a NumPyro distribution on 0, 1, 2, .*, but it is 3"),
        (lambda: bnp.MixtureOfFiniteMixtures(5, dist.Gamma(1.0)), "components must be a NumPyro distribution on 0, 1, 2"),
        (lambda: bnp.MixtureOfFiniteMixtures(5, dist.Poisson(1.0), -1.0), "weight must be positive and finite, but it is -1.0"),
        (lambda: bnp.NormalizedGeneralizedGamma(5, 1.0, 1.0), r"discount must lie in \[0, 1\), but it is 1.0"),
        (lambda: bnp.NormalizedGeneralizedGamma(5, 0.5, np.inf), "rate must be positive and finite, but it is inf"),
        (lambda: bnp.IntegratedConcentration(5, dist.Normal()), "concentration must be a number above 0, but its prior has"),
        (lambda: bnp.IntegratedConcentration(5, dist.Poisson(1.0)), "a continuous distribution of one number"),
        (lambda: bnp.IntegratedConcentration(5, dist.Gamma(1.0), 1.5), r"discount must be a number in \[0, 1\), but it is 1.5"),
        (lambda: PartitionPrior(5, 1.0), "PartitionPrior: discount must be below 1, but it is 1.0"),
        (lambda: PartitionPrior(5, max_clusters=0), "max_clusters must be a whole number of at least 1, but it is 0"),
        (lambda: Improper(5).cluster_number_probabilities(), "Improper: .* sum to .*, so that log_v does not satisfy"),
        (
            lambda: bnp.FiniteDirichlet(5, np.array([2, 3])).cluster_number_probabilities(),
            r"must be scalars, but they have shape \(2,\)",
        ),
        (lambda: bnp.FiniteDirichlet(5, 2).cluster_number_probabilities(0), "n must be a whole number of items, at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(NotImplementedError, match=r"PartitionPrior does not define log_v\(n, clusters\)"):
        PartitionPrior(3).cluster_number_probabilities()
    with pytest.raises(TypeError, match="Forgetful sets the attributes undeclared without declaring them"):
        Forgetful(3).cluster_number_probabilities()


def test_partitions_into_more_clusters_than_allowed(x64):
    prior = bnp.MixtureOfFiniteMixtures(5, dist.Poisson(2.0), max_clusters=2)
    logs = np.asarray(prior.log_prob(partitions(5)))
    assert ((logs == -np.inf) == (partitions(5).max(1) > 1)).all()
    assert np.asarray(prior.sample(jax.random.key(0), (500,))).max() == 1
    assert np.asarray(PartitionPrior.sample(prior, jax.random.key(0), (500,))).max() == 1
