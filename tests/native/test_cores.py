"""How many cores a thread may use, and what is computed on them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bnp_hier.native import cores
from bnp_hier.native.bridge import register
from bnp_hier.native.cores import core_count, on_cores, set_xla_threads
from bnp_hier.native.stopping import stop_call


def _in_a_worker(monkeypatch: pytest.MonkeyPatch, threads: str | None) -> None:
    """As in a process that joblib or Dask has started on a machine with 8 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(multiprocessing.current_process(), "name", "Worker-1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(os, "environ", os.environ.copy())


@pytest.mark.parametrize(("given", "share"), [("1", 1), ("3", 3), ("20", 8), (None, 8), ("0", 8), ("2,1", 8)])
def test_a_worker_has_its_share(given: str | None, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_a_worker(monkeypatch, given)
    assert core_count() == share


def test_elsewhere_the_variable_is_of_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    _in_a_worker(monkeypatch, "1")
    monkeypatch.setattr(multiprocessing.current_process(), "name", "MainProcess")
    os.environ.pop("NPROC", None)
    set_xla_threads()
    assert core_count() == 8 and os.environ["NPROC"] == "18"


@pytest.mark.parametrize(("given", "threads"), [("1", "1"), ("3", "8"), (None, "18")])
@pytest.mark.parametrize("inherited", [None, "18"])
def test_threads_of_xla_in_a_worker(
    given: str | None, threads: str, inherited: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the process that has started it has set the number of its own."""
    _in_a_worker(monkeypatch, given)
    os.environ.pop("NPROC", None)
    if inherited is not None:
        os.environ["NPROC"] = inherited
    set_xla_threads()
    assert os.environ["NPROC"] == threads
    os.environ["NPROC"] = "5"  # chosen by the user
    set_xla_threads()
    assert os.environ["NPROC"] == "5"


FACTORISATIONS = """
import faulthandler
faulthandler.dump_traceback_later(120, exit=True)
import numpy as np
import bnp_hier
import jax
import jax.numpy as jnp
from bnp_hier.native.cores import on_cores

def chain(seed):
    A = np.random.default_rng(seed).normal(size=(200, 22, 22)).astype(np.float32)
    A = jnp.asarray(A @ A.transpose(0, 2, 1) + np.eye(22, dtype=np.float32))
    return [float(factorise(A)) for _ in range(500)]

factorise = jax.jit(lambda A: jnp.linalg.cholesky(A).sum())
chain(0)
assert np.isfinite(on_cores(chain, range(4))).all()
"""


@pytest.mark.slow
def test_chains_on_all_cores_do_not_block_each_other() -> None:
    """With XLA's own number of threads, two chains of batched LAPACK calls on two cores wait forever."""
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
    done = subprocess.run(
        [sys.executable, "-c", FACTORISATIONS], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_thread_has_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """So threads do not start threads, and those of a search are as many as it was given."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def names(_: object = None) -> set[str]:
        return set(on_cores(lambda _: threading.current_thread().name, range(4)))

    with ThreadPoolExecutor(1, "worker") as pool:
        assert pool.submit(core_count).result() == 1
        assert pool.submit(names).result() == {"worker_0"}
    assert "MainThread" not in names()
    assert all(len(inner) == 1 for inner in on_cores(names, range(3)))


def test_two_threads_register_a_target_once() -> None:
    """XLA refuses a second target of the same name."""
    barrier = threading.Barrier(2)

    def together(_: int) -> str:
        barrier.wait()
        return register("bnp_hier_registered_twice", stop_call)

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(together, range(2))) == {"bnp_hier_registered_twice"}


def test_work_that_is_not_worth_a_thread_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "core_count", lambda: 8)
    here = threading.current_thread().name
    assert set(on_cores(lambda _: threading.current_thread().name, range(4), cores.WORTH_A_THREAD - 1)) == {here}
