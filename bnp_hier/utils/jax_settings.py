"""Settings of JAX under which the package computes, whatever those of the process are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import jax

__all__ = ["double_precision", "standard_settings"]

TYPES, RANKS = "standard", "allow"
"""JAX's settings of the promotion of types and ranks; the package's own tests forbid it."""


@contextmanager
def standard_settings() -> Iterator[None]:
    """JAX's default promotion, compilation and transfers, without its checks for debugging, in this thread.

    Programs are compiled ahead, promote types and ranks, and let infinite and undefined values pass in branches that are not
    taken; JAX refuses that where a process has set, for example, ``jax_disable_jit`` or ``jax_numpy_rank_promotion``.
    """
    with ExitStack() as stack:
        for setting in (
            jax.disable_jit(False),
            jax.numpy_dtype_promotion(TYPES),
            jax.numpy_rank_promotion(RANKS),
            jax.transfer_guard("allow"),
            jax.check_tracer_leaks(False),
            jax.debug_nans(False),
            jax.debug_infs(False),
        ):
            stack.enter_context(setting)
        yield


@contextmanager
def double_precision() -> Iterator[None]:
    """Double precision, in `standard_settings`, in this thread."""
    with standard_settings(), jax.enable_x64(True):
        yield
