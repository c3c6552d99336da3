"""Point estimates and credible balls, against losses from first principles and against all partitions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import bnp_hier as bnp
from bnp_hier.posterior import point_estimates
from bnp_hier.posterior.credible_balls import large_clusters, least_share
from bnp_hier.posterior.point_estimates import LOSSES, expected_losses
from bnp_hier.utils.padding import padded_size
from tests.oracles.partitions import all_partitions
from tests.parameters import few


def variation_of_information(a: np.ndarray, b: np.ndarray) -> float:
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1 / len(a))

    def entropy(p: np.ndarray) -> float:
        p = p[p > 0]
        return float(-(p * np.log(p)).sum())

    return 2 * entropy(joint.ravel()) - entropy(joint.sum(0)) - entropy(joint.sum(1))


def binder(a: np.ndarray, b: np.ndarray) -> float:
    differ = (a[:, None] == a) != (b[:, None] == b)
    return float(differ.sum() / (len(a) * (len(a) - 1)))


BY_HAND = {"vi": variation_of_information, "binder": binder}


def noisy(n: int, s: int, seed: int, flips: float = 0.2, clusters: int = 3) -> np.ndarray:
    """Draws around one partition, some labels of each changed at random."""
    rng = np.random.default_rng(seed)
    center = rng.integers(0, clusters, n)
    return np.where(rng.random((s, n)) < flips, rng.integers(0, clusters + 1, (s, n)), center)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_from_first_principles(loss: str) -> None:
    draws, candidates = noisy(9, 20, 0), noisy(9, 6, 1, flips=0.7)
    expected = [np.mean([BY_HAND[loss](np.asarray(z), d) for d in draws]) for z in candidates]
    np.testing.assert_allclose(expected_losses(candidates, draws, loss), expected, atol=1e-12)


@pytest.mark.parametrize("loss", few(LOSSES, plain=0))
def test_equals_the_best_of_all_partitions(loss: str) -> None:
    everything = np.array(list(all_partitions(7)))
    for seed in range(10):
        draws = noisy(7, 39, seed, flips=0.45)  # too few for a Monte Carlo error
        estimate = bnp.point_estimate(draws, loss)
        reached = expected_losses(estimate[None], draws, loss)[0]
        assert reached == pytest.approx(expected_losses(everything, draws, loss).min(), abs=1e-12)
        assert list(dict.fromkeys(estimate.tolist())) == list(range(estimate.max() + 1))


def fewest_clusters(draws: np.ndarray, loss: str) -> tuple[np.ndarray, int]:
    """All partitions as good as the best but for one standard error of 20 batch means, and their least number of clusters."""
    everything = np.array(list(all_partitions(draws.shape[1])))
    each = np.array([expected_losses(everything, z[None], loss) for z in draws])
    batches = np.array([batch.mean(0) for batch in np.array_split(each - each[:, [each.mean(0).argmin()]], 20)])
    good = everything[batches.mean(0) <= batches.std(0, ddof=1) / np.sqrt(20) + 1e-10]
    return good, int(good.max(1).min()) + 1


@pytest.mark.parametrize("loss", few(LOSSES))
def test_fewest_clusters_of_all_partitions_within_the_monte_carlo_error(loss: str) -> None:
    fewer = 0
    for seed in range(4):
        draws = noisy(7, 200, seed, flips=0.45)
        estimate = bnp.point_estimate(draws, loss)
        good, least = fewest_clusters(draws, loss)
        assert (good == estimate).all(1).any() and estimate.max() + 1 == least
        fewer += least < good.max() + 1
    assert fewer > 0


def test_single_items_within_the_monte_carlo_error() -> None:
    """Two items are with the others in slightly less than half of the draws: alone at the least loss, but not by much."""
    rng = np.random.default_rng(0)
    draws = np.zeros((400, 12), int)
    draws[:, 10] = np.where(rng.permutation(400) < 197, 0, 1)
    draws[:, 11] = np.where(rng.permutation(400) < 100, 0, 2)
    assert bnp.point_estimate(draws).tolist() == [0] * 11 + [1]


@pytest.mark.parametrize("loss", LOSSES)
def test_never_worse_than_the_best_draw(loss: str) -> None:
    better = 0
    for seed in range(5):
        draws = noisy(60, 39, seed, flips=0.3, clusters=6)
        reached = expected_losses(bnp.point_estimate(draws, loss, n_init=1)[None], draws, loss)[0]
        best = expected_losses(draws, draws, loss).min()
        assert reached <= best + 1e-12
        better += reached < best - 1e-6
    assert better > 0


def test_most_frequent_draws_are_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many distinct draws, the expected loss of a few is computed; all of them define it."""
    draws = noisy(8, 60, 0)
    often = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    draws = np.concatenate([draws, np.repeat(often[None], 30, axis=0)])
    monkeypatch.setattr(point_estimates, "MOST_CANDIDATES", 1)
    found = bnp.point_estimate(draws, n_init=0)
    assert mean_loss(found, draws) <= mean_loss(often, draws)
    monkeypatch.setattr(point_estimates, "MOST_SWEEPS", 1)
    monkeypatch.setattr(point_estimates, "_search", lambda tables, start, *_: start)
    np.testing.assert_array_equal(bnp.point_estimate(draws, n_init=0), often)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_of_many_draws_some_are_searched_and_all_decide(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are built from a quarter of the draws and improved for all; the result is as good as the best of all."""
    searched: list[int] = []
    original = point_estimates._search

    def spy(tables: point_estimates._Tables, *rest: object) -> object:
        searched.append(tables.labels.shape[1])
        return original(tables, *rest)

    monkeypatch.setattr(point_estimates, "_search", spy)
    monkeypatch.setattr(point_estimates, "MOST_SEARCHED", 40)
    monkeypatch.setattr(point_estimates, "MOST_FINALISTS", 5)
    for seed in range(5):
        draws = noisy(7, 160, seed, flips=0.45)
        good, _ = fewest_clusters(draws, loss)
        searched.clear()
        assert (good == bnp.point_estimate(draws, loss)).all(1).any()
        # the best draw and the best one built are improved for all draws, the eight others only built, as are those without
        # one of the clusters
        assert searched[0] == searched[9] > padded_size(40) >= max(searched[1:9] + searched[10:])


def mean_loss(labels: np.ndarray, draws: np.ndarray) -> float:
    return float(np.mean([variation_of_information(labels, draw) for draw in draws]))


def test_chains_names_and_restarts() -> None:
    draws = noisy(12, 40, 3)
    estimate = bnp.point_estimate(draws)
    assert (estimate == bnp.point_estimate(draws.reshape(4, 10, 12))).all()
    assert (estimate == bnp.point_estimate(np.array([2, 0, 3, 1])[draws])).all()
    losses = [expected_losses(bnp.point_estimate(draws, n_init=r)[None], draws)[0] for r in (0, 8)]
    assert losses[1] <= losses[0] + 1e-12


@pytest.mark.parametrize("loss", LOSSES)
def test_credible_ball(loss: str) -> None:
    """Radius and bounds by going through the draws."""
    draws = noisy(10, 200, 4, flips=0.15)
    estimate = bnp.point_estimate(draws, loss)
    distance = np.array([BY_HAND[loss](estimate, d) for d in draws])
    clusters = np.array([len(set(d)) for d in draws])
    for level in (0.5, 0.9, 1.0):
        ball = bnp.credible_ball(draws, estimate, level, loss)
        inside = distance <= ball.radius + 1e-9
        assert ball.share == pytest.approx(inside.mean()) and ball.share >= level - 1e-12
        assert (distance < ball.radius - 1e-9).mean() < level  # no smaller one holds as many
        for bounds, wanted in ((ball.upper, clusters[inside].min()), (ball.lower, clusters[inside].max())):
            those = inside & (clusters == wanted)
            assert all(len(set(z)) == wanted for z in bounds)
            assert [BY_HAND[loss](estimate, z) for z in bounds] == pytest.approx([distance[those].max()] * len(bounds))
        assert [BY_HAND[loss](estimate, z) for z in ball.horizontal] == pytest.approx(
            [distance[inside].max()] * len(ball.horizontal)
        )


@pytest.mark.slow
def test_a_ball_of_all_of_many_draws() -> None:
    """The shares of 100,000 distinct draws, each 1e-5, sum to less than one by rounding."""
    draws = np.arange(100_000)[:, None] >> np.arange(17) & 1
    ball = bnp.credible_ball(np.column_stack([np.zeros(100_000, int), draws]), np.zeros(18, int), level=1.0)
    assert ball.radius == pytest.approx(np.log(2.0)) and ball.share == pytest.approx(1.0)


def test_number_of_clusters() -> None:
    found = bnp.number_of_clusters(np.array([[0, 0, 0], [0, 1, 0], [5, 5, 2], [1, 2, 3]]))
    assert found.tolist() == [0.0, 0.25, 0.5, 0.25]


@given(draws=arrays(np.int64, st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9)), elements=st.integers(0, 4)),
       at_least=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))  # fmt: skip
def test_number_of_large_clusters(draws: np.ndarray, at_least: float) -> None:
    n = draws.shape[-1]
    counted = [sum(size >= at_least * n for size in Counter(draw).values()) for draw in draws.reshape(-1, n).tolist()]
    np.testing.assert_array_equal(large_clusters(draws, at_least).ravel(), counted)
    np.testing.assert_allclose(bnp.number_of_clusters(draws, at_least), np.bincount(counted) / len(counted))
    assert least_share(n) * n >= min(2, n)


def test_bad_input() -> None:
    draws = noisy(5, 4, 0)
    for call, message in (
        (lambda: bnp.credible_ball(draws, draws[0], level=0.0), r"level must lie in \(0, 1\], but it is 0.0"),
        (lambda: bnp.credible_ball(draws, draws), "estimate must be one whole-number label per item"),
        (lambda: bnp.credible_ball(draws, draws[0][:3]), "estimate labels 3 items, but the draws label 5"),
        (lambda: bnp.number_of_clusters(draws, 2), r"at_least must be a share of the rows, in \[0, 1\], but it is 2"),
        (lambda: bnp.point_estimate(draws, n_init=-1), "n_init must be a whole number of at least 0, but it is -1"),
        (lambda: bnp.point_estimate(draws, "zero-one"), 'loss must be "vi" or "binder", but it is .zero-one.'),
        (lambda: expected_losses(draws[:, :3], draws), "the candidates label 3 items, but the draws label 5"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
