"""How many cores a thread may use, and what is computed on them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bnp_hier.native import cores
from bnp_hier.native.bridge import register
from bnp_hier.native.cores import core_count, limit_xla, on_cores
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
    limit_xla()
    assert core_count() == 8 and "NPROC" not in os.environ


def test_xla_has_as_many_threads_unless_the_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    _in_a_worker(monkeypatch, "3")
    limit_xla()
    assert os.environ["NPROC"] == "3"
    os.environ["NPROC"] = "5"
    limit_xla()
    assert os.environ["NPROC"] == "5"


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
