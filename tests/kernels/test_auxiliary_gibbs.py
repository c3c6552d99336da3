"""The Gibbs kernel with explicit cluster parameters: exact against enumeration, as a NumPyro kernel, and on bad input."""

from __future__ import annotations

import pickle
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, CustomGibbs, Gibbs

import bnp_hier.kernels.auxiliary_gibbs as auxiliary_gibbs
from bnp_hier import AuxiliaryGibbs, ChineseRestaurantProcess, NormalKnownCovariance
from bnp_hier.distributions.seating import Prior, log_slot_seating
from bnp_hier.kernels.reports import wait_for_reports
from tests.oracles.monte_carlo import assert_exact, effective_draws
from tests.oracles.partitions import Enumeration
from tests.parameters import few

N = 6
_RNG = np.random.default_rng(1)
X = np.concatenate([_RNG.normal(0.0, 1.0, (3, 1)), _RNG.normal(2.0, 1.0, (3, 1))])
COMPONENT = NormalKnownCovariance(np.zeros(1), 4.0 * np.eye(1), np.eye(1))


def normal_mixture(alpha: jax.Array, discount: jax.Array, slots: int = N, size: int = N) -> None:
    """The conjugate mixture of `COMPONENT` with its means as a site."""
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, size, discount, max_clusters=slots))
    with numpyro.plate("clusters", slots):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", size):
        numpyro.sample("X", dist.Normal(loc[z], 1.0), obs=jnp.asarray(X[:size, 0]))


def exact_means(rng_key: jax.Array, gibbs_sites: dict, hmc_sites: dict) -> dict:
    """The means given the labels, in closed form; those of empty slots from the prior."""
    slots = gibbs_sites["loc"].shape[0]
    z = hmc_sites["z"]
    precision = 0.25 + jax.ops.segment_sum(jnp.ones(N), z, slots)
    mean = jax.ops.segment_sum(jnp.asarray(X[:, 0], jnp.result_type(float)), z, slots) / precision
    return {"loc": mean + jax.random.normal(rng_key, (slots,)) / jnp.sqrt(precision)}


def canonical(labels: np.ndarray) -> np.ndarray:
    """Every draw's labels renamed in order of appearance."""
    first = (labels[:, :, None] == labels[:, None, :]).argmax(2)
    rank = np.cumsum(first == np.arange(labels.shape[1]), axis=1) - 1
    return np.take_along_axis(rank, first, axis=1)


def chain(slots: int, alpha: float, discount: float, steps: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Canonical labels and log joints of the kernel composed with exact draws of the means."""
    model = partial(normal_mixture, slots=slots)
    kernel = Gibbs([(AuxiliaryGibbs(model), ["z"]), (CustomGibbs(exact_means), ["loc"])])
    state = kernel.init(jax.random.key(0), 0, None, (alpha, discount), {})

    def step(state, _):
        state = kernel.sample(state, (alpha, discount), {})
        return state, (state.z["z"], state.block_states[0].log_joint)

    _, (labels, log_joint) = jax.jit(lambda state: jax.lax.scan(step, state, None, steps + 200))(state)
    return canonical(np.asarray(labels)[200:]), np.asarray(log_joint)[200:]


def enumeration(alpha: float, discount: float) -> Enumeration:
    return Enumeration(N, lambda rows: COMPONENT.log_evidence(X[rows]), alpha, discount)


@pytest.mark.parametrize(("alpha", "discount", "slots"), few([(0.7, 0.4, 9), (0.4, 0.0, N)], plain=0, slow=2))
def test_exact(alpha: float, discount: float, slots: int) -> None:
    """More slots than items are as many as there are items."""
    exact = enumeration(alpha, discount)
    labels, log_joint = chain(slots, alpha, discount)
    assert_exact(labels, exact, exact.probabilities, log_joint)


@pytest.mark.slow
def test_capacity_restricts_the_target_and_is_never_silent() -> None:
    """With three slots the draws follow the posterior restricted to at most three clusters."""
    exact = enumeration(1.5, 0.0)
    allowed = np.array(exact.labels).max(1) < 3
    probabilities = np.where(allowed, exact.probabilities, 0.0) / exact.probabilities[allowed].sum()
    with pytest.warns(RuntimeWarning, match="reached its capacity of 3 clusters.*raise max_clusters of the site"):
        labels, log_joint = chain(3, 1.5, 0.0)
        wait_for_reports(labels)
    assert_exact(labels, exact, probabilities, log_joint)


@pytest.mark.parametrize("num_warmup", [0, 6])
def test_what_warm_up_lacks_does_not_count(num_warmup: int) -> None:
    """Six rows of one cluster that start in all three slots, of which they soon leave two."""
    table, start = np.full((6, 1), 2.0), {"z": np.array([0, 1, 2, 0, 1, 2])}
    mcmc = MCMC(AuxiliaryGibbs(known_means), num_warmup=num_warmup, num_samples=4, progress_bar=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mcmc.run(jax.random.key(0), table, init_params=start)
        wait_for_reports(mcmc.last_state)
    warned = [str(one.message) for one in caught if "reached its capacity of 3 clusters" in str(one.message)]
    state = mcmc.last_state
    assert len(warned) == (num_warmup == 0) and (int(state.capacity_hits) > 0) == (num_warmup == 0)
    assert (int(state.num_warmup), int(state.i), int(state.n_clusters)) == (num_warmup, num_warmup + 4, 1)


def _all_empty_slots_whole(counts: jax.Array, prior: Prior) -> jax.Array:
    """Every empty slot takes the whole of α: the 1/(K − c) is missing."""
    return jnp.log(jnp.where(counts > 0, counts - prior.discount, prior.concentration))


def _no_concentration(counts: jax.Array, prior: Prior) -> jax.Array:
    return log_slot_seating(counts, Prior(1.0, prior.discount))


@pytest.mark.parametrize("broken", few([_all_empty_slots_whole, _no_concentration], plain=0, slow=2))
def test_broken_weights_are_caught(broken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auxiliary_gibbs, "log_slot_seating", broken)
    exact = enumeration(0.4, 0.0)
    labels, log_joint = chain(N, 0.4, 0.0)
    with pytest.raises(AssertionError):
        assert_exact(labels, exact, exact.probabilities, log_joint)


def student_mixture(X: jax.Array, slots: int = 5) -> None:
    n = X.shape[0]
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, n, max_clusters=slots))
    with numpyro.plate("clusters", slots):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0).expand([1]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("rows", n):
        numpyro.sample("X", dist.StudentT(4.0, loc[z], scale[z][:, None]).to_event(1), obs=X)


def _student_data(key: jax.Array, values: dict) -> jax.Array:
    z = values["z"]
    return dist.StudentT(4.0, values["loc"][z], values["scale"][z][:, None]).sample(key)


def _geweke_statistics(values: dict, X: jax.Array) -> jax.Array:
    z, alpha = values["z"], values["alpha"]
    clusters = (jax.ops.segment_sum(jnp.ones(5), z, 5) > 0).sum()
    pair = (z[0] == z[1]).astype(float)
    own = values["loc"][z[0], 0]
    numbers = [alpha, jnp.log(alpha), clusters, pair, alpha * clusters, own, own**2, jnp.log(values["scale"][z[0]])]
    return jnp.stack([*numbers, jnp.tanh(X[0, 0] * X[1, 0]), jnp.log(values["scale"]).mean(), jnp.tanh(X[0, 0] * own)])


@pytest.mark.slow
def test_geweke_joint_distribution_of_the_whole_composition() -> None:
    """Alternating the kernel, NUTS and fresh data must reproduce the prior (Geweke 2004): Student-t clusters, α unknown.

    Eleven statistics, |z| < 4.5 each: false-alarm rate about 8e-5.
    """
    steps, empty = 10_000, jnp.zeros((5, 1))
    nuts = NUTS(student_mixture, step_size=0.5, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=3)
    kernel = Gibbs([(AuxiliaryGibbs(student_mixture), ["z"]), (nuts, None)])
    key_init, key_chain, key_prior = jax.random.split(jax.random.key(3), 3)
    state = kernel.init(key_init, 0, None, (empty,), {})
    (_, _), (nuts, _) = kernel.blocks
    constrain = kernel.get_constrain_fn((empty,), {})

    def step(state, key):
        values = constrain(state.z)
        X = _student_data(key, values)
        hmc = nuts.refresh(state.block_states[1], (X,), {"_gibbs_sites": {"z": values["z"]}})
        state = kernel.sample(state._replace(block_states=(state.block_states[0], hmc)), (X,), {})
        return state, _geweke_statistics(constrain(state.z), X)

    _, successive = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key_chain, steps)))(state)

    def forward(key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, 5)
        alpha = dist.Gamma(2.0, 2.0).sample(keys[0])
        values = {
            "alpha": alpha,
            "z": ChineseRestaurantProcess(alpha, 5).sample(keys[1]),
            "loc": dist.Normal(0.0, 2.0).sample(keys[2], (5, 1)),
            "scale": dist.LogNormal(0.0, 0.5).sample(keys[3], (5,)),
        }
        return _geweke_statistics(values, _student_data(keys[4], values))

    prior = np.asarray(jax.jit(jax.vmap(forward))(jax.random.split(key_prior, steps)))
    successive = np.asarray(successive)
    for column in range(prior.shape[1]):
        size = effective_draws(successive[:, column])
        error = np.sqrt(prior[:, column].var() / steps + successive[:, column].var() / size)
        score = (prior[:, column].mean() - successive[:, column].mean()) / error
        assert abs(score) < 4.5, (column, score, size)
        assert size > 500


def regressions(table: jax.Array, slots: int = 8) -> None:
    """A line in every cluster: the covariate has a density too, so that two observed sites depend on the labels."""
    x, y = table[:, 0], table[:, 1]
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, len(table), max_clusters=slots))
    with numpyro.plate("clusters", slots):
        center = numpyro.sample("centre", dist.Normal(0.0, 3.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", len(table)):
        numpyro.sample("x", dist.Normal(center[z], 1.0), obs=x)
        numpyro.sample("y", dist.Normal(slope[z] * x, 0.3), obs=y)


@pytest.mark.slow
def test_mixture_of_regressions() -> None:
    """Two lines through the origin, of slopes 2 and −2, whose covariates overlap: only y tells them apart.

    Centres and slopes are drawn exactly: normal given the labels.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=24) + 0.5
    y = np.where(np.arange(24) < 12, 2.0, -2.0) * x + 0.1 * rng.normal(size=24)
    table = np.column_stack([x, y])

    def draw_lines(rng_key: jax.Array, gibbs_sites: dict, hmc_sites: dict) -> dict:
        z = hmc_sites["z"]
        precision, moment = jnp.stack([jnp.ones(24), jnp.square(x) / 0.09]), jnp.stack([jnp.array(x), x * y / 0.09])
        precision = 1 / 9 + jax.vmap(lambda v: jax.ops.segment_sum(v, z, 8))(precision)
        mean = jax.vmap(lambda v: jax.ops.segment_sum(v, z, 8))(moment) / precision
        drawn = mean + jax.random.normal(rng_key, (2, 8)) / jnp.sqrt(precision)
        return {"centre": drawn[0], "slope": drawn[1]}

    kernel = Gibbs([(AuxiliaryGibbs(regressions), ["z"]), (CustomGibbs(draw_lines), ["centre", "slope"])])
    state = kernel.init(jax.random.key(0), 0, None, (table,), {})

    def step(state, _):
        state = kernel.sample(state, (table,), {})
        own = state.block_states[0]
        return state, (state.z["z"], state.z["slope"], own.n_clusters, own.largest_cluster, own.entropy, own.log_joint)

    last, series = jax.jit(lambda state: jax.lax.scan(step, state, None, 2000))(state)
    z, slope, clusters, largest, entropy, log_joint = (np.asarray(one)[500:] for one in series)
    far = np.abs(x) > 0.5  # lines cross at the origin
    assert (z[:, :12][:, far[:12], None] != z[:, 12:][:, None, far[12:]]).mean() > 0.95
    slopes = np.take_along_axis(slope, z, axis=1).mean(0)
    np.testing.assert_allclose(slopes[far], np.where(np.arange(24) < 12, 2.0, -2.0)[far], atol=0.3)
    for draw in (3, 777):
        shares = np.bincount(z[draw]) / 24
        shares = shares[shares > 0]
        assert (clusters[draw], largest[draw]) == (len(shares), round(24 * shares.max()))
        np.testing.assert_allclose(entropy[draw], -(shares * np.log(shares)).sum(), atol=1e-5)
    assert np.isfinite(log_joint).all()
    assert int(last.block_states[0].i) == 2000 and int(last.block_states[0].capacity_hits) == 0


def known_means(table: jax.Array) -> None:
    """The partition is the only latent site."""
    loc = jnp.array([-2.0, 2.0, 6.0])
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, len(table), max_clusters=3))
    with numpyro.plate("rows", len(table)):
        numpyro.sample("X", dist.Normal(loc[z], 1.0), obs=table[:, 0])


@pytest.mark.slow
def test_chain_methods_labels_and_pickles() -> None:
    """Labels name slots: they follow the known means, whichever row comes first."""
    table = np.array([6.0, 6.2, -2.0, 2.1, -1.9])[:, None]
    draws = {}
    for method in ("sequential", "vectorized"):
        mcmc = MCMC(
            AuxiliaryGibbs(known_means), num_warmup=5, num_samples=40, num_chains=2, chain_method=method, progress_bar=False
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="AuxiliaryGibbs reached its capacity")
            mcmc.run(jax.random.key(0), table)
            wait_for_reports(mcmc.last_state)
        draws[method] = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])
        assert int(mcmc.last_state.capacity_hits[0]) > 0
    np.testing.assert_array_equal(draws["sequential"], draws["vectorized"])
    most = [np.bincount(column, minlength=3).argmax() for column in draws["vectorized"].reshape(-1, 5).T]
    np.testing.assert_array_equal(most, [2, 2, 0, 1, 0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mcmc)).get_samples()["z"], mcmc.get_samples()["z"])


def test_rows_that_no_slot_can_have_given_do_no_harm() -> None:
    """Densities of zero in every slot: the row is seated by the partition prior until the parameters move."""
    dead = jnp.array([[0.0, -1.0], [-jnp.inf, -jnp.inf], [-1.0, 0.0]])
    labels, _ = auxiliary_gibbs._sweep(dead, jnp.array([0, 1, 1]), Prior(1.0), jnp.arange(3), jnp.full(3, 0.5))
    assert set(np.asarray(labels)) <= {0, 1}


@pytest.mark.parametrize(
    ("model", "start", "match"),
    [
        (
            student_mixture,
            None,
            r"latent sites \['alpha', 'loc', 'scale'\]: use Gibbs\(\[\(AuxiliaryGibbs\(model\), \[\"z\"\]\)",
        ),
        (known_means, np.zeros(3, int), "initial labels must be 6 whole numbers"),
        (known_means, np.full(6, 3), r"initial labels must lie in 0, \.\.\., 2"),
    ],
)
def test_bad_input(model, start, match: str) -> None:
    params = None if start is None else {"z": start}
    with pytest.raises(ValueError, match=match):
        AuxiliaryGibbs(model).init(jax.random.key(0), 0, params, (X,), {})
