"""Logs of gamma variates, drawn many at a time and fast to compile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["log_gamma_draw"]


def log_gamma_draw(key: Array, shape: Float[Array, "..."]) -> Float[Array, "..."]:
    """Logs of Gamma(shape, 1) variates, for shapes down to the smallest float (nats); NaN where the shape is invalid.

    Marsaglia & Tsang (2000), with all entries in one loop that runs until the last is accepted. For a shape a < 1, a variate of
    shape a + 1 is multiplied by a uniform variate to the power 1/a. `jax.random.loggamma` draws from the same distribution, but
    one entry after the other on a CPU.
    """
    low = shape < 1.0
    d = jnp.where(low, shape + 1.0, shape) - 1.0 / 3.0
    c = 1.0 / jnp.sqrt(9.0 * d)
    smallest = jnp.finfo(d.dtype).tiny

    def propose(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        key, logs, power, waiting = state
        key, key_draw = jax.random.split(key)
        # an entry's variates depend on its index alone, so that those of an array are those of a longer one
        u = jnp.moveaxis(jax.random.uniform(key_draw, (*shape.shape, 3), d.dtype, minval=smallest), -1, 0)
        x = jnp.sqrt(2.0) * jax.lax.erf_inv(2.0 * u[0] - 1.0)
        root = 1.0 + c * x
        v = jnp.where(root > 0, root, 1.0) ** 3
        fits = (root > 0) & (jnp.log(u[1]) < 0.5 * x * x + d - d * v + d * jnp.log(v))
        logs = jnp.where(waiting & fits, jnp.log(d) + jnp.log(v), logs)
        return key, logs, jnp.where(waiting, jnp.log(u[2]), power), waiting & ~fits

    # no proposal is ever accepted for a NaN, negative or infinite shape
    possible = (shape >= 0) & (shape < jnp.inf)
    start = key, jnp.where(possible, 0.0, jnp.nan).astype(d.dtype), jnp.zeros_like(d), possible
    _, logs, power, _ = jax.lax.while_loop(lambda state: state[-1].any(), propose, start)
    return logs + jnp.where(low, power / jnp.where(low, shape, 1.0), 0.0)
