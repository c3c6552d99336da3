"""Rows of dependent normal columns in which cells are missing: densities of what is there, and conditionals of what is not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.components.base import Statistics
from bnp_hier.utils.arrays import is_traced

__all__ = [
    "DependentColumns",
    "Elliptical",
    "ExpectedNormal",
    "conditional_draw",
    "expected_cells",
    "log_density_of_observed",
    "moments_of_incomplete_rows",
]

LOG_2PI = float(np.log(2 * np.pi))


class Elliptical(NamedTuple):
    """Multivariate Student-t distribution of a row, or normal distribution if `df` is None; batch dimensions lead.

    - **df** - degrees of freedom, or None.
    - **loc** - location, shape (d,).
    - **scale** - scale matrix, (d, d); the covariance matrix of the normal distribution.
    """

    df: Float[Array, "..."] | None
    loc: Float[Array, "... d"]
    scale: Float[Array, "... d d"]


class ExpectedNormal(NamedTuple):
    """Expectations under the posterior of a cluster's mean μ and covariance Σ; batch dimensions lead.

    - **mean** - m such that E[Σ⁻¹μ] = E[Σ⁻¹] m, shape (d,).
    - **precision** - E[Σ⁻¹], shape (d, d).
    """

    mean: Float[Array, "... d"]
    precision: Float[Array, "... d d"]


class DependentColumns(ABC):
    """Mixin for families of normal rows with dependent columns, whose missing values are sampled or integrated out."""

    @abstractmethod
    def elliptical(self, stats: Statistics) -> Elliptical:
        """Predictive distribution of a row given the rows summarised by `stats`."""

    @abstractmethod
    def expected_normal(self, stats: Statistics) -> ExpectedNormal:
        """Expected parameters of the cluster given the rows summarised by `stats`."""

    def validate_new_rows(self, X: ArrayLike) -> None:
        """Check rows whose density is computed; missing values are integrated out."""
        component: Any = self
        component.validate(X if is_traced(X) else np.nan_to_num(np.asarray(X, dtype=np.float64), posinf=np.inf, neginf=-np.inf))

    @abstractmethod
    def with_covariances(self, rows: Statistics, covariances: Float[Array, "... d d"]) -> Statistics:
        """Expected statistics of uncertain rows, from those of their means and their covariance matrices."""


def log_density_of_observed(row: Elliptical, x: Float[Array, "... d"]) -> Float[Array, "..."]:
    """Log density of the cells that are not NaN, with the others integrated out (nats); batch dimensions broadcast."""
    there = ~jnp.isnan(x)
    count = there.sum(-1).astype(row.loc.dtype)
    _, square, log_det = _observed(row, x, there)
    if row.df is None:
        return -(count * LOG_2PI + log_det + square) / 2
    half = (row.df + count) / 2
    constant = gammaln(half) - gammaln(row.df / 2) - count / 2 * jnp.log(row.df * np.pi)
    return constant - log_det / 2 - half * jnp.log1p(square / row.df)


def conditional_draw(row: Elliptical, x: Float[Array, " d"], key: Array) -> Float[Array, " d"]:
    """The row x with its NaN cells drawn from their conditional distribution given the others."""
    there = ~jnp.isnan(x)
    factor, square, _ = _observed(row, x, there)
    cross = jnp.where(there, row.scale, 0.0)
    half = solve_triangular(factor, cross.T, lower=True)
    mean = row.loc + half.T @ solve_triangular(factor, jnp.where(there, x - row.loc, 0.0), lower=True)
    missing = ~there[:, None] & ~there
    rest = jnp.where(missing, row.scale - half.T @ half, jnp.eye(len(x), dtype=row.scale.dtype))
    key_normal, key_gamma = jax.random.split(key)
    deviation = jnp.linalg.cholesky(rest) @ jax.random.normal(key_normal, x.shape, row.loc.dtype)
    if row.df is not None:
        df = row.df + there.sum().astype(row.loc.dtype)
        precision = jax.random.gamma(key_gamma, df / 2, dtype=row.loc.dtype) * 2 / df
        deviation = deviation * jnp.sqrt((row.df + square) / df / precision)
    return jnp.where(there, x, mean + deviation)


def _observed(row: Elliptical, x: Array, there: Array) -> tuple[Array, Array, Array]:
    """Cholesky factor of the scale matrix of the observed cells, squared distance and log determinant.

    The factor has ones on the diagonal and zeros elsewhere in the rows and columns of the missing values.
    """
    both = there[..., :, None] & there[..., None, :]
    factor = jnp.linalg.cholesky(jnp.where(both, row.scale, jnp.eye(x.shape[-1], dtype=row.scale.dtype)))
    difference = jnp.where(there, x - row.loc, 0.0)
    half = solve_triangular(factor, difference[..., None], lower=True)[..., 0]
    return factor, (half * half).sum(-1), 2.0 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def expected_cells(
    normal: ExpectedNormal, x: Float[Array, "... d"]
) -> tuple[Float[Array, "... d"], Float[Array, "... d d"], Float[Array, "..."]]:
    """Best normal approximation of the NaN cells of a row given the others, under uncertain parameters.

    It is proportional to exp E[log p(x | μ, Σ)], with the expectation over the parameters.

    Returns
    -------
    mean, covariance, entropy
        The row with the means of its NaN cells; their covariance matrix, 0 elsewhere; and the entropy (nats).
    """
    there = ~jnp.isnan(x)
    missing = ~there[..., :, None] & ~there[..., None, :]
    identity = jnp.eye(x.shape[-1], dtype=normal.precision.dtype)
    factor = jnp.linalg.cholesky(jnp.where(missing, normal.precision, identity))
    half = solve_triangular(factor, jnp.broadcast_to(identity, factor.shape), lower=True)
    covariance = jnp.where(missing, jnp.swapaxes(half, -1, -2) @ half, 0.0)
    pull = jnp.einsum("...ij,...j->...i", normal.precision, jnp.where(there, x - normal.mean, 0.0))
    mean = normal.mean - jnp.einsum("...ij,...j->...i", covariance, pull)
    log_det = 2.0 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    entropy = ((~there).sum(-1).astype(mean.dtype) * (1.0 + LOG_2PI) - log_det) / 2
    return jnp.where(there, x, mean), covariance, entropy


def moments_of_incomplete_rows(
    X: ArrayLike, ridge: float = 0.01, max_iter: int = 200, tol: float = 1e-6
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Mean and covariance matrix of a table with missing values: an EM estimate under a single normal distribution.

    Cells are assumed to be missing at random (Little & Rubin 2019, chapter 11). Without missing values, the result is the
    sample mean and the (biased) sample covariance matrix.

    Parameters
    ----------
    X
        Data, (n, d), with at least one value in each column.
    ridge
        Share of the columns' variances that is added to the diagonal in the expectation step, for fewer rows than columns.
    max_iter, tol
        Maximum number of iterations, and the largest change of the mean and the covariance matrix, relative to the columns'
        standard deviations, at which they stop.
    """
    table: Any = np.asarray(X, dtype=np.float64)
    centre, spread = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    rows = (table - centre) / spread
    absent = np.isnan(rows)
    patterns, pattern = np.unique(absent, axis=0, return_inverse=True)
    d = rows.shape[1]
    mean, covariance = np.zeros(d), np.eye(d)
    filled = np.where(absent, 0.0, rows)
    for _ in range(max_iter):
        regularised, extra = covariance + ridge * np.eye(d), np.zeros((d, d))
        for k, missing in enumerate(patterns):
            if not missing.any():
                continue
            own, here = pattern.reshape(-1) == k, ~missing
            slopes = np.linalg.solve(regularised[np.ix_(here, here)], covariance[np.ix_(here, missing)])
            filled[np.ix_(own, missing)] = mean[missing] + (rows[np.ix_(own, here)] - mean[here]) @ slopes
            rest = covariance[np.ix_(missing, missing)] - covariance[np.ix_(missing, here)] @ slopes
            extra[np.ix_(missing, missing)] += own.sum() * rest
        before = mean, covariance
        mean = filled.mean(axis=0)
        covariance = (filled - mean).T @ (filled - mean) / len(rows) + extra / len(rows)
        if max(np.abs(mean - before[0]).max(), np.abs(covariance - before[1]).max()) < tol:
            break
    return centre + spread * mean, covariance * spread[:, None] * spread
