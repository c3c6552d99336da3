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


def with_interval(mean: Any, sd: Any, low: Any, high: Any, spread: Any, is_share: bool = False, *, separator: str = " ") -> str:
    """Write the mean and the standard deviation of rows as `with_sd` does, and an interval, if there is one, in parentheses.

    Parameters
    ----------
    mean, sd, spread, is_share
        As in `with_sd`.
    low, high
        Ends of the interval, which have as many digits as the mean; NaN without one.
    separator
        What separates the interval from the mean.
    """
    own, *ends = with_sd(mean, sd, spread, is_share), *(rounded(end, sd if sd > 0 else spread, is_share) for end in (low, high))
    return own if MISSING in ends else f"{own}{separator}({ends[0]} to {ends[1]})"


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
