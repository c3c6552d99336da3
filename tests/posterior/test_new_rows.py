"""New rows put to the clusters of an estimate."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.special import softmax

import bnp_hier as bnp
from bnp_hier.models import dpm
from bnp_hier.posterior.draws import Draws, draws_of
from bnp_hier.posterior.mixtures import CollapsedMixture
from tests.oracles.problems import log_marginal

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2)) + 6.0 * (np.arange(8) % 2)[:, None]
COMPONENT = bnp.NormalInverseGamma.from_data(X, learn=False)
MODEL = partial(dpm, component=COMPONENT, concentration=0.7)
NEW = RNG.normal(size=(3, 2)) + [[0.0], [6.0], [3.0]]


def by_hand(draws: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Every draw's seating probabilities, shared out among the estimate's clusters by membership."""
    found = np.zeros((len(NEW), estimate.max() + 2))
    for labels in draws:
        for i, row in enumerate(NEW):
            groups = [np.flatnonzero(labels == k) for k in np.unique(labels)]
            logs = [
                np.log(len(g)) + log_marginal(COMPONENT, np.vstack([X[g], row])) - log_marginal(COMPONENT, X[g]) for g in groups
            ]
            weights = softmax([*logs, np.log(0.7) + log_marginal(COMPONENT, row[None])])
            for group, weight in zip(groups, weights, strict=False):
                for item in group:
                    found[i, estimate[item]] += weight / len(group) / len(draws)
            found[i, -1] += weights[-1] / len(draws)
    return found


def test_probabilities_follow_every_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.array([[0, 1, 0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 2, 1, 2, 1], [0, 0, 0, 0, 0, 0, 0, 0]])
    estimate = draws[0]
    fit = bnp.MAPDP(MODEL, n_init=1).fit(X)
    mixture = draws_of(fit, X).mixture
    assert isinstance(mixture, CollapsedMixture)
    monkeypatch.setattr("bnp_hier.posterior.new_rows.draws_of", lambda *_, **__: Draws(draws[None], {}, mixture))
    found = bnp.cluster_probabilities(object(), X, estimate, NEW)
    np.testing.assert_allclose(found, by_hand(draws, estimate), rtol=1e-9)
    np.testing.assert_allclose(found.sum(1), 1.0)


def test_an_estimators_own_partition() -> None:
    fit = bnp.MAPDP(MODEL, n_init=2).fit(X)
    np.testing.assert_array_equal(bnp.cluster_probabilities(fit, X, fit.labels_, NEW), fit.predict_proba(NEW))
    other = np.zeros(8, dtype=int)  # another partition: all members together
    found = bnp.cluster_probabilities(fit, X, other, NEW)
    np.testing.assert_allclose(found, by_hand(fit.labels_[None], other), rtol=1e-9)


def test_any_whole_numbers_name_the_clusters() -> None:
    """One column for each label that occurs, with gaps or below zero, as of a method that calls outliers −1."""
    fit = bnp.MAPDP(MODEL, n_init=2).fit(X)
    plain = np.arange(8) % 3
    found = bnp.cluster_probabilities(fit, X, np.array([-1, 4, 30])[plain], NEW)
    np.testing.assert_allclose(found, bnp.cluster_probabilities(fit, X, plain, NEW), rtol=1e-12)
    assert found.shape == (3, 4)


def test_bad_input() -> None:
    fit = bnp.MAPDP(MODEL, n_init=1).fit(X)
    with pytest.raises(ValueError, match="8"):
        bnp.cluster_probabilities(fit, X, np.zeros(3, dtype=int), NEW)
    with pytest.raises(ValueError, match="3"):
        bnp.cluster_probabilities(fit, X, np.zeros(8, dtype=int), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1, but it is 0"):
        bnp.cluster_probabilities(fit, X, np.zeros(8, dtype=int), NEW, num_samples=0)
