"""A mixture model on a data set in the form used by estimators: float64, with adjustable hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from scipy.optimize import minimize

from bnp_hier.inspection.collapsed import MixtureSites, MixtureValues, as_arrays, find_sites, read_values
from bnp_hier.inspection.hyperpriors import Hyperprior, hyperprior
from bnp_hier.inspection.trace import Model
from bnp_hier.utils.arrays import as_matrix

__all__ = ["Problem"]


class Problem:
    """A mixture model on a data set with adjustable hyperparameters; float64 throughout.

    Parameters
    ----------
    model
        NumPyro model with one partition site and one `ConjugateMixture` on it.
    X
        Data, (n, d), passed to the model as its only argument.
    min_rows
        Minimum number of rows.

    Raises
    ------
    ValueError
        If the model lacks the required sites, or the data are invalid for the component.
    """

    def __init__(self, model: Model, X: ArrayLike, min_rows: int = 2) -> None:
        self.model, self.X = model, as_matrix(X, min_rows=min_rows)
        self.sites: MixtureSites = find_sites(model, (self.X,))
        self.prior: Hyperprior = hyperprior(model, self.sites, (self.X,))
        self.unconstrained: dict[str, Any] = dict(self.prior.start)
        self._gradients: dict[Callable[..., Any], Any] = {}
        values = self.values
        values.component.validate(values.X)
        values.component.check_precision(values.X)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Current values of the hyperparameter sites."""
        return self.prior.constrain(self.unconstrained)

    @property
    def values(self) -> MixtureValues:
        """Partition prior, component and data at the current hyperparameters."""
        return self.values_at(self.hyperparameters)

    def values_at(self, hyperparameters: Mapping[str, Any]) -> MixtureValues:
        """Partition prior, component and data at given hyperparameters."""
        return as_arrays(read_values(self.model, self.sites, hyperparameters, (self.X,)))

    def climb(self, objective: Callable[..., Float[Array, ""]], *fixed: Array, max_iter: int = 100) -> float:
        """Move the hyperparameters to a local maximum of objective + log prior by L-BFGS with JAX gradients.

        The objective is a function of the values and the `fixed` arrays, compiled once per problem and set of shapes. The log
        prior is the density in the sites' constrained space. The final value is never lower than the initial one.

        Returns
        -------
        value
            Final value of objective + log prior (nats).
        """
        names = list(self.unconstrained)
        flat, unravel = jax.flatten_util.ravel_pytree(self.unconstrained)

        def loss(vector: Float[Array, " p"], *fixed: Array) -> Float[Array, ""]:
            values = self.prior.constrain(unravel(vector))
            return -(objective(self.values_at(values), *fixed) + self.prior.log_prob(values))

        if objective not in self._gradients:
            self._gradients[objective] = jax.jit(jax.value_and_grad(loss))
        value_and_grad = self._gradients[objective]

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = value_and_grad(jnp.asarray(vector), *fixed)
            finite = np.isfinite(value) and np.isfinite(gradient).all()
            # the line search rejects a step that leaves the floating-point range
            return (float(value), np.asarray(gradient)) if finite else (1e300, np.zeros_like(vector))

        start = np.asarray(flat, dtype=np.float64)
        before, _ = evaluate(start)
        if not names:
            return -before
        result = minimize(evaluate, start, jac=True, method="L-BFGS-B", options={"maxiter": max_iter})
        if result.fun < before:
            self.unconstrained = jax.tree.map(np.asarray, unravel(jnp.asarray(result.x)))
            return -float(result.fun)
        return -before
