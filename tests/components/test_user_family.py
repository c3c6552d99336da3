"""The smallest class a user can write is a complete component: five methods given, everything else inherited."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import jit
from scipy import integrate, stats

from bnp_hier.components import Component, NormalInverseGamma, ProductComponent
from tests.components.user_family import ExponentialGamma

X = np.array([[0.3, 2.0], [1.2, 0.1], [0.4, 5.0], [2.2, 0.7]])
FAMILY = ExponentialGamma(np.array([2.5, 3.1]), np.array([1.5, 4.0]))


def total(X):
    return jax.tree.map(lambda leaf: leaf.sum(0), FAMILY.suff_stats(X))


def test_log_marginal_by_quadrature(x64):
    expected = 0.0
    for j in range(2):
        prior = stats.gamma(FAMILY.a[j], scale=1 / FAMILY.b[j])

        def integrand(rate, prior=prior, x=X[:, j]):
            return prior.pdf(rate) * stats.expon.pdf(x, scale=1 / rate).prod()

        expected += np.log(integrate.quad(integrand, 1e-12, 30, epsabs=0, limit=200)[0])
    np.testing.assert_allclose(FAMILY.log_marginal(total(X)), expected, rtol=1e-8)
    assert FAMILY.log_evidence(X) == pytest.approx(expected, rel=1e-8)


def test_inherited_predictives(x64):
    """The predictive of an exponential-gamma column is Lomax: density a b^a / (b + x)^(a + 1)."""
    given = total(X[:3])
    a, b = FAMILY.a + 3, FAMILY.b + X[:3].sum(0)
    expected = stats.lomax.logpdf(X, a, scale=b).sum(1)
    np.testing.assert_allclose(FAMILY.log_predictive(given, X), expected, rtol=1e-11)
    np.testing.assert_allclose(FAMILY.predictive(given).log_prob(X), expected, rtol=1e-11)
    np.testing.assert_allclose(jax.jit(FAMILY.log_predictive)(given, X), expected, rtol=1e-11)


def test_inherited_cache_and_empty_set(x64):
    rows = FAMILY.suff_stats(X)
    cache = FAMILY.cache(FAMILY.empty())
    for i, sign in ((0, 1), (1, 1), (2, 1), (1, -1)):
        cache = FAMILY.update_cache(cache, jax.tree.map(lambda leaf, i=i: leaf[i], rows), sign)
    expected = FAMILY.log_predictive(total(X[[0, 2]]), X)
    np.testing.assert_allclose(FAMILY.cached_log_predictive(cache, rows), expected, rtol=1e-12)
    assert FAMILY.log_marginal(FAMILY.empty()) == 0.0
    assert [leaf.shape for leaf in FAMILY.empty((3,))] == [(3,), (3, 2)]
    np.testing.assert_array_equal(FAMILY.log_marginal_up_to(4)(rows), FAMILY.log_marginal(rows))


def test_inherited_draws():
    """Prior predictive columns are Lomax(a, b), independent; parameters are gamma.

    Kolmogorov-Smirnov tests at level 1e-6 of five samples of 2000: false-alarm rate 5e-6; the keys are fixed.
    """

    @jit
    def sample(key_predictive, key_parameters):
        predictive = FAMILY.predictive(FAMILY.empty())
        assert predictive.batch_shape == () and predictive.event_shape == (2,)
        draws = predictive.sample(key_predictive, (2000,))
        parameters = FAMILY.sample_parameters(key_parameters, FAMILY.empty((2000,)))
        return (draws, parameters), (predictive.support(draws), FAMILY.prior().support(parameters))

    arrays, inside = sample(jax.random.key(4), jax.random.key(5))
    draws, given = (np.asarray(array, dtype=float) for array in arrays)
    assert draws.shape == given.shape == (2000, 2)
    assert [mask.shape for mask in inside] == [(2000,), (2000,)] and np.all(inside)
    for j in range(2):
        a, b = FAMILY.a[j], FAMILY.b[j]
        assert stats.kstest(draws[:, j], stats.lomax(a, scale=b).cdf).pvalue > 1e-6
        assert stats.kstest(given[:, j], stats.gamma(a, scale=1 / b).cdf).pvalue > 1e-6
    # each row has its own rates: the sum of independent rows is not that of rows which share one draw
    uniform = stats.lomax(FAMILY.a[0], scale=FAMILY.b[0]).cdf(draws[:, 0])
    assert stats.kstest(uniform[::2] + uniform[1::2], stats.triang(0.5, 0, 2).cdf).pvalue > 1e-6


def test_batches_of_predictives():
    given = jax.tree.map(lambda leaf: leaf[:3], FAMILY.suff_stats(X))

    def shapes(given, key):
        predictive = FAMILY.predictive(given)
        assert predictive.batch_shape == (3,)
        return predictive.sample(key, (5,)), predictive.log_prob(X[:, None]), FAMILY.posterior(given).sample(key)

    results = jax.eval_shape(shapes, given, jax.random.key(0))
    assert [leaf.shape for leaf in results] == [(5, 3, 2), (4, 3), (3, 2)]


def test_inherited_validation():
    FAMILY.validate(X)
    with pytest.raises(ValueError, match="positive, but X has -1 at row 0, column 1"):
        FAMILY.validate(np.array([[1.0, -1.0]]))
    with pytest.raises(ValueError, match="X has 3 columns, but ExponentialGamma was built for 2 columns"):
        FAMILY.validate(np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"missing value \(NaN\) at row 0, column 0; ExponentialGamma needs complete rows"):
        FAMILY.log_evidence(np.array([[np.nan, 1.0]]))
    jax.jit(lambda x: FAMILY.validate(x))(X)  # traced data passes
    with pytest.raises(TypeError, match="ExponentialGamma has no data-informed default; specify its hyperparameters"):
        ExponentialGamma.from_data(X, learn=False)


def test_a_family_must_give_its_five_methods():
    class Incomplete(Component):
        dim = 2

    with pytest.raises(TypeError, match="abstract.*likelihood.*log_marginal.*posterior.*suff_stats"):
        Incomplete()


def test_the_decorator_makes_a_frozen_pytree(x64):
    leaves, structure = jax.tree.flatten(FAMILY)
    assert leaves[0] is FAMILY.a and leaves[1] is FAMILY.b
    assert isinstance(jax.tree.unflatten(structure, leaves), ExponentialGamma)
    with pytest.raises(dataclasses.FrozenInstanceError):
        FAMILY.a = np.ones(2)
    gradient = jax.jit(jax.grad(lambda family: family.log_marginal(total(X))))(FAMILY)
    step = 1e-6
    for j in range(2):
        shift = np.eye(2)[j] * step
        sides = [ExponentialGamma(FAMILY.a, FAMILY.b + s).log_marginal(total(X)) for s in (shift, -shift)]
        assert float(gradient.b[j]) == pytest.approx(float(sides[0] - sides[1]) / (2 * step), rel=1e-7)


def test_a_user_family_is_a_part_of_a_product(x64):
    normal = NormalInverseGamma(np.array([0.5]), 0.3, 2.0, 1.1)
    product = ProductComponent([FAMILY, normal], [[2, 0], [1]])
    table = np.column_stack([X[:, 1], [0.3, -0.2, 1.9, 0.4], X[:, 0]])
    assert product.log_evidence(table) == pytest.approx(FAMILY.log_evidence(X) + normal.log_evidence(table[:, 1:2]), rel=1e-12)
    assert product.validate(table) is None
    with pytest.raises(ValueError, match="waiting times must be positive"):
        product.validate(-table)

    @jit
    def sample(key):
        draws = product.predictive(product.empty()).sample(key, (6,))
        return draws, product.support(draws), product.support(-draws)

    draws, inside, outside = sample(jax.random.key(0))
    assert draws.shape == (6, 3) and inside.tolist() == [True] * 6 and outside.tolist() == [False] * 6


def test_a_density_of_a_family_with_kernels_is_not_redefined():
    """The kernels would go on with the family's own; what is no density may be redefined."""
    with pytest.raises(TypeError, match=r"Shifted overrides log_marginal, posterior of NormalInverseGamma.*Component"):
        type("Shifted", (NormalInverseGamma,), {"log_marginal": lambda self, stats: 0.0, "posterior": lambda self, stats: None})
    named = type("Named", (NormalInverseGamma,), {"validate": lambda self, X: None})
    assert named.from_data(np.eye(3), learn=False).native() is not None
    own = type("Own", (ExponentialGamma,), {"log_marginal": lambda self, stats: 0.0})
    assert own.native is Component.native
