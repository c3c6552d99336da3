"""Estimators and chains beside a busy process: as many threads for linear algebra as there are cores, against one.

Run with ``pytest -m benchmark -n 0 -s tests/benchmarks/test_blas_threads.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.benchmarks.test_speed import check

pytestmark = pytest.mark.benchmark

SETTING = """
import time
import jax
import numpy as np
import bnp_hier as bnp
from functools import partial
from numpyro.infer import MCMC, Gibbs
from bnp_hier.models import dpm
rng = np.random.default_rng(0)
X = rng.normal(size=(1000, 32)) @ rng.normal(size=(32, 32)) + 20.0 * rng.normal(size=(10, 32))[rng.integers(10, size=1000)]
fixed = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
learned = partial(dpm, component=bnp.NormalInverseWishart.from_data(X))
start = time.process_time()
"""
FITS = {
    "search by splits and merges": "bnp.BayesianKMeans(fixed, random_state=0).fit(X)",
    "chains with learned hyperparameters": (
        "kernel = Gibbs([(bnp.PartitionGibbs(learned), ['z']), (bnp.HyperparameterGibbs(learned), None)])\n"
        "bnp.ResumableRun(MCMC(kernel, num_warmup=20, num_samples=40, num_chains=2, progress_bar=False)).run("
        "jax.random.key(0), X)"
    ),
}


@pytest.fixture
def busy() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield
        process.kill()


def processor_seconds(program: str, threads: int) -> float:
    variables = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    program = f"{SETTING}\n{program}\nprint(time.process_time() - start)"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | variables, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


@pytest.mark.parametrize("name", FITS)
def test_threads_do_not_wait_for_each_other(name: str, busy: None) -> None:
    processor_seconds(FITS[name], 1)  # compiles the kernels if need be
    one, many = (min(processor_seconds(FITS[name], threads) for _ in range(2)) for threads in (1, os.cpu_count() or 1))
    check(f"{name}, 1000 x 32: {many:.1f} s of the processor, against {one:.1f} s with one thread;", many / one, 1.5)
