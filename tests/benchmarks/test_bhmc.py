"""The sampler of hierarchical mixtures: beside a plain loop, its kinds of moves beside each other, and how its cost grows.

Run with ``pytest -m benchmark -n 0 -s tests/benchmarks/test_bhmc.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from threadpoolctl import threadpool_limits

import bnp_hier as bnp
from bnp_hier.models import bhmc
from bnp_hier.native.availability import xla_programs
from tests.kernels.small_problems import ITEMS_ALONE
from tests.oracles.bhmc import PlainBHMC

pytestmark = pytest.mark.benchmark


def fashion(n: int = 1000) -> np.ndarray:
    """Images in 22 dimensions of unit variance on the average; more than there are come with a little noise."""
    X = bnp.datasets.principal_components(bnp.datasets.load("fashion_mnist_1000").X / 255.0, 22)
    X = np.tile(X / X.std(), (-(-n // len(X)), 1))[:n]
    return X + (0.0 if n <= 1000 else 0.05) * np.random.default_rng(0).normal(size=X.shape)


def animals() -> np.ndarray:
    return bnp.datasets.principal_components(bnp.datasets.load("animals33").X, 7)


def synthetic() -> np.ndarray:
    """Fifty rows in seven groups, two of them so near that one component is about as probable for both as one for each.

    Between the two states every row of a group must change its component, and each that is alone in doing so is improbable.
    """
    rng, d, within = np.random.default_rng(0), 10, 0.5
    groups = np.arange(50) % 7
    centers, noise, direction = rng.normal(0.0, 2.0, (7, d)), rng.normal(0.0, within, (50, d)), rng.normal(size=d)
    component = normal(d, 4.0, within**2)

    def rows(distance: float) -> np.ndarray:
        centers[6] = centers[5] + distance * direction / np.linalg.norm(direction)
        return centers[groups] + noise

    def odds(distance: float) -> float:  # of two components against one, by the rows alone; the prior prefers one
        X = rows(distance)
        parts = (groups == 5, groups == 6, groups >= 5)
        one, other, both = (float(component.log_evidence(X[part])) for part in parts)
        return one + other - both - 5.5

    return rows(brentq(odds, 0.0, 20.0))


SYNTHETIC = {"depth": 3, "concentration": 0.5, "root_concentration": 2.0, "mixing_concentration": 1.0, "max_components": 15}
SYNTHETIC["max_nodes"] = 100
ANIMALS = {"depth": 4, "concentration": 0.4, "root_concentration": 1.0, "mixing_concentration": 0.5, "max_components": 20}
ANIMALS["max_nodes"] = 128
FASHION = {"depth": 5, "concentration": 0.5, "root_concentration": 1.5, "mixing_concentration": 2.0, "max_components": 50}
FASHION["max_nodes"] = 256


def normal(d: int, prior: float, within: float) -> bnp.NormalKnownCovariance:
    return bnp.NormalKnownCovariance(np.zeros(d), prior * np.eye(d), within * np.eye(d))


Program = Callable[[Any], tuple[Any, dict[str, jax.Array]]]


def sweeps(kernel: bnp.BHMCGibbs, X: np.ndarray, count: int) -> Program:
    """So many sweeps from a state, compiled once: the last state, and fields (draw, ...) of all."""
    rows = jnp.asarray(X, jnp.float32)

    def step(state: Any, _: None) -> tuple[Any, dict[str, Any]]:
        state = kernel.sample(state, (rows,), {})
        return state, {name: getattr(state, name) for name in ("log_joint", "n_nodes", "n_components", "lca_depth")}

    return jax.jit(lambda state: jax.lax.scan(step, state, None, length=count))


def timed(program: Program, state: Any) -> tuple[Any, dict[str, np.ndarray], float]:
    """What a compiled program gives, fields as (chain, draw), and its seconds."""
    start = time.perf_counter()
    state, fields = jax.block_until_ready(program(state))
    return state, {name: np.asarray(value, float).T for name, value in fields.items()}, time.perf_counter() - start


@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
@pytest.mark.parametrize(("size", "limit"), [("animals", 3.0), pytest.param("fashion", 10.0, marks=pytest.mark.data)])
def test_sweeps_against_a_plain_loop(size: str, limit: float) -> None:
    """Both from one state, on trees of equal size, side by side; the median of five."""
    X, options = (animals(), ANIMALS) if size == "animals" else (fashion(), FASHION)
    prior, within = (1.0, 1.0) if size == "animals" else (1.0, 0.3)
    kernel = bnp.BHMCGibbs(partial(bhmc, component=normal(X.shape[1], prior, within), **options), init="map_dp", **ITEMS_ALONE)
    state = kernel.init(jax.random.key(0), 0, None, (X,), {})
    program = sweeps(kernel, X, 20)
    for _ in range(2):
        state, _, _ = timed(program, state)
    plain = PlainBHMC(
        X,
        options["depth"],
        options["max_components"],
        options["concentration"],
        options["root_concentration"],
        options["mixing_concentration"],
        within,
        prior,
        seed=0,
    )
    ratios, nodes = [], []
    for _ in range(5):
        plain.take(np.asarray(state.z["paths"]), np.asarray(state.z["labels"]))
        start = time.perf_counter()
        plain.step()
        loop = time.perf_counter() - start
        before = int(state.n_nodes)
        state, _, seconds = timed(program, state)
        ratios.append(20 * loop / seconds)
        nodes.append((before, plain.n_nodes, int(state.n_nodes)))
    ratio = float(np.median(ratios))
    print(f"\n{size}: {X.shape}, nodes (before, after the loop's sweep, after ours) {nodes}")
    print(f"{20 / seconds:.0f} sweeps a second, {ratio:.1f} times the loop (at least {limit:g})")
    assert ratio >= limit


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
def test_kernels_against_xla_programs() -> None:
    """Processor seconds of a sweep; without BLAS's threads, which spin while they wait."""
    X = fashion()

    def measured(turns: int) -> list[float]:
        kernel = bnp.BHMCGibbs(partial(bhmc, component=normal(22, 1.0, 0.3), **FASHION), init="map_dp")
        state = kernel.init(jax.random.key(0), 0, None, (X,), {})
        program, times = sweeps(kernel, X, 20), []
        for _ in range(turns):
            start = time.process_time()
            state, _, _ = timed(program, state)
            times.append((time.process_time() - start) / 20)
        return times[1:]

    with threadpool_limits(1, "blas"):
        ours = measured(6)
        with xla_programs():
            theirs = measured(6)
    one, other = 1e3 * np.median(ours), 1e3 * np.median(theirs)
    ratio = other / one
    print(f"\nBHMC, Fashion size: {one:.1f} ms a sweep, XLA programs {other:.1f} ms: {ratio:.1f} times (at least 2)")
    assert ratio >= 2.0


@pytest.mark.data
def test_cost_of_the_default_moves() -> None:
    """Processor seconds of a sweep with the moves of nodes and components that are on by default, beside one without them."""
    X, model = fashion(), partial(bhmc, component=normal(22, 1.0, 0.3), **{**FASHION, "max_nodes": 1024})

    def prepared(**options: Any) -> tuple[Program, Any]:
        kernel = bnp.BHMCGibbs(model, init="map_dp", **options)
        program = sweeps(kernel, X, 20)
        return program, timed(program, kernel.init(jax.random.key(0), 0, None, (X,), {}))[0]

    def milliseconds(program: Program, state: Any) -> float:
        start = time.process_time()
        timed(program, state)
        return 1e3 * (time.process_time() - start) / 20

    with threadpool_limits(1, "blas"):
        alone, default = prepared(**ITEMS_ALONE), prepared()
        # from one state, which has the nodes that the default moves leave
        times = [(milliseconds(alone[0], default[1]), milliseconds(*default)) for _ in range(7)]
    one, other = np.median(times, axis=0)
    ratio = float(np.median([with_moves / without for without, with_moves in times]))
    nodes = int(default[1].n_nodes)
    print(
        f"\nFashion size, {nodes} nodes: {one:.1f} ms a sweep of items alone, {other:.1f} ms with the default moves:", end=" "
    )
    print(f"{ratio:.1f} times (at most 4)")
    assert ratio <= 4.0


MOVES: dict[str, dict[str, Any]] = {
    "gibbs": {},
    "mh": {"path": "mh"},
    "gibbs + relabel": {"relabel": True},
    "gibbs + split_merge": {"split_merge": 5},
    "gibbs + sibling_split_merge": {"sibling_split_merge": 5},
    "gibbs + prune_regraft": {"prune_regraft": 5},
    "gibbs + all": {"relabel": True, "split_merge": 5, "sibling_split_merge": 5, "prune_regraft": 5},
}


@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
@pytest.mark.parametrize("data", ["animals", "synthetic"])
def test_moves_side_by_side(data: str) -> None:
    """R-hat over four overdispersed chains, effective draws a second, and acceptance; the median of three seeds."""
    X, options = (animals(), ANIMALS) if data == "animals" else (synthetic(), SYNTHETIC)
    component = normal(7, 1.0, 1.0) if data == "animals" else normal(10, 4.0, 0.25)
    print(
        f"\n{data}: R-hat and effective draws a second of log joint, nodes, components, meeting depth; moves accepted a sweep; "
        "least and largest mean number of components of a chain"
    )
    for name, choice in MOVES.items():
        kernel = bnp.BHMCGibbs(partial(bhmc, component=component, **options), **(ITEMS_ALONE | choice))
        rows = []
        program = sweeps(kernel, X, 500)
        for seed in range(3):
            state = kernel.init(jax.random.split(jax.random.key(seed), 4), 0, None, (X,), {})
            state, _, _ = timed(program, state)
            before = np.asarray(state.accepted)
            parts, seconds = [], 0.0
            for _ in range(3):
                state, fields, more = timed(program, state)
                parts, seconds = [*parts, fields], seconds + more
            values = [np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]]
            rhat = [float(az.rhat(value)) for value in values]
            ess = [float(az.ess(value)) / seconds for value in values]
            moved = (np.asarray(state.accepted) - before).mean(0) / 1500
            numbers = values[2].mean(1)  # of components, chain by chain
            rows.append([*rhat, *ess, *moved, 1e3 * seconds / 6000, numbers.min(), numbers.max()])
        middle = np.median(rows, axis=0)
        print(
            f"{name:28s} R-hat {np.round(middle[:4], 3)}  ESS/s {np.round(middle[4:8], 1)}  "
            f"accepted {np.round(middle[8:11], 3)}  {middle[11]:.2f} ms a sweep  components {middle[12]:.2f}-{middle[13]:.2f}",
            flush=True,
        )
        assert np.isfinite(middle).all()


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
def test_cost_per_sweep_grows_no_faster_than_n_log_n() -> None:
    """From 500 to 4,000 rows at fixed capacity; 5 repetitions, interleaved, the least of each."""
    sizes, seconds = (500, 1000, 2000, 4000), []
    for n in sizes:
        X = fashion(n)
        kernel = bnp.BHMCGibbs(partial(bhmc, component=normal(22, 1.0, 0.3), **FASHION), init="prior")
        state = kernel.init(jax.random.key(0), 0, None, (X,), {})
        program = sweeps(kernel, X, 10)
        for _ in range(4):
            state, _, _ = timed(program, state)
        seconds.append(min(timed(program, state)[2] for _ in range(5)) / 10)
    growth, limit = seconds[-1] / seconds[0], 4000 * np.log(4000) / (500 * np.log(500))
    print(
        f"\nms a sweep: {dict(zip(sizes, np.round(1e3 * np.array(seconds), 1), strict=True))}; 500 to 4,000 rows: "
        f"{growth:.1f}-fold, n log n {limit:.1f}-fold"
    )
    assert growth <= 1.15 * limit  # the machine is noisy
