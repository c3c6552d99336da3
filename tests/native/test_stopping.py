"""Errors from inside XLA programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_hier.native.stopping import FINE, stop_where

MESSAGES = ("row {} is odd", "no number", "too large")


def _stop(codes: jax.Array) -> jax.Array:
    return stop_where(codes, MESSAGES) + 0


@pytest.mark.parametrize(
    ("code", "message"), [(0, "row 0 is odd"), (7, "row 7 is odd"), (12045, "row 12045 is odd"), (-2, "no number"), (-3, "too")]
)
def test_an_error_says_what_was_found(code: int, message: str) -> None:
    """In one program, in one of several chains, and in a loop."""
    programs = (
        (_stop, jnp.asarray(code)),
        (jax.vmap(jax.vmap(_stop)), jnp.array([[FINE, FINE], [code, 3]])),
        (lambda last: jax.lax.fori_loop(0, 3, lambda i, _: _stop(jnp.where(i == 2, last, FINE)), FINE), jnp.asarray(code)),
    )
    for program, given in programs:
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.jit(program)(given).block_until_ready()


def test_programs_without_an_error_go_on() -> None:
    np.testing.assert_array_equal(jax.jit(jax.vmap(_stop))(jnp.full(3, FINE)), np.full(3, FINE))
