"""The kernel of hyperparameters: its density, exactness against quadrature, as a NumPyro kernel, and on bad input."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS, Gibbs
from numpyro.infer.gibbs import conditioned
from numpyro.infer.util import potential_energy
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution
from scipy.stats import lognorm

import bnp_hier as bnp
from bnp_hier.distributions.conjugate_mixture import cluster_statistics_in_any_order
from bnp_hier.inspection import conditionals
from bnp_hier.inspection.conditionals import BLOCK, read_conditional
from bnp_hier.models import dpm, pitman_yor_mixture
from tests.components.user_family import ExponentialGamma
from tests.oracles.monte_carlo import assert_exact, batch_means, effective_draws
from tests.oracles.partitions import Enumeration
from tests.parameters import few

RNG = np.random.default_rng(0)
LABELS = np.concatenate([[0, 3, 0, 1, 1, 3], np.arange(14) % 11])
"""Labels of 20 rows in more than one block of clusters, with a gap in the first four."""
REAL = RNG.normal(size=(20, 2)) + np.repeat([[0.0], [4.0]], 10, axis=0)
COUNTS = RNG.poisson(3.0, size=(20, 2)).astype(float)
BITS = (RNG.random((20, 2)) < 0.4).astype(float)
ALPHA = dist.Gamma(2.0, 1.0)
LIKELIHOODS = [
    bnp.NormalInverseWishart.from_data(REAL),
    bnp.NormalInverseGamma.from_data(np.where(BITS > 0, np.nan, REAL)),
    bnp.BetaBernoulli.from_data(BITS),
    bnp.GammaPoisson.from_data(COUNTS),
    bnp.DirichletMultinomial.from_data(COUNTS),
]
DATA = [REAL, np.where(BITS > 0, np.nan, REAL), BITS, COUNTS, COUNTS]


def composed(model: Any, **options: Any) -> Gibbs:
    return Gibbs([(bnp.PartitionGibbs(model), ["z"]), (bnp.HyperparameterGibbs(model, **options), None)])


def own_family(X: np.ndarray, learned: Any = None) -> bnp.Component:
    """A family without an anchor, whose rows are used at every evaluation."""
    return ExponentialGamma(numpyro.sample("shape", dist.Gamma(2.0, 1.0).expand([2]).to_event(1)), np.ones(2))


def shapes(X: np.ndarray) -> bnp.Component:
    """Sites on an interval, in a plate, of a Cholesky factor of a correlation matrix, and with a support of its own."""
    top = numpyro.sample("top", dist.Uniform(0.5, 3.0))
    below = numpyro.sample("below", dist.Uniform(0.0, top))
    with numpyro.plate("columns", 2):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    factor = scale[:, None] * numpyro.sample("factor", dist.LKJCholesky(2, 1.5))
    mean = numpyro.sample("mean", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    numpyro.factor("penalty", -jnp.square(mean).sum() / 7.0)
    return bnp.NormalKnownCovariance(mean, top * jnp.eye(2), below * factor @ factor.T + 0.1 * jnp.eye(2))


def normal_means(X: np.ndarray) -> None:
    """Explicit parameters in a plate over slots, and a likelihood that is none of the package's."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(numpyro.sample("alpha", ALPHA), len(X), max_clusters=12))
    with numpyro.plate("slots", 12):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
    with numpyro.handlers.scale(scale=0.5), numpyro.plate("rows", len(X)):
        numpyro.sample("X", dist.StudentT(4.0, loc[z], 1.0), obs=X)


def residuals(X: np.ndarray) -> None:
    """Rows that depend on a hyperparameter: what a regression leaves."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    component = bnp.NormalKnownCovariance(np.zeros(2), 2.0 * np.eye(2), np.eye(2))
    numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X - slope * np.arange(float(len(X)))[:, None])


MODELS = {
    "rows that depend on a site": (residuals, REAL),
    "many kinds of sites": (
        partial(pitman_yor_mixture, component=shapes, concentration=ALPHA, discount=dist.Beta(1.0, 3.0)),
        REAL,
    ),
    "a family of the user's": (partial(dpm, component=own_family, concentration=ALPHA), np.exp(REAL)),
    "explicit parameters": (normal_means, REAL[:, 0]),
    **{
        likelihood.family.__name__: (partial(dpm, component=likelihood), rows)
        for likelihood, rows in zip(LIKELIHOODS, DATA, strict=True)
    },
    "no component": (dpm, REAL),
}


@pytest.mark.parametrize("name", few(MODELS, plain=1, slow=7))
def test_density_is_that_of_the_model(name: str, x64: None) -> None:
    """Prior, likelihood and Jacobian, at random points, with rows summed at another: NumPyro's potential energy."""
    model, X = MODELS[name]
    given = {"_gibbs_sites": {"z": jnp.asarray(LABELS)}}
    kernel = bnp.HyperparameterGibbs(conditioned(model))
    state = kernel.init(jax.random.key(3), 0, None, (X,), given)
    conditional = read_conditional(kernel.model, state.z, (X,), given)
    assert LABELS.max() >= BLOCK
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), conditional.constrain(conditional.unconstrained), state.z)
    start, unravel = ravel_pytree(conditional.unconstrained)

    @jax.jit
    def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return conditional.log_density(unravel(x)), -potential_energy(kernel.model, (X,), given, unravel(x))

    for key in jax.random.split(jax.random.key(1), 3):
        found, exact = both(start + 0.7 * jax.random.normal(key, start.shape))
        np.testing.assert_allclose(found, exact, rtol=1e-9)


@pytest.mark.parametrize("outlier", [1.0, 2e7, 1e-300])
def test_sums_do_not_depend_on_the_order_of_rows(outlier: float, x64: None) -> None:
    """Nor are they less accurate if one row is very far from all others, in a cluster of its own."""
    rows = RNG.normal(size=(9001, 2)) * np.array([1.0, 1e3])
    rows[0, 0] = outlier
    rows[:, 1] *= min(outlier, 1.0)
    labels = np.minimum(np.arange(9001), 1)
    component = bnp.NormalInverseGamma(np.zeros(2), 1.0, 2.0, np.ones(2))
    stats, order = component.suff_stats(jnp.asarray(rows)), RNG.permutation(9001)
    exact = jax.tree.map(
        lambda leaf: np.stack([np.sum(leaf[labels == k].astype(np.longdouble), 0) for k in range(2)]),
        jax.tree.map(np.asarray, stats),
    )
    found = cluster_statistics_in_any_order(stats, jnp.asarray(labels), 2)
    shuffled = jax.tree.map(lambda leaf: leaf[order], stats)
    again = cluster_statistics_in_any_order(shuffled, jnp.asarray(labels[order]), 2)
    jax.tree.map(np.testing.assert_array_equal, found, again)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), found, exact)


@pytest.mark.slow
def test_more_clusters_than_statistics_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The density of many rows, whose statistics are kept for some clusters only, is that of few."""
    model, given = partial(dpm, component=LIKELIHOODS[0]), {"_gibbs_sites": {"z": jnp.asarray(LABELS)}}
    kernel = bnp.HyperparameterGibbs(conditioned(model))
    state = kernel.init(jax.random.key(3), 0, None, (REAL,), given)
    found = []
    for most in (conditionals.KEPT_FROM, 10):
        monkeypatch.setattr(conditionals, "KEPT", BLOCK)
        monkeypatch.setattr(conditionals, "KEPT_FROM", most)
        conditional = read_conditional(kernel.model, state.z, (REAL,), given)
        found.append(float(conditional.log_density(conditional.unconstrained)))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def rate_model(X: np.ndarray) -> bnp.Component:
    return bnp.NormalInverseGamma(np.zeros(1), 0.3, 2.0, numpyro.sample("value", dist.LogNormal(0.0, 1.0)))


def bits_model(X: np.ndarray) -> bnp.Component:
    strength = numpyro.sample("value", dist.LogNormal(0.0, 1.0))
    return bnp.BetaBernoulli(0.4 * strength * jnp.ones(3), 0.6 * strength * jnp.ones(3))


@pytest.mark.parametrize(("name", "samples"), few([("rate", 12_000), ("bits", 12_000), ("rate", 200_000)], plain=0, slow=2))
def test_exact_against_quadrature(name: str, samples: int, x64: None) -> None:
    """All 52 partitions of five rows, with α and a hyperparameter of the component integrated out by quadrature.

    Five standard errors for the means of two hyperparameters and their logarithms: false-alarm rate below 1e-5. Without the
    Jacobian, the mean of α would be wrong by more than twice as much, and that of the other by more.
    """
    make = {"rate": rate_model, "bits": bits_model}[name]
    X = {"rate": np.array([[-1.0], [-0.8], [1.5], [1.7], [4.0]]), "bits": BITS[:5, [0, 1, 0]]}[name]
    n, grid = 5, (np.arange(1000) + 0.5) / 1000
    alphas, values = gamma_distribution(2.0).ppf(grid), lognorm(1.0).ppf(grid)
    exact = Enumeration(n, lambda rows: 0.0, 1.0)
    labels = np.array(exact.labels)

    def log_likelihoods(value: jax.Array) -> jax.Array:
        component = numpyro.handlers.substitute(make, data={"value": value})(X)
        stats = component.suff_stats(X)
        sums = jax.vmap(lambda z: jax.tree.map(lambda leaf: jax.ops.segment_sum(leaf, z, n), stats))(labels)
        return component.log_marginal(sums).sum(1)

    likelihoods = np.asarray(jax.vmap(log_likelihoods)(jnp.asarray(values))).T
    counts = [np.bincount(z) for z in labels]
    priors = np.array([len(c) * np.log(alphas) + gammaln(c).sum() + gammaln(alphas) - gammaln(n + alphas) for c in counts])
    joint = np.logaddexp.reduce(priors, axis=1) + np.logaddexp.reduce(likelihoods, axis=1)
    probabilities = np.exp(joint - np.logaddexp.reduce(joint))

    def mean_and_biased(terms: np.ndarray, function: np.ndarray, at: np.ndarray) -> tuple[float, float]:
        """The posterior mean of a function, and what it would be without the Jacobian, which divides the density."""
        weights = probabilities @ np.exp(terms - np.logaddexp.reduce(terms, axis=1, keepdims=True))
        return weights @ function, (weights / at) @ function / (weights / at).sum()

    model = partial(dpm, component=make, concentration=ALPHA)
    mcmc = MCMC(composed(model), num_warmup=300, num_samples=samples, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    draws = {site: np.asarray(value) for site, value in mcmc.get_samples().items()}
    assert_exact(draws["z"], exact, probabilities, draws["alpha"], np.log(draws["value"]))
    for site, at, terms in (("alpha", alphas, priors), ("value", values, likelihoods)):
        for function in (np.log, np.tanh):
            found, (mean, biased) = function(draws[site]), mean_and_biased(terms, function(at), at)
            error = found.std() / np.sqrt(effective_draws(found))
            assert abs(found.mean() - mean) < 5 * error, (site, function)
            assert abs(biased - mean) > 10 * error, (site, function, biased - mean, error)


def joint_model(X: Any, *, family: str) -> None:
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, 5))
    numpyro.sample("X", bnp.ConjugateMixture(FAMILIES[family](X), z), obs=X)


def columns_family(X: Any) -> bnp.Component:
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    kappa = numpyro.sample("kappa", dist.Uniform(0.3, 2.0))
    return bnp.NormalInverseGamma(jnp.zeros(2), kappa, 4.0, rate)


def bits_family(X: Any) -> bnp.Component:
    share = numpyro.sample("share", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
    strength = numpyro.sample("strength", dist.LogNormal(0.5, 0.7))
    return bnp.BetaBernoulli(share * strength, (1.0 - share) * strength)


FAMILIES = {"columns": columns_family, "bits": bits_family}


@pytest.mark.slow
@pytest.mark.parametrize("family", few(FAMILIES, plain=0))
def test_geweke_joint_distribution(family: str) -> None:
    """Alternating the kernels with fresh data must reproduce the prior (Geweke 2004).

    At most fourteen statistics and two families, |z| < 4.5 each: false-alarm rate about 2e-4.
    """
    steps, model = 20_000, partial(joint_model, family=family)
    empty = jnp.zeros((5, 2))
    kernel = composed(model, width=1.5)
    key_init, key_chain, key_prior = jax.random.split(jax.random.key(3), 3)
    state = kernel.init(key_init, 0, None, (empty,), {})

    def statistics(values: dict[str, jax.Array], X: jax.Array) -> jax.Array:
        z = values["z"]
        clusters = (jax.ops.segment_sum(jnp.ones(5), z, 5) > 0).sum()
        own = jnp.concatenate([jnp.ravel(values[name]) for name in sorted(values) if name != "z"])
        pair = (z[0] == z[1]).astype(float)
        of_data = jnp.stack([clusters, pair, jnp.tanh(X[0, 0] * X[1, 0]), jnp.tanh(X).mean(), values["alpha"] * clusters])
        return jnp.concatenate([own, jnp.log(own), of_data, own * jnp.tanh(jnp.abs(X)).mean()])

    def fresh(values: dict[str, jax.Array], key: jax.Array) -> jax.Array:
        given = numpyro.handlers.substitute(numpyro.handlers.seed(FAMILIES[family], key), data=values)
        return bnp.ConjugateMixture(given(empty), values["z"]).sample(key)

    def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        X = fresh(state.z, key)
        state = kernel.sample(state, (X,), {})
        return state, statistics(state.z, X)

    _, successive = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key_chain, steps)))(state)

    def forward(key: jax.Array) -> jax.Array:
        key, key_model, key_X = jax.random.split(key, 3)
        trace = numpyro.handlers.trace(numpyro.handlers.seed(model, key_model)).get_trace(empty)
        values = {name: site["value"] for name, site in trace.items() if not site["is_observed"]}
        return statistics(values, fresh(values, key_X))

    prior = np.asarray(jax.jit(jax.vmap(forward))(jax.random.split(key_prior, steps)))
    successive = np.asarray(successive)
    sizes = np.array([effective_draws(column) for column in successive.T])
    scores = (prior.mean(0) - successive.mean(0)) / np.sqrt(prior.var(0) / steps + successive.var(0) / sizes)
    assert np.abs(scores).max() < 4.5, scores
    assert sizes.min() > 500


@pytest.mark.parametrize("number", few([0, 2], plain=0, slow=0))
def test_agrees_with_nuts(number: int) -> None:
    """Means and spreads of the logarithms of learned hyperparameters, |z| < 5: false-alarm rate below 1e-4."""
    X, model = DATA[number], partial(dpm, component=LIKELIHOODS[number])
    found = []
    for other in (bnp.HyperparameterGibbs(model), NUTS(model)):
        kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (other, None)])
        mcmc = MCMC(kernel, num_warmup=500, num_samples=4000, progress_bar=False)
        mcmc.run(jax.random.key(0), X)
        draws = {name: np.log(value) for name, value in mcmc.get_samples().items() if name != "z"}
        columns = np.column_stack([np.asarray(value).reshape(4000, -1) for _, value in sorted(draws.items())])
        both = np.column_stack([columns, np.square(columns - columns.mean(0))])
        sizes = np.array([effective_draws(column) for column in both.T])
        found.append((both.mean(0), both.var(0) / sizes))
    (ours, our_error), (theirs, their_error) = found
    scores = (ours - theirs) / np.sqrt(our_error + their_error)
    assert np.abs(scores).max() < 5, scores


def prior_alone(X: np.ndarray) -> None:
    """Hyperparameters without influence on the data: their posterior is the prior."""
    numpyro.sample("interval", dist.Uniform(2.0, 5.0))
    numpyro.sample("vector", dist.Gamma(2.0, np.array([1.0, 2.0, 4.0])).to_event(1))
    numpyro.sample("factor", dist.LKJCholesky(3, 2.0))
    numpyro.sample("simplex", dist.Dirichlet(np.array([1.0, 2.0, 3.0])))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)), obs=np.zeros(len(X), int))
    numpyro.sample("X", bnp.ConjugateMixture(bnp.BetaBernoulli(np.ones(2), np.ones(2)), z), obs=X)


@pytest.mark.parametrize(("sweeps", "random_order"), few([(1, True), (2, False)], plain=0))
def test_constrained_sites_follow_their_prior(sweeps: int, random_order: bool) -> None:
    """Alone, at a fixed partition: an interval, a vector, a Cholesky factor of a correlation matrix, a simplex.

    Fourteen statistics in all, |z| < 5 with errors from 100 batches: false-alarm rate below 1e-4.
    """
    kernel = bnp.HyperparameterGibbs(prior_alone, sweeps=sweeps, random_order=random_order)
    mcmc = MCMC(kernel, num_warmup=300, num_samples=5000, progress_bar=False)
    mcmc.run(jax.random.key(0), BITS)
    draws = {name: np.asarray(value) for name, value in mcmc.get_samples().items()}
    factor = draws["factor"]
    np.testing.assert_allclose(np.square(factor).sum(-1), 1.0, rtol=1e-4)
    correlation = (factor @ np.swapaxes(factor, 1, 2))[:, [0, 0, 1], [1, 2, 2]]
    found = np.column_stack(
        [draws["interval"], draws["interval"] ** 2, draws["vector"], correlation, correlation**2, draws["simplex"]]
    )
    # LKJ: the variance of a correlation is 1/(2η + d − 1)
    exact = [3.5, 13.0, 2.0, 1.0, 0.5, *[0.0] * 3, *[1 / 6] * 3, 1 / 6, 2 / 6, 3 / 6]
    mean, error = batch_means(found)
    scores = (mean - exact) / error
    assert np.abs(scores).max() < 5, scores


def fixed_partition(X: np.ndarray) -> None:
    alpha = numpyro.sample("alpha", ALPHA)
    component = LIKELIHOODS[2](X)
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, len(X)), obs=np.arange(len(X)) % 3)
    numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X)


def quiet_run(kernel: Any, X: np.ndarray, method: Any, warmup: int = 5, samples: int = 8, **options: Any) -> MCMC:
    mcmc = MCMC(
        kernel, num_warmup=warmup, num_samples=samples, num_chains=2, chain_method=method, progress_bar=False, **options
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*donated buffers.*")
        mcmc.run(jax.random.key(0), X)
    return mcmc


@pytest.mark.parametrize("method", few(["vectorized", jax.vmap, "parallel"], plain=0, slow=2))
def test_chain_methods_give_the_same_draws(method: Any) -> None:
    draws = [
        quiet_run(bnp.HyperparameterGibbs(fixed_partition), BITS, each).get_samples(group_by_chain=True)
        for each in ("sequential", method)
    ]
    assert draws[0]["alpha"].shape == (2, 8) and (draws[0]["alpha"][0] != draws[0]["alpha"][1]).all()
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3), *draws)


@pytest.mark.parametrize("method", few(["parallel", jax.vmap, "sequential"], plain=0))
def test_composition_runs_under_chain_methods(method: Any) -> None:
    """Two groups, eight standard deviations of their means apart, are told apart in most draws."""
    model = partial(dpm, component=LIKELIHOODS[0])
    mcmc = quiet_run(composed(model), REAL, method, 50, 50)
    samples = mcmc.get_samples(group_by_chain=True)
    assert samples["z"].shape == (2, 50, 20) and samples["within"].shape == (2, 50, 2)
    assert (np.asarray(samples["z"])[..., :1] != np.asarray(samples["z"])[..., -1:]).mean() > 0.8
    assert np.isfinite(np.asarray(mcmc.last_state.block_states[1].log_density)).all()


@pytest.mark.slow
def test_resumed_run_continues_the_chain() -> None:
    """Also where it resumes within warm-up, in chunks that are shorter."""
    model = partial(dpm, component=LIKELIHOODS[2])
    whole = MCMC(composed(model), num_warmup=10, num_samples=40, progress_bar=False)
    whole.run(jax.random.key(0), BITS)
    parts = MCMC(composed(model), num_warmup=10, num_samples=20, progress_bar=False)
    parts.run(jax.random.key(0), BITS)
    first = parts.get_samples()
    parts.post_warmup_state = parts.last_state
    parts.run(parts.last_state.rng_key, BITS)
    both = jax.tree.map(lambda *parts: np.concatenate(parts), first, parts.get_samples())
    chunks = bnp.ResumableRun(MCMC(composed(model), num_warmup=10, num_samples=40, progress_bar=False), 4)
    chunks.run(jax.random.key(0), BITS)
    for draws in (both, chunks.get_samples()):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), draws, whole.get_samples())


@pytest.mark.slow
def test_second_run_on_new_data_of_the_same_shape_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    """NumPyro itself compiles every run anew without a progress bar, and switches the bar off when CI is set."""
    for name in ("CI", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    mcmc = MCMC(composed(partial(dpm, component=LIKELIHOODS[0])), num_warmup=5, num_samples=5, jit_model_args=True)
    mcmc.run(jax.random.key(0), REAL)
    compilations.clear()
    mcmc.run(jax.random.key(1), REAL + 1.0)
    assert not compilations


@pytest.mark.slow
def test_warm_up_adapts_and_then_stops() -> None:
    states = {}
    for adapt in (True, False):
        kernel = bnp.HyperparameterGibbs(fixed_partition, width=1.0, adapt=adapt)
        state = kernel.init(jax.random.key(0), 20, {"alpha": np.float32(2.0)}, (BITS,), {})
        assert float(state.z["alpha"]) == 2.0 and int(state.num_warmup) == 20
        step = jax.jit(lambda state, kernel=kernel: kernel.sample(state, (BITS,), {}))
        states[adapt] = [state]
        for _ in range(25):
            states[adapt].append(step(states[adapt][-1]))
    widths = np.stack([state.adapt_state.widths for state in states[True]])
    assert (widths[1:21] != widths[:20]).all() and (widths[21:] == widths[20]).all()
    np.testing.assert_array_equal(states[False][-1].adapt_state.widths, np.ones(3))
    text = bnp.HyperparameterGibbs(fixed_partition).get_diagnostics_str(states[True][-1])
    density = float(states[True][-1].log_density)
    assert text == f"log density {density:.1f}, {int(states[True][-1].evaluations) / 3:.1f} evaluations per update"


def test_single_precision_beside_a_program_in_double_precision() -> None:
    """Whose constants are the arrays of the same learned prior: NumPyro would warn of a type that is not available."""
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(REAL))
    draw = jax.jit(lambda key: numpyro.handlers.trace(numpyro.handlers.seed(model, key)).get_trace(REAL)["within"]["value"])
    with jax.enable_x64(True):
        assert draw(jax.random.key(0)).dtype == np.float64
    state = composed(model).init(jax.random.key(0), 0, None, (REAL,), {})
    assert state.z["within"].dtype == np.float32


def test_kernel_and_run_pickle() -> None:
    kernel = bnp.HyperparameterGibbs(fixed_partition)
    mcmc = MCMC(kernel, num_warmup=2, num_samples=3, progress_bar=False)
    mcmc.run(jax.random.key(0), BITS)
    again = pickle.loads(pickle.dumps(mcmc))
    jax.tree.map(np.testing.assert_array_equal, again.get_samples(), mcmc.get_samples())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"width": 0.0}, "'width' parameter .* must be a finite number above 0. Got 0.0"),
        ({"width": float("nan")}, "'width' parameter"),
        ({"width": True}, "'width' parameter"),
        ({"max_steps_out": -1}, "'max_steps_out' parameter .* whole number of at least 0"),
        ({"sweeps": 0}, "'sweeps' parameter .* whole number of at least 1"),
        ({"adapt": "yes"}, "'adapt' parameter"),
    ],
)
def test_bad_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        bnp.HyperparameterGibbs(fixed_partition, **options)


def discrete_site(X: np.ndarray) -> None:
    kind = numpyro.sample("kind", dist.Poisson(2.0))
    numpyro.sample("X", dist.Normal(kind, 1.0).expand(X.shape).to_event(2), obs=X)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (partial(dpm, component=LIKELIHOODS[0]), r'site "z" \(partition\) is discrete.*PartitionGibbs\(model\), \["z"\]'),
        (discrete_site, r'site "kind" \(Poisson\) is discrete'),
        (
            conditioned(partial(dpm, component=bnp.NormalInverseWishart.from_data(REAL, learn=False))),
            "no continuous hyperparameters",
        ),
    ],
)
def test_bad_models(model: Any, match: str) -> None:
    given = {"_gibbs_sites": {"z": LABELS}} if "no continuous" in match else {}
    with pytest.raises(ValueError, match=match):
        bnp.HyperparameterGibbs(model).init(jax.random.key(0), 0, None, (REAL,), given)


def undefined(X: np.ndarray) -> None:
    numpyro.factor("nothing", jnp.nan * numpyro.sample("m", dist.Normal(0.0, 1.0)))


def test_undefined_densities_stop_the_run() -> None:
    mcmc = MCMC(bnp.HyperparameterGibbs(undefined), num_warmup=0, num_samples=2, progress_bar=False)
    with pytest.raises(jax.errors.JaxRuntimeError, match="HyperparameterGibbs: the log joint of the state is NaN"):
        mcmc.run(jax.random.key(0), REAL)
        jax.block_until_ready(mcmc.get_samples())  # the computation is asynchronous
