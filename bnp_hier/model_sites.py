"""Finding the partition and its likelihood inside a NumPyro model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Num
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import init_to_uniform

from bnp_hier.components import Component
from bnp_hier.components.base import own_arrays
from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture, FiniteMixture, StickBreaking
from bnp_hier.model_trace import (
    TRACING,
    Model,
    base_distribution,
    feasible,
    listed_sites,
    placeholder,
    run_model,
    sample_sites,
)

__all__ = [
    "Hyperprior",
    "MixtureSites",
    "MixtureValues",
    "SlotSites",
    "SlotValues",
    "StickSites",
    "StickValues",
    "as_arrays",
    "check_row_densities",
    "find_any_sites",
    "find_sites",
    "find_slot_sites",
    "find_stick_sites",
    "hyperprior",
    "read_slot_values",
    "read_stick_values",
    "read_values",
]


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
    X: Num[Array | np.ndarray, "n d"]


def _partition_site(samples: Mapping[str, Any]) -> str:
    """Name of the one latent site with a partition prior.

    Raises
    ------
    ValueError
        If there is none, or several.
    """
    partitions = [
        name for name, site in samples.items() if not site["is_observed"] and isinstance(site["fn"], ChineseRestaurantProcess)
    ]
    if len(partitions) != 1:
        many = f"{len(partitions)} partition sites {partitions}" if partitions else "no partition site"
        raise ValueError(
            f"the model has {many}; expected exactly one unobserved site with a ChineseRestaurantProcess, outside any plate "
            f"(its sites are {listed_sites(samples)})"
        )
    return partitions[0]


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
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    partition, found = _partition_site(samples), listed_sites(samples)
    likelihoods = [n for n, s in samples.items() if s["is_observed"] and isinstance(s["fn"], ConjugateMixture)]
    if len(likelihoods) != 1:
        raise ValueError(
            f"the model has {len(likelihoods)} observed sites with a ConjugateMixture; expected exactly one, with "
            f'assignments from the partition site "{partition}" (its sites are {found})'
        )
    prior, mixture = samples[partition]["fn"], samples[likelihoods[0]]["fn"]
    if prior.batch_shape or mixture.batch_shape:
        raise ValueError("the partition and its likelihood must not have batch dimensions or sit in a plate")
    shape = jnp.shape(samples[likelihoods[0]]["value"])
    if shape != mixture.event_shape or shape[0] != prior.size:
        raise ValueError(
            f'site "{likelihoods[0]}" is observed with shape {shape}, but the partition has {prior.size} items and the '
            f"component {mixture.component.dim} columns; expected ({prior.size}, {mixture.component.dim})"
        )
    if mixture.assignments is not samples[partition]["value"]:
        # perhaps the same labels after some conversion: look at numbers
        concrete = run_model(model, args, kwargs or {}, feasible)
        if not np.array_equal(concrete[likelihoods[0]]["fn"].assignments, concrete[partition]["value"]):
            raise ValueError(
                f'the ConjugateMixture of site "{likelihoods[0]}" must take its assignments from the partition site '
                f'"{partition}", but its labels are others'
            )
    hyperparameters = tuple(name for name in latent if name != partition)
    return MixtureSites(partition, likelihoods[0], hyperparameters, prior.size, prior.max_clusters)


def read_values(
    model: Model,
    sites: MixtureSites,
    hyperparameters: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
) -> MixtureValues:
    """The partition prior's parameters, the component and the data at the given hyperparameters; works under ``jit``."""
    trace = run_model(model, args, kwargs or {}, lambda site: hyperparameters.get(site["name"], placeholder(site)))
    prior, observed = trace[sites.partition]["fn"], trace[sites.observed]
    component, X = observed["fn"].component.centred_on(observed["value"]), observed["value"]
    return own_arrays(MixtureValues(prior.concentration, prior.discount, component, X))


class SlotSites(NamedTuple):
    """Names of the sites of a mixture whose component parameters are sites of their own, in a plate over cluster slots.

    - **partition** - the site whose distribution is a `ChineseRestaurantProcess`; its labels name slots.
    - **observed** - the observed sites whose densities depend on the labels.
    - **local** - the latent sites whose densities depend on the labels: one value a row.
    - **parameters** - the other latent sites, in the order of the model.
    - **size** - number of items n.
    - **slots** - number of slots K that labels may name: the partition site's `max_clusters`, at most n.
    """

    partition: str
    observed: tuple[str, ...]
    local: tuple[str, ...]
    parameters: tuple[str, ...]
    size: int
    slots: int


class SlotValues(NamedTuple):
    """What such a model says at given values of its other sites.

    - **concentration**, **discount** - of the partition prior.
    - **log_density** - log density of each row in each slot: of all its sites that depend on the labels (nats).
    """

    concentration: Float[Array, ""]
    discount: Float[Array, ""]
    log_density: Float[Array, "n k"]


def find_slot_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> SlotSites:
    """Find the partition site and what depends on its labels, by tracing the model once on the given arguments.

    Raises
    ------
    ValueError
        If the model has no site, or several, with a partition prior; or it sits in a plate, has fewer than two items or
        declares no `max_clusters`; or no observed site depends on its labels; or a site that does has not one
        density per item.
    """
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    partition = _partition_site(samples)
    prior = samples[partition]["fn"]
    if prior.batch_shape:
        raise ValueError("the partition must not have batch dimensions or sit in a plate")
    if prior.size < 2:
        raise ValueError(f'partition site "{partition}" has {prior.size} item; clustering needs at least 2')
    if prior.max_clusters is None:
        raise ValueError(
            f'partition site "{partition}" has max_clusters=None; expected '
            "ChineseRestaurantProcess(..., max_clusters=K) with K the size of the plate over the clusters' parameters"
        )

    def densities(labels: Array) -> dict[str, Array]:
        inner = run_model(model, args, kwargs or {}, lambda site: labels if site["name"] == partition else feasible(site))
        return {name: _log_density(inner[name]) for name in samples if name != partition}

    program, shapes = jax.make_jaxpr(densities, return_shape=True)(jax.ShapeDtypeStruct((prior.size,), jnp.result_type(int)))
    # variables that the labels reach; each is defined before it is used
    reached = {id(variable) for variable in program.jaxpr.invars}
    for equation in program.jaxpr.eqns:
        if any(id(variable) in reached for variable in equation.invars):
            reached |= {id(variable) for variable in equation.outvars}
    depends = dict(zip(sorted(shapes), (id(variable) in reached for variable in program.jaxpr.outvars), strict=True))
    for name, shape in shapes.items():
        if depends[name] and shape.shape != (prior.size,):
            raise ValueError(
                f'site "{name}" depends on the labels of "{partition}" and has densities of shape {shape.shape}, but the '
                f"partition has {prior.size} items; expected one density per item, shape ({prior.size},): a plate over the "
                "items, columns joined by to_event(1)"
            )
    observed = tuple(name for name in shapes if depends[name] and name not in latent)
    if not observed:
        raise ValueError(
            f'no observed site depends on the labels of the partition site "{partition}" (the model\'s sites are '
            f"{listed_sites(samples)}); expected one such as dist.Normal(loc[{partition}], 1.0) in a plate over the items"
        )
    local = tuple(name for name in shapes if depends[name] and name in latent)
    parameters = tuple(name for name in latent if name not in (partition, *local))
    return SlotSites(partition, observed, local, parameters, prior.size, min(prior.size, prior.max_clusters))


def read_slot_values(
    model: Model,
    sites: SlotSites,
    values: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
) -> SlotValues:
    """The partition prior's parameters and the table of log densities at given latent values; works under ``jit``.

    Sites that `values` does not name must be conditioned in `kwargs`, as `numpyro.infer.Gibbs` does. The arguments may hold
    another number of rows than the fitted ones.
    """
    prior = _trace_at(model, sites, values, 0, args, kwargs)[sites.partition]["fn"]

    def column(slot: Array) -> Array:
        return _rows(_trace_at(model, sites, values, slot, args, kwargs), sites)

    log_density = jax.vmap(column, out_axes=1)(jnp.arange(sites.slots))
    return SlotValues(jnp.asarray(prior.concentration), jnp.asarray(prior.discount), log_density)


def check_row_densities(model: Model, sites: SlotSites, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> None:
    """Check by numbers that the density of a row depends on no other row's label, at a draw of the other latent sites.

    Raises
    ------
    ValueError
        If it does; if a row's density is NaN in every slot; or if the last two slots share their parameters.
    """
    size, slots = sites.size, sites.slots
    latent: dict[str, Any] = {}
    labels = np.random.default_rng(0).integers(slots, size=(3, size))

    def densities() -> tuple[Array, Array]:
        def drawn(site: dict[str, Any]) -> Any:
            return np.zeros(size, int) if site["name"] == sites.partition else init_to_uniform(site)

        drawing = handlers.substitute(handlers.seed(model, jax.random.key(0)), substitute_fn=drawn)
        with TRACING:
            trace = handlers.trace(drawing).get_trace(*args, **(kwargs or {}))
        latent.update((name, trace[name]["fn"].support) for name in sites.parameters)
        values = {name: trace[name]["value"] for name in (*sites.parameters, *sites.local)}
        table = read_slot_values(model, sites, values, args, kwargs).log_density
        mixed = jax.vmap(lambda z: _rows(_trace_at(model, sites, values, z, args, kwargs), sites))(jnp.asarray(labels))
        return table, mixed

    # compiled ahead of time it runs on numbers also where a chain method stages `init` out
    table, mixed = map(np.asarray, jax.jit(densities).lower().compile()())
    nans = np.isnan(table).all(1)
    if nans.any():
        raise ValueError(f"the log density of row {np.argmax(nans)} is NaN in every slot; does the row have missing values?")
    continuous = latent and not any(support.is_discrete for support in latent.values())
    if slots > 1 and continuous and np.array_equal(table[:, -2], table[:, -1]):
        # JAX reads the last entry of an array where an index leads beyond it
        raise ValueError(
            f"the last two of {slots} slots give every row the same density: is the plate over the clusters' parameters "
            f'smaller than max_clusters of "{sites.partition}"?'
        )
    alone = table[np.arange(size), labels]
    moved = ~np.isclose(mixed, alone, rtol=1e-4, atol=1e-4, equal_nan=True)
    if moved.any():
        draw, row = np.argwhere(moved)[0]
        raise ValueError(
            f"the log density of row {row} moves from {alone[draw, row]:.6g} to {mixed[draw, row]:.6g} nats when only other "
            f"rows' labels change; expected densities of {list(sites.observed + sites.local)} that depend on the row's own "
            f'label in "{sites.partition}" only'
        )


def _trace_at(
    model: Model,
    sites: SlotSites,
    values: Mapping[str, Any],
    labels: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The model run at given latent values and labels; one label stands for all items."""

    def at(site: dict[str, Any]) -> Any:
        if site["name"] == sites.partition:
            return jnp.broadcast_to(jnp.asarray(labels, int), site["fn"].shape())
        return values.get(site["name"])

    return run_model(model, args, kwargs or {}, at)


def _rows(trace: Mapping[str, Any], sites: SlotSites) -> Float[Array, " n"]:
    """Log density of each row: all sites that depend on the labels (nats)."""
    return sum((_log_density(trace[name]) for name in (*sites.observed, *sites.local)), start=jnp.zeros(()))


def _log_density(site: Mapping[str, Any]) -> Float[Array, "..."]:
    """Log density of a site's value, scaled if the model says so (nats)."""
    log_prob = site["fn"].log_prob(site["value"])
    return log_prob if site["scale"] is None else site["scale"] * log_prob


class StickSites(NamedTuple):
    """Names of the sites of a truncated stick-breaking mixture with its labels summed out.

    - **weights** - the site whose distribution is `StickBreaking`.
    - **observed** - the observed site whose distribution is a mixture with that many components.
    - **parameters** - all latent sites, in the order of the model.
    - **truncation** - number of components K.
    - **conjugate** - whether the mixture is a `FiniteMixture`, which names its conjugate component.
    """

    weights: str
    observed: str
    parameters: tuple[str, ...]
    truncation: int
    conjugate: bool


class StickValues(NamedTuple):
    """What such a model says at given values of its sites.

    - **concentration** - α of the sticks.
    - **log_density** - log w_k f(x_i|θ_k) (nats).
    - **component** - the conjugate component that the parameters belong to, or None if the model names none.
    - **X** - the observed table.
    """

    concentration: Float[Array, ""]
    log_density: Float[Array, "m k"]
    component: Component | None
    X: Num[Array | np.ndarray, "n d"]


def find_stick_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> StickSites:
    """Find the weights and the mixture that they weigh, by tracing the model once on the given arguments.

    Raises
    ------
    ValueError
        If the model has no latent site, or several, with `StickBreaking` weights; or none, or several, observed sites with a
        mixture; or they disagree about the number of components; or the mixture differs from row to row.
    """
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    found = f"(its sites are {listed_sites(samples)})"
    weights = [name for name, site in latent.items() if isinstance(site["fn"], StickBreaking)]
    if len(weights) != 1:
        raise ValueError(f"the model has {len(weights)} latent sites with StickBreaking weights; expected exactly one {found}")
    mixtures = [
        name
        for name, site in samples.items()
        if site["is_observed"] and isinstance(base_distribution(site["fn"]), dist.MixtureSameFamily)
    ]
    if len(mixtures) != 1:
        raise ValueError(
            f"the model has {len(mixtures)} observed sites with a FiniteMixture or MixtureSameFamily; expected exactly one, "
            f'weighted by the site "{weights[0]}" {found}'
        )
    mixture, truncation = base_distribution(samples[mixtures[0]]["fn"]), samples[weights[0]]["fn"].truncation
    if mixture.batch_shape or mixture.mixture_size != truncation:
        raise ValueError(
            f'the mixture of site "{mixtures[0]}" has batch shape {mixture.batch_shape} and {mixture.mixture_size} components; '
            f'expected one mixture for all rows, with the {truncation} components of the weights "{weights[0]}"'
        )
    return StickSites(weights[0], mixtures[0], tuple(latent), truncation, isinstance(mixture, FiniteMixture))


def read_stick_values(
    model: Model,
    sites: StickSites,
    values: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    rows: Float[Array, "m d"] | None = None,
) -> StickValues:
    """The concentration and the table of log densities at given latent values; works under ``jit``.

    Densities of the observed rows, or of other rows under the same mixture.
    """
    trace = run_model(model, args, kwargs or {}, lambda site: values.get(site["name"]))
    mixture, X = base_distribution(trace[sites.observed]["fn"]), trace[sites.observed]["value"]
    log_density = mixture.component_log_probs(jnp.asarray(X if rows is None else rows))
    component = mixture.component.centred_on(X) if sites.conjugate else None
    return own_arrays(StickValues(trace[sites.weights]["fn"].concentration, log_density, component, X))


def find_any_sites(
    model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> MixtureSites | SlotSites | StickSites:
    """The sites of a mixture of any form: parameters integrated out, in slots that labels name, or with labels summed out.

    Raises
    ------
    ValueError
        If the model is of no such form.
    """
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    if any(isinstance(site["fn"], StickBreaking) for site in latent.values()):
        return find_stick_sites(model, args, kwargs)
    conjugate = any(isinstance(site["fn"], ConjugateMixture) for site in samples.values())
    if conjugate or not any(isinstance(site["fn"], ChineseRestaurantProcess) for site in latent.values()):
        return find_sites(model, args, kwargs)
    return find_slot_sites(model, args, kwargs)


def as_arrays(values: MixtureValues) -> MixtureValues:
    """The values as JAX arrays of the precision in force."""
    return jax.tree.map(jnp.asarray, values)


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
        return placeholder(site)

    trace = run_model(model, args, kwargs, median)
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
            return placeholder(site)

        run_model(model, args, kwargs, constrained)
        return values

    def log_prob(values: Mapping[str, Any]) -> Float[Array, ""]:
        trace = run_model(model, args, kwargs, lambda site: values.get(site["name"], placeholder(site)))
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
    distance = ((draws.astype(float) - jnp.median(draws, axis=0, keepdims=True)) ** 2).reshape(draws.shape[0], -1).sum(-1)
    return draws[jnp.argmin(distance)]
