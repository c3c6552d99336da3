"""Expected log likelihoods under a cluster's posterior: Monte Carlo, the paper's closed form, and the quadratic form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, psi

import bnp_hier as bnp
from bnp_hier.components import Component
from tests.components.user_family import ExponentialGamma
from tests.parameters import few

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(12, 3)) * [1.0, 2.0, 0.5] + [0.0, 5.0, -1.0]
BITS = (RNG.random((12, 4)) < 0.4).astype(float)
COUNTS = RNG.poisson(2.0, (12, 3)).astype(float)
FAMILIES: dict[str, tuple[Component, np.ndarray]] = {
    "niw": (bnp.NormalInverseWishart.from_data(REAL, learn=False), REAL),
    "nig": (bnp.NormalInverseGamma.from_data(REAL, learn=False), REAL),
    "known": (bnp.NormalKnownCovariance.from_data(REAL, learn=False), REAL),
    "bernoulli": (bnp.BetaBernoulli.from_data(BITS, learn=False), BITS),
    "multinomial": (bnp.DirichletMultinomial.from_data(COUNTS, learn=False), COUNTS),
    "poisson": (bnp.GammaPoisson.from_data(COUNTS, learn=False), COUNTS),
    "product": (
        bnp.ProductComponent(
            (bnp.NormalInverseWishart.from_data(REAL, learn=False), bnp.BetaBernoulli.from_data(BITS, learn=False)),
            ((0, 1, 2), (3, 4, 5, 6)),
        ),
        np.hstack([REAL, BITS]),
    ),
    "user": (ExponentialGamma(np.full(3, 2.0), np.full(3, 1.5)), np.exp(REAL - [0.0, 5.0, -1.0])),
}
QUADRATIC = [name for name in FAMILIES if name != "user"]


def of_rows(component: Component, stats: object, X: np.ndarray) -> np.ndarray:
    """E[log p(x|θ)] of each row under the posterior of one cluster."""
    natural, rows = component.expected_natural_parameters(stats), component.suff_stats(X)
    products = jax.tree.map(lambda c, t: (c * t).reshape(len(X), -1).sum(1), natural, rows)
    return np.asarray(sum(jax.tree.leaves(products)))


@pytest.mark.parametrize("name", few(FAMILIES, plain=0, slow=2))
def test_equals_monte_carlo(name: str, x64: None) -> None:
    """20,000 draws from the posterior of seven rows; |z| < 5 for 12 rows, false-alarm rate below 1e-5 a family."""
    component, X = FAMILIES[name]
    stats = jax.tree.map(lambda leaf: leaf[:7].sum(0), component.suff_stats(X))
    parameters = component.posterior(stats).sample(jax.random.key(0), (20_000,))
    draws = np.asarray(jax.vmap(lambda theta: component.likelihood(theta).log_prob(jnp.asarray(X)))(parameters))
    errors = draws.std(0) / np.sqrt(len(draws))
    assert errors.max() < 0.2
    assert (np.abs(of_rows(component, stats, X) - draws.mean(0)) < 5 * errors + 1e-9).all()


def test_equals_the_labelling_cost_of_the_paper(x64: None) -> None:
    """Kurihara & Welling (2009), Eq. 20, plus the (d/2) log π that it leaves out; its scale matrices are covariances'."""
    component, X = FAMILIES["niw"]
    n, d = 7, 3
    stats = jax.tree.map(lambda leaf: leaf[:n].sum(0), component.suff_stats(X))
    mean, scatter = X[:n].mean(0), np.cov(X[:n].T, bias=True)
    xi, eta = component.kappa + n, component.nu + n
    center = (n * mean + component.kappa * component.mean) / xi
    shift = mean - component.mean
    scale = component.scale + n * scatter + n * component.kappa / xi * np.outer(shift, shift)
    square = np.einsum("ni,ij,nj->n", X - center, np.linalg.inv(scale), X - center)
    cost = (
        eta / 2 * square + np.linalg.slogdet(scale)[1] / 2 + d / (2 * xi) - psi((eta + 1 - np.arange(1, d + 1)) / 2).sum() / 2
    )
    np.testing.assert_allclose(of_rows(component, stats, X), -cost - d / 2 * np.log(np.pi), rtol=0, atol=1e-9)


def test_bits_have_digammas(x64: None) -> None:
    """Kurihara & Welling (2009), appendix C."""
    component, X = FAMILIES["bernoulli"]
    stats = component.suff_stats(X)
    ones, zeros = component.a + X.sum(0), component.b + (1 - X).sum(0)
    expected = X @ (digamma(ones) - digamma(ones + zeros)) + (1 - X) @ (digamma(zeros) - digamma(ones + zeros))
    total = jax.tree.map(lambda leaf: leaf.sum(0), stats)
    np.testing.assert_allclose(of_rows(component, total, X), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", few(QUADRATIC, 2))
def test_quadratic_form_gives_the_same_differences_between_clusters(name: str, x64: None) -> None:
    component, X = FAMILIES[name]
    rows = component.suff_stats(X)
    y = np.asarray(component.coordinates(X))
    values, quadratics = [], []
    for part in (slice(0, 5), slice(5, 12), slice(0, 0)):
        stats = jax.tree.map(lambda leaf, part=part: leaf[part].sum(0), rows)
        form = component.row_quadratic(component.expected_natural_parameters(stats))
        values.append(of_rows(component, stats, X))
        quadratics.append(form.constant + y @ form.linear + np.einsum("ni,ij,nj->n", y, form.square, y))
        np.testing.assert_allclose(form.square, np.asarray(form.square).T)
    np.testing.assert_allclose(np.diff(quadratics, axis=0), np.diff(values, axis=0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", few(FAMILIES, 3))
def test_batches_of_clusters(name: str, x64: None) -> None:
    component, X = FAMILIES[name]
    rows = component.suff_stats(X)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf[:4].sum(0), leaf[4:].sum(0)]), rows)
    together = component.expected_natural_parameters(both)
    for k in range(2):
        alone = component.expected_natural_parameters(jax.tree.map(lambda leaf, k=k: leaf[k], both))
        jax.tree.map(lambda a, b, k=k: np.testing.assert_allclose(a[k], b, rtol=1e-12, atol=1e-12), together, alone)


def test_a_family_without_coordinates_says_so(x64: None) -> None:
    component, X = FAMILIES["user"]
    with pytest.raises(NotImplementedError, match="ExponentialGamma does not implement coordinates"):
        component.coordinates(X)


@pytest.mark.parametrize("name", few(QUADRATIC, plain=0, slow=3))
def test_natural_parameters_give_the_log_likelihood(name: str, x64: None) -> None:
    component, X = FAMILIES[name]
    rows = component.suff_stats(X)
    parameters = component.prior().sample(jax.random.key(1), (5,))
    natural = component.natural_parameters(parameters)
    products = jax.tree.map(lambda c, t: (c[:, None] * t).reshape(5, len(X), -1).sum(-1), natural, rows)
    found = np.asarray(sum(jax.tree.leaves(products)))
    expected = jax.vmap(lambda theta: component.likelihood(theta).log_prob(jnp.asarray(X)))(parameters)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["niw"])
def test_closed_form_is_the_gradient_of_the_log_marginal(name: str, x64: None) -> None:
    component, X = FAMILIES[name]
    stats = jax.tree.map(lambda leaf: jnp.stack([leaf[:7].sum(0), leaf[:0].sum(0)]), component.suff_stats(X))
    gradient = Component.expected_natural_parameters(component, stats)
    closed = component.expected_natural_parameters(stats)
    # only the sum over (i, j) and (j, i) of a matrix coefficient counts
    for one, other in zip(closed, gradient, strict=True):
        one, other = (leaf + jnp.swapaxes(leaf, -1, -2) if leaf.ndim == 3 else leaf for leaf in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
