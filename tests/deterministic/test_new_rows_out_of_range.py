"""New rows whose densities overflow are an error that names them, not cluster 0."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.models import dpm

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(8, 2)), RNG.normal(size=(8, 2)) + 9])
NEW = np.array([[0.0, 0.0], [1.0, 1e200], [9.0, 9.0]])
MODEL = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False))
MESSAGE = "row 1 .*1e\\+200.* column 1"

fits = pytest.mark.parametrize(
    "estimator",
    [
        bnp.BHC(MODEL, refine=None),
        bnp.MAPDP(MODEL, n_init=2),
        bnp.BayesianKMeans(MODEL),
        bnp.AgglomerativeBayesianClustering(MODEL),
        bnp.VariationalDP(MODEL, n_init=1, truncation=4),
    ],
    ids=lambda estimator: type(estimator).__name__,
)


@fits
def test_estimators(estimator):
    fit = estimator.fit(X)
    for method in (fit.predict, fit.predict_proba, fit.score_samples):
        with pytest.raises(ValueError, match=MESSAGE):
            method(NEW)
    assert np.isfinite(fit.score_samples(NEW[[0, 2]])).all()
    far = fit.predict_proba([[1e100, -1e100]])  # far, but within range: a new cluster
    assert far[0, -1] > 0.9
    assert fit.predict([[1e100, -1e100]])[0] == fit.n_clusters_


def test_nearest_mean():
    fit = bnp.DPMeans(n_clusters=2).fit(X)
    with pytest.raises(ValueError, match=r"1e\+200 at row 1, column 1"):
        fit.predict(NEW)


@pytest.mark.slow
def test_chains():
    mcmc = MCMC(bnp.PartitionGibbs(MODEL), num_warmup=5, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    estimate = bnp.point_estimate(np.asarray(mcmc.get_samples()["z"]))
    with pytest.raises(ValueError, match=MESSAGE):
        bnp.cluster_probabilities(mcmc, X, estimate, NEW)
    with pytest.raises(ValueError, match=MESSAGE):
        bnp.compare({"chains": mcmc}, X, held_out=NEW)
    assert np.isfinite(bnp.cluster_probabilities(mcmc, X, estimate, NEW[[0, 2]])).all()
