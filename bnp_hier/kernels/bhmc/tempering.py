"""Parallel tempering: replicas of a hierarchical mixture with flattened likelihoods that exchange their values.

At temperature T, a replica's target is the prior times the likelihood to the power 1/T. For normal components with a known
covariance Σ, this power is proportional to the likelihood with the covariance TΣ, whatever the means: every update given the
covariance is the one of the same model with wider components.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component, NormalKnownCovariance

__all__ = ["check_temperatures", "check_tempered", "exchange", "tempered"]


def check_temperatures(temperatures: Any) -> tuple[float, ...]:
    """Return the temperatures as numbers.

    Raises
    ------
    ValueError
        If they are not finite, do not begin with 1 or do not increase.
    """
    found = np.atleast_1d(np.asarray(temperatures, np.float64))
    if found.ndim != 1 or not len(found) or found[0] != 1.0 or not (np.diff(found) > 0).all() or not np.isfinite(found).all():
        raise ValueError(f"temperatures must begin with 1.0 and increase, but they are {temperatures}")
    return tuple(found.tolist())


def check_tempered(component: Component) -> None:
    """Check that components can be tempered.

    Raises
    ------
    ValueError
        If they are not normal with a known covariance.
    """
    if not isinstance(component, NormalKnownCovariance):
        raise ValueError(f"temperatures require NormalKnownCovariance, but the components are {type(component).__name__}")


def tempered(component: Component, temperature: Float[Array, ""]) -> NormalKnownCovariance:
    """The component whose likelihood is proportional to the given one's to the power 1/T, as a function of its parameters."""
    assert isinstance(component, NormalKnownCovariance)
    return dataclasses.replace(component, covariance=jnp.asarray(component.covariance) * temperature)


def exchange(
    log_likelihood: Float[Array, " r"], temperatures: Float[Array, " r"], odd: Bool[Array, ""], key: Array
) -> tuple[Int[Array, " r"], Bool[Array, " pairs"], Bool[Array, " pairs"]]:
    """Propose to exchange the values of neighbouring replicas, every other pair of them.

    The ratio of a pair is exp((1/T − 1/T')(ℓ' − ℓ)), where ℓ is the log likelihood: everything else in the two targets cancels.

    Parameters
    ----------
    log_likelihood, temperatures
        Untempered log likelihood (nats) and temperature of every replica.
    odd
        Whether the pairs are (1, 2), (3, 4), ... instead of (0, 1), (2, 3), ...; must not depend on the values.
    key
        Random key.

    Returns
    -------
    order, accepted, attempted
        For every replica, the one whose values it gets; for every pair of neighbours, whether they exchange their values, and
        whether that was proposed.
    """
    r = log_likelihood.shape[0]
    pairs = jnp.arange(r - 1)
    attempted = pairs % 2 == odd.astype(pairs.dtype)
    log_ratio = -jnp.diff(1.0 / temperatures) * jnp.diff(log_likelihood)
    accepted = attempted & (jnp.log1p(-jax.random.uniform(key, (r - 1,), log_ratio.dtype)) < log_ratio)
    nowhere = jnp.zeros(1, bool)
    up, down = jnp.append(accepted, nowhere), jnp.append(nowhere, accepted)
    return jnp.arange(r) + up.astype(int) - down.astype(int), accepted, attempted
