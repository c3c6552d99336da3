"""What all estimators of hard assignments share: one objective, and data at the edge."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpyro
import pytest

import bnp_hier as bnp
from bnp_hier.models import dpm
from tests.oracles.map_dp import joint
from tests.oracles.problems import log_marginal

ESTIMATORS = [
    bnp.MAPDP,
    pytest.param(bnp.BayesianKMeans, marks=pytest.mark.slow),
    pytest.param(bnp.AgglomerativeBayesianClustering, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_counts_with_empty_rows(estimator: Any) -> None:
    """A row of zeros says nothing about its cluster; the objective is still the model's."""
    counts = np.random.default_rng(0).poisson([[9.0, 1.0, 1.0], [1.0, 1.0, 9.0]] * 5).astype(float)
    counts[[3, 7]] = 0.0
    component = bnp.DirichletMultinomial(np.ones(3))
    fit = estimator(partial(dpm, component=component, concentration=1.0)).fit(counts)
    assert fit.n_clusters_ >= 2
    expected = joint(fit.labels_.tolist(), lambda rows: log_marginal(component, counts[rows]), 1.0, 0.0)
    assert fit.log_joint_ == pytest.approx(expected, abs=1e-9)
    assert fit.score_samples(np.zeros((1, 3))) == pytest.approx(0.0, abs=1e-9)  # the one possible row without counts


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_all_rows_equal(estimator: Any) -> None:
    component = bnp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2))
    assert estimator(partial(dpm, component=component, concentration=1.0)).fit(np.ones((10, 2))).n_clusters_ == 1


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [partial(bnp.MAPDP, init="k-means++"), partial(bnp.BayesianKMeans, n_init=(1, 2))])
def test_a_column_without_any_cell(estimator: Any) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2)) + 20.0 * (np.arange(40) % 2)[:, None]
    X[:, 1] = np.nan
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0)
    assert estimator(partial(dpm, component=component, concentration=1.0)).fit(X).n_clusters_ == 2


@pytest.mark.parametrize("estimator", [bnp.MAPDP, bnp.BayesianKMeans, bnp.AgglomerativeBayesianClustering])
@pytest.mark.parametrize("capacity", [0, -1, 1.5])
def test_a_capacity_below_one(estimator: Any, capacity: Any) -> None:
    def capped(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0], max_clusters=capacity))
        numpyro.sample("X", bnp.ConjugateMixture(bnp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2)), z), obs=X)

    with pytest.raises(ValueError, match=f"max_clusters must be a whole number of at least 1, but it is {capacity}"):
        estimator(capped).fit(np.eye(2))


@pytest.mark.parametrize("rule", ["me", "agglomerative"])
def test_rules_from_data_with_equal_rows(rule: str) -> None:
    """The distance of close rows skips duplicates; without two different rows there is none."""
    repeated = np.repeat([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]], 5, axis=0)
    prior = bnp.NormalInverseWishart.from_data(repeated, rule=rule, learn=False)
    assert np.linalg.eigvalsh(np.asarray(prior.scale)).min() > 0
    with pytest.raises(ValueError, match="X is constant in column 0"):
        bnp.NormalInverseWishart.from_data(np.ones((10, 2)), rule=rule, learn=False)
