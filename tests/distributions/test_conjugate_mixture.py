"""The likelihood of a partition: every cluster's rows share one component, parameters integrated out."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import jit
from numpyro.infer import Predictive

from bnp_hier.components import BetaBernoulli, GammaPoisson, NormalInverseGamma, NormalInverseWishart, ProductComponent
from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.models import dpm
from tests.components.user_family import ExponentialGamma

RNG = np.random.default_rng(12)
X = RNG.normal(size=(7, 2)) + np.array([[0.0, 3.0]])
LABELS = np.array([5, 2, 5, 2, 2, 0, 5])
BITS = (RNG.random((7, 3)) < 0.4).astype(float)

NIG = NormalInverseGamma(np.array([0.2, 2.5]), 0.3, 2.0, np.array([0.5, 1.5]))
NIW = NormalInverseWishart(np.array([0.2, 2.5]), 0.3, 4.5, np.array([[1.2, 0.3], [0.3, 0.8]]))
BERNOULLI = BetaBernoulli(np.array([0.7, 2.0, 1.0]), np.array([1.3, 0.6, 1.0]))
PRODUCT = ProductComponent(
    [NormalInverseGamma(np.array([2.5]), 0.3, 2.0, 1.5), BetaBernoulli(np.array([0.7]), np.array([1.3]))], [[1], [0]]
)
CASES = {
    "NormalInverseWishart": (NIW, X),
    "NormalInverseGamma": (NIG, X),
    "BetaBernoulli": (BERNOULLI, BITS),
    "ProductComponent": (PRODUCT, np.column_stack([BITS[:, 0], X[:, 1]])),
    "a user's": (ExponentialGamma(np.array([2.5, 3.1]), np.array([1.5, 4.0])), np.abs(X)),
}
every_family = pytest.mark.parametrize(("component", "table"), CASES.values(), ids=CASES.keys())


@jit
def evidence(component, table, members):
    """Log marginal likelihood of the rows with a one in `members`."""
    rows = component.suff_stats(table)
    return component.log_marginal(jax.tree.map(lambda leaf: jnp.tensordot(members, leaf, 1), rows))


def by_cluster(component, table, labels):
    """Sum of the clusters' own evidences."""
    return sum(float(evidence(component, table, 1.0 * (labels == k))) for k in np.unique(labels))


# ---- the density -----------------------------------------------------------------------------------------------------


@every_family
def test_log_prob_is_the_sum_of_the_clusters_evidences(component, table, x64):
    expected = by_cluster(component, table, LABELS)
    log_prob = jit(lambda labels, x: ConjugateMixture(component, labels).log_prob(x))
    np.testing.assert_allclose(log_prob(LABELS, table), expected, rtol=1e-11)
    for names in ([0, 1, 2], [6, 0, 3]):  # names of the clusters 0, 2, 5
        renamed = np.array(names)[np.searchsorted([0, 2, 5], LABELS)]
        np.testing.assert_allclose(log_prob(renamed, table), expected, rtol=1e-11)
    together, apart = np.zeros(7, int), np.arange(7)
    np.testing.assert_allclose(log_prob(together, table), evidence(component, table, np.ones(7)), rtol=1e-11)
    np.testing.assert_allclose(log_prob(apart, table), by_cluster(component, table, apart), rtol=1e-11)


def test_missing_cells_are_dropped_within_their_cluster(x64):
    table = X.copy()
    table[[0, 3, 5], [1, 0, 0]] = np.nan
    mixture = ConjugateMixture(NIG, LABELS, validate_args=True)
    assert mixture.support(table)
    log_prob = jit(lambda mixture, x: mixture.log_prob(x))
    np.testing.assert_allclose(log_prob(mixture, table), by_cluster(NIG, table, LABELS), rtol=1e-11)
    assert abs(log_prob(mixture, table) - log_prob(mixture, X)) > 0.1


def test_cluster_statistics():
    sums = cluster_statistics((jnp.arange(4.0), jnp.ones((4, 2))), jnp.array([2, 0, 2, 2]), 4)
    np.testing.assert_array_equal(sums[0], [1.0, 0.0, 5.0, 0.0])
    np.testing.assert_array_equal(sums[1][:, 1], [1.0, 0.0, 3.0, 0.0])


def test_batches_of_partitions_and_of_tables(x64):
    labels = np.stack([LABELS, np.zeros(7, int), np.arange(7)])
    mixture = ConjugateMixture(NIG, labels)
    assert mixture.batch_shape == (3,) and mixture.event_shape == (7, 2)
    one = jit(lambda z, x: ConjugateMixture(NIG, z).log_prob(x))
    many = jit(lambda z, x: ConjugateMixture(NIG, z).log_prob(x))
    expected = [one(z, X) for z in labels]
    np.testing.assert_allclose(many(labels, X), expected, rtol=1e-12)
    tables = np.stack([X, X + 1.0])
    np.testing.assert_allclose(many(LABELS, tables), [one(LABELS, x) for x in tables], rtol=1e-12)
    both = many(labels, tables[:, None])
    assert both.shape == (2, 3)
    np.testing.assert_allclose(both, [[one(z, x) for z in labels] for x in tables], rtol=1e-12)
    np.testing.assert_allclose(jit(jax.vmap(one.__wrapped__, in_axes=(0, None)))(labels, X), expected, rtol=1e-12)


def test_gradient_in_a_hyperparameter(x64):
    """Central differences, step 1e-5 (errors about 1e-10), in the vector `rate` and the number `kappa`."""

    def log_prob(kappa, rate):
        return ConjugateMixture(dataclasses.replace(NIG, kappa=kappa, rate=rate), LABELS).log_prob(X)

    gradient = jit(jax.grad(log_prob, argnums=(0, 1)))(0.3, NIG.rate)
    plain, step = jit(log_prob), 1e-5
    in_kappa = (plain(0.3 + step, NIG.rate) - plain(0.3 - step, NIG.rate)) / (2 * step)
    np.testing.assert_allclose(gradient[0], in_kappa, rtol=1e-7)
    for j in range(2):
        shift = step * np.eye(2)[j]
        in_rate = (plain(0.3, NIG.rate + shift) - plain(0.3, NIG.rate - shift)) / (2 * step)
        np.testing.assert_allclose(gradient[1][j], in_rate, rtol=1e-7)
        assert abs(gradient[1][j]) > 1e-3


def test_max_clusters_is_a_promise(x64):
    """When every label is below it the value is the same, at fewer marginal likelihoods."""
    labels = np.searchsorted([0, 2, 5], LABELS)
    mixtures = [ConjugateMixture(NIG, labels, max_clusters=capacity) for capacity in (3, 5, 100)]
    values = jit(lambda x: [mixture.log_prob(x) for mixture in mixtures])(X)
    np.testing.assert_allclose(values, by_cluster(NIG, X, LABELS), rtol=1e-11)
    batches = [str(jax.make_jaxpr(mixture.log_prob)(X)) for mixture in mixtures]
    assert "f64[3,2]" in batches[0] and "f64[7,2] = lgamma" not in batches[0] and "f64[7,2] = lgamma" in batches[2]
    assert jax.eval_shape(mixtures[0].sample, jax.random.key(0)).shape == (7, 2)


def test_pytree_round_trip(x64):
    mixture = ConjugateMixture(NIG, LABELS, max_clusters=6)
    again = jax.tree.unflatten(*reversed(jax.tree.flatten(mixture)))
    assert again.max_clusters == 6 and again.event_shape == (7, 2) and isinstance(again.component, NormalInverseGamma)
    value = jit(lambda m, x: m.log_prob(x))(mixture, X)
    np.testing.assert_allclose(value, by_cluster(NIG, X, LABELS), rtol=1e-11)


# ---- draws -----------------------------------------------------------------------------------------------------------


def test_two_points_share_parameters_exactly_when_they_share_a_cluster():
    """Prior predictive of two points in one dimension, against moments of the normal-inverse-gamma prior.

    With variance v, E[v] = rate/(shape − 1): var(x) = E[v](1 + 1/kappa), cov(x₁, x₂) = E[v]/kappa in one cluster and zero in
    two. Means, variances, covariance and E[x₁² x₂²]-type dependence of 20,000 draws: ten z-scores below 5, false-alarm rate
    6e-6; the key is fixed.
    """
    shape, rate, kappa, mean = 6.0, 4.0, 0.8, 1.5
    component = NormalInverseGamma(np.array([mean]), kappa, shape, rate)
    spread = rate / (shape - 1)
    labels = np.array([[0, 0], [0, 1]])
    draws = jit(lambda key: ConjugateMixture(component, labels).sample(key, (20_000,)))(jax.random.key(3))
    assert draws.shape == (20_000, 2, 2, 1)
    y = np.asarray(draws, dtype=float)[..., 0] - mean
    for k, covariance in enumerate((spread / kappa, 0.0)):
        a, b = y[:, k, 0], y[:, k, 1]
        check_mean(a, 0.0)
        check_mean(b, 0.0)
        check_mean(a * a, spread * (1 + 1 / kappa))
        check_mean(b * b, spread * (1 + 1 / kappa))
        check_mean(a * b, covariance)
    # the variance is shared too: the squared difference of two points in one cluster is 2v in the mean
    check_mean((y[:, 0, 0] - y[:, 0, 1]) ** 2, 2 * spread)


def check_mean(draws, expected):
    z = (draws.mean() - expected) / (draws.std() / np.sqrt(len(draws)))
    assert abs(z) < 5, (draws.mean(), expected)


def test_shapes_of_draws():
    """Sample and batch dimensions in NumPyro's order, for every family that can draw."""
    labels = np.stack([LABELS, np.arange(7), np.zeros(7, int)])
    for component, table in CASES.values():
        mixture = ConjugateMixture(component, labels)
        draws = jax.eval_shape(lambda key, mixture=mixture: mixture.sample(key, (4, 2)), jax.random.key(0))
        assert draws.shape == (4, 2, 3, *table.shape)
    draws = jit(ConjugateMixture(BERNOULLI, LABELS).sample)(jax.random.key(0))
    assert set(np.unique(np.asarray(draws, dtype=float))) == {0.0, 1.0}


def test_prior_predictive_of_a_model():
    """NumPyro's `Predictive` on the unconditioned model draws hyperparameter, partition and table together."""
    model = functools.partial(dpm, component=NIG, concentration=dist.LogNormal(0.0, 1.0))
    draws = Predictive(numpyro.handlers.uncondition(model), num_samples=5)(jax.random.key(0), X)
    assert {name: value.shape for name, value in draws.items()} == {"alpha": (5,), "z": (5, 7), "X": (5, 7, 2)}
    assert np.all(np.isfinite(draws["X"])) and len(np.unique(draws["X"][:, 0, 0])) == 5
    assert np.all(draws["z"][:, 0] == 0) and np.all(np.asarray(draws["z"]) < 7)
    assert not np.any(np.isclose(draws["X"], X))


# ---- a NumPyro distribution ------------------------------------------------------------------------------------------


def test_validation_of_samples():
    """With `validate_args=True`, good tables pass and others are called out as NumPyro's own distributions do."""
    mixture = ConjugateMixture(BERNOULLI, LABELS, validate_args=True)
    assert mixture.support(BITS) and np.isfinite(mixture.log_prob(BITS))
    wrong = np.where(np.arange(7)[:, None] == 3, 0.5, BITS)
    assert not mixture.support(wrong)
    with pytest.warns(UserWarning, match="[Oo]ut-of-support"):
        assert np.isneginf(mixture.log_prob(wrong))


def test_support_is_discrete_where_the_data_are():
    assert ConjugateMixture(BERNOULLI, LABELS).support.is_discrete
    assert not ConjugateMixture(NIG, LABELS).support.is_discrete
    assert ConjugateMixture(NIG, LABELS).support.event_dim == 2


BAD = {
    "no component": (
        lambda: ConjugateMixture(dist.Normal(0.0, 1.0), LABELS),
        "must be a bnp_hier component.*Normal",
        TypeError,
    ),
    "a class": (lambda: ConjugateMixture(NormalInverseGamma, LABELS), "must be a bnp_hier component", TypeError),
    "real labels": (lambda: ConjugateMixture(NIG, LABELS * 1.0), "whole numbers.*float", ValueError),
    "one number": (lambda: ConjugateMixture(NIG, np.int32(1)), r"vector of whole numbers.*shape \(\)", ValueError),
    "fewer rows": (lambda: ConjugateMixture(NIG, LABELS).log_prob(X[:5]), "5|7", ValueError),
    "more columns": (lambda: ConjugateMixture(NIG, LABELS).log_prob(np.ones((7, 3))), "3|2", (TypeError, ValueError)),
    "one column": (
        lambda: ConjugateMixture(NIG, LABELS).log_prob(X[:, :1]),
        r"table of shape \(7, 2\), but got \(7, 1\)",
        ValueError,
    ),
    "a vector": (lambda: ConjugateMixture(NIG, LABELS).log_prob(X[:, 0]), "7", (TypeError, ValueError)),
    "label beyond the items": (lambda: ConjugateMixture(NIG, np.array([0, 1, 9])), "assignments.*span 0 to 9", ValueError),
    "negative label": (lambda: ConjugateMixture(NIG, np.array([0, 1, -1])), "assignments.*-1", ValueError),
    "capacity zero": (lambda: ConjugateMixture(NIG, LABELS, max_clusters=0), "max_clusters", ValueError),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, match, error = BAD[name]
    with pytest.raises(error, match=match):
        call()


def test_a_model_with_counts_and_a_prior_on_the_rate(x64):
    """The observed density inside a model is that of the distribution: prior of z plus likelihood."""
    counts = np.array([[3.0, 0.0], [1.0, 2.0], [0.0, 9.0]])

    def model(x):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        z = numpyro.sample("z", ChineseRestaurantProcess(0.7, 3))
        numpyro.sample("x", ConjugateMixture(GammaPoisson(np.array([1.0, 2.0]), rate), z), obs=x)

    z = np.array([1, 0, 1])
    actual = jit(lambda values: numpyro.infer.util.log_density(model, (counts,), {}, values)[0])({"rate": 0.6, "z": z})
    expected = dist.LogNormal(0.0, 1.0).log_prob(0.6) + ChineseRestaurantProcess(0.7, 3).log_prob(z)
    expected += by_cluster(GammaPoisson(np.array([1.0, 2.0]), 0.6), counts, z)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
