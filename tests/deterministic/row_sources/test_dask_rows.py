"""Dask arrays and DataFrames: the clusters of a stream of the same rows, and lazy predictions."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import jax
import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier.deterministic.hard_assignment.assignment import Scores
from bnp_hier.deterministic.hard_assignment.source_assigner import SourceAssigner
from bnp_hier.deterministic.row_sources.dask_rows import DaskRows
from bnp_hier.deterministic.row_sources.detection import row_source
from tests.deterministic.row_sources.problem import N, estimator, table

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def in_this_thread() -> Any:
    """Annotations are checked in this thread only."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.slow
def test_same_clusters_as_a_stream(few_in_memory: None, tmp_path: Path) -> None:
    """Whatever the partitions, known or not, empty or not; a memory-mapped file, too."""
    X = table()
    np.save(tmp_path / "rows.npy", X)
    whole = estimator(X).fit(lambda: [X[:77], X[77:500], X[500:]])
    names = ["height", "weight"]
    frame = dd.from_pandas(pd.DataFrame(X, columns=names), npartitions=5)
    array = da.from_array(X, chunks=((1, 0, 299, 600), (1, 1)))
    sources = [array, frame, frame.to_dask_array(), array[array[:, 0] > -np.inf], np.load(tmp_path / "rows.npy", mmap_mode="r")]
    for source in sources:
        fit = estimator(X).fit(source)
        assert (fit.labels_ == whole.labels_).all() and fit.n_seen_ == N
        assert fit.free_energy_ == pytest.approx(whole.free_energy_, abs=1e-8)
        assert list(getattr(fit, "feature_names_in_", names)) == names
        assert hasattr(fit, "feature_names_in_") == (source is frame)


def test_predictions_are_lazy_and_those_of_arrays(few_in_memory: None) -> None:
    X = table()
    fit = estimator(X).fit(X)
    array, frame = da.from_array(X, chunks=((1, 0, 299, 600), (1, 1))), dd.from_pandas(pd.DataFrame(X), npartitions=3)
    for name in ("predict", "predict_proba", "score_samples"):
        expected = getattr(fit, name)(X)
        for rows in (array, frame):
            lazy = getattr(fit, name)(rows)
            assert isinstance(lazy, da.Array) and lazy.dtype == expected.dtype
            found = lazy.compute()
            assert found.shape == expected.shape and (found == expected).all()
    assert fit.predict_proba(array).shape == (N, fit.n_clusters_ + 1)
    assert fit.score(array) == pytest.approx(fit.score(X), abs=1e-12)
    with pytest.raises(ValueError, match="X has 3 features, but BayesianKMeans is expecting 2 features"):
        fit.predict(da.zeros((4, 3)))
    with pytest.raises(ValueError, match="two dimensions, shape .n, d., but the Dask array has shape .4,."):
        fit.predict(da.zeros(4))


def test_names_of_columns_are_checked_at_once(few_in_memory: None) -> None:
    X = table()
    fit = estimator(X).fit(dd.from_pandas(pd.DataFrame(X, columns=["a", "b"]), npartitions=3))
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert (fit.predict(dd.from_pandas(frame, npartitions=2)).compute() == fit.predict(frame)).all()
    with pytest.raises(ValueError, match="feature names should match"):
        fit.predict(dd.from_pandas(frame[["b", "a"]], npartitions=2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [bnp.BHC, bnp.VariationalDP, bnp.MAPDP, bnp.AgglomerativeBayesianClustering])
def test_all_estimators_predict_lazily(kind: type[Any]) -> None:
    X = table(60)
    fit = kind(estimator(X).model).fit(X)
    lazy = da.from_array(X, chunks=(25, 2))
    assert (fit.predict(lazy).compute() == fit.predict(X)).all()
    assert fit.score_samples(lazy).compute() == pytest.approx(fit.score_samples(X), abs=1e-12)
    with pytest.raises(TypeError, match="X is a dask Array, which .* would read as a whole; pass X.compute.. if the rows fit"):
        bnp.VariationalDP(estimator(X).model).fit(lazy)


def test_bad_tables() -> None:
    with pytest.raises(ValueError, match="two dimensions, shape .n, d., but the Dask array has shape .10,."):
        row_source(da.zeros(10))
    frame = pd.DataFrame({"x": [1.0, 2.0], "name": ["a", "b"]})
    with pytest.raises(TypeError, match="column 'name' of X has type .*; expected numbers"):
        row_source(dd.from_pandas(frame, npartitions=1))
    with pytest.raises(ValueError, match="X is empty: it has 0 rows"):
        list(DaskRows(da.zeros((0, 2))).map(len))
    with pytest.raises(
        TypeError, match="X is a dask Bag, which would be read as a whole; pass a Dask array or a Dask DataFrame"
    ):
        row_source(dask.bag.from_sequence([1, 2]))


def test_bad_rows_are_found_with_their_place(few_in_memory: None) -> None:
    broken = table()
    broken[850, 1] = np.inf
    fit = estimator(table())
    with pytest.raises(ValueError, match="row 250, column 1") as caught:
        fit.fit(da.from_array(broken, chunks=(300, 2)))
    assert "row numbers are relative to row 600" in " ".join(caught.value.__notes__)
    assert fit.n_seen_ == 200  # the clusters of the sample


def test_what_travels_is_exact() -> None:
    """JAX arrays that are unpickled in single precision would be rounded; NumPy arrays are not."""
    X = table(100)
    component = estimator(X).model.keywords["component"]
    sent: list[Any] = []

    class Recording:
        feature_names, n_rows = None, 100

        def map(self, function: Any) -> Any:
            sent.append(pickle.loads(pickle.dumps(function)))
            yield sent[-1](X, 0)

    with jax.enable_x64(True):
        natural = component.expected_natural_parameters(jax.tree.map(lambda leaf: leaf[None], component.suff_stats(X[0] / 3.0)))
        scores = Scores(natural, jax.numpy.array([1.0 / 3.0]))
        stats, counts = SourceAssigner(component, Recording())(scores)
        exact = jax.tree.map(np.asarray, (component, scores))
    got = sent[0].args[:2]
    assert not jax.config.jax_enable_x64
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(exact), strict=True):
        assert type(one) is np.ndarray and one.dtype == np.float64 and (one == other).all()
    assert all(type(leaf) is np.ndarray and leaf.dtype == np.float64 for leaf in jax.tree.leaves((stats, counts)))
    assert stats is not None and counts.tolist() == [100.0]


CLUSTER = """
import json, sys
import dask.array as da, numpy as np
from distributed import Client, LocalCluster
from tests.deterministic.row_sources.problem import estimator, table

def count():
    import jax
    jax.compiled = []
    name = "/jax/core/compile/backend_compile_duration"
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: event == name and jax.compiled.append(event))

def counts():
    import jax
    from bnp_hier.deterministic.hard_assignment.assignment import _assign_piece
    return _assign_piece._cache_size(), len(jax.compiled), jax.config.jax_enable_x64

if __name__ == "__main__":
    from bnp_hier.deterministic import bayesian_kmeans, streaming
    bayesian_kmeans.SKETCH, streaming.SKETCH, streaming.SAMPLE = 2000, 2000, 10_000
    X = table(60_000)
    sizes = np.random.default_rng(1).integers(1, 3000, 60)
    sizes[-1] += len(X) - sizes.sum() if sizes.sum() < len(X) else 0
    edges = np.unique(np.minimum(np.cumsum(sizes), len(X)))
    lengths = tuple(np.diff([0, *edges.tolist()]).tolist())
    stream = estimator(X).fit(lambda: [X])
    options = dict(n_workers=2, processes=True, threads_per_worker=1, dashboard_address=None)
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.run(count)
        few = da.from_array(X, chunks=(30_000, 2))
        estimator(X).fit(few).score_samples(few).compute()
        before = client.run(counts)
        rows = da.from_array(X, chunks=(lengths, 2))
        fit = estimator(X).fit(rows)
        labels = fit.labels_
        scores = fit.score_samples(rows).compute()
        after = client.run(counts)
    found = dict(
        same=bool((labels == stream.labels_).all()), energy=abs(fit.free_energy_ - stream.free_energy_), parts=len(lengths),
        scores=float(abs(scores - stream.score_samples(X)).max()), before=list(before.values()), after=list(after.values()),
    )
    print("found", json.dumps(found))
"""


@pytest.mark.slow
def test_two_processes_compile_once_each(tmp_path: Path) -> None:
    """Two partitions, then about 50 of unequal sizes, on two workers, which are in single precision."""
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.partition("found")[2])
    assert found["same"] and found["energy"] < 1e-6 and found["scores"] < 1e-9 and found["parts"] > 30
    assert found["before"] == found["after"]
    assert all(programs == 1 and compiled > 0 and not in_doubles for programs, compiled, in_doubles in found["after"])


def environment() -> dict[str, str]:
    import os

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
