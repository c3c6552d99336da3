"""Uncertainty of single items, against sums over pairs of items."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_normal

import bnp_hier as bnp
from bnp_hier.posterior.item_uncertainty import without_improbable_clusters
from bnp_hier.posterior.point_estimates import LOSSES, expected_losses
from tests.oracles.partitions import all_partitions

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
    found = bnp.assignment_uncertainty(DRAWS, ESTIMATE, loss)
    np.testing.assert_allclose(found, np.mean([by_pairs(ESTIMATE, z, loss) for z in DRAWS], axis=0), atol=1e-12)
    assert found.sum() == pytest.approx(expected_losses(bnp.point_estimate(ESTIMATE[None])[None], DRAWS, loss)[0])
    assert (found >= 0).all()


def test_certain_draws_and_names_of_clusters() -> None:
    assert (bnp.assignment_uncertainty(np.tile(7 - ESTIMATE, (2, 3, 1)), ESTIMATE) < 1e-15).all()
    renamed = np.array([9, 5, 1, 2, -3])[DRAWS]
    for of in (bnp.assignment_uncertainty, bnp.membership_probabilities):
        np.testing.assert_allclose(of(DRAWS, ESTIMATE), of(renamed, ESTIMATE), atol=1e-14)


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


def by_sets(estimate: np.ndarray, draw: np.ndarray) -> np.ndarray:
    """Membership of each item in each cluster of the estimate in one draw, from the definition."""
    clusters = [set(np.flatnonzero(estimate == k)) for k in np.unique(estimate)]
    found = np.zeros((len(estimate), len(clusters)))
    for i, label in enumerate(draw):
        mates = set(np.flatnonzero(draw == label))
        held = [k for k, cluster in enumerate(clusters) if len(mates & cluster) > len(cluster) / 2]
        common = [len(mates & clusters[k]) for k in held]
        if sum(common) > len(mates) / 2:
            found[i, held] = np.array(common) / sum(common)
    return found


TWO = [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        ([5, 5, 5, 2, 2, 2], [[1, 0]] * 3 + [[0, 1]] * 3),  # the estimate, numbered differently
        ([0, 1, 2, 3, 4, 5], [[0, 0]] * 6),  # all alone
        ([0, 0, 0, 0, 0, 0], [[0.5, 0.5]] * 6),  # all together
        ([0, 0, 2, 1, 1, 1], [[1, 0]] * 2 + [[0, 0]] + [[0, 1]] * 3),  # an item alone
        ([0, 0, 1, 1, 1, 1], [[1, 0]] * 2 + [[0, 1]] * 4),  # an item in the other cluster
        ([0, 1, 2, 0, 1, 2], [[0, 0]] * 6),  # pairs across the clusters
    ],
)
def test_memberships_by_hand(draw: list[int], expected: list[list[float]]) -> None:
    np.testing.assert_array_equal(bnp.membership_probabilities([draw], TWO), expected)


def test_memberships_of_single_items_and_of_halves() -> None:
    """A cluster split in halves is none of them; an item alone in the estimate is so where it is alone, or nearly."""
    estimate = np.array([0, 0, 0, 0, 1, 2])
    np.testing.assert_array_equal(bnp.membership_probabilities([[0, 0, 1, 1, 2, 3]], estimate)[:4], 0.0)
    alone = bnp.membership_probabilities([[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 1, 2], [0, 0, 0, 1, 0, 1]], estimate)
    np.testing.assert_allclose(alone[4], [(3 / 4) / 3, (1 + 1 + 1 / 4) / 3, 0.0])
    np.testing.assert_allclose(alone[5], [(4 / 5) / 3, 0.0, (1 / 5 + 1 + 0) / 3])


def test_memberships_from_the_definition() -> None:
    rng = np.random.default_rng(3)
    draws, estimate = rng.integers(4, size=(2, 15, 9)), np.array([0, 0, 5, 5, 5, 2, 2, 2, 2])
    found = bnp.membership_probabilities(draws, estimate)
    np.testing.assert_allclose(found, np.mean([by_sets(estimate, z) for z in draws.reshape(-1, 9)], axis=0), atol=1e-12)
    assert (found.sum(1) <= 1.0 + 1e-12).all() and (found.sum(1) < 0.99).any()
    few = bnp.membership_probabilities(draws, estimate, num_samples=2)
    np.testing.assert_allclose(few, bnp.membership_probabilities([draws[0, 0], draws[1, -1]], estimate))
    with pytest.raises(ValueError, match="num_samples must be at least 1, but it is 0"):
        bnp.membership_probabilities(draws, estimate, 0)


def test_memberships_are_calibrated() -> None:
    """Partitions and rows drawn from a mixture: among rows with probability p, a share p belongs to the cluster in truth.

    Posteriors are exact, by enumeration. False-alarm rate: 3 bins beyond 4.5 standard errors, about 2e-5.
    """
    rng, n = np.random.default_rng(0), 7
    partitions = np.array(list(all_partitions(n)))
    log_prior = np.array([sum(gammaln(size) for size in np.bincount(z)) for z in partitions])  # at concentration 1
    prior = np.exp(log_prior - logsumexp(log_prior))
    gaps: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for _ in range(150):
        truth = partitions[rng.choice(len(partitions), p=prior)]
        X = rng.normal(0.0, 3.0, n)[truth] + rng.normal(size=n)
        density = [
            multivariate_normal.logpdf(X, np.zeros(n), np.eye(n) + 9.0 * (z[:, None] == z)) for z in partitions
        ]  # rows of a cluster share its mean
        posterior = np.exp(log_prior + density - logsumexp(log_prior + density))
        estimate = partitions[posterior.argmax()]
        draws = partitions[rng.choice(len(partitions), 400, p=posterior)]
        items = np.arange(n)
        own = bnp.membership_probabilities(draws, estimate)[items, estimate]
        right = by_sets(estimate, truth)[items, estimate]
        bins = np.searchsorted([0.5, 0.9], own, side="right")
        for at, each in gaps.items():
            each.append(float((right - own)[bins == at].sum()))
    for each in gaps.values():
        assert abs(np.sum(each)) < 4.5 * np.linalg.norm(each)


def test_clusters_that_no_row_most_probably_belongs_to() -> None:
    """Item 6 is in either cluster in 45% of the draws, and alone in 10%: alone in the estimate, but not to be shown so."""
    pairs = [[0, 0, 0, 1, 1, 1, 0]] * 50 + [[0, 0, 0, 1, 1, 1, 1]] * 40 + [[0, 0, 0, 1, 1, 1, 2]] * 10
    draws = np.array(pairs)[np.random.default_rng(0).permutation(100)]
    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    np.testing.assert_array_equal(without_improbable_clusters(draws, labels), [0, 0, 0, 1, 1, 1, 0])
    often = np.concatenate([draws, np.array([labels] * 100)])  # alone in 55%
    np.testing.assert_array_equal(without_improbable_clusters(often, labels), labels)
    np.testing.assert_array_equal(without_improbable_clusters(np.array([[0, 1, 2, 3]]), np.array([0, 0, 1, 1])), [0, 0, 1, 1])
