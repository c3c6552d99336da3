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

__all__ = ["core_count", "on_cores", "set_xla_threads"]

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
    cores = _cores_of_the_process()
    return min(cores, _share_of_a_worker() or cores)


def _cores_of_the_process() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share_of_a_worker() -> int | None:
    """Number of cores that a worker process has been given; None if this is not one, or if it may use all."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    # a worker that imports the main script has its name already, but no parent yet
    worker = multiprocessing.current_process().name != "MainProcess"
    return int(given) or None if worker and given.isdecimal() else None


def set_xla_threads() -> None:
    """Give XLA two threads for each core of this process and two more, or one thread if the process has a single core.

    A batched LAPACK call occupies a thread of XLA's pool while it waits for others, so that as many calls at once as there are
    threads wait forever (jaxlib 0.10). With one thread for each core, which is XLA's default, chains on all cores do.

    XLA reads the number once, before its first computation, from the environment variable ``NPROC``. A number that the user has
    chosen stays.
    """
    ours = str(_threads(_cores_of_the_process()))
    if os.environ.get("NPROC", ours) == ours:  # a worker process inherits the number of the process that has started it
        os.environ["NPROC"] = str(_threads(_share_of_a_worker() or _cores_of_the_process()))


def _threads(cores: int) -> int:
    return 1 if cores == 1 else 2 * cores + 2


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
