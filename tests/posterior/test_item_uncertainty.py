"""Uncertainty of single items, against sums over pairs of items."""

from __future__ import annotations

import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.posterior.point_estimates import LOSSES, expected_losses

RNG = np.random.default_rng(0)
DRAWS = np.where(RNG.random((40, 12)) < 0.3, RNG.integers(0, 5, (40, 12)), RNG.integers(0, 3, 12))
ESTIMATE = np.array([4, 0, 0, 1, 1, 1, 0, 0, 1, 1, 2, 2])  # the first item is alone


def by_pairs(estimate: np.ndarray, draw: np.ndarray, loss: str) -> np.ndarray:
    """Each item's share of the loss between two partitions, from the matrices of pairs."""
    a, b = estimate[:, None] == estimate, draw[:, None] == draw
    n = len(estimate)
    if loss == "binder":
        return (a != b).sum(1) / (n * (n - 1))
    return (np.log(a.sum(1)) + np.log(b.sum(1)) - 2 * np.log((a & b).sum(1))) / n


@pytest.mark.parametrize("loss", LOSSES)
def test_shares_of_the_loss(loss: str) -> None:
    found = bnp.assignment_uncertainty(DRAWS, ESTIMATE, loss).expected_loss
    np.testing.assert_allclose(found, np.mean([by_pairs(ESTIMATE, z, loss) for z in DRAWS], axis=0), atol=1e-12)
    assert found.sum() == pytest.approx(expected_losses(bnp.point_estimate(ESTIMATE[None])[None], DRAWS, loss)[0])
    assert (found >= 0).all()


def test_coclustering_with_the_own_cluster() -> None:
    found = bnp.assignment_uncertainty(DRAWS, ESTIMATE).coclustering
    together = bnp.coclustering(DRAWS)
    assert np.isnan(found[0])
    for i in range(1, 12):
        others = [j for j in range(12) if j != i and ESTIMATE[j] == ESTIMATE[i]]
        assert found[i] == pytest.approx(together[i, others].mean())


def test_certain_draws_and_names_of_clusters() -> None:
    same = bnp.assignment_uncertainty(np.tile(7 - ESTIMATE, (2, 3, 1)), ESTIMATE)
    assert (same.expected_loss < 1e-15).all() and (same.coclustering[1:] == 1).all()
    renamed = np.array([9, 5, 1, 2, -3])[DRAWS]
    for one, other in zip(
        bnp.assignment_uncertainty(DRAWS, ESTIMATE), bnp.assignment_uncertainty(renamed, ESTIMATE), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-14)


def test_bad_input() -> None:
    for estimate, message in (
        (DRAWS, "estimate must be one whole-number label per item"),
        (ESTIMATE.astype(float), r"shape \(12,\) and type float64"),
        (ESTIMATE[:5], "estimate labels 5 items, but the draws label 12"),
    ):
        with pytest.raises(ValueError, match=message):
            bnp.assignment_uncertainty(DRAWS, estimate)
    with pytest.raises(ValueError, match='loss must be "vi" or "binder", but it is .rand.'):
        bnp.assignment_uncertainty(DRAWS, ESTIMATE, "rand")
    with pytest.raises(ValueError, match="draws must be whole-number labels"):
        bnp.assignment_uncertainty(DRAWS[0], ESTIMATE)


def test_affinities_with_every_cluster() -> None:
    found = bnp.cluster_affinities(DRAWS, ESTIMATE)
    together = bnp.coclustering(DRAWS)
    assert found.shape == (12, 4)
    for i in range(12):
        for column, cluster in enumerate(np.unique(ESTIMATE)):
            others = [j for j in np.flatnonzero(ESTIMATE == cluster) if j != i]
            expected = together[i, others].mean() if others else np.nan
            assert found[i, column] == pytest.approx(expected, nan_ok=True)
    own = found[np.arange(12), np.unique(ESTIMATE, return_inverse=True)[1]]
    np.testing.assert_allclose(own, bnp.assignment_uncertainty(DRAWS, ESTIMATE).coclustering)
    assert bnp.cluster_affinities(DRAWS, ESTIMATE, num_samples=1) == pytest.approx(
        bnp.cluster_affinities(DRAWS[:1], ESTIMATE), nan_ok=True
    )
    with pytest.raises(ValueError, match="num_samples must be at least 1"):
        bnp.cluster_affinities(DRAWS, ESTIMATE, num_samples=0)


def test_memberships_by_counting_pairs() -> None:
    """Against the definition: a random member of the item's cluster, in a random draw."""
    rng = np.random.default_rng(3)
    draws, estimate = rng.integers(4, size=(2, 15, 9)), np.array([0, 0, 5, 5, 5, 2, 2, 2, 2])
    found = bnp.membership_probabilities(draws, estimate)
    expected = np.zeros((9, 3))
    for z in draws.reshape(-1, 9):
        for i in range(9):
            mates = np.flatnonzero(z == z[i])
            for k, name in enumerate((0, 2, 5)):
                expected[i, k] += (estimate[mates] == name).mean() / 30
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1.0)
    np.testing.assert_array_equal(
        bnp.membership_probabilities([estimate] * 3, estimate), np.eye(3)[[0, 0, 2, 2, 2, 1, 1, 1, 1]]
    )
    few = bnp.membership_probabilities(draws, estimate, num_samples=2)
    np.testing.assert_allclose(few, bnp.membership_probabilities([draws[0, 0], draws[1, -1]], estimate))
    with pytest.raises(ValueError, match="num_samples must be at least 1, but it is 0"):
        bnp.membership_probabilities(draws, estimate, 0)
