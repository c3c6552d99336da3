"""Random components of every native family, with rows that suit them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import bnp_hier as bnp

FAMILIES = ("normal", "diagonal", "known", "bernoulli", "multinomial", "poisson", "mixed")


class Problem(NamedTuple):
    """A component, rows, a start and all random numbers that a step may need."""

    component: bnp.Component
    X: np.ndarray
    concentration: float
    discount: float
    labels: np.ndarray
    uniforms: np.ndarray


def _centres(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Centres of a few clusters, for every row."""
    return (3.0 * rng.normal(size=(5, d)))[rng.integers(0, rng.integers(1, 6), n)]


def _holes(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """The rows with none, or about a fifth, of the cells missing."""
    return np.where(rng.random(X.shape) < rng.choice([0.0, 0.2]), np.nan, X)


def _positive(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.exponential(size=shape) + 0.1


def _covariance(rng: np.random.Generator, d: int) -> np.ndarray:
    factor = rng.normal(size=(d, d))
    return factor @ factor.T + 0.3 * np.eye(d)


def _counts(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.poisson(np.exp(np.clip(_centres(rng, n, d), -3.0, 4.0))).astype(float)


def _normal(rng: np.random.Generator, n: int, d: int) -> tuple[bnp.Component, np.ndarray]:
    X = rng.normal(size=(n, d)) + _centres(rng, n, d)
    mean = rng.normal(size=d) * rng.choice([1.0, 100.0])
    return bnp.NormalInverseWishart(mean, float(_positive(rng)), d + float(_positive(rng)), _covariance(rng, d)), X


def _diagonal(rng: np.random.Generator, n: int, d: int) -> tuple[bnp.Component, np.ndarray]:
    X = rng.normal(size=(n, d)) + _centres(rng, n, d)
    shape = _positive(rng, d) if rng.random() < 0.5 else np.full(d, 2.0)
    component = bnp.NormalInverseGamma(rng.normal(size=d), np.full(d, float(_positive(rng))), shape, _positive(rng, d))
    return component, _holes(rng, X)


def _known(rng: np.random.Generator, n: int, d: int) -> tuple[bnp.Component, np.ndarray]:
    X = rng.normal(size=(n, d)) + _centres(rng, n, d)
    return bnp.NormalKnownCovariance(rng.normal(size=d), _covariance(rng, d), _covariance(rng, d)), X


def _bernoulli(rng: np.random.Generator, n: int, d: int) -> tuple[bnp.Component, np.ndarray]:
    X = (rng.random((n, d)) < 1.0 / (1.0 + np.exp(-_centres(rng, n, d)))).astype(float)
    return bnp.BetaBernoulli(_positive(rng, d), _positive(rng, d)), _holes(rng, X)


def _multinomial(rng: np.random.Generator, n: int, d: int) -> tuple[bnp.Component, np.ndarray]:
    return bnp.DirichletMultinomial(_positive(rng, d)), _counts(rng, n, d)


def _poisson(rng: np.random.Generator, n: int, d: int) -> tuple[bnp.Component, np.ndarray]:
    return bnp.GammaPoisson(_positive(rng, d), _positive(rng, d)), _holes(rng, _counts(rng, n, d))


def _mixed(rng: np.random.Generator, n: int, d: int) -> tuple[bnp.Component, np.ndarray]:
    """One column of every other family and, if there are more columns, several of the first families."""
    makers = [_normal, _diagonal, _bernoulli, _multinomial, _poisson, _known]
    widths = [d // len(makers) + (place < d % len(makers)) for place in range(len(makers))]
    places = np.split(np.arange(d)[::-1], np.cumsum(widths)[:-1])  # columns are not in the order of the parts
    found, X = [], np.empty((n, d))
    for make, columns in zip(makers, places, strict=True):
        if len(columns):
            part, X[:, columns] = make(rng, n, len(columns))
            found.append((part, tuple(columns.tolist())))
    return bnp.ProductComponent(*map(list, zip(*found, strict=True))), X


MAKERS: dict[str, Callable[..., tuple[bnp.Component, np.ndarray]]] = {
    "normal": _normal,
    "diagonal": _diagonal,
    "known": _known,
    "bernoulli": _bernoulli,
    "multinomial": _multinomial,
    "poisson": _poisson,
    "mixed": _mixed,
}


def random_problem(family: str, seed: Any, n: int, d: int, draws: int) -> Problem:
    """Build a problem of the given family and size with a random start and `draws` uniform numbers."""
    rng = np.random.default_rng(seed)
    component, X = MAKERS[family](rng, n, d)
    labels = rng.integers(0, rng.integers(1, 6), n)
    labels = np.unique(labels, return_inverse=True)[1]
    discount = float(rng.choice([0.0, 0.4]))
    return Problem(component.centered_on(X), X, float(_positive(rng)), discount, labels, rng.random(draws))
