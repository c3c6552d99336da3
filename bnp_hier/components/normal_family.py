"""What the normal families share: the reference point of their statistics, and checks for loss of precision."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num

from bnp_hier.components.base import Component, Quadratic
from bnp_hier.components.checks import check_vector
from bnp_hier.utils.arrays import is_traced

__all__ = ["FullCovariance", "NormalFamily", "NormalStatistics", "check_digits"]

FAR = 4.0
"""Distance between prior mean and mean of the rows, in units of the largest deviation of a row, that loses precision."""

GROUP = 8
"""Size of the small clusters that are tested."""

LOOKED_AT = 100_000
"""Number of rows above which only a subset is examined."""

SHIFT = 0.02
"""Rounding error of a cluster mean, in standard deviations of its rows, from which an error is raised."""


def _unseen(X: Any) -> bool:
    """Whether the values of an array cannot be read."""
    return is_traced(X) or (isinstance(X, jax.Array) and not X.is_fully_addressable)


class NormalFamily(Component):
    """Normal rows, whose statistics are sums in coordinates about a reference point: `origin`, by default the prior mean.

    Sums of squares about a point that is far from the rows would lose all digits. A family defines the prior mean, `mean`, and
    the coordinates, and keeps the prior mean apart from the scatter of the rows, since it may lie far away.
    """

    origin: ArrayLike | None = dataclasses.field(default=None, kw_only=True, repr=False)

    is_normal: ClassVar[bool] = True

    def __post_init__(self: Any) -> None:
        name = type(self).__name__
        d = check_vector(name, "mean", self.mean)
        if self.origin is not None and check_vector(name, "origin", self.origin) != d:
            raise ValueError(f"{name}: origin must have length {d}, but it has shape {np.shape(self.origin)}")

    @abstractmethod
    def _whitened(self, differences: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Differences of rows in the coordinates of the statistics."""

    def _about_origin(self, X: ArrayLike) -> Float[Array, "... d"]:
        """Rows relative to the reference point.

        The difference is computed in float64 if both are NumPy arrays, so that conversion to float32 loses little precision.
        """
        return jnp.asarray(X - 1.0 * self.reference())

    @property
    def _offset(self: Any) -> Float[Array, " d"]:
        """The prior mean, in the coordinates of the statistics."""
        return self._whitened(self._about_origin(self.mean))

    @property
    def dim(self: Any) -> int:
        """Number of columns."""
        return np.shape(self.mean)[-1]

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... d"]:
        """Rows in the coordinates of the statistics."""
        return self.suff_stats(X).total

    def reference(self: Any) -> Float[Array | np.ndarray, " d"]:
        """`origin` if it is given, otherwise the prior mean."""
        return self.mean if self.origin is None else self.origin

    def centered_on(self, X: ArrayLike) -> Self:
        """Use the mean of the rows as `origin` if the current reference point is so far away that precision would be lost."""
        reference: Any = self.reference()
        if _unseen(X):
            values = jnp.asarray(X, jnp.result_type(float))
            low, high = jnp.nanmin(values, 0), jnp.nanmax(values, 0)
            # rounded to a grid, so that the order in which devices sum their rows makes no difference
            step = jnp.exp2(jnp.floor(jnp.log2((high - low) / 64)))
            center = jnp.where(high > low, jnp.round(jnp.nanmean(values, 0) / step) * step, low)
            return dataclasses.replace(self, origin=jnp.where(jnp.isnan(low), reference, center))
        matrix = np.asarray(X, dtype=np.float64)
        at = np.zeros(matrix.shape[1]) if is_traced(reference) else np.asarray(reference, dtype=np.float64)
        low, high = np.fmin.reduce(matrix), np.fmax.reduce(matrix)  # NaN in a column without values
        with np.errstate(invalid="ignore", over="ignore"):
            middle = matrix.mean(0)
            if np.isnan(middle).any():
                known = ~np.isnan(matrix)
                middle = np.where(known, matrix, 0.0).sum(0) / known.sum(0)
            middle = np.where(np.isfinite(middle), middle, at)  # `validate` rejects infinite values later
            near = np.abs(middle - at) <= FAR * np.maximum(high - middle, middle - low)
        if not is_traced(reference) and (near | (middle == at)).all():
            return self
        return dataclasses.replace(self, origin=middle)

    def translated(self: Any, by: Float[Array | np.ndarray, " d"]) -> Any:
        """The same component with prior mean and origin shifted by −`by`."""
        return dataclasses.replace(self, mean=self.mean - by, origin=None if self.origin is None else self.origin - by)


class NormalStatistics(NamedTuple):
    """Sums over rows, in coordinates y about the reference point.

    - **n** - number of rows, shape ().
    - **total** - Σ y, shape (d,).
    - **outer** - Σ y yᵀ, shape (d, d).
    """

    n: Float[Array, "..."]
    total: Float[Array, "... d"]
    outer: Float[Array, "... d d"]


class FullCovariance(NormalFamily):
    """Normal rows with unknown mean and full covariance matrix; parameters are a (d + 1, d) array of both."""

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> NormalStatistics:
        """Count, row and its outer product, in the coordinates of the statistics, for each row."""
        y = self._whitened(self._about_origin(X))
        return NormalStatistics(jnp.ones(y.shape[:-1], y.dtype), y, y[..., :, None] * y[..., None, :])

    def row_quadratic(self, natural: NormalStatistics) -> Quadratic:
        """Quadratic in the row; the matrix is symmetrised, since only the sum of entries (i, j) and (j, i) matters."""
        return Quadratic(natural.n, natural.total, (natural.outer + jnp.swapaxes(natural.outer, -1, -2)) / 2)

    def likelihood(self, parameters: Float[Array, "... p d"]) -> dist.MultivariateNormal:
        """Normal distribution with the mean (row 0) and covariance (rows 1..d) in the array."""
        return dist.MultivariateNormal(parameters[..., 0, :], covariance_matrix=parameters[..., 1:, :])


def check_digits(
    component: Any,
    X: ArrayLike,
    variances: dict[str, np.ndarray],
    whitened: Callable[[np.ndarray], np.ndarray],
    lost: Callable[[Float[np.ndarray, "g m d"], float], Float[np.ndarray, "g d"]],
    parameters: bool,
) -> None:
    """Implement `Component.check_precision` for a normal family.

    Parameters
    ----------
    component, X, parameters
        As in `Component.check_precision`.
    variances
        Hyperparameters in squared units of the data, by name: one number, or one per column.
    whitened
        Function that whitens differences of rows.
    lost
        Function that returns the error (nats) in the log marginals of groups of whitened rows, given the unit roundoff.
    """
    if _unseen(X):
        return
    matrix = _some_rows(np.asarray(X, dtype=np.float64))
    limits = jnp.finfo(jnp.result_type(float))
    name, kind = type(component).__name__, "double" if limits.bits == 64 else "single"
    advice = "" if kind == "double" else "use double precision (numpyro.enable_x64()), or "
    for field, values in variances.items():
        tiny, huge = float(limits.tiny) / float(limits.eps), float(limits.max) * float(limits.eps)
        wrong = np.atleast_1d((values < tiny) | (values > huge))
        if wrong.any():
            j = int(wrong.argmax())
            value = np.atleast_1d(values)[j]
            raise ValueError(
                f"{name}: {field} of column {j} is {value:g}, but {kind} precision needs a value between {tiny:.0e} and "
                f"{huge:.0e}: {advice}change the units of the column"
            )
    reference, mean = (np.asarray(point, dtype=np.float64) for point in (component.reference(), component.mean))
    Y = np.nan_to_num(whitened(matrix - reference))
    # pivots are multiplied before the logarithm is taken: four in double precision, two in single precision
    largest = float(limits.max) ** (0.25 if kind == "double" else 0.5) / 1e3
    with np.errstate(over="ignore"):
        squares = np.maximum((Y**2).sum(0), whitened((mean - reference)[None])[0] ** 2)
    if not (squares < largest).all():
        j = int(np.argmax(squares))
        raise ValueError(
            f"column {j} of X has values up to {np.sqrt(squares[j]):.1e} prior standard deviations from the centre of the rows "
            f"or from the prior mean, and the squares of these distances are outside the range of {kind} precision: {advice}"
            f"adapt the prior of {name} to the column"
        )
    unit = float(limits.eps) / 2
    groups = _neighbors(Y)
    tolerance = 0.1 if kind == "single" else 0.01
    for rows, allowed in ((Y[groups], tolerance), (Y[None], tolerance + 4 * unit * Y.size)):
        nats = lost(rows, unit)
        if not nats.sum(1).max() <= allowed:
            j = int(np.unravel_index(np.argmax(nats), nats.shape)[1])
            at = reference[j]
            raise ValueError(
                f"{kind} precision is not sufficient for column {j} of X: statistics are computed about {at:.6g}, and the "
                f"log marginal likelihood of some clusters would be wrong by {nats.sum(1).max():.2g} nats; {advice}"
                f"clip the outliers of the column, or adapt the prior of {name} to it"
            )
    if parameters:
        deviation = component.expected_spread().within
        error = unit * np.nanmax(np.abs(matrix), axis=0) / deviation
        if not (error < SHIFT).all():
            j = int(np.argmax(error))
            raise ValueError(
                f"{kind} precision is not sufficient for the cluster means in column {j} of X, with values up to "
                f"{np.nanmax(np.abs(matrix[:, j])):.6g} and an expected standard deviation of {deviation[j]:.2g} within a "
                f"cluster: {advice}subtract the column's mean"
            )


def _neighbors(Y: Float[np.ndarray, "n d"]) -> Int[np.ndarray, "g m"]:
    """Possible clusters: each of the four most extreme rows, and of four others, with its nearest rows."""
    n = len(Y)
    out = np.abs(Y).max(1)
    anchors = np.concatenate([np.argsort(-out, kind="stable")[:4], np.linspace(0, n - 1, 4).astype(int)])
    size = min(GROUP, n)
    return np.stack([np.argpartition(((Y - Y[a]) ** 2).sum(1), size - 1)[:size] for a in anchors])


def _some_rows(X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m d"]:
    """All rows or, if there are many, an evenly spaced subset with the extremes of each column."""
    n = len(X)
    if n <= LOOKED_AT:
        return X
    low, high = np.fmin.reduce(X), np.fmax.reduce(X)
    extremes = np.concatenate([(X == low).argmax(0), (X == high).argmax(0)])
    spread = np.linspace(0, n - 1, LOOKED_AT).astype(int)
    return X[np.unique(np.concatenate([spread, extremes]))]
