"""The parallel sampler at scale, beside scikit-learn's variational mixture.

Run with ``pytest -m benchmark -n 0 -s tests/benchmarks/test_samplers.py``.
"""

from __future__ import annotations

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture

import bnp_hier as bnp
from bnp_hier.components import Component
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm
from bnp_hier.partitions.joint_density import log_joint
from tests.benchmarks.peak_memory import peak

pytestmark = pytest.mark.benchmark


def mixture(n: int, d: int, k: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal clusters of unit covariance, centres of standard deviation `spread`; float32."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, n)
    return (spread * rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))).astype(np.float32), y


def sample(component: Component, X: np.ndarray, steps: int) -> tuple[np.ndarray, int, dict[str, float]]:
    """Labels of the last state, clusters, and processor seconds: of the start, of compilation and a first step, of a step."""
    kernel = bnp.ParallelSplitMerge(partial(dpm, component=component, concentration=1.0), keep_labels=False)
    rows = jnp.asarray(X)
    step = jax.jit(lambda state: kernel.sample(state, (rows,), {}), donate_argnums=0)
    seconds = {}
    start = time.process_time()
    state = kernel.init(rng_key=jax.random.key(0), num_warmup=0, init_params=None, model_args=(rows,), model_kwargs={})
    seconds["start"] = time.process_time() - start
    start = time.process_time()
    state = jax.block_until_ready(step(state))
    seconds["compilation"] = time.process_time() - start
    times = []
    for _ in range(steps):
        start = time.process_time()
        state = jax.block_until_ready(step(state))
        times.append(time.process_time() - start)
    seconds["step"], seconds["all"] = float(np.median(times)), seconds["start"] + seconds["compilation"] + sum(times)
    assert np.isfinite(float(state.log_joint))
    return np.asarray(state.z["z"]), int(state.n_clusters), seconds


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of its default 100 iterations
def test_many_rows_against_a_variational_mixture() -> None:
    """n = 100,000, d = 10, 30 clusters."""
    X, y = mixture(100_000, 10, 30, 3.0)
    component = bnp.NormalInverseWishart.from_data(X.astype(float), learn=False)
    with jax.enable_x64(True):
        labels, _, seconds = sample(component, X, 30)
        model = partial(dpm, component=component, concentration=1.0)
        polished = bnp.MAPDP(model, n_init=1, init=labels).fit(X.astype(float))
        generating = float(log_joint(component, component.suff_stats(X), jnp.asarray(y), Prior(1.0), 64))
    start = time.process_time()
    peer = BayesianGaussianMixture(n_components=40, random_state=0).fit_predict(X)
    theirs = time.process_time() - start
    ours_nmi, peer_nmi = (normalized_mutual_info_score(y, found) for found in (labels, peer))
    print(
        f"\nParallelSplitMerge, 30 steps: {seconds}; scikit-learn: {theirs:.1f} s; "
        f"ratio {seconds['all'] / theirs:.2f} (at most 1)"
    )
    print(
        f"NMI {ours_nmi:.5f}, scikit-learn {peer_nmi:.5f}; log joint after polishing: {polished.log_joint_ - generating:+.1f}"
    )
    assert ours_nmi >= peer_nmi
    assert polished.log_joint_ >= generating - 20.0
    assert seconds["all"] <= theirs


def test_many_columns() -> None:
    """n = 100,000, d = 128, independent columns, 10 clusters: all are found."""
    X, y = mixture(100_000, 128, 10, 1.0)
    with jax.enable_x64(True):
        labels, clusters, seconds = sample(bnp.NormalInverseGamma.from_data(X.astype(float), learn=False), X, 10)
    nmi = normalized_mutual_info_score(y, labels)
    print(f"\nParallelSplitMerge, n = 100,000, d = 128: {seconds}; {clusters} clusters, NMI {nmi:.5f}")
    assert clusters >= 10 and nmi > 0.99


def test_a_million_rows() -> None:
    """n = 1,000,000, d = 2: 100 steps."""
    X, y = mixture(1_000_000, 2, 20, 8.0)
    with jax.enable_x64(True):
        component = bnp.NormalInverseWishart.from_data(X.astype(float), learn=False)
        labels, clusters, seconds = sample(component, X, 100)
        memory = peak()
        rows = component.suff_stats(X)
        ours, generating = (float(log_joint(component, rows, jnp.asarray(z), Prior(1.0), 64)) for z in (labels, y))
    nmi = normalized_mutual_info_score(y, labels)
    print(
        f"\nParallelSplitMerge, n = 1,000,000, d = 2: {seconds}; {clusters} clusters, NMI {nmi:.4f}, "
        f"log joint {ours - generating:+.1f} from the generating labels'; peak memory {memory:.0f} MB (at most 2000)"
    )
    assert memory <= 2000  # MB
    assert clusters >= 10 and np.isfinite(ours)
