"""Where chains begin: legal, random by the chain's key alone, and refused where they cannot be."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import NUTS, Gibbs

from bnp_hier import NormalInverseWishart, PartitionGibbs
from bnp_hier.distributions.seating import Prior
from bnp_hier.kernels.initial_labels import STARTS, starting_labels
from bnp_hier.models import dpm
from bnp_hier.partitions.seats import Seating
from bnp_hier.utils.labels import canonical_labels
from tests.oracles.map_dp import map_dp
from tests.oracles.problems import random_problem

N = 8
PROBLEM = random_problem("niw", N, 0)


@pytest.mark.slow
def test_every_start_is_legal_random_and_reproducible() -> None:
    keys = jax.random.split(jax.random.key(0), 200)
    slots = {"overdispersed": 5}  # too few for all items alone

    def draw(name: str, key: jax.Array) -> jax.Array:
        draws = jax.random.uniform(key, (N + 1,))
        return starting_labels(name, Seating(PROBLEM.component, PROBLEM.X, Prior(PROBLEM.alpha)), draws, slots.get(name, N))

    functions = {name: jax.jit(jax.vmap(partial(draw, name))) for name in STARTS}
    drawn = {name: np.asarray(function(keys)) for name, function in functions.items()}
    for labels in drawn.values():
        for z in np.unique(labels, axis=0):
            np.testing.assert_array_equal(z, canonical_labels(z))
    assert (drawn["one"] == 0).all() and (drawn["singletons"] == np.arange(N)).all()
    clusters = drawn["prior"].max(1) + 1
    ranks = np.arange(N)
    mean = (PROBLEM.alpha / (PROBLEM.alpha + ranks)).sum()
    variance = (PROBLEM.alpha * ranks / (PROBLEM.alpha + ranks) ** 2).sum()
    # five standard errors: false-alarm rate below 1e-6
    assert abs(clusters.mean() - mean) < 5 * np.sqrt(variance / 200)
    # a greedy start is where the plain algorithm ends for some order of the rows
    rng = np.random.default_rng(0)
    ends = {tuple(map_dp(rng.permutation(N).tolist(), PROBLEM.log_marginal, PROBLEM.alpha)[0]) for _ in range(60)}
    ends = {tuple(int(label) for label in canonical_labels(np.array(z))) for z in ends}
    assert {tuple(z.tolist()) for z in drawn["map_dp"][:20]} <= ends
    # one cluster is picked by about a third of the keys
    assert 0.2 < (drawn["overdispersed"] == 0).all(1).mean() < 0.7
    assert len(np.unique(drawn["overdispersed"], axis=0)) > 3 and drawn["overdispersed"].max() < 5
    np.testing.assert_array_equal(drawn["overdispersed"], functions["overdispersed"](keys))


@pytest.mark.slow
def test_starts_of_chains_alone_and_in_a_composition() -> None:
    """What the user gives wins; NumPyro's `Gibbs` hands its own draw from the prior, which does not."""
    X = PROBLEM.X
    model = partial(dpm, component=NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    given = np.repeat([0, 1], N // 2)

    kernel = Gibbs([(PartitionGibbs(model, init="singletons"), ["z"]), (NUTS(model), None)])
    for params, expected in ((None, np.arange(N)), ({"z": given}, given)):
        state = kernel.init(jax.random.key(2), 0, params, (X,), {})
        np.testing.assert_array_equal(state.z["z"], expected)
    fixed = PartitionGibbs(partial(dpm, component=PROBLEM.component, concentration=1.0), init=given)
    both = fixed.init(jax.random.split(jax.random.key(0), 2), 0, None, (X,), {})
    np.testing.assert_array_equal(both.z["z"], [given, given])
    both = fixed.init(jax.random.split(jax.random.key(0), 2), 0, {"z": jnp.zeros((2, N), int)}, (X,), {})
    np.testing.assert_array_equal(both.z["z"], np.zeros((2, N)))


@pytest.mark.parametrize(
    ("init", "match"),
    [
        ("singletons", r"a cluster for each of the 8 items, but there are only 4 slots: raise max_clusters to 8"),
        (np.arange(N), "initial labels form 8 clusters, but there are only 4 slots: raise max_clusters"),
        (np.zeros(7, int), "initial labels must be 8 whole numbers"),
        (np.repeat([0, 3], N // 2), "the largest is 3 and no item has label 1"),
        (np.repeat([0, -1], N // 2), r"must lie in 0, \.\.\., 7, but they span -1 to 0"),
    ],
)
def test_bad_starts(init, match: str) -> None:
    kernel = PartitionGibbs(partial(dpm, component=PROBLEM.component, concentration=1.0), max_clusters=4, init=init)
    with pytest.raises(ValueError, match=match):
        kernel.init(jax.random.key(0), 0, None, (PROBLEM.X,), {})
