"""Numbers as text, with the digits that their spread deserves."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["rounded", "with_interval", "with_sd"]

MISSING = "–"


def rounded(value: Any, spread: Any, is_share: bool = False) -> str:
    """Write a share in per cent, a date, or a number with a hundredth of its spread; a dash for a missing value.

    Parameters
    ----------
    value
        Number or timestamp.
    spread
        Its standard deviation; without a positive one, four significant digits are shown.
    is_share
        Whether it is a share.
    """
    if value != value:  # NaN or NaT
        return MISSING
    if hasattr(value, "strftime"):
        return f"{value:%Y-%m-%d}"
    if is_share:
        return f"{value:.0%}"
    if not spread > 0:  # NaN too
        return f"{value:.4g}"
    digits = min(max(2 - math.floor(math.log10(spread)), 0), 12)
    return f"{value:.{digits}f}"


def with_interval(value: Any, low: Any, high: Any, spread: Any, is_share: bool = False) -> str:
    """Write a value as `rounded` does, and its interval in parentheses unless that is just a point.

    Parameters
    ----------
    value, low, high
        The value and the ends of its interval.
    spread, is_share
        As in `rounded`.
    """
    own, *ends = (rounded(each, spread, is_share) for each in (value, low, high))
    return own if ends == [own, own] or own == MISSING else f"{own} ({ends[0]} to {ends[1]})"


def with_sd(mean: Any, sd: Any, spread: Any, is_share: bool = False) -> str:
    """Write the mean and the standard deviation of rows, "2.50 ± 0.31"; a share, and the value of a single row, alone.

    Parameters
    ----------
    mean
        Number or timestamp.
    sd
        Standard deviation, in days for a timestamp; NaN of a single row.
    spread
        Standard deviation over all rows, by which the value of a single row is rounded.
    is_share
        Whether the mean is a share.
    """
    if is_share or sd != sd or mean != mean:
        return rounded(mean, spread, is_share)
    if hasattr(mean, "strftime"):
        return f"{rounded(mean, sd)} ± {sd:.0f} d"
    return f"{rounded(mean, sd)} ± {rounded(sd, sd)}"
