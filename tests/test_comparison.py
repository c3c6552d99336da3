"""One table for all methods."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from numpyro.infer.util import log_density
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import bnp_hier as bnp
from bnp_hier.kernels.reports import wait_for_reports
from bnp_hier.models import dpm
from bnp_hier.posterior.draws import draws_of, log_predictive
from tests.components.user_family import ExponentialGamma

RNG = np.random.default_rng(0)
ALL = RNG.normal(size=(48, 2)) + np.repeat([[0.0], [6.0]], 24, axis=0)
X, Y = ALL[:40], ALL[40:]
TRUTH = np.repeat(["a", "b"], [24, 16])
MODEL = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)


@pytest.fixture(scope="module")
def fits() -> dict:
    kernel = bnp.PartitionGibbs(MODEL)
    mcmc = MCMC(kernel, num_warmup=100, num_samples=150, num_chains=2, chain_method=jax.vmap, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    return {"Gibbs": mcmc, "BHC": bnp.BHC(MODEL).fit(X), "MAP-DP": bnp.MAPDP(MODEL).fit(X)}


def test_table(fits: dict) -> None:
    table = bnp.compare(fits, X, held_out=Y, truth=TRUTH, seconds={"Gibbs": 7.5})
    assert list(table.index) == ["Gibbs", "BHC", "MAP-DP"]
    expected = ["clusters", "log_joint", "log_joint_shared", "log_posterior", "evidence_bound", "bound_kind"]
    expected += [
        "same_hyperparameters",
        "held_out",
        "held_out_se",
        "held_out_diff",
        "held_out_dse",
        "NMI",
        "ARI",
        "NMI Gibbs",
        "NMI BHC",
        "NMI MAP-DP",
        "seconds",
        "rhat",
        "ess",
        "capacity_hits",
    ]
    assert list(table.columns) == expected
    assert (table["clusters"] == 2).all()
    labels = fits["BHC"].labels_
    assert table.loc["BHC", "NMI"] == pytest.approx(normalized_mutual_info_score(TRUTH, labels))
    assert table.loc["BHC", "ARI"] == pytest.approx(adjusted_rand_score(TRUTH, labels))
    assert table.loc["BHC", "log_joint"] == fits["BHC"].log_joint_
    assert table.loc["BHC", "evidence_bound"] == fits["BHC"].log_evidence_bound_ >= table.loc["BHC", "log_joint"]
    assert list(table["bound_kind"]) == ["one partition", "tree", "one partition"]
    scores = fits["MAP-DP"].score_samples(Y)
    assert table.loc["MAP-DP", "held_out"] == pytest.approx(scores.mean())
    assert table.loc["MAP-DP", "held_out_se"] == pytest.approx(scores.std(ddof=1) / np.sqrt(len(Y)))
    scores = log_predictive(draws_of(fits["Gibbs"], X), Y)
    assert table.loc["Gibbs", "held_out"] == pytest.approx(scores.mean())
    all_scores = {name: fits[name].score_samples(Y) for name in ("BHC", "MAP-DP")} | {"Gibbs": scores}
    best = max(all_scores, key=lambda name: all_scores[name].mean())
    for name, each in all_scores.items():
        difference = each - all_scores[best]
        assert table.loc[name, "held_out_diff"] == pytest.approx(difference.mean(), abs=1e-12)
        assert table.loc[name, "held_out_dse"] == pytest.approx(difference.std(ddof=1) / np.sqrt(len(Y)), abs=1e-12)
    # separated groups: every method predicts about equally well
    assert np.ptp(table["held_out"]) < 0.2
    assert table.loc["Gibbs", "seconds"] == 7.5 and 0 < table.loc["BHC", "seconds"] < 600
    assert table.loc["Gibbs", "rhat"] < 1.2 and table.loc["Gibbs", "ess"] > 10
    assert table.loc["Gibbs", "capacity_hits"] == 0
    assert table.loc[["BHC", "MAP-DP"], "rhat"].isna().all()
    for a in fits:
        assert table.loc[a, f"NMI {a}"] == pytest.approx(1.0)


def test_bounds_at_different_hyperparameters_are_marked() -> None:
    learned = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    first, other = bnp.MAPDP(learned).fit(X), bnp.BHC(learned, optimize=False).fit(X)
    table = bnp.compare({"MAP-DP": first, "BHC": other, "again": bnp.BHC(learned, optimize=first.hyperparameters_).fit(X)}, X)
    assert list(table["same_hyperparameters"]) == [True, False, True]
    assert table.loc["BHC", "log_joint_shared"] != table.loc["BHC", "log_joint"]
    assert table.loc["again", "log_joint_shared"] == pytest.approx(table.loc["again", "log_joint"], abs=1e-6)
    # α that maximises the posterior of the partition, by a search in one dimension
    labels = first.labels_
    sizes = np.bincount(labels)
    fixed = first.log_joint_ - _log_crp(first.hyperparameters_["alpha"], sizes)

    def loss(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        return -(fixed + _log_crp(alpha, sizes) - alpha)  # with the density of Gamma(1, 1)

    assert table.loc["MAP-DP", "log_posterior"] == pytest.approx(-minimize_scalar(loss).fun, abs=1e-4)
    np.testing.assert_array_equal(other.labels_, labels)  # from other hyperparameters to the same maximum
    assert table.loc["BHC", "log_posterior"] == pytest.approx(table.loc["MAP-DP", "log_posterior"], abs=1e-4)


def _log_crp(alpha: float, sizes: np.ndarray) -> float:
    """Log probability of a partition under the Chinese restaurant process."""
    return float(len(sizes) * np.log(alpha) + gammaln(sizes).sum() + gammaln(alpha) - gammaln(alpha + sizes.sum()))


def test_hyperparameters_in_small_units_differ_as_in_any_other() -> None:
    """Variances of 1e-12 and 1e-11, as of nanometres in metres, are not the same."""

    def model(rows: Any) -> None:
        variance = numpyro.sample("variance", dist.LogNormal(np.log(1e-12), 1.0))
        component = bnp.NormalKnownCovariance(np.zeros(2), 1e-10 * np.eye(2), variance * jnp.eye(2))
        dpm(rows, component, 1.0)

    rows = X * 1e-6
    first, other = (bnp.MAPDP(model, optimize={"variance": variance}).fit(rows) for variance in (1e-12, 1e-11))
    table = bnp.compare({"first": first, "other": other}, rows)
    assert list(table["same_hyperparameters"]) == [True, False]
    assert abs(table.loc["other", "log_joint_shared"] - table.loc["other", "log_joint"]) > 1.0


def test_a_single_held_out_row_has_no_standard_error(fits: dict) -> None:
    table = bnp.compare({"BHC": fits["BHC"]}, X, held_out=Y[:1])
    assert table.loc["BHC", "held_out"] == fits["BHC"].score_samples(Y[:1])[0] and table.loc["BHC", "held_out_diff"] == 0
    assert np.isnan(table.loc["BHC", ["held_out_se", "held_out_dse"]].astype(float)).all()


def test_optional_columns_are_left_out(fits: dict) -> None:
    table = bnp.compare({"BHC": fits["BHC"]}, X)
    assert not {"held_out", "NMI", "ARI"} & set(table.columns)


@pytest.mark.slow
def test_capacity_hits_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = bnp.PartitionGibbs(partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False)), max_clusters=1)
    mcmc = MCMC(kernel, num_warmup=2, num_samples=20, progress_bar=False)
    with pytest.warns(RuntimeWarning, match="reached its capacity of 1 clusters"):
        mcmc.run(jax.random.key(0), X)
        wait_for_reports(mcmc.last_state)
    with pytest.warns(RuntimeWarning, match="One reached its capacity .* raise PartitionGibbs"):
        table = bnp.compare({"One": mcmc}, X)
    assert table.loc["One", "capacity_hits"] > 0
    assert np.isnan(table.loc["One", "rhat"])


@pytest.mark.slow
def test_a_users_own_family_runs_on_every_method() -> None:
    rng = np.random.default_rng(1)
    waits = rng.exponential(np.repeat([[0.1], [5.0]], 15, axis=0), size=(30, 2))
    model = partial(dpm, component=ExponentialGamma(np.full(2, 1.0), np.full(2, 1.0)), concentration=dist.Gamma(1.0, 1.0))
    kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=50, num_samples=50, progress_bar=False)
    mcmc.run(jax.random.key(0), waits)
    fits = {"Gibbs": mcmc, "BHC": bnp.BHC(model).fit(waits), "MAP-DP": bnp.MAPDP(model).fit(waits)}
    table = bnp.compare(fits, waits, held_out=waits[:3] * 1.1, truth=np.repeat([0, 1], 15))
    assert np.isfinite(table[["log_joint", "evidence_bound", "held_out"]].to_numpy(float)).all()
    assert (table["NMI"] > 0.5).all()
    assert table.loc["BHC", "evidence_bound"] >= table.loc["MAP-DP", "log_joint"] - 5.0
    assert bnp.evidence.exact(model, waits[10:20]) >= bnp.BHC(model).fit(waits[10:20]).log_evidence_bound_ - 1e-9


def test_bad_input(fits: dict) -> None:
    with pytest.raises(ValueError, match="needs at least one fit"):
        bnp.compare({}, X)
    with pytest.raises(ValueError, match="seconds has run times of MAPDP, but the fits are "):
        bnp.compare(fits, X, seconds={"MAPDP": 1.0})
    with pytest.raises(ValueError, match=r"truth\['b'\] must have one class per row, shape \(40,\), but it has shape \(3,\)"):
        bnp.compare(fits, X, truth={"a": np.zeros(40), "b": np.zeros(3)})
    with pytest.raises(ValueError, match=r"truth must have one class per row, shape \(40,\)"):
        bnp.compare(fits, X, truth=TRUTH[:3])
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match="truth must have one class per row, but that of row 24 is missing"):
            bnp.compare(fits, X, truth=["a"] * 24 + [missing] + ["b"] * 15)
    with pytest.raises(ValueError, match="X has 3 features"):
        bnp.compare({"BHC": fits["BHC"]}, X, held_out=np.zeros((2, 3)))
    with pytest.raises(TypeError, match="expected an MCMC object or a fitted bnp_hier estimator"):
        bnp.compare({"x": object()}, X)


@pytest.mark.slow
def test_worst_diagnostics_are_those_of_the_hyperparameters_too() -> None:
    """α drawn far slower than the partition: the worst of its R-hat and the summaries' is shown, as `diagnostics` has it."""
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    nuts = NUTS(model, step_size=0.05, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=1)
    kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (nuts, None)])
    mcmc = MCMC(kernel, num_warmup=20, num_samples=50, num_chains=2, chain_method=jax.vmap, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    chains = bnp.diagnostics(bnp.to_arviz(mcmc, X))
    assert chains["rhat"].idxmax() == "alpha" == chains["ess_bulk"].idxmin()
    table = bnp.compare({"Gibbs": mcmc}, X)
    assert table.loc["Gibbs", "rhat"] == pytest.approx(chains["rhat"].max())
    assert table.loc["Gibbs", "ess"] == pytest.approx(chains[["ess_bulk", "ess_tail"]].min(axis=None))


def test_summaries_of_the_same_draws_are_computed_once(fits: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    from bnp_hier.posterior import draws as module

    calls: list[int] = []
    real = module.map_draws
    monkeypatch.setattr(module, "map_draws", lambda *arguments: (calls.append(1), real(*arguments))[1])
    several = module.draws_of(fits["BHC"], X, num_samples=150)
    fewer = several._replace(labels=several.labels[:, ::2])
    with module.shared_summaries():
        first, second, other = (module.summaries(each) for each in (several, several, fewer))
    alone = module.summaries(several)
    assert len(calls) == 3
    np.testing.assert_array_equal(first.log_joint, second.log_joint)
    np.testing.assert_array_equal(first.log_joint, alone.log_joint)
    np.testing.assert_allclose(other.log_joint, alone.log_joint[:, ::2], rtol=1e-12)


@pytest.mark.slow
def test_shared_log_joints_are_at_the_hyperparameters_of_the_first_estimator() -> None:
    """Against the model's own density, by NumPyro, at α and the partition of each method."""
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=20, num_samples=30, num_chains=1, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    fits = {"Gibbs": mcmc, "tuned": bnp.MAPDP(model, optimize=True).fit(X), "MAP-DP": bnp.MAPDP(model, optimize=False).fit(X)}
    fits["other model"] = bnp.MAPDP(MODEL).fit(X)
    table = bnp.compare(fits, X)
    alpha = fits["tuned"].hyperparameters_["alpha"]
    assert alpha != pytest.approx(fits["MAP-DP"].hyperparameters_["alpha"], rel=0.01)
    labels = {name: fit.labels_ for name, fit in fits.items() if name != "Gibbs"}
    labels["Gibbs"] = bnp.point_estimate(mcmc.get_samples()["z"])
    for name in ("Gibbs", "tuned", "MAP-DP"):
        with jax.enable_x64(True):
            fixed = partial(dpm, component=model.keywords["component"], concentration=float(alpha))
            log_joint, _ = log_density(fixed, (X,), {}, {"z": jnp.asarray(labels[name])})
        assert table.loc[name, "log_joint_shared"] == pytest.approx(float(log_joint), abs=1e-6)
    assert table.loc["tuned", "log_joint_shared"] == pytest.approx(table.loc["tuned", "log_joint"])
    assert np.isnan(table.loc["other model", "log_joint_shared"]) and np.isfinite(table.loc["other model", "log_joint"])


def test_chains_alone_share_the_medians_of_the_first() -> None:
    mcmc = MCMC(bnp.PartitionGibbs(MODEL), num_warmup=5, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    table = bnp.compare({"Gibbs": mcmc}, X)
    assert table.loc["Gibbs", "log_joint_shared"] == pytest.approx(table.loc["Gibbs", "log_joint"])
