"""Padding of rows, so that data sets of similar sizes share compiled programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from bnp_hier.utils.arrays import is_traced

__all__ = ["masked", "padded", "padded_size"]

LEAST_STEP = 32
"""Minimum difference between sizes: so few rows take no time."""


def padded_size(n: int) -> int:
    """Round a number of rows up to the next of the sizes 32, 64, 96, ..., 512, 576, 640, ..., 1024, 1152, ...

    From 256, there are eight sizes per doubling. The folds of a cross-validation and other subsets of almost the same size
    should share programs, since XLA takes seconds to compile them again; but every added row is computed in vain, and with
    coarser steps that would take longer on large data than compiling. With these, at most an eighth of the rows is added.
    """
    step = max(LEAST_STEP, (1 << (n - 1).bit_length()) // 16)
    return -(-n // step) * step


def padded(rows: Shaped[Array | np.ndarray, "n ..."], fill: Any = None) -> Any:
    """Append entries along the first axis, up to `padded_size`: `fill`, or copies of the first, which suit every family.

    The caller leaves them out again, for instance by a weight or a statistic of zero: no result depends on them. Concrete
    values are padded by NumPy, because JAX would compile a program for every size.
    """
    xp: Any = jnp if is_traced(rows) else np
    rows = xp.asarray(rows)
    value = rows[:1] if fill is None else xp.asarray(fill, rows.dtype)
    return xp.concatenate([rows, xp.broadcast_to(value, (padded_size(len(rows)) - len(rows), *rows.shape[1:]))])


def masked(statistics: Any, there: Bool[Array, " m"]) -> Any:
    """Return the statistics of rows with zeros, the statistics of no rows, where `there` is false."""
    return jax.tree.map(
        lambda leaf: jnp.where(there.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jnp.zeros_like(leaf)), statistics
    )
