"""Draws of an index by its weight."""

from __future__ import annotations

from bnp_hier.native.memory import separate

__all__ = ["draw_index"]

TINY = 2.2250738585072014e-308


@separate
def draw_index(weights, size, draw):
    """Draw an index below `size` with probability proportional to its weight, by inversion; 0 if there is no weight."""
    total = 0.0
    for k in range(size):
        total += weights[k]
    target, upto, last = max(draw * total, TINY), 0.0, 0
    for k in range(size):
        upto += weights[k]
        if weights[k] > 0:
            last = k
            if upto >= target:
                break
    return last
