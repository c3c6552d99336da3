"""Programs that are compiled quickly compute the same, and where XLA does not know the options, they are compiled as usual."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

from bnp_hier.utils import quick_compilation
from bnp_hier.utils.quick_compilation import compiled_quickly


def objective(matrix: jax.Array) -> jax.Array:
    factor = jnp.linalg.cholesky(matrix @ matrix.T + jnp.eye(len(matrix)))
    return gammaln(jnp.abs(factor) + 1.0).sum() + jnp.log(jnp.diagonal(factor)).sum()


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_same_values(small: bool, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:
        monkeypatch.setattr(quick_compilation, "LEAN", {"xla_option_that_does_not_exist": False})
        quick_compilation._are_known.cache_clear()
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    with jax.enable_x64(True):
        program = jax.jit(jax.value_and_grad(objective))
        found = compiled_quickly(program.lower(matrix), small=small)(matrix)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, program(matrix))
    assert quick_compilation._are_known() == known
    quick_compilation._are_known.cache_clear()
