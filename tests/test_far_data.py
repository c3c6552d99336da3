"""Every method far from the prior mean: the answer is that of the same problem moved home, or an error."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.models import dpm

RNG = np.random.default_rng(5)
TRUTH = np.repeat([0, 1], 40)
HOME = np.round(RNG.normal(size=(80, 2)) * 64) / 64 + TRUTH[:, None] * [8.0, -8.0]  # exact also after the shift
FAR = 2.0**30


def model(mean, kappa=1e-6):
    return partial(dpm, component=bnp.NormalInverseWishart(np.full(2, float(mean)), kappa, 4.0, np.eye(2)))


@pytest.mark.parametrize(
    "estimator",
    [
        partial(bnp.BHC, refine=None),
        partial(bnp.MAPDP, n_init=2),
        bnp.BayesianKMeans,
        bnp.AgglomerativeBayesianClustering,
    ],
    ids=["BHC", "MAPDP", "BayesianKMeans", "Agglomerative"],
)
def test_estimators(estimator):
    """Rows a billion deviations from the prior mean, and rows and prior mean moved by that."""
    far, home = estimator(model(0.0)).fit(HOME + FAR), estimator(model(-FAR)).fit(HOME)
    np.testing.assert_array_equal(far.labels_, home.labels_)
    np.testing.assert_array_equal(estimator(model(0.0)).fit(HOME + 3000).labels_, TRUTH)
    assert far.log_joint_ == pytest.approx(home.log_joint_, rel=1e-10)
    if isinstance(far, bnp.BHC):
        assert far.log_evidence_bound_ == pytest.approx(home.log_evidence_bound_, rel=1e-10)
    new = np.array([[0.0, 0.5], [8.0, -7.5], [80.0, -30.0]])
    np.testing.assert_allclose(far.score_samples(new + FAR), home.score_samples(new), rtol=1e-9)
    np.testing.assert_allclose(far.predict_proba(new + FAR), home.predict_proba(new), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(far.component_.mean, 0.0)


@pytest.mark.parametrize("kernel", [bnp.PartitionGibbs, pytest.param(bnp.ParallelSplitMerge, marks=pytest.mark.slow)])
def test_chains_in_single_precision(kernel):
    """Two clusters 8 deviations apart, 3,000 from the prior mean; float32 statistics about that mean put them together."""
    mcmc = MCMC(kernel(model(0.0)), num_warmup=20, num_samples=40, progress_bar=False)
    mcmc.run(jax.random.key(0), HOME + 3000.0, extra_fields=("log_joint",))
    labels = np.asarray(mcmc.get_samples()["z"])
    assert np.mean([adjusted_rand_score(TRUTH, z) for z in labels]) > 0.9
    joint = np.asarray(mcmc.get_extra_fields()["log_joint"])
    with jax.enable_x64(True):
        component = bnp.NormalInverseWishart(np.zeros(2), 1e-6, 4.0, np.eye(2))
        halves = [component.log_evidence((HOME + 3000.0)[TRUTH == k]) for k in (0, 1)]
    from scipy.special import gammaln

    exact = sum(halves) + 2 * gammaln(40) - gammaln(81)
    same = [adjusted_rand_score(TRUTH, z) == 1 for z in labels]
    np.testing.assert_allclose(joint[same], exact, atol=0.02)


@pytest.mark.slow
def test_parallel_chains_far_out_in_single_precision():
    """A prior centred on rows at a billion: labels are drawn given parameters, for which float32 has no digits there."""
    X = HOME + FAR
    component = bnp.NormalInverseWishart(X.mean(0), 0.1, 4.0, np.eye(2))
    mcmc = MCMC(bnp.ParallelSplitMerge(partial(dpm, component=component)), num_warmup=20, num_samples=40, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    assert np.mean([adjusted_rand_score(TRUTH, z) for z in np.asarray(mcmc.get_samples()["z"])]) > 0.9


def test_single_precision_is_refused_where_it_has_no_digits():
    """Clusters so far apart that float32 keeps digits for one of them at most: refused, and accepted in double precision."""
    X = HOME + 1e6 * TRUTH[:, None]
    for kernel in (bnp.PartitionGibbs, bnp.ParallelSplitMerge):
        with pytest.raises(ValueError, match=r"single precision is not sufficient for column \d of X.*enable_x64"):
            MCMC(kernel(model(0.0)), num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), X)
    with jax.enable_x64(True):
        mcmc = MCMC(bnp.PartitionGibbs(model(0.0)), num_warmup=5, num_samples=5, progress_bar=False)
        mcmc.run(jax.random.key(0), X)
        assert adjusted_rand_score(TRUTH, np.asarray(mcmc.get_samples()["z"])[-1]) == 1


@pytest.mark.slow
def test_parameters_in_the_units_of_the_data_are_refused_without_digits():
    """`BHMCGibbs` keeps the components' means as numbers: a billion plus or minus one is no float32."""
    X = HOME + FAR
    component = bnp.NormalKnownCovariance(X.mean(0), 10 * np.eye(2), np.eye(2))
    kernel = bnp.BHMCGibbs(partial(bnp.models.bhmc, depth=2, component=component, max_components=4, max_nodes=8))
    with pytest.raises(ValueError, match=r"single precision is not sufficient for the cluster means in column 0"):
        MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), X)
