"""Check that all observed values are counts."""

from __future__ import annotations

import numpy as np

from bnp_hier.utils.arrays import first_cell

__all__ = ["check_counts"]


def check_counts(family: str, X: np.ndarray) -> None:
    """Check that every value that is not missing is a non-negative whole number.

    Raises
    ------
    ValueError
        If one is not; the message names the first such cell.
    """
    there = ~np.isnan(X)
    if np.isinf(X).any():
        raise ValueError(f"X has an infinite value at {first_cell(np.isinf(X))}; {family} needs counts 0, 1, 2, ...")
    cases = {
        "a negative count": there & (X < 0),
        "a fractional count": there & (X != np.floor(X)),
    }
    for what, wrong in cases.items():
        if wrong.any():
            raise ValueError(f"{family} needs counts 0, 1, 2, ..., but X has {what} ({X[wrong][0]:g}) at {first_cell(wrong)}")
