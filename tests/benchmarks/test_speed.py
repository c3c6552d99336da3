"""Speed against a baseline run side by side in the same process: only the ratios mean anything.

Run with ``pytest -m benchmark -s tests/benchmarks``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.bayes_kmeans_tree import build_bayes_kmeans_tree
from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree
from bnp_hier.deterministic.agglomeration.randomized_bhc import randomized_tree
from bnp_hier.deterministic.agglomeration.tree_search import search
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import sweep
from tests.oracles.collapsed_gibbs import CollapsedGibbs

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[2]


def seconds(*functions: Callable[[], Any], repeats: int) -> list[float]:
    """Median processor seconds of each function after a warm-up, called by turns so that all see the same machine.

    Of all threads together: what else the machine does counts little, and many threads are no merit.
    """
    times = np.empty((repeats, len(functions)))
    for repeat in range(repeats):
        for k, function in enumerate(functions):
            function()  # untimed: caches are this function's, and threads of the one before, such as a BLAS's, come to rest
            start = time.process_time()
            function()
            times[repeat, k] = time.process_time() - start
    return np.median(times, axis=0).tolist()


def clusters(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Five well-separated clusters of equal size."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(n) % 5)
    centers = 8.0 * np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]])
    return rng.normal(size=(n, d)) + np.pad(centers, ((0, 0), (0, d - 2)))[labels], labels


def tree_of(n: int, d: int) -> Callable[[], Any]:
    """The greedy tree of five normal clusters, full covariance."""
    X, _ = clusters(n, d)
    return partial(greedy_tree, bnp.NormalInverseWishart.from_data(X, learn=False), X, 1.0, progress_bar=False)


def check(name: str, ratio: float, limit: float) -> None:
    """Print a ratio beside its limit, and fail where it is exceeded."""
    print(f"\n{name}: ratio {ratio:.3g} (at most {limit:.3g})")
    assert ratio <= limit, f"{name}: {ratio:.3g} exceeds the limit {limit:.3g}"


def test_bhc_against_scipy_average_linkage() -> None:
    X, _ = clusters(2000, 5)
    with jax.enable_x64(True):
        ours, scipy = seconds(tree_of(2000, 5), lambda: linkage(X, method="average"), repeats=5)
    print(f"\nBHC, n = 2000, d = 5: {ours:.3f} s; SciPy average linkage: {scipy:.3f} s; ratio {ours / scipy:.2f} (at most 12)")
    assert ours / scipy <= 12


@pytest.mark.parametrize(("d", "limit"), [(2, 1.0), (10, 5.0)])
def test_bhc_against_fastcluster_average_linkage(d: int, limit: float) -> None:
    fastcluster = pytest.importorskip("fastcluster")
    X, _ = clusters(4000, d)
    with jax.enable_x64(True):
        ours, theirs = seconds(tree_of(4000, d), lambda: fastcluster.linkage(X, "average"), repeats=3)
    check(f"BHC {ours:.3f} s against fastcluster {theirs:.3f} s, n = 4000, d = {d}", ours / theirs, limit)


@pytest.mark.parametrize(("sizes", "d"), [((500, 1000, 2000, 4000), 5), ((2000, 4000, 8000), 2)])
def test_bhc_grows_like_n_squared(sizes: tuple[int, ...], d: int) -> None:
    with jax.enable_x64(True):
        times = seconds(*(tree_of(n, d) for n in sizes), repeats=3)
    slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    figures = ", ".join(f"{n}: {t:.3f} s" for n, t in zip(sizes, times, strict=True))
    print(f"\nBHC, d = {d}: {figures}; growth exponent {slope:.2f} (at most 2.2)")
    assert slope <= 2.2


def test_bhc_needs_no_matrix_of_pairs() -> None:
    """Peak memory of a fit on 8000 rows over that on 300, each in a process of its own; a matrix would take 512 MB."""
    code = (
        "import sys, numpy as np, jax, bnp_hier as bnp\n"
        "from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree\n"
        "from tests.benchmarks.peak_memory import peak\n"
        "X = np.random.default_rng(0).normal(size=(int(sys.argv[1]), 2))\n"
        "with jax.enable_x64(True): greedy_tree(bnp.NormalInverseWishart.from_data(X, learn=False), X, 1.0, False)\n"
        "print(peak())\n"
    )
    peaks = [
        float(subprocess.run([sys.executable, "-c", code, n], capture_output=True, text=True, check=True, cwd=ROOT).stdout)
        for n in ("300", "8000")
    ]
    print(f"\nBHC, n = 8000, d = 2: peak memory grows by {peaks[1] - peaks[0]:.0f} MB (target: below 100)")
    assert peaks[1] - peaks[0] < 100


def test_bhc_of_bits() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((2000, 64)) < rng.beta(0.5, 0.5, size=(8, 64))[rng.integers(0, 8, 2000)]).astype(float)
    component = bnp.BetaBernoulli.from_data(X, learn=False)
    with jax.enable_x64(True):
        tree = partial(greedy_tree, component, X, 1.0, progress_bar=False)
        ours, scipy = seconds(tree, lambda: linkage(X, method="average"), repeats=3)
    # the R/C++ core took 34 s where SciPy's linkage of these sizes took about 0.1 s
    check(f"BHC of bits {ours:.2f} s, n = 2000, d = 64, against SciPy {scipy:.3f} s", ours / scipy, 34.0)


@pytest.mark.parametrize(("n", "d", "limit"), [(150, 4, 600.0), (300, 2, 400.0), (1000, 2, 200.0), (2000, 5, 150.0)])
def test_polish_against_average_linkage(n: int, d: int, limit: float) -> None:
    X, _ = clusters(n, d)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    with jax.enable_x64(True):
        greedy, _ = greedy_tree(component, X, 1.0, False)
        polish = partial(search, component, X, 1.0, greedy, "polish", np.random.default_rng(0))
        ours, base = seconds(polish, lambda: linkage(X, method="average"), repeats=5)
    check(f"polish {ours:.3f} s against average linkage {base:.4f} s, n = {n}, d = {d}", ours / base, limit)


def test_randomised_against_average_linkage() -> None:
    X, _ = clusters(50_000, 2)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    with jax.enable_x64(True):
        randomized = partial(randomized_tree, component, X, 1.0, np.random.default_rng(0))
        ours, exact = seconds(randomized, lambda: linkage(X[:8000], method="average"), repeats=3)
    check(f"randomized, n = 50,000, {ours:.2f} s against average linkage, n = 8000, {exact:.2f} s", ours / exact, 3.0)


def test_bayes_kmeans_against_average_linkage() -> None:
    X, _ = clusters(600, 5)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    with jax.enable_x64(True):
        build = partial(build_bayes_kmeans_tree, component, X, 1.0, np.random.default_rng(0))
        ours, base = seconds(build, lambda: linkage(X, method="average"), repeats=5)
    check(f"Bayes k-means BHC {ours:.3f} s against average linkage {base:.3f} s, n = 600", ours / base, 15.0)


def test_collapsed_gibbs_sweep_against_numpy() -> None:
    """Ten clusters; both repeat the sweep with the same draws."""
    rng = np.random.default_rng(1)
    labels = np.arange(1000) % 10
    X = 6.0 * rng.normal(size=(10, 2))[labels] + rng.normal(size=(1000, 2))
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    order, uniforms = rng.permutation(1000), rng.random(1000)
    kappa, nu, scale = float(component.kappa), float(component.nu), np.asarray(component.scale)
    with jax.enable_x64(True):

        @jax.jit
        def sweeps(component, X, labels, order, uniforms):
            seating = Seating(component, X, Prior(1.0))
            return jax.lax.fori_loop(0, 100, lambda _, z: sweep(seating, z, order, uniforms, 1000)[0], labels)

        arguments = (component, X, labels, order, uniforms)
        plain = CollapsedGibbs(X, np.asarray(component.mean), kappa, nu, scale, 1.0, labels)
        ours, numpy = seconds(
            lambda: jax.block_until_ready(sweeps(*arguments)), lambda: plain.sweep(order, uniforms), repeats=9
        )
        assert len(np.unique(np.asarray(sweeps(*arguments)))) >= 10
    ours /= 100
    name = f"collapsed Gibbs, n = 1000, d = 2: {1 / ours:.0f} sweeps/s, NumPy loop {1 / numpy:.1f}"
    check(name, ours / numpy, 1 / 80)
