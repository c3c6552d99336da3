"""Kernels and XLA programs make the same moves on trees, and draw the same proportions, from the same random key."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.kernels.bhmc.component_moves import split_merge_components
from bnp_hier.kernels.bhmc.paths import Concentrations, Mixture, densities_of, path_sweep
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.kernels.bhmc.table_counts import draw_mixing, papers_customers
from bnp_hier.models import bhmc
from bnp_hier.native.availability import xla_programs
from tests.native.both_engines import PROBLEMS, both, same
from tests.native.random_problems import FAMILIES, random_problem
from tests.parameters import few

DEPTH, NODES, COMPONENTS = 3, 16, 6
"""There are at most 15 nodes at the start, so that little room is left where there are many items."""


class Start(NamedTuple):
    """A component, rows, and a hierarchical mixture without its parameters."""

    component: Any
    X: np.ndarray
    concentrations: np.ndarray
    paths: np.ndarray
    labels: np.ndarray
    mixing: np.ndarray
    key: Any


def _paths(rng: np.random.Generator, n: int) -> np.ndarray:
    """Paths in a tree with at most two children per node, whose numbers are in no order."""
    turns, free = rng.integers(0, rng.integers(1, 3), (n, DEPTH)), 1 + rng.permutation(NODES - 1)
    paths, used = np.empty((n, DEPTH), int), 0
    for level in range(DEPTH):
        _, branch = np.unique(turns[:, : level + 1], axis=0, return_inverse=True)
        paths[:, level] = free[used + branch.ravel()]
        used += branch.max() + 1
    return paths


def start_of(family: str, seed: int, n: int, infinite: bool) -> Start:
    problem = random_problem(family, (seed, n, len(family)), n, 3, 0)
    rng = np.random.default_rng((seed, n))
    labels = rng.integers(0, rng.integers(1, COMPONENTS), n)
    mixing = rng.dirichlet(np.full(COMPONENTS, rng.choice([0.05, 1.0])), NODES)
    if infinite:  # components without items are part of the last
        empty = np.bincount(labels, minlength=COMPONENTS) == 0
        mixing[:, -1] = mixing[:, empty].sum(1)
        mixing[:, :-1][:, empty[:-1]] = 0.0
    concentrations = rng.exponential(size=3) + 0.1
    return Start(problem.component, problem.X, concentrations, _paths(rng, n), labels, mixing, jax.random.key(seed))


def sweep(infinite: bool, metropolis: bool, *given: Any) -> Any:
    component, X, concentrations, paths, labels, mixing, key = given
    key_rows, key_parameters, key_sweep = jax.random.split(key, 3)
    statistics = cluster_statistics(component.suff_stats(X), labels, COMPONENTS)
    state = Mixture(paths, labels, mixing, component.sample_parameters(key_parameters, statistics))
    tree, root, below = concentrations
    root = RootPrior(root, COMPONENTS, infinite)
    rows = densities_of(component, X, key_rows)
    return path_sweep(component, rows, state, Concentrations(tree, root, below), key_sweep, metropolis=metropolis)


def _same_sweeps(family: str, n: int, infinite: bool, metropolis: bool) -> tuple[int, int]:
    """Compare the two; return the numbers of hits and of items that moved."""
    starts = [start_of(family, seed, n, infinite) for seed in range(PROBLEMS)]
    kernels, programs = both(lambda *given: sweep(infinite, metropolis, *given), *zip(*starts, strict=True))
    same(kernels, programs)
    moved = sum((paths != start.paths).any(1).sum() for paths, start in zip(kernels[::6], starts, strict=True))
    return sum(kernels[4::6]), moved


@pytest.mark.parametrize(("infinite", "metropolis"), few([(True, False), (False, True)], plain=0))
def test_sweeps_of_paths(infinite: bool, metropolis: bool, x64: None) -> None:
    hits, moved = _same_sweeps("known", 20, infinite, metropolis)
    assert hits > 0 and moved > 0


@pytest.mark.parametrize(
    ("family", "n", "infinite", "metropolis"),
    few(
        dict.fromkeys(
            [
                ("normal", 30, True, False),
                ("mixed", 7, False, True),
                ("bernoulli", 30, False, False),
                ("known", 1, True, True),
                *itertools.product(["normal", "known", "bernoulli", "mixed"], [1, 7, 30], [False, True], [False, True]),
            ]
        ),
        plain=0,
        slow=0,
    ),
)
def test_sweeps_of_paths_of_all_kinds(family: str, n: int, infinite: bool, metropolis: bool, x64: None) -> None:
    _same_sweeps(family, n, infinite, metropolis)


def divide(infinite: bool, *given: Any) -> Any:
    component, X, concentrations, paths, labels, mixing, key = given
    tree, root, below = concentrations
    state = Mixture(paths, labels, mixing, jnp.zeros((COMPONENTS, 1)))
    priors = Concentrations(tree, RootPrior(root, COMPONENTS, infinite), below)
    return split_merge_components(component, X, state, read_tree(paths, NODES), priors, 6, key)


def _same_divisions(family: str, n: int, infinite: bool) -> tuple[int, int]:
    """Compare the two; return the numbers of accepted attempts and of splits without an empty component."""
    starts = [start_of(family, seed, n, infinite) for seed in range(PROBLEMS)]
    kernels, programs = both(lambda *given: divide(infinite, *given), *zip(*starts, strict=True))
    same(kernels, programs)
    return sum(kernels[2::4]), sum(kernels[3::4])


@pytest.mark.parametrize("infinite", few([False, True], plain=0))
def test_splits_and_merges_of_components(infinite: bool, x64: None) -> None:
    accepted, _ = _same_divisions("known", 20, infinite)
    assert accepted > 0


@pytest.mark.parametrize(
    ("n", "infinite", "family"), few(itertools.product([7, 1, 30], [True, False], FAMILIES), plain=0, slow=1)
)
def test_splits_and_merges_of_components_of_all_families(family: str, n: int, infinite: bool, x64: None) -> None:
    _same_divisions(family, n, infinite)


@pytest.mark.parametrize("infinite", [False, True])
def test_draws_of_proportions(infinite: bool, x64: None) -> None:
    """Also with zeros, because γ is small and the root has components without a share."""

    def draw(_: Any, __: Any, concentrations: Any, paths: Any, labels: Any, ___: Any, key: Any) -> Any:
        customers = papers_customers(paths, labels, NODES, COMPONENTS)
        root = RootPrior(concentrations[1], COMPONENTS, infinite)
        return draw_mixing(customers, read_tree(paths, NODES), root, 1e-3 * concentrations[2], key)

    starts = [start_of("known", seed, 30, infinite) for seed in range(PROBLEMS)]
    same(*both(draw, *zip(*starts, strict=True)))


@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
@pytest.mark.parametrize("options", few([{"path": "mh", "split_merge": 2}, {}], plain=0, slow=0))
def test_whole_steps_of_chains(options: dict[str, Any], x64: None) -> None:
    """Two chains at once, with little room for nodes, whose concentrations are drawn, too."""
    problem = random_problem("known", 5, 25, 3, 0)
    model = partial(bhmc, component=problem.component, depth=3, max_nodes=24, max_components=6)

    def run() -> list[np.ndarray]:
        kernel, arguments = bnp.BHMCGibbs(model, init="prior", **options), (problem.X,)
        state = kernel.init(jax.random.split(jax.random.key(2), 2), 0, None, arguments, {})
        steps = jax.jit(lambda state: jax.lax.fori_loop(0, 5, lambda _, now: kernel.sample(now, arguments, {}), state))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(steps(state)._replace(rng_key=None))]

    kernels = run()
    with xla_programs():
        same(kernels, run())


def test_chains_and_single_precision() -> None:
    """Under vmap, chains find what each finds alone; labels, paths and proportions are 32-bit numbers."""
    component, *given, key = start_of("known", 0, 20, True)
    X, concentrations, *state = map(jnp.asarray, given)
    concentrations, keys = concentrations * jnp.array([[0.5], [1.0], [2.0]]), jax.random.split(key, 3)
    assert concentrations.dtype == jnp.float32 and state[0].dtype == jnp.int32

    def chain(concentrations: Any, key: Any) -> Any:
        return sweep(True, False, component, X, concentrations, *state, key)

    together = jax.jit(jax.vmap(chain))(concentrations, keys)
    for index in range(3):
        alone = jax.jit(chain)(concentrations[index], keys[index])
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_allclose(one, many[index], rtol=1e-5, atol=1e-6)
