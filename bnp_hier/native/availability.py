"""Whether kernels can run here: Numba is installed, computations are on the CPU, and calls from XLA programs work."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import jax

from bnp_hier.native.names import SWITCH

__all__ = ["computes_on_cpu", "ffi_available", "kernels_run", "xla_programs"]

_off = threading.local()


@contextmanager
def xla_programs() -> Iterator[None]:
    """Run XLA programs instead of native kernels in this thread, for instance to compare the two.

    Programs that JAX has compiled before are discarded at the start and at the end: they contain calls of kernels, or do not.
    """
    before = getattr(_off, "on", False)
    _off.on = True
    jax.clear_caches()
    try:
        yield
    finally:
        _off.on = before
        jax.clear_caches()


def computes_on_cpu() -> bool:
    """Whether JAX computes on the CPU, rather than on an accelerator."""
    settings: Any = jax.config
    device = settings.jax_default_device
    platform = device if isinstance(device, str) else getattr(device, "platform", None) or jax.default_backend()
    return platform == "cpu"


def kernels_run() -> bool:
    """Whether native kernels run: unless they are switched off, Numba is missing, or JAX computes on an accelerator."""
    if getattr(_off, "on", False) or os.environ.get(SWITCH) == "0":
        return False
    return computes_on_cpu() and _works("bridge", "Kernel")


def ffi_available() -> bool:
    """Whether XLA can call the compiled kernels on this machine (checked once per jaxlib version)."""
    return kernels_run() and _works("check", "check_calls")


@cache
def _works(module: str, name: str) -> bool:
    """Whether a module of this folder can be imported, and a function in it called; warns if not."""
    try:
        found = getattr(import_module(f"bnp_hier.native.{module}"), name)
        if name != "Kernel":
            found()
    except Exception as error:  # whatever is wrong with the compiler must not stop the package
        warnings.warn(
            f"native kernels cannot be used ({type(error).__name__}: {error}); XLA programs run instead, which are slower and "
            "take longer to compile",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    return True
