"""Uncertainty of each item's assignment in a point estimate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.posterior.partitions import flat_draws, one_partition, unique_draws
from bnp_hier.posterior.point_estimates import cluster_costs
from bnp_hier.utils.labels import canonical_labels

__all__ = [
    "CERTAIN",
    "AssignmentUncertainty",
    "assignment_uncertainty",
    "cluster_affinities",
    "membership_probabilities",
    "row_probabilities",
]

CERTAIN = 0.9
"""Least probability of the cluster of a certain row."""

MOST_WORK = 3e8
"""Draws × rows × clusters beyond which `row_probabilities` leaves out some of the draws."""


class AssignmentUncertainty(NamedTuple):
    """Uncertainty of each item's assignment in a point estimate.

    - **expected_loss** - (n,) the item's share of the expected loss of the estimate; the shares are non-negative and sum to
      the expected loss.
    - **coclustering** - (n,) the item's mean co-clustering probability with the other items of its cluster in the estimate;
      NaN for the only item of a cluster.
    """

    expected_loss: Float[np.ndarray, " n"]
    coclustering: Float[np.ndarray, " n"]


def assignment_uncertainty(draws: ArrayLike, estimate: ArrayLike, loss: str = "vi") -> AssignmentUncertainty:
    """Compute the uncertainty of each item's assignment in a point estimate, in O(s n) time for s draws of n items.

    Let A be the item's cluster in the estimate and B its cluster in a draw. The item's share of the loss is the mean over the
    draws of ``[log |A| + log |B| − 2 log |A ∩ B|] / n`` for "vi" (nats), and of ``[|A| + |B| − 2 |A ∩ B|] / [n (n − 1)]`` for
    "binder". Its co-clustering probability is the mean of ``(|A ∩ B| − 1) / (|A| − 1)``.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    estimate
        (n,) whole numbers, such as a `point_estimate`.
    loss
        "vi" or "binder", as in `point_estimate`.

    Returns
    -------
    uncertainty
        `AssignmentUncertainty`: each item's share of the expected loss, and its mean co-clustering probability.

    Raises
    ------
    ValueError, TypeError
        If the draws or the estimate have the wrong shape or type, or the loss is unknown.

    Notes
    -----
    See Wade & Ghahramani (2018), section 4, for the losses as sums over items.
    """
    labels, weights = unique_draws(flat_draws(draws))
    n = labels.shape[1]
    center = canonical_labels(one_partition(estimate, n))
    cost = cluster_costs(n, loss) / np.maximum(np.arange(n + 1), 1)  # per item, by cluster size
    own = _sizes(center)
    expected_loss, meeting = cost[own], np.zeros(n)
    for z, weight in zip(labels, weights, strict=True):
        both = _sizes(center * (z.max() + 1) + z)
        expected_loss += weight * (cost[_sizes(z)] - 2.0 * cost[both])
        meeting += weight * both
    others = np.where(own > 1, own - 1.0, np.nan)
    return AssignmentUncertainty(np.maximum(expected_loss, 0.0), (meeting - 1.0) / others)


def _sizes(labels: np.ndarray) -> np.ndarray:
    """Size of each item's cluster."""
    return np.bincount(labels)[labels]


def cluster_affinities(draws: ArrayLike, estimate: ArrayLike, num_samples: int | None = None) -> Float[np.ndarray, "n k"]:
    """Compute the mean co-clustering probability of each item with the items of each cluster of a partition.

    An item is not counted with itself, so that the entry for its own cluster is `assignment_uncertainty`'s `coclustering`. A
    row of the matrix need not sum to 1: a draw in which two clusters are merged counts for both.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    estimate
        (n,) whole numbers, such as a `point_estimate`.
    num_samples
        Maximum number of distinct partitions used, evenly spaced among the draws; by default, all. The cost is O(s n k).

    Returns
    -------
    affinities
        (n, k), columns in the order of the sorted labels of `estimate`; NaN where an item is alone in its cluster.

    Raises
    ------
    ValueError, TypeError
        If the draws or the estimate have the wrong shape or type, or `num_samples` is not positive.

    Examples
    --------
    >>> from bnp_hier.posterior import cluster_affinities
    >>> cluster_affinities([[0, 0, 1, 1], [0, 0, 0, 0]], [0, 0, 1, 1])
    array([[1. , 0.5],
           [1. , 0.5],
           [0.5, 1. ],
           [0.5, 1. ]])
    """
    center, crossed = _crossed(draws, estimate, num_samples)
    n, sizes = len(center), np.bincount(center)
    together = np.zeros((n, len(sizes)))
    for z, weight, counts in crossed:
        together += weight * counts[z]
    others = np.broadcast_to(sizes.astype(float), together.shape).copy()
    items = np.arange(n)
    together[items, center] -= 1.0
    others[items, center] -= 1.0
    return np.divide(together, others, out=np.full_like(together, np.nan), where=others > 0)


def membership_probabilities(draws: ArrayLike, estimate: ArrayLike, num_samples: int | None = None) -> Float[np.ndarray, "n k"]:
    """Compute the probability that each item belongs to each cluster of a partition, averaged over draws of partitions.

    It is the probability that a random member of the item's cluster in a random draw, the item itself included, belongs to the
    given cluster of the estimate: the mean over the draws of ``|A ∩ E_k| / |A|``, where A is the item's cluster in the draw.
    The rows sum to 1. For new rows, `cluster_probabilities` averages in the same way.

    Parameters
    ----------
    draws, estimate, num_samples
        As in `cluster_affinities`, whose entries, in contrast, are relative to the sizes of the clusters of the estimate.

    Returns
    -------
    probabilities
        (n, k), columns in the order of the sorted labels of `estimate`.

    Raises
    ------
    ValueError, TypeError
        If the draws or the estimate have the wrong shape or type, or `num_samples` is not positive.

    Examples
    --------
    >>> from bnp_hier.posterior import membership_probabilities
    >>> membership_probabilities([[0, 0, 1, 1], [0, 0, 0, 1]], [0, 0, 1, 1]).round(2)
    array([[0.83, 0.17],
           [0.83, 0.17],
           [0.33, 0.67],
           [0.  , 1.  ]])
    """
    center, crossed = _crossed(draws, estimate, num_samples)
    found = np.zeros((len(center), int(center.max()) + 1))
    for z, weight, counts in crossed:
        found += weight * (counts / counts.sum(1, keepdims=True))[z]
    return found


def row_probabilities(draws: Int[np.ndarray, "*draws n"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
    """`membership_probabilities` for labels from 0, from so many draws that it takes seconds at most."""
    return membership_probabilities(draws, labels, max(20, int(MOST_WORK / (len(labels) * (int(labels.max()) + 1)))))


def _crossed(
    draws: ArrayLike, estimate: ArrayLike, num_samples: int | None
) -> tuple[Int[np.ndarray, " n"], Iterator[tuple[Int[np.ndarray, " n"], float, Float[np.ndarray, "clusters k"]]]]:
    """The estimate, numbered from 0, and for each distinct draw its labels, its weight and its numbers of common items."""
    labels, weights = unique_draws(_some(flat_draws(draws), num_samples))
    _, center = np.unique(one_partition(estimate, labels.shape[1]), return_inverse=True)

    def each() -> Iterator[tuple[Int[np.ndarray, " n"], float, Float[np.ndarray, "clusters k"]]]:
        for z, weight in zip(labels, weights, strict=True):
            counts = np.zeros((int(z.max()) + 1, int(center.max()) + 1))
            np.add.at(counts, (z, center), 1.0)
            yield z, weight, counts

    return center, each()


def _some(flat: Int[np.ndarray, "s n"], num_samples: int | None) -> Int[np.ndarray, "m n"]:
    """All draws, or at most `num_samples` of them, evenly spaced."""
    if num_samples is None:
        return flat
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, but it is {num_samples}")
    return flat[np.unique(np.linspace(0, len(flat) - 1, min(num_samples, len(flat))).round().astype(int))]
