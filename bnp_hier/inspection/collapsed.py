"""Find a partition and its collapsed likelihood in a NumPyro model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Num

from bnp_hier.components import Component
from bnp_hier.distributions import ConjugateMixture, MissingValues
from bnp_hier.distributions.seating import GibbsTypePrior, Prior, process_of, seating_prior
from bnp_hier.inspection.trace import (
    Model,
    feasible,
    influences,
    listed_sites,
    partition_site,
    placeholder,
    refuse_scales,
    run_model,
    sample_sites,
    sources_of,
)
from bnp_hier.utils.arrays import own_arrays

__all__ = ["MixtureSites", "MixtureValues", "as_arrays", "find_missing", "find_sites", "read_values"]


class MixtureSites(NamedTuple):
    """Names of a mixture model's sites.

    - **partition** - the site whose distribution is a `ChineseRestaurantProcess`.
    - **observed** - the observed site whose distribution is a `ConjugateMixture` on that partition.
    - **hyperparameters** - the other latent sites, except for missing values, in the order of the model.
    - **size** - number of items n.
    - **max_clusters** - `max_clusters` of the partition site, or None.
    - **missing** - the site of the missing values (`MissingValues`), or None.
    """

    partition: str
    observed: str
    hyperparameters: tuple[str, ...]
    size: int
    max_clusters: int | None
    missing: str | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """All latent sites but the partition."""
        return self.hyperparameters if self.missing is None else (*self.hyperparameters, self.missing)


class MixtureValues(NamedTuple):
    """Partition prior, component and data of a mixture model at given hyperparameters.

    - **prior** - the partition prior.
    - **component** - the conjugate component.
    - **X** - the observed table.
    """

    prior: GibbsTypePrior
    component: Component
    X: Num[Array | np.ndarray, "n d"]

    @property
    def process(self) -> Prior:
        """Parameters of the partition prior, for methods that know only the Dirichlet and the Pitman-Yor process.

        Raises
        ------
        ValueError
            If it is another one.
        """
        return process_of(self.prior)

    @property
    def concentration(self) -> Any:
        """α; see `process`."""
        return self.process.concentration

    @property
    def discount(self) -> Any:
        """δ; see `process`."""
        return self.process.discount


def find_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> MixtureSites:
    """Find the partition site and its likelihood by running the model once on the given arguments.

    Raises
    ------
    ValueError
        If the model does not have exactly one site with a partition prior and exactly one observed `ConjugateMixture` on it,
        if either is inside a plate or its density is scaled, if their sizes disagree, or if anything but the mixture depends on
        the labels.
    """
    trace: dict[str, Any] = {}
    # abstract evaluation: nothing is computed or compiled
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    partition, found = partition_site(samples, any_prior=True), listed_sites(samples)
    likelihoods = [n for n, s in samples.items() if s["is_observed"] and isinstance(s["fn"], ConjugateMixture)]
    if len(likelihoods) != 1:
        advice = "; use AuxiliaryGibbs if the clusters' parameters are sites of the model, without a conjugate prior"
        raise ValueError(
            f"the model has {len(likelihoods)} observed sites with a ConjugateMixture; expected exactly one, with "
            f'assignments from the partition site "{partition}" (its sites are {found})' + advice * (not likelihoods)
        )
    prior, mixture = samples[partition]["fn"], samples[likelihoods[0]]["fn"]
    if prior.batch_shape or mixture.batch_shape:
        raise ValueError("the partition and its likelihood must not have batch dimensions or be inside a plate")
    shape = jnp.shape(samples[likelihoods[0]]["value"])
    if shape != mixture.event_shape or shape[0] != prior.size:
        raise ValueError(
            f'site "{likelihoods[0]}" is observed with shape {shape}, but the partition has {prior.size} items and the '
            f"component {mixture.component.dim} columns; expected ({prior.size}, {mixture.component.dim})"
        )
    if mixture.assignments is not samples[partition]["value"]:
        # these may be the same labels after a conversion: compare the values, all different if the model allows it
        limits = [most for most in (prior.max_clusters, mixture.max_clusters) if most is not None]
        different = np.arange(prior.size) % min([prior.size, *limits])
        concrete = run_model(model, args, kwargs or {}, lambda site: different if site["name"] == partition else feasible(site))
        if not np.array_equal(concrete[likelihoods[0]]["fn"].assignments, concrete[partition]["value"]):
            raise ValueError(
                f'the ConjugateMixture of site "{likelihoods[0]}" must take its assignments from the partition site '
                f'"{partition}", but it has different labels'
            )
    _check_densities(model, samples, partition, likelihoods[0], (args, kwargs or {}))
    missing = [name for name, site in latent.items() if isinstance(site["fn"], MissingValues)]
    if len(missing) > 1:
        raise ValueError(f"the model has several sites of missing values, {', '.join(missing)}; expected one at most")
    hyperparameters = tuple(name for name in latent if name not in (partition, *missing))
    return MixtureSites(
        partition, likelihoods[0], hyperparameters, prior.size, prior.max_clusters, missing[0] if missing else None
    )


def _check_densities(
    model: Model,
    samples: Mapping[str, Any],
    partition: str,
    observed: str,
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
) -> None:
    """Raise `ValueError` if the density of a partition given all else is not that of its prior and its mixture alone."""
    refuse_scales(samples, (partition, observed))
    names = list(samples)
    later = [name for name in names[names.index(partition) + 1 :] if name != observed]

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        trace = run_model(model, *arguments, lambda site: values[partition] if site["name"] == partition else feasible(site))
        mixture = trace[observed]
        own = {"the component": mixture["fn"].component, "the observed table": mixture["value"]}
        return own | {f'site "{name}"': sources_of(trace[name]) for name in later}

    labels = {partition: jax.ShapeDtypeStruct(samples[partition]["fn"].event_shape, jnp.result_type(int))}
    for what, sources in influences(read, labels).items():
        if sources:
            raise ValueError(
                f'{what} depends on the labels of "{partition}", which would be ignored: nothing but the assignments of the '
                f'ConjugateMixture "{observed}" may. For several likelihoods of the same clusters, put their columns in one '
                "table with a ProductComponent, or make the clusters' parameters sites of the model and use AuxiliaryGibbs"
            )


def read_values(
    model: Model,
    sites: MixtureSites,
    hyperparameters: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
) -> MixtureValues:
    """Return the prior's parameters, the component and the data at the given hyperparameters; works under ``jit``."""
    trace = run_model(model, args, kwargs or {}, lambda site: hyperparameters.get(site["name"], placeholder(site)))
    prior, observed = trace[sites.partition]["fn"], trace[sites.observed]
    component, X = own_arrays(observed["fn"].component).centered_on(observed["value"]), observed["value"]
    return own_arrays(MixtureValues(seating_prior(prior), component, X))


def find_missing(
    model: Model, sites: MixtureSites, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Bool[np.ndarray, "n d"]:
    """Find the missing values, which a site of the model completes, in the observed table.

    Raises
    ------
    ValueError
        If the model changes the cells before it observes them, or the component needs no completed rows.
    """
    trace: dict[str, Any] = {}
    assert sites.missing is not None
    missing = sites.missing

    def table(cells: np.ndarray) -> np.ndarray:
        with jax.ensure_compile_time_eval():  # kernels may be initialised under `jit`
            given = {missing: cells}
            trace.update(run_model(model, args, kwargs or {}, lambda site: given.get(site["name"], feasible(site))))
            return np.asarray(trace[sites.observed]["value"])

    prior = run_model(model, args, kwargs or {}, feasible)[missing]["fn"]
    size = prior.event_shape[0]
    numbers = np.arange(1.0, size + 1)
    completed = table(numbers)
    absent = np.isnan(table(np.full(size, np.nan))) & ~np.isnan(completed)
    if absent.sum() != size or not np.array_equal(completed[absent], numbers):
        raise ValueError(f'the model changes the missing values "{missing}" before it observes them in "{sites.observed}"')
    component = trace[sites.observed]["fn"].component
    wrong = np.setdiff1d(np.flatnonzero(absent.any(axis=0)), component.dependent_columns)
    if len(wrong):
        raise ValueError(
            f"{type(component).__name__} leaves missing values out of the likelihood in column {wrong[0]}: the model must not "
            "complete them with `complete_rows`, but only `component.incomplete_cells(X)`"
        )
    return absent


def as_arrays(values: MixtureValues) -> MixtureValues:
    """Convert the values to JAX arrays in the current default precision."""
    return jax.device_put(values)  # `jnp.asarray` would compile a program for every new shape
