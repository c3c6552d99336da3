"""Speed against a baseline run side by side in the same process: only the ratios mean anything.

Run with ``pytest -m benchmark -s tests/benchmarks``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

import bnp_hier as bnp
from bnp_hier.allocation import Prior, sweep
from bnp_hier.deterministic.agglomeration import greedy_tree
from tests.oracles.collapsed_gibbs import CollapsedGibbs

pytestmark = pytest.mark.benchmark


def seconds(*functions: Callable[[], Any], repeats: int) -> list[float]:
    """Median wall time of each function after a warm-up, called by turns so that all see the same machine."""
    for function in functions:
        function()
    times = np.empty((repeats, len(functions)))
    for repeat in range(repeats):
        for k, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[repeat, k] = time.perf_counter() - start
    return np.median(times, axis=0).tolist()


def clusters(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Five well-separated clusters of equal size."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(n) % 5)
    centres = 8.0 * np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]])
    return rng.normal(size=(n, d)) + np.pad(centres, ((0, 0), (0, d - 2)))[labels], labels


def test_bhc_against_scipy_average_linkage() -> None:
    X, _ = clusters(2000, 5)
    component = bnp.NormalInverseWishart.from_data(X)
    with jax.enable_x64(True):
        tree = partial(greedy_tree, component, X, 1.0, progress_bar=False)
        ours, scipy = seconds(tree, lambda: linkage(X, method="average"), repeats=5)
    print(f"\nBHC, n = 2000, d = 5: {ours:.3f} s; SciPy average linkage: {scipy:.3f} s; ratio {ours / scipy:.2f} (at most 12)")
    assert ours / scipy <= 12


def test_bhc_grows_like_n_squared() -> None:
    sizes = (500, 1000, 2000, 4000)
    component = bnp.NormalInverseWishart.from_data(clusters(4000, 5)[0])
    with jax.enable_x64(True):
        trees = [partial(greedy_tree, component, clusters(n, 5)[0], 1.0, progress_bar=False) for n in sizes]
        times = seconds(*trees, repeats=5)
    slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    figures = ", ".join(f"{n}: {t:.3f} s" for n, t in zip(sizes, times, strict=True))
    print(f"\nBHC, d = 5: {figures}; growth exponent {slope:.2f} (at most 2.2)")
    assert slope <= 2.2


def test_collapsed_gibbs_sweep_against_numpy() -> None:
    X, labels = clusters(1000, 2)
    component = bnp.NormalInverseWishart.from_data(X)
    rng = np.random.default_rng(1)
    order, uniforms = rng.permutation(1000), rng.random(1000)
    kappa, nu, scale = float(component.kappa), float(component.nu), np.asarray(component.scale)
    step = jax.jit(partial(sweep, slots=64))
    rows = jax.jit(lambda x: component.suff_stats(x))(jnp.asarray(X, jnp.float32))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(rows))
    arguments = (component, rows, jnp.asarray(labels), Prior(1.0), jnp.asarray(order), jnp.asarray(uniforms, jnp.float32))

    plain = CollapsedGibbs(X, np.asarray(component.mean), kappa, nu, scale, 1.0, labels)
    # both start every sweep from a valid state of the same five clusters
    ours, numpy = seconds(lambda: jax.block_until_ready(step(*arguments)), lambda: plain.sweep(order, uniforms), repeats=9)
    reached = np.asarray(step(*arguments)[0])
    assert len(np.unique(reached)) >= 5
    print(
        f"\ncollapsed Gibbs, n = 1000, d = 2: {1 / ours:.0f} sweeps/s; NumPy: {1 / numpy:.1f} sweeps/s; "
        f"ratio {numpy / ours:.1f} (at least 15)"
    )
    assert numpy / ours >= 15
