"""A row of a finite mixture of one component, with explicit weights and parameters."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from bnp_hier.components.base import Component

__all__ = ["FiniteMixture"]


class FiniteMixture(dist.MixtureSameFamily):
    """Distribution of one row given the weights and parameters of K components, its label summed out.

    NumPyro's mixture of ``component.likelihood(parameters)``, which remembers the component, so that the partition's
    log p(X, partition) with the parameters integrated out is known for draws of weights and parameters.

    Parameters
    ----------
    component
        The conjugate component.
    weights
        (K,) weights, sum one.
    parameters
        (K, ...) parameters, as `component.prior()` draws them.
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
