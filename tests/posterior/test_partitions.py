"""Co-clustering of partition draws."""

from __future__ import annotations

import numpy as np
import pytest

from bnp_hier import coclustering

DRAWS = np.random.default_rng(0).integers(0, 3, size=(200, 6))


def test_coclustering_is_the_share_of_draws() -> None:
    expected = (DRAWS[:, :, None] == DRAWS[:, None, :]).mean(0)
    np.testing.assert_allclose(coclustering(DRAWS), expected, atol=1e-12)
    np.testing.assert_allclose(coclustering(DRAWS.reshape(4, 50, 6)), expected, atol=1e-12)


def test_names_of_clusters_do_not_matter() -> None:
    renamed = np.array([2, 0, 1])[DRAWS]
    np.testing.assert_allclose(coclustering(renamed), coclustering(DRAWS), atol=1e-12)


@pytest.mark.parametrize("draws", [np.zeros(3, int), np.zeros((2, 3)), np.zeros((2, 0), int), np.zeros((1, 1, 1, 1), int)])
def test_bad_draws(draws: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"draws must be whole-number labels of shape \(s, n\) or \(chain, draw, n\)"):
        coclustering(draws)
