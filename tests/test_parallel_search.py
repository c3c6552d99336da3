"""Searches of scikit-learn by several processes or threads: the scores of one, one compilation a process, one core a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

import jax
import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, KFold
from threadpoolctl import threadpool_info

import bnp_hier as bnp
from bnp_hier.models import MixtureModel
from tests.parameters import few

SEARCH = """
import json, os, sys, time, warnings
from contextlib import ExitStack, suppress
import jax
import joblib
import numpy as np
import bnp_hier as bnp
from sklearn.model_selection import GridSearchCV, KFold
from bnp_hier.models import MixtureModel
from bnp_hier.native.cores import core_count

def listen():
    if "compiled" not in vars(jax):  # once a process
        jax.compiled = []
        def heard(event, _, **details):
            if event.endswith("backend_compile_duration"):
                jax.compiled.append(details.get("fun_name"))
        jax.monitoring.register_event_duration_secs_listener(heard)

class Watched(bnp.{estimator}):
    def fit(self, X, y=None):
        listen()
        wall, cpu = time.perf_counter(), time.process_time()
        super().fit(X)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        of_xla = 0
        for name in os.listdir("/proc/self/task"):
            with suppress(OSError), open(f"/proc/self/task/{{name}}/comm") as thread:  # it may have ended by now
                of_xla += "XLAEigen" in thread.read()
        with open(sys.argv[1], "a") as log:
            print(json.dumps([os.getpid(), wall, cpu, core_count(), of_xla, jax.compiled]), file=log)
        return self

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    listen()
    rng = np.random.default_rng(0)
    X = 6 * rng.normal(size=(8, 6))[rng.integers(0, 8, 3000)] + rng.normal(size=(3000, 6))
    Watched.__init__ = bnp.{estimator}.__init__
    grid = {{"model__concentration": [0.3, 3.0, 10.0]}}
    backend = sys.argv[2]
    jobs = 1 if backend == "one" else 2
    search = GridSearchCV(Watched({options}), grid, cv=KFold(3), n_jobs=jobs, refit=False, error_score="raise")
    with ExitStack() as context:
        if backend == "dask":
            from distributed import Client, LocalCluster
            cluster = context.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
            context.enter_context(Client(cluster))
        if backend != "one":
            context.enter_context(joblib.parallel_config(backend))
        search.fit(X)
    print(*(search.cv_results_[f"split{{fold}}_test_score"].tobytes().hex() for fold in range(3)))
"""

PROBLEMS = {
    "MAPDP": "MixtureModel('diagonal'), n_init=2, random_state=0",
    "BayesianKMeans": "MixtureModel(learn=False), random_state=0",
}


class Fit(NamedTuple):
    """What a process writes about a fit: seconds, cores, threads of XLA, and what it has compiled so far."""

    wall: float
    cpu: float
    cores: int
    of_xla: int
    compiled: list[str]


def _searched(program: Path, backend: str) -> tuple[str, list[list[Fit]]]:
    """Scores of a search in a fresh process, digit by digit, and the fits of each process."""
    log = program.with_suffix(f".{backend}")
    words = [sys.executable, str(program), str(log), backend]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    fits: dict[int, list[Fit]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        process, *found = json.loads(line)
        fits.setdefault(process, []).append(Fit(*found))
    return done.stdout.splitlines()[-1], list(fits.values())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the threads of a process are listed there")
@pytest.mark.parametrize("estimator", few(PROBLEMS, plain=0))
def test_processes_and_threads_find_the_scores_of_one(estimator: str, tmp_path: Path) -> None:
    """No process compiles a program that a single process does not compile, nor one more often."""
    pytest.importorskip("distributed")
    program = tmp_path / "search.py"
    program.write_text(SEARCH.format(estimator=estimator, options=PROBLEMS[estimator]), encoding="utf-8")
    scores, (alone,) = _searched(program, "one")
    assert alone[-1].compiled
    for backend in ("loky", "threading", "dask"):
        found, processes = _searched(program, backend)
        assert found == scores, backend
        assert sum(map(len, processes)) == len(alone) == 9 and len(processes) <= 2
        for fits in processes:
            more = Counter(fits[-1].compiled) - Counter(alone[-1].compiled)
            # two threads may both compile a single operation, which takes milliseconds; that is up to JAX
            assert backend == "threading" or not more, (backend, more)
            assert all(hasattr(jax.lax, name.removeprefix("jit(").removesuffix(")")) for name in more), more
            assert {fit.cores for fit in fits} == {1}
            if backend != "threading":
                assert {fit.of_xla for fit in fits} == {1}
                assert median(fit.cpu / fit.wall for fit in fits) < 1.2


def _data() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 2)) + 8.0 * rng.integers(0, 2, (60, 1))


def _scores(jobs: int) -> np.ndarray:
    grid = {"model__concentration": [0.3, 1.0, 3.0, 10.0]}
    search = GridSearchCV(bnp.MAPDP(MixtureModel("diagonal"), n_init=1), grid, cv=KFold(2), n_jobs=jobs)
    with joblib.parallel_config("threading"):
        return search.fit(_data()).cv_results_["mean_test_score"]


@pytest.mark.slow
def test_threads_of_a_search_compile_nothing_that_one_has_compiled(compilations: list[str]) -> None:
    alone = _scores(1)
    compilations.clear()
    np.testing.assert_array_equal(_scores(2), alone)
    assert compilations == []


@pytest.mark.slow
def test_threads_leave_the_libraries_of_linear_algebra_as_they_were() -> None:
    """The limit applies to the whole process: of two threads that overlap, the second finds that of the first."""

    def limits() -> dict[str, int]:
        return {library["filepath"]: library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    def fit(concentration: float) -> float:
        return bnp.MAPDP(MixtureModel("diagonal", concentration=concentration), n_init=1).fit(_data()).log_joint_

    before = limits()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(fit, np.linspace(0.5, 5.0, 6).tolist()))
    assert limits() == before
