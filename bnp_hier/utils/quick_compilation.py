"""Options with which XLA compiles for the CPU in a fraction of the time."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from bnp_hier.native.availability import computes_on_cpu

__all__ = ["compiled_quickly"]

LEAN = {"xla_cpu_use_fusion_emitters": False}
"""Each fusion by LLVM directly, as XLA did before it had another stage for them: half the time, and as fast a program."""

UNOPTIMIZED = {"xla_backend_optimization_level": 0}
"""For programs on few numbers, whose time is mostly that of calling LAPACK and of dispatching."""


def compiled_quickly(lowered: Any, *, small: bool = False) -> Any:
    """Compile a lowered program with options that shorten the compilation, if it is for the CPU and XLA knows them.

    Parameters
    ----------
    lowered
        What ``jax.jit(function).lower(...)`` returns.
    small
        Whether the program works on so few numbers that its machine code need not be optimised.
    """
    if not (computes_on_cpu() and _are_known()):
        return lowered.compile()
    return lowered.compile(compiler_options=LEAN | UNOPTIMIZED if small else LEAN)


@cache
def _are_known() -> bool:
    """Whether this version of XLA has the options, which are not part of a stable interface."""
    try:
        with jax.enable_x64(False):
            jax.jit(jnp.negative).lower(jnp.float32(0.0)).compile(compiler_options=LEAN | UNOPTIMIZED)
    except jax.errors.JaxRuntimeError:
        return False
    return True
