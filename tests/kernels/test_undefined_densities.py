"""A chain that meets numbers that are none stops and says so; the draws that it had have no meaning."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import numpy as jnp
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.distributions.log_gamma import log_gamma_draw
from bnp_hier.methods import RunOptions, run_methods
from tests.deterministic.test_undefined_scores import X, model


def run(kernel, **options):
    mcmc = MCMC(kernel, num_warmup=2, num_samples=30, progress_bar=False, **options)
    mcmc.run(jax.random.key(0), X)
    jax.block_until_ready(mcmc.get_samples())  # the computation is asynchronous


@pytest.mark.parametrize("chains", [{}, {"num_chains": 2, "chain_method": "vectorized"}], ids=["one", "vectorized"])
def test_partition_gibbs(chains):
    """Rows 1 and 3 together have no density, every row alone has: NaN is met only where two clusters would be one."""
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"PartitionGibbs: row \d fits no cluster"):
        run(bnp.PartitionGibbs(model(3.3), init=np.arange(6), split_merge=0), **chains)


@pytest.mark.slow
def test_a_resumable_run_says_it_in_one_line(caplog):
    """Without what JAX wraps around it, and with the chunks before; other methods of a comparison go on."""
    runs = bnp.ResumableRun(
        MCMC(bnp.PartitionGibbs(model(3.3), init=np.arange(6)), num_warmup=2, num_samples=30), checkpoint_every=2
    )
    runs.mcmc.progress_bar = False
    with pytest.raises(FloatingPointError, match=r"^PartitionGibbs: row \d fits no cluster[^\n]*$"):
        runs.run(jax.random.key(0), X)
    assert runs.steps < 32 and not caplog.records
    outcome = run_methods(["gibbs"], model(3.3), X, RunOptions(1, 2, 30, progress_bar=False))
    assert not outcome.fits and "\n" not in outcome.problems[0]
    assert outcome.problems[0].startswith("Gibbs failed: PartitionGibbs: row")


def test_split_merge_moves():
    """A merge that is proposed and has no density is no mere refusal."""
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"PartitionGibbs: row \d fits no cluster"):
        run(bnp.PartitionGibbs(model(3.3, np.inf), init=np.arange(6)))


@pytest.mark.slow
def test_parallel_split_merge():
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ParallelSplitMerge: the log joint of the state is NaN"):
        run(bnp.ParallelSplitMerge(model(2.0), init="one", sweep=False))


@pytest.mark.slow
def test_auxiliary_gibbs():
    """NaN for rows near a slot's parameter: the seating probabilities used to decide alone."""

    def slots(x):
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(x), max_clusters=3))
        with numpyro.plate("slots", 3):
            numpyro.sample("loc", dist.Normal(0.0, 1.0))
        loc = jnp.array([0.0, 1.0, 2.0])
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", dist.Normal(loc[z], jnp.where(jnp.abs(x[:, 0] - loc[z]) < 0.05, jnp.nan, 1.0)), obs=x[:, 0])

    from numpyro.infer import NUTS, Gibbs

    kernel = Gibbs([(bnp.AuxiliaryGibbs(slots), ["z"]), (NUTS(slots), None)])
    advice = "; if the densities are finite in double precision, call numpyro.enable_x64"
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"AuxiliaryGibbs: the log joint of the state is NaN{advice}"):
        run(kernel)
    with jax.enable_x64(True), pytest.raises(jax.errors.JaxRuntimeError) as problem:
        run(Gibbs([(bnp.AuxiliaryGibbs(slots), ["z"]), (NUTS(slots), None)]))
    assert "the log joint of the state is NaN" in str(problem.value) and "double precision" not in str(problem.value)


def test_gamma_draws_without_a_shape_end():
    """The loop of proposals waits for the last entry to be accepted, which a NaN never is."""
    drawn = np.asarray(jax.jit(log_gamma_draw)(jax.random.key(0), jnp.array([jnp.nan, 2.0, -1.0, jnp.inf, 0.5])))
    np.testing.assert_array_equal(np.isnan(drawn), [True, False, True, True, False])


@pytest.mark.slow
def test_partitions_by_other_methods():
    """Searches, evidence by enumeration and by particles: an error each, no number."""
    methods = {
        "MAP-DP": lambda m: bnp.MAPDP(m, n_init=2).fit(X),
        "k-means": lambda m: bnp.BayesianKMeans(m).fit(X),
        "variational": lambda m: bnp.VariationalDP(m, n_init=1, truncation=3).fit(X),
        "exact": lambda m: bnp.evidence.exact(m, X),
        "particles": lambda m: bnp.evidence.smc(m, X, num_particles=4, key=0, num_orders=2),
    }
    for name, method in methods.items():
        with pytest.raises(ValueError, match="of Undefined is (NaN|not finite)|fits no cluster"):
            method(model(3.3 if name != "variational" else 0.1))
            pytest.fail(name)
