"""What the kernels share: words from inside a compiled program."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bnp_hier.kernels.reports import _do_where


def test_the_host_is_called_once_for_all_chains() -> None:
    """Also under `vmap`, only at steps at which the condition holds for a chain, and with that chain's arguments.

    A constant among them reaches a batched call as a Python number.
    """
    calls: list[float] = []

    def note(value: jax.Array) -> None:
        calls.append(float(value))

    def count(start: jax.Array) -> jax.Array:
        def step(state: jax.Array, _: None) -> tuple[jax.Array, None]:
            _do_where(state == 3.0, partial(jax.debug.callback, note), state)
            return state + 1.0, None

        return jax.lax.scan(step, start, None, length=5)[0]

    jax.block_until_ready(jax.jit(count)(jnp.asarray(1.0)))
    jax.effects_barrier()
    assert calls == [3.0]
    calls.clear()
    ends = jax.jit(jax.vmap(count))(jnp.asarray([-9.0, 2.0, 2.0, -1.0]))
    jax.effects_barrier()
    assert calls == [3.0] * 2  # at the second step and at the last
    np.testing.assert_array_equal(ends, [-4.0, 7.0, 7.0, 4.0])
