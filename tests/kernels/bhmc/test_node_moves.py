"""Densities that the moves of whole nodes use; the moves themselves are tested by the joint distribution."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import dirichlet_multinomial

from bnp_hier.kernels.bhmc.node_moves import log_polya, log_polya_of_few


@pytest.mark.parametrize("customers", [[0, 0, 0, 0, 0], [0, 3, 0, 0, 0], [2, 0, 1, 0, 4], [1, 2, 3, 4, 5]])
def test_probability_of_a_sequence_of_components(customers: list[int]) -> None:
    shares = np.random.default_rng(0).dirichlet(np.ones(5), 7) * 1.3
    counts = np.array(customers)
    # SciPy's probability of the counts is that of all sequences with these counts
    sequences = gammaln(counts.sum() + 1) - gammaln(counts + 1).sum()
    expected = dirichlet_multinomial.logpmf(counts, shares, counts.sum()) - sequences
    held = jnp.asarray(counts, dtype=float)
    np.testing.assert_allclose(log_polya(held[None], jnp.asarray(shares)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_polya_of_few(held, jnp.asarray(shares)), expected, rtol=1e-5, atol=1e-6)


def test_shares_that_underflow() -> None:
    """They are positive: no sequence is impossible."""
    shares, customers = jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.array([1.0, 0.0])
    np.testing.assert_allclose(log_polya_of_few(customers, shares), log_polya(customers[None], shares))
    assert np.isfinite(log_polya_of_few(customers, shares)).all()
