"""Univariate slice sampling of a vector along given directions (Neal 2003), which warm-up adapts (Tibbits et al. 2014)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

__all__ = ["SliceAdaptation", "SlicePoint", "adapted", "directions_of", "slice_sweep", "slice_update", "unadapted"]

LogDensity = Callable[[Float[Array, " p"]], Float[Array, ""]]
"""Log density of a vector up to a constant (nats); NaN and inf count as zero density."""

DRAWS = 60
"""Maximum number of draws from an interval: as many shrink any interval to the rounding error of its ends."""

OWN_VARIANCE = 0.01
"""Share of the diagonal in the covariance matrix that determines the directions: they stay linearly independent."""


class SlicePoint(NamedTuple):
    """A point and its log density.

    - **x** - the vector.
    - **log_density** - its log density up to a constant (nats).
    - **evaluations** - number of evaluations of the log density so far.
    """

    x: Float[Array, " p"]
    log_density: Float[Array, ""]
    evaluations: Int[Array, ""]


class SliceAdaptation(NamedTuple):
    """What warm-up adapts.

    - **mean**, **covariance** - of the vector, in the course of the chain.
    - **widths** - initial width of the interval along each direction, in units of its length.
    """

    mean: Float[Array, " p"]
    covariance: Float[Array, "p p"]
    widths: Float[Array, " p"]


class _Search(NamedTuple):
    """An interval of multiples of a direction, first expanded to both sides and then shrunk until a draw lies in the slice.

    - **low**, **high** - the ends.
    - **left**, **right** - numbers of expansions that are still allowed; 0 once the end lies outside the slice.
    - **draws** - number of draws from the interval.
    - **point** - the last point whose density was evaluated.
    - **found** - whether it lies in the slice.
    """

    low: Float[Array, ""]
    high: Float[Array, ""]
    left: Int[Array, ""]
    right: Int[Array, ""]
    draws: Int[Array, ""]
    point: SlicePoint
    found: Bool[Array, ""]


def slice_update(
    log_density: LogDensity,
    point: SlicePoint,
    direction: Float[Array, " p"],
    width: ArrayLike,
    max_steps_out: int,
    uniforms: Float[Array, " draws"],
) -> SlicePoint:
    """Move along a direction by a slice-sampling step that leaves the density invariant.

    An interval of the given width is placed at random around the point. It is expanded in steps of this width until both ends
    lie outside the slice or `max_steps_out` steps are used, which are divided at random between the two sides (Neal 2003,
    Figure 3), and then shrunk towards the point until a uniform draw from it lies in the slice (Figure 5).

    Parameters
    ----------
    log_density
        Log density of the vector (nats).
    point
        Current point. If its density is 0 or NaN, the slice contains every point with a positive density.
    direction, width
        The direction, and the initial width of the interval in units of its length.
    max_steps_out
        Maximum number of expansions.
    uniforms
        Independent uniform draws: three for the slice and the interval, and `DRAWS` for the draws from it.

    Returns
    -------
    point
        The new point; the same one if none of the draws lies in the slice. This also leaves the density invariant: the way back
        from another point would have passed the same draws.
    """
    height, place, division = uniforms[:3]
    level = jnp.where(point.log_density > -jnp.inf, point.log_density + jnp.log1p(-height), -jnp.inf)
    width = jnp.asarray(width, place.dtype)
    low = -width * place
    left = (division * (max_steps_out + 1)).astype(int)
    none, one = jnp.zeros_like(left), jnp.ones_like(left)

    def look(search: _Search) -> _Search:
        # one evaluation per iteration, whatever its purpose, so that the density is compiled once
        to_left = search.left > 0
        to_right = ~to_left & (search.right > 0)
        shrinks = ~to_left & ~to_right
        draw = search.low + (search.high - search.low) * uniforms[3 + search.draws]
        at = jnp.where(to_left, search.low, jnp.where(to_right, search.high, draw))
        x = point.x + at * direction
        value = log_density(x)
        inside = (value > level) & (value < jnp.inf)
        return _Search(
            jnp.where(to_left & inside, at - width, jnp.where(shrinks & (at < 0), at, search.low)),
            jnp.where(to_right & inside, at + width, jnp.where(shrinks & (at >= 0), at, search.high)),
            jnp.where(to_left, jnp.where(inside, search.left - one, none), search.left),
            jnp.where(to_right, jnp.where(inside, search.right - one, none), search.right),
            search.draws + shrinks.astype(left.dtype),
            SlicePoint(x, value, search.point.evaluations + one),
            shrinks & inside,
        )

    start = _Search(low, low + width, left, max_steps_out - left, none, point, jnp.zeros((), bool))
    end = jax.lax.while_loop(lambda search: ~search.found & (search.draws < DRAWS), look, start)
    return SlicePoint(
        jnp.where(end.found, end.point.x, point.x),
        jnp.where(end.found, end.point.log_density, point.log_density),
        end.point.evaluations,
    )


def slice_sweep(
    log_density: LogDensity,
    point: SlicePoint,
    directions: Float[Array, "p p"],
    widths: Float[Array, " p"],
    max_steps_out: int,
    key: Array,
    random_order: bool = True,
) -> tuple[SlicePoint, Float[Array, " p"]]:
    """Move once along each direction by `slice_update`.

    Parameters
    ----------
    log_density, point, max_steps_out
        As for `slice_update`.
    directions, widths
        The directions, one per row, and their widths.
    key
        Random key.
    random_order
        Whether the order of the directions is random, and not that of the rows.

    Returns
    -------
    point, distances
        The new point, and the distance moved along each direction, in units of its length.
    """
    p = directions.shape[0]
    # one call for all draws: inside the loops, they would cost as much as the density
    uniforms = jax.random.uniform(key, (p, 4 + DRAWS), point.x.dtype)
    order = jnp.argsort(uniforms[:, -1]) if random_order else jnp.arange(p)

    def update(before: SlicePoint, turn: tuple[Array, Array]) -> tuple[SlicePoint, Array]:
        index, uniforms = turn
        after = slice_update(log_density, before, directions[index], widths[index], max_steps_out, uniforms)
        length = jnp.square(directions[index]).sum()
        return after, jnp.sqrt(jnp.square(after.x - before.x).sum() / length)

    point, distances = jax.lax.scan(update, point, (order, uniforms[:, :-1]))
    return point, jnp.zeros_like(distances).at[order].set(distances)


def unadapted(p: int, width: float) -> SliceAdaptation:
    """The state of the adaptation before warm-up: p coordinates, with intervals of the given width."""
    return SliceAdaptation(jnp.zeros(p), width**2 * jnp.eye(p), jnp.ones(p))


def directions_of(adaptation: SliceAdaptation) -> Float[Array, "p p"]:
    """Directions in which a normal vector with this covariance matrix is uncorrelated, one per row, in standard deviations."""
    variance = jnp.diag(jnp.diagonal(adaptation.covariance))
    factor = jnp.linalg.cholesky((1 - OWN_VARIANCE) * adaptation.covariance + OWN_VARIANCE * variance)
    return jnp.where(jnp.isfinite(factor).all(), factor, jnp.sqrt(variance)).T


def adapted(
    adaptation: SliceAdaptation, x: Float[Array, " p"], distances: Float[Array, " p"], i: Int[Array, ""]
) -> SliceAdaptation:
    """Adapt to the point and the distances moved in step `i` of warm-up, counted from 0.

    Means are taken over the steps with weights that grow linearly, since the first ones may come from afar. A width is three
    times the mean distance: two uniform draws from an interval lie a third of its length apart, on average.
    """
    gain = 2.0 / (i + 3).astype(x.dtype)
    off = jnp.where(i > 0, x - adaptation.mean, 0.0)
    return SliceAdaptation(
        jnp.where(i > 0, adaptation.mean + gain * off, x),
        (1.0 - gain) * (adaptation.covariance + gain * off[:, None] * off[None]),
        (1.0 - gain) * adaptation.widths + gain * 3.0 * distances,
    )
