"""New rows: seated as a plain loop seats them, with statistics that stay right."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.models import dpm, pitman_yor_mixture
from tests.oracles.problems import Problem, log_marginal
from tests.parameters import few


def rows(n: int, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, clusters, n)
    centers = 12.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [0, 2]])
    return centers[labels] + rng.normal(size=(n, 2)), labels


def seat_by_hand(problem: Problem, old: np.ndarray, new: int) -> np.ndarray:
    """Labels of the last `new` rows, each put where log p(rows so far, labels) is largest."""
    labels = list(old)
    for i in range(len(old), problem.n):
        clusters = [[j for j in range(i) if labels[j] == k] for k in range(max(labels) + 1)]
        scores = [np.log(len(c) - problem.discount) + problem.log_predictive(c, problem.X[i]) for c in clusters]
        scores.append(np.log(problem.alpha + len(clusters) * problem.discount) + problem.log_predictive([], problem.X[i]))
        labels.append(int(np.argmax(scores)))
    return np.array(labels[-new:])


@pytest.mark.parametrize("discount", few([0.3, 0.0]))
def test_equals_a_plain_loop(discount: float) -> None:
    """Overlapping clusters, 40 old rows and 35 new ones, which come in chunks of 32, 2 and 1."""
    rng = np.random.default_rng(0)
    X = 1.5 * rng.normal(size=(6, 2))[rng.integers(0, 6, 75)] + rng.normal(size=(75, 2))
    problem = Problem(bnp.NormalInverseWishart.from_data(X, learn=False), X, 1.3, discount)
    fit = bnp.MAPDP(problem.model).fit(X[:40])
    old = fit.labels_
    assert fit.partial_fit(X[40:]) is fit
    assert (fit.labels_ == seat_by_hand(problem, old, 35)).all()
    every = np.concatenate([old, fit.labels_])
    assert (fit.counts_ == np.bincount(every)).all() and fit.n_seen_ == 75
    if not discount:
        sizes = fit.counts_
        joint = len(sizes) * np.log(1.3) + gammaln(sizes).sum() + gammaln(1.3) - gammaln(76.3)
        joint += sum(log_marginal(problem.component, X[every == k]) for k in range(len(sizes)))
        assert fit.log_joint_ == pytest.approx(joint, abs=1e-8)


@pytest.mark.parametrize("estimator", few([bnp.MAPDP, bnp.BayesianKMeans]))
def test_streams_find_new_clusters_and_predict(estimator: Any) -> None:
    """Two clusters at first, four more later; batches of unequal size."""
    X, labels = rows(600, 6, 1)
    order = np.argsort(labels // 2, kind="stable")
    X, labels = X[order], labels[order]
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    fit = estimator(model).partial_fit(X[:150])
    found = [fit.labels_]
    for part in np.split(X[150:], [7, 130, 300]):
        found.append(fit.partial_fit(part).labels_)
    assert adjusted_rand_score(labels, np.concatenate(found)) > 0.98
    assert adjusted_rand_score(labels, fit.predict(X)) > 0.98
    assert fit.counts_.sum() == 600


@pytest.mark.slow
def test_more_clusters_than_there_was_room_for() -> None:
    X = np.repeat(100.0 * np.arange(30)[:, None], 3, axis=0) + np.random.default_rng(0).normal(size=(90, 1))
    component = bnp.NormalInverseGamma(np.full(1, 1450.0), 1e-6, 50.0, 50.0)
    fit = bnp.MAPDP(partial(dpm, component=component, concentration=1.0)).fit(X[:6])
    assert fit.n_clusters_ == 2
    assert fit.partial_fit(X[6:]).n_clusters_ == 30
    assert (fit.counts_ == 3).all()


@pytest.mark.slow
def test_refinements_do_not_lower_the_joint() -> None:
    rng = np.random.default_rng(4)
    X = 2.0 * rng.normal(size=(5, 2))[rng.integers(0, 5, 300)] + rng.normal(size=(300, 2))
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    plain, refined = (bnp.MAPDP(model).fit(X[:44]).partial_fit(X[44:], refinements=r).log_joint_ for r in (0, 5))
    assert refined >= plain - 1e-9


def test_bad_rows_leave_the_fit_as_it_was() -> None:
    X, _ = rows(60, 3, 2)
    model = partial(
        pitman_yor_mixture, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0, discount=0.2
    )
    fit = bnp.MAPDP(model).fit(X)
    before = fit.counts_.copy()
    with pytest.raises(ValueError, match="X has 3 features, but MAPDP is expecting 2"):
        fit.partial_fit(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"missing value \(NaN\) at row 1, column 0"):
        fit.partial_fit(np.array([[0.0, 0.0], [np.nan, 1.0]]))
    with pytest.raises(ValueError, match="refinements must be a whole number of at least 0"):
        fit.partial_fit(X, refinements=-1)
    assert (fit.counts_ == before).all()
