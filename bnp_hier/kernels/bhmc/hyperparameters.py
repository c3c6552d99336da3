"""Exact draws of concentrations and variances from their conditionals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Num

from bnp_hier.distributions.log_gamma import log_gamma_draw
from bnp_hier.inspection.nested import prior_of_each

__all__ = ["CONCENTRATION_PRIORS", "draw_concentration", "draw_variance", "truncated_gamma"]

CONCENTRATION_PRIORS = (dist.Gamma, dist.Exponential, dist.Uniform)
"""Priors of a concentration with a conditional of known form."""

TRIES = 64
"""Number of independent gamma variates drawn to find one within the bounds."""

SLICES = 32
"""Number of slice-sampling updates if no draw falls within the bounds."""


def draw_concentration(
    prior: dist.Distribution,
    value: Float[Array, ""],
    groups: Float[Array, " g"],
    clusters: Num[Array, ""],
    key: Array,
) -> Float[Array, ""]:
    """Draw the common concentration of several Chinese restaurants, given their numbers of customers and tables.

    The conditional is proportional to prior(a) Π_g a^{clusters of g} Γ(a)/Γ(a + n_g). Given η_g ~ Beta(a + 1, n_g) and
    s_g ~ Bernoulli(n_g/(n_g + a)), it is proportional to prior(a) a^{clusters − Σs} e^{a Σ log η} (Escobar & West 1995; Teh et
    al. 2006).

    Parameters
    ----------
    prior
        Gamma, Exponential or Uniform.
    value
        The current concentration.
    groups
        Number of customers n_g of each restaurant; entries of zero are ignored.
    clusters
        Total number of tables.
    """
    key_eta, key_s, key_draw = jax.random.split(key, 3)
    open_ = groups > 0
    n = jnp.where(open_, groups, 1.0)
    # log of a Beta variate, accurate near zero
    pairs = log_gamma_draw(key_eta, jnp.column_stack([jnp.broadcast_to(value + 1.0, n.shape), n]))
    one, other = pairs[:, 0], pairs[:, 1]
    log_eta = jnp.where(open_, one - jnp.logaddexp(one, other), 0.0)
    s = jnp.where(open_, jax.random.uniform(key_s, n.shape) * (n + value) < n, False)
    power, rate = clusters.astype(float) - s.sum(dtype=float), -log_eta.sum()
    if isinstance(prior, dist.Uniform):
        return truncated_gamma(key_draw, value, power + 1.0, rate, prior.low, prior.high)
    shape = prior.concentration if isinstance(prior, dist.Gamma) else 1.0
    return jnp.exp(log_gamma_draw(key_draw, shape + power)) / (prior.rate + rate)


def draw_variance(
    prior: dist.Distribution, value: Float[Array, "..."], squares: Float[Array, "..."], count: float | Array, key: Array
) -> Float[Array, "..."]:
    """Draw the variance of `count` normal numbers whose squared deviations sum to `squares`, in one or several columns.

    Parameters
    ----------
    prior
        InverseGamma or Uniform, of independent variances if there are several.
    value
        The current variances.
    count
        Number of squares, not necessarily a whole number: the exponent of the likelihood is −count/2.
    """
    prior = prior_of_each(prior)
    if isinstance(prior, dist.Uniform):
        # the precision t has density t^{count/2 − 2} e^{−t squares/2} between the inverse bounds
        low, high = (
            jnp.broadcast_to(jnp.asarray(bound, value.dtype), value.shape).ravel() for bound in (prior.low, prior.high)
        )
        highest = 1.0 / jnp.maximum(low, jnp.finfo(value.dtype).tiny)
        keys = jax.random.split(key, max(value.size, 1))
        draw = jax.vmap(truncated_gamma, (0, 0, None, 0, 0, 0))
        precisions = draw(keys, 1.0 / value.ravel(), count / 2.0 - 1.0, squares.ravel() / 2.0, 1.0 / high, highest)
        return 1.0 / precisions.reshape(value.shape)
    shape = jnp.broadcast_to(jnp.asarray(prior.concentration + count / 2.0, value.dtype), value.shape)
    return (prior.rate + squares / 2.0) / jnp.exp(log_gamma_draw(key, shape))


def truncated_gamma(
    key: Array, value: Float[Array, ""], shape: float | Array, rate: float | Array, low: float | Array, high: float | Array
) -> Float[Array, ""]:
    """Make a move that leaves Gamma(shape, rate) between two bounds invariant: an independent draw if one is found quickly.

    The result is the first of `TRIES` gamma variates that lies within the bounds. If there is none, an event that does not
    depend on the current value x, x is updated by slice sampling: below x + (−log u)/rate, and above x u^{1/(shape − 1)}, or
    below it if shape < 1.
    """
    key_tries, key_slices = jax.random.split(key)
    tries = jnp.exp(log_gamma_draw(key_tries, jnp.full(TRIES, jnp.maximum(shape, 0.5)))) / rate
    within = (tries > low) & (tries < high) & (shape >= 0.5)

    def slices(_: None) -> Array:
        def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            x, key = state
            key, key_u = jax.random.split(key)
            u = jax.random.uniform(key_u, (3,), minval=jnp.finfo(x.dtype).tiny)
            # x^{shape − 1} gives a lower bound if it increases, an upper bound if it decreases
            bound = x * jnp.exp(jnp.log(u[0]) / (shape - 1.0))
            least = jnp.where(shape > 1.0, jnp.maximum(bound, low), low)
            most = jnp.minimum(x - jnp.log(u[1]) / rate, high)
            most = jnp.where(shape < 1.0, jnp.minimum(bound, most), most)
            return least + u[2] * (most - least), key

        return jax.lax.fori_loop(0, SLICES, step, (value, key_slices))[0]

    return jax.lax.cond(within.any(), lambda _: tries[within.argmax()], slices, None).astype(value.dtype)
