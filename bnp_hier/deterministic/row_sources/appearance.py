"""First rows of clusters whose rows are seen part by part, from which the order of their appearance in the table follows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

__all__ = ["NONE", "first_rows", "in_order_of_appearance"]

NONE = np.iinfo(np.int64).max
"""Number of the first row of a cluster without rows, so that the first row in several parts is the least one."""


def first_rows(labels: Int[np.ndarray, " m"], start: int, clusters: int) -> Int[np.ndarray, " k"]:
    """Number, in the table, of the first row with each label, of a part that begins at row `start`."""
    first = np.full(clusters, NONE)
    first[labels[::-1]] = start + np.arange(len(labels))[::-1]  # of repeated indices, the last one counts
    return first


def in_order_of_appearance(first: Int[np.ndarray, " k"]) -> Int[np.ndarray, " used"]:
    """Numbers of the clusters with rows, in the order of their first rows."""
    return np.argsort(first)[: int((first < NONE).sum())]
