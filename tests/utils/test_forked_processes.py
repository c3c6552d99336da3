"""Fits in processes that are forked: refused after JAX has run, as they are where it has not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system"),
]

PROGRAM = """
import multiprocessing, sys, warnings
import jax, numpy as np
import bnp_hier as bnp
from numpyro.infer import MCMC
from bnp_hier.models import dpm

warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=(30, 2))
if sys.argv[1] == "after":
    fit, result = bnp.MAPDP().fit(X), bnp.cluster(X, methods="map-dp")

def attempts(queue):
    for name, attempt in {
        "fit": lambda: bnp.MAPDP().fit(X),
        "cluster": lambda: bnp.cluster(X, methods="map-dp"),
        "chain": lambda: MCMC(bnp.PartitionGibbs(dpm), num_warmup=1, num_samples=1).run(jax.random.key(0), X),
        "component": lambda: bnp.NormalInverseWishart.from_data(X),
        "predict": lambda: fit.predict(X),
        "result": lambda: result.predict(X),
    }.items():
        if sys.argv[1] == "after" or name in ("fit",):
            try:
                attempt()
                queue.put(f"{name} ran")
            except RuntimeError as error:
                queue.put(f"{name} refused: {'spawn' in str(error)}")
    queue.put("end")

context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=attempts, args=(queue,), daemon=True)
child.start()
while (line := queue.get(timeout=100)) != "end":
    print(line)
"""


def lines(when: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, when], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_fit_in_a_forked_process_is_refused_after_jax_has_run() -> None:
    assert lines("after") == [f"{name} refused: True" for name in ("fit", "cluster", "chain", "component", "predict", "result")]


def test_a_process_that_is_forked_before_jax_has_run_computes() -> None:
    assert lines("before") == ["fit ran"]
