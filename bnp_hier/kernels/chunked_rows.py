"""Passes over all rows by matrix products, one chunk of rows at a time: the features of all rows are never stored at once.

Chunk t contains the rows t, t + b, t + 2b, ..., where b is the number of chunks. If the rows are distributed in order over
several devices, every chunk has the same number of rows on each, and all devices work on it without moving rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from bnp_hier.components.base import Statistics
from bnp_hier.partitions.row_features import Features, coefficients_of

__all__ = [
    "Coefficients",
    "RowChunks",
    "counts_of",
    "flat",
    "in_chunks",
    "linear_scores",
    "no_parts",
    "row_chunks",
    "row_scores",
    "sums_of",
    "totals",
]

ROWS_PER_PART = 256
"""Approximate maximum number of rows of a chunk that are summed at once, in the precision of the rows."""

PARTS, PARTS_ON_ACCELERATORS = 16, 256
"""Numbers of parts per chunk, on any number of devices: powers of 2.

Their sums, in double precision if that is enabled, are carried from chunk to chunk and added after the last one. If the rows
are distributed over devices, each device therefore sums its own parts, and devices communicate once a pass. The chunks of a CPU
fit in its caches; on an accelerator, small chunks would spend their time waiting for programs to start.
"""


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


def _parts() -> int:
    """Number of parts per chunk on the default device."""
    return PARTS if jax.default_backend() == "cpu" else PARTS_ON_ACCELERATORS


def _shape(n: int) -> tuple[int, int]:
    """Number of chunks and of rows per chunk: a multiple of `_parts()`, without padding if a few more chunks avoid it."""
    parts = _parts()
    least = -(-n // (parts * ROWS_PER_PART))
    for chunks in range(least, 4 * least + 1):
        if n % (chunks * parts) == 0:
            return chunks, n // chunks
    return least, -(-n // (least * parts)) * parts


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


def sums_of(weight: Float[Array, "c k"], phi: Float[Array, "c f"]) -> Float[Array, "parts k f"]:
    """Weighted sums of the rows' features for each of k clusters, by part; `totals` adds them."""
    parts = (array.reshape(_parts(), -1, array.shape[1]) for array in (weight, phi))
    return jnp.einsum("pck,pcf->pkf", *parts, precision="highest").astype(jnp.result_type(float))


def counts_of(weight: Float[Array, "c k"]) -> Float[Array, "parts k"]:
    """Sums of the weights for each of k clusters, by part."""
    return weight.reshape(_parts(), -1, weight.shape[1]).astype(jnp.result_type(float)).sum(1)


def no_parts(*shape: int) -> Float[Array, "parts ..."]:
    """Zeros to which the sums of the first chunk are added."""
    return jnp.zeros((_parts(), *shape), jnp.result_type(float))


def totals(*of_parts: Float[Array, "parts ..."]) -> tuple[Float[Array, "..."], ...]:
    """Sums over all parts, in an order that does not depend on how they are distributed over devices.

    Several sums are computed as one, so that devices communicate only once.
    """
    packed = jnp.concatenate([parts.reshape(len(parts), -1) for parts in of_parts], axis=1)
    while len(packed) > 1:
        pairs = packed.reshape(-1, 2, packed.shape[1])
        packed = pairs[:, 0] + pairs[:, 1]
    ends = np.cumsum([parts[0].size for parts in of_parts])[:-1]
    found = jnp.split(packed[0], ends.tolist())
    return tuple(flat.reshape(parts.shape[1:]) for flat, parts in zip(found, of_parts, strict=True))
