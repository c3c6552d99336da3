"""Stable sorting."""

from __future__ import annotations

import numpy as np

from bnp_hier.native.memory import separate

__all__ = ["sort_by"]


@separate
def sort_by(keys, items):
    """Sort items in place by their keys, in the order in which they are given where keys are equal (merge sort)."""
    n, width = len(items), 1
    other = np.empty(n, np.int64)
    while width < n:
        for start in range(0, n, 2 * width):
            left, right = start, min(start + width, n)
            middle, end = right, min(start + 2 * width, n)
            for place in range(start, end):
                if left < middle and (right >= end or keys[items[left]] <= keys[items[right]]):
                    other[place] = items[left]
                    left += 1
                else:
                    other[place] = items[right]
                    right += 1
        for place in range(n):
            items[place] = other[place]
        width *= 2
