"""Speed of hard assignments against baselines run side by side; see `test_speed`."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.special import digamma
from sklearn.cluster import KMeans, MiniBatchKMeans
from threadpoolctl import threadpool_limits

import bnp_hier as bnp
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import row_leaves
from bnp_hier.deterministic.hard_assignment.assignment import DenseAssigner
from bnp_hier.deterministic.hard_assignment.free_energies import scores_from
from bnp_hier.deterministic.hard_assignment.kd_tree import TREE_AFTER, KDTreeAssigner
from bnp_hier.deterministic.hard_assignment.source_assigner import SourceAssigner
from bnp_hier.deterministic.hard_assignment.splits import sum_by_label
from bnp_hier.deterministic.row_sources.detection import row_source
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.models import dpm
from bnp_hier.partitions.search import descend
from tests.benchmarks.test_speed import ROOT, check, clusters, seconds
from tests.oracles.collapsed_gibbs import CollapsedGibbs

pytestmark = pytest.mark.benchmark


def summed(component: bnp.Component, X: np.ndarray, labels: np.ndarray, k: int) -> tuple[Statistics, np.ndarray]:
    stats = jax.jit(lambda X, z: cluster_statistics(component.suff_stats(X), z, k))(X, labels)
    return stats, np.bincount(labels, minlength=k).astype(float)


def plain_pass(X: np.ndarray, means: np.ndarray, precisions: np.ndarray, constants: np.ndarray) -> list[np.ndarray]:
    """One cluster after the other in NumPy: costs, labels, then sums and scatters."""
    costs = []
    for m, a, c in zip(means, precisions, constants, strict=True):
        y = X - m
        costs.append(np.einsum("ni,ij,nj->n", y, a, y) + c)
    labels = np.argmin(costs, axis=0)
    found = []
    for k in range(len(means)):
        rows = X[labels == k]
        found += [rows.sum(0), rows.T @ rows]
    return found


def test_kd_tree_against_a_plain_loop_and_against_dense() -> None:
    """A million rows, two columns, five clusters: labels (in boxes) and statistics of one pass."""
    X, labels = clusters(1_000_000, 2)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    with jax.enable_x64(True):
        scores = scores_from(component, *summed(component, X, labels, 5), Prior(1.0), "dp")
        tree, dense = KDTreeAssigner(component, X), DenseAssigner(component, X)
        means = np.stack([X[labels == k].mean(0) for k in range(5)])
        precisions = np.stack([np.linalg.inv(np.cov(X[labels == k].T)) / 2 for k in range(5)])
        by_tree, by_dense, by_loop = seconds(
            lambda: jax.block_until_ready(tree(scores)),
            lambda: jax.block_until_ready(dense(scores)),
            lambda: plain_pass(X, means, precisions, -digamma(np.full(5, 200_000.0))),
            repeats=5,
        )
    print(f"\nkd-tree visits {tree.visited_nodes} boxes and touches {tree.touched_rows} rows of 1,000,000")
    names = f"kd-tree {1e3 * by_tree:.1f} ms, dense {1e3 * by_dense:.1f} ms, loop {1e3 * by_loop:.1f} ms"
    check(f"{names}: kd-tree against loop", by_tree / by_loop, 1 / 40)
    check(f"{names}: kd-tree against dense", by_tree / by_dense, 1 / 3)


def test_a_kd_tree_pays_after_the_passes_that_auto_waits_for() -> None:
    """Building the tree over a million rows, in dense passes; within a factor of two of the number that "auto" waits for."""
    X, labels = clusters(1_000_000, 2)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    with jax.enable_x64(True):
        scores = scores_from(component, *summed(component, X, labels, 5), Prior(1.0), "dp")
        dense = DenseAssigner(component, X)
        build, one = seconds(lambda: KDTreeAssigner(component, X), lambda: jax.block_until_ready(dense(scores)), repeats=3)
    print(f"\nbuilding a kd-tree takes as long as {build / one:.0f} dense passes; auto waits for {TREE_AFTER}")
    ratio = build / one / TREE_AFTER
    check("passes that the tree costs against those that auto waits for, either way", max(ratio, 1 / ratio), 2.0)


def test_dense_pass_against_a_bare_matrix_product() -> None:
    """200,000 rows, 16 columns, 20 clusters; the product of the rows' 153 features with 20 columns of coefficients."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, 200_000)
    X = 4.0 * rng.normal(size=(20, 16))[labels] + rng.normal(size=(200_000, 16))
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    features, coefficients = rng.normal(size=(200_000, 153)), rng.normal(size=(153, 20))
    with jax.enable_x64(True):
        scores = scores_from(component, *summed(component, X, labels, 20), Prior(1.0), "dp")
        dense = DenseAssigner(component, X)
        ours, one, both = seconds(
            lambda: jax.block_until_ready(dense(scores)),
            lambda: features @ coefficients,
            lambda: features.T @ (features @ coefficients),
            repeats=5,
        )
    print(
        f"\ndense pass {1e3 * ours:.0f} ms; product of the scores {1e3 * one:.0f} ms; with that of the sums {1e3 * both:.0f} ms"
    )
    check("dense pass against both of its bare products", ours / both, 1.5)


def test_bayesian_kmeans_against_kmeans() -> None:
    X, _ = clusters(1_000_000, 2)
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X[::100], learn=False), concentration=1.0)
    fit = bnp.BayesianKMeans(model).fit(X)
    ours, theirs = seconds(
        lambda: bnp.BayesianKMeans(model).fit(X), lambda: KMeans(fit.n_clusters_, n_init=1).fit(X), repeats=3
    )
    check(f"BayesianKMeans {ours:.2f} s, K = {fit.n_clusters_}, against KMeans {theirs:.2f} s", ours / theirs, 5.0)


def test_map_dp_against_a_plain_loop() -> None:
    """One sweep over 20,000 rows from labels that are nearly right, so that both move as many."""
    X, labels = clusters(20_000, 2)
    labels = np.where(np.random.default_rng(0).random(20_000) < 0.1, (labels + 1) % 5, labels)
    mean, kappa, nu, scale = X.mean(0), 0.1, 4.0, np.eye(2)
    component = bnp.NormalInverseWishart(mean, kappa, nu, scale)
    loop = CollapsedGibbs(X, mean, kappa, nu, scale, 1.0, labels)
    with jax.enable_x64(True):
        ours = partial(descend, MixtureValues(Prior(1.0), component, X), np.arange(20_000)[None], labels[None], 64, 1)
        fast, slow = seconds(ours, lambda: loop.sweep(np.arange(20_000), None), repeats=3)
    check(f"MAP-DP sweep {fast:.3f} s against a NumPy loop {slow:.2f} s, n = 20,000, d = 2", fast / slow, 1 / 100)


@pytest.mark.parametrize(("d", "k"), [(2, 5), (2, 16), (4, 16), (8, 16)])
def test_memory_mapped_pass_against_mini_batch_kmeans(d: int, k: int, tmp_path: Path) -> None:
    """One pass over memory-mapped rows in single precision, with full covariance matrices, against chunks of k-means."""
    n = 4_000_000 // d
    rng = np.random.default_rng(0)
    labels = rng.integers(0, k, n)
    np.save(tmp_path / "rows.npy", (4.0 * rng.normal(size=(k, d))[labels] + rng.normal(size=(n, d))).astype(np.float32))
    X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    few = X[:10_000].astype(float)
    component = bnp.NormalInverseWishart.from_data(few, learn=False)
    with jax.enable_x64(True):
        scores = scores_from(component, *sum_by_label(component, few, labels[:10_000], 16), Prior(1.0), "dp")
    source = row_source(X)
    assert source is not None
    assigner, kmeans = SourceAssigner(component, source), MiniBatchKMeans(k, n_init=1, random_state=0)

    def theirs() -> None:
        with threadpool_limits(1):  # threads that wait would count
            for at in range(0, n, 65_536):
                kmeans.partial_fit(X[at : at + 65_536])

    own, other = (X.nbytes / 1e6 / t for t in seconds(lambda: assigner(scores), theirs, repeats=3))
    check(f"{own:.0f} MB per second, d = {d}, k = {k}, against MiniBatchKMeans {other:.0f} MB", other / own, 3.0)


def test_streamed_memory_is_flat() -> None:
    """Peak memory of fits to chunks of 10,000,000 and of 1,000,000 rows, each in a process of its own."""
    code = (
        "import sys, numpy as np, bnp_hier as bnp\n"
        "from functools import partial\n"
        "from bnp_hier.models import dpm\n"
        "from tests.benchmarks.peak_memory import peak\n"
        "n = int(sys.argv[1])\n"
        "def chunks():\n"
        "    for at in range(0, n, 100_000):\n"
        "        rng = np.random.default_rng(at)\n"
        "        yield rng.normal(size=(100_000, 2)) + 8.0 * rng.integers(0, 3, (100_000, 1))\n"
        "component = bnp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2))\n"
        "fit = bnp.BayesianKMeans(partial(dpm, component=component), n_init=(1, 4), max_iter=10).fit(chunks)\n"
        "assert fit.n_seen_ == n\n"
        "print(fit.n_clusters_, peak())\n"
    )
    found = [
        subprocess.run([sys.executable, "-c", code, n], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
        for n in ("1000000", "10000000")
    ]
    peaks = [float(memory) for _, memory in found]
    print(f"\nstreamed fits: {found[0][0]} and {found[1][0]} clusters, peaks {peaks[0]:.0f} and {peaks[1]:.0f} MB")
    check("peak memory of 10,000,000 rows against 1,000,000", peaks[1] / peaks[0], 1.05)


def test_agglomerative_against_scipy() -> None:
    X, _ = clusters(2000, 2)
    component = bnp.NormalInverseWishart.from_data(X, rule="agglomerative", learn=False)
    with jax.enable_x64(True):
        leaves = row_leaves(X)
        ours, scipy = seconds(
            lambda: agglomerate(component, leaves, 1.0, "dp"), lambda: linkage(X, method="average"), repeats=5
        )
    check(f"agglomerative {ours:.3f} s against SciPy {scipy:.3f} s, n = 2000, d = 2", ours / scipy, 12.0)


def test_dense_pass_grows_as_the_rows_do() -> None:
    """Rows per second of a dense pass at two sizes: time grows as the rows do."""
    times = []
    with jax.enable_x64(True):
        for n in (100_000, 400_000):
            X, labels = clusters(n, 2)
            component = bnp.NormalInverseWishart.from_data(X, learn=False)
            scores = scores_from(component, *summed(component, X, labels, 5), Prior(1.0), "dp")
            dense = DenseAssigner(component, X)
            times += seconds(lambda dense=dense, scores=scores: jax.block_until_ready(dense(scores)), repeats=5)
    check(f"dense pass of 400,000 rows {times[1]:.3f} s against 100,000 {times[0]:.3f} s", times[1] / times[0], 5.0)
