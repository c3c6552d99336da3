"""Missing values in the sampler of partitions: against quadrature, a joint test, as a NumPyro kernel, and on bad input."""

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

import bnp_hier as bnp
from bnp_hier.distributions.missing_values import with_cells
from bnp_hier.models import dpm
from tests.oracles.monte_carlo import assert_exact, effective_draws
from tests.oracles.partitions import Enumeration, log_prior
from tests.parameters import few

NAN = np.nan
X = np.array([[-1.0, NAN], [-0.8, -0.5], [NAN, 1.6], [1.7, 1.2], [2.5, 3.0]])
MIXED = np.array([[-1.0, 1, NAN], [-0.8, NAN, -0.5], [NAN, 0, 1.6], [1.7, NAN, 1.2], [2.5, 0, 3.0]])
"""The same numbers with a binary column between them, in which values are missing too."""
LONE_BIT = np.array([[-1.0, 1, -0.8], [NAN, 1, NAN], [1.0, 0, 1.6], [1.7, NAN, 1.2]])
"""A row with a bit alone."""
FAMILIES: dict[str, Any] = {
    "full": bnp.NormalInverseWishart(np.zeros(2), 0.3, 5.0, np.array([[1.0, 0.7], [0.7, 1.0]])),
    "known": bnp.NormalKnownCovariance(np.zeros(2), 4.0 * np.eye(2), np.array([[1.0, 0.7], [0.7, 1.0]])),
}
FAMILIES["mixed"] = bnp.ProductComponent([bnp.BetaBernoulli(np.full(1, 0.3), np.full(1, 0.3)), FAMILIES["full"]], [[1], [0, 2]])


def composed(model: Any) -> Gibbs:
    return Gibbs([(bnp.PartitionGibbs(model), ["z", "missing"]), (bnp.HyperparameterGibbs(model), None)])


def exact_posterior(component: Any, functions: Any, X: np.ndarray = X) -> tuple[Enumeration, np.ndarray, list[float]]:
    """Probabilities of all partitions, and expectations of functions of the two cells, by quadrature over both."""
    absent = component.incomplete_cells(X)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    angles = nodes * np.pi / 2
    points, log_weights = 2.0 * np.tan(angles), np.log(weights * np.pi / np.cos(angles) ** 2)
    exact = Enumeration(len(X), lambda rows: 0.0, 1.0)
    labels = jnp.asarray(np.array(exact.labels))
    pairs = np.stack([np.repeat(points, 200), np.tile(points, 200)], axis=1)

    @jax.jit
    def joint(cells: jax.Array) -> jax.Array:
        stats = component.suff_stats(with_cells(X, cells, absent))
        sums = jax.vmap(lambda z: jax.tree.map(lambda leaf: jax.ops.segment_sum(leaf, z, len(X)), stats))(labels)
        return component.log_marginal(sums).sum(1)

    terms = np.asarray(jax.lax.map(joint, jnp.asarray(pairs), batch_size=2000)).T
    terms = terms + (log_weights[:, None] + log_weights).ravel() + np.array([log_prior(z, 1.0) for z in exact.labels])[:, None]
    partitions = np.logaddexp.reduce(terms, axis=1)
    total = np.logaddexp.reduce(partitions)
    cells = np.exp(np.logaddexp.reduce(terms, axis=0) - total)
    return exact, np.exp(partitions - total), [float(cells @ function(pairs)) for function in functions]


FUNCTIONS = [lambda c: np.tanh(c[:, 0]), lambda c: np.tanh(c[:, 1]), lambda c: np.tanh(c[:, 0]) * np.tanh(c[:, 1])]


@pytest.mark.parametrize(
    ("family", "table"), few([("mixed", MIXED), ("mixed", LONE_BIT), ("full", X), ("known", X)], plain=1, slow=2)
)
def test_exact_against_quadrature(family: str, table: np.ndarray, x64: None) -> None:
    """All partitions of four or five rows, with two missing numbers integrated out by quadrature; missing bits are left out.

    Total variation of the partitions of at most 1.3 times that of independent draws, eight standard deviations above its mean,
    and five standard errors for three expectations of the cells: false-alarm rate below 1e-5.
    """
    component = FAMILIES[family]
    exact, probabilities, expected = exact_posterior(component, FUNCTIONS, table)
    mcmc = MCMC(bnp.PartitionGibbs(partial(dpm, component=component)), num_warmup=300, num_samples=20_000, progress_bar=False)
    mcmc.run(jax.random.key(0), table)
    draws = {site: np.asarray(value) for site, value in mcmc.get_samples().items()}
    assert_exact(draws["z"], exact, probabilities, *draws["missing"].T)
    for function, value in zip(FUNCTIONS, expected, strict=True):
        found = function(draws["missing"])
        assert abs(found.mean() - value) < 5 * found.std() / np.sqrt(effective_draws(found))


@pytest.mark.exhaustive
def test_nuts_samples_the_same_cells(x64: None) -> None:
    """The site is an ordinary one: NUTS agrees within five standard errors (false-alarm rate below 1e-5)."""
    component = FAMILIES["full"]
    _, _, expected = exact_posterior(component, FUNCTIONS[:2])
    model = partial(dpm, component=component)
    kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), None)])
    mcmc = MCMC(kernel, num_warmup=300, num_samples=3000, progress_bar=False)
    mcmc.run(jax.random.key(1), X)
    cells = np.asarray(mcmc.get_samples()["missing"])
    for function, value in zip(FUNCTIONS[:2], expected, strict=True):
        found = function(cells)
        assert abs(found.mean() - value) < 5 * found.std() / np.sqrt(effective_draws(found))


ABSENT = np.isnan(X)


def joint_model(X: Any) -> None:
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, 5))
    component = bnp.NormalInverseWishart(jnp.zeros(2), 0.5, 8.0, scale * (jnp.eye(2) + 0.8))
    numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=bnp.complete_rows("missing", X, ABSENT))


@pytest.mark.slow
def test_geweke_joint_distribution() -> None:
    """Alternating the kernels with fresh data, of which some cells are hidden, must reproduce the prior (Geweke 2004).

    Eleven statistics, |z| < 4.5 each: false-alarm rate below 1e-4.
    """
    steps = 20_000
    kernel = composed(joint_model)
    key_init, key_chain, key_prior = jax.random.split(jax.random.key(3), 3)
    state = kernel.init(key_init, 0, None, (np.nan_to_num(X),), {})

    def fresh(values: dict[str, jax.Array], key: jax.Array) -> jax.Array:
        component = bnp.NormalInverseWishart(jnp.zeros(2), 0.5, 8.0, values["scale"] * (jnp.eye(2) + 0.8))
        return bnp.ConjugateMixture(component, values["z"]).sample(key)

    def statistics(values: dict[str, jax.Array], X: jax.Array) -> jax.Array:
        z, cells = values["z"], jnp.tanh(X[np.nonzero(ABSENT)])
        clusters = (jax.ops.segment_sum(jnp.ones(5), z, 5) > 0).sum()
        seen = jnp.tanh(X[0, 0]) * cells[0], jnp.tanh(X[2, 1]) * cells[1]
        own = jnp.stack([clusters, (z[0] == z[2]).astype(float), values["alpha"], jnp.log(values["scale"])])
        pair = cells[0] * cells[1]
        return jnp.concatenate([own, cells, jnp.abs(cells), jnp.stack([*seen, pair])])

    def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        # all cells afresh, of which the chain is then shown those that are there
        X = fresh(state.z, key)
        of_partition, of_others = state.block_states
        cells = X[np.nonzero(ABSENT)].astype(of_partition.z["missing"].dtype)
        of_partition = of_partition._replace(z={**of_partition.z, "missing": cells})
        state = state._replace(block_states=(of_partition, of_others))
        state = kernel.sample(state, (X,), {})
        completed = X.at[np.nonzero(ABSENT)].set(state.z["missing"])
        return state, statistics(state.z, completed)

    _, successive = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key_chain, steps)))(state)

    def forward(key: jax.Array) -> jax.Array:
        key, key_model, key_X = jax.random.split(key, 3)
        trace = numpyro.handlers.trace(numpyro.handlers.seed(joint_model, key_model)).get_trace(jnp.zeros((5, 2)))
        values = {name: site["value"] for name, site in trace.items() if not site["is_observed"]}
        return statistics(values, fresh(values, key_X))

    prior = np.asarray(jax.jit(jax.vmap(forward))(jax.random.split(key_prior, steps)))
    successive = np.asarray(successive)
    sizes = np.array([effective_draws(column) for column in successive.T])
    scores = (prior.mean(0) - successive.mean(0)) / np.sqrt(prior.var(0) / steps + successive.var(0) / sizes)
    assert np.abs(scores).max() < 4.5, scores


@pytest.mark.slow
def test_a_sweep_refreshes_the_cells_given_the_rest_of_the_row() -> None:
    """Two columns correlated at .99 in well-separated groups: cells are close to the regression on the other column."""
    rng = np.random.default_rng(0)
    first = np.concatenate([rng.normal(0, 1, 50), rng.normal(20, 1, 50)])
    table = np.stack([first, 3.0 * first + 0.1 * rng.normal(size=100)], axis=1)
    holed = np.where(np.arange(200).reshape(100, 2) % 7 == 0, NAN, table)
    mcmc = MCMC(composed(dpm), num_warmup=200, num_samples=200, progress_bar=False)
    mcmc.run(jax.random.key(0), holed)
    cells = np.asarray(mcmc.get_samples()["missing"])
    error = cells.mean(0) - table[np.isnan(holed)]
    assert np.sqrt((error**2).mean()) < 0.3
    assert (np.abs(error) < 5 * cells.std(0) + 1e-3).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.where(np.arange(5)[:, None] == 1, NAN, X), "all values are missing in row 1"),
        (np.where([True, False], NAN, X), "all values are missing in column 0"),
        (np.where(np.arange(5)[:, None] == 1, NAN, MIXED), "all values are missing in row 1"),
        (np.where([True, False, False], NAN, MIXED), "all values are missing in column 0"),
    ],
)
def test_bad_input(data: np.ndarray, message: str) -> None:
    model = partial(dpm, component=FAMILIES["full" if data.shape[1] == 2 else "mixed"])
    with pytest.raises(ValueError, match=message):
        MCMC(bnp.PartitionGibbs(model), num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), data)


def test_models_that_change_the_cells_are_refused() -> None:
    def doubled(X: Any) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)))
        numpyro.sample("X", bnp.ConjugateMixture(FAMILIES["full"], z), obs=2.0 * bnp.complete_rows("missing", X))

    def exact(X: Any) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)))
        columns = bnp.NormalInverseGamma(np.zeros(2), 1.0, 2.0, 1.0)
        numpyro.sample("X", bnp.ConjugateMixture(columns, z), obs=bnp.complete_rows("missing", X))

    def every_cell(X: Any) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)))
        numpyro.sample("X", bnp.ConjugateMixture(FAMILIES["mixed"], z), obs=bnp.complete_rows("missing", X))

    for model, table, message in (
        (doubled, X, "changes the missing values"),
        (exact, X, "NormalInverseGamma leaves missing values out of the likelihood in column 0"),
        (every_cell, MIXED, "ProductComponent leaves missing values out of the likelihood in column 1"),
    ):
        with pytest.raises(ValueError, match=message):
            MCMC(bnp.PartitionGibbs(model), num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), table)
        with pytest.raises(ValueError, match=message):
            bnp.MAPDP(model).fit(table)
    with pytest.raises(ValueError, match="one by one"):
        kernel = Gibbs([(bnp.PartitionGibbs(dpm), ["z"]), (bnp.HyperparameterGibbs(dpm), None)])
        MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), X)
    with pytest.raises(ValueError, match="shape"):
        numpyro.handlers.seed(lambda: bnp.complete_rows("missing", X, np.ones(3, bool)), 0)()
