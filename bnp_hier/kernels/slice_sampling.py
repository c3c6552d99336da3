"""Univariate slice sampling of the coordinates of a vector (Neal 2003)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

__all__ = ["SlicePoint", "slice_sweep", "slice_update"]

LogDensity = Callable[[Float[Array, " p"]], Float[Array, ""]]
"""Log density of a vector up to a constant (nats); NaN and inf count as zero density."""


class SlicePoint(NamedTuple):
    """A point and its log density.

    - **x** - the vector.
    - **log_density** - its log density up to a constant (nats).
    - **evaluations** - number of evaluations of the log density so far.
    """

    x: Float[Array, " p"]
    log_density: Float[Array, ""]
    evaluations: Int[Array, ""]


class _Search(NamedTuple):
    """An interval around a coordinate's value, first expanded to both sides and then shrunk to a point in the slice.

    - **low**, **high** - the ends.
    - **left**, **right** - numbers of expansions that are still allowed; 0 once the end lies outside the slice.
    - **point** - the last point whose density was evaluated.
    - **found** - whether it is the new value.
    """

    low: Float[Array, ""]
    high: Float[Array, ""]
    left: Int[Array, ""]
    right: Int[Array, ""]
    point: SlicePoint
    found: Bool[Array, ""]
    key: Array


def slice_update(
    log_density: LogDensity,
    point: SlicePoint,
    index: Int[Array, ""],
    width: Float[Array, ""],
    max_steps_out: int,
    key: Array,
) -> SlicePoint:
    """Update one coordinate by a slice-sampling step that leaves the density invariant.

    The interval begins with the given width at a random position around the value. It is expanded in steps of this width until
    both ends lie outside the slice or `max_steps_out` steps are used, which are divided at random between the two sides (Neal
    2003, Figure 3), and then shrunk towards the value until a uniform draw from it lies in the slice (Figure 5).

    Parameters
    ----------
    log_density
        Log density of the vector (nats).
    point
        Current point. If its density is 0 or NaN, the slice contains every point with a positive density.
    index, width
        The coordinate, and the initial width of the interval.
    max_steps_out
        Maximum number of expansions.
    key
        Random key.

    Returns
    -------
    point
        The new point; the same one if the interval has shrunk to it, because of rounding or of an undefined density.
    """
    key, key_start = jax.random.split(key)
    height, place, division = jax.random.uniform(key_start, (3,), point.x.dtype)
    x = point.x[index]
    level = jnp.where(point.log_density > -jnp.inf, point.log_density + jnp.log1p(-height), -jnp.inf)
    low = x - width * place
    left = (division * (max_steps_out + 1)).astype(int)

    def look(search: _Search) -> _Search:
        # one evaluation per iteration, whatever its purpose, so that the density is compiled once
        key, key_draw = jax.random.split(search.key)
        to_left = search.left > 0
        to_right = ~to_left & (search.right > 0)
        shrinks = ~to_left & ~to_right
        draw = search.low + (search.high - search.low) * jax.random.uniform(key_draw, dtype=x.dtype)
        at = jnp.where(to_left, search.low, jnp.where(to_right, search.high, draw))
        tried = search.point.x.at[index].set(at)
        value = log_density(tried)
        inside = (value > level) & (value < jnp.inf)
        # not `at == x`, which would never end the search if the value were NaN
        collapsed = shrinks & ~(jnp.abs(at - x) > 0)
        low = jnp.where(to_left & inside, at - width, jnp.where(shrinks & (at < x), at, search.low))
        high = jnp.where(to_right & inside, at + width, jnp.where(shrinks & (at >= x), at, search.high))
        one, none = jnp.ones_like(left), jnp.zeros_like(left)
        return _Search(
            low,
            high,
            jnp.where(to_left, jnp.where(inside, search.left - one, none), search.left),
            jnp.where(to_right, jnp.where(inside, search.right - one, none), search.right),
            SlicePoint(tried, jnp.where(collapsed, point.log_density, value), search.point.evaluations + one),
            shrinks & (inside | collapsed),
            key,
        )

    start = _Search(low, low + width, left, max_steps_out - left, point, jnp.zeros((), bool), key)
    return jax.lax.while_loop(lambda search: ~search.found, look, start).point


def slice_sweep(
    log_density: LogDensity,
    point: SlicePoint,
    widths: Float[Array, " p"],
    key: Array,
    max_steps_out: int,
    random_order: bool = True,
) -> SlicePoint:
    """Update all coordinates once by `slice_update`.

    Parameters
    ----------
    log_density, point, max_steps_out, key
        As for `slice_update`.
    widths
        Initial width of the interval of each coordinate.
    random_order
        Whether the order of the coordinates is random, and not that of the vector.

    Returns
    -------
    point
        The new point.
    """
    p = point.x.shape[0]
    key_order, key_updates = jax.random.split(key)
    order = jnp.argsort(jax.random.uniform(key_order, (p,))) if random_order else jnp.arange(p)

    def update(point: SlicePoint, turn: tuple[Array, Array]) -> tuple[SlicePoint, None]:
        index, key = turn
        return slice_update(log_density, point, index, widths[index], max_steps_out, key), None

    return jax.lax.scan(update, point, (order, jax.random.split(key_updates, p)))[0]
