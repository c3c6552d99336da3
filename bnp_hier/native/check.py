"""Check that calls of kernels from XLA programs arrive as they should."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxlib
import numba
import numpy as np

from bnp_hier.native.bridge import cache_folder, exact
from bnp_hier.native.echo import ECHO

__all__ = ["check_calls"]


def check_calls() -> None:
    """Call a kernel from compiled, vectorised and repeated programs in both precisions; once per machine and version.

    Raises
    ------
    RuntimeError
        If a result differs from what was passed.
    """
    folder = cache_folder()
    mark = None if folder is None else folder / f"checked-jaxlib-{jaxlib.__version__}-numba-{numba.__version__}"
    if mark is not None and mark.exists():
        return
    for double in (True, False):
        # the first kernel may be needed while a program is traced
        with jax.ensure_compile_time_eval(), jax.enable_x64(double):
            _check_echo()
    if mark is not None:
        mark.touch()


def _check_echo() -> None:
    real, whole = jnp.result_type(float), jnp.result_type(int)
    sent = np.array(0.1), np.arange(3.0) / 7, np.arange(6.0).reshape(2, 3) / 7, np.arange(-2, 2)

    def call(number: jax.Array, vector: jax.Array, matrix: jax.Array, integers: jax.Array) -> list[jax.Array]:
        shapes = [jax.ShapeDtypeStruct(np.shape(value), real) for value in sent[:3]]
        return ECHO.inside([*shapes, jax.ShapeDtypeStruct((4,), whole)], number, vector, matrix, integers)

    def repeated(*values: jax.Array) -> list[jax.Array]:
        return jax.lax.fori_loop(0, 2, lambda _, now: call(*now), list(values))

    given = [jnp.asarray(value) for value in sent]
    stacked = [jnp.stack([value, value + 1]) for value in given]
    twice = jax.vmap(jax.vmap(repeated, (0, None, 0, None)), (None, 0, None, 0))(*stacked)
    expected = [
        jnp.broadcast_to(stack[(None, slice(None)) if first else (slice(None), None)], (2, 2, *value.shape))
        for stack, value, first in zip(stacked, given, (True, False, True, False), strict=True)
    ]
    digits = jax.jit(lambda: call(given[0], jnp.asarray(exact(sent[1])), given[2], given[3]))()[1]
    pairs = [*zip(twice, expected, strict=True), (digits, given[1])]
    if not all(np.array_equal(found, wanted) for found, wanted in pairs):
        raise RuntimeError("a kernel that returns its arguments returned something else")
