"""Six rows of several families, small enough for all 203 partitions, and the judgement of a chain on them."""

from __future__ import annotations

import numpy as np

from bnp_hier import BetaBernoulli, GammaPoisson, NormalInverseGamma, NormalInverseWishart
from tests.components.user_family import ExponentialGamma
from tests.oracles.monte_carlo import effective_draws, independent_total_variation
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


def enumerate_small(name: str, alpha: float, discount: float = 0.0) -> Enumeration:
    """All partitions of a problem's rows."""
    component, X = PROBLEMS[name]
    return Enumeration(N, lambda rows: component.log_evidence(X[rows]), alpha, discount)


def excess_variation(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray, *series: np.ndarray) -> float:
    """Total variation over the mean of that of as many independent draws as the chain's effective size.

    At these sizes 1.3 lies more than eight standard deviations of the independent draws above their mean.
    """
    counts = np.zeros(len(exact.labels))
    for z in labels:
        counts[exact.index[tuple(z)]] += 1
    observed = np.abs(counts / counts.sum() - probabilities).sum() / 2
    indicator = labels[:, :, None] == labels[:, None, :]
    together = [indicator[:, i, j] for i in range(N) for j in range(i)]
    size = int(effective_draws(*series, *together))
    return float(observed / independent_total_variation(probabilities, size).mean())


def assert_exact(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray, *series: np.ndarray) -> None:
    """An excess of at most 1.3: the false-alarm rate is that of a badly estimated effective size, not of chance."""
    excess = excess_variation(labels, exact, probabilities, *series)
    assert excess <= 1.3, excess
