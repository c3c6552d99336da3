"""Checks of hyperparameters (of traced ones, only the shape is checked) and counts, and data statistics for default priors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from bnp_hier.components.base import Component
from bnp_hier.utils.arrays import as_matrix, first_cell, is_traced

__all__ = [
    "check_counts",
    "check_covariance",
    "check_positive",
    "check_vector",
    "close_distance",
    "column_moments",
    "no_log_marginal",
    "rounding_variances",
    "with_rounding",
]

LEAST_VARIANCE = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
"""Smallest variance that can be represented at full precision."""

REPEATED = 1e-9
"""Difference of two values, in standard deviations of their column, up to which they count as equal."""

LEAST_RESOLUTION = 1e-3
"""Smallest resolution of a column in which values are repeated, in its standard deviations."""

LOOKED_AT = 10_000
"""Maximum number of rows of traced data in which columns with few different values are looked for."""


def _numbers(family: str, name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{family}: {name} must contain real numbers, but its dtype is {array.dtype}")
    return array


def check_vector(family: str, name: str, value: ArrayLike) -> int:
    """Check a one-dimensional hyperparameter and return its length.

    Raises
    ------
    ValueError
        If the value is not one-dimensional, is empty, or contains a non-finite number.
    """
    shape = np.shape(value)
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(f"{family}: {name} must be a vector, shape (d,), but it has shape {shape}")
    if not is_traced(value) and not np.isfinite(_numbers(family, name, value)).all():
        raise ValueError(f"{family}: {name} must be finite, but it is {np.asarray(value)}")
    return shape[0]


def check_positive(family: str, name: str, value: ArrayLike, dim: int | None = None, above: float = 0.0) -> None:
    """Check that a number, or with `dim` also every entry of a vector of that length, is finite and greater than `above`.

    Raises
    ------
    ValueError
        If the shape is wrong, or an entry is not finite or too small.
    """
    shape = np.shape(value)
    allowed = [()] if dim is None else [(), (dim,)]
    if shape not in allowed:
        expected = "a number" if dim is None else f"a number or a vector of length {dim}"
        raise ValueError(f"{family}: {name} must be {expected}, but it has shape {shape}")
    if not is_traced(value):
        array = _numbers(family, name, value)
        if not (np.isfinite(array).all() and (array > above).all()):
            raise ValueError(f"{family}: {name} must be finite and greater than {above:g}, but it is {array}")


def check_covariance(family: str, name: str, value: ArrayLike, dim: int) -> None:
    """Check that a hyperparameter is a symmetric positive-definite (d, d) matrix.

    Raises
    ------
    ValueError
        If the shape is wrong, or the matrix is not finite, symmetric and positive definite.
    """
    shape = np.shape(value)
    if shape != (dim, dim):
        raise ValueError(f"{family}: {name} must be a ({dim}, {dim}) matrix, but it has shape {shape}")
    if is_traced(value):
        return
    matrix = _numbers(family, name, value).astype(float)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{family}: {name} must be finite")
    if not np.allclose(matrix, matrix.T, rtol=1e-5, atol=1e-8 * np.abs(matrix).max()):
        raise ValueError(f"{family}: {name} must be symmetric")
    # scaled to a unit diagonal, so that very different units of the columns do not make the matrix look singular
    diagonal = np.diag(matrix)
    smallest = -np.inf
    if (diagonal > 0).all():
        root = np.sqrt(diagonal)
        smallest = np.linalg.eigvalsh(matrix / np.outer(root, root))[0]
    if smallest <= 1e-12 * dim:
        raise ValueError(f"{family}: {name} must be positive definite, but it is singular or indefinite")


def check_counts(family: str, X: np.ndarray) -> None:
    """Check that every value that is not missing is a non-negative whole number.

    Raises
    ------
    ValueError
        If one is not; the message names the first such cell.
    """
    there = ~np.isnan(X)
    if np.isinf(X).any():
        raise ValueError(f"X has an infinite value at {first_cell(np.isinf(X))}; {family} needs counts 0, 1, 2, ...")
    cases = {
        "a negative count": there & (X < 0),
        "a fractional count": there & (X != np.floor(X)),
    }
    for what, wrong in cases.items():
        if wrong.any():
            raise ValueError(f"{family} needs counts 0, 1, 2, ..., but X has {what} ({X[wrong][0]:g}) at {first_cell(wrong)}")


def rounding_variances(X: ArrayLike, variance: ArrayLike) -> Any:
    """Variances of the rounding errors of columns in which values are repeated; 0 for other columns.

    With distinct values at least δ apart, the errors are uniform on an interval of length δ, so that their variance is δ²/12; δ
    is taken to be at least a thousandth of the standard deviation, and smaller differences to be none. Under a normal
    likelihood, clusters of equal values would otherwise have densities without a bound.

    Parameters
    ----------
    X
        Data, (n, d); NaN is ignored. Traced data stay traced, and of these, at most `LOOKED_AT` evenly spaced rows are used.
    variance
        Variances of the columns, (d,).
    """
    xp: Any = np
    if is_traced(X):
        import jax.numpy as jnp

        xp = jnp
    matrix: Any = X if is_traced(X) else as_matrix(X)
    if is_traced(X) and matrix.shape[0] > LOOKED_AT:  # sorting a distributed table would move all of its rows
        matrix = matrix[np.linspace(0, matrix.shape[0] - 1, LOOKED_AT).astype(int)]
    gaps, variance = xp.diff(xp.sort(matrix, axis=0), axis=0), xp.asarray(variance)
    same = REPEATED**2 * variance
    gap = xp.where(gaps**2 > same, gaps, xp.inf).min(axis=0)
    repeated = (gaps**2 <= same).any(axis=0)
    least = xp.maximum(xp.where(xp.isfinite(gap), gap, 0.0) ** 2, LEAST_RESOLUTION**2 * variance)
    return xp.where(repeated, least, 0.0) / 12


def with_rounding(X: ArrayLike, variance: ArrayLike) -> dict[str, Any]:
    """The argument `rounding` for priors of normal columns; nothing if no value is repeated."""
    found = rounding_variances(X, variance)
    return {"rounding": found} if is_traced(found) or np.any(found) else {}


def column_moments(family: str, X: ArrayLike) -> tuple[Any, Any]:
    """Mean and (biased) variance of each column, ignoring missing values.

    Traced data stay traced; where other data lead to an error, their variances are NaN.

    Raises
    ------
    ValueError
        If there are fewer than two rows or an infinite value, or a column is constant, has no value, or has a variance outside
        the range of floating point.
    """
    if is_traced(X):
        import jax.numpy as jnp

        varies = jnp.nanmax(X, axis=0) > jnp.nanmin(X, axis=0)
        return jnp.nanmean(X, axis=0), jnp.where(varies, jnp.nanvar(X, axis=0), jnp.nan)
    matrix = as_matrix(X, min_rows=2)
    if np.isinf(matrix).any():
        row, column = np.argwhere(np.isinf(matrix))[0]
        raise ValueError(f"X has an infinite value at row {row}, column {column}; expected finite numbers")
    there = ~np.isnan(matrix)
    if not there.any(axis=0).all():
        raise ValueError(f"X has only missing values in column {int(np.argmin(there.any(axis=0)))}")
    mean = np.nanmean(matrix, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.nanmean((matrix - mean) ** 2, axis=0)
    constant = np.nanmax(matrix, axis=0) == np.nanmin(matrix, axis=0)
    if constant.any():
        column = int(np.argmax(constant))
        raise ValueError(
            f"X is constant in column {column} (value {matrix[there[:, column], column][0]:g}): {family}.from_data sets the "
            "prior's scale from the data; drop the column or specify the hyperparameters explicitly"
        )
    wrong = ~((variance > LEAST_VARIANCE) & (variance < np.inf))
    if wrong.any():
        column = int(np.argmax(wrong))
        with np.errstate(over="ignore"):
            reach = np.nanmax(np.abs(matrix[:, column] - mean[column]))
        raise ValueError(
            f"X deviates from its mean by up to {reach:.1e} in column {column}, and the square of this deviation is outside "
            "the range of double precision: change the units of the column"
        )
    return mean, variance


def close_distance(X: np.ndarray, random_state: int, share: float = 0.1, pairs: int = 3) -> float:
    """Mean distance of the closest pairs of a row from a random sample and its nearest distinct neighbour.

    Kurihara & Welling (2009), below Eq. 21; duplicate rows count as one point, as the distance would otherwise be 0.

    Raises
    ------
    ValueError
        If all rows are equal.
    """
    from sklearn.neighbors import NearestNeighbors

    points = np.unique(X, axis=0)
    if len(points) < 2:
        raise ValueError(f"all {len(X)} rows of X are equal: there is no distance from which to set the prior's scale")
    chosen = np.random.default_rng(random_state).permutation(len(points))[: max(int(share * len(points)), pairs)]
    distances, _ = NearestNeighbors(n_neighbors=2).fit(points).kneighbors(points[chosen])
    return float(np.sort(distances[:, 1])[:pairs].mean())


def no_log_marginal(component: Component, rows: Iterable[int]) -> ValueError:
    """Return the error for rows whose log marginal likelihood as one cluster is NaN or infinite."""
    return ValueError(
        f"the log marginal likelihood of {type(component).__name__} is not finite for the cluster of rows "
        f"{', '.join(map(str, sorted(rows)))}"
    )
