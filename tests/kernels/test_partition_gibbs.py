"""The collapsed Gibbs kernel: exact against enumeration, as a NumPyro kernel, and on bad input."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution

from bnp_hier import ChineseRestaurantProcess, ConjugateMixture, NormalInverseGamma, NormalInverseWishart, PartitionGibbs
from bnp_hier.kernels.reports import wait_for_reports
from bnp_hier.models import dpm, pitman_yor_mixture
from bnp_hier.utils.labels import canonical_labels
from tests.kernels.small_problems import PROBLEMS, N, enumerate_small
from tests.oracles.monte_carlo import assert_exact, effective_draws
from tests.oracles.partitions import Enumeration
from tests.parameters import few


@pytest.mark.parametrize(
    ("name", "split_merge"),
    few(product(["normal", "bernoulli", "poisson"], [5, 0])),
)
def test_exact_at_fixed_concentration(name: str, split_merge: int) -> None:
    component, X = PROBLEMS[name]
    exact = enumerate_small(name, 1.2)
    kernel = PartitionGibbs(partial(dpm, component=component, concentration=1.2), split_merge=split_merge)
    mcmc = MCMC(kernel, num_warmup=200, num_samples=20_000, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("log_joint", "n_clusters", "split_merge_accepted"))
    labels, fields = np.asarray(mcmc.get_samples()["z"]), mcmc.get_extra_fields()
    assert_exact(labels, exact, exact.probabilities, fields["log_joint"], fields["n_clusters"])
    # the reported diagnostics are those of the draws
    index = [exact.index[tuple(z)] for z in labels[:500]]
    np.testing.assert_allclose(fields["log_joint"][:500], exact.log_joint[index], rtol=1e-4)
    np.testing.assert_array_equal(fields["n_clusters"], labels.max(1) + 1)
    assert (np.asarray(fields["split_merge_accepted"]).sum() > 0) == (split_merge > 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diagonal, missing", pytest.param("user family", marks=pytest.mark.exhaustive)])
def test_exact_with_a_discount(name: str) -> None:
    component, X = PROBLEMS[name]
    exact = enumerate_small(name, 0.7, 0.4)
    model = partial(pitman_yor_mixture, component=component, concentration=0.7, discount=0.4)
    mcmc = MCMC(PartitionGibbs(model), num_warmup=200, num_samples=20_000, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("log_joint",))
    labels = np.asarray(mcmc.get_samples()["z"])
    assert_exact(labels, exact, exact.probabilities, mcmc.get_extra_fields()["log_joint"])


@pytest.mark.parametrize(("name", "split_merge"), few([("bernoulli", 0), ("normal", 5), ("poisson", 5)], plain=0, slow=1))
def test_exact_with_concentration_under_nuts(name: str, split_merge: int) -> None:
    """The partition's exact posterior averages the evidence over α ~ Gamma(2, 1) by quadrature."""
    component, X = PROBLEMS[name]
    exact = enumerate_small(name, 1.0)
    sizes = [np.bincount(z) for z in exact.labels]
    marginals = exact.log_joint - np.array([gammaln(s).sum() - gammaln(N + 1) for s in sizes])
    alphas = gamma_distribution(2.0).ppf((np.arange(2000) + 0.5) / 2000)
    log_alpha = np.log(alphas)
    priors = np.array([len(s) * log_alpha + gammaln(s).sum() + gammaln(alphas) - gammaln(N + alphas) for s in sizes])
    log_joint = marginals + np.logaddexp.reduce(priors, axis=1)
    probabilities = np.exp(log_joint - np.logaddexp.reduce(log_joint))

    model = partial(dpm, component=component, concentration=dist.Gamma(2.0, 1.0))
    kernel = Gibbs([(PartitionGibbs(model, split_merge=split_merge), ["z"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=300, num_samples=12_000, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    samples = {name: np.asarray(value) for name, value in mcmc.get_samples().items()}
    assert_exact(samples["z"], exact, probabilities, samples["alpha"])
    weights = probabilities @ (np.exp(priors - np.logaddexp.reduce(priors, axis=1, keepdims=True)))
    size = effective_draws(samples["alpha"])
    # five standard errors: false-alarm rate below 1e-6
    assert abs(samples["alpha"].mean() - weights @ alphas) < 5 * samples["alpha"].std() / np.sqrt(size)


@pytest.mark.slow
def test_capacity_restricts_the_target_and_is_never_silent() -> None:
    """With room for two clusters the draws follow the posterior restricted to at most two."""
    component, X = PROBLEMS["bernoulli"]
    exact = enumerate_small("bernoulli", 1.5)
    allowed = np.array(exact.labels).max(1) < 2
    probabilities = np.where(allowed, exact.probabilities, 0.0) / exact.probabilities[allowed].sum()
    kernel = PartitionGibbs(partial(dpm, component=component, concentration=1.5), max_clusters=2)
    mcmc = MCMC(kernel, num_warmup=200, num_samples=20_000, progress_bar=False)
    with pytest.warns(RuntimeWarning, match=r"capacity of 2 clusters.*truncated.*raise PartitionGibbs\(\.\.\., max_clusters"):
        mcmc.run(jax.random.key(0), X, extra_fields=("log_joint",))
        wait_for_reports(mcmc.last_state)
    labels = np.asarray(mcmc.get_samples()["z"])
    assert_exact(labels, exact, probabilities, mcmc.get_extra_fields()["log_joint"])
    assert int(mcmc.last_state.capacity_hits) > 0
    mass = float(mcmc.last_state.truncated_probability)
    assert f"capacity hits, truncated probability {mass:.1e}" in kernel.get_diagnostics_str(mcmc.last_state)
    refused = np.array([_truncated_probability(z, exact) for z in exact.labels])
    draws = refused[[exact.index[tuple(z)] for z in labels]]
    # five standard errors: false-alarm rate below 1e-6
    assert abs(mass - probabilities @ refused) < 5 * draws.std() / np.sqrt(effective_draws(draws))


def _truncated_probability(z: tuple[int, ...], exact: Enumeration) -> float:
    """Mean over items of the conditional probability of a third cluster, from the joint of all partitions."""
    total = 0.0
    for i in range(N):
        others = [label for j, label in enumerate(z) if j != i]
        if len(set(others)) == 2:
            moved = [exact.log_joint[exact.index[tuple(canonical_labels([*z[:i], k, *z[i + 1 :]]))]] for k in (0, 1, 2)]
            total += np.exp(moved[2] - np.logaddexp.reduce(moved)) / N
    return total


def _geweke_model(X: jax.Array) -> None:
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, 5))
    component = NormalInverseGamma(mean=jnp.zeros(1), kappa=0.5, shape=4.0, rate=rate)
    numpyro.sample("X", ConjugateMixture(component, z), obs=X)


def _geweke_statistics(alpha: jax.Array, rate: jax.Array, z: jax.Array, X: jax.Array) -> jax.Array:
    clusters = (jax.ops.segment_sum(jnp.ones(5), z, 5) > 0).sum()
    pair = (z[0] == z[1]).astype(float)
    return jnp.stack(
        [alpha, jnp.log(alpha), jnp.log(rate), clusters, pair, jnp.abs(X).mean(), jnp.tanh(X[0, 0] * X[1, 0]), alpha * clusters]
    )


@pytest.mark.parametrize("engine", few(["kernels", "xla"], plain=0), indirect=True)
def test_geweke_joint_distribution_of_the_whole_composition(engine: str) -> None:
    """Alternating the kernel with fresh data must reproduce the prior (Geweke 2004).

    Eight statistics and both engines, |z| < 4.5 each: false-alarm rate about 1e-4.
    """
    steps = 20_000
    kernel = Gibbs(
        [
            (PartitionGibbs(_geweke_model, split_merge=5), ["z"]),
            (NUTS(_geweke_model, step_size=0.7, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=3), None),
        ]
    )
    key_init, key_chain, key_prior = jax.random.split(jax.random.key(3), 3)
    state = kernel.init(key_init, 0, None, (jnp.zeros((5, 1)),), {})
    (partition_kernel, _), (nuts, _) = kernel.blocks
    constrain = kernel.get_constrain_fn((jnp.zeros((5, 1)),), {})

    def draw_data(key: jax.Array, alpha: jax.Array, rate: jax.Array, z: jax.Array) -> jax.Array:
        return ConjugateMixture(NormalInverseGamma(jnp.zeros(1), 0.5, 4.0, rate), z).sample(key)

    def step(state, key):
        values = constrain(state.z)
        X = draw_data(key, values["alpha"], values["rate"], values["z"])
        conditioned = {"_gibbs_sites": {"z": values["z"]}}
        hmc = nuts.refresh(state.block_states[1], (X,), conditioned)
        state = kernel.sample(state._replace(block_states=(state.block_states[0], hmc)), (X,), {})
        new = constrain(state.z)
        return state, _geweke_statistics(new["alpha"], new["rate"], new["z"], X)

    _, successive = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key_chain, steps)))(state)

    def forward(key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, 4)
        alpha, rate = dist.Gamma(2.0, 2.0).sample(keys[0]), dist.LogNormal(0.0, 0.5).sample(keys[1])
        z = ChineseRestaurantProcess(alpha, 5).sample(keys[2])
        return _geweke_statistics(alpha, rate, z, draw_data(keys[3], alpha, rate, z))

    prior = np.asarray(jax.jit(jax.vmap(forward))(jax.random.split(key_prior, steps)))
    successive = np.asarray(successive)
    for column in range(prior.shape[1]):
        size = effective_draws(successive[:, column])
        error = np.sqrt(prior[:, column].var() / steps + successive[:, column].var() / size)
        score = (prior[:, column].mean() - successive[:, column].mean()) / error
        assert abs(score) < 4.5, (column, score, size)
        assert size > 500


def _two_groups(n: int = 20) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 2)) + np.repeat([[0.0], [4.0]], n // 2, axis=0)


def _fixed(X: np.ndarray) -> partial:
    return partial(dpm, component=NormalInverseWishart.from_data(X, learn=False), concentration=1.0)


@pytest.mark.slow
def test_all_chain_methods_give_the_same_draws() -> None:
    X = _two_groups()
    draws = {}
    for method in ("sequential", "parallel", "vectorized", jax.vmap):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*donated buffers.*")
            mcmc = MCMC(
                PartitionGibbs(_fixed(X)), num_warmup=5, num_samples=20, num_chains=2, chain_method=method, progress_bar=False
            )
            mcmc.run(jax.random.key(0), X)
        draws[method] = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])
    assert draws["sequential"].shape == (2, 20, 20)
    for method, labels in draws.items():
        np.testing.assert_array_equal(labels, draws["sequential"], err_msg=str(method))
    assert (draws["sequential"][0] != draws["sequential"][1]).any()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["parallel", jax.vmap])
def test_composition_runs_under_chain_methods(method) -> None:
    X = _two_groups()
    model = partial(dpm, component=NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    kernel = Gibbs([(PartitionGibbs(model), ["z"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=50, num_samples=50, num_chains=2, chain_method=method, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("block_states.0.n_clusters",))
    samples = mcmc.get_samples(group_by_chain=True)
    assert samples["z"].shape == (2, 50, 20) and samples["alpha"].shape == (2, 50)
    labels = np.asarray(samples["z"])
    np.testing.assert_array_equal(mcmc.get_extra_fields(True)["block_states.0.n_clusters"], labels.max(-1) + 1)
    # the two groups, eight standard deviations of their means apart, are told apart in most draws
    assert (labels[..., :1] != labels[..., -1:]).mean() > 0.9


@pytest.mark.slow
def test_thinning_keeps_the_last_of_each_window() -> None:
    X = _two_groups()
    runs = {}
    for thinning in (1, 5):
        mcmc = MCMC(PartitionGibbs(_fixed(X)), num_warmup=5, num_samples=20, thinning=thinning, progress_bar=False)
        mcmc.run(jax.random.key(0), X, extra_fields=("i",))
        runs[thinning] = np.asarray(mcmc.get_samples()["z"]), np.asarray(mcmc.get_extra_fields()["i"])
    np.testing.assert_array_equal(runs[5][0], runs[1][0][4::5])
    np.testing.assert_array_equal(runs[5][1], [10, 15, 20, 25])


@pytest.mark.slow
def test_resumed_run_continues_the_chain() -> None:
    X = _two_groups()
    whole = MCMC(PartitionGibbs(_fixed(X)), num_warmup=10, num_samples=40, progress_bar=False)
    whole.run(jax.random.key(0), X)
    parts = MCMC(PartitionGibbs(_fixed(X)), num_warmup=10, num_samples=20, progress_bar=False)
    parts.run(jax.random.key(0), X)
    first = np.asarray(parts.get_samples()["z"])
    parts.post_warmup_state = parts.last_state
    parts.run(parts.last_state.rng_key, X)
    both = np.concatenate([first, np.asarray(parts.get_samples()["z"])])
    np.testing.assert_array_equal(both, np.asarray(whole.get_samples()["z"]))
    assert int(parts.last_state.i) == 50


@pytest.mark.slow
def test_second_run_on_new_data_of_the_same_shape_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    """NumPyro itself compiles every run anew without a progress bar, and switches the bar off when CI is set."""
    for name in ("CI", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    X = _two_groups()
    model = partial(dpm, component=NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    kernel = Gibbs([(PartitionGibbs(model), ["z"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=True, jit_model_args=True)
    mcmc.run(jax.random.key(0), X)
    compilations.clear()
    mcmc.run(jax.random.key(1), X + 1.0)
    assert not compilations


def test_labels_are_canonical_and_initial_labels_are_kept() -> None:
    X = _two_groups()
    start = np.repeat([1, 0], 10)
    kernel = PartitionGibbs(_fixed(X))
    state = kernel.init(jax.random.key(0), 0, {"z": start}, (X,), {})
    np.testing.assert_array_equal(state.z["z"], canonical_labels(start))
    mcmc = MCMC(kernel, num_warmup=0, num_samples=30, progress_bar=False)
    mcmc.run(jax.random.key(0), X, init_params={"z": start})
    for z in np.asarray(mcmc.get_samples()["z"]):
        np.testing.assert_array_equal(z, canonical_labels(z))


@pytest.mark.slow
def test_state_fields_are_label_invariant_summaries() -> None:
    X = _two_groups()
    mcmc = MCMC(PartitionGibbs(_fixed(X)), num_warmup=5, num_samples=30, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("largest_cluster", "entropy", "capacity_hits", "i"))
    fields = mcmc.get_extra_fields()
    for z, largest, entropy in zip(mcmc.get_samples()["z"], fields["largest_cluster"], fields["entropy"], strict=True):
        shares = np.bincount(z) / len(z)
        assert largest == np.bincount(z).max()
        np.testing.assert_allclose(entropy, -(shares * np.log(shares)).sum(), rtol=1e-5, atol=1e-6)
    assert (np.asarray(fields["capacity_hits"]) == 0).all()


def test_kernel_and_run_pickle() -> None:
    X = _two_groups()
    mcmc = MCMC(PartitionGibbs(_fixed(X)), num_warmup=2, num_samples=3, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    again = pickle.loads(pickle.dumps(mcmc))
    np.testing.assert_array_equal(again.get_samples()["z"], mcmc.get_samples()["z"])


@pytest.mark.slow
def test_data_far_from_the_origin_in_single_precision() -> None:
    """The prior's mean is subtracted before single precision can round: the same chain as for centred data."""
    X = _two_groups().round(3)
    runs = []
    for shift in (0.0, 2.0**20):
        moved = X + shift
        mcmc = MCMC(PartitionGibbs(_fixed(moved)), num_warmup=5, num_samples=20, progress_bar=False)
        mcmc.run(jax.random.key(0), moved)
        runs.append(np.asarray(mcmc.get_samples()["z"]))
    np.testing.assert_array_equal(*runs)


def _no_partition(X: np.ndarray) -> None:
    numpyro.sample("X", dist.Normal(numpyro.sample("m", dist.Normal()), 1.0).expand(X.shape).to_event(2), obs=X)


@pytest.mark.parametrize(
    ("model", "X", "start", "match"),
    [
        (_no_partition, np.ones((4, 2)), None, "no partition site"),
        (
            partial(_fixed(np.eye(2)), concentration=dist.Gamma(1, 1)),
            _two_groups(),
            None,
            r"other|latent sites \['alpha'\]",
        ),
        (_fixed(_two_groups()), np.where(np.eye(20, 1) > 0, np.nan, _two_groups()), None, "all values are missing in row 0"),
        (_fixed(_two_groups()), np.where(np.eye(20, 2) > 0, np.inf, _two_groups()), None, "infinite value at row 0, column 0"),
        (_fixed(_two_groups()), _two_groups()[:1], None, "X has 1 row; clustering needs at least 2"),
        (_fixed(_two_groups()), _two_groups(), np.zeros(7, int), "initial labels must be 20 whole numbers"),
        (_fixed(_two_groups()), _two_groups(), np.full(20, 20), r"initial labels must lie in 0, \.\.\., 19"),
        (_fixed(_two_groups()), _two_groups(), np.zeros(20), "initial labels must be 20 whole numbers.* type float64"),
        (_fixed(_two_groups()), _two_groups(), np.repeat([0, 2], 10), "the largest is 2 and no item has label 1"),
        (partial(dpm, component=PROBLEMS["bernoulli"][0]), np.full((4, 3), 2.0), None, "needs 0 or 1.*row 0, column 0"),
    ],
)
def test_bad_input(model, X: np.ndarray, start, match: str) -> None:
    params = None if start is None else {"z": start}
    with pytest.raises(ValueError, match=match):
        PartitionGibbs(model).init(jax.random.key(0), 0, params, (X,), {})
