"""DP-means against Kulis & Jordan's algorithm as a plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp


def plain(X: np.ndarray, penalty: float) -> tuple[np.ndarray, list[float]]:
    """Algorithm 1, one row at a time."""
    centers, labels, trace = [X.mean(0)], np.full(len(X), -1), []
    while True:
        new = np.empty(len(X), int)
        for i, x in enumerate(X):
            gaps = [((x - c) ** 2).sum() for c in centers]
            new[i] = int(np.argmin(gaps))
            if min(gaps) > penalty:
                centers.append(x)
                new[i] = len(centers) - 1
        _, new = np.unique(new, return_inverse=True)
        centers = [X[new == k].mean(0) for k in range(new.max() + 1)]
        trace.append(sum(((X[new == k] - c) ** 2).sum() for k, c in enumerate(centers)) + penalty * len(centers))
        if (new == labels).all():
            return labels, trace
        labels = new


def rows(n: int, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, clusters, n)
    return 8.0 * rng.normal(size=(clusters, 2))[labels] + rng.normal(size=(n, 2)), labels


@pytest.mark.parametrize("penalty", [0.5, 20.0, 1e5])
def test_equals_the_plain_loop(penalty: float) -> None:
    """The smallest penalty opens more clusters than the first capacity holds."""
    for seed in range(5):
        X, _ = rows(100, 4, seed)
        labels, trace = plain(X, penalty)
        fit = bnp.DPMeans(penalty).fit(X)
        assert (fit.labels_ == labels).all()
        np.testing.assert_allclose(fit.objective_trace_, trace, rtol=1e-9)
        assert (np.diff(fit.objective_trace_) <= 1e-9 * trace[0]).all()
        assert fit.n_clusters_ == len(fit.cluster_centers_) == labels.max() + 1 and fit.converged_


def test_more_clusters_than_the_first_capacity() -> None:
    X, _ = rows(150, 4, 0)
    fit = bnp.DPMeans(1e-6).fit(X)
    assert fit.n_clusters_ == 150
    assert fit.objective_ == pytest.approx(150e-6)


def test_reaches_a_number_of_clusters_and_predicts() -> None:
    X, labels = rows(200, 4, 1)
    fit = bnp.DPMeans(n_clusters=4).fit(X)
    assert fit.n_clusters_ == 4
    assert adjusted_rand_score(labels, fit.labels_) > 0.6
    assert (fit.predict(X) == fit.labels_).all()
    assert bnp.DPMeans(fit.penalty_).fit(X).n_clusters_ == 4


def test_an_unreachable_number_warns() -> None:
    with pytest.warns(RuntimeWarning, match="no penalty tried yields 3 clusters; the closest result has"):
        bnp.DPMeans(n_clusters=3).fit(np.repeat([[0.0], [1.0]], 5, axis=0))


def test_few_sweeps_warn() -> None:
    X, _ = rows(200, 6, 2)
    with pytest.warns(RuntimeWarning, match="did not converge within max_iter=1 sweeps"):
        fit = bnp.DPMeans(30.0, max_iter=1).fit(X)
    assert not fit.converged_ and bnp.DPMeans(30.0).fit(X).converged_


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({}, np.eye(3), "specify either penalty or n_clusters"),
        ({"penalty": 1.0, "n_clusters": 2}, np.eye(3), "specify either penalty or n_clusters"),
        ({"n_clusters": 4}, np.eye(3), "n_clusters is 4, but X has only 3 rows"),
        ({"penalty": 1.0}, np.array([[1.0], [np.nan]]), "X has a missing value .NaN. at row 1, column 0"),
    ],
)
def test_bad_input(options: dict[str, Any], X: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bnp.DPMeans(**options).fit(X)


def test_other_columns() -> None:
    fit = bnp.DPMeans(1.0).fit(np.eye(3))
    with pytest.raises(ValueError, match="X has 2 features, but DPMeans is expecting 3"):
        fit.predict(np.eye(2))
