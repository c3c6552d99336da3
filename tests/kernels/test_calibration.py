"""Simulation-based calibration of the composition of PartitionGibbs with NUTS (Talts et al. 2018)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import NUTS, Gibbs
from scipy.stats import chisquare

from bnp_hier import ChineseRestaurantProcess, ConjugateMixture, NormalInverseGamma, PartitionGibbs
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.joint_density import log_joint
from tests.parameters import few

N, REPLICATIONS, WARMUP, DRAWS, THINNING = 8, 600, 6, 7, 10
ALPHA, RATE = dist.Gamma(2.0, 2.0), dist.LogNormal(0.0, 0.5)


def _component(rate: jax.Array) -> NormalInverseGamma:
    return NormalInverseGamma(mean=jnp.zeros(1), kappa=0.3, shape=4.0, rate=rate)


def _model(X: jax.Array) -> None:
    alpha, rate = numpyro.sample("alpha", ALPHA), numpyro.sample("rate", RATE)
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, N))
    numpyro.sample("X", ConjugateMixture(_component(rate), z), obs=X)


def _statistics(values: dict[str, jax.Array], X: jax.Array) -> jax.Array:
    """Concentration, log rate, number of clusters, log joint of everything."""
    alpha, rate, z = values["alpha"], values["rate"], values["z"]
    component = _component(rate)
    joint = log_joint(component, component.suff_stats(X), z, Prior(alpha), N) + ALPHA.log_prob(alpha) + RATE.log_prob(rate)
    return jnp.stack([alpha, jnp.log(rate), (z.max() + 1).astype(float), joint])


def _rank_probabilities(**options) -> np.ndarray:
    """Chi-square probability of the ranks of each statistic's truth among draws from its posterior, if they are uniform.

    Every replication draws parameters, partition and data from the model, and runs one chain on them from a start that knows
    nothing of them; all chains run in one compiled program. Ties are broken at random.
    """
    nuts = NUTS(_model, step_size=0.7, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=3)
    kernel = Gibbs([(PartitionGibbs(_model, init="one", **options), ["z"]), (nuts, None)])
    start = kernel.init(jax.random.key(0), 0, None, (jnp.zeros((N, 1)),), {})
    constrain = kernel.get_constrain_fn((), {})

    def replicate(start, key: jax.Array) -> jax.Array:
        key_alpha, key_rate, key_z, key_X, key_ties, *keys_chain = jax.random.split(key, 8)
        truth = {"alpha": ALPHA.sample(key_alpha), "rate": RATE.sample(key_rate)}
        truth["z"] = ChineseRestaurantProcess(truth["alpha"], N).sample(key_z)
        X = ConjugateMixture(_component(truth["rate"]), truth["z"]).sample(key_X)
        conditioned = {"_gibbs_sites": {"z": start.z["z"]}}
        blocks = (start.block_states[0], kernel.blocks[1][0].refresh(start.block_states[1], (X,), conditioned))
        blocks = tuple(block._replace(rng_key=key) for block, key in zip(blocks, keys_chain, strict=False))
        state = start._replace(block_states=blocks, rng_key=keys_chain[2])

        def draw(state, _):
            state = jax.lax.fori_loop(0, THINNING, lambda _, s: kernel.sample(s, (X,), {}), state)
            return state, _statistics(constrain(state.z), X)

        _, values = jax.lax.scan(draw, state, None, length=WARMUP + DRAWS)
        values, target = values[WARMUP:], _statistics(truth, X)
        ties = (values == target).sum(0)
        return (values < target).sum(0) + jnp.floor(jax.random.uniform(key_ties, ties.shape) * (ties + 1))

    keys = jax.random.split(jax.random.key(7), REPLICATIONS)
    ranks = np.asarray(jax.jit(lambda start, keys: jax.lax.map(partial(replicate, start), keys))(start, keys), int)
    return np.array([chisquare(np.bincount(rank, minlength=DRAWS + 1)).pvalue for rank in ranks.T])


@pytest.mark.parametrize("engine", few(["kernels", "xla"], plain=0), indirect=True)
@pytest.mark.parametrize("proposal", few(["sequential", "restricted_gibbs"], plain=0, slow=1))
def test_ranks_of_the_truth_are_uniform(proposal: str, engine: str) -> None:
    """Four statistics, two proposals, both engines: false-alarm rate below 2e-3 in all."""
    probabilities = _rank_probabilities(proposal=proposal, restricted_scans=2)
    assert probabilities.min() > 1e-4, probabilities
