"""Integrals over the real line of positive functions that are given on the log scale."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["log_integral", "nodes_around_mode"]

NODES = 129
"""Values of the variable at which a function is evaluated."""

NEGLIGIBLE = 37.0
"""Difference to the largest log value (nats) from which on values are left out."""

WIDEST = 40.0
"""Where integration begins, on both sides of zero."""


def nodes_around_mode(
    log_function: Callable[[Array], Array], shape: tuple[int, ...], nodes: int = NODES
) -> Float[Array, "q *s"]:
    """Evenly spaced values of the interval outside which a function is negligible, for each of several functions.

    Parameters
    ----------
    log_function
        Takes (q, *s) values and returns the log values of the functions at them.
    shape
        Shape s of the functions.
    nodes
        Number q of values.

    Returns
    -------
    values
        (q, *s), without gradients.
    """
    low, high = jnp.full(shape, -WIDEST), jnp.full(shape, WIDEST)
    for _ in range(4):  # closer and closer around the values that matter
        t = jnp.linspace(low, high, NODES)
        logs = jax.lax.stop_gradient(log_function(t))
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        kept = logs > logs.max(0) - NEGLIGIBLE
        # from the value before the first of them to the value after the last
        low, high = (
            jnp.where(jnp.concatenate([kept[1:], kept[-1:]]) | kept, t, jnp.inf).min(0),
            jnp.where(jnp.concatenate([kept[:1], kept[:-1]]) | kept, t, -jnp.inf).max(0),
        )
    return jnp.linspace(low, high, nodes)


def log_integral(log_function: Callable[[Array], Array], shape: tuple[int, ...]) -> Float[Array, "*s"]:
    """Log integrals over the real line by the trapezoidal rule, which is exact up to rounding for smooth functions of one mode.

    The arguments are as in `nodes_around_mode`. Differentiable in whatever the function depends on.
    """
    t = nodes_around_mode(log_function, shape)
    logs = log_function(t)
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    return jax.scipy.special.logsumexp(logs, axis=0) + jnp.log(t[1] - t[0])
