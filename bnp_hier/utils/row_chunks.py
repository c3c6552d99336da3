"""Arrangement of rows in chunks, and of sums over rows in parts that are added in a fixed order.

Chunk t contains the rows t, t + b, t + 2b, ..., where b is the number of chunks. If the rows are distributed in order over
several devices, every chunk has the same number of rows on each, and all devices work on it without moving rows.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

__all__ = ["PARTS", "flat", "in_chunks", "no_parts", "totals", "which_are_rows"]

CHUNK = 4096
"""Approximate maximum number of rows per chunk."""

PARTS = 16
"""Number of parts per chunk, on any number of devices: a power of 2.

Their sums, in double precision if that is enabled, are carried from chunk to chunk and added after the last one. If the rows
are distributed over devices, each device therefore sums its own parts, and devices communicate once a pass.
"""


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


def which_are_rows(n: int) -> Bool[Array, "b c"]:
    """Whether each entry of the chunks of n rows is a row; the others are padding."""
    b, c = _shape(n)
    return (jnp.arange(c) * b)[None, :] + jnp.arange(b)[:, None] < n


def no_parts(*shape: int) -> Float[Array, "parts ..."]:
    """Zeros to which the sums of the first chunk are added."""
    return jnp.zeros((PARTS, *shape), jnp.result_type(float))


def totals(*of_parts: Float[Array, "parts ..."]) -> tuple[Float[Array, "..."], ...]:
    """Sums over all parts, in an order that does not depend on how they are distributed over devices.

    Several sums are computed as one, so that devices communicate only once.
    """
    packed = jnp.concatenate([parts.reshape(PARTS, -1) for parts in of_parts], axis=1)
    while len(packed) > 1:
        pairs = packed.reshape(-1, 2, packed.shape[1])
        packed = pairs[:, 0] + pairs[:, 1]
    ends = np.cumsum([parts[0].size for parts in of_parts])[:-1]
    found = jnp.split(packed[0], ends.tolist())
    return tuple(flat.reshape(parts.shape[1:]) for flat, parts in zip(found, of_parts, strict=True))
