"""Linear algebra for large batches of small positive-definite matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.utils.arrays import is_traced

__all__ = [
    "UNROLLED_UP_TO",
    "computed_after",
    "cholesky_with_rank_one",
    "identity_plus",
    "inverse_and_log_det",
    "inverse_cholesky_factor",
    "log_det",
    "log_det_and_form",
    "log_det_and_form_of_identity_plus",
    "matrix_vector",
    "quadratic_form",
    "whiten",
]

UNROLLED_UP_TO = 12
"""Largest size whose factorisation is unrolled: batches of small LAPACK calls are about ten times slower."""


UNROLLED_GRADIENTS_UP_TO = 5
"""Largest size at which derivatives go through an unrolled factorisation: at 10, they take ten seconds to compile."""


def log_det(matrix: Float[Array, "*batch d d"]) -> Float[Array, "*batch"]:
    """Log determinant of symmetric positive-definite matrices."""
    return 2.0 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1)).sum(-1)


def inverse_and_log_det(matrix: Float[Array, "*batch d d"]) -> tuple[Float[Array, "*batch d d"], Float[Array, "*batch"]]:
    """Inverses and log determinants of symmetric positive-definite matrices.

    Both are computed from one Cholesky factor. Two independent batched LAPACK calls would run concurrently, each occupying a
    thread of XLA's pool while it waits for others; with only two threads, this is a deadlock (jaxlib 0.10).
    """
    factor = jnp.linalg.cholesky(matrix)
    half = solve_triangular(factor, jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape), lower=True)
    return jnp.swapaxes(half, -1, -2) @ half, 2.0 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def computed_after(value: Any, other: Float[Array, "..."]) -> Any:
    """Return the value such that what is computed from it waits for `other`.

    It prevents the deadlock described in `inverse_and_log_det`. An optimisation barrier would not: on a CPU, only data
    dependences order the operations of a program.
    """
    never = jnp.ravel(other)[0] > jnp.inf
    return jax.tree.map(lambda leaf: jnp.where(never, jnp.zeros_like(leaf), leaf), value)


def log_det_and_form(
    matrix: Float[Array, "*batch d d"], vector: Float[Array, "*batch d"]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Log determinants and ``vector @ inverse @ vector`` for symmetric positive-definite matrices."""
    factor = jnp.linalg.cholesky(matrix)
    half = solve_triangular(factor, vector[..., None], lower=True)[..., 0]
    return 2.0 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1), (half * half).sum(-1)


def identity_plus(
    outer: Float[Array, "*batch d d"], left: Float[Array, "*batch d"], right: Float[Array, "*batch d"]
) -> Float[Array, "*batch d d"]:
    """I + outer − left rightᵀ."""
    return jnp.eye(left.shape[-1], dtype=left.dtype) + outer - left[..., :, None] * right[..., None, :]


def log_det_and_form_of_identity_plus(
    outer: Float[Array, "*batch d d"],
    left: Float[Array, "*batch d"],
    right: Float[Array, "*batch d"],
    vector: Float[Array, "*batch d"],
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Compute `log_det_and_form` of ``identity_plus(outer, left, right)``, which must be symmetric and positive definite.

    If the matrices are small, they are never formed, so that the work on each matrix of a large batch stays in registers.
    """
    size = left.shape[-1]
    if size > UNROLLED_UP_TO:
        return _dense_log_det_and_form(outer, left, right, vector)
    if size <= UNROLLED_GRADIENTS_UP_TO:
        return _unrolled_log_det_and_form(outer, left, right, vector)
    function = jax.custom_jvp(_unrolled_log_det_and_form)
    function.defjvp(partial(jax.jvp, _dense_log_det_and_form))
    return function(outer, left, right, vector)


def _dense_log_det_and_form(outer: Array, left: Array, right: Array, vector: Array) -> tuple[Array, Array]:
    return log_det_and_form(identity_plus(outer, left, right), vector)


def _unrolled_log_det_and_form(outer: Array, left: Array, right: Array, vector: Array) -> tuple[Array, Array]:
    size = left.shape[-1]
    first, second, solved = ([each[..., i] for i in range(size)] for each in (left, right, vector))
    lower = {
        (i, j): outer[..., i, j] - first[i] * second[j] + (1.0 if i == j else 0.0) for i in range(size) for j in range(i + 1)
    }
    # one logarithm for several pivots, few enough that their product cannot overflow on sensible data
    group = 4 if lower[0, 0].dtype == jnp.float64 else 2
    form = total = jnp.zeros_like(lower[0, 0])
    product = None
    for k in range(size):
        pivot = lower[k, k]
        product = pivot if product is None else product * pivot
        if (k + 1) % group == 0 or k + 1 == size:
            total, product = total + jnp.log(product), None
        inverse = 1.0 / pivot  # one division per pivot: divisions cost more than everything else
        form = form + solved[k] * solved[k] * inverse
        for i in range(k + 1, size):
            ratio = lower[i, k] * inverse
            solved[i] = solved[i] - ratio * solved[k]
            for j in range(k + 1, i + 1):
                lower[i, j] = lower[i, j] - ratio * lower[j, k]
    return total, form


def cholesky_with_rank_one(
    matrix: Float[Array, "*batch d d"], weight: Float[Array, "*batch"], vector: Float[Array, "*batch d"]
) -> Float[Array, "*batch d d"]:
    """Cholesky factor of ``matrix + weight * outer(vector, vector)``, weight ≥ 0, even if the second term is huge.

    It is the factor of the matrix times the factor of I + weight w wᵀ, which has a closed form; forming the sum would lose the
    precision of the matrix.
    """
    factor = jnp.linalg.cholesky(matrix)
    w = jnp.sqrt(weight)[..., None] * solve_triangular(factor, vector[..., None], lower=True)[..., 0]
    upto = 1.0 + jnp.cumsum(w * w, axis=-1)
    before = jnp.concatenate([jnp.ones_like(upto[..., :1]), upto[..., :-1]], axis=-1)
    columns = w[..., :, None] * (w / jnp.sqrt(upto) / jnp.sqrt(before))[..., None, :]
    diagonal = jnp.sqrt(upto / before)[..., None] * jnp.eye(w.shape[-1], dtype=w.dtype)
    return factor @ (jnp.tril(columns, -1) + diagonal)


def inverse_cholesky_factor(matrix: ArrayLike) -> Float[Array | np.ndarray, "d d"]:
    """Inverse of the lower Cholesky factor, computed by NumPy in double precision unless the matrix is traced."""
    if is_traced(matrix):
        factor = jnp.linalg.cholesky(jnp.asarray(matrix))
        return solve_triangular(factor, jnp.eye(len(factor), dtype=factor.dtype), lower=True)
    factor = np.linalg.cholesky(np.asarray(matrix, float))
    # not by SciPy's triangular solver, whose BLAS keeps threads spinning
    return np.tril(np.linalg.solve(factor, np.eye(len(factor))))


def whiten(factor: Float[Array, "d d"], rows: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Solve ``factor @ y = row`` for each row, with lower-triangular `factor`."""
    flat = rows.reshape(-1, rows.shape[-1])
    if len(flat) <= 4 * len(factor):
        return solve_triangular(factor, flat.T, lower=True).T.reshape(rows.shape)
    # for many rows, a product: a BLAS solve keeps its own threads spinning, which delays subsequent operations
    inverse = solve_triangular(factor, jnp.eye(len(factor), dtype=factor.dtype), lower=True)
    return jnp.matmul(flat, inverse.T, precision="highest").reshape(rows.shape)


def matrix_vector(matrix: Float[Array, "... d d"], vector: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Matrix-vector products; batch dimensions broadcast."""
    if matrix.shape[-1] > UNROLLED_UP_TO:
        return jnp.einsum("...ij,...j->...i", matrix, vector)
    return (matrix * vector[..., None, :]).sum(-1)  # fused with adjacent operations, unlike a matrix product


def quadratic_form(matrix: Float[Array, "... d d"], vector: Float[Array, "... d"]) -> Float[Array, "..."]:
    """``vector @ matrix @ vector`` for symmetric matrices; batch dimensions broadcast."""
    size = matrix.shape[-1]
    if size > UNROLLED_UP_TO:
        return jnp.einsum("...i,...ij,...j->...", vector, matrix, vector)
    # unrolled like the determinant: a single reduction over two axes is not fused with adjacent operations
    entries = [vector[..., i] for i in range(size)]
    return sum(
        (
            entries[i] * (matrix[..., i, i] * entries[i] + sum(2 * matrix[..., i, j] * entries[j] for j in range(i)))
            for i in range(size)
        ),
        start=jnp.zeros(()),
    )
