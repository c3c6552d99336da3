"""Rows of five clusters, and an estimator that searches on 200 of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import bnp_hier as bnp
from bnp_hier.models import dpm

N = 900


def table(n: int = N) -> np.ndarray:
    rng = np.random.default_rng(0)
    return 6.0 * rng.normal(size=(5, 2))[rng.integers(0, 5, n)] + rng.normal(size=(n, 2))


def estimator(X: np.ndarray, **options: Any) -> bnp.BayesianKMeans:
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    return bnp.BayesianKMeans(partial(dpm, component=component, concentration=1.0), polish=False, n_init=(1, 4), **options)
