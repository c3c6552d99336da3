"""Co-clustering of partition draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS

from bnp_hier import coclustering, number_of_clusters, point_estimate
from bnp_hier.posterior import partitions
from bnp_hier.utils.labels import canonical_draws

DRAWS = np.random.default_rng(0).integers(0, 3, size=(200, 6))


def share_of_draws(draws: np.ndarray) -> np.ndarray:
    return (draws[:, :, None] == draws[:, None, :]).mean(0)


def test_coclustering_is_the_share_of_draws() -> None:
    expected = share_of_draws(DRAWS)
    np.testing.assert_allclose(coclustering(DRAWS), expected, atol=1e-12)
    np.testing.assert_allclose(coclustering(DRAWS.reshape(4, 50, 6)), expected, atol=1e-12)


def test_names_of_clusters_do_not_matter() -> None:
    renamed = np.array([2, -7, 10**9])[DRAWS]
    np.testing.assert_array_equal(coclustering(renamed), coclustering(DRAWS))


@pytest.mark.parametrize(("tile", "columns"), [(1, 1), (4, 7), (5, 50), (11, 1000)])
def test_blocks_of_any_size(tile: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is put together from tiles of rows and blocks of draws; also where a draw alone exceeds a block."""
    monkeypatch.setattr(partitions, "TILE", tile)
    monkeypatch.setattr(partitions, "MOST_COLUMNS", columns)
    draws = np.random.default_rng(1).integers(0, 5, size=(30, 11))
    np.testing.assert_allclose(coclustering(draws), share_of_draws(draws), atol=1e-12)


def test_draws_may_come_one_array_at_a_time() -> None:
    chunks = np.split(DRAWS, [1, 20, 150])
    np.testing.assert_array_equal(coclustering(iter(chunks)), coclustering(DRAWS))
    np.testing.assert_array_equal(coclustering(chunk.reshape(1, *chunk.shape) for chunk in chunks), coclustering(DRAWS))


@pytest.mark.parametrize("draws", [np.zeros(3, int), np.zeros((2, 3)), np.zeros((2, 0), int), np.zeros((1, 1, 1, 1), int)])
def test_bad_draws(draws: np.ndarray) -> None:
    for given in (draws, iter([draws])):
        with pytest.raises(ValueError, match=r"draws must be whole-number labels of shape \(s, n\) or \(chain, draw, n\)"):
            coclustering(given)


def test_fits_and_arviz_data_are_not_draws() -> None:
    mcmc = MCMC(NUTS(lambda: None), num_warmup=1, num_samples=1)
    with pytest.raises(TypeError, match=r"of the type MCMC; pass its labels, such as mcmc\.get_samples"):
        point_estimate(mcmc)
    with pytest.raises(TypeError, match=r'of the type dict; pass its labels, such as idata\["posterior"\]\["z"\].values'):
        number_of_clusters({"posterior": {"z": DRAWS}})


def test_bad_iterators() -> None:
    with pytest.raises(ValueError, match="must contain at least one array, but the iterator is empty"):
        coclustering(iter([]))
    with pytest.raises(ValueError, match="must all label the same items, but one array labels 5 and another 6"):
        coclustering(iter([DRAWS, DRAWS[:, :5]]))


@pytest.mark.parametrize("n", [6, 300])
def test_distinct_draws_are_those_of_numpy_in_its_order(n: int) -> None:
    """Also with more labels than one byte holds, whose bytes are not in the order of the machine."""
    rng = np.random.default_rng(2)
    some = [np.minimum(np.arange(n), rng.integers(0, n)) for _ in range(20)]
    draws = np.array(some)[rng.integers(0, 20, 100)]
    assert n < 256 or draws.max() > 256
    labels, shares, which = partitions.unique_draws(draws)
    expected, counts = np.unique(canonical_draws(draws), axis=0, return_counts=True)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(shares, counts / 100)
    np.testing.assert_array_equal(labels[which], canonical_draws(draws))


@pytest.mark.parametrize("rows", [[2, 0], 1, slice(0, 700)])
def test_rows_of_the_co_clustering_matrix_are_those_of_the_whole(rows):
    draws = np.random.default_rng(0).integers(0, 4, size=(3, 1100))
    np.testing.assert_array_equal(coclustering(draws, rows=rows), np.atleast_2d(coclustering(draws)[rows]))


def test_a_large_co_clustering_matrix_is_announced(monkeypatch):
    monkeypatch.setattr("bnp_hier.posterior.partitions.LARGE", 1000.0)
    with pytest.warns(UserWarning, match=r"20 × 20 items takes 0.0 GB"):
        coclustering(np.zeros((1, 20), int))
    with pytest.raises(ValueError, match="this machine has"):
        coclustering(np.broadcast_to(np.zeros(1, int), (1, 10**7)))
