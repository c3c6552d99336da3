"""Passes over all rows by matrix products, one chunk of rows at a time: the features of all rows are never stored at once.

Chunk t contains the rows t, t + b, t + 2b, ..., where b is the number of chunks. If the rows are distributed in order over
several devices, every chunk has the same number of rows on each, and all devices work on it without moving rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from bnp_hier.components.base import Statistics
from bnp_hier.partitions.row_features import Features, coefficients_of

__all__ = [
    "linear_scores",
    "Coefficients",
    "RowChunks",
    "flat",
    "in_chunks",
    "row_chunks",
    "row_scores",
    "sums_of",
]

CHUNK = 4096
"""Approximate maximum number of rows per chunk."""

PARTS = 16
"""Number of parts per chunk, on any number of devices; their sums are added in double precision if that is enabled."""


class RowChunks(NamedTuple):
    """A table in chunks.

    - **X** - (chunks, rows per chunk, d), padded with copies of the first row.
    - **there** - (chunks, rows per chunk) whether the entry is a row of the table.
    """

    X: Float[Array, "b c d"]
    there: Bool[Array, "b c"]


class Coefficients(NamedTuple):
    """A linear function of a row's features, for each of k clusters.

    - **linear** - (f, k) coefficients of the features.
    - **constant** - (k,) constants.
    """

    linear: Float[Array, "f k"]
    constant: Float[Array, " k"]


def _shape(n: int) -> tuple[int, int]:
    """Number of chunks and of rows per chunk: a multiple of `PARTS`, without padding if a few more chunks avoid it."""
    least = -(-n // CHUNK)
    for chunks in range(least, 4 * least + 1):
        if n % (chunks * PARTS) == 0:
            return chunks, n // chunks
    return least, -(-n // (least * PARTS)) * PARTS


def in_chunks(values: Shaped[Array, "n ..."]) -> Shaped[Array, "b c ..."]:
    """Arrange one value per row in chunks, at the places of the rows."""
    n = values.shape[0]
    b, c = _shape(n)
    if b * c > n:
        filling = jnp.broadcast_to(values[:1], (b * c - n, *values.shape[1:]))
        values = jnp.concatenate([values, filling])
    return jnp.swapaxes(values.reshape(c, b, *values.shape[1:]), 0, 1)


def flat(chunks: Shaped[Array, "b c"], n: int) -> Shaped[Array, " n"]:
    """Invert `in_chunks` for one number per row."""
    return jnp.swapaxes(chunks, 0, 1).reshape(-1)[:n]


def row_chunks(X: Float[Array, "n d"]) -> RowChunks:
    """Arrange the table in chunks."""
    chunks = in_chunks(X)
    b, c = chunks.shape[:2]
    return RowChunks(chunks, (jnp.arange(c) * b)[None, :] + jnp.arange(b)[:, None] < X.shape[0])


def linear_scores(natural: Statistics, constant: Float[Array, " k"], features: Features, dtype: Any) -> Coefficients:
    """Express ⟨natural, suff_stats(x)⟩ + constant in terms of the features; leaves of `natural` have leading dimension k."""
    return Coefficients(coefficients_of(natural, features).astype(dtype), constant.astype(dtype))


def row_scores(phi: Float[Array, "c f"], coefficients: Coefficients) -> Float[Array, "c k"]:
    """Evaluate the linear functions at the features of some rows."""
    return jnp.matmul(phi, coefficients.linear, precision="highest") + coefficients.constant[None]


def sums_of(weight: Float[Array, "c k"], phi: Float[Array, "c f"]) -> Float[Array, "k f"]:
    """Weighted sums of the rows' features for each of k clusters."""
    parts = (array.reshape(PARTS, -1, array.shape[1]) for array in (weight, phi))
    sums = jnp.einsum("pck,pcf->pkf", *parts, precision="highest")
    return sums.astype(jnp.result_type(float)).sum(0)
