"""Find a partition whose clusters have explicit parameters, one slot per cluster, in a NumPyro model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.infer import init_to_uniform
from numpyro.ops.provenance import eval_provenance

from bnp_hier.inspection.model_arguments import ModelArguments
from bnp_hier.inspection.trace import (
    TRACING,
    Model,
    feasible,
    listed_sites,
    log_density_of,
    partition_site,
    refuse_scales,
    run_model,
    sample_sites,
)
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.quick_compilation import compiled_quickly

__all__ = ["SlotSites", "SlotValues", "check_row_densities", "find_slot_sites", "missing_argument", "read_slot_values"]


class SlotSites(NamedTuple):
    """Names of the sites of a mixture whose component parameters are explicit sites in a plate over cluster slots.

    - **partition** - the site whose distribution is a `ChineseRestaurantProcess`; its labels are slot numbers.
    - **observed** - the observed sites whose densities depend on the labels.
    - **local** - the latent sites whose densities depend on the labels: one value per row.
    - **parameters** - the other latent sites, in the order of the model.
    - **size** - number of items n.
    - **slots** - number of slots K that labels refer to: the partition site's `max_clusters`, at most n.
    - **entries** - number of entries of the parameters: `max_clusters`, the size of the plate over them.
    """

    partition: str
    observed: tuple[str, ...]
    local: tuple[str, ...]
    parameters: tuple[str, ...]
    size: int
    slots: int
    entries: int


class SlotValues(NamedTuple):
    """Partition prior and row densities of a mixture with explicit cluster parameters, at given values of the other sites.

    - **concentration**, **discount** - parameters of the partition prior.
    - **log_density** - log density of each row in each slot, summed over the sites that depend on the labels (nats).
    """

    concentration: Float[Array, ""]
    discount: Float[Array, ""]
    log_density: Float[Array, "n k"]


def find_slot_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> SlotSites:
    """Find the partition site and the sites that depend on its labels by tracing the model once on the given arguments.

    Raises
    ------
    ValueError
        If the model does not have exactly one site with a partition prior; if this site is inside a plate, has fewer than two
        items or sets no `max_clusters`, or its density is scaled; if no observed site depends on its labels; or if a site that
        depends on them does not have one density per item.
    """
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    partition = partition_site(samples)
    prior = samples[partition]["fn"]
    if prior.batch_shape:
        raise ValueError("the partition must not have batch dimensions or be inside a plate")
    if prior.size < 2:
        raise ValueError(f'partition site "{partition}" has {prior.size} item; clustering needs at least 2')
    if prior.max_clusters is None:
        raise ValueError(
            f'partition site "{partition}" has max_clusters=None; expected '
            "ChineseRestaurantProcess(..., max_clusters=K), where K is the size of the plate over the cluster parameters"
        )

    refuse_scales(samples, [partition])

    def densities(labels: Array) -> dict[str, Array]:
        inner = run_model(model, args, kwargs or {}, lambda site: labels if site["name"] == partition else feasible(site))
        return {name: log_density_of(inner[name]) for name in samples if name != partition}

    labels = jax.ShapeDtypeStruct((prior.size,), jnp.result_type(int))
    shapes = jax.eval_shape(densities, labels)
    depends = {name: "labels" in sources for name, sources in eval_provenance(densities, labels=labels).items()}
    for name, shape in shapes.items():
        if depends[name] and shape.shape != (prior.size,):
            raise ValueError(
                f'site "{name}" depends on the labels of "{partition}" and has densities of shape {shape.shape}, but the '
                f"partition has {prior.size} items; expected one density per item, shape ({prior.size},): use a plate over "
                "the items, and to_event(1) for the columns"
            )
    observed = tuple(name for name in shapes if depends[name] and name not in latent)
    if not observed:
        raise ValueError(
            f'no observed site depends on the labels of the partition site "{partition}" (the model\'s sites are '
            f"{listed_sites(samples)}); expected one such as dist.Normal(loc[{partition}], 1.0) in a plate over the items"
        )
    local = tuple(name for name in shapes if depends[name] and name in latent)
    parameters = tuple(name for name in latent if name not in (partition, *local))
    slots = min(prior.size, prior.max_clusters)
    return SlotSites(partition, observed, local, parameters, prior.size, slots, prior.max_clusters)


def read_slot_values(
    model: Model,
    sites: SlotSites,
    values: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
) -> SlotValues:
    """Return the partition prior's parameters and the table of log densities at given latent values; works under ``jit``.

    Sites that are not in `values` must be conditioned through `kwargs`, as `numpyro.infer.Gibbs` does. The number of rows in
    the arguments may differ from that of the fitted data.
    """
    prior = _trace_at(model, sites, values, 0, args, kwargs)[sites.partition]["fn"]

    def column(slot: Array) -> Array:
        return _rows(_trace_at(model, sites, values, slot, args, kwargs), sites)

    log_density = jax.vmap(column, out_axes=1)(jnp.arange(sites.slots))
    return SlotValues(jnp.asarray(prior.concentration), jnp.asarray(prior.discount), log_density)


def check_row_densities(model: Model, sites: SlotSites, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> None:
    """Check numerically, at a draw of the other latent sites, that no row's density depends on the label of another row.

    Raises
    ------
    ValueError
        If one does, if a row's density is NaN in every slot, or if the last two slots share their parameters.
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

    # compiled ahead of time, so that it runs on concrete values even where a chain method traces `init`
    table, mixed = map(np.asarray, compiled_quickly(jax.jit(densities).lower())())
    nans, undefined = np.isnan(table).all(1), ~np.isfinite(table).any(1)
    missing = missing_argument(model, args, kwargs or {}, size) if undefined.any() else ""
    if missing:
        raise ValueError(missing)
    if nans.any():
        raise ValueError(f"the log density of row {np.argmax(nans)} is NaN in every slot")
    continuous = latent and not any(support.is_discrete for support in latent.values())
    if slots > 1 and continuous and np.array_equal(table[:, -2], table[:, -1]):
        # JAX reads the last entry of an array where an index is out of range
        raise ValueError(
            f"every row has the same density in the last two of {slots} slots; is the plate over the cluster parameters "
            f'smaller than max_clusters of "{sites.partition}"?'
        )
    alone = table[np.arange(size), labels]
    moved = ~np.isclose(mixed, alone, rtol=1e-4, atol=1e-4, equal_nan=True)
    if moved.any():
        draw, row = np.argwhere(moved)[0]
        raise ValueError(
            f"the log density of row {row} changes from {alone[draw, row]:.6g} to {mixed[draw, row]:.6g} nats when only other "
            f"rows' labels change; the densities of {list(sites.observed + sites.local)} must depend only on the row's own "
            f'label in "{sites.partition}"'
        )


def missing_argument(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any], size: int) -> str:
    """Where an argument with `size` entries has a missing value, and what to do; empty if none has."""
    arguments = dict(enumerate(args)) | dict(kwargs)
    rows = [name for name, value in arguments.items() if np.ndim(value) > 0 and np.shape(value)[0] == size]
    if not rows or is_traced(args, kwargs):
        return ""
    return ModelArguments(*args, rows=rows, **kwargs).named_by(model).advice_on_missing()


def _trace_at(
    model: Model,
    sites: SlotSites,
    values: Mapping[str, Any],
    labels: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Run the model at given latent values and labels; a single label applies to all items."""

    def at(site: dict[str, Any]) -> Any:
        if site["name"] == sites.partition:
            return jnp.broadcast_to(jnp.asarray(labels, int), site["fn"].shape())
        return values.get(site["name"])

    return run_model(model, args, kwargs or {}, at)


def _rows(trace: Mapping[str, Any], sites: SlotSites) -> Float[Array, " n"]:
    """Log density of each row, summed over all sites that depend on the labels (nats)."""
    return sum((log_density_of(trace[name]) for name in (*sites.observed, *sites.local)), start=jnp.zeros(()))
