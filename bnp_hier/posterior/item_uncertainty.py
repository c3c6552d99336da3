"""Uncertainty of each item's assignment in a point estimate."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.posterior.partitions import flat_draws, one_partition, unique_draws
from bnp_hier.posterior.point_estimates import cluster_costs
from bnp_hier.utils.labels import canonical_labels

__all__ = [
    "CERTAIN",
    "assignment_uncertainty",
    "membership_probabilities",
    "row_probabilities",
    "without_improbable_clusters",
]

CERTAIN = 0.9
"""Least probability of the cluster of a certain row."""

MOST_WORK = 3e8
"""Draws × rows × clusters beyond which `row_probabilities` leaves out some of the draws."""


def assignment_uncertainty(draws: ArrayLike, estimate: ArrayLike, loss: str = "vi") -> Float[np.ndarray, " n"]:
    """Compute each item's share of the expected loss of a point estimate, in O(s n) time for s draws of n items.

    Let A be the item's cluster in the estimate and B its cluster in a draw. The item's share of the loss is the mean over the
    draws of ``[log |A| + log |B| − 2 log |A ∩ B|] / n`` for "vi" (nats), and of ``[|A| + |B| − 2 |A ∩ B|] / [n (n − 1)]`` for
    "binder".

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
    shares
        (n,) non-negative numbers that sum to the expected loss. `membership_probabilities` has probabilities instead.

    Raises
    ------
    ValueError, TypeError
        If the draws or the estimate have the wrong shape or type, or the loss is unknown.

    Notes
    -----
    See Wade & Ghahramani (2018), section 4, for the losses as sums over items.

    Examples
    --------
    >>> from bnp_hier import assignment_uncertainty
    >>> draws = [[0, 0, 0, 1, 1, 1], [0, 0, 2, 1, 1, 1], [0, 0, 0, 1, 1, 1]]
    >>> assignment_uncertainty(draws, [0, 0, 0, 1, 1, 1]).round(3)
    array([0.023, 0.023, 0.061, 0.   , 0.   , 0.   ])
    """
    labels, weights, _ = unique_draws(flat_draws(draws))
    n = labels.shape[1]
    center = canonical_labels(one_partition(estimate, n))
    cost = cluster_costs(n, loss) / np.maximum(np.arange(n + 1), 1)  # per item, by cluster size
    expected_loss = cost[_sizes(center)]
    for z, weight in zip(labels, weights, strict=True):
        expected_loss += weight * (cost[_sizes(z)] - 2.0 * cost[_sizes(center * (z.max() + 1) + z)])
    return np.maximum(expected_loss, 0.0)


def _sizes(labels: np.ndarray) -> np.ndarray:
    """Size of each item's cluster."""
    return np.bincount(labels)[labels]


def membership_probabilities(draws: ArrayLike, estimate: ArrayLike, num_samples: int | None = None) -> Float[np.ndarray, "n k"]:
    """Compute the posterior probability that each item belongs to each cluster of a partition.

    In a draw, a cluster stands for the clusters of the partition more than half of whose items it contains, if more than half
    of its own items are from these; otherwise, for none. Its items belong to the cluster that it stands for; if there are
    several, which the draw merges, to each in proportion to their common items. The probability is the mean over the draws.

    So, it falls if draws merge the item's cluster with others, if they split it in halves, and if they separate the item from
    the rest of it. What is missing from 1 in a row is the probability that the item belongs to none of the clusters. For the
    only item of a cluster, the probability of this cluster is about that of being alone.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    estimate
        (n,) whole numbers, such as a `point_estimate`.
    num_samples
        Maximum number of draws used, evenly spaced; by default, all. The cost is O(s (n + k²)).

    Returns
    -------
    probabilities
        (n, k), columns in the order of the sorted labels of `estimate`; the rows sum to at most 1.

    Raises
    ------
    ValueError, TypeError
        If the draws or the estimate have the wrong shape or type, or `num_samples` is not positive.

    Notes
    -----
    Draws are matched to a reference partition as in relabelling algorithms (Papastamoulis, 2016, reviews them), which permute
    labels and hence require one label for each cluster in every draw; the two conditions replace the permutation.

    Examples
    --------
    The first draw is the partition itself, the second separates an item, and the third merges the two clusters.

    >>> from bnp_hier.posterior import membership_probabilities
    >>> draws = [[0, 0, 0, 1, 1, 1], [0, 0, 2, 1, 1, 1], [0, 0, 0, 0, 0, 0]]
    >>> membership_probabilities(draws, [0, 0, 0, 1, 1, 1]).round(2)
    array([[0.83, 0.17],
           [0.83, 0.17],
           [0.5 , 0.17],
           [0.17, 0.83],
           [0.17, 0.83],
           [0.17, 0.83]])
    """
    labels, weights, _ = unique_draws(_some(flat_draws(draws), num_samples))
    _, center = np.unique(one_partition(estimate, labels.shape[1]), return_inverse=True)
    sizes = np.bincount(center)
    k, found = len(sizes), np.zeros((len(center), len(sizes)))
    for z, weight in zip(labels, weights, strict=True):
        counts = np.bincount(z * k + center, minlength=(z.max() + 1) * k).reshape(-1, k)
        common = np.where(2 * counts > sizes, counts, 0)
        total = common.sum(1, keepdims=True)
        matched = 2 * total > counts.sum(1, keepdims=True)
        found += weight * np.divide(common, total, out=np.zeros(counts.shape), where=matched)[z]
    return found


def row_probabilities(draws: Int[np.ndarray, "*draws n"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
    """`membership_probabilities` for labels from 0, from so many draws that it takes seconds at most."""
    return membership_probabilities(draws, labels, max(20, int(MOST_WORK / (len(labels) * (int(labels.max()) + 1)))))


def without_improbable_clusters(draws: Int[np.ndarray, "*draws n"], labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Dissolve the clusters of which every item belongs to another with a higher probability, such as items alone by chance.

    Their items join the most probable of the other clusters.

    Parameters
    ----------
    draws
        Label draws.
    labels
        Labels from 0, such as a `point_estimate`.
    """
    probabilities, items = row_probabilities(draws, labels), np.arange(len(labels))
    kept = np.bincount(labels, weights=probabilities.max(1) <= probabilities[items, labels]) > 0
    probabilities[:, ~kept] = 0.0
    moved = ~kept[labels] & (probabilities.max(1) > 0)
    return canonical_labels(np.where(moved, probabilities.argmax(1), labels))


def _some(flat: Int[np.ndarray, "s n"], num_samples: int | None) -> Int[np.ndarray, "m n"]:
    """All draws, or at most `num_samples` of them, evenly spaced."""
    if num_samples is None:
        return flat
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, but it is {num_samples}")
    return flat[np.unique(np.linspace(0, len(flat) - 1, min(num_samples, len(flat))).round().astype(int))]
