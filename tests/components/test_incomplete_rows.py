"""Rows with missing values under dependent columns: densities, conditionals and expectations, each against another way."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal

from bnp_hier import BetaBernoulli, GammaPoisson, NormalInverseWishart, NormalKnownCovariance, ProductComponent
from bnp_hier.components.incomplete_rows import (
    Elliptical,
    conditional_draw,
    expected_cells,
    log_density_of_observed,
    moments_of_incomplete_rows,
)

NAN = np.nan
COVARIANCE = np.array([[1.0, 0.6, -0.2], [0.6, 2.0, 0.4], [-0.2, 0.4, 0.7]])
MEAN = np.array([0.3, -1.0, 2.0])
FAMILIES = {
    "full": NormalInverseWishart(MEAN, 0.4, 5.5, COVARIANCE),
    "full, away from its mean": NormalInverseWishart(MEAN, 0.4, 5.5, COVARIANCE, origin=MEAN + 5.0),
    "known": NormalKnownCovariance(MEAN, 2.0 * np.eye(3) + 0.5, COVARIANCE),
}
ROWS = np.random.default_rng(0).normal(size=(5, 3)) @ np.linalg.cholesky(COVARIANCE).T + MEAN
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def summed(family: Any, X: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: leaf.sum(0), family.suff_stats(X))


def density(family: Any, stats: Any, row: Any) -> float:
    return float(jnp.exp(log_density_of_observed(family.density_of_cells(stats), jnp.asarray(row))))


NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)
ANGLES = NODES * np.pi / 2
"""Gauss-Legendre quadrature over the real line, by the tangent of an angle."""


def integrated(log_density: Any, row: np.ndarray, column: int) -> float:
    """Integral of the density over one column."""
    rows = np.repeat(row[None], len(ANGLES), axis=0)
    rows[:, column] = MEAN[column] + np.tan(ANGLES)
    return float((np.exp(np.asarray(log_density(rows))) * WEIGHTS * np.pi / 2 / np.cos(ANGLES) ** 2).sum())


@every_family
@pytest.mark.parametrize("count", [0, 5])
def test_density_of_the_observed_cells_is_the_integral_over_the_others(family: Any, count: int, x64: None) -> None:
    stats, row = summed(family, ROWS[:count]) if count else family.empty(), np.array([0.1, -0.4, 1.2])
    complete, own = (
        jax.jit(family.predictive(stats).log_prob),
        jax.jit(partial(log_density_of_observed, family.density_of_cells(stats))),
    )
    np.testing.assert_allclose(own(row), complete(row), rtol=1e-10)
    for j in range(3):
        one = np.where(np.arange(3) == j, NAN, row)
        np.testing.assert_allclose(np.exp(own(one)), integrated(complete, row, j), rtol=1e-6)
        k = (j + 1) % 3
        two = np.where(np.arange(3) == k, NAN, one)
        np.testing.assert_allclose(np.exp(own(two)), integrated(own, one, k), rtol=1e-6)
    assert own(np.full(3, NAN)) == 0.0


PARTS = [
    NormalInverseWishart(MEAN[:2], 0.4, 4.5, COVARIANCE[:2, :2]),
    BetaBernoulli(np.array([0.3]), np.array([0.8])),
    GammaPoisson(np.array([1.5]), np.array([0.4])),
]
MIXED = ProductComponent(PARTS, [[3, 0], [1], [2]])
MIXED_ROWS = np.column_stack([ROWS[:, 1], [1, NAN, 0, 1, 1], [0, 3, NAN, 2, 1], ROWS[:, 0]])


@pytest.mark.parametrize("count", [0, 5])
def test_density_of_the_observed_cells_of_mixed_columns_is_a_sum_and_an_integral(count: int, x64: None) -> None:
    """Complete predictive densities, summed over the missing bit and count, and integrated over the missing number."""
    stats = summed(MIXED, MIXED_ROWS[:count]) if count else MIXED.empty()
    cells, complete = MIXED.density_of_cells(stats), jax.jit(partial(MIXED.log_predictive, stats))
    for holes in ([], [0], [1, 2], [0, 1], [0, 1, 2]):
        row = np.array([-0.4, 1.0, 2.0, 0.1])
        every = [[0.0, 1.0] if 1 in holes else [1.0], np.arange(300.0) if 2 in holes else [2.0]]
        if 0 in holes:
            numbers, weights = MEAN[1] + np.tan(ANGLES), WEIGHTS * np.pi / 2 / np.cos(ANGLES) ** 2
        else:
            numbers, weights = row[:1], np.ones(1)
        grid = np.stack(np.meshgrid(numbers, *every, [0.1], indexing="ij"), axis=-1).reshape(-1, 4)
        expected = (np.exp(np.asarray(complete(grid))).reshape(len(numbers), -1).sum(1) * weights).sum()
        row[holes] = NAN
        np.testing.assert_allclose(np.exp(MIXED.log_density_of_cells(cells, jnp.asarray(row))), expected, rtol=1e-6)
    # without the numbers, what is there are the bit and the count
    bit, number = (part.log_predictive(s, jnp.array([x])) for part, s, x in zip(PARTS[1:], stats[1:], (1.0, 2.0), strict=True))
    np.testing.assert_allclose(MIXED.log_density_of_cells(cells, jnp.array([NAN, 1.0, 2.0, NAN])), bit + number, rtol=1e-10)


def test_products_do_to_each_group_what_its_family_does(x64: None) -> None:
    """Draws, expected cells and their statistics, with two groups of dependent columns, one of them within another product."""
    inner = ProductComponent([PARTS[1], FAMILIES["known"]], [[3], [2, 0, 1]])
    component = ProductComponent([PARTS[0], inner], [[4, 1], [5, 0, 3, 2]])
    assert component.dependent_columns == (0, 1, 3, 4, 5) and inner.dependent_columns == (0, 1, 2)
    X = np.random.default_rng(1).normal(size=(4, 6))
    X[:, 2] = [0, 1, 1, 0]
    stats, x = summed(component, X), jnp.array([0.3, NAN, NAN, NAN, 1.0, NAN])
    np.testing.assert_array_equal(component.incomplete_cells(x[None])[0], [False, True, False, True, False, True])
    one, other = PARTS[0], FAMILIES["known"]

    @jax.jit
    def both_ways(stats: Any, x: jax.Array) -> Any:
        mean, covariance, entropy = component.expected_cells(component.expected_parameters(stats), x)
        rows = component.with_covariances(component.suff_stats(mean), covariance)
        apart = [
            expected_cells(one.expected_parameters(stats[0]), x[jnp.array([4, 1])]),
            expected_cells(other.expected_parameters(stats[1][1]), x[jnp.array([3, 5, 0])]),
        ]
        of_parts = [f.with_covariances(f.suff_stats(m), c) for f, (m, c, _) in zip((one, other), apart, strict=True)]
        drawn = component.draw_cells(component.density_of_cells(stats), x, jax.random.key(0))
        return drawn, mean, covariance, entropy, (rows[0], rows[1][1]), apart, of_parts

    drawn, mean, covariance, entropy, rows, apart, of_parts = jax.tree.map(np.asarray, both_ways(stats, x))
    np.testing.assert_array_equal(np.isnan(drawn), [False, False, True, False, False, False])
    np.testing.assert_allclose(entropy, apart[0][2] + apart[1][2])
    np.testing.assert_allclose(mean[[4, 1, 3, 5, 0]], np.concatenate([apart[0][0], apart[1][0]]))
    both = np.zeros((6, 6))
    both[np.ix_([4, 1], [4, 1])], both[np.ix_([3, 5, 0], [3, 5, 0])] = apart[0][1], apart[1][1]
    np.testing.assert_allclose(covariance, np.delete(np.delete(both, 2, 0), 2, 1))
    for found, expected in zip(jax.tree.leaves(rows), jax.tree.leaves(of_parts), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.slow
@every_family
def test_conditional_draws_have_the_joint_over_the_marginal(family: Any, x64: None) -> None:
    """40,000 draws of a cell against its conditional distribution function: a Kolmogorov-Smirnov distance of 1.95 / √n.

    Six comparisons at level 0.001: false-alarm rate below 0.006, with fixed keys. The two cells drawn at once are compared one
    given the other by their probability integral transforms.
    """
    stats = summed(family, ROWS)
    row = family.density_of_cells(stats)
    holed = jnp.asarray([NAN, 0.2, NAN])
    draws = np.asarray(jax.vmap(lambda key: conditional_draw(row, holed, key))(jax.random.split(jax.random.key(1), 40_000)))
    assert (draws[:, 1] == 0.2).all()
    whole = density(family, stats, holed)
    grid = np.linspace(-40, 40, 8001)
    densities = np.array(
        jnp.exp(
            log_density_of_observed(row, jnp.stack([jnp.asarray(grid), jnp.full(len(grid), 0.2), jnp.full(len(grid), NAN)], -1))
        )
    )
    cdf = np.cumsum(densities / whole) * (grid[1] - grid[0])
    below = np.interp(draws[:, 0], grid + (grid[1] - grid[0]) / 2, cdf)
    assert np.abs(np.sort(below) - (np.arange(40_000) + 0.5) / 40_000).max() < 1.95 / 200
    for first in (-1.0, 2.0):  # the third cell given the first: those draws close to it
        near = draws[np.argsort(np.abs(draws[:, 0] - first))[:4000]]
        given = jnp.stack([jnp.asarray(near[:, 0]), jnp.full(4000, 0.2), jnp.full(4000, NAN)], -1)
        own = jax.vmap(lambda x, key: conditional_draw(row, x, key))(given, jax.random.split(jax.random.key(2), 4000))
        both = np.sort(near[:, 2])[:, None] <= np.sort(np.asarray(own)[:, 2])
        distance = np.abs(both.mean(1) - (1 - (np.arange(4000) + 0.5) / 4000)).max()
        assert distance < 1.95 * np.sqrt(2 / 4000)


@pytest.mark.slow
@every_family
def test_expected_cells_maximise_the_bound(family: Any, x64: None) -> None:
    """E_q[log p(x | parameters)] + entropy: any other mean or covariance gives less, and the expectations are right."""
    stats, holed = summed(family, ROWS), np.array([NAN, 0.2, NAN])
    expected = family.expected_parameters(stats)
    draws = family.posterior(stats).sample(jax.random.key(0), (200_000,))
    likelihood = family.likelihood(draws)
    precision = np.asarray(likelihood.precision_matrix).reshape(-1, 3, 3)
    expected_precision = np.linalg.inv(expected.covariance)
    np.testing.assert_allclose(precision.mean(0), expected_precision, rtol=0.02, atol=0.02)
    weighted = np.einsum(
        "nij,nj->ni", np.broadcast_to(precision, (200_000, 3, 3)), np.broadcast_to(np.asarray(likelihood.loc), (200_000, 3))
    ).mean(0)
    np.testing.assert_allclose(weighted, expected_precision @ expected.mean, rtol=0.05, atol=0.05)
    mean, covariance, entropy = expected_cells(expected, jnp.asarray(holed))
    absent = np.isnan(holed)
    exact = multivariate_normal(np.asarray(mean)[absent], np.asarray(covariance)[np.ix_(absent, absent)])
    np.testing.assert_allclose(entropy, exact.entropy(), rtol=1e-10)

    def bound(mean: Any, covariance: Any) -> float:
        natural = family.expected_natural_parameters(stats)
        rows = family.with_covariances(family.suff_stats(jnp.asarray(mean)), jnp.asarray(covariance))
        terms = jax.tree.map(lambda c, t: jnp.vdot(c, t), natural, rows)
        log_det = np.linalg.slogdet(np.asarray(covariance)[np.ix_(absent, absent)])[1]
        return float(sum(jax.tree.leaves(terms))) + log_det / 2

    best, rng = bound(mean, covariance), np.random.default_rng(3)
    for _ in range(20):
        moved = np.where(absent, np.asarray(mean) + 0.1 * rng.normal(size=3), holed)
        factor = np.where(absent[:, None] & absent, np.asarray(covariance), 0.0) * np.exp(0.2 * rng.normal())
        assert bound(moved, covariance) < best
        assert bound(mean, factor) < best


@pytest.mark.slow
def test_moments_are_those_of_the_complete_table_and_of_em(x64: None) -> None:
    """Without missing values, the sample moments; with them, a stationary point of the likelihood of the observed cells."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3)) @ np.linalg.cholesky(COVARIANCE).T * [1.0, 100.0, 0.01] + [0.0, 5e3, 1.0]
    mean, covariance = moments_of_incomplete_rows(X)
    np.testing.assert_allclose(mean, X.mean(0))
    np.testing.assert_allclose(covariance, np.cov(X.T, bias=True), rtol=1e-6)
    holed = np.where(rng.random(X.shape) < 0.3, NAN, X)
    holed = holed[~np.isnan(holed).all(1)]
    mean, covariance = moments_of_incomplete_rows(holed, ridge=0.0, tol=1e-12, max_iter=5000)

    def log_likelihood(mean: jax.Array, factor: jax.Array) -> jax.Array:
        scale = (factor @ factor.T)[None]
        return log_density_of_observed(Elliptical(None, mean[None], scale), jnp.asarray(holed)).sum()

    factor = jnp.asarray(np.linalg.cholesky(covariance))
    gradients = jax.grad(log_likelihood, (0, 1))(jnp.asarray(mean), factor)
    spread = X.std(0)
    assert np.abs(np.asarray(gradients[0]) * spread).max() < 1e-3
    assert np.abs(np.tril(gradients[1]) * spread[:, None]).max() < 1e-3
    # correlations survive: the means of the columns alone would lose them
    found, exact = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]), 0.6 / np.sqrt(2.0)
    assert abs(found - exact) < 0.12


def test_prior_from_incomplete_data_keeps_the_correlations() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 1)) + 0.1 * rng.normal(size=(300, 3))
    holed = np.where(rng.random(X.shape) < 0.2, NAN, X)
    holed = holed[~np.isnan(holed).all(1)]
    values = {"within": np.full(3, 0.3), "kappa": 0.1, "extra_nu": 5.0, "correlation": 1.0}
    scale = np.asarray(NormalInverseWishart.from_data(holed).built(values).scale)
    assert scale[0, 1] / np.sqrt(scale[0, 0] * scale[1, 1]) > 0.9
    assert isinstance(NormalKnownCovariance.from_data(holed).priors["within"], dist.LogNormal)
