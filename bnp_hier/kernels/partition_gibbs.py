"""Collapsed Gibbs sampling of a partition, alone or as a block of NumPyro's `Gibbs`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity, is_prng_key

from bnp_hier.allocation import Prior, default_capacity, first_come_labels, log_joint, split_or_merge, sweep
from bnp_hier.components.base import as_matrix, is_traced
from bnp_hier.distributions import ChineseRestaurantProcess
from bnp_hier.distributions.chinese_restaurant import cluster_counts
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


class PartitionGibbs(MCMCKernel):
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

    sample_field = "z"

    def __init__(self, model: Model, split_merge: int = 5, *, max_clusters: int | None = None) -> None:
        if split_merge != int(split_merge) or split_merge < 0:
            raise ValueError(f"split_merge must be a whole number of at least 0, but it is {split_merge}")
        if max_clusters is not None and max_clusters < 1:
            raise ValueError(f"max_clusters must be at least 1, but it is {max_clusters}")
        self._model = model
        self._split_merge = int(split_merge)
        self._max_clusters = max_clusters
        # static metadata resolved at `init`
        self._sites: MixtureSites | None = None
        self._sample_fn: Callable[..., PartitionGibbsState] | None = None

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields collected by `MCMC`: the labels."""
        return ("z",)

    def get_diagnostics_str(self, state: PartitionGibbsState) -> str:
        """Clusters and log joint of the current state, and capacity hits if there are any."""
        hits = int(state.capacity_hits)
        text = f"{int(state.n_clusters)} clusters, log joint {float(state.log_joint):.1f}"
        return text + (f", {hits} capacity hits" if hits else "")

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
            self._check_labels(np.asarray(start), sites.size)

        begin = partial(_begin, size=sites.size, capacity=self._capacity, site=sites.partition)
        if is_prng_key(rng_key):
            return begin(values, rng_key, start)
        return jax.vmap(begin, (None, 0, 0))(values, rng_key, start)

    def sample(
        self, state: PartitionGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> PartitionGibbsState:
        """One sweep and the split-merge moves."""
        step = self._sample_one
        if is_prng_key(state.rng_key):
            return step(state, model_args, model_kwargs)
        return jax.vmap(lambda one: step(one, model_args, model_kwargs))(state)

    def refresh(
        self, state: PartitionGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> PartitionGibbsState:
        """Identity: nothing that the next sweep reads is cached."""
        return state

    def wrap_model(self, wrapper: Callable[[Model], Model]) -> PartitionGibbs:
        """A copy on the wrapped model."""
        kernel = copy.copy(self)
        kernel._model, kernel._sites, kernel._sample_fn = wrapper(self._model), None, None
        return kernel

    def get_constrain_fn(self, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Callable[[Any], Any]:
        """Identity: labels are already constrained."""
        return identity

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Callable[[Any], Any]:
        """Identity."""
        return identity

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None}

    @property
    def _capacity(self) -> int:
        assert self._sites is not None
        size = self._sites.size
        limit = self._max_clusters or self._sites.max_clusters or default_capacity(size)
        return min(size, limit)

    @staticmethod
    def _check_labels(labels: np.ndarray, size: int) -> None:
        if labels.shape[-1:] != (size,) or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(
                f"initial labels must be {size} whole numbers, but they have shape {labels.shape} and type {labels.dtype}"
            )
        if labels.min() < 0 or labels.max() >= size:
            raise ValueError(f"initial labels must lie in 0, ..., {size - 1}, but they span {labels.min()} to {labels.max()}")

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
        jax.lax.cond(
            (hits > 0) & (state.capacity_hits == 0),
            lambda: jax.debug.callback(_warn_capacity, hits, capacity=self._capacity),
            lambda: None,
        )
        diagnostics = _diagnostics(values, labels, self._capacity)
        return PartitionGibbsState({sites.partition: labels}, *diagnostics, accepted, hits, state.i + 1, key)


def _diagnostics(values: MixtureValues, labels: Int[Array, " n"], capacity: int) -> tuple[Array, Array, Array, Array]:
    """Log joint (nats), number of clusters, size of the largest, and entropy of the cluster shares (nats)."""
    counts = cluster_counts(labels, capacity)
    shares = counts.astype(float) / labels.shape[0]
    entropy = -jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), 0.0).sum()
    prior = Prior(values.concentration, values.discount)
    joint = log_joint(values.component, values.component.suff_stats(values.X), labels, prior, capacity)
    return joint, (counts > 0).sum(), counts.max(), entropy


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


def _warn_capacity(hits: Array, *, capacity: int) -> None:
    if hits > 0:
        warnings.warn(
            f"PartitionGibbs met its capacity of {capacity} clusters: the draws are of the posterior restricted to at most "
            f"{capacity} clusters; raise PartitionGibbs(..., max_clusters=...)",
            RuntimeWarning,
            stacklevel=2,
        )
