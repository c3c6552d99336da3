"""Parameters given a point estimate, and replicated data, against closed forms."""

from __future__ import annotations

from functools import partial

import arviz as az
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import gamma, kstest

import bnp_hier as bnp
from bnp_hier.inspection.collapsed import find_sites
from bnp_hier.inspection.model_arguments import as_arguments
from bnp_hier.models import dpm
from bnp_hier.posterior import parameter_draws
from bnp_hier.posterior.draws import Draws
from bnp_hier.posterior.mixtures import CollapsedMixture
from bnp_hier.posterior.parameter_draws import replicated_data

COUNTS = np.array([[0.0, 9.0], [1.0, 12.0], [2.0, 8.0], [14.0, 3.0], [11.0, 2.0]])
ESTIMATE = np.array([7, 7, 7, 2, 2])  # clusters keep these names
SHAPE = 2.0


def counts_model(X: np.ndarray) -> None:
    rate = numpyro.sample("rate", dist.Gamma(2.0, 2.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0]))
    numpyro.sample("X", bnp.ConjugateMixture(bnp.GammaPoisson(np.full(2, SHAPE), rate), z), obs=X)


def draws_of_counts(chains: int, length: int, seed: int = 0) -> Draws:
    """Draws whose rates differ by a factor of thousands: whatever ignores them is far off."""
    rng = np.random.default_rng(seed)
    labels = np.broadcast_to([0, 0, 0, 1, 1], (chains, length, 5))
    mixture = CollapsedMixture(counts_model, as_arguments(COUNTS), find_sites(counts_model, (COUNTS,)))
    return Draws(labels, {"rate": np.exp(rng.normal(0.0, 2.0, (chains, length)))}, mixture)


def test_parameters_follow_the_posterior_at_each_draw_of_the_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their distribution functions at them are uniform: four tests at 0.001, false alarms below 1 in 200; the key is fixed."""
    draws = draws_of_counts(2, 400)
    monkeypatch.setattr(parameter_draws, "draws_of", lambda *arguments, **options: draws)
    found = bnp.cluster_parameters(None, COUNTS, ESTIMATE)
    assert found["parameters"].dims == ("chain", "draw", "cluster", "parameter_dim_0")
    assert found["parameters"].shape == (2, 400, 2, 2) and found["parameters"].dtype == np.float64
    assert found["cluster"].values.tolist() == [2, 7] and found["size"].values.tolist() == [2, 3]
    for cluster in (2, 7):
        rows = COUNTS[ESTIMATE == cluster]
        for column in range(2):
            at = found["parameters"].sel(cluster=cluster).values[..., column].ravel()
            scale = 1.0 / (draws.hyperparameters["rate"].ravel() + len(rows))
            assert kstest(gamma(SHAPE + rows[:, column].sum(), scale=scale).cdf(at), "uniform").pvalue > 1e-3
            # the same test refuses one rate for all draws
            same = gamma(SHAPE + rows[:, column].sum(), scale=1.0 / (1.0 + len(rows)))
            assert kstest(same.cdf(at), "uniform").pvalue < 1e-9
    values = found["parameters"].values.reshape(800, 4)
    assert len(np.unique(values)) == values.size  # every draw has a key of its own


@pytest.mark.slow
def test_many_draws_where_the_fit_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means and covariances of NIW draws, 4.5 standard errors each: false alarms below 1 in 1,000; the key is fixed."""
    X = np.random.default_rng(0).normal(size=(14, 2)) + np.repeat([[0.0], [7.0]], 7, axis=0)
    component = bnp.NormalInverseWishart(np.zeros(2), 0.3, 6.0, np.eye(2))
    model = partial(dpm, component=component, concentration=1.0)
    one = Draws(np.zeros((1, 1, 14), int), {}, CollapsedMixture(model, as_arguments(X), find_sites(model, (X,))))
    monkeypatch.setattr(parameter_draws, "draws_of", lambda *arguments, **options: one)
    halves = np.repeat([0, 1], 7)
    found = bnp.cluster_parameters(None, X, halves, num_samples=3000, random_state=1)
    assert found["parameters"].shape == (1, 3000, 2, 3, 2)
    for cluster in (0, 1):
        rows = X[halves == cluster]
        n, kappa = len(rows), 0.3 + len(rows)
        mean = rows.sum(0) / kappa
        scale = np.eye(2) + rows.T @ rows - kappa * np.outer(mean, mean)
        expected = np.vstack([mean, scale / (6.0 + n - 3)])
        at = found["parameters"].sel(cluster=cluster).values[0]
        assert (np.abs(at.mean(0) - expected) < 4.5 * at.std(0) / np.sqrt(3000)).all()
    names = list(az.summary(found.isel(cluster=[0]), kind="stats").index)
    assert len(names) == 6 and names[0].startswith("parameters[")
    assert bnp.cluster_parameters(None, X, halves, num_samples=3000, random_state=1).equals(found)


def test_replicated_rows_of_one_cluster_share_parameters() -> None:
    """Negative-binomial means and variances, and covariances within and across clusters, at one rate.

    Thirty numbers, 4.5 standard errors each: false alarms below 1 in 1,000; the key is fixed.
    """
    draws = draws_of_counts(2, 3000)._replace(hyperparameters={"rate": np.ones((2, 3000))})
    table = replicated_data(draws, 3)
    assert table.shape == (2, 3000, 5, 2)
    rows = table.reshape(-1, 5, 2)
    for column in range(2):
        shape = [SHAPE + COUNTS[:3, column].sum(), SHAPE + COUNTS[3:, column].sum()]
        rate = [1.0 + 3, 1.0 + 2]
        mean = np.repeat(np.divide(shape, rate), [3, 2])
        centred = rows[:, :, column] - mean
        spread = np.repeat(np.divide(shape, np.square(rate)), [3, 2])  # variance of the cluster's mean
        for values, expected in (
            *((centred[:, i], 0.0) for i in range(5)),
            *((centred[:, i] ** 2, mean[i] + spread[i]) for i in range(5)),
            *((centred[:, i] * centred[:, j], spread[i]) for i, j in ((0, 1), (1, 2), (3, 4))),
            *((centred[:, i] * centred[:, j], 0.0) for i, j in ((0, 3), (2, 4))),
        ):
            assert abs(values.mean() - expected) < 4.5 * values.std() / np.sqrt(len(values))


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="expected an MCMC object or a fitted bnp_hier estimator, but got str"):
        bnp.cluster_parameters("fit", COUNTS, ESTIMATE)
    monkeypatch.setattr(parameter_draws, "draws_of", lambda *arguments, **options: draws_of_counts(1, 2))
    with pytest.raises(ValueError, match="estimate labels 3 items, but the draws label 5"):
        bnp.cluster_parameters(None, COUNTS, ESTIMATE[:3])
    with pytest.raises(TypeError, match="random_state must be a whole number or a JAX random key"):
        bnp.cluster_parameters(None, COUNTS, ESTIMATE, random_state="a")
