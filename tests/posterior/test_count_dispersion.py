"""Dispersion of counts within clusters: 1 for Poisson counts, more for negative binomial ones."""

from __future__ import annotations

import numpy as np

from bnp_hier.posterior.count_dispersion import dispersion_within


def test_index_of_known_distributions() -> None:
    """Of 4,000 rows each index has a standard error of about 0.02, or 0.09 if over-dispersed; keys are fixed."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 2000)
    mean = np.array([4.0, 10.0])[labels]
    negative = rng.poisson(mean * rng.gamma(2.0, 0.5, len(mean)))  # variance m + m² / 2: 3 and 6 times the mean
    X = np.column_stack([rng.poisson(mean), negative, rng.poisson(0.1, len(mean))]).astype(float)
    index = dispersion_within(X, labels)
    assert abs(index[0] - 1.0) < 0.1 and abs(index[1] - 4.5) < 0.5 and np.isnan(index[2])
    assert dispersion_within(X, np.zeros_like(labels))[0] > 2  # of two clusters together


def test_missing_values_and_single_rows_are_left_out() -> None:
    X = np.array([[1.0, 2.0], [3.0, np.nan], [np.nan, 2.0], [7.0, 5.0]])
    index = dispersion_within(X, np.array([0, 0, 0, 1]))
    np.testing.assert_allclose(index, [(1 + 1) / 2 / 1, 0.0])
