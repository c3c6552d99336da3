"""Families with priors of their own, and their log marginal likelihoods by SciPy: one predictive density after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import bnp_hier as bnp

__all__ = ["FAMILIES", "Family"]

D = 2
SCALE = np.array([[1.2, 0.3], [0.3, 0.8]])


class Family(NamedTuple):
    """A family as the campaign needs it.

    - **component** - with the prior mean at `center`, a number.
    - **log_marginal** - of some rows, for a centre of 0 (nats).
    - **rows** - rows that suit it, from a generator.
    - **missing** - whether it takes missing values.
    - **shifts** - whether it has a centre at all.
    """

    component: Callable[[float], Any]
    log_marginal: Callable[[np.ndarray], float]
    rows: Callable[[np.random.Generator, int], np.ndarray]
    missing: bool
    shifts: bool


def _normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, D)) + rng.choice([-2.0, 2.0], size=(n, 1))


def _wishart(X: np.ndarray) -> float:
    mean, kappa, nu, scale = np.zeros(D), 0.3, 4.0, SCALE
    total = 0.0
    for x in X:
        df = nu - D + 1
        total += stats.multivariate_t.logpdf(x, mean, scale * (kappa + 1) / (kappa * df), df)
        scale = scale + kappa / (kappa + 1) * np.outer(x - mean, x - mean)
        mean, kappa, nu = (kappa * mean + x) / (kappa + 1), kappa + 1, nu + 1
    return float(total)


def _columns(X: np.ndarray, one: Callable[[np.ndarray], float]) -> float:
    """Independent columns without their missing values."""
    return float(sum(one(column[~np.isnan(column)]) for column in X.T))


def _gamma(X: np.ndarray) -> float:
    def one(column: np.ndarray) -> float:
        mean, kappa, shape, rate, total = 0.0, 0.3, 2.0, 0.7, 0.0
        for x in column:
            total += stats.t.logpdf(x, 2 * shape, mean, np.sqrt(rate * (kappa + 1) / (shape * kappa)))
            rate += kappa * (x - mean) ** 2 / (2 * (kappa + 1))
            mean, kappa, shape = (kappa * mean + x) / (kappa + 1), kappa + 1, shape + 0.5
        return total

    return _columns(X, one)


def _known(X: np.ndarray) -> float:
    """Each row normal given the mean, which is normal too: all rows are jointly normal."""
    n = len(X)
    covariance = np.kron(np.ones((n, n)), 3.0 * np.eye(D)) + np.kron(np.eye(n), SCALE)
    return float(stats.multivariate_normal.logpdf(X.ravel(), np.zeros(n * D), covariance))


def _beta(X: np.ndarray) -> float:
    def one(column: np.ndarray) -> float:
        a, b, total = 0.8, 1.5, 0.0
        for x in column:
            total += stats.bernoulli.logpmf(x, a / (a + b))
            a, b = a + x, b + 1 - x
        return total

    return _columns(X, one)


def _poisson(X: np.ndarray) -> float:
    def one(column: np.ndarray) -> float:
        shape, rate, total = 1.5, 0.5, 0.0
        for x in column:
            total += stats.nbinom.logpmf(x, shape, rate / (rate + 1))
            shape, rate = shape + x, rate + 1
        return total

    return _columns(X, one)


def _dirichlet(X: np.ndarray) -> float:
    concentration, total = np.array([0.7, 1.4]), 0.0
    for x in X.astype(int):
        total += stats.dirichlet_multinomial.logpmf(x, concentration, x.sum())
        concentration = concentration + x
    return float(total)


def _counts(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.poisson(rng.choice([1.0, 8.0], size=(n, D))).astype(float)


FAMILIES = {
    "full": Family(
        lambda c: bnp.NormalInverseWishart(np.full(D, c), 0.3, 4.0, SCALE), _wishart, _normal, missing=False, shifts=True
    ),
    "diagonal": Family(
        lambda c: bnp.NormalInverseGamma(np.full(D, c), 0.3, 2.0, 0.7), _gamma, _normal, missing=True, shifts=True
    ),
    "known": Family(
        lambda c: bnp.NormalKnownCovariance(np.full(D, c), 3.0 * np.eye(D), SCALE), _known, _normal, missing=False, shifts=True
    ),
    "bits": Family(
        lambda _: bnp.BetaBernoulli(np.full(D, 0.8), np.full(D, 1.5)),
        _beta,
        lambda rng, n: (rng.random((n, D)) < 0.5).astype(float),
        missing=True,
        shifts=False,
    ),
    "counts": Family(
        lambda _: bnp.GammaPoisson(np.full(D, 1.5), np.full(D, 0.5)), _poisson, _counts, missing=True, shifts=False
    ),
    "rows of counts": Family(
        lambda _: bnp.DirichletMultinomial(np.array([0.7, 1.4])), _dirichlet, _counts, missing=False, shifts=False
    ),
}
