"""Finding the partition and its likelihood inside a NumPyro model; the only file that looks inside a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import biject_to

from bnp_hier.components import Component
from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture

__all__ = ["Hyperprior", "MixtureSites", "MixtureValues", "as_arrays", "find_sites", "hyperprior", "read_values"]

Model = Callable[..., Any]


class MixtureSites(NamedTuple):
    """Names of a mixture model's sites.

    - **partition** - the site whose distribution is a `ChineseRestaurantProcess`.
    - **observed** - the observed site whose distribution is a `ConjugateMixture` on that partition.
    - **hyperparameters** - the other latent sites, in the order of the model.
    - **size** - number of items n.
    - **max_clusters** - the capacity that the partition site declares, or None.
    """

    partition: str
    observed: str
    hyperparameters: tuple[str, ...]
    size: int
    max_clusters: int | None


class MixtureValues(NamedTuple):
    """What a mixture model says at given hyperparameters.

    - **concentration**, **discount** - of the partition prior.
    - **component** - the conjugate component.
    - **X** - the observed table.
    """

    concentration: Float[Array, ""]
    discount: Float[Array, ""]
    component: Component
    X: Float[Array, "n d"]


def _trace(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any], substitute_fn: Any) -> dict[str, Any]:
    seeded = handlers.seed(handlers.substitute(model, substitute_fn=substitute_fn), jax.random.key(0))
    return handlers.trace(seeded).get_trace(*args, **kwargs)


def find_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> MixtureSites:
    """Find the partition site and the likelihood on it, by running the model once on the given arguments.

    Raises
    ------
    ValueError
        If the model has no site, or several, with a partition prior; or none, or several, observed `ConjugateMixture` on
        it; or if either sits in a plate.
    """
    trace: dict[str, Any] = {}
    # abstractly: nothing is computed or compiled
    jax.eval_shape(lambda: trace.update(_trace(model, args, kwargs or {}, _feasible)))
    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    latent = {name: site for name, site in samples.items() if not site["is_observed"]}
    partitions = [name for name, site in latent.items() if isinstance(site["fn"], ChineseRestaurantProcess)]
    found = ", ".join(f"{name}: {type(site['fn']).__name__}" for name, site in samples.items()) or "no sample sites"
    if len(partitions) != 1:
        many = f"{len(partitions)} partition sites {partitions}" if partitions else "no partition site"
        raise ValueError(
            f"the model has {many}; expected exactly one unobserved site with a ChineseRestaurantProcess, outside any plate "
            f"(its sites are {found})"
        )
    likelihoods = [n for n, s in samples.items() if s["is_observed"] and isinstance(s["fn"], ConjugateMixture)]
    if len(likelihoods) != 1:
        raise ValueError(
            f"the model has {len(likelihoods)} observed sites with a ConjugateMixture; expected exactly one, with "
            f'assignments from the partition site "{partitions[0]}" (its sites are {found})'
        )
    prior, mixture = samples[partitions[0]]["fn"], samples[likelihoods[0]]["fn"]
    if prior.batch_shape or mixture.batch_shape:
        raise ValueError("the partition and its likelihood must not have batch dimensions or sit in a plate")
    shape = jnp.shape(samples[likelihoods[0]]["value"])
    if shape != mixture.event_shape or shape[0] != prior.size:
        raise ValueError(
            f'site "{likelihoods[0]}" is observed with shape {shape}, but the partition has {prior.size} items and the '
            f"component {mixture.component.dim} columns; expected ({prior.size}, {mixture.component.dim})"
        )
    if mixture.assignments is not samples[partitions[0]]["value"]:
        # perhaps the same labels after some conversion: look at numbers
        concrete = _trace(model, args, kwargs or {}, _feasible)
        if not np.array_equal(concrete[likelihoods[0]]["fn"].assignments, concrete[partitions[0]]["value"]):
            raise ValueError(
                f'the ConjugateMixture of site "{likelihoods[0]}" must take its assignments from the partition site '
                f'"{partitions[0]}", but its labels are others'
            )
    hyperparameters = tuple(name for name in latent if name != partitions[0])
    return MixtureSites(partitions[0], likelihoods[0], hyperparameters, prior.size, prior.max_clusters)


def read_values(
    model: Model,
    sites: MixtureSites,
    hyperparameters: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
) -> MixtureValues:
    """The partition prior's parameters, the component and the data at the given hyperparameters; works under ``jit``."""
    trace = _trace(model, args, kwargs or {}, lambda site: hyperparameters.get(site["name"], _placeholder(site)))
    prior, observed = trace[sites.partition]["fn"], trace[sites.observed]
    return MixtureValues(prior.concentration, prior.discount, observed["fn"].component, observed["value"])


def as_arrays(values: MixtureValues) -> MixtureValues:
    """The values as JAX arrays of the precision in force.

    NumPy constants that were once traced in single precision would stay single in a later double-precision program.
    """
    return jax.tree.map(jnp.asarray, values)


def _placeholder(site: dict[str, Any]) -> Any:
    """All items in one cluster: a partition is never drawn, and its value does not matter for reading parameters."""
    if site["type"] == "sample" and isinstance(site["fn"], ChineseRestaurantProcess) and not site["is_observed"]:
        return np.zeros(site["fn"].shape(), int)
    return None


def _feasible(site: dict[str, Any]) -> Any:
    """Some legal value of any latent site, also of one that cannot be drawn, such as an improper prior's."""
    if site["type"] != "sample" or site["is_observed"] or isinstance(site["fn"], ChineseRestaurantProcess):
        return _placeholder(site)
    return site["fn"].support.feasible_like(jnp.zeros(site["fn"].shape()))


class Hyperprior(NamedTuple):
    """Prior of the hyperparameters of a model, as functions of an unconstrained dictionary.

    - **start** - unconstrained values at the prior medians.
    - **constrain** - maps unconstrained values to the sites' own.
    - **log_prob** - log prior density at constrained values (nats), no Jacobian.
    """

    start: dict[str, Any]
    constrain: Callable[[Mapping[str, Any]], dict[str, Any]]
    log_prob: Callable[[Mapping[str, Any]], Float[Array, ""]]


def hyperprior(model: Model, sites: MixtureSites, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Hyperprior:
    """Medians, constraints and density of the model's hyperparameters.

    Medians follow the model: a hyperparameter whose prior depends on another has its median given the other's.

    Raises
    ------
    ValueError
        If a hyperparameter is discrete.
    """
    kwargs = kwargs or {}

    def median(site: dict[str, Any]) -> Any:
        if site["type"] == "sample" and site["name"] in sites.hyperparameters:
            return _median(site["fn"])
        return _placeholder(site)

    trace = _trace(model, args, kwargs, median)
    for name in sites.hyperparameters:
        if trace[name]["fn"].support.is_discrete:
            raise ValueError(f'hyperparameter site "{name}" is discrete; only continuous hyperparameters can be set or fitted')
    start = {n: biject_to(trace[n]["fn"].support).inv(trace[n]["value"]) for n in sites.hyperparameters}

    def constrain(unconstrained: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}

        def constrained(site: dict[str, Any]) -> Any:
            if site["type"] == "sample" and site["name"] in unconstrained:
                values[site["name"]] = biject_to(site["fn"].support)(unconstrained[site["name"]])
                return values[site["name"]]
            return _placeholder(site)

        _trace(model, args, kwargs, constrained)
        return values

    def log_prob(values: Mapping[str, Any]) -> Float[Array, ""]:
        trace = _trace(model, args, kwargs, lambda site: values.get(site["name"], _placeholder(site)))
        total = jnp.zeros(())
        for name in sites.hyperparameters:
            total = total + jnp.sum(trace[name]["fn"].log_prob(values[name]))
        return total

    return Hyperprior(start, constrain, log_prob)


def _median(distribution: dist.Distribution) -> Any:
    """Median of each coordinate, from the quantile function, the distribution function, or 1001 draws with a fixed key."""
    if isinstance(distribution, dist.Independent):
        return _median(distribution.base_dist)
    if isinstance(distribution, dist.ExpandedDistribution):
        return jnp.broadcast_to(_median(distribution.base_dist), distribution.shape())
    for median_of in (_median_from_quantiles, _median_from_cdf, _median_from_draws):
        try:
            median = median_of(distribution)
        except (NotImplementedError, ImportError):  # NumPyro's gamma quantiles need a package of their own
            continue
        if np.isfinite(np.asarray(median)).all():
            return median
    raise ValueError(f"the prior {type(distribution).__name__} of a hyperparameter has no finite median")


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
    distance = ((draws - jnp.median(draws, axis=0)) ** 2).reshape(draws.shape[0], -1).sum(-1)
    return draws[jnp.argmin(distance)]
