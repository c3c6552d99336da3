"""Collapsed Gibbs sampling of a partition, alone or as a block of NumPyro's `Gibbs`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.util import is_prng_key

from bnp_hier.allocation import Prior, default_capacity, first_come_labels, log_joint, split_or_merge, sweep
from bnp_hier.components.base import as_matrix, is_traced
from bnp_hier.distributions import ChineseRestaurantProcess
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.kernels.base import PartitionKernel, check_labels, size_summaries, warn_of_capacity
from bnp_hier.model_sites import MixtureSites, MixtureValues, Model, find_sites, read_values

__all__ = ["PartitionGibbs", "PartitionGibbsState"]


class PartitionGibbsState(NamedTuple):
    """State of the kernel; every field but `z` and `rng_key` is label-invariant and can be collected as an extra field.

    - **z** - dictionary with the partition site's labels, (n,), numbered in order of appearance.
    - **log_joint** - log p(X, partition) at the current hyperparameters (nats).
    - **n_clusters** - number of clusters.
    - **largest_cluster** - number of items in the largest cluster.
    - **entropy** - entropy of the cluster shares (nats).
    - **split_merge_accepted** - accepted split-merge moves of the last sweep.
    - **capacity_hits** - times that an item or a split found no free slot, since the start.
    - **i** - number of sweeps so far.
    - **rng_key** - random key.
    """

    z: dict[str, Int[Array, " n"]]
    log_joint: Float[Array, ""]
    n_clusters: Int[Array, ""]
    largest_cluster: Int[Array, ""]
    entropy: Float[Array, ""]
    split_merge_accepted: Int[Array, ""]
    capacity_hits: Int[Array, ""]
    i: Int[Array, ""]
    rng_key: Array


class PartitionGibbs(PartitionKernel):
    """Gibbs sampler of the partition of a mixture, cluster parameters integrated out (Neal 2000, Algorithm 3).

    Each step visits all items once in random order and then tries `split_merge` sequentially allocated merge-split moves
    (Dahl 2005). The kernel reads the partition prior, the component and the data from the model, at the current values of
    every other site; alone under `MCMC` the model must have no other latent site, as a block of `numpyro.infer.Gibbs` the
    other sites belong to the other blocks.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it.
    split_merge
        Split-merge moves per sweep; 0 for none.
    max_clusters
        Capacity: the target is the posterior restricted to at most this many clusters. Default: the partition site's own
        `max_clusters`, else min(n, 64). Meeting it is counted in the state's `capacity_hits`, and warned about.

    Raises
    ------
    ValueError
        At `init`: if the model lacks the two sites, has other latent sites that no block owns, or its data are unfit.
    """

    def __init__(self, model: Model, split_merge: int = 5, *, max_clusters: int | None = None) -> None:
        if split_merge != int(split_merge) or split_merge < 0:
            raise ValueError(f"split_merge must be a whole number of at least 0, but it is {split_merge}")
        if max_clusters is not None and max_clusters < 1:
            raise ValueError(f"max_clusters must be at least 1, but it is {max_clusters}")
        super().__init__(model)
        self._split_merge = int(split_merge)
        self._max_clusters = max_clusters
        self._sites: MixtureSites | None = None

    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> PartitionGibbsState:
        """State at `init_params` (labels of the partition site) or at a draw from the partition prior."""
        sites = find_sites(self._model, model_args, model_kwargs)
        if sites.hyperparameters:
            raise ValueError(
                f"PartitionGibbs samples only the partition, but the model has the latent sites {list(sites.hyperparameters)}: "
                f'use Gibbs([(PartitionGibbs(model), ["{sites.partition}"]), (NUTS(model), None)])'
            )
        values = read_values(self._model, sites, {}, model_args, model_kwargs)
        if not is_traced(values.X):
            as_matrix(values.X, min_rows=2)
            values.component.validate(values.X)
        self._sites, self._sample_fn = sites, self._sample_one
        start = (init_params or {}).get(sites.partition)
        if start is not None and not is_traced(start):
            check_labels(np.asarray(start), sites.size, sites.size)

        begin = partial(_begin, size=sites.size, capacity=self._capacity, site=sites.partition)
        if is_prng_key(rng_key):
            return begin(values, rng_key, start)
        return jax.vmap(begin, (None, 0, 0))(values, rng_key, start)

    @property
    def _capacity(self) -> int:
        assert self._sites is not None
        size = self._sites.size
        limit = self._max_clusters or self._sites.max_clusters or default_capacity(size)
        return min(size, limit)

    def _sample_one(
        self, state: PartitionGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> PartitionGibbsState:
        sites = self._sites
        assert sites is not None, "`init` must be called before `sample`"
        values = read_values(self._model, sites, {}, model_args, model_kwargs)
        component, prior = values.component, Prior(values.concentration, values.discount)
        rows = component.suff_stats(values.X)
        key, key_sweep, key_moves = jax.random.split(state.rng_key, 3)
        order, uniforms = jax.random.uniform(key_sweep, (2, sites.size))
        old = state.z[sites.partition]
        labels, refused = sweep(component, rows, old, prior, jnp.argsort(order), uniforms, self._capacity)

        def move(carry: tuple[Array, Array], key_move: Array) -> tuple[tuple[Array, Array], Array]:
            labels, refused = carry
            labels, accepted, hit = split_or_merge(component, rows, labels, prior, key_move, self._capacity)
            return (labels, refused + hit), accepted

        accepted = jnp.zeros((), int)
        if self._split_merge:
            keys = jax.random.split(key_moves, self._split_merge)
            (labels, refused), moves = jax.lax.scan(move, (labels, refused.astype(int)), keys)
            accepted = moves.sum()
        labels = first_come_labels(labels, self._capacity)
        hits = state.capacity_hits + refused.astype(state.capacity_hits.dtype)
        advice = "raise PartitionGibbs(..., max_clusters=...)"
        warn_of_capacity("PartitionGibbs", self._capacity, advice, state.capacity_hits, hits)
        diagnostics = _diagnostics(values, labels, self._capacity)
        return PartitionGibbsState({sites.partition: labels}, *diagnostics, accepted, hits, state.i + 1, key)


def _diagnostics(values: MixtureValues, labels: Int[Array, " n"], capacity: int) -> tuple[Array, Array, Array, Array]:
    """Log joint (nats), number of clusters, size of the largest, and entropy of the cluster shares (nats)."""
    counts = cluster_counts(labels, capacity)
    prior = Prior(values.concentration, values.discount)
    joint = log_joint(values.component, values.component.suff_stats(values.X), labels, prior, capacity)
    return joint, *size_summaries(counts)


@partial(jax.jit, static_argnames=("size", "capacity", "site"))
def _begin(
    values: MixtureValues, key: Array, labels: Int[Array, " n"] | None, size: int, capacity: int, site: str
) -> PartitionGibbsState:
    """State at the given labels or at a draw from the partition prior."""
    key, key_start = jax.random.split(key)
    if labels is None:
        labels = ChineseRestaurantProcess(values.concentration, size, values.discount, capacity).sample(key_start)
    labels = first_come_labels(jnp.asarray(labels).astype(int), size)
    # labels beyond the capacity share its last slot: a legal start, left behind by the first sweeps
    labels = jnp.minimum(labels, capacity - 1)
    zero = jnp.zeros((), int)
    return PartitionGibbsState({site: labels}, *_diagnostics(values, labels, capacity), zero, zero, zero, key)
