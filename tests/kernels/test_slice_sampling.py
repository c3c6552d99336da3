"""Slice sampling as pure functions: known densities, limits, undefined densities, and what warm-up adapts."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from bnp_hier.kernels.slice_sampling import (
    DRAWS,
    OWN_VARIANCE,
    SlicePoint,
    adapted,
    directions_of,
    slice_sweep,
    slice_update,
    unadapted,
)
from tests.oracles.monte_carlo import batch_means

SPREAD = np.array([[1.0, 0.0], [1.8, 0.6]])
"""Factor of the covariance matrix of a strongly correlated normal vector."""


def two_humps(x: jax.Array) -> jax.Array:
    """An equal mixture of normals at −2 and 2, and, given it, a normal at its square."""
    humps = jnp.logaddexp(-jnp.square(x[0] - 2.0) / 2, -jnp.square(x[0] + 2.0) / 2)
    return humps - jnp.square(x[1] - jnp.square(x[0]) / 4)


def point_at(x: list[float], log_density) -> SlicePoint:
    return SlicePoint(jnp.array(x), log_density(jnp.array(x)), jnp.zeros((), int))


def chain(log_density, start: SlicePoint, directions: np.ndarray, widths: list[float], steps: int, **options) -> np.ndarray:
    def step(point: SlicePoint, key: jax.Array) -> tuple[SlicePoint, jax.Array]:
        point, _ = slice_sweep(log_density, point, jnp.asarray(directions), jnp.asarray(widths), key=key, **options)
        return point, point.x

    keys = jax.random.split(jax.random.key(0), steps)
    return np.asarray(jax.jit(lambda point: jax.lax.scan(step, point, keys)[1])(start))


@pytest.mark.parametrize(("max_steps_out", "random_order"), [(0, True), (2, True), (20, False)])
def test_known_density(max_steps_out: int, random_order: bool) -> None:
    """Moments and probabilities of a density with two humps, in oblique directions; steps out that are used up, or not.

    Eight statistics and three cases, |z| < 5 each, with standard errors from 100 batches: false-alarm rate below 1e-4.
    """
    start = point_at([2.0, 1.0], two_humps)
    directions = np.array([[1.0, 0.5], [-0.3, 1.0]])
    x = chain(two_humps, start, directions, [2.5, 0.7], 40_000, max_steps_out=max_steps_out, random_order=random_order)
    rest = x[:, 1] - x[:, 0] ** 2 / 4
    found = np.stack([x[:, 0], x[:, 0] ** 2, rest, rest**2, rest**4, x[:, 0] > 3, np.abs(x[:, 0]) < 1, x[:, 0] * rest], axis=1)
    inner = norm.cdf(3) - norm.cdf(1)
    exact = [0.0, 5.0, 0.0, 0.5, 0.75, (norm.sf(1) + norm.sf(5)) / 2, inner, 0.0]
    mean, error = batch_means(found)
    scores = (mean - exact) / error
    assert np.abs(scores).max() < 5, scores
    assert error[1] < 0.25 and error[6] < 0.01  # what a bias must exceed


def test_steps_out_are_limited() -> None:
    """On a flat density all steps out are used, and the first draw is taken: at most one width more than the steps."""
    flat = lambda x: jnp.zeros(())  # noqa: E731
    uniforms = jax.random.uniform(jax.random.key(1), (200, 3 + DRAWS))
    update = partial(slice_update, flat, point_at([5.0], flat), jnp.array([2.0]), 0.5, 3)
    moved = jax.vmap(update)(uniforms)
    np.testing.assert_array_equal(moved.evaluations, 4)
    distance = np.abs(np.asarray(moved.x) - 5.0)
    assert 3.0 < distance.max() <= 4 * 0.5 * 2.0


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_point_without_neighbours_stays(value: float) -> None:
    """Undefined or zero densities all around, or everywhere: the update ends, and leaves the point where it is."""
    for here in (0.0, value):
        spike = lambda x, here=here: jnp.where(x[0] == 3.0, here, value)  # noqa: E731
        start = point_at([3.0], spike)
        end = slice_update(spike, start, jnp.ones(1), 1.0, 2, jax.random.uniform(jax.random.key(0), (3 + DRAWS,)))
        assert float(end.x[0]) == 3.0 and int(end.evaluations) <= 2 + DRAWS
        np.testing.assert_array_equal(end.log_density, here)


def test_a_start_of_zero_density_finds_the_support() -> None:
    half = lambda x: jnp.where(x[0] > 1.0, -x[0], -jnp.inf)  # noqa: E731
    x = chain(half, point_at([0.0], half), np.eye(1), [4.0], 50, max_steps_out=5)
    assert (x[-1] > 1.0).all()


def test_adaptation_learns_covariance_and_widths() -> None:
    """The directions become those in which a correlated normal vector is white; each width a slice's length or so.

    A normal slice has a mean length of 3.2 standard deviations, a third of which is the mean distance.
    """
    precision = np.linalg.inv(SPREAD @ SPREAD.T)
    normal = lambda x: -x @ jnp.asarray(precision, x.dtype) @ x / 2  # noqa: E731

    def step(carry, turn):
        point, adaptation = carry
        i, key = turn
        point, moved = slice_sweep(normal, point, directions_of(adaptation), adaptation.widths, 10, key)
        return (point, adapted(adaptation, point.x, moved, i)), None

    steps = 4000
    turns = jnp.arange(steps), jax.random.split(jax.random.key(2), steps)
    start = point_at([30.0, -30.0], normal), unadapted(2, 2.0)
    (_, adaptation), _ = jax.jit(lambda start: jax.lax.scan(step, start, turns))(start)
    np.testing.assert_allclose(adaptation.covariance, SPREAD @ SPREAD.T, rtol=0.15)
    np.testing.assert_allclose(adaptation.widths, 3.2, rtol=0.2)
    directions = np.asarray(directions_of(adaptation))
    shrunk = (1 - OWN_VARIANCE) * adaptation.covariance + OWN_VARIANCE * np.diag(np.diagonal(adaptation.covariance))
    np.testing.assert_allclose(directions.T @ directions, shrunk, rtol=1e-4)
    # a covariance matrix that is not positive definite by rounding leaves the coordinates as they are
    flat = adaptation._replace(covariance=jnp.array([[1.0, 2.0], [2.0, 1.0]]))
    np.testing.assert_array_equal(directions_of(flat), np.eye(2))
