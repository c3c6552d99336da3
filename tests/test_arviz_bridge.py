"""Every method in ArviZ's form; also run under Python 3.12 or later, where ArviZ is 1.x."""

from __future__ import annotations

from functools import partial

import arviz as az
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from sklearn.exceptions import NotFittedError

from bnp_hier import BHC, MAPDP, NormalInverseGamma, NormalInverseWishart, PartitionGibbs, diagnostics, to_arviz
from bnp_hier.models import dpm, pitman_yor_mixture
from bnp_hier.posterior.convergence import LABEL_INVARIANT
from bnp_hier.posterior.draws import draws_of, log_predictive, summaries
from tests.oracles.partitions import Enumeration, log_crp, log_prior

X = np.random.default_rng(0).normal(size=(14, 2)) + np.repeat([[0.0], [5.0]], 7, axis=0)
COMPONENT = NormalInverseWishart.from_data(X, learn=False)
MODEL = partial(dpm, component=COMPONENT, concentration=dist.Gamma(1.0, 1.0))


@pytest.fixture(scope="module")
def mcmc() -> MCMC:
    kernel = Gibbs([(PartitionGibbs(MODEL), ["z"]), (NUTS(MODEL), None)])
    mcmc = MCMC(kernel, num_warmup=50, num_samples=40, num_chains=2, chain_method=jax.vmap, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    return mcmc


def _groups(data) -> set[str]:
    return {name.strip("/") for name in (data.groups() if callable(data.groups) else data.groups)} - {""}


@pytest.mark.slow
def test_same_groups_and_names_for_every_method(mcmc: MCMC) -> None:
    fits = {"mcmc": mcmc, "bhc": BHC(MODEL).fit(X), "map_dp": MAPDP(MODEL).fit(X)}
    shapes = {"mcmc": (2, 40), "bhc": (1, 25), "map_dp": (1, 1)}
    for name, fit in fits.items():
        data = to_arviz(fit, X, num_samples=25)
        assert type(data).__name__ == ("InferenceData" if az.__version__.startswith("0.") else "DataTree")
        assert _groups(data) == {"posterior", "log_likelihood", "observed_data"}
        posterior = data["posterior"]
        assert set(posterior.data_vars) == {"alpha", "z", "n_large_clusters", *LABEL_INVARIANT}
        assert posterior["z"].dims == ("chain", "draw", "item") and posterior["z"].shape == (*shapes[name], 14)
        assert data["log_likelihood"]["X"].dims == ("chain", "draw", "item")
        assert data["log_likelihood"]["X"].shape == (*shapes[name], 14)
        np.testing.assert_array_equal(data["observed_data"]["X"].values, X)
        for variable in ("alpha", *LABEL_INVARIANT):
            assert posterior[variable].shape == shapes[name]
            assert np.isfinite(posterior[variable].values).all()


@pytest.mark.slow
def test_draws_are_those_of_the_run(mcmc: MCMC) -> None:
    posterior = to_arviz(mcmc, X)["posterior"]
    samples = mcmc.get_samples(group_by_chain=True)
    np.testing.assert_array_equal(posterior["z"].values, samples["z"])
    np.testing.assert_allclose(posterior["alpha"].values, samples["alpha"])
    z = posterior["z"].values
    np.testing.assert_array_equal(posterior["n_clusters"].values, z.max(-1) + 1)
    for chain, draw in ((0, 3), (1, 17)):
        shares = np.bincount(z[chain, draw]) / 14
        assert posterior["largest_cluster"].values[chain, draw] == np.bincount(z[chain, draw]).max()
        np.testing.assert_allclose(posterior["entropy"].values[chain, draw], -(shares * np.log(shares)).sum(), atol=1e-12)


def _log_joint(labels: np.ndarray, rows: list[int], alpha: float, component) -> float:
    members = [[i for i, z in zip(rows, labels[rows], strict=True) if z == k] for k in np.unique(labels[rows])]
    return log_crp([len(m) for m in members], alpha) + sum(component.log_evidence(X[m]) for m in members)


@pytest.mark.slow
def test_log_joint_and_log_likelihood_from_first_principles(mcmc: MCMC) -> None:
    """p(x_i | z_-i, x_-i) is the joint summed over the label of i, over the joint without i."""
    data = to_arviz(mcmc, X)
    for chain, draw in ((0, 0), (1, 39)):
        z = data["posterior"]["z"].values[chain, draw]
        alpha = float(data["posterior"]["alpha"].values[chain, draw])
        everything = list(range(14))
        joint = _log_joint(z, everything, alpha, COMPONENT)
        np.testing.assert_allclose(data["posterior"]["log_joint"].values[chain, draw], joint, rtol=1e-10)
        for i in (0, 8, 13):
            others = [j for j in everything if j != i]
            seats = [*np.unique(z[others]), 99]
            moved = [np.where(np.arange(14) == i, seat, z) for seat in seats]
            total = np.logaddexp.reduce([_log_joint(m, everything, alpha, COMPONENT) for m in moved])
            expected = total - _log_joint(z, others, alpha, COMPONENT)
            np.testing.assert_allclose(data["log_likelihood"]["X"].values[chain, draw, i], expected, rtol=1e-9)


@pytest.mark.slow
def test_log_likelihood_with_discount_and_missing_cells() -> None:
    holes = X.copy()
    holes[3, 1] = holes[9, 0] = np.nan
    component = NormalInverseGamma.from_data(holes, learn=False)
    model = partial(pitman_yor_mixture, component=component, concentration=0.8, discount=0.3)
    fit = MAPDP(model).fit(holes)
    values = summaries(draws_of(fit, holes))
    z, rows = fit.labels_, list(range(14))

    def joint(labels: np.ndarray, rows: list[int]) -> float:
        canonical = tuple(np.unique(labels[rows], return_inverse=True)[1])
        order = {k: r for r, k in enumerate(dict.fromkeys(canonical))}
        partition = tuple(order[k] for k in canonical)
        blocks = [[i for i, p in zip(rows, partition, strict=True) if p == k] for k in set(partition)]
        return log_prior(partition, 0.8, 0.3) + sum(component.log_evidence(holes[b]) for b in blocks)

    np.testing.assert_allclose(values.log_joint[0, 0], joint(z, rows), rtol=1e-10)
    np.testing.assert_allclose(fit.log_joint_, joint(z, rows), rtol=1e-10)
    for i in (3, 5):
        others = [j for j in rows if j != i]
        total = [joint(np.where(np.arange(14) == i, seat, z), rows) for seat in [*np.unique(z[others]), 99]]
        expected = np.logaddexp.reduce(total) - joint(z, others)
        np.testing.assert_allclose(values.log_likelihood[0, 0, i], expected, rtol=1e-9)


@pytest.mark.slow
def test_log_predictive_averages_the_draws_densities() -> None:
    """With all partitions of five rows as draws, weighted by drawing them often, it tends to the exact predictive."""
    small, new = X[4:9], np.array([[1.0, 0.5], [5.0, 6.0]])
    component = NormalInverseWishart(small.mean(0), 0.3, 4.0, np.eye(2))
    exact = Enumeration(5, lambda rows: component.log_evidence(small[rows]), 1.0)
    # every partition is drawn in proportion to its probability, up to rounding
    counts = np.round(exact.probabilities * 20_000).astype(int)
    labels = np.repeat(np.array(exact.labels), counts, axis=0)[None]
    fit = MAPDP(partial(dpm, component=component, concentration=1.0)).fit(small)
    draws = draws_of(fit, small)._replace(labels=labels)
    for row, score in zip(new, log_predictive(draws, new), strict=True):
        both = np.concatenate([small, row[None]])
        larger = Enumeration(6, lambda rows, both=both: component.log_evidence(both[rows]), 1.0)
        np.testing.assert_allclose(score, larger.log_evidence - exact.log_evidence, atol=5e-3)


def test_diagnostics_of_label_invariant_variables(mcmc: MCMC) -> None:
    data = to_arviz(mcmc, X)
    table = diagnostics(data)
    assert set(table.index) == {"alpha", "n_large_clusters", *LABEL_INVARIANT}
    for name in table.index:
        draws = data["posterior"][name].values.astype(float)
        if np.ptp(draws) > 0:
            expected = [az.rhat(draws), az.ess(draws), az.ess(draws, method="tail", prob=(0.05, 0.95))]
            np.testing.assert_allclose(table.loc[name], expected)
    assert table.loc["alpha"].notna().all() and 0.9 < table.loc["alpha", "rhat"] < 2.0
    assert diagnostics(to_arviz(MAPDP(MODEL).fit(X), X)).isna().all(axis=None)
    with pytest.warns(RuntimeWarning, match="z: these values depend on the cluster labels"):
        assert len(diagnostics(data, ["z", "log_joint"])) == 15


@pytest.mark.slow  # ArviZ 1.x takes seconds to import its plots
def test_arviz_draws_rank_plots(mcmc: MCMC) -> None:
    assert az.plot_rank(to_arviz(mcmc, X), var_names=["alpha", "log_joint", "n_clusters"]) is not None
    plt.close("all")


def test_replicated_data(mcmc: MCMC) -> None:
    """Replicates repeat the two groups 5 apart: each row's mean over 80 draws is near its group's, far from the other's."""
    data = to_arviz(mcmc, X, posterior_predictive=True)
    assert _groups(data) == {"posterior", "log_likelihood", "observed_data", "posterior_predictive"}
    table = data["posterior_predictive"]["X"]
    assert table.dims == ("chain", "draw", "item", "feature") and table.shape == (2, 40, 14, 2)
    close = np.abs(table.values.mean((0, 1)) - np.repeat([[0.0], [5.0]], 7, axis=0))
    assert close.max() < 1.5


def test_names_of_items_and_features_and_few_replicates(mcmc: MCMC, tmp_path) -> None:
    items = [f"row {i}" for i in range(14)]
    data = to_arviz(mcmc, X, posterior_predictive=3, feature_names=("width", "length"), item_names=items)
    for group, variable in (("observed_data", "X"), ("posterior_predictive", "X"), ("posterior", "z"), ("log_likelihood", "X")):
        assert data[group][variable]["item"].values.tolist() == items
    table = data["posterior_predictive"]["X"]
    assert table["feature"].values.tolist() == ["width", "length"]
    assert table["draw"].values.tolist() == [0, 20, 39] and table.shape == (2, 3, 14, 2)
    assert data["observed_data"]["X"].sel(item="row 3", feature="length").item() == X[3, 1]
    data.to_netcdf(str(tmp_path / "run.nc"), engine="h5netcdf")
    again = az.from_netcdf(str(tmp_path / "run.nc"))
    assert again["observed_data"]["feature"].values.tolist() == ["width", "length"]


def test_file_round_trip(mcmc: MCMC, tmp_path) -> None:
    data = to_arviz(mcmc, X)
    data.to_netcdf(str(tmp_path / "run.nc"), engine="h5netcdf")
    again = az.from_netcdf(str(tmp_path / "run.nc"))
    np.testing.assert_array_equal(again["posterior"]["z"].values, data["posterior"]["z"].values)


def test_bad_input(mcmc: MCMC) -> None:
    with pytest.raises(ValueError, match="X has 13 rows, but the draws label 14 items|partition has"):
        to_arviz(mcmc, X[:13])
    with pytest.raises(ValueError, match="X has 13 rows, but the estimator was fitted to 14"):
        to_arviz(MAPDP(MODEL).fit(X), X[:13])
    for options, message in (
        ({"feature_names": ["a"]}, r"feature_names must contain one name for each of the 2 columns of X, but it is \['a'\]"),
        ({"feature_names": "ab"}, "feature_names must contain one name for each of the 2 columns of X, but it is 'ab'"),
        ({"item_names": range(15)}, "item_names must contain one name for each of the 14 rows of X"),
        ({"posterior_predictive": 41}, "posterior_predictive must be True, False or a whole number from 0 to 40, the number"),
        ({"posterior_predictive": 0.5}, "a whole number from 0 to 40, the number of draws per chain, but it is 0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            to_arviz(mcmc, X, **options)
    with pytest.raises(NotFittedError):
        to_arviz(BHC(MODEL), X)
    with pytest.raises(TypeError, match="expected an MCMC object or a fitted bnp_hier estimator, but got str"):
        to_arviz("fit", X)
    with pytest.raises(ValueError, match="has no draws: call its run method"):
        to_arviz(MCMC(PartitionGibbs(MODEL), num_warmup=1, num_samples=1), X)
