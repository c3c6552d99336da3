"""Mixing of PartitionGibbs from overdispersed starts, and what a second buys beside the alternatives.

Run with ``python -m pytest -m benchmark -n 0 -s tests/benchmarks/test_mixing.py``.
"""

from __future__ import annotations

import time
from functools import partial

import arviz as az
import jax
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from sklearn.mixture import BayesianGaussianMixture

import bnp_hier as bnp
from bnp_hier.models import dpm, dpm_stick_breaking
from bnp_hier.posterior.convergence import LABEL_INVARIANT
from bnp_hier.posterior.draws import Draws, draws_of, log_predictive, summaries
from tests.oracles.collapsed_gibbs import CollapsedGibbs

NUTS_DEPTH = 7
"""Tree depth of NUTS: the default, 10, may take eight times as many gradients a draw."""


def _mixture() -> np.ndarray:
    """2,000 rows in ten dimensions from ten clusters whose centres lie about twelve standard deviations apart."""
    rng = np.random.default_rng(0)
    return rng.normal(scale=2.7, size=(10, 10))[rng.integers(0, 10, 2000)] + rng.normal(size=(2000, 10))


def _mixing(X: np.ndarray, warmup: int, samples: int, **options) -> dict[str, tuple[float, float]]:
    """R-hat and bulk effective sample size of the label-invariant fields of four chains, printed with what a second buys."""
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    kernel = bnp.PartitionGibbs(model, **options)
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=samples, num_chains=4, chain_method="vectorized", progress_bar=False)
    start = time.perf_counter()
    mcmc.run(jax.random.key(0), X, extra_fields=LABEL_INVARIANT)
    fields = jax.block_until_ready(mcmc.get_extra_fields(group_by_chain=True))
    seconds = time.perf_counter() - start
    print(f"\n{options}: {warmup} + {samples} sweeps of 4 chains in {seconds:.1f} s, compilation included")
    out = {}
    for name in LABEL_INVARIANT:
        values = np.asarray(fields[name], np.float64)
        out[name] = float(az.rhat(values)), float(az.ess(values))
        print(f"  {name:16} R-hat {out[name][0]:.4f}  ESS {out[name][1]:7.0f}  ESS/s {out[name][1] / seconds:7.1f}")
    return out


@pytest.mark.benchmark
@pytest.mark.parametrize("proposal", ["sequential", "restricted_gibbs"])
def test_overdispersed_chains_agree_on_iris(proposal: str) -> None:
    """Five moves a sweep leave R-hat of the entropy at 1.01 to 1.03 after 2,000 sweeps; twenty also win by the second."""
    found = _mixing(bnp.datasets.load("iris").X, 500, 2000, proposal=proposal, split_merge=20)
    assert max(rhat for rhat, _ in found.values()) <= 1.01, found


@pytest.mark.benchmark
def test_overdispersed_chains_agree_on_many_rows() -> None:
    found = _mixing(_mixture(), 200, 1200)
    assert max(rhat for rhat, _ in found.values()) <= 1.01, found


def _chains(kernel, X: np.ndarray, warmup: int, samples: int) -> tuple[Draws, float]:
    """Draws of four chains, and seconds without compilation."""
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=samples, num_chains=4, chain_method=jax.vmap, progress_bar=False)
    compiling: list[float] = []

    def listen(event: str, duration: float, **details: object) -> None:
        if event.endswith("backend_compile_duration"):
            compiling.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    start = time.perf_counter()
    try:
        mcmc.run(jax.random.key(0), X)
        jax.block_until_ready(mcmc.get_samples())
        seconds = time.perf_counter() - start - sum(compiling)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return draws_of(mcmc, X), seconds


def _numpy_gibbs(component: bnp.NormalInverseWishart, X: np.ndarray, warmup: int, samples: int) -> tuple[np.ndarray, float]:
    """Labels of four chains of the plain sampler, (chain, draw, n), and seconds; half start from one cluster, half from 20."""
    hyperparameters = np.asarray(component.mean), float(component.kappa), float(component.nu), np.asarray(component.scale)
    out = np.empty((4, samples, len(X)), int)
    begin = time.perf_counter()
    for chain in range(4):
        rng = np.random.default_rng(chain)
        first = rng.integers(0, 20, len(X)) if chain % 2 else np.zeros(len(X), int)
        sampler = CollapsedGibbs(X, *hyperparameters, 1.0, first)
        for draw in range(-warmup, samples):
            labels = sampler.sweep(rng.permutation(len(X)), rng.random(len(X)))
            if draw >= 0:
                out[chain, draw] = labels
    return out, time.perf_counter() - begin


@pytest.mark.benchmark
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of its default 100 iterations
@pytest.mark.parametrize(
    ("data", "ours", "nuts", "plain"),
    [("iris", (500, 2000), (150, 250), (100, 400)), ("ten clusters", (100, 200), None, (20, 40))],
)
def test_methods_side_by_side(data: str, ours: tuple, nuts: tuple | None, plain: tuple) -> None:
    """Effective draws a second, without compilation, of the same model; held-out density beside scikit-learn's mixture.

    NUTS runs on the smaller data only.
    """
    everything = np.asarray(bnp.datasets.load("iris").X if data == "iris" else _mixture(), float)
    order = np.random.default_rng(0).permutation(len(everything))
    held = len(everything) // 5
    Y, X = everything[order[:held]], everything[order[held:]]
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    model = partial(dpm, component=component, concentration=1.0)
    methods = {"PartitionGibbs": _chains(bnp.PartitionGibbs(model), X, *ours)}
    if nuts is not None:
        sticks = partial(dpm_stick_breaking, component=component, concentration=1.0, truncation=10)
        methods["NUTS on sticks"] = _chains(NUTS(sticks, max_tree_depth=NUTS_DEPTH), X, *nuts)
    labels, seconds = _numpy_gibbs(component, X, *plain)
    methods["NumPy Gibbs"] = methods["PartitionGibbs"][0]._replace(labels=labels), seconds
    variational = BayesianGaussianMixture(n_components=20, random_state=0).fit(X)
    density = {"scikit-learn": variational.score_samples(Y)}
    rates = {}
    print(f"\n{data}: {len(X)} rows; effective draws of the worst mixing of {', '.join(LABEL_INVARIANT)}")
    for name, (draws, seconds) in methods.items():
        found = summaries(draws)
        values = [np.asarray(getattr(found, field), float) for field in LABEL_INVARIANT]
        rhat, ess = max(float(az.rhat(v)) for v in values), min(float(az.ess(v)) for v in values)
        rates[name] = ess / seconds
        density[name] = log_predictive(draws, Y)
        print(
            f"  {name:15} {seconds:7.1f} s  R-hat {rhat:.3f}  ESS {ess:7.0f} of {draws.labels[..., 0].size}  "
            f"ESS/s {rates[name]:8.2f}"
        )
    others = [name for name in methods if name != "PartitionGibbs"]
    for name in others:
        print(f"  PartitionGibbs over {name}: {rates['PartitionGibbs'] / rates[name]:.1f} times the effective draws a second")
    for name, scores in density.items():
        gain = density["PartitionGibbs"] - scores
        error = gain.std(ddof=1) / np.sqrt(len(Y))
        print(f"  {name:15} held-out density {scores.mean():8.3f} nats a row; PartitionGibbs {gain.mean():+.3f} ± {error:.3f}")
    assert all(rates["PartitionGibbs"] > rates[name] for name in others)
    gain = density["PartitionGibbs"] - density["scikit-learn"]
    assert gain.mean() > -3 * gain.std(ddof=1) / np.sqrt(len(Y))
