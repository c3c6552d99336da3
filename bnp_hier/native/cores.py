"""Independent calls of compiled code on the cores of the machine."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp

__all__ = ["core_count", "on_cores"]

_A = TypeVar("_A")
_B = TypeVar("_B")

WORTH_A_THREAD = 20_000
"""Work, in visits of rows, below which starting threads takes longer than they save."""


def core_count() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_cores(function: Callable[[_A], _B], items: Sequence[_A], work: float = math.inf) -> list[_B]:
    """Apply a function that mostly runs compiled code to each item, in threads if the work, in visits of rows, is worth it.

    The threads compute in the precision of this one.
    """
    threads = min(core_count(), len(items))
    if threads < 2 or work < WORTH_A_THREAD:
        return [function(item) for item in items]
    precise = jnp.result_type(float) == jnp.float64

    def run(item: _A) -> _B:
        with jax.enable_x64(precise):  # a setting of each thread
            return function(item)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, items))
