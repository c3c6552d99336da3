"""Tests of compiled programs that are shared by functions with the same operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.utils import programs
from bnp_hier.utils.programs import compiled


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that are compiled from here on; none is kept from before."""
    lowered: list[Any] = []
    compile_it = programs.compiled_quickly

    def counted(program: Any, **options: Any) -> Any:
        lowered.append(program)
        return compile_it(program, **options)

    programs._executable.cache_clear()
    monkeypatch.setattr(programs, "compiled_quickly", counted)
    return lowered


def test_functions_that_differ_in_the_arrays_they_refer_to_share_a_program(compilations: list[Any]) -> None:
    def shifted(by: np.ndarray) -> Callable[[Any], Any]:
        return lambda x: jnp.cumsum(jnp.where(x > 0, jnp.exp(x) + jnp.asarray(by), x))

    x = np.linspace(-1.0, 1.0, 4)
    for shift in (np.zeros(4), np.arange(4.0)):
        np.testing.assert_allclose(compiled(shifted(shift), x)(x), shifted(shift)(x), rtol=1e-6)
    assert len(compilations) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x + 0.0, lambda x: x - 0.0),
        (lambda x: jnp.copysign(1.0, x * 0.0), lambda x: jnp.copysign(1.0, x * -0.0)),
        (lambda x: jnp.where(x > 0, x, 1.0), lambda x: jnp.where(x > 0, 1.0, x)),
        (lambda x: jnp.sum(x, 0), lambda x: jnp.sum(x, 1)),
        (
            lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * 2.0, x),
            lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * 3.0, x),
        ),
        (lambda x: jax.jit(jnp.sin)(x), lambda x: jax.jit(jnp.cos)(x)),
        (lambda x: x[0, ::-1], lambda x: x[::-1, 0]),
    ],
)
def test_functions_with_other_operations_do_not_share_one(one: Any, other: Any) -> None:
    x = np.arange(1.0, 10.0).reshape(3, 3)
    for function in (one, other):
        np.testing.assert_array_equal(compiled(function, x)(x), function(jnp.asarray(x)))


def test_derivatives_that_are_not_taken_make_no_difference(compilations: list[Any]) -> None:
    def with_derivative() -> Callable[[Any], Any]:
        doubled = jax.custom_jvp(lambda x: 2.0 * x)
        doubled.defjvp(lambda primals, tangents: (2.0 * primals[0], 2.0 * tangents[0]))
        return lambda x: doubled(x) + jax.nn.softplus(x)

    for _ in range(2):
        compiled(with_derivative(), np.ones(2))
    assert len(compilations) == 1


def test_a_second_fit_of_the_same_family_compiles_nothing(compilations: list[Any]) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0)

    def fit(X: np.ndarray) -> Any:
        return bnp.MAPDP(partial(bnp.models.dpm, component=bnp.NormalInverseWishart.from_data(X))).fit(X)

    fit(X)
    assert compilations
    first = len(compilations)
    fit(X + 1.0)
    assert len(compilations) == first
