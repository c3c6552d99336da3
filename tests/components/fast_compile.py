"""Compiling takes nearly all the time of tests on small arrays: a ``jit`` that skips XLA's optimisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

__all__ = ["jit"]


def _options() -> dict[str, Any]:
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except Exception:  # this version of XLA has no such option
        return {}
    return options


OPTIONS = _options()


def jit(function: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    """``jax.jit`` about three times faster to compile, and slower to run; only at the outermost level."""
    return jax.jit(function, compiler_options=OPTIONS, **keywords)
