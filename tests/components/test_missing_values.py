"""Missing values (NaN): dropped exactly by families whose columns are independent, refused by the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

from bnp_hier.components import (
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
)

NAN = np.nan
REAL = np.array([[0.3, NAN, 1.2], [NAN, NAN, NAN], [-1.0, 0.4, NAN], [2.0, 1.1, 0.3], [0.1, NAN, -0.7]])
BITS = np.array([[1, NAN, 0], [NAN, NAN, NAN], [0, 1, NAN], [1, 1, 0], [1, NAN, 1]], dtype=float)
COUNTS = np.array([[3, NAN, 0], [NAN, NAN, NAN], [0, 4, NAN], [1, 1, 0], [7, NAN, 2]], dtype=float)


def real(columns=slice(None)):
    mean, kappa = np.array([0.2, -0.1, 0.4])[columns], np.array([0.5, 1.0, 2.0])[columns]
    return NormalInverseGamma(mean, kappa, 2.3, np.array([0.7, 1.5, 0.9])[columns])


def bits(columns=slice(None)):
    return BetaBernoulli(np.array([0.7, 2.0, 1.1])[columns], np.array([1.3, 0.6, 0.5])[columns])


def counts(columns=slice(None)):
    return GammaPoisson(np.array([1.4, 0.6, 2.0])[columns], np.array([0.5, 0.9, 0.4])[columns])


CASES = {"real": (real, REAL), "bits": (bits, BITS), "counts": (counts, COUNTS)}
every_family = pytest.mark.parametrize(("family", "X"), CASES.values(), ids=CASES.keys())


evidence = jit(lambda component, X: component.log_marginal(total(component, X)))


def total(component, X):
    return jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(X))


@every_family
def test_columns_on_their_own_without_their_missing_cells(family, X, x64):
    """The marginal is the sum over columns of the complete cells' marginal in a one-column component."""
    expected = 0.0
    for j in range(3):
        one, cells = family(slice(j, j + 1)), X[~np.isnan(X[:, j]), j]
        expected += float(evidence(one, cells[:, None]))
    component = family()
    np.testing.assert_allclose(evidence(component, X), expected, rtol=1e-12)
    assert abs(evidence(component, np.nan_to_num(X, nan=1.0)) - expected) > 0.1


@every_family
def test_log_evidence_takes_missing_cells(family, X):
    with jax.enable_x64(True):
        expected = float(evidence(family(), X))
    assert family().log_evidence(X) == pytest.approx(expected, rel=1e-12)


@every_family
def test_an_empty_row_contributes_nothing(family, X, x64):
    component = family()
    stats = total(component, X)
    assert np.isnan(X[1]).all()
    assert all(not leaf[1].any() for leaf in jax.tree.leaves(component.suff_stats(X)))
    np.testing.assert_allclose(jit(component.log_predictive)(stats, X[1]), 0.0, atol=1e-14)
    assert evidence(component, X[1:2]) == 0.0
    np.testing.assert_allclose(evidence(component, X), evidence(component, np.delete(X, 1, axis=0)), rtol=1e-14)


@every_family
def test_predictives_leave_missing_cells_out(family, X, x64):
    """Cached, closed-form and chained predictives of rows with holes."""

    @jit
    def three(component, X):
        rows = component.suff_stats(X)
        stats = jax.tree.map(lambda leaf: leaf[3:].sum(0), rows)
        joined = component.log_marginal(jax.tree.map(jnp.add, stats, rows)) - component.log_marginal(stats)
        return joined, component.log_predictive(stats, X), component.predictive(stats).log_prob(X)

    expected, cached, closed = three(family(), X)
    np.testing.assert_allclose(cached, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(closed, expected, rtol=1e-11, atol=1e-13)


@every_family
def test_caches_skip_missing_cells(family, X, x64):
    component = family()
    rows = component.suff_stats(X)
    cache = component.cache(component.empty())
    for i, sign in ((0, 1), (1, 1), (2, 1), (3, 1), (1, -1), (0, -1)):
        cache = component.update_cache(cache, jax.tree.map(lambda leaf, i=i: leaf[i], rows), sign)
    fresh = component.cache(jax.tree.map(lambda leaf: leaf[2:4].sum(0), rows))
    for updated, right in zip(jax.tree.leaves(cache), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_allclose(updated, right, rtol=1e-12, atol=1e-13)


@every_family
def test_gradients_pass_missing_cells(family, X, x64):
    """NaN cells poison neither the hyperparameters' gradient nor the likelihood's."""
    component = family()

    def both(component):
        stats = total(component, X)
        return component.log_marginal(stats) + component.predictive(stats).log_prob(X).sum()

    value, gradient = jit(jax.value_and_grad(both))(component)
    assert np.isfinite(value)
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all() and np.all(np.abs(leaf) > 1e-6)


@every_family
def test_likelihood_and_support_allow_missing_cells(family, X, x64):

    @jit
    def densities(component, first, last, X, key):
        parameters = component.prior().sample(key)
        likelihood = component.likelihood(parameters)
        columns = first.likelihood(parameters[..., :1]).log_prob(X[4:, :1])
        columns += last.likelihood(parameters[..., 2:]).log_prob(X[4:, 2:])
        return likelihood.log_prob(X), columns[0], component.support(X), likelihood.support(X), likelihood.sample(key)

    components = family(), family(slice(0, 1)), family(slice(2, 3))
    density, expected, *inside, draw = densities(*components, X, jax.random.key(2))
    assert np.all(inside) and np.isfinite(draw).all()
    assert density[1] == 0.0
    np.testing.assert_allclose(density[4], expected, rtol=1e-13)  # its middle cell is missing


@every_family
def test_from_data_reads_the_cells_that_are_there(family, X):
    """Each column's hyperparameters are those of its complete cells; `validate` accepts the data."""
    component = type(family()).from_data(X, learn=False)
    component.validate(X)
    assert component.allows_missing
    for j in range(3):
        one = type(component).from_data(X[~np.isnan(X[:, j]), j][:, None], learn=False)
        for whole, single in zip(jax.tree.leaves(component), jax.tree.leaves(one), strict=True):
            column = whole if np.ndim(whole) == 0 else whole[j]
            np.testing.assert_allclose(column, np.ravel(single)[0], rtol=1e-14)


# ---- products ----------------------------------------------------------------------------------------------------------

MIXED = np.column_stack([COUNTS[:, 0], REAL[:, 1], BITS[:, 2], REAL[:, 0]])


def product():
    return ProductComponent([real(slice(0, 2)), bits(slice(2, 3)), counts(slice(0, 1))], [[3, 1], [2], [0]])


def test_products_drop_missing_cells_part_by_part(x64):
    component = product()
    assert component.allows_missing
    parts = zip(component.parts, component.columns, strict=True)
    expected = sum(float(evidence(part, MIXED[:, list(columns)])) for part, columns in parts)
    np.testing.assert_allclose(evidence(component, MIXED), expected, rtol=1e-13)
    assert evidence(component, MIXED[1:2]) == 0.0

    @jit
    def predictives(component, X):
        stats = total(component, X)
        return component.predictive(stats).log_prob(X), component.log_predictive(stats, X), component.support(X)

    closed, cached, inside = predictives(component, MIXED)
    np.testing.assert_allclose(closed, cached, rtol=1e-12)
    assert np.all(inside) and closed[1] == 0.0


def test_products_with_a_part_that_needs_complete_rows():
    """The other parts' cells may still be missing."""
    niw = NormalInverseWishart(np.zeros(2), 1.0, 4.0, np.eye(2))
    component = ProductComponent([bits(slice(0, 1)), niw], [[1], [0, 2]])
    assert not component.allows_missing
    X = np.array([[0.1, NAN, 0.2], [1.0, 1.0, -0.3], [0.4, 0.0, 2.0]])
    component.validate(X)
    expected = evidence(niw, X[:, [0, 2]]) + evidence(bits(slice(0, 1)), X[1:, 1:2])
    np.testing.assert_allclose(evidence(component, X), expected, rtol=1e-5)
    X[2, 2] = NAN
    with pytest.raises(ValueError, match=r"columns 0, 2: .*missing value \(NaN\) at row 2, column 2"):
        component.validate(X)


# ---- families that refuse ----------------------------------------------------------------------------------------------

COMPLETE = {
    "NormalInverseWishart": NormalInverseWishart(np.zeros(3), 1.0, 4.0, np.eye(3)),
    "NormalKnownCovariance": NormalKnownCovariance(np.zeros(3), np.eye(3), np.eye(3)),
    "DirichletMultinomial": DirichletMultinomial(np.ones(3)),
}


@pytest.mark.parametrize("component", COMPLETE.values(), ids=COMPLETE.keys())
def test_dependent_columns_refuse_missing_cells(component):
    """The message names the family, the first missing value, and a way out."""
    X = np.array([[3.0, 0.0, 1.0], [2.0, 1.0, NAN], [NAN, 1.0, 0.0]])
    name = type(component).__name__
    assert not component.allows_missing
    for check in (component.validate, component.log_evidence):
        with pytest.raises(ValueError, match=rf"missing value \(NaN\) at row 1, column 2; {name} needs complete rows"):
            check(X)
    component.validate(X[:1])


def test_a_multinomial_is_not_read_off_incomplete_rows():
    X = np.array([[3.0, 0.0, 1.0], [2.0, 1.0, NAN]])
    with pytest.raises(ValueError, match=r"missing value \(NaN\).*row 1, column 2"):
        DirichletMultinomial.from_data(X, learn=False)
