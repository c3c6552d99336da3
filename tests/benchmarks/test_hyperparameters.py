"""Hyperparameters of a mixture by `HyperparameterGibbs` and by NUTS, side by side, beside the same kernel of the partition.

Run with ``python -m pytest -m benchmark -n 0 -s tests/benchmarks/test_hyperparameters.py``.
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
from numpyro.infer import NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.models import dpm

pytestmark = pytest.mark.benchmark

WARMUP, SAMPLES = 1000, 4000


def compiled_chain(kernel: Gibbs, X: np.ndarray) -> tuple[Callable[[Any, int], Any], Any]:
    """A program that advances a chain by some steps and returns the hyperparameters after each, and the first state."""
    state = kernel.init(jax.random.key(0), WARMUP, None, (X,), {})
    constrain = kernel.get_constrain_fn((X,), {})

    def step(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, (X,), {})
        return state, {name: value for name, value in constrain(state.z).items() if name != "z"}

    steps = jax.jit(lambda state, length: jax.lax.scan(step, state, None, length=length), static_argnums=1)
    # the first state has the weak types of NumPyro's own numbers
    return steps, jax.block_until_ready(steps(state, 1)[0])


def test_hyperparameters_of_iris() -> None:
    """Effective draws of the logarithms of all eight hyperparameters per second of processor time, without compilation.

    At least 1.5 times as many for the worst one, and 0.8 times for each.
    """
    X = bnp.datasets.load("iris").X
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X))
    rates, per_step = {}, {}
    for name, block in {"HyperparameterGibbs": bnp.HyperparameterGibbs(model), "NUTS": NUTS(model)}.items():
        steps, state = compiled_chain(Gibbs([(bnp.PartitionGibbs(model), ["z"]), (block, None)]), X)
        jax.block_until_ready((steps(state, WARMUP), steps(state, SAMPLES)))  # compiles
        state = jax.block_until_ready(steps(state, WARMUP)[0])
        start = time.process_time()
        _, draws = jax.block_until_ready(steps(state, SAMPLES))
        seconds = time.process_time() - start
        series = {site: np.log(np.asarray(value, float)).reshape(SAMPLES, -1).T for site, value in draws.items()}
        sizes = {site: min(float(az.ess(one[None])) for one in value) for site, value in series.items()}
        rates[name] = {site: size / seconds for site, size in sizes.items()}
        per_step[name] = 1000 * seconds / SAMPLES
        print(
            f"\n{name}: {per_step[name]:.2f} ms a step, effective draws: {', '.join(f'{s} {n:.0f}' for s, n in sizes.items())}"
        )
    ours, theirs = rates["HyperparameterGibbs"], rates["NUTS"]
    ratios = {site: ours[site] / theirs[site] for site in ours}
    worst = min(ours.values()) / min(theirs.values())
    print(
        f"effective draws a second, over NUTS: {', '.join(f'{s} {r:.1f}' for s, r in ratios.items())}; of the worst {worst:.1f}"
    )
    print(f"time of a step, NUTS over HyperparameterGibbs: {per_step['NUTS'] / per_step['HyperparameterGibbs']:.1f}")
    assert worst >= 1.5 and min(ratios.values()) >= 0.8  # effective sizes vary by a tenth or two
    assert per_step["HyperparameterGibbs"] < per_step["NUTS"]


@pytest.mark.parametrize("n", [150, 3000])
def test_time_does_not_grow_with_the_rows(n: int) -> None:
    """A step of the hyperparameters alone, given three clusters: rows are summed once, and NUTS sums them for each gradient."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    X = rng.normal(size=(n, 4)) + 6.0 * labels[:, None]
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X))
    seconds = {}
    for name, block in {"HyperparameterGibbs": bnp.HyperparameterGibbs(model), "NUTS": NUTS(model)}.items():
        conditioned = Gibbs([(block, None)])
        given = {"_gibbs_sites": {"z": jnp.asarray(labels)}}
        state = conditioned.init(jax.random.key(0), 30, None, (X,), given)
        step = jax.jit(lambda state, kernel=conditioned, given=given: kernel.sample(state, (X,), given))
        times = []
        for _ in range(60 if n < 1000 else 40):
            start = time.process_time()
            state = jax.block_until_ready(step(state))
            times.append(time.process_time() - start)
        seconds[name] = float(np.median(times[30:]))
    ratio = seconds["NUTS"] / seconds["HyperparameterGibbs"]
    print(f"\nn = {n}: {', '.join(f'{k} {1000 * s:.2f} ms a step' for k, s in seconds.items())}; NUTS over ours {ratio:.1f}")
    assert ratio >= (1.0 if n < 1000 else 10.0)
