"""The density of a model's continuous sites given its partition, from sums over the rows of each cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num
from numpyro.distributions import biject_to

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture, MissingValues
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_cluster_priors
from bnp_hier.distributions.conjugate_mixture import cluster_statistics, cluster_statistics_in_any_order
from bnp_hier.inspection.trace import Model, feasible, influences, run_model, sample_sites
from bnp_hier.utils.arrays import own_arrays, take

__all__ = ["Conditional", "find_continuous_sites", "read_conditional"]

BLOCK = 8
"""Number of clusters whose terms are computed at once: those of empty ones cost time as well."""

KEPT, KEPT_FROM = 1024, 4096
"""Number of clusters whose statistics are kept between evaluations of the density, if there are more rows than `KEPT_FROM`.

There is room for as many clusters as rows, but statistics of so many would not fit in memory.
"""


class Conditional(NamedTuple):
    """Density of a model's latent sites given everything else, as functions of their unconstrained values.

    - **unconstrained** - current unconstrained values.
    - **log_density** - log joint density of the model plus the log Jacobian determinant of the constraining transforms (nats).
    - **constrain** - maps unconstrained values to constrained ones.
    """

    unconstrained: dict[str, Float[Array, "..."]]
    log_density: Callable[[Mapping[str, Any]], Float[Array, ""]]
    constrain: Callable[[Mapping[str, Any]], dict[str, Array]]


class _Occupancy(NamedTuple):
    """A partition in blocks of clusters: sizes, numbers of clusters before each one, and the number of blocks in use."""

    counts: Float[Array, "blocks block"]
    rank: Float[Array, "blocks block"]
    used: Int[Array, ""]


class _Summary(NamedTuple):
    """Rows of a mixture.

    - **partition** - their partition.
    - **anchor** - component under which the statistics were taken.
    - **stats** - statistics of the clusters, in blocks; of the first `KEPT` of them, if there are many rows.
    - **X**, **labels** - the rows and their clusters.
    """

    partition: _Occupancy
    anchor: Component
    stats: Statistics
    X: Num[Array, "n d"]
    labels: Int[Array, " n"]


def find_continuous_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the names of the model's latent sites, all of which must be continuous.

    Raises
    ------
    ValueError
        If there are none, or one of them is discrete.
    """
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    _, latent = sample_sites(trace)
    for name, site in latent.items():
        if isinstance(site["fn"], MissingValues):
            raise ValueError(
                f'site "{name}" has missing values, which HyperparameterGibbs would sample one by one: give it to the block of '
                f'the partition, as in Gibbs([(PartitionGibbs(model), ["z", "{name}"]), (HyperparameterGibbs(model), None)])'
            )
        if site["fn"].support.is_discrete:
            what = "partition" if isinstance(site["fn"], ChineseRestaurantProcess) else type(site["fn"]).__name__
            raise ValueError(
                f'site "{name}" ({what}) is discrete, and HyperparameterGibbs updates continuous sites: give it to another '
                f'block, for example Gibbs([(PartitionGibbs(model), ["{name}"]), (HyperparameterGibbs(model), None)])'
            )
    if not latent:
        raise ValueError(
            "the model has no continuous hyperparameters that belong to no other block: give the concentration or a parameter "
            "of the component a prior"
        )
    return tuple(latent)


def read_conditional(
    model: Model, values: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Conditional:
    """Return the density of the model's latent sites given all others; works under ``jit``.

    Where a `ConjugateMixture` takes its assignments from a `ChineseRestaurantProcess` and its component converts statistics
    between hyperparameters (`Component.anchor`), the rows are summed here, once, and evaluations of the density take time
    proportional to the number of clusters. Otherwise, or if the rows depend on the latent sites, as residuals do on regression
    coefficients, each evaluation computes the densities of all rows.

    Parameters
    ----------
    model
        Model whose latent sites are those in `values`.
    values
        Current constrained values.
    args, kwargs
        Arguments of the model.
    """

    def run(given: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        own = lambda site: given(site) if site["type"] == "sample" and site["name"] in values else None  # noqa: E731
        trace = run_model(model, args, kwargs or {}, own)
        return {name: site for name, site in trace.items() if site["type"] == "sample"}

    sites = run(lambda site: values[site["name"]])
    unconstrained = {name: biject_to(sites[name]["fn"].support).inv(sites[name]["value"]) for name in values}
    mixtures = {name: site for name, site in sites.items() if isinstance(site["fn"], ConjugateMixture)}
    tables = lambda given: {name: run(lambda site: given[site["name"]])[name]["value"] for name in mixtures}  # noqa: E731
    moving = {name for name, sources in influences(tables, values).items() if sources}
    partitions, summaries = _summarise({name: site for name, site in sites.items() if name not in moving})

    def log_density(unconstrained: Mapping[str, Any]) -> Float[Array, ""]:
        total = jnp.zeros(())

        def transformed(site: dict[str, Any]) -> Array:
            nonlocal total
            transform, free = biject_to(site["fn"].support), unconstrained[site["name"]]
            value = transform(free)
            total = total + jnp.sum(transform.log_abs_det_jacobian(free, value))
            return value

        for name, site in run(transformed).items():
            if name in partitions:
                term = _log_partition(site["fn"], partitions[name])
            elif name in summaries:
                # about the same point as the statistics, which need not be found in the rows again
                component = own_arrays(site["fn"].component.centered_on(summaries[name].anchor.reference()[None]))
                term = _log_marginal(component, summaries[name])
            else:
                term = jnp.sum(site["fn"].log_prob(site["value"]))
            total = total + (term if site["scale"] is None else site["scale"] * term)
        return total

    def constrain(unconstrained: Mapping[str, Any]) -> dict[str, Array]:
        sites = run(lambda site: biject_to(site["fn"].support)(unconstrained[site["name"]]))
        return {name: sites[name]["value"] for name in values}

    return Conditional(unconstrained, log_density, constrain)


def _summarise(sites: Mapping[str, Any]) -> tuple[dict[str, _Occupancy], dict[str, _Summary]]:
    """Summarise the partitions and mixtures whose densities can be computed from sums, by name of their sites."""
    partitions: dict[str, _Occupancy] = {}
    summaries: dict[str, _Summary] = {}
    for name, site in sites.items():
        if isinstance(site["fn"], ChineseRestaurantProcess) and not site["fn"].batch_shape:
            labels = jnp.asarray(site["value"])
            counts = _in_blocks(cluster_counts(labels, _slots(labels)).astype(float))
            rank = jnp.cumsum(counts > 0, dtype=counts.dtype).reshape(counts.shape) - 1.0
            partitions[name] = _Occupancy(counts, rank, labels.max() // BLOCK + 1)
    for name, site in sites.items():
        fn, X = site["fn"], site["value"]
        if not isinstance(fn, ConjugateMixture) or jnp.ndim(X) != 2:
            continue
        # other labels may depend on the hyperparameters
        own = [partition for partition in partitions if sites[partition]["value"] is fn.assignments]
        anchor = own_arrays(fn.component.centered_on(X)).anchor()
        if own and anchor is not None:
            labels = jnp.asarray(fn.assignments)
            X = jnp.asarray(X)
            if len(labels) <= KEPT_FROM:
                stats = cluster_statistics(anchor.suff_stats(X), labels, _slots(labels))
            else:
                stats = cluster_statistics_in_any_order(anchor.suff_stats(X), labels, KEPT)
            summaries[name] = _Summary(partitions[own[0]], anchor, jax.tree.map(_in_blocks, stats), X, labels)
    return partitions, summaries


def _slots(labels: Int[Array, " n"]) -> int:
    return -(-labels.shape[0] // BLOCK) * BLOCK


def _in_blocks(leaf: Float[Array, "slots ..."]) -> Float[Array, "blocks block ..."]:
    return leaf.reshape(-1, BLOCK, *leaf.shape[1:])


def _log_partition(prior: ChineseRestaurantProcess, partition: _Occupancy) -> Float[Array, ""]:
    """Log probability of a partition (nats); a `max_clusters` of the prior, which it respects, does not change it."""
    alpha, discount = (jnp.asarray(value, float) for value in (prior.concentration, prior.discount))
    clusters = lambda block: log_cluster_priors(block[0], block[1], alpha, discount)  # noqa: E731
    total = _sum_over_blocks(clusters, (partition.counts, partition.rank), partition.used)
    return total - log_gamma_ratio(alpha + 1.0, partition.counts.sum() - 1.0)


def _log_marginal(component: Component, summary: _Summary) -> Float[Array, ""]:
    """Sum over clusters of the log marginal likelihood under a component with other hyperparameters (nats)."""
    clusters = lambda stats: component.log_marginal_of_restated(stats, summary.anchor)  # noqa: E731
    used, kept = summary.partition.used, len(jax.tree.leaves(summary.stats)[0])
    total = _sum_over_blocks(clusters, summary.stats, jnp.minimum(used, kept))
    if kept == len(summary.partition.counts):
        return total

    def further(turn: Array, total: Array) -> Array:
        size = kept * BLOCK
        rows = summary.anchor.suff_stats(summary.X)
        stats = cluster_statistics_in_any_order(rows, summary.labels - turn * size, size)
        return total + _sum_over_blocks(clusters, jax.tree.map(_in_blocks, stats), jnp.minimum(used - turn * kept, kept))

    return jax.lax.fori_loop(1, (used + kept - 1) // kept, further, total)


def _sum_over_blocks(term: Callable[[Any], Float[Array, " block"]], blocks: Any, used: Int[Array, ""]) -> Float[Array, ""]:
    """Sum the terms of the clusters in the blocks that are in use."""
    # a loop of variable length: there is room for as many clusters as rows, but there are few
    return jax.lax.fori_loop(0, used, lambda b, total: total + term(take(blocks, b)).sum(), jnp.zeros(()))
