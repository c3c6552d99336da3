"""Arrays of a hierarchical mixture begin small and are given more room; the draws are those of large arrays."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.kernels.bhmc import room
from bnp_hier.models import bhmc
from bnp_hier.native.availability import xla_programs
from tests.parameters import few

ROWS = np.random.default_rng(0).normal([[-3.0, 0.0], [3.0, 0.0], [3.0, 4.0]], 0.4, (5, 3, 2)).reshape(-1, 2)
HYPER = {"concentration": dist.Gamma(3.0, 1.0), "root_concentration": 1.5, "mixing_concentration": dist.Uniform(0.5, 1.5)}
MODEL = partial(bhmc, component=bnp.NormalKnownCovariance(np.zeros(2), 9.0 * np.eye(2), 0.3 * np.eye(2)), depth=3, **HYPER)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 15 nodes, as many as items, and for three components."""
    monkeypatch.setattr(room, "NODES", 4)
    monkeypatch.setattr(room, "COMPONENTS", 4)


def run(
    model: Any, chains: int = 1, samples: int = 20, temperatures: tuple[float, ...] = (1.0,), **options: Any
) -> bnp.ResumableRun:
    mcmc = MCMC(
        bnp.BHMCGibbs(model, init="one_path", temperatures=temperatures),
        num_warmup=10,
        num_samples=samples,
        num_chains=chains,
        progress_bar=False,
        chain_method=options.pop("chain_method", "sequential"),
    )
    found = bnp.ResumableRun(mcmc, 5, **options)
    found.run(jax.random.key(0), ROWS)
    return found


@pytest.mark.parametrize(("chains", "method"), few([(2, "sequential"), (1, "vectorized"), (2, "vectorized")], plain=0))
def test_draws_do_not_depend_on_the_room_for_nodes(chains: int, method: str, small: None) -> None:
    grown = run(partial(MODEL, max_components=5), chains, chain_method=method)
    room.NODES = 46  # of which there can be no more
    large = run(partial(MODEL, max_components=5), chains, chain_method=method)
    assert not grown.get_extra_fields()["capacity_hits"].any()
    one, other = grown.get_samples(True), large.get_samples(True)
    rows = one["mixing"].shape[-2]
    assert rows > 15
    for name in other:
        whole = other[name][..., :rows, :] if name == "mixing" else other[name]
        np.testing.assert_allclose(one[name], whole, rtol=1e-5, atol=1e-7, err_msg=name)
    draws = bnp.hierarchy_draws(grown, ROWS)
    assert np.isfinite(draws.log_likelihood()).all() and np.isfinite(draws.predict(ROWS[:2], (0, 3))).all()


@pytest.mark.exhaustive
def test_replicas_have_the_same_room(small: None) -> None:
    grown = run(partial(MODEL, max_components=5), 2, temperatures=(1.0, 2.0))
    state = grown.last_state
    assert state.replicas.z["mixing"].shape == (2, 1, *state.z["mixing"].shape[1:]) and state.z["mixing"].shape[1] > 15
    assert not np.any(state.capacity_hits) and not np.any(state.replicas.capacity_hits)


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, False])
def test_draws_do_not_depend_on_the_room_for_components(native: bool, small: None) -> None:
    """If they did, repeating the steps that lacked room would make draws that need more of it too rare."""
    with nullcontext() if native else xla_programs():
        grown = run(partial(MODEL, root="infinite"))
        room.COMPONENTS = 40
        large = run(partial(MODEL, root="infinite"))
    assert not grown.get_extra_fields()["capacity_hits"].any()
    one, other = grown.get_samples(), large.get_samples()
    first = one["mixing"].shape[-1] - 1
    assert 4 <= first < other["mixing"].shape[-1] - 1
    for name in one:
        whole, few = other[name], one[name]
        if name == "parameters":
            whole, few = whole[:, : first + 1], few  # also of components without items, which are drawn from the prior
        elif name == "mixing":
            whole = whole[:, : few.shape[1], [*range(first), -1]]
        np.testing.assert_allclose(few, whole, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_components_of_an_infinite_root(small: None) -> None:
    grown = run(partial(MODEL, root="infinite"), samples=60)
    samples = grown.get_samples()
    assert not grown.get_extra_fields()["capacity_hits"].any()
    assert samples["mixing"].shape[-1] == samples["parameters"].shape[1] > 4
    assert samples["labels"].max() < samples["mixing"].shape[-1] - 1
    shares = np.take_along_axis(samples["mixing"], samples["paths"][:, :, -1:], axis=1)
    np.testing.assert_allclose(shares.sum(-1), 1.0, rtol=1e-5)
    assert np.isfinite(bnp.hierarchy_draws(grown, ROWS).summaries()["log_joint"]).all()


@pytest.mark.slow
def test_a_saved_run_has_its_own_room(small: None, tmp_path: Path) -> None:
    whole = run(MODEL, samples=20)
    run(MODEL, samples=10, path=tmp_path / "run.npz")
    longer = MCMC(bnp.BHMCGibbs(MODEL, init="one_path"), num_warmup=10, num_samples=20, progress_bar=False)
    again = bnp.ResumableRun.load(tmp_path / "run.npz", longer, ROWS, checkpoint_every=5)
    assert again.get_samples()["mixing"].shape[1] > 15
    again.resume(ROWS)
    np.testing.assert_array_equal(again.get_samples()["paths"], whole.get_samples()["paths"])


@pytest.mark.slow
def test_a_single_program_warns(small: None) -> None:
    mcmc = MCMC(bnp.BHMCGibbs(MODEL, init="one_path"), num_warmup=0, num_samples=30, progress_bar=False)
    with pytest.warns(RuntimeWarning, match="capacity of 15 nodes: .*; run it with ResumableRun"):
        mcmc.run(jax.random.key(0), ROWS)
    with pytest.warns(RuntimeWarning, match="capacity of 9 nodes: .*; raise max_nodes of the site"):
        run(partial(MODEL, max_nodes=9))


@pytest.mark.slow
def test_given_values_have_room(small: None) -> None:
    far = {"paths": np.tile([40, 41, 42], (15, 1)), "labels": np.zeros(15, int)}
    kernel = bnp.BHMCGibbs(MODEL)
    state = kernel.init(jax.random.key(0), 0, far, (ROWS,), {})
    assert state.z["mixing"].shape[0] == 43
    state = kernel.init(jax.random.key(0), 0, {**state.z}, (ROWS,), {})
    assert state.z["mixing"].shape[0] == 43


@pytest.mark.exhaustive
def test_given_trees_of_several_chains_may_differ_in_size(small: None) -> None:
    """The second chain needs room for 26 nodes and the first one for 15; its draws are those of a run with more room."""
    many = 1 + np.concatenate([np.arange(15) // 8, 2 + np.arange(15) // 2, 10 + np.arange(15)]).reshape(3, 15).T
    starts = {"paths": np.stack([np.tile([1, 2, 3], (15, 1)), many]), "labels": np.zeros((2, 15), int)}
    found = []
    for nodes in (4, 46):
        room.NODES = nodes
        mcmc = MCMC(
            bnp.BHMCGibbs(partial(MODEL, max_components=5)),
            num_warmup=0,
            num_samples=5,
            num_chains=2,
            chain_method="sequential",
            progress_bar=False,
        )
        chains = bnp.ResumableRun(mcmc, 5)
        chains.run(jax.random.key(0), ROWS, init_params=starts)
        found.append(chains.get_samples(True)["paths"])
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_other_blocks_read_arrays_of_the_model(small: None) -> None:
    """NUTS evaluates the model's density, whose distribution of the proportions has rows for all possible nodes."""
    model = partial(MODEL, concentration=dist.LogNormal(0.0, 0.5), max_components=4)
    blocks = Gibbs([(bnp.BHMCGibbs(model), ["paths", "mixing", "parameters", "labels", "gamma"]), (NUTS(model), None)])
    mcmc = MCMC(blocks, num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), ROWS)
    assert mcmc.get_samples()["mixing"].shape == (5, 46, 4) and np.isfinite(mcmc.get_samples()["alpha"]).all()
