"""Parameters of an estimate's clusters where they are sites of the model: by loops, by enumeration, and under relabelling."""

from __future__ import annotations

import warnings
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, CustomGibbs, Gibbs

import bnp_hier as bnp
from bnp_hier.models import dpm_stick_breaking
from bnp_hier.posterior.slot_parameters import averages_over_rows
from tests.oracles.monte_carlo import effective_draws
from tests.oracles.partitions import Enumeration

N, SLOTS, ALPHA = 6, 8, 0.8  # more slots than rows
RNG = np.random.default_rng(1)
x, y = RNG.normal(size=N), np.concatenate([RNG.normal(0.0, 1.0, 3), RNG.normal(2.0, 1.0, 3)])
DATA = bnp.ModelArguments(x, y)
ESTIMATE = np.array([4, 4, 4, 1, 1, 7])  # clusters keep these names


def levels(x: jax.Array, y: jax.Array) -> None:
    """Normal clusters of variance 1, means of variance 4; the covariate says nothing."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, len(y), max_clusters=SLOTS))
    with numpyro.plate("clusters", SLOTS):
        level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    numpyro.deterministic("both", jnp.stack([level, 3.0 * level], axis=1))
    numpyro.deterministic("spread", jnp.ptp(level))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(level[z], 1.0), obs=y)


def exact_levels(rng_key: jax.Array, gibbs_sites: dict, hmc_sites: dict) -> dict:
    z = hmc_sites["z"]
    precision = 0.25 + jax.ops.segment_sum(jnp.ones(N), z, SLOTS)
    mean = jax.ops.segment_sum(jnp.asarray(y, jnp.float32), z, SLOTS) / precision
    return {"level": mean + jax.random.normal(rng_key, (SLOTS,)) / jnp.sqrt(precision)}


@pytest.fixture(scope="module")
def run() -> MCMC:
    kernel = Gibbs([(bnp.AuxiliaryGibbs(levels), ["z"]), (CustomGibbs(exact_levels), ["level"])])
    mcmc = MCMC(kernel, num_warmup=100, num_samples=4000, num_chains=2, chain_method=jax.vmap, progress_bar=False)
    mcmc.run(jax.random.key(0), x, y)
    return mcmc


def by_loops(values: np.ndarray, labels: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    clusters = np.unique(estimate)
    out = np.zeros((*labels.shape[:2], len(clusters), *values.shape[3:]))
    for chain, draw in np.ndindex(labels.shape[:2]):
        for k, cluster in enumerate(clusters):
            rows = np.flatnonzero(estimate == cluster)
            for row in rows:
                out[chain, draw, k] += values[chain, draw, labels[chain, draw, row]] / len(rows)
    return out


def random_draws(*rest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    estimate = np.array([0, 0, 1, 2, 1, 2, 0, 2, 2])
    return rng.normal(size=(2, 7, 5, *rest)), rng.integers(5, size=(2, 7, 9)), estimate


@pytest.mark.parametrize("rest", [(), (2,), (2, 3)])
def test_averages_are_those_of_loops(rest: tuple[int, ...]) -> None:
    values, labels, estimate = random_draws(*rest)
    np.testing.assert_allclose(averages_over_rows(values, labels, estimate), by_loops(values, labels, estimate), rtol=1e-12)


def test_averages_depend_neither_on_numbers_nor_on_empty_slots() -> None:
    values, labels, estimate = random_draws(2)
    expected, rng = averages_over_rows(values, labels, estimate), np.random.default_rng(4)
    permuted, renumbered = values.copy(), labels.copy()
    for draw in np.ndindex(2, 7):
        order = rng.permutation(5)
        permuted[draw] = values[draw][order]
        renumbered[draw] = np.argsort(order)[labels[draw]]
        permuted[draw][np.setdiff1d(np.arange(5), renumbered[draw])] = np.nan
    np.testing.assert_allclose(averages_over_rows(permuted, renumbered, estimate), expected, rtol=1e-12)
    # whereas the slots with the numbers of the estimate's clusters do
    assert np.abs(np.nanmean(permuted[:, :, :3], axis=(0, 1)) - values[:, :, :3].mean((0, 1))).max() > 0.1


def test_means_and_variances_are_the_exact_ones(run: MCMC) -> None:
    """Six moments against enumeration, 5 Monte Carlo standard errors each: false alarms below 1e-5; the key is fixed.

    Given a partition, the level of a cluster of m rows is normal with precision 1/4 + m; levels are independent.
    """
    component = bnp.NormalKnownCovariance(np.zeros(1), 4.0 * np.eye(1), np.eye(1))
    exact = Enumeration(N, lambda rows: component.log_evidence(y[rows][:, None]), ALPHA)
    found = bnp.cluster_parameters(run, DATA, ESTIMATE)
    assert found["cluster"].values.tolist() == [1, 4, 7] and found["size"].values.tolist() == [2, 3, 1]
    slots = run.get_samples(group_by_chain=True)["level"]
    for cluster in (1, 4, 7):
        rows, moments = np.flatnonzero(cluster == ESTIMATE), np.zeros(2)
        for labels, probability in zip(map(np.array, exact.labels), exact.probabilities, strict=True):
            sizes = np.bincount(labels)
            shares = np.bincount(labels[rows], minlength=len(sizes)) / len(rows)
            mean = shares @ (np.bincount(labels, weights=y) / (0.25 + sizes))
            moments += probability * np.array([mean, mean**2 + (shares**2 / (0.25 + sizes)).sum()])
        series = found["level"].sel(cluster=cluster).values
        for power, moment in enumerate(moments, 1):
            powers = series**power
            error = powers.std() / np.sqrt(sum(effective_draws(chain) for chain in powers))
            assert error < 0.05 and abs(powers.mean() - moment) < 5 * error
    # the last cluster is far from the mean of any one slot, which is the same for all of them
    assert (np.abs(slots.mean((0, 1)) - moments[0]) > 0.3).all()
    together = exact.coclustering()
    expected = [together[3, 4], (together[0, 1] + together[0, 2] + together[1, 2]) / 3, np.nan]
    np.testing.assert_allclose(found["coclustering"].values, expected, atol=0.05)


def test_sites_and_dimensions(run: MCMC) -> None:
    """Deterministic sites included, and sites with no entry for each cluster left out, although there are fewer rows."""
    found = bnp.cluster_parameters(run, DATA, ESTIMATE)
    assert set(found.data_vars) == {"level", "both"} and found.attrs["method"] == "MCMC"
    assert found["level"].dims == ("chain", "draw", "cluster") and found["level"].dtype == np.float64
    assert found["both"].dims == ("chain", "draw", "cluster", "both_dim_1") and found["both"].shape == (2, 4000, 3, 2)
    np.testing.assert_allclose(found["both"][..., 1], 3.0 * found["level"], rtol=1e-5, atol=1e-6)
    for asked in ("level", ["level"]):
        assert list(bnp.cluster_parameters(run, DATA, ESTIMATE, sites=asked).data_vars) == ["level"]
    for reader in (bnp.to_arviz(run, DATA)["posterior"], found):
        assert "cluster" in reader["level"].dims
    summary = az.summary(found[["level"]])
    assert list(summary.index) == ["level[1]", "level[4]", "level[7]"] and {"mean", "sd", "r_hat"} <= set(summary.columns)
    assert (summary["r_hat"].astype(float) < 1.05).all()


def test_a_mixture_with_labels_summed_out() -> None:
    """Recovered labels; the weights are left out, unless they are asked for."""
    table = np.column_stack([x, y])
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0)

    def model(X: Any) -> None:
        dpm_stick_breaking(X, component, 1.0, truncation=4)

    mcmc = MCMC(NUTS(model), num_warmup=10, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0), table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = bnp.cluster_parameters(mcmc, table, ESTIMATE)
        found = bnp.cluster_parameters(mcmc, table, ESTIMATE, sites=["weights", "parameters"])
    assert drawn["parameters"].shape == found["parameters"].shape == (1, 20, 3, 2, 2)
    assert "coclustering" not in drawn.coords and found["weights"].shape == (1, 20, 3)
    labels = bnp.recover_labels(mcmc, table)
    expected = by_loops(np.asarray(mcmc.get_samples(group_by_chain=True)["parameters"]), np.asarray(labels), ESTIMATE)
    np.testing.assert_allclose(found["parameters"], expected, rtol=1e-6)


def test_bad_input(run: MCMC) -> None:
    with pytest.raises(
        ValueError, match="'slope' does not exist; the sites with 8 entries, one for each cluster, are both, level"
    ):
        bnp.cluster_parameters(run, DATA, ESTIMATE, sites=["slope"])
    with pytest.raises(ValueError, match=r"'spread' has draws of shape \(\); the sites with 8 entries"):
        bnp.cluster_parameters(run, DATA, ESTIMATE, sites="spread")
    with pytest.raises(ValueError, match="estimate labels 3 items, but the draws label 6"):
        bnp.cluster_parameters(run, DATA, ESTIMATE[:3])
    fit = bnp.MAPDP(n_init=1).fit(y[:, None])
    with pytest.raises(ValueError, match="sites='loc' names sites with the parameters of each cluster, but the model has none"):
        bnp.cluster_parameters(fit, y[:, None], fit.labels_, sites="loc")
