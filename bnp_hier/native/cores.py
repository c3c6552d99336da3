"""Independent calls of compiled code on the cores of the machine, or on its share of them in a worker of joblib or Dask."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp

__all__ = ["core_count", "limit_xla", "on_cores"]

_A = TypeVar("_A")
_B = TypeVar("_B")

WORTH_A_THREAD = 20_000
"""Work, in visits of rows, below which starting threads takes longer than they save."""


def core_count() -> int:
    """Number of cores that this thread may use: those of the process, but one in a thread other than the main one.

    Whoever starts threads or processes has divided the cores among them. A process that joblib or Dask has started has as many
    as its environment variable ``OMP_NUM_THREADS`` says.
    """
    if threading.current_thread() is not threading.main_thread():
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _share_of_a_worker() or cores)


def _share_of_a_worker() -> int | None:
    """Number of cores that a worker process has been given; None if this is not one, or if it may use all."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    # a worker that imports the main script has its name already, but no parent yet
    worker = multiprocessing.current_process().name != "MainProcess"
    return int(given) or None if worker and given.isdecimal() else None


def limit_xla() -> None:
    """Give XLA as many threads as a worker process has cores; it would have one for each core of the machine.

    XLA reads the number once, before its first computation. Threads that the user has chosen by ``NPROC`` stay.
    """
    if (share := _share_of_a_worker()) is not None:
        os.environ.setdefault("NPROC", str(share))


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
