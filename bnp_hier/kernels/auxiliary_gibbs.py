"""Gibbs sampling of a partition whose clusters' parameters are sites of the model, as a block of NumPyro's `Gibbs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.util import is_prng_key

from bnp_hier.distributions import ChineseRestaurantProcess
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.inspection.slots import SlotSites, SlotValues, check_row_densities, find_slot_sites, read_slot_values
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.base import PartitionKernel, check_whole_labels, count_refused, size_summaries, stop_if_undefined
from bnp_hier.partitions.seating import Prior, draw_index, log_slot_seating
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.options import check_options

__all__ = ["AuxiliaryGibbs", "AuxiliaryGibbsState"]


class AuxiliaryGibbsState(NamedTuple):
    """State of the kernel; every field but `z` and `rng_key` is label-invariant and can be collected as an extra field.

    - **z** - dictionary with the partition site's labels, (n,): names of slots, never renamed.
    - **log_joint** - log p(partition) + Σ_i log f(x_i|θ_{z_i}) at the parameters that the sweep read (nats).
    - **n_clusters** - number of clusters.
    - **largest_cluster** - number of items in the largest cluster.
    - **entropy** - entropy of the cluster shares (nats).
    - **capacity_hits** - times that an item found no empty slot, since the start.
    - **i** - number of sweeps so far.
    - **rng_key** - random key.
    """

    z: dict[str, Int[Array, " n"]]
    log_joint: Float[Array, ""]
    n_clusters: Int[Array, ""]
    largest_cluster: Int[Array, ""]
    entropy: Float[Array, ""]
    capacity_hits: Int[Array, ""]
    i: Int[Array, ""]
    rng_key: Array


class AuxiliaryGibbs(PartitionKernel):
    """Gibbs sampler of the partition of a mixture with explicit cluster parameters (Neal 2000, Algorithm 8).

    For components that are not conjugate. The clusters' parameters θ are ordinary sites in a plate over K slots, K the
    partition site's `max_clusters`, and labels name slots; the target is p(z, θ, x) = p(partition) (K − c)!/K! Π_k p(θ_k)
    Π_i f(x_i|θ_{z_i}) with c clusters: the mixture itself, restricted to at most K clusters. Each step visits all items once in
    random order; an item joins a cluster of n_k other items with weight (n_k − δ) f(x_i|θ_k), and each empty slot with weight
    (α + cδ)/(K − c) f(x_i|θ_k). The empty slots are the algorithm's auxiliary components: whatever block updates θ draws them
    from the prior, as no row depends on them. All densities are computed once a step.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site with `max_clusters`, and one or more observed sites, each in a
        plate over the items, whose density of a row depends on the parameters of the row's own slot.

    Raises
    ------
    ValueError
        At `init`: if the model is not of that form (the density of a row moves with other rows' labels, say), or has latent
        sites that no block owns.

    Notes
    -----
    Meeting the capacity K is counted in the state's `capacity_hits`, and warned about. K beyond the expected number of clusters
    costs time but gives more auxiliary components, and so better mixing.
    """

    def __init__(self, model: Model) -> None:
        check_options("AuxiliaryGibbs", {"model": [callable]}, {"model": model})
        super().__init__(model)
        self._sites: SlotSites | None = None

    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> AuxiliaryGibbsState:
        """State at `init_params` (labels of the partition site) or at a draw from the partition prior."""
        own = {name: value for name, value in (model_kwargs or {}).items() if name != GIBBS_SITES_KWARG}
        sites = find_slot_sites(self._model, model_args, own)
        given = (model_kwargs or {}).get(GIBBS_SITES_KWARG, {})
        others = [name for name in (*sites.parameters, *sites.local) if name not in given]
        self._refuse_other_sites(sites.partition, others)
        if not is_traced(model_args, own):
            check_row_densities(self._model, sites, model_args, own)
        start = (init_params or {}).get(sites.partition)
        if start is not None and not is_traced(start):
            check_whole_labels(np.asarray(start), sites.size, sites.slots)
        self._sites, self._sample_fn = sites, self._sample_one
        values = read_slot_values(self._model, sites, {}, model_args, model_kwargs)

        def begin(key: Array, labels: Int[Array, " n"] | None) -> AuxiliaryGibbsState:
            key, key_start = jax.random.split(key)
            if labels is None:
                prior = ChineseRestaurantProcess(values.concentration, sites.size, values.discount, sites.slots)
                labels = prior.sample(key_start)
            labels = jnp.asarray(labels).astype(int)
            zero = jnp.zeros((), int)
            return AuxiliaryGibbsState({sites.partition: labels}, *_diagnostics(values, labels), zero, zero, key)

        if is_prng_key(rng_key):
            return begin(rng_key, start)
        return jax.vmap(begin)(rng_key, start)

    @property
    def capacity_advice(self) -> str:
        """How more clusters are allowed."""
        assert self._sites is not None
        return f'raise max_clusters of the site "{self._sites.partition}", and the plate over the clusters\' parameters with it'

    def _sample_one(
        self, state: AuxiliaryGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> AuxiliaryGibbsState:
        sites = self._sites
        assert sites is not None, "`init` must be called before `sample`"
        values = read_slot_values(self._model, sites, {}, model_args, model_kwargs)
        key, key_sweep = jax.random.split(state.rng_key)
        # a fresh random order of the items, which does not depend on the labels that the visits change
        order, uniforms = jax.random.uniform(key_sweep, (2, sites.size))
        prior = Prior(values.concentration, values.discount)
        labels, refused = _sweep(values.log_density, state.z[sites.partition], prior, jnp.argsort(order), uniforms)
        hits, _ = count_refused(self, f"{sites.slots} clusters", state, refused)
        stop_if_undefined("AuxiliaryGibbs", jnp.where(jnp.isnan(values.log_density).any(), jnp.nan, 0.0))
        return AuxiliaryGibbsState({sites.partition: labels}, *_diagnostics(values, labels), hits, state.i + 1, key)


def _sweep(
    log_density: Float[Array, "n k"],
    labels: Int[Array, " n"],
    prior: Prior,
    order: Int[Array, " n"],
    uniforms: Float[Array, " n"],
) -> tuple[Int[Array, " n"], Int[Array, ""]]:
    """Visit the items in the given order and draw each one's slot from its conditional.

    Returns
    -------
    labels, refused
        New labels, and the number of items that found no empty slot.
    """

    def visit(carry: tuple[Array, Array], item: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        counts, refused = carry
        old, density, uniform = item
        counts = counts.at[old].add(-1.0)
        seating = log_slot_seating(counts, prior)
        weight = seating + density
        # a row that no slot can have given stays anywhere until the parameters move
        weight = jnp.where(jnp.isfinite(weight.max()), weight, seating)
        new = draw_index(jnp.exp(weight - weight.max()), uniform).astype(old.dtype)
        return (counts.at[new].add(1.0), refused + (counts > 0).all().astype(refused.dtype)), new

    counts = cluster_counts(labels, log_density.shape[1]).astype(float)
    items = labels[order], log_density[order], uniforms
    (_, refused), moved = jax.lax.scan(visit, (counts, jnp.int32(0)), items)
    return labels.at[order].set(moved), refused


def _diagnostics(values: SlotValues, labels: Int[Array, " n"]) -> tuple[Array, Array, Array, Array]:
    """Log joint (nats), number of clusters, size of the largest, and entropy of the cluster shares (nats)."""
    counts = cluster_counts(labels, values.log_density.shape[1])
    joint = log_partition_prior(counts, values.concentration, values.discount)
    joint = joint + jnp.take_along_axis(values.log_density, labels[:, None], axis=1).sum()
    return joint, *size_summaries(counts)
