"""A mixture model on a data set in the form used by estimators: float64, with adjustable hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from scipy.optimize import minimize

from bnp_hier.inspection.collapsed import MixtureSites, MixtureValues, as_arrays, find_missing, find_sites, read_values
from bnp_hier.inspection.hyperpriors import Hyperprior, hyperprior, one_program
from bnp_hier.inspection.trace import Model
from bnp_hier.utils.arrays import as_matrix, is_traced
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.padding import padded
from bnp_hier.utils.programs import compiled

__all__ = ["Objective", "Problem", "by_gradient"]

_F = TypeVar("_F")


def _as_vector(values: Mapping[str, Any]) -> tuple[Float[np.ndarray, " p"], Callable[[Any], dict[str, Any]]]:
    """Concatenate values, and return how to take such a vector, traced or not, apart.

    `jax.flatten_util.ravel_pytree` would compile a program for each of its steps.
    """
    shapes = {name: np.shape(values[name]) for name in sorted(values)}
    ends = np.cumsum([0, *(prod(shape) for shape in shapes.values())])
    flat = np.concatenate([np.empty(0), *(np.ravel(np.asarray(value, dtype=np.float64)) for value in map(values.get, shapes))])

    def apart(vector: Any) -> dict[str, Any]:
        parts = zip(shapes.items(), ends, ends[1:], strict=False)
        return {name: vector[start:end].reshape(shape) for (name, shape), start, end in parts}

    return flat, apart


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
    allow_missing
        Whether the caller can do with missing values that the model completes.

    Raises
    ------
    ValueError
        If the model lacks the required sites, or the data are invalid for the component.
    """

    def __init__(self, model: Model, X: ArrayLike, min_rows: int = 2, *, allow_missing: bool = False) -> None:
        self.model, self.X = model, as_matrix(X, min_rows=min_rows)
        self.sites: MixtureSites = find_sites(model, (self.X,))
        self.prior: Hyperprior = hyperprior(model, self.sites, (self.X,))
        self.unconstrained: dict[str, Any] = dict(self.prior.start)
        self.cells: dict[str, np.ndarray] = {}
        """The missing values, by the name of their site; column means until `complete` is called."""
        self.keep_hyperparameters = False
        """Whether estimators leave the hyperparameters as they are."""
        self.most_clusters = 1
        """Largest number of clusters so far: programs whose shapes follow from it serve smaller numbers too."""
        self._programs: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._rows: Any = None
        self._read_by_program = one_program(self._read_without_rows)
        values = self.values
        if self.sites.missing is not None:
            find_missing(model, self.sites, (self.X,))
            if not allow_missing:
                values.component.validate(self.X)
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
        if self.cells:
            return as_arrays(self._read({**hyperparameters, **self.cells}))
        values = self._read_by_program(hyperparameters)
        return as_arrays(values if self._rows is None else values._replace(X=self._rows))

    def _read(self, values: Mapping[str, Any]) -> MixtureValues:
        return read_values(self.model, self.sites, values, (self.X,))

    def _read_without_rows(self, hyperparameters: Mapping[str, Any]) -> MixtureValues:
        """Read the values, without the rows if they are the same at all hyperparameters."""
        values = self._read(hyperparameters)
        self._rows = None if is_traced(values.X) else values.X
        return values._replace(X=values.X if self._rows is None else jnp.empty(0))

    def complete(self, cells: Float[np.ndarray, " m"]) -> None:
        """Set the missing values."""
        assert self.sites.missing is not None
        self.cells = {self.sites.missing: np.asarray(cells, dtype=np.float64)}
        self._programs = {key: program for key, program in self._programs.items() if key[1]}

    def set(self, hyperparameters: Mapping[str, ArrayLike]) -> None:
        """Set all hyperparameters.

        Raises
        ------
        ValueError
            If a hyperparameter is missing or unknown, or a value has the wrong shape or is outside its prior's support.
        """
        expected = self.hyperparameters
        if set(hyperparameters) != set(expected):
            given = ", ".join(sorted(hyperparameters)) or "none"
            raise ValueError(
                f"the hyperparameters of the model are {', '.join(expected) or 'none'}, but those given are {given}"
            )
        for name, value in hyperparameters.items():
            if np.shape(value) != np.shape(expected[name]):
                raise ValueError(f"{name} must have shape {np.shape(expected[name])}, but it has shape {np.shape(value)}")
        self.unconstrained = self.prior.unconstrain({name: jnp.asarray(hyperparameters[name], float) for name in expected})
        for name, value in self.hyperparameters.items():
            if not np.allclose(value, hyperparameters[name], rtol=1e-6, atol=1e-12):  # of a bound, a little is cut off
                raise ValueError(f"{name} is outside the support of its prior: {hyperparameters[name]}")

    def value(self, objective: Callable[..., Float[Array, ""]], *fixed: ArrayLike) -> float:
        """Objective + log prior at the current hyperparameters (nats); see `climb`."""
        flat, _ = _as_vector(self.unconstrained)
        with blas_on_one_core():
            return float(self._value_and_gradient(objective, *fixed)(flat, *fixed)[0])

    def climb(
        self, objective: Callable[..., Float[Array, ""]], *fixed: ArrayLike, max_iter: int = 100, own_rows: bool = False
    ) -> float:
        """Move the hyperparameters to a local maximum of objective + log prior by L-BFGS with JAX gradients.

        The log prior is the density in the sites' constrained space. The final value is never lower than the initial one.

        Parameters
        ----------
        objective
            A function of the values and the `fixed` arrays (nats). The rows in the values are padded by `padding.padded`; the
            `fixed` arrays tell which ones to leave out.
        fixed
            Arrays, padded too, so that problems with similar numbers of rows share one program.
        max_iter
            Maximum number of steps.
        own_rows
            Whether the objective gets its rows as one of the `fixed` arrays and does not use those in the values, so that its
            program serves all imputations.

        Returns
        -------
        value
            Final value of objective + log prior (nats).
        """
        start, unravel = _as_vector(self.unconstrained)
        value_and_gradient = self._value_and_gradient(objective, *fixed, own_rows=own_rows)

        deadline = current_deadline()

        def stop_in_time(_: np.ndarray) -> None:
            if deadline.is_past():
                raise StopIteration

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = map(np.asarray, value_and_gradient(vector, *fixed))
            finite = np.isfinite(value) and np.isfinite(gradient).all()
            # the line search rejects a step that leaves the floating-point range
            return (-float(value), -gradient) if finite else (1e300, np.zeros_like(vector))

        with blas_on_one_core():
            before, _ = evaluate(start)
            if not self.unconstrained:
                return -before
            options = {"maxiter": max_iter}
            result = minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=stop_in_time, options=options)
        if result.fun < before:
            self.unconstrained = unravel(result.x)
            return -float(result.fun)
        return -before

    def _value_and_gradient(
        self, objective: Callable[..., Float[Array, ""]], *fixed: ArrayLike, own_rows: bool = False
    ) -> Callable[..., Any]:
        """Program for objective + log prior and its gradient at a vector of unconstrained hyperparameters."""
        flat, unravel = _as_vector(self.unconstrained)
        traced_once = jax.jit(objective)  # also by other problems with the same family and shapes

        def total(vector: Float[Array, " p"], *fixed: Array) -> Float[Array, ""]:
            given = self.prior.constrain(unravel(vector))
            values = self._read({**given, **self.cells})
            return traced_once(as_arrays(values._replace(X=padded(values.X))), *fixed) + self.prior.log_prob(given)

        key = objective, own_rows, *(np.shape(array) for array in fixed)
        if key not in self._programs:
            self._programs[key] = compiled(jax.value_and_grad(total), flat, *fixed)
        return self._programs[key]


@dataclass(frozen=True)
class Objective(Generic[_F]):
    """What a fit at fixed hyperparameters maximises, as a function of the hyperparameters.

    - **value** - objective + log prior of a fit at the problem's current hyperparameters (nats).
    - **ascend** - changes the problem's hyperparameters such that this value does not decrease.
    """

    value: Callable[[_F], float]
    ascend: Callable[[_F], object]


def by_gradient(
    problem: Problem, objective: Callable[..., Float[Array, ""]], arrays: Callable[[_F], tuple[ArrayLike, ...]]
) -> Objective[_F]:
    """Objective that is differentiable in the hyperparameters; see `Problem.climb`.

    Parameters
    ----------
    problem
        The problem.
    objective
        Computes the objective (nats) from the model's values, whose rows are padded, and the arrays of a fit.
    arrays
        Extracts the arrays of a fit that the objective needs, padded like the rows; they are held fixed during the gradient
        steps.
    """
    return Objective(
        lambda fit: problem.value(objective, *arrays(fit)),
        lambda fit: problem.climb(objective, *arrays(fit)),
    )
