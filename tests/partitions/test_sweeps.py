"""Draws by inversion in the single-item sweep."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_hier.distributions.seating import draw_index


@pytest.mark.parametrize("size", [1, 2, 5, 16, 61, 64])
def test_draw_inverts_the_distribution_function(size: int, x64: None) -> None:
    rng = np.random.default_rng(size)
    weights = rng.exponential(size=size) * (rng.random(size) < 0.7)
    weights[size // 2] = 1.0
    uniforms = rng.random(2000)
    drawn = np.asarray(jax.vmap(draw_index, in_axes=(None, 0))(jnp.asarray(weights), uniforms))
    expected = np.searchsorted(np.cumsum(weights), uniforms * weights.sum())
    assert (drawn == expected).all()


@pytest.mark.parametrize("uniform", [0.0, 1.0])
def test_draw_never_takes_an_index_without_weight(uniform: float) -> None:
    weights = np.zeros(64, np.float32)
    weights[[11, 12, 40]] = 0.3
    assert int(draw_index(jnp.asarray(weights), jnp.float32(uniform))) in (11, 12, 40)
