"""DP-means over tables in parts: the objective never increases, and sources of all kinds give the same clusters."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier.deterministic import dp_means
from bnp_hier.deterministic.hard_assignment.penalized_means import next_centers, pass_over
from bnp_hier.deterministic.row_sources import chunked_rows
from bnp_hier.deterministic.row_sources.chunked_rows import RowStream

PENALTY = 25.0


@pytest.fixture(autouse=True)
def few_in_memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Annotations are checked in this thread only."""
    monkeypatch.setattr(dp_means, "SKETCH", 60)
    monkeypatch.setattr(dp_means, "SAMPLE", 120)
    monkeypatch.setattr(chunked_rows, "ROWS_AT_ONCE", 256)
    with dask.config.set(scheduler="synchronous"):
        yield


def table() -> np.ndarray:
    """Five clusters of many rows, and two of a few rows that are not in the sample."""
    rng = np.random.default_rng(0)
    X = 20.0 * rng.normal(size=(5, 2))[rng.integers(0, 5, 900)] + rng.normal(size=(900, 2))
    X[850:853], X[40:42] = [200.0, 0.0], [0.0, -300.0]
    return X


def objective(X: np.ndarray, centers: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
    gaps = ((X[:, None] - centers) ** 2).sum(2)
    return gaps.argmin(1), gaps.min(1).sum() + penalty * len(np.unique(gaps.argmin(1)))


def test_same_clusters_from_all_sources(tmp_path: Path) -> None:
    X = table()
    np.save(tmp_path / "rows.npy", X)
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b"]), npartitions=5)
    sources: list[Any] = [np.load(tmp_path / "rows.npy", mmap_mode="r"), lambda: [X[:77], X[77:500], X[500:]]]
    sources += [frame, da.from_array(X, chunks=((1, 0, 299, 600), (1, 1)))]
    inside, whole = bnp.DPMeans(PENALTY).fit(X), bnp.DPMeans(PENALTY).fit(lambda: [X])
    for source in sources:
        fit = bnp.DPMeans(PENALTY).fit(source)
        labels, value = objective(X, fit.cluster_centers_, PENALTY)
        assert (fit.labels_ == labels).all() and fit.objective_ == pytest.approx(value, rel=1e-12)
        _, first = np.unique(fit.labels_, return_index=True)
        assert fit.n_clusters_ == 7 and (np.diff(first) > 0).all()
        assert (fit.labels_ == whole.labels_).all() and fit.objective_ == pytest.approx(whole.objective_, rel=1e-9)
        assert fit.objective_ < 1.1 * inside.objective_ and inside.n_passes_ == 0 < fit.n_passes_
        means = [X[labels == k].mean(0) for k in range(7)]
        np.testing.assert_allclose(fit.cluster_centers_, means, rtol=0, atol=1e-9)
        assert (np.diff(fit.objective_trace_) <= 0).all() and fit.converged_
        assert list(getattr(fit, "feature_names_in_", ["a", "b"])) == ["a", "b"]
    lazy = bnp.DPMeans(PENALTY).fit(frame).predict(frame)
    assert isinstance(lazy, da.Array) and (lazy.compute() == labels).all()
    assert fit.n_passes_ == 1 + fit.n_iter_


@pytest.mark.parametrize("seed", range(6))
def test_the_objective_never_increases(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heavy tails, poor first centres and small parts, so that many proposals meet."""
    monkeypatch.setattr(chunked_rows, "ROWS_AT_ONCE", 80)
    rng = np.random.default_rng(seed)
    X = 3.0 * rng.standard_t(1.5, size=(700, 2))
    parts = RowStream(lambda: [X])
    centers, trace = X[:2], []
    penalty = float(rng.choice([4.0, 30.0, 200.0]))
    for _ in range(12):
        found = pass_over(parts, centers, penalty, True)
        _, value = objective(X, centers, penalty)
        assert found.objective == pytest.approx(value, rel=1e-12)
        trace.append(value)
        centers = next_centers(found, penalty)
    assert (np.diff(trace) <= 1e-9 * trace[0]).all() and trace[-1] < trace[0]


def test_proposals_of_different_parts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tight clusters in every part: two centres, not two for each part."""
    monkeypatch.setattr(chunked_rows, "ROWS_AT_ONCE", 50)
    rng = np.random.default_rng(0)
    X = np.concatenate([[[0.0, 0.0]], np.array([[50.0, 0.0], [0.0, 50.0]])[np.arange(300) % 2] + rng.normal(size=(300, 2))])
    found = pass_over(RowStream(lambda: [X]), X[:1], 100.0, True)
    assert len(found.far.counts) >= 12 and found.far.counts.sum() == 300
    centers = next_centers(found, 100.0)
    expected = [X[0], X[1::2].mean(0), X[2::2].mean(0)]
    np.testing.assert_allclose(centers, expected, atol=1e-9)


def test_a_number_of_clusters_and_single_precision(tmp_path: Path) -> None:
    """The penalty is found on the sample; sums of rows far from 0 in single precision are exact."""
    X = (table() + 3e4).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    fit = bnp.DPMeans(n_clusters=5).fit(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    exact = X.astype(np.float64)
    labels, value = objective(exact, fit.cluster_centers_, fit.penalty_)
    assert fit.objective_ == pytest.approx(value, rel=1e-12) and fit.n_clusters_ >= 5
    means = [exact[labels == k].mean(0) for k in range(fit.n_clusters_)]
    np.testing.assert_allclose(fit.cluster_centers_, means, rtol=0, atol=1e-3)


def test_a_short_source_is_clustered_as_in_memory() -> None:
    X = table()[:100]
    fit, inside = bnp.DPMeans(PENALTY).fit(lambda: [X]), bnp.DPMeans(PENALTY).fit(X)
    assert (fit.labels_ == inside.labels_).all() and fit.n_passes_ == 1


def test_labels_are_computed_late() -> None:
    X = table()
    calls: list[int] = []
    fit = bnp.DPMeans(PENALTY).fit(lambda: calls.append(1) or [X])  # type: ignore[func-returns-value]
    assert len(calls) == fit.n_passes_
    empty = pickle.loads(pickle.dumps(fit))
    with pytest.raises(AttributeError, match="access it once before pickling"):
        _ = empty.labels_
    assert (empty.predict(X) == fit.labels_).all() and len(calls) == fit.n_passes_ + 1
    assert (pickle.loads(pickle.dumps(fit)).labels_ == fit.labels_).all()


def test_failures_and_bad_rows() -> None:
    X = table()
    broken = X.copy()
    outside = 850
    broken[outside, 1] = np.nan
    with pytest.raises(ValueError, match=f"missing value .* at row {outside - 768}, column 1") as caught:
        bnp.DPMeans(PENALTY).fit(lambda: [broken])
    assert "row numbers are relative to row 768 of the stream" in " ".join(caught.value.__notes__)
    with pytest.warns(RuntimeWarning) as warned:
        fit = bnp.DPMeans(PENALTY, max_iter=1).fit(lambda: [X])
    assert fit.n_iter_ == 1 and not fit.converged_
    assert [str(warning.message).split(";")[0][-10:] for warning in warned] == ["r=1 sweeps", "r=1 passes"]
    readings: list[int] = []

    def failing() -> Any:
        readings.append(1)
        yield X[:500]
        if len(readings) == 3:
            raise OSError("the disk is gone")
        yield X[500:]

    fit = bnp.DPMeans(PENALTY)
    with pytest.raises(OSError, match="the disk is gone") as failed:
        fit.fit(failing)
    assert "keeps the clusters of a pass over all 900 rows" in " ".join(failed.value.__notes__)
    assert fit.n_iter_ == 1 and objective(X, fit.cluster_centers_, PENALTY)[1] == pytest.approx(fit.objective_)
    with pytest.raises(TypeError, match="iterator"):
        bnp.DPMeans(PENALTY).fit(iter([X]))
