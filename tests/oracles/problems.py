"""Small random clustering problems, with the log marginal likelihood of any rows in plain NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln, multigammaln

from bnp_hier import BetaBernoulli, Component, DirichletMultinomial, GammaPoisson, NormalInverseGamma, NormalInverseWishart
from bnp_hier.models import dpm, pitman_yor_mixture

FAMILIES = ("niw", "nig", "bernoulli", "multinomial", "poisson")


@dataclasses.dataclass(frozen=True)
class Problem:
    """Data, a conjugate component with explicit hyperparameters, and a concentration."""

    component: Component
    X: np.ndarray
    alpha: float
    discount: float = 0.0

    @property
    def n(self) -> int:
        return len(self.X)

    @property
    def model(self) -> Any:
        """NumPyro model of the problem."""
        if self.discount:
            model = partial(pitman_yor_mixture, discount=self.discount)
        else:
            model = dpm
        return partial(model, component=self.component, concentration=self.alpha)

    def log_marginal(self, rows: Sequence[int]) -> float:
        """Log marginal likelihood of the rows with these numbers as one cluster (nats)."""
        return log_marginal(self.component, self.X[list(rows)])

    def log_predictive(self, rows: Sequence[int], x: np.ndarray) -> float:
        """Log predictive density of a new row, its missing cells integrated out, given the rows with these numbers (nats)."""
        old = self.X[list(rows)]
        completed = [w + log_marginal(self.component, np.vstack([old, row])) for row, w in _completions(self.component, x)]
        return float(np.logaddexp.reduce(completed)) - log_marginal(self.component, old)


def _completions(component: Component, x: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """A row with every value of its missing cells, or the nodes of a quadrature, and the log weight of each."""
    absent = np.flatnonzero(np.isnan(x))
    if not len(absent):
        yield x, 0.0
        return
    if isinstance(component, BetaBernoulli | GammaPoisson):
        values = np.arange(2.0 if isinstance(component, BetaBernoulli) else 400.0)
        logs = np.zeros(len(values))
    else:  # Gauss-Legendre after the substitution x = 3 tan(t)
        nodes, weights = np.polynomial.legendre.leggauss(200)
        angles = nodes * np.pi / 2
        values, logs = 3.0 * np.tan(angles), np.log(weights * np.pi / 2 * 3.0 / np.cos(angles) ** 2)
    for chosen in product(range(len(values)), repeat=len(absent)):
        row = np.array(x, float)
        row[absent] = values[list(chosen)]
        yield row, float(logs[list(chosen)].sum())


def log_marginal(component: Component, X: np.ndarray) -> float:
    """Closed forms of the log marginal likelihood, straight from the papers, no cleverness (nats)."""
    if isinstance(component, NormalInverseWishart):
        n, d = X.shape
        mean, kappa, nu = np.asarray(component.mean), float(component.kappa), float(component.nu)
        scale = np.asarray(component.scale)
        y = X - mean
        total = y.sum(0)
        posterior = scale + y.T @ y - np.outer(total, total) / (kappa + n)
        return float(
            -n * d / 2 * np.log(np.pi)
            + d / 2 * (np.log(kappa) - np.log(kappa + n))
            + nu / 2 * np.linalg.slogdet(scale)[1]
            - (nu + n) / 2 * np.linalg.slogdet(posterior)[1]
            + multigammaln((nu + n) / 2, d)
            - multigammaln(nu / 2, d)
        )
    if isinstance(component, NormalInverseGamma):
        there = ~np.isnan(X)
        y = np.where(there, X - np.asarray(component.mean), 0.0)
        n, kappa, shape, rate = there.sum(0), component.kappa, component.shape, component.rate
        posterior = rate + (y**2).sum(0) / 2 - y.sum(0) ** 2 / (2 * (kappa + n))
        columns = (
            -n / 2 * np.log(2 * np.pi)
            + (np.log(kappa) - np.log(kappa + n)) / 2
            + shape * np.log(rate)
            - (shape + n / 2) * np.log(posterior)
            + gammaln(shape + n / 2)
            - gammaln(shape)
        )
        return float(columns.sum())
    if isinstance(component, BetaBernoulli):
        a, b = np.asarray(component.a), np.asarray(component.b)
        return float((betaln(a + (X == 1).sum(0), b + (X == 0).sum(0)) - betaln(a, b)).sum())
    if isinstance(component, DirichletMultinomial):
        a, total = np.asarray(component.concentration), X.sum(0)
        coefficients = (gammaln(X.sum(1) + 1) - gammaln(X + 1).sum(1)).sum()
        categories = (gammaln(a + total) - gammaln(a)).sum()
        return float(coefficients + gammaln(a.sum()) - gammaln(a.sum() + total.sum()) + categories)
    if isinstance(component, GammaPoisson):
        a, b, n, total = np.asarray(component.shape), np.asarray(component.rate), len(X), X.sum(0)
        columns = a * np.log(b) - gammaln(a) + gammaln(a + total) - (a + total) * np.log(b + n)
        return float(columns.sum() - gammaln(X + 1).sum())
    raise TypeError(type(component).__name__)


def random_problem(family: str, n: int, seed: int, discount: float = 0.0) -> Problem:
    """n rows from a few clusters at random places, hyperparameters and α at random; shapes depend on family and n alone.

    Discrete rows are drawn with small counts, so that equal rows and equal scores are common.
    """
    rng = np.random.default_rng([FAMILIES.index(family), n, seed])
    alpha = float(np.exp(rng.uniform(np.log(0.1), np.log(10.0))))
    labels = rng.integers(0, rng.integers(1, 4), n)
    uniform = partial(rng.uniform, 0.3, 3.0)
    number = lambda low, high: np.asarray(rng.uniform(low, high))  # noqa: E731
    component: Component
    if family in ("niw", "nig"):
        X = rng.normal(scale=rng.choice([0.5, 2.0, 5.0]), size=(3, 2))[labels] + rng.normal(size=(n, 2))
        if family == "niw":
            root = rng.normal(size=(2, 2))
            scale = root @ root.T + 0.3 * np.eye(2)
            component = NormalInverseWishart(rng.normal(size=2), number(0.05, 2.0), number(2.0, 8.0), scale)
        else:
            component = NormalInverseGamma(rng.normal(size=2), uniform(2), uniform(2), uniform(2))
    elif family == "bernoulli":
        X = (rng.random((n, 4)) < rng.beta(0.5, 0.5, size=(3, 4))[labels]).astype(float)
        component = BetaBernoulli(uniform(4), uniform(4))
    elif family == "multinomial":
        X = np.stack([rng.multinomial(rng.integers(0, 6), p) for p in rng.dirichlet(np.ones(3), 3)[labels]]).astype(float)
        component = DirichletMultinomial(uniform(3))
    else:
        X = rng.poisson(rng.gamma(1.0, 3.0, size=(3, 2))[labels]).astype(float)
        component = GammaPoisson(uniform(2), uniform(2))
    return Problem(component, X, alpha, discount)
