"""MAP-DP over tables in parts: the log joint is that of the labels, and sources of all kinds give the same clusters."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import jax
import numpy as np
import numpyro
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.deterministic import dp_means, map_dp
from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm, pitman_yor_mixture
from bnp_hier.partitions.clusters import joint_and_statistics
from tests.deterministic.row_sources.problem import N, table
from tests.deterministic.row_sources.test_dask_rows import ROOT, environment


@pytest.fixture(autouse=True)
def few(few_in_memory: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Annotations are checked in this thread only."""
    monkeypatch.setattr(map_dp, "SKETCH", 200)
    with dask.config.set(scheduler="synchronous"):
        yield


COMPONENT = bnp.NormalKnownCovariance(mean=np.zeros(2), prior_covariance=1e4 * np.eye(2), covariance=np.eye(2))


def rare() -> np.ndarray:
    """Rows of five clusters, and two clusters of few rows that are not in the sample."""
    rng = np.random.default_rng(0)
    X = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0]])[rng.integers(0, 5, N)]
    X[850:856], X[40:44] = [60.0, 0.0], [0.0, -70.0]
    return X + rng.normal(size=(N, 2))


def estimator(discount: float = 0.0, **options: Any) -> bnp.MAPDP:
    model = partial(pitman_yor_mixture, component=COMPONENT, concentration=1.0, discount=discount)
    return bnp.MAPDP(model if discount else partial(dpm, component=COMPONENT, concentration=1.0), n_init=2, **options)


def check(fit: StreamingClustering, X: np.ndarray) -> None:
    """The attributes are those of the labels."""
    with jax.enable_x64(True):
        joint, stats = joint_and_statistics(fit.component_, X, fit.labels_, Prior(fit.concentration_, fit.discount_))
    assert fit.log_joint_ == pytest.approx(joint, rel=1e-12)
    assert fit.counts_.tolist() == np.bincount(fit.labels_).tolist() and fit.n_seen_ == len(X)
    _, first = np.unique(fit.labels_, return_index=True)
    assert (np.diff(first) > 0).all() and len(first) == fit.n_clusters_
    for one, other in zip(jax.tree.leaves(fit.statistics_), jax.tree.leaves(stats), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("discount", [0.0, 0.3])
def test_same_clusters_from_all_sources(discount: float, tmp_path: Path) -> None:
    X = rare()
    np.save(tmp_path / "rows.npy", X)
    inside, whole = estimator(discount).fit(X), estimator(discount).fit(lambda: [X])
    array = da.from_array(X, chunks=((1, 0, 299, 600), (1, 1)))
    for source in (np.load(tmp_path / "rows.npy", mmap_mode="r"), lambda: [X[:77], X[77:500], X[500:]], array):
        fit = estimator(discount).fit(source)
        check(fit, X)
        assert (fit.labels_ == whole.labels_).all() and fit.log_joint_ == pytest.approx(whole.log_joint_, rel=1e-12)
        assert adjusted_rand_score(fit.labels_, inside.labels_) > 0.99 and fit.n_clusters_ == 7
        assert fit.log_joint_ > inside.log_joint_ - 0.01 * N
        assert fit.converged_ and (np.diff(fit.objective_trace_) > 0).all() and fit.objective_trace_[-1] == fit.log_joint_
        assert 3 <= fit.n_passes_ <= 11 and fit.n_iter_ == len(fit.objective_trace_)
    assert isinstance(fit.predict(array), da.Array) and inside.n_passes_ == 0


def test_many_new_clusters_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is not representative: all clusters but one are opened in every part, and merged."""
    rng = np.random.default_rng(1)
    where = np.where(np.arange(N) < 20, 0, rng.integers(0, 12, N))
    X = 30.0 * np.column_stack([where % 4, where // 4]) + rng.normal(size=(N, 2))
    monkeypatch.setattr(map_dp.MAPDP, "_fit_sketch", lambda self, source, sample: self._fit_rows(X[:20]))
    fit = estimator().fit(lambda: [X])
    check(fit, X)
    assert adjusted_rand_score(fit.labels_, where) == 1.0


def test_components_without_kernels_and_single_precision(tmp_path: Path, unchecked: None) -> None:
    rng = np.random.default_rng(0)
    X = rng.poisson(np.array([[1.0, 40.0], [40.0, 1.0], [9.0, 9.0]])[rng.integers(0, 3, N)]).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    component = bnp.GammaPoisson(shape=np.ones(2), rate=np.full(2, 0.1))
    fit = bnp.MAPDP(partial(dpm, component=component), n_init=2).fit(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    check(fit, X.astype(np.float64))
    assert fit.n_clusters_ == 3


def test_a_limit_of_clusters() -> None:
    X = rare()

    def capped(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0], max_clusters=6))
        numpyro.sample("X", bnp.ConjugateMixture(COMPONENT, z), obs=X)

    fit = bnp.MAPDP(capped, n_init=2).fit(lambda: [X])
    check(fit, X)
    assert fit.n_clusters_ <= 6


def test_new_rows_and_pickles() -> None:
    X = rare()
    fit = estimator().fit(lambda: [X])
    light = pickle.loads(pickle.dumps(fit))
    with pytest.raises(AttributeError, match="access it once before pickling"):
        _ = light.labels_
    more = table(950)[N:]
    both = np.append(fit.labels_, light.partial_fit(more).labels_)
    with jax.enable_x64(True):
        joint, _ = joint_and_statistics(light.component_, np.vstack([X, more]), both, Prior(1.0))
    assert light.log_joint_ == pytest.approx(joint, rel=1e-12) and light.n_seen_ == 950


def test_hyperparameters_are_fitted_to_the_sample() -> None:
    X = rare()
    fit = bnp.MAPDP(n_init=2, max_rounds=2).fit(lambda: [X])
    check(fit, X)
    assert fit.hyperparameters_


def test_failures_and_bad_input() -> None:
    X = rare()
    readings: list[int] = []

    def failing() -> Any:
        readings.append(1)
        yield X[:500]
        if len(readings) == 3:
            raise OSError("the disk is gone")
        yield X[500:]

    fit = estimator()
    with pytest.raises(OSError, match="the disk is gone") as failed:
        fit.fit(failing)
    assert "keeps the clusters of the best pass over all 900 rows" in " ".join(failed.value.__notes__)
    assert not fit.converged_ and fit.n_seen_ == N
    check(fit, X)
    broken = X.copy()
    broken[870, 1] = np.nan
    with pytest.raises(ValueError, match="missing value .* at row 102, column 1") as caught:
        estimator().fit(lambda: [broken])
    assert "row numbers are relative to row 768 of the stream" in " ".join(caught.value.__notes__)
    with pytest.raises(ValueError, match="initial labels need rows in memory"):
        estimator(init=np.zeros(N, int)).fit(lambda: [X])


@pytest.mark.parametrize("kind", ["MAPDP", "DPMeans"])
def test_threads(kind: str, unchecked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are computed at the same time."""
    monkeypatch.setattr(dp_means, "SKETCH", 200)
    monkeypatch.setattr(dp_means, "SAMPLE", 400)
    X = rare()
    with dask.config.set(scheduler="threads"):
        fits = [
            (estimator() if kind == "MAPDP" else bnp.DPMeans(25.0)).fit(rows)
            for rows in (da.from_array(X, (90, 2)), lambda: [X])
        ]
        labels = fits[0].labels_
    assert (labels == fits[1].labels_).all() and fits[0].n_passes_ == fits[1].n_passes_


CLUSTER = """
from functools import partial
import dask.array as da, numpy as np
from distributed import Client, LocalCluster
import bnp_hier as bnp
from bnp_hier.deterministic import dp_means, map_dp, streaming
from tests.deterministic.row_sources.test_map_dp_in_parts import estimator, rare

if __name__ == "__main__":
    map_dp.SKETCH = dp_means.SKETCH = streaming.SKETCH = 200
    dp_means.SAMPLE = streaming.SAMPLE = 400
    X = rare()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        for kind in (estimator, partial(bnp.DPMeans, 25.0)):
            fit, here = kind().fit(da.from_array(X, (200, 2))), kind().fit(lambda: [X])
            assert (fit.labels_ == here.labels_).all() and fit.n_clusters_ >= 5
            assert abs(getattr(fit, "log_joint_", 0.0) - getattr(here, "log_joint_", 0.0)) < 1e-6
    print("done")
"""


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    """Workers in single precision give the results of this process."""
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment(), check=False)
    assert done.returncode == 0 and "done" in done.stdout, done.stderr[-3000:]
