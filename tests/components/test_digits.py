"""Digits of the normal families: far from the prior mean, and in units of any size; against 60-digit arithmetic.

What cannot be computed must be a `ValueError` that names the column; whatever is computed must be right.
"""

from __future__ import annotations

import jax
import mpmath
import numpy as np
import pytest
from jax import numpy as jnp

from bnp_hier.components import (
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
    UninformativeNormal,
)
from tests.components.test_against_independent import exact_inverse_gamma, exact_inverse_wishart, exact_known_covariance

RNG = np.random.default_rng(3)
SHAPE = np.array([[1.3, 0.4], [0.4, 0.7]])
UNIT = RNG.normal(size=(6, 2)) @ np.array([[1.0, 0.6], [0.0, 0.5]])
PROBES = np.array([[0.3, -0.2], [4.0, -7.0]])

SHIFTS = (0.0, 1e3, 1e7, 1.7e9, 1e12)
SCALES = (1e-160, 1e-130, 1e-20, 1.0, 1e25, 1e140)


def exact_uninformative(X, low, high):
    """Kurihara & Welling (2009), Eq. 32, corrected, on raw moments."""
    n, d = X.shape
    rows = [mpmath.matrix([mpmath.mpf(float(v)) for v in row]) for row in X]
    total = sum(rows[1:], rows[0])
    scatter = -total * total.T / n
    for row in rows:
        scatter = scatter + row * row.T
    width = [mpmath.mpf(float(h)) - mpmath.mpf(float(lo)) for lo, h in zip(low, high, strict=True)]
    power = mpmath.mpf(n - 1) / 2
    gammas = mpmath.mpf(d * (d - 1)) / 4 * mpmath.log(mpmath.pi)
    gammas += mpmath.fsum(mpmath.loggamma(power - mpmath.mpf(j) / 2) for j in range(d))
    return (
        gammas
        - power * (d * mpmath.log(mpmath.pi) + mpmath.log(mpmath.det(scatter)))
        - mpmath.mpf(d) / 2 * mpmath.log(n)
        - mpmath.fsum(map(mpmath.log, width))
    )


def case(family, scale, shift):
    """A family whose prior sits at 0 while the rows sit at `shift` standard deviations, all in units of `scale`."""
    square = scale**2
    if family == "wishart":
        c = NormalInverseWishart(np.zeros(2), 0.1, 4.0, square * SHAPE)
        return c, lambda X: exact_inverse_wishart(X, c.mean, c.kappa, c.nu, c.scale)
    if family == "gamma":
        c = NormalInverseGamma(np.zeros(2), 0.1, 2.0, square * np.array([0.8, 1.4]))
        return c, lambda X: exact_inverse_gamma(X, c.mean, c.kappa, c.shape, c.rate)
    if family == "known":
        # cluster means from far and wide: were they not, the density itself would be e^(-10^23)
        c = NormalKnownCovariance(np.zeros(2), square * np.diag([1.0, 4.0]) * (1 + shift**2), square * np.diag([0.5, 2.0]))
        return c, lambda X: exact_known_covariance(X, c.mean, c.prior_covariance, c.covariance)
    reach = scale * (10 + 3 * shift)
    c = UninformativeNormal(np.full(2, -reach), np.full(2, 2 * reach))
    return c, lambda X: exact_uninformative(X, c.low, c.high)


families = pytest.mark.parametrize("family", ["wishart", "gamma", "known", "uninformative"])


@families
@pytest.mark.parametrize("scale", SCALES)
def test_every_shift_and_scale(family, scale):
    """Log evidence, and log predictive densities near and far, within 1e-9 of their size; sizes below 1e-140 are refused."""
    refused = 0
    for shift in SHIFTS:
        component, exact = case(family, scale, shift)
        X, probes = scale * (UNIT + shift), scale * (PROBES + shift)
        try:
            actual = component.log_evidence(X)
        except ValueError as error:
            assert "column 0" in str(error)
            refused += 1
            continue
        with mpmath.workdps(400):
            expected = exact(X)
            predictive = [exact(np.vstack([X, probe])) - expected for probe in probes]
        assert actual == pytest.approx(float(expected), rel=1e-9, abs=1e-9)
        with jax.enable_x64(True):
            near = component.centered_on(X)
            stats = jax.tree.map(lambda leaf: leaf.sum(0), near.suff_stats(X))
            found = near.log_predictive(stats, probes)
            # one row taken in and out again, as samplers do; only where a row alone has a density
            if family != "uninformative":
                first, rest = near.suff_stats(X[0]), jax.tree.map(lambda leaf: leaf[1:].sum(0), near.suff_stats(X))
                cache = near.update_cache(near.cache(rest), first, 1.0)
                again = near.cached_log_predictive(cache, near.suff_stats(probes))
                fewer = near.cached_log_predictive(near.update_cache(cache, first, -1.0), first)
                straight = near.log_predictive(rest, X[0])
        np.testing.assert_allclose(found, np.array(predictive, float), rtol=1e-9, atol=1e-9)
        if family != "uninformative":
            np.testing.assert_allclose(again, found, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(fewer, straight, rtol=1e-8, atol=1e-8)
    small = scale == 1e-160 and family != "uninformative"
    large = scale == 1e140 and family == "known"  # the prior's variance is beyond 1e291 for three of the shifts
    assert refused == (len(SHIFTS) if small else 3 if large else 0)


@pytest.mark.slow
@families
def test_the_origin_changes_no_answer(family, x64):
    """Posterior, predictive, natural parameters and draws are those about the prior mean, where digits do not matter."""
    plain, _ = case(family, 1.0, 30.0)
    X = UNIT + 30.0
    near = plain.centered_on(X)
    assert plain.origin is None
    assert near.origin is not None
    sides = jnp.array([0, 0, 0, 0, 0, 1])
    if family == "uninformative":
        sides = jnp.zeros(6, int)

    def summed(component, slots=3):
        rows = component.suff_stats(X)
        return jax.tree.map(lambda leaf: jax.ops.segment_sum(leaf, sides, slots), rows)  # the last slot is empty

    np.testing.assert_allclose(near.log_marginal(summed(near)), plain.log_marginal(summed(plain)), rtol=1e-12)
    up_to = near.log_marginal_up_to(6)
    np.testing.assert_allclose(up_to(summed(near)), plain.log_marginal(summed(plain)), rtol=1e-12)
    slots = 3 if family != "uninformative" else 1
    a, b = summed(plain, slots), summed(near, slots)
    one, other = plain.posterior(a).sample(jax.random.key(0)), near.posterior(b).sample(jax.random.key(0))
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    # expected and given natural parameters: the same function of a row, in other coordinates
    for c, s in ((plain, a), (near, b)):
        natural = c.expected_natural_parameters(s)
        rows = c.suff_stats(X)
        scores = sum(
            jnp.tensordot(n, r, [list(range(1, n.ndim)), list(range(1, r.ndim))])
            for n, r in zip(jax.tree.leaves(natural), jax.tree.leaves(rows), strict=True)
        )
        form = c.row_quadratic(natural)
        y = c.coordinates(X)
        quadratic = form.constant[:, None] + form.linear @ y.T + jnp.einsum("kij,mi,mj->km", form.square, y, y)
        if c is plain:
            expected, differences = scores, quadratic - quadratic[:1]
        else:
            np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(quadratic - quadratic[:1], differences, rtol=1e-8, atol=1e-8)
    if family == "uninformative":
        return
    np.testing.assert_allclose(
        near.predictive(b).log_prob(PROBES[:, None] + 30), plain.predictive(a).log_prob(PROBES[:, None] + 30), rtol=1e-9
    )
    np.testing.assert_allclose(near.natural_parameters(one).n.shape, plain.natural_parameters(one).n.shape)
    moved = near.translated(near.reference())
    np.testing.assert_allclose(moved.reference(), 0.0)
    np.testing.assert_allclose(moved.log_evidence(X - near.reference()), plain.log_evidence(X), rtol=1e-12)


def test_a_mixture_of_families_is_centred_part_by_part():
    """Statistics about other points, no other number; and the column of an error is counted in its group."""
    parts = [NormalInverseGamma(np.zeros(1), 0.1, 2.0, np.ones(1)), NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2))]
    component = ProductComponent(parts, [[1], [2, 0]])
    X = np.column_stack([UNIT[:, 0], UNIT[:, 1] + 1e9, RNG.normal(size=6)])
    near = component.centered_on(X)
    assert near.parts[0].origin is not None
    assert near.parts[1].origin is None
    np.testing.assert_allclose(near.reference(), [0.0, X[:, 1].mean(), 0.0])
    each = parts[0].log_evidence(X[:, [1]]) + parts[1].log_evidence(X[:, [2, 0]])
    assert component.log_evidence(X) == pytest.approx(each, rel=1e-12)
    with pytest.raises(ValueError, match=r"in the columns 1: column 1 of X .*single precision"):
        component.check_precision(np.column_stack([X[:, 0], [0.0, 1e9, 0.0, 1.0, 1e9 + 1, 1e9], X[:, 2]]))


def test_missing_cells_do_not_move_the_origin():
    X = np.where(RNG.uniform(size=(6, 2)) < 0.3, np.nan, UNIT + 1e9)
    X[0, :] = 1e9
    component = NormalInverseGamma(np.zeros(2), 0.1, 2.0, np.ones(2))
    with mpmath.workdps(60):
        exact = sum(
            exact_inverse_gamma(x[~np.isnan(x)][:, None], component.mean[:1], 0.1, 2.0, component.rate[:1]) for x in X.T
        )
    assert component.log_evidence(X) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_units_out_of_single_precision(scale):
    """What double precision holds and single does not is refused where single is in force, and computed where double is."""
    for family in ("wishart", "gamma", "known"):
        component, _ = case(family, scale, 0.0)
        with pytest.raises(ValueError, match=r"column 0 .*single precision needs a value between .*use double precision"):
            component.check_precision(scale * UNIT)
        assert np.isfinite(component.log_evidence(scale * UNIT))


@pytest.mark.parametrize("scale", [1e-165, 1e160])
def test_a_spread_without_a_square_is_refused(scale):
    for family in (NormalInverseWishart, NormalInverseGamma, NormalKnownCovariance):
        with pytest.raises(ValueError, match="X deviates from its mean by .* in column 0"):
            family.from_data(scale * UNIT, learn=False)


def test_outlying_clusters_in_single_precision():
    """Two clusters 1e5 deviations apart: there is no point about which float32 has digits for both."""
    X = np.concatenate([RNG.normal(size=(20, 2)), RNG.normal(size=(20, 2)) + [0.0, 1e5]])
    component = NormalInverseWishart(np.zeros(2), 1e-6, 4.0, np.eye(2))
    with pytest.raises(ValueError, match=r"single precision is not sufficient for column 1 of X"):
        component.check_precision(X)
    with jax.enable_x64(True):
        component.check_precision(X)
    component.check_precision(X * [1.0, 1e-3])
