"""Numbers as text: digits by their spread, intervals, and standard deviations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bnp_hier.utils.rounding import rounded, with_interval, with_sd

DAY = pd.Timestamp("2024-05-15 13:00")


@pytest.mark.parametrize(
    ("value", "spread", "is_share", "text"),
    [
        (165.539, 3.8, False, "165.54"),
        (165.539, 38.0, False, "165.5"),
        (165.539, np.nan, False, "165.5"),
        (0.8765, 0.3, True, "88%"),
        (DAY, 3.0, False, "2024-05-15"),
        (np.nan, 1.0, False, "–"),
        (pd.NaT, 1.0, False, "–"),
    ],
)
def test_rounded(value: object, spread: float, is_share: bool, text: str) -> None:
    assert rounded(value, spread, is_share) == text


def test_intervals_have_the_digits_of_the_mean() -> None:
    assert with_interval(1.0, 0.5, 0.812, 1.23, 3.0) == "1.000 ± 0.500 (0.812 to 1.230)"
    assert with_interval(0.4, 0.49, 0.31, 0.5, 0.5, True, separator="\n") == "40%\n(31% to 50%)"
    assert with_interval(1.0, np.nan, 0.51, 2.04, 1.0) == "1.00 (0.51 to 2.04)"  # a single row
    assert with_interval(1.0, 0.5, np.nan, np.nan, 3.0) == "1.000 ± 0.500"


@pytest.mark.parametrize(
    ("mean", "sd", "is_share", "text"),
    [
        (165.539, 3.81, False, "165.54 ± 3.81"),
        (5.0, 0.0, False, "5 ± 0"),
        (165.539, np.nan, False, "165.5"),  # a single row
        (0.5, 0.5, True, "50%"),
        (DAY, 8.6, False, "2024-05-15 ± 9 d"),
        (pd.NaT, np.nan, False, "–"),
    ],
)
def test_means_with_standard_deviations(mean: object, sd: float, is_share: bool, text: str) -> None:
    assert with_sd(mean, sd, 20.0, is_share) == text
