"""Rows padded to a few sizes, and programs shared by functions with the same operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_hier.utils.padding import masked, padded, padded_size
from bnp_hier.utils.programs import compiled


def test_sizes_are_few_and_not_much_larger() -> None:
    sizes = [padded_size(n) for n in range(1, 100_001)]
    assert sizes == sorted(sizes)
    assert all(size == padded_size(size) for size in set(sizes))
    assert all(n <= size <= max(n + 31, 1.125 * n) for n, size in enumerate(sizes, start=1))
    assert len(set(sizes)) < 90
    assert sizes[:33] == [32] * 32 + [64]


@pytest.mark.parametrize("fill", [None, 7.0])
def test_padding_is_appended(fill: float | None, x64: None) -> None:
    X = np.array([[1.0, np.nan], [2.0, 3.0]])
    found = padded(X, fill)
    assert isinstance(found, np.ndarray) and found.shape == (32, 2)
    np.testing.assert_array_equal(found[:2], X)
    np.testing.assert_array_equal(found[2:], np.broadcast_to(X[:1] if fill is None else fill, (30, 2)))
    np.testing.assert_array_equal(jax.jit(lambda X: padded(X, fill))(X), found)


def test_masked_statistics_are_those_of_no_rows() -> None:
    there = jnp.array([True, False])
    found = masked((jnp.ones(2), jnp.full((2, 3), jnp.nan)), there)
    np.testing.assert_array_equal(found[0], [1.0, 0.0])
    np.testing.assert_array_equal(found[1][1], np.zeros(3))


def test_unused_arguments_may_differ() -> None:
    """They have no part in the operations, but an executable takes arguments of one shape only."""
    for unused in (0.0, np.zeros(2), np.zeros(3)):
        assert float(compiled(lambda x, _: x + 1.5, np.float32(2.0), unused)(np.float32(2.0), unused)) == 3.5


def test_functions_that_differ_in_their_arrays_share_a_program(compilations: list[str]) -> None:
    def times(data: np.ndarray):
        return lambda x, shift: {"sum": (data * x).sum() + shift, "data": data + shift}

    one, two, x = np.arange(19.0, dtype="f"), np.ones(19, "f"), np.full(19, 2.0, "f")
    compilations.clear()
    first = compiled(times(one), x, 1.0)
    assert len(compilations) == 1
    second = compiled(times(two), x, 1.0)
    found, other = first(x, 3.0), second(x, 3.0)
    assert len(compilations) == 1
    assert (float(found["sum"]), float(other["sum"])) == (2.0 * one.sum() + 3.0, 41.0)
    np.testing.assert_array_equal(found["data"], one + 3.0)
    compiled(lambda x, shift: (two * x).sum() - shift, x, 1.0)
    assert len(compilations) == 2, "other operations"
    compiled(times(two[:18]), x[:18], 1.0)
    assert len(compilations) == 3, "another shape"
