"""Draws of models whose clusters' parameters are sites: recovered labels, log joints, and densities with labels summed out."""

from __future__ import annotations

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, BarkerMH, CustomGibbs, Gibbs
from scipy.special import gammaln, logsumexp
from scipy.stats import norm, t

import bnp_hier as bnp
from bnp_hier.arviz_bridge import LABEL_INVARIANT
from bnp_hier.inspection.model_arguments import as_arguments
from bnp_hier.inspection.slots import find_slot_sites
from bnp_hier.inspection.sticks import find_stick_sites
from bnp_hier.models import dpm, dpm_stick_breaking
from bnp_hier.posterior.draws import Draws, draws_of, log_predictive, summaries
from bnp_hier.posterior.explicit_mixtures import SlotMixture, StickMixture
from tests.oracles.monte_carlo import effective_draws
from tests.oracles.partitions import Enumeration, log_crp, log_prior

N, SLOTS, ALPHA = 6, 6, 0.8
RNG = np.random.default_rng(1)
X = np.concatenate([RNG.normal(0.0, 1.0, (3, 1)), RNG.normal(2.0, 1.0, (3, 1))])
NEW = np.array([[0.3], [2.5], [-4.0]])


def slot_model(table: jax.Array) -> None:
    """Normal clusters of variance 1, means of variance 4, as a user writes them."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, len(table), max_clusters=SLOTS))
    with numpyro.plate("clusters", SLOTS):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", len(table)):
        numpyro.sample("y", dist.Normal(loc[z], 1.0), obs=table[:, 0])


def exact_means(rng_key: jax.Array, gibbs_sites: dict, hmc_sites: dict) -> dict:
    z = hmc_sites["z"]
    precision = 0.25 + jax.ops.segment_sum(jnp.ones(N), z, SLOTS)
    mean = jax.ops.segment_sum(jnp.asarray(X[:, 0], jnp.float32), z, SLOTS) / precision
    return {"loc": mean + jax.random.normal(rng_key, (SLOTS,)) / jnp.sqrt(precision)}


@pytest.fixture(scope="module")
def slots_run() -> MCMC:
    kernel = Gibbs([(bnp.AuxiliaryGibbs(slot_model), ["z"]), (CustomGibbs(exact_means), ["loc"])])
    mcmc = MCMC(kernel, num_warmup=100, num_samples=8000, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    return mcmc


def _log_slots(z: np.ndarray, rows: list[int]) -> float:
    """log p(labels) = log p(partition) + log (K − c)!/K!, from the chain rule."""
    order = {label: rank for rank, label in enumerate(dict.fromkeys(z[rows]))}
    partition = tuple(order[label] for label in z[rows])
    return log_prior(partition, ALPHA) + gammaln(SLOTS - len(order) + 1) - gammaln(SLOTS + 1)


def _some(draws: Draws, which: slice) -> Draws:
    return draws._replace(
        labels=draws.labels[:, which], hyperparameters={k: v[:, which] for k, v in draws.hyperparameters.items()}
    )


@pytest.mark.slow
def test_slots_from_first_principles(slots_run: MCMC) -> None:
    """The density of a row sums the joint over the row's slot, over the prior of the other labels."""
    draws = draws_of(slots_run, X)
    assert (draws.partition, draws.observed, draws.labels.shape) == ("z", "y", (1, 8000, N))
    few = draws._replace(labels=draws.labels[:, :64], hyperparameters={k: v[:, :64] for k, v in draws.hyperparameters.items()})
    values = summaries(few)
    everything = list(range(N))
    predictive = np.zeros((64, len(NEW)))
    for draw in range(64):
        z, loc = few.labels[0, draw], few.hyperparameters["loc"][0, draw]
        density = norm.logpdf(X, loc)
        order = {label: rank for rank, label in enumerate(dict.fromkeys(z))}
        partition = log_prior(tuple(order[label] for label in z), ALPHA)
        np.testing.assert_allclose(values.log_joint[0, draw], partition + density[np.arange(N), z].sum(), rtol=1e-9)
        assert values.n_clusters[0, draw] == len(order)
        for i in (0, 5):
            others = [j for j in everything if j != i]
            moved = [np.where(np.arange(N) == i, slot, z) for slot in range(SLOTS)]
            total = logsumexp([_log_slots(m, everything) + density[i, slot] for slot, m in enumerate(moved)])
            np.testing.assert_allclose(values.log_likelihood[0, draw, i], total - _log_slots(z, others), rtol=1e-9)
        longer = [np.append(z, slot) for slot in range(SLOTS)]
        seats = np.array([_log_slots(m, [*everything, N]) for m in longer]) - _log_slots(z, everything)
        predictive[draw] = logsumexp(seats + norm.logpdf(NEW, loc), axis=1)
    np.testing.assert_allclose(log_predictive(few, NEW), logsumexp(predictive, axis=0) - np.log(64), rtol=1e-9)
    # one new row alone is scored as among others
    np.testing.assert_allclose(log_predictive(few, NEW[:1]), log_predictive(few, NEW)[:1], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:compare_models, one. (the chains|a Monte Carlo|a Pareto)")
def test_a_single_chain_cannot_show_that_it_has_mixed(slots_run: MCMC) -> None:
    with pytest.warns(RuntimeWarning, match="compare_models, one: there is only one chain.*R-hat compares chains; run several"):
        assert bnp.compare_models({"one": slots_run}, X).loc["one", "warning"]


@pytest.mark.slow
def test_slots_densities_are_the_exact_ones(slots_run: MCMC) -> None:
    """Predictive and leave-one-out densities of 8000 draws against enumeration of the collapsed model.

    Five Monte Carlo standard errors for each of nine numbers: false-alarm rate below 1e-5. Restricted to six clusters, seven
    items lose a prior mass of less than 1e-3.
    """
    component = bnp.NormalKnownCovariance(np.zeros(1), 4.0 * np.eye(1), np.eye(1))

    def evidence(table: np.ndarray) -> float:
        return Enumeration(len(table), lambda rows: component.log_evidence(table[rows]), ALPHA).log_evidence

    draws = draws_of(slots_run, X)
    pointwise = summaries(draws).log_likelihood[0]
    with jax.enable_x64(True):
        scores = jax.jit(jax.vmap(lambda z, values: draws.mixture.log_predictive(z, values, SLOTS, as_arguments(NEW))))
        densities = np.exp(scores(draws.labels[0], {"loc": draws.hyperparameters["loc"][0]}))
    for row, series in zip(NEW, densities.T, strict=True):
        exact = np.exp(evidence(np.concatenate([X, row[None]])) - evidence(X))
        error = series.std() / np.sqrt(effective_draws(series))
        assert error < 0.05 * exact
        assert abs(series.mean() - exact) < 5 * error + 2e-3 * exact, (row, series.mean(), exact, error)
    for i in range(N):
        weight = np.exp(-pointwise[:, i])
        error = weight.std() / weight.mean() / np.sqrt(effective_draws(weight))
        exact = evidence(X) - evidence(np.delete(X, i, axis=0))
        assert error < 0.05
        assert abs(-np.log(weight.mean()) - exact) < 5 * error + 2e-3, (i, -np.log(weight.mean()), exact, error)


COMPONENT = bnp.NormalInverseGamma(np.zeros(2), 0.5, 3.0, 1.0)
TABLE = RNG.normal(size=(8, 2)) + np.repeat([[0.0], [2.0]], 4, axis=0)
STICKS = partial(dpm_stick_breaking, component=COMPONENT, concentration=dist.Gamma(2.0, 1.0), truncation=4)


@pytest.fixture(scope="module")
def sticks_run() -> MCMC:
    """Any kernel on the model will do; this one is quick to compile."""
    mcmc = MCMC(BarkerMH(STICKS), num_warmup=20, num_samples=30, num_chains=2, progress_bar=False)
    mcmc.run(jax.random.key(0), TABLE)
    return mcmc


def _log_terms(draws: Draws, chain: int, draw: int, rows: np.ndarray) -> np.ndarray:
    """log w_k f(x|θ_k), (rows, k)."""
    weights = draws.hyperparameters["weights"][chain, draw]
    parameters = draws.hyperparameters["parameters"][chain, draw]
    densities = [norm.logpdf(rows, mean, np.sqrt(variance)).sum(1) for mean, variance in parameters]
    return np.log(weights / weights.sum()) + np.column_stack(densities)


@pytest.mark.slow
def test_sticks_from_first_principles(sticks_run: MCMC) -> None:
    """The log joint is the collapsed model's; the other densities sum over all sticks."""
    draws = draws_of(sticks_run, TABLE)
    values = summaries(draws)
    assert (draws.partition, draws.observed, draws.labels.shape) == ("z", "X", (2, 30, 8))
    for chain, draw in ((0, 4), (1, 29)):
        z, alpha = draws.labels[chain, draw], draws.hyperparameters["alpha"][chain, draw]
        members = [np.flatnonzero(z == k) for k in np.unique(z)]
        joint = log_crp([len(m) for m in members], alpha) + sum(COMPONENT.log_evidence(TABLE[m]) for m in members)
        np.testing.assert_allclose(values.log_joint[chain, draw], joint, rtol=1e-9)
        expected = logsumexp(_log_terms(draws, chain, draw, TABLE), axis=1)
        np.testing.assert_allclose(values.log_likelihood[chain, draw], expected, rtol=1e-6)
    new = TABLE[:3] + 0.5
    scores = [logsumexp(_log_terms(draws, c, d, new), axis=1) for c in range(2) for d in range(30)]
    np.testing.assert_allclose(log_predictive(draws, new), logsumexp(scores, axis=0) - np.log(60), rtol=1e-6)


@pytest.mark.slow
def test_recovered_labels_have_the_right_frequencies(sticks_run: MCMC) -> None:
    """20,000 label vectors at one draw of weights and parameters.

    8 rows, 4 sticks, every frequency within five standard errors: false-alarm rate below 2e-5. Labels of two rows are
    independent given the draw.
    """
    draws = draws_of(sticks_run, TABLE)
    values = {name: value[0, 7] for name, value in draws.hyperparameters.items()}
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(5), 20_000)
        z = np.asarray(jax.jit(jax.vmap(lambda key: draws.mixture.draw_labels(key, values)))(keys))
    terms = _log_terms(draws, 0, 7, TABLE)
    expected = np.exp(terms - logsumexp(terms, axis=1, keepdims=True))
    observed = (z[:, :, None] == np.arange(4)).mean(0)
    error = np.sqrt(expected * (1 - expected) / 20_000)
    assert (np.abs(observed - expected) < 5 * error + 1e-6).all()
    assert ((expected > 0.02) & (expected < 0.98)).any(1).sum() >= 2  # there is something to draw
    pair = (z[:, 0] == z[:, 1]).mean()
    share = expected[0] @ expected[1]
    assert abs(pair - share) < 5 * np.sqrt(share * (1 - share) / 20_000) + 1e-6


def test_recover_labels(sticks_run: MCMC, slots_run: MCMC) -> None:
    labels = bnp.recover_labels(sticks_run, TABLE, random_state=3)
    assert labels.shape == (2, 30, 8) and np.issubdtype(labels.dtype, np.integer) and set(labels.flat) <= set(range(4))
    np.testing.assert_array_equal(labels, bnp.recover_labels(sticks_run, TABLE, random_state=jax.random.key(3)))
    np.testing.assert_array_equal(labels, draws_of(sticks_run, TABLE, random_state=3).labels)
    assert (labels != bnp.recover_labels(sticks_run, TABLE)).any()
    resumable = bnp.ResumableRun.from_parts(bnp.ResumableRun.parts_of(sticks_run, TABLE))
    np.testing.assert_array_equal(labels, bnp.recover_labels(resumable, TABLE, random_state=3))
    with pytest.raises(ValueError, match='nothing to recover: the draws already contain the labels, at the site "z"'):
        bnp.recover_labels(slots_run, X)
    with pytest.raises(TypeError, match="expected an MCMC object, but got str"):
        bnp.recover_labels("fit", X)
    with pytest.raises(TypeError, match="random_state must be a whole number or a JAX random key"):
        bnp.recover_labels(sticks_run, TABLE, random_state="seed")


@pytest.mark.slow
def test_arviz_and_comparison(sticks_run: MCMC, slots_run: MCMC) -> None:
    data = bnp.to_arviz(sticks_run, TABLE)
    assert set(data["posterior"].data_vars) == {"alpha", "weights", "parameters", "z", "n_large_clusters", *LABEL_INVARIANT}
    assert data["posterior"]["parameters"].shape == (2, 30, 4, 2, 2) and data["log_likelihood"]["X"].shape == (2, 30, 8)
    with warnings.catch_warnings():  # thirty draws are too few, and it says so
        warnings.filterwarnings("ignore", message="loo:")
        result = bnp.loo(sticks_run, TABLE)
    assert np.isfinite(result["elpd_loo"] if "elpd_loo" in dir(result) else result.elpd)
    data = bnp.to_arviz(slots_run, X)
    assert set(data["posterior"].data_vars) == {"loc", "z", "n_large_clusters", *LABEL_INVARIANT}
    assert data["posterior"]["loc"].dims == ("chain", "draw", "cluster")
    assert set(bnp.diagnostics(data).index) == {
        "n_large_clusters",
        *LABEL_INVARIANT,
    }  # the clusters' parameters change names with them
    table = bnp.compare({"sticks": sticks_run}, TABLE, held_out=TABLE[:2] + 0.1)
    assert np.isfinite(table[["log_joint", "evidence_bound", "held_out"]].to_numpy(float)).all()
    assert table.loc["sticks", "rhat"] > 0  # infinite if a summary is the same in all thirty draws of each chain
    assert table.loc["sticks", "bound_kind"] == "one partition"
    table = bnp.compare({"slots": slots_run}, X, held_out=NEW)
    assert table.loc["slots", "bound_kind"] == "none" and np.isnan(table.loc["slots", "log_joint"])
    assert table.loc["slots", "held_out"] == pytest.approx(log_predictive(draws_of(slots_run, X), NEW).mean())
    assert 1 <= table.loc["slots", "clusters"] <= SLOTS and table.loc["slots", "capacity_hits"] == 0


def centred_model(table: jax.Array) -> None:
    """The likelihood reads the mean of whatever rows it is given."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, len(table), max_clusters=SLOTS))
    with numpyro.plate("clusters", SLOTS):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", len(table)):
        numpyro.sample("y", dist.Normal(loc[z] + table.mean(), 1.0), obs=table[:, 0])


def fixed_size_model(table: jax.Array) -> None:
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, N, max_clusters=SLOTS))
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0).expand([SLOTS]))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Normal(loc[z], 1.0), obs=table[:, 0])


def latent_rows_model(table: jax.Array) -> None:
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, len(table), max_clusters=SLOTS))
    loc = numpyro.sample("loc", dist.Normal(0.0, 2.0).expand([SLOTS]))
    with numpyro.plate("rows", len(table)):
        true = numpyro.sample("true", dist.Normal(loc[z], 1.0))
        numpyro.sample("y", dist.Normal(true, 1.0), obs=table[:, 0])
        numpyro.sample("label", dist.Normal(z, 1.0), obs=table[:, 0])


def test_bad_input(sticks_run: MCMC) -> None:
    with pytest.raises(ValueError, match="X has 3 columns"):
        log_predictive(draws_of(sticks_run, TABLE), np.zeros((2, 3)))
    start = {"loc": np.zeros((1, 1, SLOTS))}
    for model, new, match in (
        (centred_model, NEW, "log density of a row depends on the other rows, so new rows cannot be scored"),
        (fixed_size_model, NEW, r"does not run on half of the fitted rows, shape \(3, 1\)"),
        (slot_model, np.zeros((2, 2)), "X has 2 columns, but the model was fitted to 1"),
    ):
        mixture = SlotMixture(model, as_arguments(X), find_slot_sites(model, (X,)))
        with pytest.raises(ValueError, match=match):
            log_predictive(Draws(np.zeros((1, 1, N), int), start, mixture), new)
    with pytest.raises(ValueError, match=r"latent sites \['true'\] depend on the labels"):
        SlotMixture(latent_rows_model, as_arguments(X), find_slot_sites(latent_rows_model, (X,)))


def student_sticks(table: jax.Array) -> None:
    weights = numpyro.sample("weights", bnp.StickBreaking(ALPHA, 3))
    with numpyro.plate("components", 3):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
    mixture = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.StudentT(4.0, loc[:, None]).to_event(1))
    with numpyro.plate("rows", len(table)):
        numpyro.sample("X", mixture, obs=table)


def test_sticks_without_a_conjugate_component() -> None:
    """The log joint is then given the parameters."""
    mixture = StickMixture(student_sticks, as_arguments(X), find_stick_sites(student_sticks, (X,)))
    weights, loc, z = np.array([0.5, 0.3, 0.2]), np.array([0.0, 2.0, -1.0]), np.array([0, 0, 2, 1, 1, 1])
    draws = Draws(z[None, None], {"weights": weights[None, None], "loc": loc[None, None]}, mixture)
    assert not mixture.integrated
    density = t(4.0).logpdf(X - loc)
    expected = log_crp([2, 1, 3], ALPHA) + density[np.arange(N), z].sum()
    np.testing.assert_allclose(summaries(draws).log_joint[0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(log_predictive(draws, X), logsumexp(np.log(weights) + density, axis=1), rtol=1e-6)


@pytest.mark.exhaustive
def test_sticks_agree_with_collapsed_gibbs_on_separated_groups() -> None:
    """Posterior of the number of clusters and of co-clustering, NUTS on sticks against `PartitionGibbs`."""
    rng = np.random.default_rng(2)
    table = rng.normal(size=(24, 1)) * 0.5 + np.repeat([[-4.0], [0.0], [4.0]], 8, axis=0)
    component = bnp.NormalInverseGamma(np.zeros(1), 0.1, 3.0, 1.0)
    model = partial(dpm, component=component, concentration=1.0)
    collapsed = MCMC(bnp.PartitionGibbs(model), num_warmup=200, num_samples=4000, progress_bar=False)
    collapsed.run(jax.random.key(0), table)
    sticks = partial(dpm_stick_breaking, component=component, concentration=1.0, truncation=8)
    nuts = MCMC(NUTS(sticks), num_warmup=400, num_samples=1000, progress_bar=False)
    nuts.run(jax.random.key(1), table)
    labels = [np.asarray(collapsed.get_samples(group_by_chain=True)["z"]), bnp.recover_labels(nuts, table)]
    together = [bnp.coclustering(one) for one in labels]
    clusters = [draws_of(run, table).n_clusters.ravel() for run in (collapsed, nuts)]
    scale = np.sqrt(sum(one.var() / effective_draws(one) for one in clusters))
    assert abs(clusters[0].mean() - clusters[1].mean()) < 5 * scale
    assert np.abs(together[0] - together[1]).max() < 0.1
