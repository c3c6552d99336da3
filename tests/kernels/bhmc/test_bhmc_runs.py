"""`BHMCGibbs` under NumPyro: blocks, chain methods, starts, second runs, interrupted runs, bad input."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.kernels.bhmc.initial_hierarchies import GIVEN_TREES
from bnp_hier.models import bhmc
from tests.parameters import few

ROWS = np.random.default_rng(0).normal([[-3.0, 0.0], [3.0, 0.0], [3.0, 4.0]], 0.4, (5, 3, 2)).reshape(-1, 2)
COMPONENT = bnp.NormalKnownCovariance(np.zeros(2), 9.0 * np.eye(2), 0.3 * np.eye(2))
FIXED = {"concentration": 0.8, "root_concentration": 1.5, "mixing_concentration": 1.0}
SIZES = {"depth": 2, "max_components": 6, "max_nodes": 31}
MODEL = partial(bhmc, component=COMPONENT, **FIXED, **SIZES)
OWN = ["paths", "mixing", "parameters", "labels"]


def run(model: Any, samples: int = 20, warmup: int = 10, seed: int = 0, init: str = "map_dp", **options: Any) -> MCMC:
    mcmc = MCMC(bnp.BHMCGibbs(model, init=init), num_warmup=warmup, num_samples=samples, progress_bar=False, **options)
    mcmc.run(jax.random.key(seed), ROWS)
    return mcmc


@pytest.mark.slow
def test_hyperparameters_left_to_nuts() -> None:
    """Priors without conditionals of known form need a block of their own, and get the posterior of the exact updates."""
    odd = {"concentration": dist.LogNormal(0.0, 0.5), "mixing_concentration": dist.LogNormal(0.0, 0.5)}
    model = partial(bhmc, component=COMPONENT, root_concentration=1.5, **odd, **SIZES)
    with pytest.raises(ValueError, match=r"has no update for the latent sites \['alpha', 'gamma'\]: use Gibbs"):
        run(model)
    exact = {"concentration": dist.Gamma(3.0, 2.0), "mixing_concentration": dist.Uniform(0.3, 1.5)}
    model = partial(bhmc, component=COMPONENT, root_concentration=1.5, **exact, **SIZES)
    alone = run(model, samples=4000, warmup=500)
    blocks = Gibbs([(bnp.BHMCGibbs(model, init="map_dp"), OWN), (NUTS(model), None)])
    together = MCMC(blocks, num_warmup=500, num_samples=1500, progress_bar=False)
    together.run(jax.random.key(1), ROWS)
    import arviz as az

    for name in ("alpha", "gamma"):
        one, other = (np.asarray(mcmc.get_samples()[name], float) for mcmc in (alone, together))
        error = np.hypot(*(part.std() / np.sqrt(float(az.ess(part[None]))) for part in (one, other)))
        assert abs(one.mean() - other.mean()) < 5 * error, name
    trees = bnp.hierarchy_draws(together, ROWS)
    assert trees[0, -1].n_items == 15 and np.isfinite(trees.log_likelihood()).all()


@pytest.mark.parametrize("method", few(["vectorized", "parallel", "sequential"], plain=0, slow=1))
def test_chain_methods(method: str) -> None:
    """Separated groups are components in all chains, whatever the start."""
    mcmc = run(MODEL, samples=60, warmup=60, num_chains=2, chain_method=method, init="overdispersed")
    labels = np.asarray(mcmc.get_samples(group_by_chain=True)["labels"])
    assert labels.shape == (2, 60, 15)
    together = np.asarray(bnp.coclustering(labels))
    assert together[0, 3] > 0.8 and together[0, 1] < 0.1 and together[1, 2] < 0.1
    fields = mcmc.get_extra_fields(group_by_chain=True)
    assert fields["truncated_probability"].shape == (2, 60)


@pytest.mark.slow
def test_pickled_and_started_anew() -> None:
    mcmc = run(MODEL)
    again = pickle.loads(pickle.dumps(mcmc))
    np.testing.assert_array_equal(again.get_samples()["paths"], mcmc.get_samples()["paths"])
    kernel = pickle.loads(pickle.dumps(mcmc.sampler))
    assert callable(kernel.model)
    # initial values of one's own
    start = {name: value[-1] for name, value in mcmc.get_samples().items()}
    state = bnp.BHMCGibbs(MODEL).init(jax.random.key(0), 0, start, (ROWS,), {})
    for name, value in start.items():
        np.testing.assert_array_equal(state.z[name], value)
    only = {name: start[name] for name in ("paths", "labels")}
    state = bnp.BHMCGibbs(MODEL).init(jax.random.key(0), 0, only, (ROWS,), {})
    np.testing.assert_array_equal(state.z["paths"], start["paths"])


@pytest.mark.slow
def test_second_run_compiles_nothing(monkeypatch: pytest.MonkeyPatch, compilations: list[str]) -> None:
    for name in ("CI", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    mcmc = MCMC(bnp.BHMCGibbs(MODEL, init="map_dp"), num_warmup=5, num_samples=5, progress_bar=True, jit_model_args=True)
    mcmc.run(jax.random.key(0), ROWS)
    compilations.clear()
    mcmc.run(jax.random.key(1), ROWS + 1.0)
    assert not compilations


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    whole = run(MODEL, samples=20, warmup=10)
    parts = MCMC(bnp.BHMCGibbs(MODEL, init="map_dp"), num_warmup=10, num_samples=10, progress_bar=False)
    bnp.ResumableRun(parts, checkpoint_every=10, path=tmp_path / "run.npz").run(jax.random.key(0), ROWS)
    longer = MCMC(bnp.BHMCGibbs(MODEL, init="map_dp"), num_warmup=10, num_samples=20, progress_bar=False)
    again = bnp.ResumableRun.load(tmp_path / "run.npz", longer, ROWS, checkpoint_every=10)
    again.resume(ROWS)
    for name in OWN:
        np.testing.assert_array_equal(again.get_samples()[name], whole.get_samples()[name])
    assert bnp.hierarchy_draws(again, ROWS).shape == (1, 20)


@pytest.mark.parametrize("init", few(["one_path", "bhc", "ward", "prior", "map_dp"]))
def test_starts(init: str) -> None:
    state = bnp.BHMCGibbs(MODEL, init=init).init(jax.random.key(0), 0, None, (ROWS,), {})
    tree = bnp.Hierarchy(np.asarray(state.z["paths"]), np.asarray(state.z["labels"]))
    assert tree.n_nodes == state.n_nodes <= 31 and np.isfinite(state.log_joint)
    if init == "one_path":
        assert tree.n_nodes == 3 and state.n_components == 1
    if init in ("map_dp", "bhc"):
        np.testing.assert_array_equal(tree.labels_at(2), np.arange(15) % 3)
        np.testing.assert_array_equal(tree.labels_at(2), tree.labels)
    if init == "ward":  # four leaves, of which every group contains whole ones
        assert tree.n_nodes == 7 and len(set(zip(tree.labels_at(2), np.arange(15) % 3, strict=True))) == 4
        np.testing.assert_array_equal(tree.labels_at(2), tree.labels)


@pytest.mark.parametrize("name", ["bhc", "ward"])
def test_a_given_tree_fits_into_the_capacity(name: str) -> None:
    paths, labels = GIVEN_TREES[name](COMPONENT, ROWS, 3, 6, 5)
    assert len(np.unique(paths)) + 1 <= 5 and labels.max() + 1 == len(np.unique(paths[:, -1]))
    paths, _ = GIVEN_TREES[name](COMPONENT, ROWS[:1], 3, 6, 4)
    np.testing.assert_array_equal(paths, [[1, 2, 3]])


@pytest.mark.slow
def test_overdispersed_starts_differ_between_chains() -> None:
    states = bnp.BHMCGibbs(MODEL).init(jax.random.split(jax.random.key(3), 6), 0, None, (ROWS,), {})
    assert len(set(np.asarray(states.n_nodes).tolist())) > 2


@pytest.mark.slow
def test_one_item() -> None:
    mcmc = MCMC(bnp.BHMCGibbs(MODEL), num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), ROWS[:1], extra_fields=("n_nodes", "lca_depth"))
    fields = mcmc.get_extra_fields()
    assert (fields["n_nodes"] == 3).all() and (fields["lca_depth"] == 0).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mixing=:UserWarning")
def test_bad_input() -> None:
    def start(model: Any, X: np.ndarray = ROWS, init_params: Any = None, **options: Any) -> None:
        bnp.BHMCGibbs(model, **options).init(jax.random.key(0), 0, init_params, (X,), {})

    with pytest.raises(ValueError, match='require mixing="exact"'), pytest.warns(UserWarning, match="does not leave"):
        bnp.BHMCGibbs(MODEL, mixing="paper", relabel=True)
    for change, message in (
        ({"depth": 0}, "depth must be a whole number of at least 1, but it is 0"),
        ({"max_nodes": 2}, r"max_nodes must be a whole number of at least depth \+ 1 = 3"),
        ({"mixing_concentration": 0.0}, "concentration must be finite and positive, but it is 0.0"),
        ({"mixing_concentration": -1.0}, "concentration must be finite and positive, but it is -1.0"),
        ({"root_concentration": np.inf}, "root_concentration must be finite and positive, but it is inf"),
        ({"concentration": 0.0}, "concentration must be finite and positive, but it is 0.0"),
        ({"max_components": 0}, "components must be a whole number of at least 1, but it is 0"),
        ({"root": "some"}, "root must be one of finite, infinite, but it is 'some'"),
    ):
        with pytest.raises(ValueError, match=message):
            start(partial(bhmc, **{"component": COMPONENT, **FIXED, **SIZES, **change}))
    broken = ROWS.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3, column 1"):
        start(MODEL, broken)
    with pytest.raises(ValueError, match='init_params has "paths" but must have both "paths" and "labels"'):
        start(MODEL, init_params={"paths": np.ones((15, 2), int)})
    both = {"paths": np.tile([1, 2], (15, 1)), "labels": np.zeros(15, int)}
    with pytest.raises(ValueError, match=r"initial paths must contain node numbers 1, ..., 30, but they span 1 to 99"):
        start(MODEL, init_params={**both, "paths": np.tile([1, 99], (15, 1))})
    with pytest.raises(ValueError, match="node 1 occurs on level 2 and on a level above it"):
        start(MODEL, init_params={**both, "paths": np.ones((15, 2), int)})
    with pytest.raises(ValueError, match=r"initial labels must lie in 0, ..., 5"):
        start(MODEL, init_params={**both, "labels": np.full(15, 6)})
    infinite = partial(MODEL, root="infinite")
    with pytest.raises(ValueError, match=r"initial labels must lie in 0, ..., 4"):
        start(infinite, init_params={**both, "labels": np.full(15, 5)})
    with pytest.raises(ValueError, match="relabel=True requires a finite number of components"):
        start(infinite, relabel=True)
    kernel = bnp.BHMCGibbs(MODEL)
    for root, redrawn in (("infinite", False), ("finite", True)):  # by default, where it is possible
        kernel.init(jax.random.key(0), 0, None, (ROWS,), {"root": root})
        assert kernel._moves.relabel == redrawn

    def without_a_tree(X: np.ndarray) -> None:
        numpyro.sample("x", dist.Normal(jnp.zeros(X.shape), 1.0), obs=X)

    with pytest.raises(ValueError, match="0 latent sites with a NestedChineseRestaurantProcess; expected exactly one"):
        start(without_a_tree)
