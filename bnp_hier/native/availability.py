"""Whether kernels can run here: Numba is installed, computations are on the CPU, and calls from XLA programs work."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import jax

__all__ = ["kernels_run", "xla_programs"]

SWITCH = "BNP_HIER_NATIVE"
"""Environment variable that, if it is 0, makes XLA programs run instead of kernels."""

_off = threading.local()


@contextmanager
def xla_programs() -> Iterator[None]:
    """Run XLA programs instead of native kernels in this thread, for instance to compare the two.

    Programs that JAX has compiled before are discarded at the start and at the end, because they contain calls of kernels or not.
    """
    before = getattr(_off, "on", False)
    _off.on = True
    jax.clear_caches()
    try:
        yield
    finally:
        _off.on = before
        jax.clear_caches()


def kernels_run() -> bool:
    """Whether native kernels run: unless they are switched off, Numba is missing, or JAX computes on an accelerator."""
    if getattr(_off, "on", False) or os.environ.get(SWITCH) == "0":
        return False
    device = jax.config.jax_default_device
    platform = device if isinstance(device, str) else getattr(device, "platform", None) or jax.default_backend()
    return platform == "cpu" and _works()


@cache
def _works() -> bool:
    """Whether kernels can be compiled and called from XLA programs on this machine; warns if not."""
    try:
        from bnp_hier.native.check import check_calls

        check_calls()
    except Exception as error:  # whatever is wrong with the compiler must not stop the package
        warnings.warn(
            f"native kernels cannot be used ({type(error).__name__}: {error}); XLA programs run instead, which are slower and "
            "take longer to compile",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True
