"""Scores of clusterings and dendrograms against true classes that scikit-learn does not provide."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Int

__all__ = ["dendrogram_purity", "f_measure", "purity"]


def purity(truth: ArrayLike, labels: ArrayLike) -> float:
    """Proportion of items in the most frequent class of their cluster, in (0, 1]; never decreases when clusters are split.

    Parameters
    ----------
    truth
        (n,) true class labels.
    labels
        (n,) cluster labels.

    Raises
    ------
    ValueError
        If the arguments are not non-empty vectors of equal length.
    """
    return float(_table(truth, labels).max(0).sum() / len(np.asarray(labels)))


def f_measure(truth: ArrayLike, labels: ArrayLike) -> float:
    """Mean over items of the F1 score between their class and its best-matching cluster, in (0, 1].

    The score is Σ_c n_c/n max_k 2 n_ck/(n_c + n_k) over classes c (Steinbach, Karypis & Kumar 2000), as used by Huang et al.
    (2021).

    Parameters
    ----------
    truth
        (n,) true class labels.
    labels
        (n,) cluster labels.

    Raises
    ------
    ValueError
        If the arguments are not non-empty vectors of equal length.
    """
    table = _table(truth, labels)
    classes, clusters = table.sum(1), table.sum(0)
    f1 = 2.0 * table / (classes[:, None] + clusters)
    return float((classes * f1.max(1)).sum() / classes.sum())


def dendrogram_purity(children: Int[np.ndarray, "m 2"], y: ArrayLike, pick: str = "pair") -> float:
    """Purity of a binary tree, given by its (n − 1, 2) merges; see `Dendrogram.purity`."""
    if pick not in ("pair", "leaf"):
        raise ValueError(f'pick must be "pair" or "leaf", but it is {pick!r}')
    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    n = len(children) + 1
    if codes.shape != (n,):
        raise ValueError(f"y must have one label per item, shape ({n},), but it has shape {codes.shape}")
    size = np.bincount(codes)
    weight = np.ones(len(classes)) if pick == "pair" else 1.0 / np.maximum(size - 1, 1)
    counts = np.zeros((2 * n - 1, len(classes)))
    counts[np.arange(n), codes] = 1.0
    pairs = total = 0.0
    for t, (left, right) in enumerate(children):
        node = counts[left] + counts[right]
        counts[n + t] = node
        meeting = weight * counts[left] * counts[right]
        pairs += meeting.sum()
        total += (meeting * node).sum() / node.sum()
    if pairs == 0:
        raise ValueError("dendrogram purity needs a class with at least two items")
    return float(total / pairs)


def _table(truth: ArrayLike, labels: ArrayLike) -> Int[np.ndarray, "classes clusters"]:
    """Number of items of each class in each cluster."""
    from sklearn.metrics.cluster import contingency_matrix

    truth, labels = np.asarray(truth), np.asarray(labels)
    if truth.ndim != 1 or truth.shape != labels.shape or not len(truth):
        raise ValueError(
            f"expected one class and one cluster per item, but truth has shape {truth.shape}, labels {labels.shape}"
        )
    return contingency_matrix(truth, labels)
