"""What every conjugate family must satisfy, whatever its formulas."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to, constraints

from bnp_hier.components import (
    BetaBernoulli,
    Component,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
)
from bnp_hier.components.base import ComponentPredictive


@dataclasses.dataclass(frozen=True)
class Case:
    """A component, six rows of data, and which entries of a flattened parameter array are free coordinates."""

    component: Component
    X: np.ndarray
    free: tuple[int, ...]

    @property
    def name(self) -> str:
        return type(self.component).__name__


_rng = np.random.default_rng(20)
_real = _rng.normal(size=(6, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) + np.array([0.5, -1.0])
_bits = np.array([[1, 0], [1, 1], [0, 0], [1, 0], [1, 1], [0, 0]], dtype=float)
_counts = np.array([[3, 0, 1], [0, 0, 0], [5, 2, 1], [1, 1, 9], [2, 0, 4], [0, 7, 1]], dtype=float)

_niw = NormalInverseWishart(np.array([0.2, -0.7]), 0.4, 4.5, np.array([[1.5, 0.4], [0.4, 0.9]]))
_nig = NormalInverseGamma(np.array([0.1, -0.4]), np.array([0.3, 1.2]), 2.5, np.array([0.8, 1.7]))
_known = NormalKnownCovariance(
    np.array([0.1, -0.3]), np.array([[2.0, 0.5], [0.5, 1.2]]), np.array([[0.9, -0.2], [-0.2, 0.6]])
)
_bernoulli = BetaBernoulli(np.array([0.7, 2.0]), np.array([1.3, 0.6]))
_multinomial = DirichletMultinomial(np.array([0.8, 1.5, 2.2]), total_count=9)
_poisson = GammaPoisson(np.array([1.4, 0.6, 2.0]), np.array([0.5, 0.9, 0.4]))
_product = ProductComponent(
    [
        _niw,
        BetaBernoulli(np.array([0.7]), np.array([1.3])),
        GammaPoisson(np.array([1.4]), 0.5),
        NormalInverseGamma(np.array([0.1]), 0.3, 2.5, 0.8),
    ],
    [[3, 1], [0], [4], [2]],
)
_mixed = np.column_stack([_bits[:, 0], _real[:, 1], _rng.normal(size=6), _real[:, 0], _counts[:, 2]])

CASES = [
    Case(_niw, _real, (0, 1, 2, 4, 5)),  # the mean, and the lower triangle of the covariance
    Case(_nig, _real, (0, 1, 2, 3)),
    Case(_known, _real, (0, 1)),
    Case(_bernoulli, _bits, (0, 1)),
    Case(_multinomial, _counts, (0, 1)),  # the last probability is one minus the others
    Case(_poisson, _counts, (0, 1, 2)),
    Case(_product, _mixed, (0, 1, 2, 4, 5, 6, 7, 8, 9)),
]

every_family = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

# One compiled function per method; components are pytrees, so that they are ordinary arguments.
suff_stats = jax.jit(lambda c, X: c.suff_stats(X))
log_marginal = jax.jit(lambda c, s: c.log_marginal(s))
log_predictive = jax.jit(lambda c, s, X: c.log_predictive(s, X))
make_cache = jax.jit(lambda c, s: c.cache(s))
update_cache = jax.jit(lambda c, k, row, sign: c.update_cache(k, row, sign))
cached_log_predictive = jax.jit(lambda c, k, row: c.cached_log_predictive(k, row))


def total(rows, members=slice(None)):
    """Statistics of the set of rows, from the statistics of every row."""
    return jax.tree.map(lambda leaf: leaf[members].sum(0), rows)


def prefixes(rows):
    """Statistics of the first 0, 1, ..., n rows."""
    return jax.tree.map(lambda leaf: jnp.concatenate([jnp.zeros_like(leaf[:1]), jnp.cumsum(leaf, 0)]), rows)


def without_last(stats):
    return jax.tree.map(lambda leaf: leaf[:-1], stats)


# ---- marginal, predictives, caches -----------------------------------------------------------------------------------


@every_family
def test_log_marginal_is_the_chain_of_predictives(case, x64):
    rows = suff_stats(case.component, case.X)
    marginals = log_marginal(case.component, prefixes(rows))
    steps = log_predictive(case.component, without_last(prefixes(rows)), case.X)
    assert marginals.dtype == jnp.float64 and steps.shape == (6,)
    np.testing.assert_allclose(np.cumsum(steps), marginals[1:], rtol=1e-12, atol=1e-12)
    assert np.all(np.abs(steps) > 1e-3)


@every_family
def test_the_order_of_the_rows_does_not_matter(case, x64):
    order = np.array([4, 1, 5, 0, 3, 2])
    stats = prefixes(suff_stats(case.component, case.X[order]))
    chain = log_predictive(case.component, without_last(stats), case.X[order]).sum()
    whole = log_marginal(case.component, total(suff_stats(case.component, case.X)))
    np.testing.assert_allclose(chain, whole, rtol=1e-12)


@every_family
def test_statistics_are_one_row_each_and_zero_for_the_empty_set(case, x64):
    rows, empty = suff_stats(case.component, case.X), case.component.empty((6,))
    assert jax.tree.structure(rows) == jax.tree.structure(empty)
    for row, zero in zip(jax.tree.leaves(rows), jax.tree.leaves(empty), strict=True):
        assert row.shape == zero.shape and row.dtype == zero.dtype == jnp.float64
        assert not zero.any() and row.any()


@every_family
def test_statistics_add_up_over_any_split(case, x64):
    """Statistics of two halves, added, give the marginal of the whole and the predictive of a new row given the whole."""
    rows = suff_stats(case.component, case.X)
    halves = jax.tree.map(jnp.add, total(rows, np.array([0, 3, 5])), total(rows, np.array([1, 2])))
    chain = log_predictive(case.component, without_last(prefixes(rows)), case.X)
    np.testing.assert_allclose(log_marginal(case.component, halves), chain[:-1].sum(), rtol=1e-12)
    np.testing.assert_allclose(log_predictive(case.component, halves, case.X[5]), chain[5], rtol=0, atol=1e-11)
    # rows 0, 3, 5, 1, 2 are five rows, but not the first five: the last line must differ from them
    first_five = total(rows, slice(0, 5))
    assert abs(log_marginal(case.component, first_five) - log_marginal(case.component, halves)) > 1e-3
