"""Rows of dependent normal columns in which cells are missing: densities of what is there, and conditionals of what is not."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from bnp_hier.components.base import Statistics
from bnp_hier.components.linear_algebra import UNROLLED_UP_TO, inverse_cholesky_factor, whiten
from bnp_hier.components.normal_family import NormalFamily
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
    - **covariance** - the inverse of E[Σ⁻¹], shape (d, d).
    """

    mean: Float[Array, "... d"]
    covariance: Float[Array, "... d d"]


class DependentColumns(NormalFamily):
    """Normal rows with dependent columns, whose missing values are sampled or integrated out.

    Coordinates of the statistics are y = L⁻¹(x − origin), for a matrix L Lᵀ.
    """

    @property
    @abstractmethod
    def _unit(self) -> ArrayLike:
        """The matrix L Lᵀ."""

    @abstractmethod
    def density_of_cells(self, stats: Statistics) -> Elliptical:
        """Predictive distribution of a row given the rows summarised by `stats`."""

    @abstractmethod
    def expected_parameters(self, stats: Statistics) -> ExpectedNormal:
        """Expected parameters of the cluster given the rows summarised by `stats`."""

    @property
    def _factor(self) -> Float[Array, "d d"]:
        return jnp.linalg.cholesky(jnp.asarray(self._unit))

    def _whitened(self, differences: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return whiten(self._factor, differences)

    def _whitened_covariance(self, covariance: Float[Array, "... d d"]) -> Float[Array, "... d d"]:
        half = self._whitened(jnp.swapaxes(covariance, -1, -2))
        return self._whitened(jnp.swapaxes(half, -1, -2))

    def _from_coordinates_of(self, anchor: Any) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
        """A and b of y' = A y + b, where y are the coordinates of statistics of `anchor`, and y' those of this component."""
        return self._whitened(anchor._factor.T).T, self._whitened(self._about_origin(jnp.asarray(anchor.reference())))

    def _in_units_of_data(self, mean: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return jnp.asarray(self.reference()) + jnp.einsum("ij,...j->...i", self._factor, mean)

    def _whitener_and_offset(self) -> tuple[Any, Any]:
        """L⁻¹ and the prior mean in the coordinates of the statistics, computed by NumPy in double precision unless traced."""
        component: Any = self
        whitener = inverse_cholesky_factor(self._unit)
        return whitener, whitener @ (jnp if is_traced(self) else np).subtract(component.mean, self.reference())

    @property
    def dependent_columns(self) -> tuple[int, ...]:
        """All columns."""
        return tuple(range(self.dim))

    def validate_new_rows(self, X: ArrayLike) -> None:
        """Check rows whose density is computed; missing values are integrated out."""
        self.validate(X if is_traced(X) else np.nan_to_num(np.asarray(X, dtype=np.float64), posinf=np.inf, neginf=-np.inf))

    def log_density_of_cells(self, density: Elliptical, x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """Log predictive density of the cells that are not NaN (nats)."""
        return log_density_of_observed(density, x)

    def draw_cells(self, density: Elliptical, x: Float[Array, " d"], key: Array) -> Float[Array, " d"]:
        """The row with its NaN cells drawn from their conditional distribution given the others."""
        return conditional_draw(density, x, key)

    def expected_cells(
        self, parameters: ExpectedNormal, x: Float[Array, "... d"]
    ) -> tuple[Float[Array, "... d"], Float[Array, "... d d"], Float[Array, "..."]]:
        """Mean, covariance matrix and entropy of the best normal approximation of the NaN cells."""
        return expected_cells(parameters, x)


class _Conditional(NamedTuple):
    """Location and scale matrix of a row given its observed cells, and those cells' squared distance and log determinant."""

    loc: Float[Array, "... d"]
    scale: Float[Array, "... d d"]
    square: Float[Array, "..."]
    log_det: Float[Array, "..."]


def _conditional(loc: Float[Array, "... d"], scale: Float[Array, "... d d"], x: Float[Array, "... d"]) -> _Conditional:
    """Condition on one cell after the other, without LAPACK, whose calls on batches of small matrices are slow."""
    there = ~jnp.isnan(x)
    batch = jnp.broadcast_shapes(loc.shape[:-1], x.shape[:-1])
    loc, there = jnp.broadcast_to(loc, (*batch, loc.shape[-1])), jnp.broadcast_to(there, (*batch, loc.shape[-1]))
    scale = jnp.broadcast_to(scale, (*batch, *scale.shape[-2:]))
    zero = jnp.zeros(batch, loc.dtype)

    def step(k: Any, state: _Conditional) -> _Conditional:
        observed = there[..., k]
        pivot = jnp.where(observed, state.scale[..., k, k], 1.0)
        error = jnp.where(observed, x[..., k] - state.loc[..., k], 0.0)
        row = state.scale[..., k, :]
        gain = jnp.where(observed[..., None], row / pivot[..., None], 0.0)
        return _Conditional(
            state.loc + gain * error[..., None],
            state.scale - gain[..., :, None] * row[..., None, :],
            state.square + error * error / pivot,
            state.log_det + jnp.log(pivot),
        )

    found = _loop(x.shape[-1], step, _Conditional(loc, scale, zero, zero))
    return found._replace(loc=jnp.where(there, x, found.loc))


def _half(
    scale: Float[Array, "... d d"], missing: Bool[Array, "... d"], z: Float[Array, "... d"]
) -> tuple[Float[Array, "... d"], Float[Array, "..."]]:
    """Cholesky factor of the missing values' scale matrix times `z`, and its log determinant."""

    def step(k: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rest, product, log_det = state
        pivot = jnp.where(missing[..., k], rest[..., k, k], 1.0)
        column = jnp.where(missing & missing[..., k, None], rest[..., k, :] / jnp.sqrt(pivot)[..., None], 0.0)
        rest = rest - column[..., :, None] * column[..., None, :]
        return rest, product + column * z[..., k, None], log_det + jnp.log(pivot)

    zero = jnp.zeros(scale.shape[:-1], scale.dtype)
    _, product, log_det = _loop(scale.shape[-1], step, (scale, zero, zero[..., 0]))
    return product, log_det


def _loop(steps: int, step: Any, state: Any) -> Any:
    """A loop that is unrolled if it is short, so that its operations are fused."""
    if steps > UNROLLED_UP_TO:
        return jax.lax.fori_loop(0, steps, step, state)
    for k in range(steps):
        state = step(k, state)
    return state


def log_density_of_observed(row: Elliptical, x: Float[Array, "... d"]) -> Float[Array, "..."]:
    """Log density of the cells that are not NaN, with the others integrated out (nats); batch dimensions broadcast."""
    count = (~jnp.isnan(x)).sum(-1).astype(row.loc.dtype)
    found = _conditional(row.loc, row.scale, x)
    if row.df is None:
        return -(count * LOG_2PI + found.log_det + found.square) / 2
    half = (row.df + count) / 2
    constant = gammaln(half) - gammaln(row.df / 2) - count / 2 * jnp.log(row.df * np.pi)
    return constant - found.log_det / 2 - half * jnp.log1p(found.square / row.df)


def conditional_draw(row: Elliptical, x: Float[Array, " d"], key: Array) -> Float[Array, " d"]:
    """The row x with its NaN cells drawn from their conditional distribution given the others."""
    missing = jnp.isnan(x)
    found = _conditional(row.loc, row.scale, x)
    key_normal, key_gamma = jax.random.split(key)
    deviation, _ = _half(found.scale, missing, jax.random.normal(key_normal, x.shape, row.loc.dtype))
    if row.df is not None:
        df = row.df + (~missing).sum().astype(row.loc.dtype)
        precision = jax.random.gamma(key_gamma, df / 2, dtype=row.loc.dtype) * 2 / df
        deviation = deviation * jnp.sqrt((row.df + found.square) / df / precision)
    return jnp.where(missing, found.loc + deviation, x)


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
    missing = jnp.isnan(x)
    found = _conditional(normal.mean, normal.covariance, x)
    covariance = jnp.where(missing[..., :, None] & missing[..., None, :], found.scale, 0.0)
    _, log_det = _half(covariance, missing, jnp.zeros_like(found.loc))
    return found.loc, covariance, (missing.sum(-1).astype(log_det.dtype) * (1.0 + LOG_2PI) + log_det) / 2


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
