"""Canonical forms of labels."""

from __future__ import annotations

import numpy as np
import pytest

from bnp_hier.utils.labels import canonical_draws, canonical_labels


@pytest.mark.parametrize(("s", "n", "low", "high"), [(40, 9, 0, 4), (7, 30, -5, 10**12), (3, 1, 2, 5), (1, 6, 0, 1)])
def test_draws_are_relabelled_like_single_ones(s: int, n: int, low: int, high: int) -> None:
    draws = np.random.default_rng(0).integers(low, high, (s, n))
    np.testing.assert_array_equal(canonical_draws(draws), [canonical_labels(draw) for draw in draws])
