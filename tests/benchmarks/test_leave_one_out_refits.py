"""Leave-one-out densities of iris by importance sampling against brute force: a chain is run anew without each row.

Run with ``pytest -m benchmark -s tests/benchmarks``.
"""

from __future__ import annotations

import time
from functools import partial

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm
from bnp_hier.partitions.scoring import mixture_log_weights
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.split_merge import draws_per_move, split_or_merge
from bnp_hier.partitions.sweeps import sweep

pytestmark = pytest.mark.benchmark

COMPONENT = bnp.NormalInverseWishart(np.zeros(4), 0.1, 6.0, 0.3 * np.eye(4))
PRIOR = Prior(1.0)
SLOTS, CHAINS, SWEEPS, MOVES = 16, 2, 400, 3
REFERENCE, REFERENCE_ERROR = -346.4, 0.2


@jax.jit
def refit(X: jax.Array, left_out: jax.Array, labels: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log predictive densities of the left-out rows along chains on the other rows, (chains, sweeps); and capacity hits."""
    rows = COMPONENT.suff_stats(X)
    n, r = len(X) - 1, draws_per_move(len(X) - 1)

    def chain(row: jax.Array, labels: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        others = jnp.arange(n) + (jnp.arange(n) >= row)
        mine = jax.tree.map(lambda leaf: leaf[others], rows)
        seating = Seating(COMPONENT, X[others], PRIOR)

        def step(z: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            key_sweep, key_moves = jax.random.split(key)
            order, uniforms = jax.random.uniform(key_sweep, (2, n))
            z, hits = sweep(seating, z, jnp.argsort(order), uniforms, SLOTS)

            def move(z: jax.Array, draws: jax.Array) -> tuple[jax.Array, jax.Array]:
                z, _, refused = split_or_merge(seating, z, draws, SLOTS)
                return z, refused

            z, refused = jax.lax.scan(move, z, jax.random.uniform(key_moves, (MOVES, r)))
            counts = cluster_counts(z, SLOTS).astype(float)
            weights = mixture_log_weights(COMPONENT, cluster_statistics(mine, z, SLOTS), counts, PRIOR, X[row][None])
            return z, (logsumexp(weights), hits + refused.sum())

        return jax.lax.scan(step, labels[others], jax.random.split(key, SWEEPS))[1]

    return jax.vmap(chain)(left_out, labels, keys)


def test_iris_against_refits() -> None:
    """Within 4 standard errors of the refits and of the reference; those of the refits from two independent chains a row."""
    X = bnp.datasets.load("iris").X
    X = (X - X.mean(0)) / X.std(0)
    model = partial(dpm, component=COMPONENT, concentration=1.0)
    kernel = bnp.PartitionGibbs(model, split_merge=20)
    run = MCMC(kernel, num_warmup=300, num_samples=2000, num_chains=8, chain_method="vectorized", progress_bar=False)
    start = time.perf_counter()
    run.run(jax.random.key(0), X)
    labels = np.asarray(run.get_samples()["z"])
    sampled = time.perf_counter()
    result = bnp.loo(run, X)
    scored = time.perf_counter()
    names = ("elpd_loo", "loo_i") if az.__version__.startswith("0.") else ("elpd", "elpd_i")
    elpd, pointwise = result[names[0]], np.asarray(result[names[1]])
    assert np.isfinite(pointwise).all() and np.isfinite(np.asarray(result["mcse_i"])).all()

    # starts from draws of the full posterior, spread over the run: they need no long warm-up
    begin = labels[np.linspace(0, len(labels) - 1, CHAINS * 150).astype(int)]
    left_out = jnp.tile(jnp.arange(150), CHAINS)
    keys = jax.random.split(jax.random.key(1), CHAINS * 150)
    log_density, hits = refit(jnp.asarray(X, jnp.float32), left_out, jnp.asarray(begin), keys)
    assert int(hits.sum()) == 0
    kept = np.asarray(log_density, dtype=np.float64)[:, SWEEPS // 10 :].reshape(CHAINS, 150, -1)
    refitted = time.perf_counter()
    by_chain = np.logaddexp.reduce(kept, axis=2) - np.log(kept.shape[2])
    error = float(np.sqrt((by_chain.var(axis=0, ddof=1) / CHAINS).sum()))
    brute = float((np.logaddexp.reduce(by_chain, axis=0) - np.log(CHAINS)).sum())
    mcse = float(result["mcse"])
    print(
        f"\niris: loo {elpd:.2f} ± {mcse:.2f} ({len(labels)} draws in {sampled - start:.0f} s, loo {scored - sampled:.0f} s); "
        f"150 refits {brute:.2f} ± {error:.2f} ({refitted - scored:.0f} s); reference {REFERENCE} ± {REFERENCE_ERROR}"
    )
    assert abs(elpd - brute) < 4 * np.hypot(mcse, error)
    assert abs(elpd - REFERENCE) < 4 * np.hypot(mcse, REFERENCE_ERROR)
