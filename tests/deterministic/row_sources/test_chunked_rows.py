"""Rows read in chunks: the same clusters as in memory, and failures that keep what was fitted."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpyro
import pytest
from scipy.special import gammaln
from scipy.stats import kstest

import bnp_hier as bnp
from bnp_hier.deterministic import bayesian_kmeans, streaming
from bnp_hier.deterministic.row_sources.chunked_rows import RowStream
from bnp_hier.deterministic.row_sources.detection import row_source
from bnp_hier.deterministic.row_sources.sampling import RowSample
from bnp_hier.utils.randomness import random_generators
from tests.deterministic.row_sources.problem import N, estimator, table
from tests.oracles.problems import log_marginal


def chunked(X: np.ndarray, size: int) -> Callable[[], Iterator[np.ndarray]]:
    return lambda: (X[at : at + size] for at in range(0, len(X), size))


def refilled(X: np.ndarray) -> Callable[[], Iterator[np.ndarray]]:
    """A reader that has one array for all its chunks."""

    def read() -> Iterator[np.ndarray]:
        buffer = np.empty((50, X.shape[1]))
        for at in range(0, len(X), 50):
            buffer[:] = X[at : at + 50]
            yield buffer

    return read


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["dp", "finite"])
def test_nearly_the_clusters_of_a_table_in_memory(prior: str, few_in_memory: None, tmp_path: Path) -> None:
    X = table()
    np.save(tmp_path / "rows.npy", X)
    whole = estimator(X, label_prior=prior).fit(X)
    assert whole.n_clusters_ >= 4
    first = estimator(X, label_prior=prior).fit(lambda: [X])
    assert first.free_energy_ < whole.free_energy_ + N / 1000
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    sources = [mapped, chunked(X, 900), chunked(X, 7), lambda: [X[:100], X[:0], *X[100:].reshape(8, 100, 2)], refilled(X)]
    for source in sources:
        fit = estimator(X, label_prior=prior).fit(source)
        assert fit.free_energy_ == pytest.approx(first.free_energy_, abs=1e-7)
        assert fit.log_joint_ == pytest.approx(first.log_joint_, abs=1e-7)
        assert (fit.counts_ == first.counts_).all() and fit.n_seen_ == N
        assert (fit.labels_ == first.labels_).all()
        assert fit.score_samples(X[:50]) == pytest.approx(first.score_samples(X[:50]), abs=1e-8)
        assert (np.diff(fit.objective_trace_) <= 1e-9 * abs(fit.free_energy_)).all()
    if prior == "dp":  # from first principles
        parts = [X[fit.labels_ == k] for k in range(fit.n_clusters_)]
        joint = len(parts) * np.log(1.0) + sum(gammaln(len(part)) for part in parts) - gammaln(N + 1.0)
        assert fit.log_joint_ == pytest.approx(joint + sum(log_marginal(fit.component_, part) for part in parts), abs=1e-6)
    again = pickle.loads(pickle.dumps(fit))
    assert (again.labels_ == first.labels_).all() and (again.predict(X[:9]) == fit.predict(X[:9])).all()
    fit.partial_fit(X[:10])
    assert fit.n_seen_ == N + 10 and fit.labels_.shape == (10,)


def drawn(n: int) -> Callable[[], Iterator[np.ndarray]]:
    """Five overlapping clusters, made anew chunk by chunk."""
    rng = np.random.default_rng(7)
    centers, mixing = 3.0 * rng.normal(size=(5, 2)), rng.normal(size=(5, 2, 2)) / np.sqrt(2)

    def read() -> Iterator[np.ndarray]:
        for at in range(0, n, 20_000):
            rng = np.random.default_rng(at)
            labels = rng.integers(0, 5, 20_000)
            yield centers[labels] + np.einsum("nd,nde->ne", rng.normal(size=(20_000, 2)), mixing[labels])

    return read


@pytest.mark.slow
def test_few_passes_reach_the_objective_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 2,000 and 20,000 of 200,000 rows of normal clusters, against the search on all rows; within a nat in 1,000."""
    for module in (bayesian_kmeans, streaming):
        monkeypatch.setattr(module, "SKETCH", 2000)
    monkeypatch.setattr(streaming, "SAMPLE", 20_000)
    read, readings = drawn(200_000), []

    def source() -> Iterator[np.ndarray]:
        readings.append(1)
        return read()

    X = np.concatenate(list(read()))
    fit, whole = estimator(X).fit(source), estimator(X).fit(X)
    assert fit.n_passes_ == len(readings) <= 12
    gap = 1000 * (fit.free_energy_ - whole.free_energy_) / len(X)
    assert gap < 1.0, f"{gap:.3f} nats per thousand rows above {whole.n_clusters_} clusters, with {fit.n_clusters_}"


def test_passes_are_counted(few_in_memory: None) -> None:
    X = table()
    source = Failing(X, 0, "raises")
    fit = estimator(X).fit(source)
    assert fit.n_passes_ == source.readings <= 12
    fit.labels_  # noqa: B018 (reads the rows)
    assert source.readings == fit.n_passes_ + 1
    assert estimator(X).fit(X).n_passes_ == 0 and estimator(X).fit(chunked(X[:300], 100)).n_passes_ == 1


@pytest.mark.slow
def test_a_short_stream_is_fitted_as_in_memory() -> None:
    X = table()[:150]
    whole, fit = (bnp.BayesianKMeans(estimator(X).model, n_init=(1, 4)).fit(source) for source in (X, chunked(X, 40)))
    assert (fit.labels_ == whole.labels_).all() and fit.log_joint_ == whole.log_joint_


@pytest.mark.slow
def test_the_sample_is_uniform_and_does_not_depend_on_the_chunks() -> None:
    """1,000 samples of 10 of 50 rows; p = 1e-4 would fail a right sampler once in ten thousand keys, and the key is fixed."""
    X = np.arange(50.0)[:, None]
    drawn = []
    for seed in range(1000):
        samples = []
        for size in (50, 7, 1):
            sample = RowSample(10, np.random.default_rng(seed))
            for at in range(0, 50, size):
                sample.add(X[at : at + size])
            assert sample.n_rows == 50
            samples.append(sample.rows.ravel())
        assert (samples[0] == samples[1]).all() and (samples[0] == samples[2]).all()
        assert (np.diff(samples[0]) > 0).all() and len(samples[0]) == 10
        drawn.append(samples[0])
    jitter = np.random.default_rng(0).uniform(size=(1000, 10))
    assert kstest(((np.array(drawn) + jitter) / 50).ravel(), "uniform").pvalue > 1e-4


class Failing:
    """A source that goes wrong at one reading."""

    def __init__(self, X: np.ndarray, reading: int, how: str, chunk: int = 4) -> None:
        self.X, self.reading, self.how, self.chunk, self.readings = X, reading, how, chunk, 0

    def __call__(self) -> Iterator[np.ndarray]:
        self.readings += 1
        for number, at in enumerate(range(0, len(self.X), 100)):
            if self.readings == self.reading and number == self.chunk:
                if self.how == "raises":
                    raise OSError("the disk is gone")
                if self.how == "interrupted":
                    raise KeyboardInterrupt
                if self.how == "columns":
                    yield np.ones((3, 5))
                if self.how == "ends":
                    return
            yield self.X[at : at + 100]


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("raises", OSError, "the disk is gone"),
        ("ends", ValueError, "the chunks ended after 400 rows, but the first reading had 900 rows"),
        ("columns", ValueError, "chunk 4 has 5 columns, but the chunks before it have 2"),
        ("interrupted", KeyboardInterrupt, None),
    ],
)
def test_failures_keep_what_was_fitted(
    how: str, error: type[BaseException], message: str | None, few_in_memory: None, few_programs: None
) -> None:
    X = table()
    cases = [(2, "the estimator keeps the clusters of 200 of the 900 rows", 200)]
    cases += [(3, "the estimator keeps the best clusters of the completed passes over all 900 rows", 900)]
    if how in ("raises", "columns"):
        cases += [(1, "the estimator keeps the clusters of 200 of the 400 rows read so far", 200)]
    for reading, note, seen in cases:
        fit = estimator(X)
        with pytest.raises(error, match=message) as caught:
            fit.fit(Failing(X, reading, how))
        notes = " ".join(caught.value.__notes__)
        assert note in notes, reading
        if how != "interrupted":
            assert f"reading {reading} of the chunks stopped after 400 rows, at chunk 4" in notes
            assert fit.objective_trace_[-1] == fit.free_energy_
        assert fit.n_seen_ == seen == fit.counts_.sum()
        assert fit.predict(X).max() < fit.n_clusters_ + 1 and np.isfinite(fit.score_samples(X)).all()
        assert len(fit.labels_) == seen


def test_a_failure_of_the_last_reading(few_in_memory: None) -> None:
    """It only finds that the free energy does not decrease any more."""
    X = table()
    good = Failing(X, 0, "raises")
    whole = estimator(X).fit(good)
    fit = estimator(X)
    with pytest.raises(OSError, match="the disk is gone") as caught:
        fit.fit(Failing(X, good.readings, "raises", chunk=1))
    assert "keeps the best clusters of the completed passes over all 900 rows" in " ".join(caught.value.__notes__)
    assert fit.free_energy_ == whole.free_energy_ and (fit.labels_ == whole.labels_).all()
    assert fit.n_passes_ == good.readings - 1 and not fit.converged_


def test_a_function_that_gives_one_iterator_is_found_out(few_in_memory: None) -> None:
    X = table()
    once = chunked(X, 100)()
    with pytest.raises(ValueError, match="ended after 0 rows, but the first reading had 900 rows; the function must return"):
        estimator(X).fit(lambda: once)


def test_bad_rows_outside_the_sample_are_found_with_their_place(few_in_memory: None) -> None:
    X = table()
    sample = RowSample(200, random_generators(0)[0])
    sample.add(np.arange(float(N))[:, None])
    outside = min(set(range(600, N)) - set(sample.rows.ravel().astype(int)))
    broken = X.copy()
    broken[outside, 1] = np.nan
    with pytest.raises(ValueError, match=f"missing value .* at row {outside - 512}, column 1") as caught:
        estimator(X).fit(chunked(broken, 90))
    assert "row numbers are relative to row 512 of the stream" in " ".join(caught.value.__notes__)


def test_bad_sources(few_in_memory: None, tmp_path: Path) -> None:
    X = table()
    with pytest.raises(TypeError, match="X is an iterator .generator., which can be read only once; give a function"):
        estimator(X).fit(chunked(X, 100)())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the function returned no chunks"):
        estimator(X).fit(lambda: [])
    with pytest.raises(ValueError, match="chunk 0 must have two dimensions"):
        estimator(X).fit(lambda: [X[:, 0]])
    with pytest.raises(ValueError, match='assignment="kd_tree" needs rows in memory'):
        estimator(X, assignment="kd_tree").fit(chunked(X, 100))
    flat = np.memmap(tmp_path / "flat", dtype=float, mode="w+", shape=(10,))
    with pytest.raises(ValueError, match="two dimensions, shape .n, d., but the memory-mapped array has shape .10,."):
        estimator(X).fit(flat)

    def scaled(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0]))
        numpyro.sample("X", bnp.ConjugateMixture(bnp.NormalInverseWishart.from_data(X, learn=False), z), obs=X / X.std(0))

    with pytest.raises(ValueError, match="the values that the model observes differ from the rows of X"):
        bnp.BayesianKMeans(scaled, n_init=1).fit(chunked(X, 100))
    assert row_source(np.memmap(tmp_path / "flat", dtype=float, shape=(5, 2)).copy()) is None  # in memory, for all its class
    with pytest.raises(AttributeError, match="labels_ is available only after fit"):
        _ = estimator(X).labels_


def test_rows_in_single_precision_stay_in_it(few_in_memory: None, tmp_path: Path) -> None:
    """From memory-mapped files and chunks; the clusters are those of the same values in double precision."""
    X = table().astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for source in (mapped, chunked(X, 100)):
        found = row_source(source)
        assert found is not None and set(found.map(lambda rows, _: str(rows.dtype))) == {"float32"}
    single, double = estimator(table()).fit(mapped), estimator(table()).fit(chunked(X.astype(float), 100))
    assert single.free_energy_ == double.free_energy_ and (single.labels_ == double.labels_).all()


def test_chunks_are_the_rows() -> None:
    X = table()
    for size in (1, 7, 256, 1000):
        chunks = list(RowStream(chunked(X, 90)).chunks_of(size))
        assert (np.concatenate(chunks) == X).all()
        assert [len(chunk) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
