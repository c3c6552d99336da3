"""Processor seconds of a first result in a fresh process, whose kernels have been compiled before on this machine.

Run with ``pytest -m benchmark -n 0 -s tests/benchmarks/test_first_call.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.test_speed import check

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[2]
SETTING = """
import json, time
import jax
import bnp_hier as bnp
from functools import partial
from bnp_hier.models import dpm
compiled, tables = [], bnp.datasets.load("iris").X
jax.monitoring.register_event_duration_secs_listener(lambda name, _, **__: compiled.append(name))
def model(X): return dpm(X, bnp.NormalInverseWishart.from_data(tables, learn=False), 1.0)
def programs(): return compiled.count("/jax/core/compile/backend_compile_duration")
start = time.process_time()
"""
FIT = SETTING + "{estimator}.fit(tables)\nprint(json.dumps([time.process_time() - start, programs()]))"
TWO_FITS = (
    SETTING + "{estimator}.fit(tables)\nbefore, start = programs(), time.process_time()\n{estimator}.fit(tables[:-7])\n"
    "print(json.dumps([time.process_time() - start, programs() - before]))"
)
CHAINS = """
import sys, time
import jax
import numpyro
import numpyro.distributions as dist
import bnp_hier as bnp
from numpyro.infer import MCMC, NUTS, Gibbs
bnp.enable_compilation_cache(sys.argv[1])
X = bnp.datasets.load("iris").X
component = bnp.NormalInverseWishart.from_data(X, learn=False)
def model(X):
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, len(X)))
    numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X)
kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), ["alpha"])])
mcmc = MCMC(kernel, num_warmup=500, num_samples=1000, num_chains=4, chain_method=jax.vmap, progress_bar=False)
mcmc.run(jax.random.key(0), X)
jax.block_until_ready(mcmc.get_samples())
print(time.process_time())
"""


def result(program: str, *words: str) -> Any:
    """What a program prints in a fresh process, in which XLA programs are compiled anew."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("estimator", "limit"),
    [("bnp.BHC(model)", 1.5), ("bnp.MAPDP(model)", 1.0), ("bnp.AgglomerativeBayesianClustering(model)", 1.0)],
)
def test_first_fit(estimator: str, limit: float) -> None:
    program = FIT.format(estimator=estimator)
    result(program)  # compiles the kernels if need be
    taken, programs = min(result(program) for _ in range(3))
    print(f"\n{estimator}.fit(iris) compiles {programs} XLA programs")
    check(f"processor seconds of {estimator}.fit(iris) beyond the imports", taken, limit)


@pytest.mark.parametrize(
    "estimator",
    ["bnp.BHC(model)", "bnp.MAPDP(model)", "bnp.AgglomerativeBayesianClustering(model)"],
)
def test_second_fit_compiles_nothing(estimator: str) -> None:
    """Of another number of rows, in the same process."""
    taken, programs = min(result(TWO_FITS.format(estimator=estimator)) for _ in range(3))
    print(f"\n{estimator}: a fit of another number of rows takes {taken:.3f} processor seconds, {programs} compilations")
    assert programs == 0


def test_chains(tmp_path: Path) -> None:
    """`PartitionGibbs` with NUTS on α, four chains of 500 + 1,000, with imports and XLA programs from the compilation cache."""
    cold, *warm = (result(CHAINS, str(tmp_path / "programs")) for _ in range(3))
    print(f"\nfour chains with NUTS: {cold:.1f} processor seconds at first")
    check("processor seconds of four chains with NUTS, programs in the cache", min(warm), 8.0)
