"""Warnings from inside XLA programs."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import pytest

from bnp_hier.native.warning import PLACE, warn

TEXT = f"a share of {PLACE} is lost – in “z”, {{}}"


def _warn_where(condition: jax.Array, number: jax.Array) -> jax.Array:
    return number + 1 + jax.lax.cond(condition, lambda: warn(TEXT, number), lambda: jnp.asarray(0, jnp.int32))


def test_a_warning_has_the_text_and_the_number() -> None:
    """In one program, and in a loop, once; in either precision."""
    programs = (
        lambda number: _warn_where(number > 0, number),
        lambda number: jax.lax.fori_loop(0, 3, lambda i, x: _warn_where(i == 1, x) - 1, number),
    )
    for double in (False, True):
        with jax.enable_x64(double):
            for program in programs:
                with pytest.warns(RuntimeWarning) as found:
                    jax.jit(program)(jnp.asarray(0.01234)).block_until_ready()
                assert [str(one.message) for one in found] == ["a share of 1.2e-02 is lost – in “z”, {}"]


def test_no_warning_without_the_condition() -> None:
    jax.jit(lambda number: _warn_where(number > 0, number))(jnp.asarray(-1.0)).block_until_ready()  # warnings are errors


def test_a_warning_that_is_an_error_ends_the_program() -> None:
    program = jax.jit(lambda number: _warn_where(number > 0, number))
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(jax.errors.JaxRuntimeError, match=r"RuntimeWarning: a share of 2\.0e\+00 is lost – in “z”"),
    ):
        program(jnp.asarray(2.0)).block_until_ready()
    with pytest.warns(RuntimeWarning, match="a share of"):  # and can be run again
        program(jnp.asarray(2.0)).block_until_ready()
