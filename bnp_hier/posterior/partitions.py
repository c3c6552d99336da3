"""Validation of partition draws, and co-clustering."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.utils.labels import canonical_draws
from bnp_hier.utils.memory_limits import check_memory

__all__ = ["coclustering", "flat_draws", "one_partition", "unique_draws"]

MOST_COLUMNS = 2048
"""Maximum number of columns in one matrix product, with one column per cluster per draw."""

LARGE = 1e9
"""Size of a matrix in bytes beyond which a warning announces it."""

TILE = 512
"""Number of rows in one matrix product."""


def coclustering(draws: ArrayLike | Iterator[ArrayLike], *, rows: ArrayLike | slice | None = None) -> Float[np.ndarray, "m n"]:
    """Return the share of the draws in which two items are in the same cluster, for every pair of items.

    Only the result and one block of draws are in memory at a time, so an iterator can supply more draws than fit in memory.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers, or an iterator over such arrays. Clusters may be labelled
        differently in every draw.
    rows
        The m items whose rows of the matrix are wanted: their numbers from 0, or a slice; by default, all.

    Returns
    -------
    matrix
        (n, n) symmetric shares, with ones on the diagonal; (m, n) of some rows.

    Raises
    ------
    ValueError, TypeError
        If the draws are not whole numbers in two or three dimensions, an iterator is empty or its arrays differ in n, or the
        matrix does not fit in memory.
    IndexError
        If there is no item of a number in `rows`.

    Warns
    -----
    UserWarning
        If the matrix takes more than a gigabyte.

    Examples
    --------
    >>> from bnp_hier import coclustering
    >>> coclustering([[0, 0, 1], [0, 0, 0], [5, 5, 2], [1, 0, 0]])
    array([[1.  , 0.75, 0.25],
           [0.75, 1.  , 0.5 ],
           [0.25, 0.5 , 1.  ]])
    """
    together: Float[np.ndarray, "m n"] | None = None
    total, some = 0, np.arange(0)
    for chunk in draws if isinstance(draws, Iterator) else (draws,):
        flat = flat_draws(chunk)
        n = flat.shape[1]
        if together is None:
            some = np.arange(n) if rows is None else np.arange(n)[rows if isinstance(rows, slice) else np.atleast_1d(rows)]
            _announce(len(some), n)
            together = np.zeros((len(some), n))
        if n != together.shape[1]:
            raise ValueError(f"draws must all label the same items, but one array labels {n} and another {together.shape[1]}")
        total += len(flat)
        for columns in _indicator_blocks(flat):
            for start in range(0, len(some), TILE):  # whole numbers below 2²⁴ are exact in float32
                left = start if rows is None else 0  # of all rows, on and above the diagonal
                together[start : start + TILE, left:] += columns[some[start : start + TILE]] @ columns[left:].T
    if together is None:
        raise ValueError("draws must contain at least one array, but the iterator is empty")
    together /= total
    for start in range(TILE, len(together) if rows is None else 0, TILE):
        together[start:, start - TILE : start] = together[start - TILE : start, start:].T
    return together


def _announce(m: int, n: int) -> None:
    """Warn of a large matrix, and refuse one that does not fit in memory."""
    what, size = f"the co-clustering matrix of {m} × {n} items", 8.0 * m * n
    check_memory(what, size)
    if size > LARGE:
        warnings.warn(
            f"{what} takes {size / 1e9:.1f} GB of memory; rows= of coclustering returns some of its rows",
            UserWarning,
            stacklevel=3,
        )


def _indicator_blocks(flat: Int[np.ndarray, "s n"]) -> Iterator[Float[np.ndarray, "n c"]]:
    """Yield cluster indicators of several draws side by side in float32: at most MOST_COLUMNS, or those of one draw."""
    labels = canonical_draws(flat)
    n, sizes = flat.shape[1], labels.max(axis=1) + 1
    ends = np.cumsum(sizes)
    firsts = ends - sizes  # the first column of each draw, had all of them one block
    start = 0
    while start < len(labels):
        end = max(int(np.searchsorted(ends, firsts[start] + MOST_COLUMNS, side="right")), start + 1)
        block = np.zeros((n, ends[end - 1] - firsts[start]), np.float32)
        block[np.arange(n), labels[start:end] + (firsts[start:end] - firsts[start])[:, None]] = 1.0
        yield block
        start = end


def flat_draws(draws: ArrayLike) -> Int[np.ndarray, "s n"]:
    """Concatenate the draws of all chains.

    Raises
    ------
    ValueError, TypeError
        If they are not whole numbers in two or three dimensions, or a fit or ArviZ data are given instead.
    """
    if isinstance(draws, Mapping) or hasattr(draws, "get_samples"):
        labels = 'idata["posterior"]["z"].values' if isinstance(draws, Mapping) else 'mcmc.get_samples()["z"]'
        raise TypeError(
            "draws must be whole-number labels of shape (s, n) or (chain, draw, n), but they are of the type "
            f"{type(draws).__name__}; pass its labels, such as {labels}"
        )
    array = np.asarray(draws)
    if array.ndim not in (2, 3) or not np.issubdtype(array.dtype, np.integer) or 0 in array.shape:
        raise ValueError(
            "draws must be whole-number labels of shape (s, n) or (chain, draw, n), but they have shape "
            f"{array.shape} and type {array.dtype}"
        )
    return array.reshape(-1, array.shape[-1])


def one_partition(estimate: ArrayLike, n: int) -> Int[np.ndarray, " n"]:
    """Check that an estimate is one partition of the n items of the draws, and return its labels.

    Raises
    ------
    ValueError
        If it is not n whole numbers.
    """
    array = np.asarray(estimate)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"estimate must be one whole-number label per item, shape (n,), but it has shape {array.shape} "
            f"and type {array.dtype}"
        )
    if len(array) != n:
        raise ValueError(f"estimate labels {len(array)} items, but the draws label {n}")
    return array


def unique_draws(
    flat: Int[np.ndarray, "s n"],
) -> tuple[Int[np.ndarray, "u n"], Float[np.ndarray, " u"], Int[np.ndarray, " s"]]:
    """Return the distinct partitions, canonically labelled, their shares of the draws, and which of them each draw is."""
    labels = canonical_draws(flat)
    # big-endian bytes sort as the labels do, without comparing them number by number
    narrow = np.ascontiguousarray(labels, dtype=np.min_scalar_type(int(labels.max())).newbyteorder(">"))
    rows = narrow.view(f"V{narrow[0].nbytes}")[:, 0]
    _, first, which, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    return labels[first], counts / counts.sum(), which
