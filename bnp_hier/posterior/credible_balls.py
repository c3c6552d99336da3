"""Credible balls around a partition with their bounds, and the posterior of the number of clusters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from bnp_hier.posterior.partitions import flat_draws, one_partition, unique_draws
from bnp_hier.posterior.point_estimates import expected_losses

__all__ = ["LARGE", "CredibleBall", "credible_ball", "large_clusters", "least_share", "number_of_clusters"]

LARGE = 0.02
"""Share of the rows from which on reports call a cluster large."""


class CredibleBall(NamedTuple):
    """The smallest ball around a partition that contains at least a given share of the draws.

    - **radius** - radius of the ball, in the units of the loss.
    - **share** - share of the draws inside the ball.
    - **upper** - (a, n) vertical upper bounds: of the draws inside with the fewest clusters, those farthest from the centre.
    - **lower** - (b, n) vertical lower bounds: of the draws inside with the most clusters, those farthest from the centre.
    - **horizontal** - (c, n) horizontal bounds: of all draws inside, those farthest from the centre.
    """

    radius: float
    share: float
    upper: Int[np.ndarray, "a n"]
    lower: Int[np.ndarray, "b n"]
    horizontal: Int[np.ndarray, "c n"]


def credible_ball(draws: ArrayLike, estimate: ArrayLike, level: float = 0.95, loss: str = "vi") -> CredibleBall:
    """Return the smallest ball around a partition, in the metric of a loss, that contains at least `level` of the draws.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    estimate
        (n,) whole numbers: the centre, such as a `point_estimate`.
    level
        Posterior probability, in (0, 1].
    loss
        "vi" or "binder", as in `point_estimate`.

    Returns
    -------
    ball
        `CredibleBall`: the radius, the share of the draws inside, and the bounds of the ball.

    Raises
    ------
    ValueError, TypeError
        If an argument has the wrong shape or type, or is out of range.

    Notes
    -----
    See Wade & Ghahramani (2018), section 4.

    Examples
    --------
    >>> from bnp_hier import credible_ball
    >>> draws = [[0, 0, 1], [0, 0, 0], [5, 5, 2], [1, 0, 0]]
    >>> ball = credible_ball(draws, [0, 0, 1], level=0.75)
    >>> round(ball.radius, 3), ball.share, ball.upper, ball.lower
    (0.637, 0.75, array([[0, 0, 0]]), array([[0, 0, 1]]))
    """
    if not 0 < level <= 1:
        raise ValueError(f"level must lie in (0, 1], but it is {level!r}")
    labels, weight, _ = unique_draws(flat_draws(draws))
    distance = expected_losses(labels, one_partition(estimate, labels.shape[1])[None], loss)
    order = np.argsort(distance, kind="stable")
    held = np.cumsum(weight[order])
    held[-1] = 1.0  # but for rounding, by more than 1e-12 of 100,000 draws
    radius = float(distance[order][np.searchsorted(held, level - 1e-12)])
    inside = distance <= radius + 1e-12
    clusters = labels.max(1) + 1

    def farthest(of: Bool[np.ndarray, " u"]) -> Int[np.ndarray, "a n"]:
        return labels[of & (distance >= distance[of].max() - 1e-12)]

    fewest, most = clusters[inside].min(), clusters[inside].max()
    return CredibleBall(
        radius,
        float(weight[inside].sum()),
        farthest(inside & (clusters == fewest)),
        farthest(inside & (clusters == most)),
        farthest(inside),
    )


def number_of_clusters(draws: ArrayLike, at_least: float = 0.0) -> Float[np.ndarray, " k1"]:
    """Return the posterior probabilities of 0, 1, ..., K clusters, where K is the largest number in any draw.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    at_least
        Share of the rows, in [0, 1], that a cluster must hold to count: under a Dirichlet process, draws have clusters of a few
        rows that come and go, and the number of the others is better determined.

    Returns
    -------
    probabilities
        (K + 1,) shares of the draws with so many clusters; the first is 0 unless `at_least` is positive.

    Raises
    ------
    ValueError, TypeError
        If an argument has the wrong shape or type, or is out of range.

    Examples
    --------
    >>> from bnp_hier import number_of_clusters
    >>> draws = [[0, 0, 1], [0, 0, 0], [5, 5, 2], [1, 0, 0]]
    >>> number_of_clusters(draws)
    array([0.  , 0.25, 0.75])
    >>> number_of_clusters(draws, at_least=0.5)
    array([0., 1.])
    """
    flat = flat_draws(draws)
    return np.bincount(large_clusters(flat, at_least)) / len(flat)


def least_share(rows: int) -> float:
    """Share of the rows from which on reports call a cluster large: 2%, and at least two rows."""
    return max(LARGE, 2 / rows)


def large_clusters(draws: ArrayLike, at_least: float) -> Int[np.ndarray, "*draws"]:
    """Return the number of clusters of each draw that hold at least a share of its rows.

    Parameters
    ----------
    draws
        Label draws, (..., n) whole numbers.
    at_least
        The share, in [0, 1].
    """
    if not 0 <= at_least <= 1:
        raise ValueError(f"at_least must be a share of the rows, in [0, 1], but it is {at_least!r}")
    ordered = np.sort(np.asarray(draws), axis=-1)
    *shape, n = ordered.shape
    begins = np.flatnonzero(np.diff(ordered, axis=-1, prepend=ordered[..., :1] - 1))
    sizes = np.diff(begins, append=ordered.size)
    large = begins[sizes >= at_least * n]
    return np.bincount(large // n, minlength=ordered.size // n).reshape(shape)
