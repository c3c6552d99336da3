"""Fits, kernels and the one call where a process has set JAX to be strict."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

import jax
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.models import dpm

pytestmark = pytest.mark.slow

STRICT = {
    "disable_jit": lambda: jax.disable_jit(True),
    "dtype_promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "rank_promotion": lambda: jax.numpy_rank_promotion("raise"),
    "transfer_guard": lambda: jax.transfer_guard("disallow"),
    "tracer_leaks": lambda: jax.check_tracer_leaks(True),
    "debug_nans": lambda: jax.debug_nans(True),
}
KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(30, 2)) + 4.0 * (np.arange(30) % 2)[:, None]


def results() -> list[np.ndarray]:
    """Labels by three methods, and log joints of a kernel's start and first step."""
    known = bnp.NormalInverseGamma.from_data(X, learn=False)
    kernel = bnp.PartitionGibbs(partial(dpm, component=known, concentration=1.0))
    fits = bnp.MAPDP(n_init=1).fit(X), bnp.VariationalDP(n_init=1).fit(X), bnp.cluster(X, methods="map-dp")
    start = kernel.init(KEY, 0, None, (X,), {})
    return [*(fit.labels_ for fit in fits), start.log_joint, kernel.sample(start, (X,), {}).log_joint]


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    return results()


@pytest.mark.parametrize("name", STRICT)
def test_results_are_those_without_strict_settings(name: str, expected: list[np.ndarray]) -> None:
    """NumPyro's own code does not run under all of them, so the steps of the kernel are called without `MCMC`."""
    strict: AbstractContextManager[None] = STRICT[name]()
    with strict:
        found = results()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5)
