"""Co-clustering and point estimates of partition draws."""

from __future__ import annotations

import numpy as np
import pytest

from bnp_hier import coclustering, point_estimate
from tests.oracles.partitions import all_partitions

DRAWS = np.random.default_rng(0).integers(0, 3, size=(200, 6))


def test_coclustering_is_the_share_of_draws() -> None:
    expected = (DRAWS[:, :, None] == DRAWS[:, None, :]).mean(0)
    np.testing.assert_allclose(coclustering(DRAWS), expected, atol=1e-12)
    np.testing.assert_allclose(coclustering(DRAWS.reshape(4, 50, 6)), expected, atol=1e-12)


def test_names_of_clusters_do_not_matter() -> None:
    renamed = np.array([2, 0, 1])[DRAWS]
    np.testing.assert_allclose(coclustering(renamed), coclustering(DRAWS), atol=1e-12)
    np.testing.assert_array_equal(point_estimate(renamed), point_estimate(DRAWS))


def _variation_of_information(a: np.ndarray, b: np.ndarray) -> float:
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1 / len(a))

    def entropy(p: np.ndarray) -> float:
        p = p[p > 0]
        return float(-(p * np.log(p)).sum())

    return 2 * entropy(joint.ravel()) - entropy(joint.sum(0)) - entropy(joint.sum(1))


def test_binder_estimate_has_the_smallest_expected_loss_of_all_draws() -> None:
    draws = np.array([z for z in all_partitions(6)])
    together = coclustering(DRAWS)

    def loss(z: np.ndarray) -> float:
        return float(np.abs((z[:, None] == z) - together).sum() / 2)

    both = np.concatenate([DRAWS, draws])
    estimate = point_estimate(both, loss="binder")
    together = coclustering(both)
    assert loss(estimate) <= min(loss(z) for z in both) + 1e-12


def test_vi_estimate_of_concentrated_draws_is_the_mode() -> None:
    mode = np.array([0, 0, 0, 1, 1, 2])
    draws = np.concatenate([np.tile(mode, (80, 1)), DRAWS[:20]])
    np.testing.assert_array_equal(point_estimate(draws), mode)
    expected = [np.mean([_variation_of_information(z, d) for d in draws]) for z in np.unique(draws, axis=0)]
    assert np.mean([_variation_of_information(mode, d) for d in draws]) == pytest.approx(min(expected))


@pytest.mark.parametrize("draws", [np.zeros(3, int), np.zeros((2, 3)), np.zeros((2, 0), int), np.zeros((1, 1, 1, 1), int)])
def test_bad_draws(draws: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"draws must be whole-number labels of shape \(s, n\) or \(chain, draw, n\)"):
        coclustering(draws)


def test_unknown_loss() -> None:
    with pytest.raises(ValueError, match='loss must be "vi" or "binder"'):
        point_estimate(DRAWS, loss="zero-one")
