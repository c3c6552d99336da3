"""Tables of distributed rows: shares of different sizes, priors, and errors. A mesh of one device stands for many."""

from __future__ import annotations

import textwrap
from functools import partial
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import substitute
from numpyro.infer import MCMC, Gibbs

import bnp_hier as bnp
from bnp_hier import distributed
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.conditionals import read_conditional
from bnp_hier.kernels import parallel_split_merge
from bnp_hier.kernels.spread_rows import spread_arguments
from bnp_hier.models import dpm
from bnp_hier.partitions.clusters import joint_and_statistics
from bnp_hier.utils import sharded_arrays
from tests.kernels.small_problems import PROBLEMS, enumerate_small
from tests.oracles.monte_carlo import assert_exact
from tests.processes import together

RNG = np.random.default_rng(0)
WHOLE = RNG.normal(size=(6, 2))[RNG.integers(0, 6, 603)] * 5 + RNG.normal(size=(603, 2))


def test_blocks_are_padded_to_the_largest() -> None:
    whole = WHOLE.astype(np.float32)
    X = np.asarray(distributed.shard_rows([whole[:400], whole[400:]]))
    assert X.shape == (800, 2) and X.dtype == np.float32
    np.testing.assert_array_equal(X[:603], whole)
    assert np.isnan(X[603:]).all()
    assert distributed.shard_rows(WHOLE[:600]).shape == (600, 2)  # no padding without need
    assert np.asarray(distributed.shard_rows(np.eye(3, dtype=int))).dtype == jax.dtypes.canonicalize_dtype(float)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["a", "b"]], "process 0 has no rows, or rows that are not a table of numbers"),
        ([WHOLE[:3], WHOLE[:3, :1]], "process 0 has 2 columns, but process 0 has 1"),
        (np.ones(3), "process 0 has no rows, or rows that are not a table of numbers"),
        ([], "process 0 has no rows"),
        ([WHOLE[:3], np.array([[0.0, 1.0], [2.0, np.inf]])], "process 0 has a NaN or infinite value in row 4, column 1"),
    ],
)
def test_bad_rows(rows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distributed.shard_rows(rows)


@pytest.mark.parametrize(
    "family",
    [
        bnp.NormalInverseWishart,
        bnp.NormalInverseGamma,
        bnp.NormalKnownCovariance,
        bnp.GammaPoisson,
        bnp.BetaBernoulli,
        bnp.DirichletMultinomial,
    ],
)
@pytest.mark.parametrize("learn", [True, False])
def test_priors_are_those_of_the_whole_table(family, learn: bool) -> None:
    table = {bnp.GammaPoisson: np.abs(WHOLE.round()), bnp.DirichletMultinomial: np.abs(WHOLE.round())}.get(family, WHOLE)
    table = (WHOLE > 0).astype(float) if family is bnp.BetaBernoulli else table
    spread = distributed.shard_rows([table[:400], table[400:]])
    ours, theirs = (family.from_data(each, learn=learn) for each in (spread, table))
    again = distributed.from_data(family, spread, learn=learn)
    if learn:
        values = {name: np.asarray(prior.sample(jax.random.key(1))) for name, prior in theirs.priors.items()}
        assert list(ours.priors) == list(theirs.priors)
        ours, theirs, again = (prior.built(values) for prior in (ours, theirs, again))
    for one, other, third in zip(*map(jax.tree.leaves, (ours, theirs, again)), strict=True):
        if family is bnp.NormalKnownCovariance and learn:
            continue  # of distributed rows, its prior has no correlations
        np.testing.assert_allclose(one, other, rtol=2e-6)
        np.testing.assert_array_equal(one, third)


@pytest.mark.slow
def test_padding_has_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws of six rows with two of padding follow the posterior of the six, by enumeration."""
    monkeypatch.setattr(distributed, "PADDED_TO", 2)
    component, X = PROBLEMS["normal"]
    spread = distributed.shard_rows([X[:4], X[4:]])
    assert len(spread) == 8
    exact = enumerate_small("normal", 1.2, 0.3)
    model = partial(bnp.models.pitman_yor_mixture, component=component, concentration=1.2, discount=0.3)
    mcmc = MCMC(bnp.ParallelSplitMerge(model, init="one"), num_warmup=200, num_samples=8_000, progress_bar=False)
    mcmc.run(jax.random.key(0), spread, extra_fields=("log_joint", "n_clusters"))
    z, fields = np.asarray(mcmc.get_samples()["z"]), mcmc.get_extra_fields()
    assert (z[:, 6:] == -1).all()
    labels = distributed.gather_labels(z)
    assert labels.shape == (8_000, 6)
    assert_exact(labels, exact, exact.probabilities, fields["log_joint"], fields["n_clusters"])


@pytest.mark.slow
def test_learned_hyperparameters_ignore_padding(x64: None) -> None:
    prior = bnp.NormalInverseWishart.from_data(WHOLE)
    spread = distributed.shard_rows([WHOLE[:400], WHOLE[400:]])
    (filled,), _, _, _, there = spread_arguments((spread,), None)
    z = RNG.integers(0, 3, len(WHOLE))
    padded = np.full(len(spread), -1)
    padded[np.flatnonzero(there)] = z
    hyperparameters = {name: np.asarray(each.sample(jax.random.key(1))) for name, each in prior.priors.items()}
    hyperparameters["alpha"] = np.asarray(1.0)

    @jax.jit
    def density(X: jax.Array, labels: jax.Array) -> jax.Array:
        conditional = read_conditional(partial(_labelled, labels=labels, prior=prior), hyperparameters, (X,), {})
        return conditional.log_density(conditional.unconstrained)

    np.testing.assert_allclose(float(density(filled, padded)), float(density(WHOLE, z)), rtol=1e-9)


def _labelled(X, labels, prior) -> None:
    substitute(partial(dpm, component=prior), data={"z": labels})(X)


@pytest.mark.slow
def test_runs_with_padding_and_reads_draws_with_the_whole_table() -> None:
    spread = distributed.shard_rows([WHOLE[:400], WHOLE[400:]])
    prior = bnp.NormalInverseWishart.from_data(spread)
    model = partial(dpm, component=prior)
    kernel = Gibbs([(bnp.ParallelSplitMerge(model, 16), ["z"]), (bnp.HyperparameterGibbs(model), None)])
    mcmc = MCMC(kernel, num_warmup=10, num_samples=10, num_chains=2, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.key(0), spread)
    draws = bnp.to_arviz(mcmc, WHOLE)["posterior"]
    assert draws["z"].shape == (2, 10, 603) and int(draws["z"].min()) == 0
    fixed = {name: np.asarray(draws[name][1, -1]) for name in prior.priors}
    component = jax.tree.map(np.asarray, prior.built(fixed))
    alone = partial(dpm, component=component, concentration=1.5)
    state = bnp.ParallelSplitMerge(alone, 16).init(jax.random.key(0), 0, None, (spread,), {})
    joint, _ = joint_and_statistics(component, WHOLE, distributed.gather_labels(state.z["z"]), Prior(1.5))
    np.testing.assert_allclose(float(state.log_joint), joint, rtol=1e-4)
    with pytest.raises(ValueError, match="sweep=True is not available"):
        bnp.ParallelSplitMerge(alone, 16, sweep=True).init(jax.random.key(0), 0, None, (spread,), {})


@pytest.mark.slow
def test_large_arrays_stay_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy is made at the start, and programs take the rows as arguments, not as constants."""
    monkeypatch.setattr(sharded_arrays, "LARGE", 1000)
    X = jax.device_put(WHOLE.astype(np.float32))
    prior = bnp.NormalInverseWishart.from_data(X)
    model = partial(dpm, component=prior)
    kernel = Gibbs([(bnp.ParallelSplitMerge(model, 16), ["z"]), (bnp.HyperparameterGibbs(model), None)])
    monkeypatch.setattr(parallel_split_merge, "as_matrix", None)  # would copy all rows
    state = kernel.init(jax.random.key(0), 10, None, (X,), {})
    jaxpr = jax.make_jaxpr(lambda state: kernel.sample(state, (X,), {}))(state)
    assert max((np.size(constant) for constant in jaxpr.consts), default=0) < X.size
    run = bnp.ResumableRun(MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False), 5)
    run.run(jax.random.key(0), X)
    assert not any(leaf.size >= X.size for leaf in jax.tree.leaves(run.last_state))  # the rows are not part of a checkpoint
    mcmc = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    np.testing.assert_array_equal(run.get_samples()["z"], mcmc.get_samples()["z"])
    bad = X.at[17, 1].set(np.inf)
    with pytest.raises(ValueError, match="first in row 17; expected finite numbers"):
        kernel.init(jax.random.key(0), 10, None, (bad,), {})


def test_models_that_observe_more_than_the_mixture_refuse_padding() -> None:
    def model(X) -> None:
        location = numpyro.sample("location", dist.Normal(0.0, 1.0))
        numpyro.sample("first", dist.Normal(location, 1.0), obs=X[:, 0])

    kernel = bnp.HyperparameterGibbs(model)
    with pytest.raises(ValueError, match="observes 'first' besides a ConjugateMixture"):
        kernel.init(jax.random.key(0), 0, None, (distributed.shard_rows([WHOLE[:400], WHOLE[400:]]),), {})


def test_large_arrays_with_infinite_values_have_no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_arrays, "LARGE", 1000)
    X = jax.device_put(WHOLE.astype(np.float32)).at[3, 0].set(np.inf)
    with pytest.raises(ValueError, match="no prior can be derived from the 603 rows"):
        bnp.NormalInverseWishart.from_data(X)


def test_meshes_must_have_all_devices() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    if jax.device_count() > 1:
        with pytest.raises(ValueError, match="expected one dimension with all"):
            distributed.shard_rows(WHOLE, mesh)


def test_processes_may_have_runs_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without distributed rows, a run in a job of several processes waits for no other process."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    X = WHOLE[:40]
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)

    def chains() -> MCMC:
        return MCMC(bnp.PartitionGibbs(model), num_warmup=2, num_samples=4, progress_bar=False)

    run = bnp.ResumableRun(chains(), 2, path=tmp_path / "run.npz")
    run.run(jax.random.key(0), X)
    again = bnp.ResumableRun.load(tmp_path / "run.npz", chains(), X)
    np.testing.assert_array_equal(again.get_samples()["z"], run.get_samples()["z"])
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_large_arrays_with_constant_columns_have_no_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_arrays, "LARGE", 1000)
    X = jax.device_put(WHOLE.astype(np.float32)).at[:, 1].set(0.3)
    for family in (bnp.NormalInverseWishart, bnp.NormalInverseGamma, bnp.NormalKnownCovariance):
        with pytest.raises(ValueError, match="infinite values, constant columns, or too few complete rows"):
            family.from_data(X)


SHARES = textwrap.dedent("""
    import numpy as np
    import numpyro; numpyro.enable_x64()
    import bnp_hier as bnp
    from functools import partial
    rank, procs = jax.process_index(), jax.process_count()
    rng = np.random.default_rng(0)
    whole = (rng.normal(size=(6, 2))[rng.integers(0, 6, 4801)] * 5 + rng.normal(size=(4801, 2))).astype(np.float32)
    own = np.split(whole, [3000])[rank]

    def refused(rows, text):
        try:
            bnp.distributed.shard_rows(rows)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError

    wrong = own.copy()
    wrong[7 + rank, 1] = np.nan
    refused(wrong if rank else own, "process 1 has a NaN or infinite value in row 8, column 1")
    refused(own[:, :1] if rank else own, "process 1 has 1 columns, but process 0 has 2")
    refused([own, own] if rank else own, "process 1 has 2 blocks, but process 0 has 1")
    refused(own[:0] if rank else own, "process 1 has no rows")
    X = bnp.distributed.shard_rows(own)
    prior = bnp.NormalInverseWishart.from_data(X, learn=False)
    state = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=prior), 16).init(jax.random.key(3), 0, None, (X,), {})
    labels = bnp.distributed.gather_labels(state.z["z"])
    assert labels.shape == (4801,) and labels.min() == 0
    print(X.shape[0], labels.max() + 1, hash(labels.tobytes()) % 10**9, float(state.log_joint))
""")


@pytest.mark.slow
def test_processes_with_different_numbers_of_rows() -> None:
    """They refuse wrong rows, and start chains; `test_distributed_example` runs them."""
    both = together(SHARES)
    assert both[0] == both[1] and int(both[0][0]) == 2 * 3008 and int(both[0][1]) >= 4
