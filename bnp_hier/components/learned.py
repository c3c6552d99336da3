"""Components whose hyperparameters are learned: weakly informative priors on them, in units of the data."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.components.base import Component
from bnp_hier.components.incomplete_rows import moments_of_incomplete_rows
from bnp_hier.utils.arrays import is_traced, own_arrays
from bnp_hier.utils.padding import padded_size

__all__ = [
    "BUILDERS",
    "LearnedPrior",
    "about",
    "blended_covariance",
    "builder",
    "correlation_prior",
    "few_rows",
    "given_or_learned",
    "prior_of",
]

OWN_VARIANCE = 0.01
"""Share of the diagonal in the covariance matrix of the data, which makes it positive definite."""


BUILDERS: dict[str, Callable[..., Component]] = {}
"""Functions that make components from hyperparameters, by name: saved models refer to them."""


def builder(function: Callable[..., Component]) -> Callable[..., Component]:
    """Register a function for `LearnedPrior.build`, of which it is the first part of a `functools.partial`."""
    BUILDERS[function.__name__] = function
    return function


@dataclass(frozen=True)
class LearnedPrior:
    """A component with priors on its hyperparameters, made by `from_data`, to be passed to a model as its `component`.

    Called inside a NumPyro model, it samples the hyperparameters and returns the component; `ConjugateMixture` does so by
    itself. Deterministic methods fit the hyperparameters (see their option `optimize`), and kernels such as
    `HyperparameterGibbs` sample them.

    Parameters
    ----------
    family
        Class of the component.
    priors
        Site -> prior distribution of the hyperparameters.
    build
        Function of the hyperparameters, passed by name, that returns the component.
    starts
        Site -> values from which deterministic methods start, beside the prior median. The first values of all sites belong
        together, and so do the second ones, and so on.
    prefix
        Beginning of the names of all sites.

    Examples
    --------
    >>> from bnp_hier import BetaBernoulli
    >>> BetaBernoulli.from_data([[0, 1], [1, 1]])
    LearnedPrior(BetaBernoulli, strength ~ LogNormal)
    """

    family: type[Component]
    priors: Mapping[str, dist.Distribution]
    build: Callable[..., Component]
    starts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    prefix: str = ""

    def __call__(self, X: Any = None) -> Component:
        """Sample the hyperparameters as sites of the model that is running, and return the component.

        Parameters
        ----------
        X
            Ignored: the priors were derived from the data before.
        """
        # copies, for the reason given in `own_arrays`; the originals would also keep what distributions compute once
        values = {
            name: numpyro.sample(self.prefix + name, own_arrays(prior), infer={"starts": tuple(self.starts.get(name, ()))})
            for name, prior in self.priors.items()
        }
        return self.built(values)

    def built(self, values: Mapping[str, Any]) -> Component:
        """Return the component with the given hyperparameters, by their names without prefix."""
        build: Any = self.build
        if isinstance(build, partial):
            build = partial(build.func, *own_arrays(build.args), **own_arrays(build.keywords))
        return build(**values)

    def named(self, prefix: str) -> Self:
        """The same priors at sites whose names begin with `prefix`."""
        return replace(self, prefix=prefix + self.prefix)

    def __repr__(self) -> str:
        sites = ", ".join(f"{self.prefix}{name} ~ {_family_of(prior)}" for name, prior in self.priors.items())
        return f"LearnedPrior({self.family.__name__}, {sites})"


def _family_of(prior: dist.Distribution) -> str:
    name = type(prior).__name__
    return f"Truncated{type(prior.base_dist).__name__}" if "Truncated" in name else name


def about(value: float, size: int | None = None) -> dist.Distribution:
    """Log-normal prior with the given median; 95 % of its mass lies within a factor of 7.

    Parameters
    ----------
    value
        The median.
    size
        Number of independent values; None for a scalar.
    """
    shape = () if size is None else (size,)
    return dist.LogNormal(np.full(shape, np.log(value)), np.ones(shape))


def few_rows() -> dist.Distribution:
    """Prior of the weight of a prior mean, in rows: Gamma(2, 20), with mean 0.1 and a light upper tail.

    With a weight of a row or more, cluster means are close to each other a priori, and slices of one cluster cost little.
    """
    return dist.Gamma(2.0, 20.0)


def prior_of(family: type[Component], X: ArrayLike, learn: bool, **options: Any) -> Component | LearnedPrior:
    """The family's `from_data`, with hyperparameters learned if it can learn them."""
    able = "learn" in inspect.signature(family.from_data).parameters
    return family.from_data(X, **options, **({"learn": learn} if able else {}))


def given_or_learned(
    given: Mapping[str, Any], priors: Mapping[str, dist.Distribution]
) -> tuple[dict[str, Any], dict[str, dist.Distribution]]:
    """Split hyperparameters into the numbers that the user gave, and the priors of the others."""
    fixed = {name: value for name, value in given.items() if value is not None}
    return fixed, {name: prior for name, prior in priors.items() if name not in fixed}


def blended_covariance(X: ArrayLike, variance: ArrayLike) -> Float[Array | np.ndarray, "d d"]:
    """Covariance matrix of the data, with a hundredth of its diagonal in place of as much of itself.

    Of traced data, only complete rows count.
    """
    xp: Any = jnp if is_traced(X) else np
    rows = xp.asarray(X, dtype=None if is_traced(X) else np.float64)
    d = rows.shape[1]
    if not is_traced(X) and np.isnan(rows).any():
        found = moments_of_incomplete_rows(rows)[1]
        scale = np.sqrt(np.asarray(variance) / np.diagonal(found))  # of the values that are there
        covariance = scale[:, None] * found * scale
    elif is_traced(X):
        there = ~jnp.isnan(rows).any(axis=1, keepdims=True)
        n = there.sum(dtype=rows.dtype)
        centred = jnp.where(there, rows - jnp.where(there, rows, 0.0).sum(axis=0) / n, 0.0)
        covariance = centred.T @ centred / n
    else:
        covariance = np.cov(rows.T, bias=True).reshape(d, d)
    return (1 - OWN_VARIANCE) * covariance + OWN_VARIANCE * xp.diag(xp.asarray(variance))


def correlation_prior(rows: int, columns: int) -> dist.Distribution:
    """Prior of the share of the data's own correlations in the scale matrix: half-normal on [0, 1].

    The correlations are estimated from the rows that they then explain. As in the Bayesian information criterion, each one
    costs half the logarithm of the number of rows (over 2π): a share of 1 is less probable than a share of 0 by that much.
    """
    counted = padded_size(rows)  # similar numbers of rows share programs, into which the cost is compiled
    cost = columns * (columns - 1) / 4 * np.log(max(counted / (2 * np.pi), math.e))
    return dist.TruncatedNormal(0.0, 1.0 / np.sqrt(2.0 * cost), low=0.0, high=1.0)
