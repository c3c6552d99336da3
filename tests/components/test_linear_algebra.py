"""Small positive-definite matrices against NumPy."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import pytest

from bnp_hier.components.linear_algebra import inverse_and_log_det, log_det, matrix_vector, quadratic_form


def problem(d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(d)
    roots = rng.normal(size=(3, 4, d, 2 * d))
    return roots @ roots.swapaxes(-1, -2), rng.normal(size=(3, 4, d))


@pytest.mark.parametrize("d", [1, 2, 5, 12, 13, 16])
def test_against_numpy(d: int, x64: None) -> None:
    matrix, vector = problem(d)
    inverse, from_factor = jax.jit(inverse_and_log_det)(matrix)
    expected = np.linalg.slogdet(matrix)[1]
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(from_factor, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jax.jit(log_det)(matrix), expected, rtol=1e-12, atol=1e-12)
    product = np.einsum("...ij,...j->...i", matrix, vector)
    np.testing.assert_allclose(jax.jit(matrix_vector)(matrix, vector), product, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jax.jit(quadratic_form)(matrix, vector), (product * vector).sum(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_many_caches_of_many_columns_do_not_wait_for_each_other() -> None:
    """With two LAPACK calls that did not depend on each other this came to a standstill on two cores."""
    code = """
import jax, jax.numpy as jnp, numpy as np, bnp_hier as bnp
jax.config.update("jax_enable_x64", True)
X = np.random.default_rng(0).normal(size=(256, 16))
component = bnp.NormalInverseWishart.from_data(X, learn=False)
total = jnp.float64(0.0)
step = jax.jit(lambda rows, t: jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, component.cache(rows)), t))
for _ in range(300):
    total = step(component.suff_stats(X), total)
print(float(total))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert np.isfinite(float(printed.stdout))
