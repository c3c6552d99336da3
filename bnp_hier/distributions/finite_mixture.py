"""Finite mixture with explicit weights and parameters, as the distribution of one row."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bnp_hier.components.base import Component

__all__ = ["FiniteMixture"]


class FiniteMixture(dist.MixtureSameFamily):
    """Distribution of one row given the weights and parameters of K components, with its label summed out.

    This is NumPyro's mixture of ``component.likelihood(parameters)`` and also stores the component, so that log p(X, partition)
    with parameters integrated out can be computed from draws of weights and parameters.

    Parameters
    ----------
    component
        The conjugate component.
    weights
        (K,) weights that sum to one.
    parameters
        (K, ...) parameters, as drawn from `component.prior()`.

    Raises
    ------
    TypeError
        If `component` is not a component.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from bnp_hier import BetaBernoulli, FiniteMixture
    >>> bits = BetaBernoulli(a=jnp.ones(1), b=jnp.ones(1))
    >>> mixture = FiniteMixture(bits, weights=jnp.array([0.25, 0.75]), parameters=jnp.array([[0.2], [0.6]]))
    >>> round(float(jnp.exp(mixture.log_prob(jnp.array([1.0])))), 4)  # 0.25 × 0.2 + 0.75 × 0.6
    0.5
    """

    pytree_data_fields = ("component",)

    def __init__(
        self,
        component: Component,
        weights: Float[Array | np.ndarray, " k"],
        parameters: Float[Array | np.ndarray, "k ..."],
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(component, Component):
            raise TypeError(f"FiniteMixture: component must be a bnp_hier component, but it is {type(component).__name__}")
        self.component = component
        super().__init__(
            dist.Categorical(probs=weights), component.likelihood(jnp.asarray(parameters)), validate_args=validate_args
        )
