"""Draws of an index by its weight."""

from __future__ import annotations

from bnp_hier.native.memory import compiled, separate

__all__ = ["TINY", "draw_index", "index_at"]

TINY = 2.2250738585072014e-308
"""Smallest normal number."""


@compiled
def index_at(weights, size, total, draw):
    """Index of the weight that reaches a share `draw` of their total; 0 if there is no weight."""
    # positive despite rounding, so that an index without weight is never drawn
    target, upto, last = max(draw * total, TINY), 0.0, 0
    for k in range(size):
        upto += weights[k]
        if weights[k] > 0:
            last = k
            if upto >= target:
                break
    return last


@separate
def draw_index(weights, size, draw):
    """Draw an index below `size` with probability proportional to its weight, by inversion; 0 if there is no weight."""
    total = 0.0
    for k in range(size):
        total += weights[k]
    return index_at(weights, size, total, draw)
