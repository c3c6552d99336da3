"""Mixing of PartitionGibbs from overdispersed starts (run with -m benchmark -n 0 -s)."""

from __future__ import annotations

import time
from functools import partial

import arviz as az
import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.models import dpm
from bnp_hier.posterior.convergence import LABEL_INVARIANT

FIELDS = ("log_joint", "n_clusters", "largest_cluster", "entropy")


def _mixture() -> np.ndarray:
    """2,000 rows in ten dimensions from ten clusters whose centres lie about twelve standard deviations apart."""
    rng = np.random.default_rng(0)
    return rng.normal(scale=2.7, size=(10, 10))[rng.integers(0, 10, 2000)] + rng.normal(size=(2000, 10))


def _mixing(X: np.ndarray, warmup: int, samples: int, **options) -> dict[str, tuple[float, float]]:
    """R-hat and bulk effective sample size of the label-invariant fields of four chains, printed with what a second buys."""
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X), concentration=1.0)
    kernel = bnp.PartitionGibbs(model, **options)
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=samples, num_chains=4, chain_method="vectorized", progress_bar=False)
    start = time.perf_counter()
    mcmc.run(jax.random.key(0), X, extra_fields=FIELDS)
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
    found = _mixing(_mixture(), 100, 200)
    assert max(rhat for rhat, _ in found.values()) <= 1.01, found
