"""The direction of largest variation, against a singular value decomposition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnp_hier.utils.directions import principal_axis


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**20), st.integers(1, 12), st.integers(1, 12), st.sampled_from([1e-180, 1.0, 1e180]))
def test_same_as_a_singular_value_decomposition(seed: int, n: int, d: int, scale: float) -> None:
    rows = np.random.default_rng(seed).normal(size=(n, d)) @ np.diag(2.0 ** -np.arange(d))
    _, values, directions = np.linalg.svd(rows, full_matrices=False)
    axis = principal_axis(scale * rows)
    assert axis[np.abs(axis).argmax()] > 0
    np.testing.assert_allclose(np.linalg.norm(axis), 1.0)
    if len(values) == 1 or values[1] < 0.99 * values[0]:
        np.testing.assert_allclose(abs(axis @ directions[0]), 1.0, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(rows @ axis), values[0], rtol=1e-9)


@pytest.mark.parametrize("n", [1, 5])
def test_rows_that_do_not_vary(n: int) -> None:
    np.testing.assert_array_equal(principal_axis(np.zeros((n, 3))), [1.0, 0.0, 0.0])
