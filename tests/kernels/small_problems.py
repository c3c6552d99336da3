"""Six rows of several families, small enough for all 203 partitions, and the plainest hierarchical sampler."""

from __future__ import annotations

from typing import Any

import numpy as np

from bnp_hier import BetaBernoulli, GammaPoisson, NormalInverseGamma, NormalInverseWishart
from tests.components.user_family import ExponentialGamma
from tests.oracles.partitions import Enumeration

N = 6
_RNG = np.random.default_rng(1)
_REAL = np.concatenate([_RNG.normal(0.0, 1.0, (3, 2)), _RNG.normal(2.5, 1.0, (3, 2))])
PROBLEMS = {
    "normal": (NormalInverseWishart(np.zeros(2), 0.3, 4.0, np.eye(2)), _REAL),
    "bernoulli": (BetaBernoulli(np.ones(3), np.ones(3)), (_RNG.random((N, 3)) < 0.5).astype(float)),
    "poisson": (GammaPoisson(np.ones(2), 0.5), _RNG.poisson([[1.0, 6.0]] * 3 + [[6.0, 1.0]] * 3).astype(float)),
    "diagonal, missing": (
        NormalInverseGamma(np.zeros(2), 0.3, 2.0, 1.0),
        np.where(_RNG.random((N, 2)) < 0.2, np.nan, _REAL),
    ),
    "user family": (ExponentialGamma(np.full(2, 2.0), np.full(2, 1.0)), np.exp(_REAL)),
}

ITEMS_ALONE: dict[str, Any] = {"split_merge": 0, "relabel": False, "sibling_split_merge": 0, "prune_regraft": 0}
"""Options of `BHMCGibbs` with which it moves nothing but single items."""


def enumerate_small(name: str, alpha: float, discount: float = 0.0) -> Enumeration:
    """All partitions of a problem's rows."""
    component, X = PROBLEMS[name]
    return Enumeration(N, lambda rows: component.log_evidence(X[rows]), alpha, discount)
