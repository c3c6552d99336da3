"""Canonical forms of labels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int

__all__ = ["canonical_draws", "canonical_labels", "first_come_labels"]


def canonical_labels(labels: ArrayLike) -> Int[np.ndarray, " n"]:
    """Relabel as 0, 1, ... in order of first appearance."""
    labels = np.asarray(labels)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(labels.shape)]


def canonical_draws(draws: Int[np.ndarray, "s n"]) -> Int[np.ndarray, "s n"]:
    """Relabel every row as 0, 1, ... in order of first appearance."""
    s, n = draws.shape
    labels, k = draws, int(draws.max(initial=0)) + 1
    if draws.min(initial=0) < 0 or k > 4 * n:  # the table below has a column per label
        _, labels = np.unique(draws, return_inverse=True)
        labels, k = labels.reshape(s, n), int(labels.max(initial=0)) + 1
    first = np.full((s, k), n)
    np.minimum.at(first, (np.repeat(np.arange(s), n), labels.ravel()), np.tile(np.arange(n), s))
    return np.take_along_axis(first.argsort(1).argsort(1), labels, axis=1)


def first_come_labels(labels: Int[Array, " n"], slots: int) -> Int[Array, " n"]:
    """Relabel as 0, 1, ... in order of first appearance; labels are below `slots`, and −1 is kept."""
    n = labels.shape[0]
    first = jax.ops.segment_min(jnp.arange(n), labels, slots)
    rank = jnp.argsort(jnp.argsort(first))
    return jnp.where(labels < 0, -1, rank[labels]).astype(labels.dtype)
