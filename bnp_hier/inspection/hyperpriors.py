"""Priors of a mixture model's hyperparameters, and their medians, from which searches start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import biject_to, constraints

from bnp_hier.inspection.collapsed import MixtureSites
from bnp_hier.inspection.scipy_distributions import scipy_distribution
from bnp_hier.inspection.trace import Model, influences, log_density_of, placeholder, run_model, sources_of
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.programs import compiled

__all__ = ["Hyperprior", "hyperprior", "one_program"]


class Hyperprior(NamedTuple):
    """Prior of the hyperparameters of a model, as functions of an unconstrained dictionary.

    - **start** - unconstrained values at the prior medians.
    - **constrain** - maps unconstrained values to constrained values of the sites.
    - **unconstrain** - the inverse of `constrain`.
    - **log_prob** - log prior density at constrained values (nats), without a Jacobian; with the densities of factors and other
      observed sites that depend on these values.
    - **tails** - smaller tail probability of constrained values under the priors of unbounded hyperparameters that have a
      distribution function; 1 where the density is as high as at the median.
    - **starts** - further unconstrained values to start from: those that sites have as ``infer={"starts": (first, ...)}``,
      the first ones of all sites together, and so on; sites that have fewer, or none, are at their medians.
    """

    start: dict[str, Any]
    constrain: Callable[[Mapping[str, Any]], dict[str, Any]]
    unconstrain: Callable[[Mapping[str, Any]], dict[str, Any]]
    log_prob: Callable[[Mapping[str, Any]], Float[Array, ""]]
    tails: Callable[[Mapping[str, Any]], dict[str, np.ndarray]]
    starts: tuple[dict[str, Any], ...] = ()


def hyperprior(model: Model, sites: MixtureSites, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Hyperprior:
    """Return the prior medians, constraints and prior density of the model's hyperparameters.

    Medians are taken in the order of the model: if the prior of a hyperparameter depends on another one, its median is
    conditional on the median of the other.

    Raises
    ------
    ValueError
        If a hyperparameter is discrete.
    """
    kwargs = kwargs or {}

    def median(site: dict[str, Any]) -> Any:
        if site["type"] == "sample" and site["name"] in sites.hyperparameters:
            return _median(site["fn"])
        return placeholder(site)

    trace = run_model(model, args, kwargs, median)
    for name in sites.hyperparameters:
        if trace[name]["fn"].support.is_discrete:
            raise ValueError(f'hyperparameter site "{name}" is discrete; only continuous hyperparameters can be set or fitted')

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        inner = run_model(model, args, kwargs, lambda site: values.get(site["name"], placeholder(site)))
        return {name: sources_of(inner[name]) for name in others}

    # factors, and other data that depend on the hyperparameters
    apart = {*sites.hyperparameters, sites.partition, sites.observed, sites.missing}
    others = [name for name, site in trace.items() if site["type"] == "sample" and name not in apart]
    given = {name: jnp.asarray(trace[name]["value"]) for name in sites.hyperparameters}
    further = tuple(name for name, sources in influences(read, given).items() if sources) if others else ()

    def to_constrained(unconstrained: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}

        def constrained(site: dict[str, Any]) -> Any:
            if site["type"] == "sample" and site["name"] in unconstrained:
                values[site["name"]] = biject_to(site["fn"].support)(unconstrained[site["name"]])
                return values[site["name"]]
            return placeholder(site)

        run_model(model, args, kwargs, constrained)
        return values

    def to_unconstrained(values: Mapping[str, Any]) -> dict[str, Any]:
        trace = run_model(model, args, kwargs, lambda site: values.get(site["name"], placeholder(site)))
        return {n: biject_to(trace[n]["fn"].support).inv(values[n]) for n in sites.hyperparameters}

    def log_density(values: Mapping[str, Any]) -> Float[Array, ""]:
        trace = run_model(model, args, kwargs, lambda site: values.get(site["name"], placeholder(site)))
        total = jnp.zeros(())
        for name in (*sites.hyperparameters, *further):
            total = total + jnp.sum(log_density_of(trace[name]))
        return total

    constrained, unconstrained, log_prob = map(one_program, (to_constrained, to_unconstrained, log_density))

    def in_order(found: Mapping[str, Any]) -> dict[str, Any]:
        return {name: found[name] for name in sites.hyperparameters if name in found}

    def constrain(values: Mapping[str, Any]) -> dict[str, Any]:
        return in_order(constrained(values))

    def unconstrain(values: Mapping[str, Any]) -> dict[str, Any]:
        return in_order(unconstrained(values))

    medians = {name: trace[name]["value"] for name in sites.hyperparameters}
    declared = {name: trace[name]["infer"].get("starts", ()) for name in sites.hyperparameters}

    def declared_values(k: int) -> dict[str, Any]:
        own = {n: np.asarray(values[k], medians[n].dtype) for n, values in declared.items() if k < len(values)}
        return {**medians, **own}

    starts = tuple(unconstrain(declared_values(k)) for k in range(max(map(len, declared.values()), default=0)))

    def tails(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        trace = run_model(model, args, kwargs, lambda site: values.get(site["name"], placeholder(site)))
        found = {name: _tail(trace[name]["fn"], values[name]) for name in sites.hyperparameters}
        return {name: tail for name, tail in found.items() if tail is not None}

    return Hyperprior(unconstrain(medians), constrain, unconstrain, log_prob, tails, starts)


def one_program(function: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Run a function of concrete values as one program that other models of the same form share.

    Otherwise, each of the many operations of a model would be loaded as a program of its own.
    """
    programs: dict[Any, Callable[..., Any]] = {}

    def run(values: Mapping[str, Any]) -> Any:
        if not values or is_traced(values):
            return function(values)
        given = {name: np.asarray(value) for name, value in values.items()}
        key = tuple((name, value.shape, value.dtype) for name, value in sorted(given.items()))
        if key not in programs:
            programs[key] = compiled(function, given)
        return programs[key](given)

    return run


def _median(distribution: dist.Distribution) -> Any:
    """Median of each coordinate, from the quantile function, the distribution function, or 1001 draws with a fixed key."""
    if isinstance(distribution, dist.Independent):
        return _median(distribution.base_dist)
    if isinstance(distribution, dist.ExpandedDistribution):
        return jnp.broadcast_to(_median(distribution.base_dist), distribution.shape())
    if isinstance(distribution, dist.LKJCholesky):  # every correlation has median 0
        return jnp.broadcast_to(jnp.eye(distribution.dimension), distribution.shape())
    counterpart = scipy_distribution(distribution)
    if counterpart is not None and np.isfinite(counterpart.median()).all():
        return np.broadcast_to(np.asarray(counterpart.median(), jnp.result_type(float)), distribution.shape())
    for median_of in (_median_from_quantiles, _median_from_cdf, _median_from_draws):
        try:
            median = median_of(distribution)
        except (NotImplementedError, ImportError):  # NumPyro's gamma quantiles need an additional package
            continue
        if np.isfinite(np.asarray(median)).all():
            return median
    raise ValueError(f"the prior {type(distribution).__name__} of a hyperparameter has no finite median")


def _tail(distribution: dist.Distribution, value: Any) -> np.ndarray | None:
    """Smaller tail probability of each coordinate; None for bounded ones and without a distribution function.

    Where the density is as high as at the median, as that of an exponential prior is at 0, it counts as 1.
    """
    while isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        distribution = distribution.base_dist
    if distribution.event_shape or distribution.support not in (constraints.positive, constraints.real):
        return None
    counterpart = scipy_distribution(distribution)
    if counterpart is not None and not is_traced(value):
        held_back = counterpart.logpdf(value) < counterpart.logpdf(counterpart.median())
        return np.where(held_back, np.minimum(counterpart.cdf(value), counterpart.sf(value)), 1.0)
    try:
        return np.asarray(_tail_beyond(distribution, value, _median(distribution)))
    except (NotImplementedError, ImportError):
        return None


@jax.jit
def _tail_beyond(distribution: dist.Distribution, value: Any, median: Any) -> Float[Array, "..."]:
    below = distribution.cdf(value)
    held_back = distribution.log_prob(value) < distribution.log_prob(median)
    return jnp.where(held_back, jnp.minimum(below, 1.0 - below), 1.0)


@jax.jit  # one program from the disk, rather than one for every operation
def _median_from_quantiles(distribution: dist.Distribution) -> Float[Array, "..."]:
    return distribution.icdf(jnp.full(distribution.shape(), 0.5))


@jax.jit
def _median_from_cdf(distribution: dist.Distribution) -> Float[Array, "..."]:
    if distribution.event_shape:
        raise NotImplementedError
    transform = biject_to(distribution.support)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        below = distribution.cdf(transform(middle)) < 0.5
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    # bisection in the unconstrained space
    ends = jnp.full(distribution.shape(), -80.0), jnp.full(distribution.shape(), 80.0)
    low, high = jax.lax.fori_loop(0, 100, halve, ends)
    return transform((low + high) / 2)


def _median_from_draws(distribution: dist.Distribution) -> Float[Array, "..."]:
    draws = distribution.sample(jax.random.key(0), (1001,))
    # the draw nearest the coordinate-wise median: always inside the support
    distance = ((draws.astype(float) - jnp.median(draws, axis=0, keepdims=True)) ** 2).reshape(draws.shape[0], -1).sum(-1)
    return draws[jnp.argmin(distance)]
