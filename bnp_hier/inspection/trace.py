"""Run a NumPyro model and inspect its sites."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.ops.provenance import eval_provenance

from bnp_hier.components import ComponentLikelihood
from bnp_hier.distributions import (
    ChineseRestaurantProcess,
    ConjugateMixture,
    FiniteMixture,
    MissingValues,
    NestedChineseRestaurantProcess,
    PartitionPrior,
    StickBreaking,
    TreeMixing,
)
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.forked_processes import refuse_forked_process
from bnp_hier.utils.input_cells import real_cells

__all__ = [
    "Model",
    "RECOGNIZED",
    "TRACING",
    "base_distribution",
    "feasible",
    "influences",
    "is_scaled",
    "listed_sites",
    "log_density_of",
    "partition_site",
    "placeholder",
    "refuse_scales",
    "run_model",
    "sample_sites",
    "sources_of",
]

Model = Callable[..., Any]
"""A NumPyro model."""

RECOGNIZED = {
    ChineseRestaurantProcess,
    ComponentLikelihood,
    ConjugateMixture,
    FiniteMixture,
    MissingValues,
    NestedChineseRestaurantProcess,
    StickBreaking,
    TreeMixing,
}
"""Distributions whose densities the methods compute by themselves, from the parameters, without calling `log_prob`."""

TRACING = threading.RLock()
"""Lock held while a model runs: threads share NumPyro's handler stack, and would otherwise intercept each other's sites.

Code that runs a model under handlers must hold this lock. `ResumableRun` also holds it while NumPyro's own kernels run the
model: when they start, and in the first chunk of a run, which compiles. `MCMC.run` and other NumPyro functions do not hold it
and need a separate process.
"""


def run_model(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any], substitute_fn: Any) -> dict[str, Any]:
    """Run the model and return all its sites; `substitute_fn` returns a site's value, or None to draw it."""
    refuse_forked_process()
    seeded = handlers.seed(handlers.substitute(model, substitute_fn=substitute_fn), jax.random.key(0))
    with TRACING:
        return handlers.trace(seeded).get_trace(*args, **kwargs)


def sample_sites(trace: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all sample sites, and the latent ones among them.

    Raises
    ------
    TypeError
        If a site is observed with complex numbers, dates or masked cells, which a density would misread as other numbers, or
        has a subclass of a distribution whose density the methods compute without calling its `log_prob`.
    """
    for name, site in trace.items():
        if site["type"] != "sample":
            continue
        kind = type(base_distribution(site["fn"]))
        if inherited := RECOGNIZED.intersection(kind.__mro__[1:]):
            raise TypeError(
                f'site "{name}" has the distribution {kind.__name__}, a subclass of {inherited.pop().__name__}, whose density '
                "would be taken for its own: the methods do not call log_prob. Use the base class, or NumPyro's own kernels"
            )
        if site["is_observed"]:
            where = f'the observed site "{name}"'
            real_cells(site["value"], where)
            if isinstance(site["value"], np.ma.MaskedArray) and np.ma.is_masked(site["value"]):
                raise TypeError(f"{where} has masked cells, whose hidden values a model would use; expected X.filled(np.nan)")
    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    return samples, {name: site for name, site in samples.items() if not site["is_observed"]}


def listed_sites(samples: Mapping[str, Any]) -> str:
    """Format the names and distributions of sites for messages."""
    return ", ".join(f"{name}: {type(site['fn']).__name__}" for name, site in samples.items()) or "no sample sites"


def log_density_of(site: Mapping[str, Any]) -> Float[Array, "..."]:
    """Log density of a site's value, multiplied by the site's scale if it has one (nats)."""
    log_prob = site["fn"].log_prob(site["value"])
    return log_prob if site["scale"] is None else site["scale"] * log_prob


def sources_of(site: Mapping[str, Any]) -> list[Any]:
    """Everything on which the log density of a site depends, without computing it: its distribution, value and scale."""

    def parameters(fn: dist.Distribution) -> list[Any]:
        # all attributes, since those of a user's distribution need not be declared as leaves
        parts = [
            parameters(part) if isinstance(part, dist.Distribution) else jax.tree.leaves(part) for part in vars(fn).values()
        ]
        return [leaf for part in parts for leaf in part]

    return [*parameters(site["fn"]), *jax.tree.leaves((site["value"], site["scale"]))]


def is_scaled(site: Mapping[str, Any]) -> bool:
    """Whether the density of a site is multiplied by another number than one, as by `numpyro.handlers.scale`."""
    scale = site["scale"]
    return scale is not None and (is_traced(scale) or bool(np.any(np.asarray(scale) != 1.0)))


def refuse_scales(samples: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise `ValueError` if the density of one of these sites is scaled, although it is sampled as it is."""
    for name in names:
        if is_scaled(samples[name]):
            raise ValueError(
                f'the density of site "{name}" is scaled (numpyro.handlers.scale, or a plate with a subsample), but it is '
                "sampled as it is: move it out of the scale, or pass the subsample as the data"
            )


def influences(read: Callable[[Mapping[str, Any]], Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """For every result of a function of the values of sites, the names of the sites on which it depends; nothing is computed.

    Parameters
    ----------
    read
        A function of the values of sites, by name, that returns trees by name, whose leaves that are no arrays are ignored.
    values
        Arrays, or their shapes and types, by name of the site.
    """

    def traced(**inputs: Any) -> dict[str, list[Any]]:
        found = read({name.removeprefix("of "): value for name, value in inputs.items()})
        return {name: [leaf for leaf in jax.tree.leaves(tree) if is_traced(leaf)] for name, tree in found.items()}

    # the prefix keeps the names of sites apart from those of arguments
    sources = eval_provenance(traced, **{f"of {name}": value for name, value in values.items()})
    return {
        name: frozenset(source.removeprefix("of ") for leaf in leaves for source in leaf) for name, leaves in sources.items()
    }


def base_distribution(distribution: dist.Distribution) -> dist.Distribution:
    """Return the distribution before its expansion by plates."""
    return base_distribution(distribution.base_dist) if isinstance(distribution, dist.ExpandedDistribution) else distribution


def placeholder(site: dict[str, Any]) -> Any:
    """Return a constant for a site that is not drawn because it does not affect the parameters; None for all others.

    It is one cluster of all items for a partition site, and column means for missing values.
    """
    if site["type"] != "sample" or site["is_observed"]:
        return None
    if isinstance(site["fn"], MissingValues):
        return site["fn"].loc
    return np.zeros(site["fn"].shape(), int) if isinstance(site["fn"], PartitionPrior) else None


def feasible(site: dict[str, Any]) -> Any:
    """Return a valid value for any latent site, even one that cannot be sampled, such as one with an improper prior."""
    if site["type"] != "sample" or site["is_observed"] or isinstance(site["fn"], PartitionPrior | MissingValues):
        return placeholder(site)
    return site["fn"].support.feasible_like(jnp.zeros(site["fn"].shape()))


def partition_site(samples: Mapping[str, Any], *, any_prior: bool = False) -> str:
    """Return the name of the only latent site with a partition prior.

    Raises
    ------
    ValueError
        If there is no such site, or more than one, or, unless `any_prior`, its prior is not that of a Dirichlet or Pitman-Yor
        process.
    TypeError
        If the class of the prior replaces the density that follows from its discount and `log_v`.
    """
    partitions = [name for name, site in samples.items() if not site["is_observed"] and isinstance(site["fn"], PartitionPrior)]
    for name in partitions:
        prior = type(samples[name]["fn"])
        changed = [each for each in ("log_prob", "log_block") if getattr(prior, each) is not getattr(PartitionPrior, each)]
        if changed and not issubclass(prior, ChineseRestaurantProcess):
            raise TypeError(
                f'site "{name}" has the prior {prior.__name__}, which defines {" and ".join(changed)}: the methods compute the '
                "density of a partition from discount and log_v alone, and call neither"
            )
        if not (any_prior or issubclass(prior, ChineseRestaurantProcess)):
            raise ValueError(
                f'site "{name}" has the prior {prior.__name__}, but this method is for Dirichlet and Pitman-Yor processes: '
                "use a ChineseRestaurantProcess, or what is for all priors (PartitionGibbs, and MAPDP of rows in memory)"
            )
    if len(partitions) != 1:
        many = f"{len(partitions)} partition sites {partitions}" if partitions else "no partition site"
        raise ValueError(
            f"the model has {many}; expected exactly one unobserved site with a ChineseRestaurantProcess, outside any plate "
            f"(its sites are {listed_sites(samples)})"
        )
    return partitions[0]
