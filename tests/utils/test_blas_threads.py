"""Estimators and chains use one thread for linear algebra, and leave the setting as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent("""
    import json
    from functools import partial

    import jax
    from numpyro.infer import MCMC
    from threadpoolctl import ThreadpoolController, threadpool_limits

    import bnp_hier as bnp
    from bnp_hier.models import dpm

    X = bnp.datasets.load("iris").X[::5]
    seen, found = set(), {}

    def threads():
        return max(library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas")

    def model(X):
        seen.add(threads())
        dpm(X, bnp.NormalInverseWishart.from_data(X, learn=False), 1.0)

    def during(name, function):
        seen.clear()
        result = function()
        found[name] = [sorted(seen), threads()]
        return result

    fit = during("fit", lambda: bnp.MAPDP(model).fit(X))
    run = bnp.ResumableRun(MCMC(bnp.PartitionGibbs(model), num_warmup=2, num_samples=4, progress_bar=False))
    during("run", lambda: run.run(jax.random.key(0), X))
    during("compare", lambda: bnp.compare({"MAP-DP": fit, "Gibbs": run}, X))
    with threadpool_limits(2, "blas"):
        during("own limit", lambda: bnp.MAPDP(model).fit(X))
    print(json.dumps(found))
""")


@pytest.mark.slow
def test_one_thread_meanwhile() -> None:
    """A model that looks at the number of threads whenever it is read; a limit that the user has set is respected."""
    variables = {name: "2" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    for name in ("fit", "compare"):
        assert found[name] == [[1], 2]
    assert found["run"] == [[1, 2], 2]  # the data are looked at before the run
    assert found["own limit"] == [[2], 2]
