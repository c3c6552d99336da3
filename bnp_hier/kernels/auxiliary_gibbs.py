"""Gibbs sampling of a partition whose cluster parameters are sites of the model, as a block of NumPyro's `Gibbs`."""

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
from bnp_hier.distributions.seating import Prior, draw_index, log_slot_seating
from bnp_hier.inspection.slots import (
    SlotSites,
    SlotValues,
    check_row_densities,
    find_slot_sites,
    missing_argument,
    read_slot_values,
)
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.base import PartitionKernel, check_whole_labels
from bnp_hier.kernels.reports import counted_hits, stop_if_undefined
from bnp_hier.partitions.sizes import size_summaries
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.jax_settings import standard_settings

__all__ = ["AuxiliaryGibbs", "AuxiliaryGibbsState"]


class AuxiliaryGibbsState(NamedTuple):
    """State of the kernel; every field but `z` and `rng_key` is label-invariant and can be collected as an extra field.

    - **z** - dictionary with the partition site's labels, (n,): slot numbers, never renumbered.
    - **log_joint** - log p(partition) + Σ_i log f(x_i|θ_{z_i}) at the parameters used in the sweep (nats).
    - **n_clusters** - number of clusters.
    - **largest_cluster** - number of items in the largest cluster.
    - **entropy** - entropy of the cluster shares (nats).
    - **capacity_hits** - number of times after warm-up that an item found no empty slot.
    - **num_warmup** - number of warm-up sweeps.
    - **i** - number of sweeps so far.
    - **rng_key** - random key.
    """

    z: dict[str, Int[Array, " n"]]
    log_joint: Float[Array, ""]
    n_clusters: Int[Array, ""]
    largest_cluster: Int[Array, ""]
    entropy: Float[Array, ""]
    capacity_hits: Int[Array, ""]
    num_warmup: Int[Array, ""]
    i: Int[Array, ""]
    rng_key: Array


class AuxiliaryGibbs(PartitionKernel):
    """Gibbs sampler for the partition of a mixture with explicit cluster parameters (Neal 2000, Algorithm 8).

    This kernel is for components that are not conjugate. The cluster parameters θ are ordinary sites in a plate over K slots,
    where K is `max_clusters` of the partition site, and labels are slot numbers. The target is p(z, θ, x) = p(partition)
    (K − c)!/K! Π_k p(θ_k) Π_i f(x_i|θ_{z_i}) with c clusters, that is, the mixture itself, restricted to at most K clusters.
    Each step visits all items once in random order; an item joins a cluster of n_k other items with weight
    (n_k − δ) f(x_i|θ_k), and each empty slot with weight (α + cδ)/(K − c) f(x_i|θ_k). The empty slots are the auxiliary
    components of the algorithm: the block that updates θ draws them from the prior, since no row depends on them. All densities
    are computed once per step.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site that sets `max_clusters`, and one or more observed sites, each in
        a plate over the items, where the density of a row depends on the parameters of its own slot.

    Raises
    ------
    ValueError
        At `init`, if the model does not have this form (for example, if the density of a row depends on the labels of other
        rows), or if it has latent sites that belong to no block.

    Notes
    -----
    Reaching the capacity K after warm-up is counted in `capacity_hits` of the state and raises a warning. A K above the
    expected number of clusters costs time, but adds auxiliary components and thereby improves mixing.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from numpyro.infer import MCMC, Gibbs
    >>> import bnp_hier as bnp
    >>> def heavy_tails(X, slots=8):
    ...     z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X), max_clusters=slots))
    ...     with numpyro.plate("clusters", slots):
    ...         loc = numpyro.sample("loc", dist.Normal(0.0, 5.0))
    ...     with numpyro.plate("rows", len(X)):
    ...         numpyro.sample("X", dist.StudentT(4.0, loc[z], 0.3), obs=X)
    ...
    >>> X = np.array([0.0, 0.2, 0.1, 6.0, 6.1])
    >>> kernel = Gibbs([(bnp.AuxiliaryGibbs(heavy_tails), ["z"]), (bnp.HyperparameterGibbs(heavy_tails), None)])
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)
    >>> bnp.point_estimate(mcmc.get_samples()["z"])
    array([0, 0, 0, 1, 1])
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._sites: SlotSites | None = None

    @standard_settings()
    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> AuxiliaryGibbsState:
        """Return the state at `init_params` (labels of the partition site) or at a draw from the partition prior."""
        own = {name: value for name, value in (model_kwargs or {}).items() if name != GIBBS_SITES_KWARG}
        sites = self._found_sites(model_args, own)
        given = (model_kwargs or {}).get(GIBBS_SITES_KWARG, {})
        others = [name for name in (*sites.parameters, *sites.local) if name not in given]
        self._refuse_other_sites(sites.partition, others)
        if not is_traced(model_args, own):
            check_row_densities(self._model, sites, model_args, own)
        start = (init_params or {}).get(sites.partition)
        if start is not None:
            if not is_traced(start):
                check_whole_labels(np.asarray(start), sites.size, sites.slots)
            start = jnp.asarray(start)
        self._sites, self._sample_fn = sites, self._sample_one
        values = read_slot_values(self._model, sites, {}, model_args, model_kwargs)

        def begin(key: Array, labels: Int[Array, " n"] | None) -> AuxiliaryGibbsState:
            key, key_start = jax.random.split(key)
            if labels is None:
                prior = ChineseRestaurantProcess(values.concentration, sites.size, values.discount, sites.slots)
                labels = prior.sample(key_start)
            labels = jnp.asarray(labels).astype(int)
            zero, warmup = jnp.zeros((), int), jnp.asarray(num_warmup, int)
            return AuxiliaryGibbsState({sites.partition: labels}, *_diagnostics(values, labels), zero, warmup, zero, key)

        if is_prng_key(rng_key):
            return begin(rng_key, start)
        return jax.vmap(begin)(rng_key, start)

    def _found_sites(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> SlotSites:
        try:
            return find_slot_sites(self._model, args, kwargs)
        except ValueError as error:  # that NumPyro's distributions raise for missing values says neither where nor why
            sizes = {np.shape(value)[0] for value in (*args, *kwargs.values()) if np.ndim(value) > 0}
            advice = [missing_argument(self._model, args, kwargs, size) for size in sorted(sizes)]
            if any(advice):
                raise ValueError(f"{next(filter(None, advice))} ({error})") from error
            raise

    @property
    def capacity_advice(self) -> str:
        """Advice on how to allow more clusters."""
        assert self._sites is not None
        return f'raise max_clusters of the site "{self._sites.partition}" and the size of the plate over the cluster parameters'

    def _sample_one(
        self, state: AuxiliaryGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> AuxiliaryGibbsState:
        sites = self._sites
        assert sites is not None, "`init` must be called before `sample`"
        values = read_slot_values(self._model, sites, {}, model_args, model_kwargs)
        key, key_sweep = jax.random.split(state.rng_key)
        # a new random order of the items, which does not depend on the labels that the visits change
        order, uniforms = jax.random.uniform(key_sweep, (2, sites.size))
        prior = Prior(values.concentration, values.discount)
        labels, refused = _sweep(values.log_density, state.z[sites.partition], prior, jnp.argsort(order), uniforms)
        refused = jnp.where(state.i < state.num_warmup, 0, refused)  # warm-up does not restrict the draws
        labels, hits, _ = counted_hits(self, f"{sites.slots} clusters", state, labels, refused)
        joint, clusters, largest, entropy = _diagnostics(values, labels)
        # a NaN in any slot, since the sweep has used all of them
        joint = stop_if_undefined("AuxiliaryGibbs", jnp.where(jnp.isnan(values.log_density).any(), jnp.nan, joint))
        z = {sites.partition: labels}
        return AuxiliaryGibbsState(z, joint, clusters, largest, entropy, hits, state.num_warmup, state.i + 1, key)


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
        # a row with zero density in every slot is seated by the prior until the parameters change
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
