"""What a set of partition draws says: co-clustering and a point estimate."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.hierarchy import canonical_labels

__all__ = ["coclustering", "point_estimate"]


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
    labels, weights = _unique(_flat(draws))
    n = labels.shape[1]
    out = np.zeros((n, n))
    for z, weight in zip(labels, weights, strict=True):
        onehot = (z[:, None] == np.arange(z.max() + 1)).astype(np.float64)
        out += weight * (onehot @ onehot.T)
    return out


def point_estimate(draws: ArrayLike, loss: str = "vi") -> Int[np.ndarray, " n"]:
    """The draw with the smallest posterior expected loss.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    loss
        "vi": the lower bound of the expected variation of information, from the co-clustering matrix (Wade & Ghahramani
        2018, Eq. 13); "binder": Binder's loss with equal costs.

    Returns
    -------
    labels
        (n,) whole numbers from 0, in order of appearance.

    Raises
    ------
    ValueError
        If the draws have a wrong shape or type, or the loss is unknown.
    """
    if loss not in ("vi", "binder"):
        raise ValueError(f'loss must be "vi" or "binder", but it is {loss!r}')
    flat = _flat(draws)
    together = coclustering(flat)
    labels, _ = _unique(flat)
    losses = []
    for z in labels:
        same = z[:, None] == z
        if loss == "binder":
            losses.append(np.abs(same - together).sum() / 2)
        else:  # terms that do not depend on z are left out
            losses.append((np.log(same.sum(1)) - 2 * np.log((same * together).sum(1))).sum())
    return labels[int(np.argmin(losses))]


def _flat(draws: ArrayLike) -> Int[np.ndarray, "s n"]:
    array = np.asarray(draws)
    if array.ndim not in (2, 3) or not np.issubdtype(array.dtype, np.integer) or 0 in array.shape:
        raise ValueError(
            "draws must be whole-number labels of shape (s, n) or (chain, draw, n), but they have shape "
            f"{array.shape} and type {array.dtype}"
        )
    return array.reshape(-1, array.shape[-1])


def _unique(flat: Int[np.ndarray, "s n"]) -> tuple[Int[np.ndarray, "u n"], Float[np.ndarray, " u"]]:
    """Distinct partitions, canonically labelled, with their shares of the draws."""
    rough, counts = np.unique(flat, axis=0, return_counts=True)
    canonical = np.stack([canonical_labels(z) for z in rough])
    labels, inverse = np.unique(canonical, axis=0, return_inverse=True)
    shares = np.bincount(inverse.ravel(), weights=counts)
    return labels, shares / shares.sum()
