"""Summaries of many draws of a large partition: seconds, peak memory, and the ratio to a plain loop over the draws.

Run with ``pytest -m benchmark -s tests/benchmarks``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bnp_hier as bnp
from tests.benchmarks.test_speed import seconds

pytestmark = pytest.mark.benchmark


def noisy(n: int, s: int, clusters: int = 10, flips: float = 0.1) -> np.ndarray:
    """Draws around one partition, a tenth of the labels of each changed at random."""
    rng = np.random.default_rng(0)
    center = rng.integers(0, clusters, n)
    return np.where(rng.random((s, n)) < flips, rng.integers(0, clusters, (s, n)), center)


def plain_coclustering(draws: np.ndarray) -> np.ndarray:
    """One matrix product for each draw."""
    out = np.zeros((draws.shape[1],) * 2)
    for z in draws:
        onehot = (z[:, None] == np.arange(z.max() + 1)).astype(np.float64)
        out += onehot @ onehot.T
    return out / len(draws)


@pytest.mark.parametrize("clusters", [10, 50])
def test_coclustering_against_a_plain_loop(clusters: int) -> None:
    draws = noisy(5000, 20, clusters)
    np.testing.assert_allclose(bnp.coclustering(draws), plain_coclustering(draws), atol=1e-12)
    ours, plain = seconds(lambda: bnp.coclustering(draws), lambda: plain_coclustering(draws), repeats=1)
    print(
        f"\nco-clustering of 5000 items, 20 draws of {clusters} clusters: {ours:.2f} s, plain loop {plain:.2f} s, "
        f"ratio {plain / ours:.1f} (at least 3)"
    )
    assert plain / ours >= 3


@pytest.mark.parametrize(
    ("call", "limit_s", "limit_mb"),
    [
        ("bnp.coclustering(draws)", 60, 400),  # the result is 200 MB
        ("bnp.coclustering(iter(np.split(draws, 100)))", 60, 400),
        ("bnp.point_estimate(draws)", 240, 1000),
        ('bnp.point_estimate(draws, "binder")', 240, 1000),
        ("bnp.credible_ball(draws, draws[0])", 60, 1000),
        ("bnp.number_of_clusters(draws)", 60, 400),
    ],
)
def test_summaries_of_5000_items_and_1000_draws(call: str, limit_s: float, limit_mb: float) -> None:
    """Each in a process of its own, compiling included; memory beyond the draws (40 MB) and the imported package."""
    code = (
        "import time, numpy as np, bnp_hier as bnp\n"
        "from tests.benchmarks.peak_memory import peak\n"
        "from tests.benchmarks.test_posterior import noisy\n"
        "bnp.point_estimate(noisy(5, 4)); draws = noisy(5000, 1000); before, start = peak(), time.perf_counter()\n"
        f"{call}\n"
        "print(time.perf_counter() - start, peak() - before)\n"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    took, memory = map(float, run.stdout.split())
    print(f"\n{call}, 5000 items, 1000 draws: {took:.1f} s, {memory:.0f} MB (at most {limit_s} s, {limit_mb} MB)")
    assert took <= limit_s and memory <= limit_mb
