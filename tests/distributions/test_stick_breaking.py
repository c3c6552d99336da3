"""Truncated stick-breaking weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from numpyro.distributions import biject_to
from scipy import integrate, stats

from bnp_hier.distributions import StickBreaking


def plain_log_prob(alpha, w):
    return StickBreaking(alpha, w.shape[-1]).log_prob(w)


log_prob, gradients = jit(plain_log_prob), jit(jax.grad(plain_log_prob, argnums=(0, 1)))


def weights_of(pieces):
    """Weights from the broken-off shares of what was left, (..., K − 1)."""
    left = np.cumprod(1 - pieces, axis=-1)
    before = np.concatenate([np.ones_like(left[..., :1]), left[..., :-1]], axis=-1)
    return np.concatenate([pieces * before, left[..., -1:]], axis=-1)


def random_weights(n, k, seed=0):
    return weights_of(np.random.default_rng(seed).beta(1.0, 1.5, size=(n, k - 1)))


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.5])
@pytest.mark.parametrize("k", [2, 6])
def test_density_by_change_of_variables(alpha, k, x64):
    """Beta(1, α) densities of the pieces over the Jacobian of (pieces → first K − 1 weights), by autodiff."""
    pieces = np.random.default_rng(1).beta(1.0, 1.5, size=(5, k - 1))

    def first_weights(p):
        left = jnp.cumprod(1 - p)
        return p * jnp.concatenate([jnp.ones(1), left[:-1]])

    log_jacobian = np.linalg.slogdet(jit(jax.vmap(jax.jacfwd(first_weights)))(pieces))[1]
    expected = stats.beta.logpdf(pieces, 1.0, alpha).sum(-1) - log_jacobian
    np.testing.assert_allclose(log_prob(alpha, weights_of(pieces)), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.8, 3.0])
def test_density_integrates_to_one_on_the_simplex(alpha, x64):
    """K = 3: a double integral, to the 1e-6 of the quadrature (the density has an integrable edge for α < 1)."""

    def density(w2, w1):
        w3 = 1 - w1 - w2
        return np.exp(log_prob(alpha, np.array([w1, w2, max(w3, 1e-300)])))

    total, _ = integrate.dblquad(density, 0, 1, 0, lambda w1: 1 - w1, epsabs=1e-7, epsrel=1e-5)
    assert total == pytest.approx(1.0, abs=2e-5 if alpha > 1 else 2e-3)


def test_alpha_one_and_two_weights_is_uniform(x64):
    np.testing.assert_allclose(log_prob(1.0, np.array([[0.2, 0.8], [0.9, 0.1]])), 0.0, atol=1e-15)


def test_draws_have_the_moments_of_the_weights():
    """E[w_k] = (1/(1 + α)) (α/(1 + α))^(k − 1), the last the remainder; E[w_k²] likewise.

    Twelve z-scores of 5000 draws below 5: false-alarm rate 7e-6; the key is fixed.
    """
    alpha, k = 2.0, 6
    draws = np.asarray(StickBreaking(alpha, k).sample(jax.random.key(2), (5000,)), dtype=float)
    assert draws.shape == (5000, k)
    np.testing.assert_allclose(draws.sum(-1), 1.0, atol=1e-6)
    for power in (1, 2):
        piece = stats.beta(1, alpha).expect(lambda b, power=power: b**power)
        rest = stats.beta(1, alpha).expect(lambda b, power=power: (1 - b) ** power)
        expected = np.append(piece * rest ** np.arange(k - 1), rest ** (k - 1))
        values = draws**power
        z = (values.mean(0) - expected) / (values.std(0) / np.sqrt(5000))
        assert np.all(np.abs(z) < 5)


def test_pieces_of_draws_are_independent_beta():
    """Kolmogorov-Smirnov of each piece at level 1e-6, and correlations within 5/√n: false-alarm rate below 1e-5."""
    draws = np.asarray(StickBreaking(0.7, 4).sample(jax.random.key(5), (3000,)), dtype=float)
    left = np.cumsum(draws[:, ::-1], axis=1)[:, ::-1]
    pieces = draws[:, :-1] / left[:, :-1]
    inside = left[:, 2] > 1e-5  # float32 cannot tell the pieces of a stick that is gone
    for j in range(2):
        assert stats.kstest(pieces[:, j], stats.beta(1, 0.7).cdf).pvalue > 1e-6
    assert stats.kstest(pieces[inside, 2], stats.beta(1, 0.7).cdf).pvalue > 1e-6
    assert abs(stats.spearmanr(pieces[:, 0], pieces[:, 1]).statistic) < 5 / np.sqrt(3000)


def test_batches_and_shapes(x64):
    prior = StickBreaking(jnp.array([0.5, 1.0, 4.0]), 5)
    assert prior.batch_shape == (3,) and prior.event_shape == (5,)
    draws = prior.sample(jax.random.key(0), (4,))
    assert draws.shape == (4, 3, 5)
    values = jit(lambda p, w: p.log_prob(w))(prior, draws)
    assert values.shape == (4, 3)
    for j, alpha in enumerate((0.5, 1.0, 4.0)):
        np.testing.assert_allclose(values[:, j], log_prob(alpha, draws[:, j]), rtol=1e-12)
    leaves, structure = jax.tree.flatten(prior)
    again = jax.tree.unflatten(structure, leaves)
    assert again.truncation == 5 and again.event_shape == (5,)
    np.testing.assert_allclose(jit(again.log_prob)(draws), values, rtol=1e-12)


def test_support_is_the_simplex(x64):
    """Unconstrained coordinates map to the simplex and back; draws lie in it."""
    prior = StickBreaking(1.3, 5)
    x = np.random.default_rng(3).normal(size=(6, 4))

    @jit
    def check(x, key):
        transform = biject_to(prior.support)
        w = transform(x)
        draws = prior.sample(key, (50,))
        return w, transform.inv(w), prior.support(w), prior.support(draws), prior.support(draws * 1.1)

    w, back, valid, inside, outside = check(x, jax.random.key(0))
    assert w.shape == (6, 5) and valid.all() and inside.all() and not outside.any()
    np.testing.assert_allclose(back, x, rtol=1e-9)


def test_the_unconstrained_density_is_normalised(x64):
    """K = 2: density times Jacobian over the real line integrates to one."""
    prior = StickBreaking(2.4, 2)
    transform = biject_to(prior.support)
    x = np.linspace(-40, 40, 4001)[:, None]
    log_density = jit(lambda x: prior.log_prob(transform(x)) + transform.log_abs_det_jacobian(x, transform(x)))(x)
    assert integrate.trapezoid(np.exp(log_density), x[:, 0]) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.4, 3.0])
def test_gradients_agree_with_differences(alpha, x64):
    w, step = random_weights(1, 5)[0], 1e-6
    gradient, _ = gradients(alpha, w)
    difference = (log_prob(alpha + step, w) - log_prob(alpha - step, w)) / (2 * step)
    np.testing.assert_allclose(gradient, difference, rtol=1e-7)


def test_finite_at_tiny_weights():
    """Weights that float32 rounds to nothing: value and gradients stay finite, and keep the digits where there are any."""
    for w in ([0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1 - 1e-7, 1e-7, 1e-30, 1e-38], [0.3, 0.7, 1e-20, 1e-20]):
        w = jnp.array(w, jnp.float32)
        assert np.isfinite(log_prob(2.0, w)) and np.isfinite(log_prob(0.3, w))
        assert all(np.isfinite(gradient).all() for gradient in gradients(2.0, w))
    # summed from the short end: 1e-20 is not lost beside 0.3 + 0.7
    with jax.enable_x64(True):
        exact = log_prob(2.0, np.array([0.3, 0.7, 1e-20, 1e-20]))
    np.testing.assert_allclose(log_prob(2.0, np.array([0.3, 0.7, 1e-20, 1e-20], np.float32)), exact, rtol=1e-5)


def test_draws_are_finite_at_extreme_concentrations():
    for alpha in (1e-3, 1e4):
        draws = np.asarray(StickBreaking(alpha, 30).sample(jax.random.key(0), (200,)))
        assert np.isfinite(draws).all() and draws.min() >= 0
        np.testing.assert_allclose(draws.sum(-1), 1.0, atol=1e-5)


def test_validation_of_samples():
    """With `validate_args=True`, draws pass; what is no simplex is called out as NumPyro's own distributions do."""
    prior = StickBreaking(1.5, 4, validate_args=True)
    assert np.isfinite(prior.log_prob(prior.sample(jax.random.key(0), (20,)))).all()
    with pytest.warns(UserWarning, match="[Oo]ut-of-support"):
        assert np.isneginf(prior.log_prob(jnp.array([0.5, 0.5, 0.5, 0.5])))


BAD = {
    "no weight": (lambda: StickBreaking(1.0, 0), "truncation must be a whole number of at least 1, but it is 0"),
    "fractional": (lambda: StickBreaking(1.0, 3.5), "truncation must be a whole number.*3.5"),
    "zero": (lambda: StickBreaking(0.0, 3), "concentration must be finite and positive, but it is 0"),
    "negative": (lambda: StickBreaking(np.array([1.0, -1.0]), 3), "concentration must be finite and positive"),
    "NaN": (lambda: StickBreaking(np.nan, 3), "concentration must be finite and positive, but it is nan"),
    "infinite": (lambda: StickBreaking(np.inf, 3), "concentration must be.*inf"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, match = BAD[name]
    with pytest.raises(ValueError, match=f"StickBreaking: {match}"):
        call()


def test_traced_arguments_do_not_raise():
    assert np.isfinite(log_prob(1.0, random_weights(1, 3)[0]))
    assert log_prob(-1.0, random_weights(1, 3)[0]).shape == ()
