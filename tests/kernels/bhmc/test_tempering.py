"""Parallel tempering: every replica draws from the posterior with its likelihood; wrong ratios and parameters are found."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, Predictive

import bnp_hier as bnp
from bnp_hier.kernels import bhmc_gibbs
from bnp_hier.kernels.bhmc.tempering import exchange, tempered
from bnp_hier.models import bhmc
from tests.kernels.bhmc.test_bhmc_gibbs import ALPHA, FIXED, GAMMA, GAMMA0, ROWS, excess, normal
from tests.kernels.bhmc.test_bhmc_joint import N, joint_statistics
from tests.oracles.hierarchies import HierarchyEnumeration
from tests.oracles.monte_carlo import effective_draws
from tests.parameters import few

TEMPERATURES = (1.0, 3.0, 10.0)
X = 2.0 * ROWS[:3]
"""Rows that are far apart in comparison with their standard deviation: temperatures matter."""


def of_replicas(steps: int, warmup: int = 200, **options: Any) -> tuple[list[tuple[dict, dict]], np.ndarray]:
    """Draws and label-invariant fields at every temperature, and the shares of accepted exchanges."""
    model = partial(bhmc, depth=2, component=normal(), max_components=3, max_nodes=7, **FIXED)
    kernel = bnp.BHMCGibbs(model, init="prior", temperatures=TEMPERATURES, **options)
    state = kernel.init(jax.random.key(0), 0, None, (X,), {})

    def step(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, (X,), {})
        kept = [
            ({name: part.z[name] for name in ("paths", "labels")}, {name: getattr(part, name) for name in INVARIANT})
            for part in (state, state.replicas)
        ]
        return state, kept

    state, (lowest, others) = jax.jit(lambda s: jax.lax.scan(step, s, None, steps))(state)
    found = [jax.tree.map(lambda leaf: np.asarray(leaf)[warmup:], lowest)]
    for place in range(len(TEMPERATURES) - 1):
        found.append(jax.tree.map(lambda leaf, place=place: np.asarray(leaf)[warmup:, place], others))
    return found, np.asarray(state.swap_rates)


INVARIANT = ("n_nodes", "n_components", "log_tree_prior")


def excesses(steps: int, **options: Any) -> list[float]:
    found, rates = of_replicas(steps, **options)
    assert (rates > 0.2).all() and (rates <= 1.0).all()
    scores = []
    for temperature, (draws, fields) in zip(TEMPERATURES, found, strict=True):
        component = tempered(normal(), jnp.asarray(temperature))
        exact = HierarchyEnumeration(3, 2, 3, ALPHA, GAMMA0, GAMMA, lambda rows, c=component: c.log_evidence(X[rows]))
        scores.append(excess(exact, draws, fields))
    return scores


@pytest.mark.parametrize(
    "options", few([{"split_merge": 1}, {"split_merge": 0, "path": "mh", "relabel": True}], plain=0, slow=0)
)
def test_every_replica_is_exact(options: dict[str, Any]) -> None:
    """All states of tree and partition by component, as in `test_exact`."""
    assert max(excesses(10_000, **options)) <= 1.3


def test_how_close_temperatures_must_be() -> None:
    """The page's factor 1 + √(2/(nd)) for fashion images: six times the step is too much (fixed key)."""
    half = 1000 * 22 / 2
    rng = np.random.default_rng(0)
    for steps, low, high in ((1.0, 0.4, 0.8), (6.0, 0.0, 0.01)):
        temperatures = np.array([1.0, 1.0 + steps / np.sqrt(half)])
        # −ℓ of nd normal deviations at temperature T, but for a constant
        log_likelihood = -rng.gamma(half, size=(2000, 2)) * temperatures
        keys = jax.random.split(jax.random.key(0), 2000)
        _, accepted, _ = jax.vmap(exchange, (0, None, None, 0))(
            jnp.asarray(log_likelihood), jnp.asarray(temperatures), jnp.asarray(False), keys
        )
        assert low <= accepted.mean() <= high


def test_the_power_of_a_likelihood() -> None:
    """Evidence of the tempered component, but for a constant, by quadrature over the mean."""
    component, rows = normal(), np.array([[0.3], [-1.1], [2.0]])
    grid = np.linspace(-30.0, 30.0, 200_001)
    prior = np.asarray(component.prior().log_prob(jnp.asarray(grid)[:, None]), float)

    def by_quadrature(some: np.ndarray) -> float:
        logs = prior + sum(-((row - grid) ** 2) / (2 * 0.5) for row in some[:, 0]) / 3.0
        return float(np.log(np.trapezoid(np.exp(logs), grid)))

    found = tempered(component, jnp.asarray(3.0))
    both = [float(found.log_evidence(some)) - by_quadrature(some) for some in (rows, rows[:1], rows[1:])]
    np.testing.assert_allclose(both[0], both[1] + both[2], atol=2e-3)


def always(exchange: Any) -> Any:
    """Exchanges without a look at the likelihoods."""
    return lambda log_likelihood, *rest: exchange(jnp.zeros_like(log_likelihood), *rest)


def at_one(component: Any, temperature: jax.Array) -> Any:
    """Items, components and parameters drawn at temperature 1, whatever the replica's."""
    return tempered(component, jnp.ones_like(temperature))


@pytest.mark.parametrize(("name", "wrong"), few([("exchange", always(bhmc_gibbs.exchange)), ("tempered", at_one)], plain=0))
def test_wrong_replicas_are_found(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the test above is exceeded tenfold."""
    monkeypatch.setattr(bhmc_gibbs, name, wrong)
    assert max(excesses(10_000, split_merge=1)) > 10


STEPS, TEMPERATURE = 8000, 2.0


def learned(shape: float) -> partial:
    """A model whose variance has an inverse-gamma prior with this shape."""

    def component(X: Any) -> bnp.NormalKnownCovariance:
        return normal(variance=numpyro.sample("sigma2", dist.InverseGamma(shape, 2.0)))

    hyper = {"concentration": dist.Gamma(3.0, 2.0), "root_concentration": 1.5, "mixing_concentration": dist.Uniform(0.2, 1.5)}
    return partial(bhmc, depth=2, component=component, max_components=3, max_nodes=1 + 2 * N, **hyper)


def z_scores(monkeypatch: pytest.MonkeyPatch, wrong: bool = False) -> np.ndarray:
    """Steps at one temperature alternating with fresh data, against draws from the joint distribution (Geweke 2004).

    The n·d rows given everything else are normal with variance Tσ². The likelihood to the power 1/T is that density times
    σ^{n·d(1 − 1/T)}, so that σ² has a prior with a smaller shape.
    """
    shape, X0 = 5.0, jnp.ones((N, 1))
    model = learned(shape)
    kernel = bnp.BHMCGibbs(model, init="prior", split_merge=2)
    if wrong:
        draw = bhmc_gibbs._draw_variance
        monkeypatch.setattr(bhmc_gibbs, "_draw_variance", lambda *a: draw(*a[:-2], 1.0, a[-1]))
    key, key_chain, key_prior = jax.random.split(jax.random.key(0), 3)
    state = kernel.init(key, 0, None, (X0,), {})

    def rows(values: dict, key: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, (N, 1)) * jnp.sqrt(TEMPERATURE * values["sigma2"])
        return values["parameters"][values["labels"]] + noise

    def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        X = rows(state.z, key)
        state = kernel._step(state, jnp.asarray(TEMPERATURE), (X,), {})
        return state, joint_statistics(state.z, X, 1 + 2 * N)

    _, drawn = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key_chain, STEPS)))(state)
    prior_model = learned(shape - N * (1 - 1 / TEMPERATURE) / 2)
    values = Predictive(prior_model, num_samples=STEPS)(key_prior, X0)
    prior = jax.vmap(lambda v, k: joint_statistics(v, rows(v, k), 1 + 2 * N))(values, jax.random.split(key_prior, STEPS))
    one, other = np.asarray(prior, float), np.asarray(drawn, float)
    sizes = np.array([effective_draws(column) for column in other.T])
    error = np.sqrt(one.var(0) / len(one) + other.var(0) / sizes)
    return (one.mean(0) - other.mean(0)) / np.where(error > 0, error, 1.0)


@pytest.mark.slow
def test_joint_distribution_at_a_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighteen statistics or so, |z| < 4.5 each: a false-alarm rate of about 1e-4."""
    assert np.abs(z_scores(monkeypatch)).max() < 4.5


@pytest.mark.exhaustive
def test_joint_distribution_finds_a_variance_at_temperature_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.abs(z_scores(monkeypatch, wrong=True)).max() > 6


@pytest.mark.slow
def test_temperatures_under_numpyro() -> None:
    """Chains, each with its replicas."""
    rows = np.random.default_rng(0).normal(size=(12, 1))
    kernel = bnp.BHMCGibbs(partial(bhmc, depth=2, component=normal(), max_components=4), temperatures=(1.0, 1.5))
    mcmc = MCMC(kernel, num_warmup=5, num_samples=5, num_chains=2, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(0), rows, extra_fields=("swap_rates",))
    assert mcmc.get_extra_fields(True)["swap_rates"].shape == (2, 5, 1)
    assert mcmc.get_samples(True)["labels"].shape == (2, 5, 12)


@pytest.mark.slow
def test_bad_temperatures() -> None:
    model = partial(bhmc, component=normal(), max_components=3, **FIXED)
    for temperatures in ((2.0, 3.0), (1.0, 0.8), (1.0, np.inf), ()):
        with pytest.raises(ValueError, match="temperatures must begin with 1.0 and increase"):
            bnp.BHMCGibbs(model, temperatures=temperatures)
    bits = partial(bhmc, component=bnp.BetaBernoulli(np.ones(2), np.ones(2)), max_components=3, **FIXED)
    kernel = bnp.BHMCGibbs(bits, temperatures=(1.0, 2.0), init="one_path")
    with pytest.raises(ValueError, match="temperatures require NormalKnownCovariance, but the components are BetaBernoulli"):
        kernel.init(jax.random.key(0), 0, None, (np.zeros((3, 2)),), {})
    kernel = bnp.BHMCGibbs(partial(bits, component=bnp.NormalInverseWishart.from_data(ROWS, learn=False)), temperatures=(1, 2))
    with pytest.raises(ValueError, match="temperatures require NormalKnownCovariance, .* NormalInverseWishart"):
        kernel.init(jax.random.key(0), 0, None, (ROWS,), {})
    kernel = bnp.BHMCGibbs(partial(bhmc, max_components=3), temperatures=(1.0, 2.0), init="one_path")
    with pytest.raises(ValueError, match="temperatures require a component with fixed hyperparameters .* sites"):
        kernel.init(jax.random.key(0), 0, None, (np.arange(8.0).reshape(4, 2) ** 2,), {})
