"""Options with which XLA compiles for the CPU in a fraction of the time."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib

from bnp_hier.native.availability import computes_on_cpu

__all__ = ["compiled_at_first_call", "compile_everything_quickly", "compiled_quickly"]

LEAN: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False}
"""Each fusion by LLVM directly, as XLA did before it had another stage for them: half the time, and as fast a program."""

UNOPTIMIZED: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
"""For programs on few numbers, whose time is mostly that of calling LAPACK and of dispatching."""

WITH_FLAG = ((0, 10),)
"""Versions of jaxlib that are known to have the first option as a flag; those from 0.12 do not."""


def compile_everything_quickly() -> None:
    """Have XLA compile all programs of this process with `LEAN`, not only those that `compiled_quickly` compiles.

    Call it before the first computation, when XLA reads its flags. It ends a process with a flag that it does not know, so that
    only known versions get it. Flags that the user has set stay as they are.
    """
    if tuple(map(int, jaxlib.__version__.split(".")[:2])) in WITH_FLAG and "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"


def compiled_quickly(lowered: Any, *, small: bool = False) -> Any:
    """Compile a lowered program with options that shorten the compilation, if it is for the CPU and XLA knows them.

    Parameters
    ----------
    lowered
        What ``jax.jit(function).lower(...)`` returns.
    small
        Whether the program works on so few numbers that its machine code need not be optimised.
    """
    options = {**_known(LEAN), **(_known(UNOPTIMIZED) if small else {})} if computes_on_cpu() else {}
    return lowered.compile(compiler_options=options or None)


def compiled_at_first_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator like `jax.jit` for functions whose programs take long to compile, with `LEAN`."""

    @cache
    def program(on_cpu: bool) -> Any:
        return jax.jit(function, compiler_options=(_known(LEAN) if on_cpu else {}) or None)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return program(computes_on_cpu())(*arguments)

    return call


def _known(options: dict[str, str | bool]) -> dict[str, str | bool]:
    """Those options that this version of XLA has; they are not part of a stable interface."""
    return {name: value for name, value in options.items() if _is_known(name, value)}


@cache
def _is_known(name: str, value: str | bool) -> bool:
    try:
        with jax.enable_x64(False):
            jax.jit(jnp.negative).lower(jnp.float32(0.0)).compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True
