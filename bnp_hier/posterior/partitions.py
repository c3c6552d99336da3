"""Sets of partition draws: their form, and co-clustering."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.hierarchy import canonical_labels

__all__ = ["coclustering", "flat_draws", "unique_draws"]


def coclustering(draws: ArrayLike) -> Float[np.ndarray, "n n"]:
    """Share of the draws in which two items are in one cluster.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers; labels may be named differently in every draw.

    Raises
    ------
    ValueError
        If the draws are not whole numbers of two or three dimensions.
    """
    labels, weights = unique_draws(flat_draws(draws))
    n = labels.shape[1]
    out = np.zeros((n, n))
    for z, weight in zip(labels, weights, strict=True):
        onehot = (z[:, None] == np.arange(z.max() + 1)).astype(np.float64)
        out += weight * (onehot @ onehot.T)
    return out


def flat_draws(draws: ArrayLike) -> Int[np.ndarray, "s n"]:
    """Draws of all chains, one after the other.

    Raises
    ------
    ValueError
        If they are not whole numbers of two or three dimensions.
    """
    array = np.asarray(draws)
    if array.ndim not in (2, 3) or not np.issubdtype(array.dtype, np.integer) or 0 in array.shape:
        raise ValueError(
            "draws must be whole-number labels of shape (s, n) or (chain, draw, n), but they have shape "
            f"{array.shape} and type {array.dtype}"
        )
    return array.reshape(-1, array.shape[-1])


def unique_draws(flat: Int[np.ndarray, "s n"]) -> tuple[Int[np.ndarray, "u n"], Float[np.ndarray, " u"]]:
    """Distinct partitions, canonically labelled, with their shares of the draws."""
    rough, counts = np.unique(flat, axis=0, return_counts=True)
    canonical = np.stack([canonical_labels(z) for z in rough])
    labels, inverse = np.unique(canonical, axis=0, return_inverse=True)
    shares = np.bincount(inverse.ravel(), weights=counts)
    return labels, shares / shares.sum()
