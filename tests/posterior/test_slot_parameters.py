"""Parameters of an estimate's clusters where they are sites of the model: by loops, by enumeration, and under other numbers."""

from __future__ import annotations

import warnings
from functools import partial
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
from bnp_hier.posterior.draws import draws_of
from bnp_hier.posterior.renumbering import numbered_sites
from bnp_hier.posterior.slot_parameters import match_slots
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


def matched_by_loops(labels: np.ndarray, members: set[int]) -> tuple[int, float]:
    """Slot of the cluster with the most of the members, and its overlap with them, for one draw."""
    clusters = {int(k): set(np.flatnonzero(labels == k).tolist()) for k in labels}
    slot = max(clusters, key=lambda k: (len(clusters[k] & members), -len(clusters[k]), -min(clusters[k])))
    return slot, len(clusters[slot] & members) / len(clusters[slot] | members)


def members_of(estimate: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(estimate == cluster).tolist()) for cluster in np.unique(estimate)]


def random_draws(*rest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With ties of both kinds, and empty slots."""
    rng = np.random.default_rng(3)
    estimate = np.array([0, 0, 1, 2, 1, 2, 0, 2, 2])
    return rng.normal(size=(2, 40, 5, *rest)), rng.integers(5, size=(2, 40, 9)), estimate


@pytest.mark.parametrize("rest", [(), (2,), (2, 3)])
def test_matches_are_those_of_loops(rest: tuple[int, ...]) -> None:
    values, labels, estimate = random_draws(*rest)
    matched = match_slots(labels, estimate)
    found = matched.take(values)
    assert found.shape == (2, 40, 3, *rest)
    for chain, draw in np.ndindex(2, 40):
        for k, members in enumerate(members_of(estimate)):
            slot, overlap = matched_by_loops(labels[chain, draw], members)
            np.testing.assert_array_equal(found[chain, draw, k], values[chain, draw, slot])
            assert matched.overlap[chain, draw, k] == pytest.approx(overlap)


def test_neither_numbers_nor_empty_slots_matter() -> None:
    values, labels, estimate = random_draws(2)
    expected, rng = match_slots(labels, estimate).take(values), np.random.default_rng(4)
    permuted, renumbered = values.copy(), labels.copy()
    for draw in np.ndindex(2, 40):
        order = rng.permutation(5)
        permuted[draw] = values[draw][order]
        renumbered[draw] = np.argsort(order)[labels[draw]]
        permuted[draw][np.setdiff1d(np.arange(5), renumbered[draw])] = np.nan
    np.testing.assert_array_equal(match_slots(renumbered, estimate).take(permuted), expected)


def test_the_same_partition_under_other_numbers_has_its_own_parameters() -> None:
    estimate = np.array([0, 0, 0, 1, 1, 2])
    labels = np.array([[[3, 3, 3, 0, 0, 2], [0, 0, 0, 2, 2, 1]]])
    matched = match_slots(labels, estimate)
    assert matched.slots.tolist() == [[[3, 0, 2], [0, 2, 1]]] and (matched.overlap == 1.0).all()


@pytest.mark.slow
def test_means_and_variances_are_the_exact_ones(run: MCMC) -> None:
    """Nine moments against enumeration, 5 Monte Carlo standard errors each: false alarms below 1e-5; the key is fixed.

    Given a partition, the level of a cluster of m rows is normal with precision 1/4 + m.
    """
    component = bnp.NormalKnownCovariance(np.zeros(1), 4.0 * np.eye(1), np.eye(1))
    exact = Enumeration(N, lambda rows: component.log_evidence(y[rows][:, None]), ALPHA)
    found = bnp.cluster_parameters(run, DATA, ESTIMATE)
    assert found["cluster"].values.tolist() == [1, 4, 7] and found["size"].values.tolist() == [2, 3, 1]
    overlaps = match_slots(np.asarray(run.get_samples(group_by_chain=True)["z"]), np.unique(ESTIMATE, return_inverse=True)[1])
    by_number = run.get_samples(group_by_chain=True)["level"][:, :, :3]
    refused = 0
    for k, members in enumerate(members_of(ESTIMATE)):
        moments = np.zeros(3)
        for labels, probability in zip(map(np.array, exact.labels), exact.probabilities, strict=True):
            own, overlap = matched_by_loops(labels, members)
            mean = y[labels == own].sum() / (0.25 + (labels == own).sum())
            moments += probability * np.array([mean, mean**2 + 1 / (0.25 + (labels == own).sum()), overlap])
        level = found["level"].values[:, :, k]
        for series, moment in zip((level, level**2, overlaps.overlap[:, :, k]), moments, strict=True):
            assert abs(series.mean() - moment) < 5 * error(series) < 0.25
        refused += abs(by_number[:, :, k].mean() - moments[0]) > 5 * error(np.asarray(by_number[:, :, k], float))
        assert found["overlap"].values[k] == pytest.approx(overlaps.overlap[:, :, k].mean())
    assert refused >= 1  # parameters by the numbers of slots, which have no meaning


def error(chains: np.ndarray) -> float:
    """Monte Carlo standard error of the mean."""
    return float(chains.std() / np.sqrt(sum(effective_draws(chain) for chain in chains)))


@pytest.mark.slow
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


SQUARE = np.column_stack([y + shift for shift in np.linspace(-1.0, 1.0, N)])  # as many columns as rows


def square(X: jax.Array, *, centred: bool = False, prior: float | np.ndarray = 0.0) -> None:
    """As many slots as columns and rows; `loc`, `width`, `spread`, `first`, `small` and `members` have one entry per slot."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, N, max_clusters=N))
    scale = numpyro.sample("scale", dist.Gamma(2.0, 2.0).expand([N]).to_event(1))
    with numpyro.plate("columns", N):
        middle = numpyro.sample("middle", dist.Normal(0.0, 1.0))
    with numpyro.plate("clusters", N):
        width = numpyro.sample("width", dist.Gamma(2.0, 2.0))
        loc = numpyro.sample("loc", dist.Normal(middle + jnp.asarray(prior), width[:, None]).to_event(1))
        spread = numpyro.sample("spread", dist.Gamma(3.0, 3.0))
    numpyro.deterministic("first", loc[:, 0] - loc[:, 0].mean())
    numpyro.deterministic("small", 1e-9 * spread)
    numpyro.deterministic("members", jnp.bincount(z, length=N))
    numpyro.deterministic("fitted", loc[z])
    numpyro.deterministic("sd", jnp.sqrt(scale))
    numpyro.deterministic("ones", jnp.ones(N))
    level = loc - loc.mean(0) if centred else loc
    with numpyro.plate("rows", N):
        numpyro.sample("X", dist.Normal(level[z], scale * spread[z][:, None]).to_event(1), obs=X)


def run_of(model: Any, *args: Any) -> MCMC:
    kernel = Gibbs([(bnp.AuxiliaryGibbs(model), ["z"]), (NUTS(model, max_tree_depth=3), None)])
    mcmc = MCMC(kernel, num_warmup=5, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(0), *args)
    return mcmc


@pytest.mark.slow
@pytest.mark.parametrize("centred", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_vectors_over_columns_and_rows_of_the_same_length_are_left_out(centred: bool) -> None:
    mcmc = run_of(partial(square, centred=centred), SQUARE)
    assert all(value.shape[1] == N for value in mcmc.get_samples().values())
    found = bnp.cluster_parameters(mcmc, SQUARE, ESTIMATE)
    assert set(found.data_vars) == {"loc", "width", "spread", "first", "small", "members"}
    assert set(bnp.cluster_parameters(mcmc, SQUARE, ESTIMATE, sites="scale").data_vars) == {"scale"}  # as asked
    posterior = bnp.to_arviz(mcmc, SQUARE)["posterior"]
    first = {name: values.dims[2] for name, values in posterior.data_vars.items() if values.shape[2:3] == (N,) and name != "z"}
    assert {name for name, dimension in first.items() if dimension == "cluster"} == {"loc", "width", "spread"}
    assert first["scale"] == "scale_dim_0" and first["middle"] == "middle_dim_0"


@pytest.mark.slow
def test_slots_with_priors_of_their_own_need_names() -> None:
    mcmc = run_of(partial(square, prior=np.arange(float(N))[:, None]), SQUARE)
    with pytest.raises(ValueError, match=r"have 6 entries, but the model does not show which .*; name these in sites="):
        bnp.cluster_parameters(mcmc, SQUARE, ESTIMATE)
    assert list(bnp.cluster_parameters(mcmc, SQUARE, ESTIMATE, sites="loc").data_vars) == ["loc"]
    assert set(numbered_sites(draws_of(mcmc, SQUARE))) == {"loc", "width", "spread", "middle", "scale"}  # any of these


@pytest.mark.slow
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
    assert "overlap" not in drawn.coords and found["weights"].shape == (1, 20, 3)
    labels = np.asarray(bnp.recover_labels(mcmc, table)).reshape(20, N)
    values = mcmc.get_samples()["parameters"]
    for draw in range(20):
        for k, members in enumerate(members_of(ESTIMATE)):
            slot, _ = matched_by_loops(labels[draw], members)
            np.testing.assert_allclose(found["parameters"].values[0, draw, k], values[draw, slot], rtol=1e-6)


@pytest.mark.slow
def test_a_mixture_with_labels_summed_out_and_as_many_columns_as_sticks() -> None:
    def model(X: jax.Array) -> None:
        weights = numpyro.sample("weights", bnp.StickBreaking(1.0, N))
        scale = numpyro.sample("scale", dist.Gamma(2.0, 2.0).expand([N]).to_event(1))
        with numpyro.plate("clusters", N):
            loc = numpyro.sample("loc", dist.Normal(jnp.zeros(N), 2.0).to_event(1))
        rows = dist.Normal(loc, scale).to_event(1)
        numpyro.deterministic("first", loc[:, 0])
        numpyro.deterministic("responsibilities", jax.nn.softmax(jnp.log(weights) + rows.log_prob(X[:, None]), axis=1))
        with numpyro.plate("rows", N):
            numpyro.sample("X", dist.MixtureSameFamily(dist.Categorical(probs=weights), rows), obs=X)

    mcmc = MCMC(NUTS(model, max_tree_depth=3), num_warmup=5, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(0), SQUARE)
    assert set(bnp.cluster_parameters(mcmc, SQUARE, ESTIMATE).data_vars) == {"loc", "first"}
    assert set(numbered_sites(draws_of(mcmc, SQUARE))) == {"weights", "loc"}


@pytest.mark.slow
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
