"""Models with several data arguments: mixtures of regressions, against the same model of one table and by hand."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy.special import logsumexp
from scipy.stats import kstest, norm

import bnp_hier as bnp
from bnp_hier.inspection.slots import check_row_densities, find_slot_sites
from bnp_hier.kernels.reports import wait_for_reports
from bnp_hier.posterior.draws import draws_of, log_predictive
from bnp_hier.posterior.parameter_draws import replicated_data

SLOTS, N = 5, 40
RNG = np.random.default_rng(0)
x = RNG.normal(size=N)
TRUTH = np.arange(N) % 2
y = np.where(TRUTH, 2 + 2 * x, -2 - 2 * x) + 0.3 * RNG.normal(size=N)
DATA = bnp.ModelArguments(x, y)


def reg(x, y, slots: int = SLOTS) -> None:
    """A line in every cluster; the covariate has no density."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, x.shape[0], max_clusters=slots))
    with numpyro.plate("clusters", slots):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 3.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 3.0))
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(intercept[z] + slope[z] * x, noise[z]), obs=y)


def reg_of_table(table) -> None:
    reg(table[:, 0], table[:, 1])


def _run(model: Any, *args: Any) -> MCMC:
    kernel = Gibbs([(bnp.AuxiliaryGibbs(model), ["z"]), (NUTS(model, max_tree_depth=5), None)])
    run = MCMC(kernel, num_warmup=60, num_samples=40, num_chains=2, chain_method="sequential", progress_bar=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*reached its capacity", category=RuntimeWarning)
        run.run(jax.random.key(0), *args)
        wait_for_reports(run.last_state)
    return run


@pytest.fixture(scope="module")
def run() -> MCMC:
    return _run(reg, x, y)


@pytest.fixture(scope="module")
def table_run() -> MCMC:
    return _run(reg_of_table, np.column_stack([x, y]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_everything_is_as_for_the_same_model_of_one_table(run: MCMC, table_run: MCMC) -> None:
    table, new = np.column_stack([x, y]), np.array([[0.5, 3.0], [1.0, -9.0], [0.0, 0.0]])
    held_out = bnp.ModelArguments(*new.T)
    ours = bnp.compare({"a": run}, DATA, held_out=held_out, truth=TRUTH)
    theirs = bnp.compare({"a": table_run}, table, held_out=new, truth=TRUTH)
    for name in ("clusters", "held_out", "held_out_se", "ARI", "rhat", "ess", "capacity_hits"):
        np.testing.assert_allclose(ours[name].astype(float), theirs[name].astype(float), rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(bnp.loo(run, DATA)["elpd_loo"], bnp.loo(table_run, table)["elpd_loo"], rtol=1e-5)
    compared = bnp.compare_models({"a": run}, DATA)
    np.testing.assert_allclose(compared["elpd"], bnp.compare_models({"a": table_run}, table)["elpd"], rtol=1e-5)
    estimate = bnp.point_estimate(draws_of(run, DATA).labels)
    found = bnp.cluster_probabilities(run, DATA, estimate, held_out)
    np.testing.assert_allclose(found, bnp.cluster_probabilities(table_run, table, estimate, new), atol=1e-5)
    effect = bnp.describe(run, DATA, estimate).association["effect"]
    np.testing.assert_allclose(effect["y"], bnp.describe(table_run, table, estimate).association["effect"]["x1"], rtol=1e-5)


@pytest.mark.slow
def test_log_densities_and_cluster_probabilities_by_hand(run: MCMC) -> None:
    draws = draws_of(run, DATA)
    new_x, new_y = np.array([0.5, 1.0]), np.array([3.0, -9.0])
    estimate = TRUTH
    densities, joints = [], []
    for chain, draw in np.ndindex(draws.labels.shape[:2]):
        z, values = draws.labels[chain, draw], {name: v[chain, draw] for name, v in draws.hyperparameters.items()}
        counts = np.bincount(z, minlength=SLOTS)
        empty = counts == 0
        weights = np.where(empty, 1.0 / max(empty.sum(), 1), counts) / (N + (1.0 if empty.any() else 0.0))
        location = values["intercept"] + values["slope"] * new_x[:, None]
        each = np.log(weights) + norm.logpdf(new_y[:, None], location, values["noise"])
        densities.append(logsumexp(each, axis=1))
        row = np.zeros((2, 3))
        for k in range(SLOTS):
            if empty[k]:
                row[:, 2] += np.exp(each[:, k])
            else:
                own = np.bincount(estimate[z == k], minlength=2) / counts[k]
                row[:, :2] += np.exp(each[:, [k]]) * own
        joints.append(row)
    expected = logsumexp(densities, axis=0) - np.log(len(densities))
    data = bnp.ModelArguments(new_x, new_y)
    np.testing.assert_allclose(log_predictive(draws, data), expected, rtol=1e-6)
    found = bnp.cluster_probabilities(run, DATA, estimate, data)
    np.testing.assert_allclose(found, np.mean(joints, axis=0) / np.exp(expected)[:, None], atol=1e-6)
    np.testing.assert_allclose(found.sum(1), 1.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arviz_groups(run: MCMC) -> None:
    data = bnp.to_arviz(run, DATA, posterior_predictive=5, feature_names=["reply"])
    np.testing.assert_array_equal(data["observed_data"]["y"].values, y[:, None])
    np.testing.assert_array_equal(data["constant_data"]["x"].values, x)
    assert "y" not in data["constant_data"] and data["posterior_predictive"]["y"].shape == (2, 5, N, 1)
    assert data["log_likelihood"]["y"].shape == (2, 40, N)


def test_replicated_data_are_drawn_at_the_covariates_and_labels(run: MCMC) -> None:
    """Residuals are standard normal; the test fails by chance with probability 0.001, and its key is fixed."""
    draws = draws_of(run, DATA)
    found = replicated_data(draws, 1)[..., 0]
    z, values = draws.labels, draws.hyperparameters
    intercept, slope, noise = (np.take_along_axis(values[name], z, axis=2) for name in ("intercept", "slope", "noise"))
    residuals = (found - intercept - slope * x) / noise
    assert kstest(residuals.ravel(), "norm").pvalue > 0.001
    assert np.abs(found - y).min() > 0  # not the data themselves


def test_a_conjugate_model_with_an_offset_is_that_of_the_difference() -> None:
    component = bnp.NormalInverseGamma(np.zeros(1), 0.1, 2.0, 1.0)
    shift = np.linspace(-3, 3, N)

    def with_offset(offset, X) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0]))
        numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X - jnp.asarray(offset)[:, None])

    def plain(X) -> None:
        with_offset(jnp.zeros(X.shape[0]), X)

    runs = []
    for model, args in ((with_offset, (shift, y[:, None] + shift[:, None])), (plain, (y[:, None],))):
        run = MCMC(bnp.PartitionGibbs(model), num_warmup=20, num_samples=30, num_chains=2, progress_bar=False)
        run.run(jax.random.key(0), *args)
        runs.append(run)
    data = bnp.ModelArguments(shift, y[:, None] + shift[:, None])
    new = bnp.ModelArguments(np.array([1.0, -1.0]), np.array([[2.0], [0.0]]))
    draws = [draws_of(runs[0], data), draws_of(runs[1], y[:, None])]
    np.testing.assert_array_equal(draws[0].labels, draws[1].labels)
    np.testing.assert_allclose(log_predictive(draws[0], new), log_predictive(draws[1], [[1.0], [1.0]]), rtol=1e-5)
    both = [
        bnp.cluster_probabilities(runs[0], data, TRUTH, new),
        bnp.cluster_probabilities(runs[1], y[:, None], TRUTH, [[1.0], [1.0]]),
    ]
    np.testing.assert_allclose(both[0], both[1], atol=1e-6)
    np.testing.assert_allclose(draws[0].X, y[:, None])


def test_the_arguments_themselves_may_have_been_run() -> None:
    """JAX knows arrays of live programs by identity: in double precision, it must get others."""
    data = bnp.ModelArguments(x.copy(), y.copy())

    def model(x: Any, y: Any) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, x.shape[0], max_clusters=2))
        slope = jnp.array([2.0, -2.0])
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.StudentT(4.0, slope[z] * x, 0.5), obs=y)

    run = MCMC(bnp.AuxiliaryGibbs(model), num_warmup=2, num_samples=4, progress_bar=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*reached its capacity", category=RuntimeWarning)
        run.run(jax.random.key(0), *data.args)
        wait_for_reports(run.last_state)
    found = bnp.to_arviz(run, data)["log_likelihood"]["y"].values
    np.testing.assert_array_equal(found, bnp.to_arviz(run, bnp.ModelArguments(x, y))["log_likelihood"]["y"].values)
    np.testing.assert_allclose(bnp.cluster_probabilities(run, data, TRUTH, data).sum(1), 1.0)


@pytest.mark.slow
def test_checks_of_models() -> None:
    assert bnp.check_model(reg, bnp.ModelArguments(x, y, 12)) == ()
    (warning,) = bnp.check_model(reg, bnp.ModelArguments(x, 5000 * y, 12))
    assert "data simulated from the prior have a standard deviation of about" in warning and '"y"' in warning
    (warning,) = bnp.check_model(reg, bnp.ModelArguments(x, y + 900, 12))
    assert 'the mean of "y", ' in warning and "is far from that of data simulated from the prior" in warning
    (warning,) = bnp.check_model(reg, bnp.ModelArguments(x, y, 4))
    assert "the prior expects 4 clusters, but there are 4 slots" in warning
    (warning,) = bnp.check_model(reg, bnp.ModelArguments(np.arange(float(N)) / 10 * 10, y, 12))
    assert "column 'x' tells rows apart" in warning


@pytest.mark.filterwarnings("ignore:Out-of-support")
def test_bad_input(run: MCMC) -> None:
    missing = x.copy()
    missing[3] = np.nan
    words = "'x' is missing at row 3: covariates and responses must not be missing here; leave out such rows, or impute them"
    with pytest.raises(ValueError, match=words):
        bnp.check_model(reg, bnp.ModelArguments(missing, y))
    with pytest.raises(ValueError, match=words):
        bnp.cluster_probabilities(run, DATA, TRUTH, bnp.ModelArguments(missing, y))
    with pytest.raises(ValueError, match="'y' is missing at row 3: covariates and responses must not be missing here"):
        check_row_densities(reg, find_slot_sites(reg, (x, y)), (x, np.where(np.isnan(missing), np.nan, y)))
    with pytest.raises(
        ValueError, match=r"fitted to 2 arguments \(x, y\), but the new rows have 1: pass bnp_hier.ModelArguments"
    ):
        bnp.cluster_probabilities(run, DATA, TRUTH, np.column_stack([x, y]))
    with pytest.raises(TypeError, match="the model does not run on .*pass the arguments that the kernel ran on"):
        bnp.loo(run, np.column_stack([x, y]))
    with pytest.raises(ValueError, match="X has 20 rows, but the draws label 40 items"):
        bnp.loo(run, DATA.take(slice(20)))
    with pytest.raises(ValueError, match="expected a table, since estimators are fitted to tables"):
        bnp.loo(bnp.MAPDP(n_init=1).fit(np.column_stack([x, y])), DATA)
