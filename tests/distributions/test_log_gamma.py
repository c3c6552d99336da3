"""Logs of gamma variates follow their law, from the smallest shapes to large ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from bnp_hier.distributions.log_gamma import log_gamma_draw
from tests.parameters import few


@pytest.mark.parametrize("shape", few([1e-4, 1.7, 1e-30, 0.3, 1.0, 30.0, 1e4], plain=2))
def test_law(shape: float) -> None:
    """20,000 draws; Kolmogorov-Smirnov at level 1e-6."""
    draws = np.asarray(log_gamma_draw(jax.random.key(1), jnp.full(20_000, shape)), np.float64)

    def cdf(log_x: np.ndarray) -> np.ndarray:
        if shape >= 0.1:
            return stats.gamma(shape).cdf(np.exp(log_x))
        # x^a/Γ(a + 1) for small x; what lies above has no mass to speak of
        return np.minimum(np.exp(np.minimum(shape * log_x - gammaln(shape + 1.0), 0.0)), 1.0)

    assert stats.kstest(draws, cdf).pvalue > 1e-6


def test_shapes_precision_and_batches(x64: None) -> None:
    a = jnp.array([[0.5, 2.0, 7.0], [1e-3, 1.0, 40.0]])
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = np.asarray(jax.vmap(lambda key: log_gamma_draw(key, a))(keys))
    assert draws.shape == (4000, 2, 3) and draws.dtype == np.float64
    error = np.exp(draws).std(0) / np.sqrt(4000)
    assert (np.abs(np.exp(draws).mean(0) - np.asarray(a)) < 5 * error).all()
    assert np.isfinite(log_gamma_draw(jax.random.key(0), jnp.asarray(2.0)))
