"""Collapsed Gibbs sampling of a partition, alone or as a block of NumPyro's `Gibbs`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpyro.util import is_prng_key
from sklearn.utils._param_validation import StrOptions

from bnp_hier.distributions.model_draws import is_model_draw
from bnp_hier.inspection.collapsed import MixtureSites, MixtureValues, find_missing, find_sites, read_values
from bnp_hier.inspection.trace import Model, feasible, run_model
from bnp_hier.kernels.base import PartitionKernel
from bnp_hier.kernels.initial_labels import STARTS, check_labels, check_singletons, starting_labels
from bnp_hier.kernels.reports import counted_hits, stop_if_undefined
from bnp_hier.partitions.capacities import default_capacity
from bnp_hier.partitions.engine import has_calls
from bnp_hier.partitions.gibbs_steps import GibbsStep, draws_per_step, gibbs_step, partition_diagnostics
from bnp_hier.partitions.incomplete_rows import redraw_incomplete_rows
from bnp_hier.partitions.seats import Seating
from bnp_hier.utils.arrays import as_matrix, is_traced
from bnp_hier.utils.jax_settings import standard_settings
from bnp_hier.utils.labels import first_come_labels
from bnp_hier.utils.options import WholeNumber

__all__ = ["PartitionGibbs", "PartitionGibbsState"]

PROPOSALS = ("sequential", "restricted_gibbs")
"""Kinds of proposals in split-merge moves."""


class PartitionGibbsState(NamedTuple):
    """State of the kernel; every field but `z` and `rng_key` is label-invariant and can be collected as an extra field.

    - **z** - dictionary with the partition site's labels, (n,), numbered in order of appearance, and the missing values, (m,),
      if the kernel samples them.
    - **log_joint** - log p(X, partition) at the current hyperparameters (nats).
    - **n_clusters** - number of clusters.
    - **largest_cluster** - number of items in the largest cluster.
    - **entropy** - entropy of the cluster shares (nats).
    - **split_merge_accepted** - number of accepted split-merge moves in the last sweep.
    - **capacity_hits** - number of times since the start that an item or a split found no free slot.
    - **truncated_probability** - conditional probability of a new cluster that the capacity truncated: the mean over at most
      1,024 items and all sweeps so far.
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
    truncated_probability: Float[Array, ""]
    i: Int[Array, ""]
    rng_key: Array


class PartitionGibbs(PartitionKernel):
    """Gibbs sampler for the partition of a mixture with cluster parameters integrated out (Neal 2000, Algorithm 3).

    Each step visits all items once in random order and then attempts `split_merge` split-merge moves. The kernel reads the
    partition prior, the component and the data from the model at the current values of all other sites. Used alone under
    `MCMC`, it requires a model without other latent sites; in `numpyro.infer.Gibbs`, these belong to the other blocks.

    If the model completes the rows of a table (`complete_rows`), the missing values belong to this kernel too, as in
    ``Gibbs([(PartitionGibbs(model), ["z", "missing"]), (HyperparameterGibbs(model), None)])``. Each step then ends by drawing,
    one row after the other, the cluster of a row with missing values and these cells: the cluster with the cells and all
    parameters integrated out, and the cells from their exact conditional distribution in this cluster, a Student-t distribution
    (normal, if the covariance matrix is known).

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it.
    split_merge
        Number of split-merge moves per sweep; 0 for none.
    max_clusters
        Capacity: the target is the posterior restricted to at most this many clusters. If the partition site has a smaller
        `max_clusters`, which is part of the model, that applies instead. If neither is given, there is room for n clusters,
        or for min(n, 64) where native kernels do not run, since the cost of XLA programs grows with the capacity. Reaching the
        capacity is counted in `capacity_hits` of the state, measured by `truncated_probability`, and raises a warning.
    proposal
        Proposal of split-merge moves: "sequential" allocation of the items to the two sides (Dahl 2005), or "restricted_gibbs"
        scans from a random launch state (Jain & Neal 2004), which cost several times as much.
    restricted_scans
        Number of restricted Gibbs scans that lead to the launch state of "restricted_gibbs".
    init
        Initial partition of each chain, unless `init_params` of `MCMC.run` contains labels:

        - "overdispersed": one of the named options below, chosen by the key of the chain. Chains start from different
          partitions, so that R-hat can detect whether they have forgotten them; the same key leads to the same start.
        - "one": one cluster for all items.
        - "singletons": every item alone; requires a capacity of n, and "overdispersed" leaves it out otherwise.
        - "prior": a draw from the partition prior.
        - "map_dp": each item in random order joins its most probable cluster, followed by a few greedy sweeps.
        - An array of labels, (n,), that uses all of 0, 1, ..., K - 1.

    Raises
    ------
    ValueError
        If an option is out of range. At `init`, if the model lacks the two sites or has other latent sites that belong to no
        block, if the data are invalid, or if the initial labels are not a partition of the items within the capacity.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> kernel = bnp.PartitionGibbs(partial(bnp.models.dpm, component=component))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)
    >>> bnp.point_estimate(mcmc.get_samples()["z"])
    array([0, 0, 0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [callable],
        "split_merge": [WholeNumber(0)],
        "max_clusters": [WholeNumber(), None],
        "proposal": [StrOptions(set(PROPOSALS))],
        "restricted_scans": [WholeNumber(0)],
        "init": [StrOptions(set(STARTS)), "array-like"],
    }

    _room: int | None = None
    """See `capacity`."""

    def __init__(
        self,
        model: Model,
        split_merge: int = 5,
        *,
        max_clusters: int | None = None,
        proposal: str = "sequential",
        restricted_scans: int = 5,
        init: str | ArrayLike = "overdispersed",
    ) -> None:
        super().__init__(model, max_clusters)
        self._split_merge = int(split_merge)
        self._restricted_scans = int(restricted_scans) if proposal == "restricted_gibbs" else None
        self._start = init
        self._sites: MixtureSites | None = None
        self._native = False
        self._absent: np.ndarray | None = None

    @standard_settings()
    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> PartitionGibbsState:
        """Return the state at `init_params` (labels of the partition site) or at the kernel's `init` option."""
        sites = find_sites(self._model, model_args, model_kwargs)
        self._refuse_other_sites(sites.partition, sites.hyperparameters)
        self._absent = None if sites.missing is None else find_missing(self._model, sites, model_args, model_kwargs)
        values = read_values(self._model, sites, {}, model_args, model_kwargs)
        if not is_traced(values.X):
            as_matrix(values.X, min_rows=2)
            values.component.validate(values.X)
            values.component.check_precision(values.X)
        self._sites, self._sample_fn, self._native = sites, self._sample_one, has_calls(values.component)
        start = (init_params or {}).get(sites.partition)
        if start is None or is_model_draw(start):  # without values from the user, `Gibbs` passes a draw from the model
            start = None if isinstance(self._start, str) else np.asarray(self._start)
        if start is None and self._start == "singletons":
            check_singletons(sites.size, self._capacity)
        if start is not None and not is_traced(start):
            check_labels(np.asarray(start), sites.size, self._capacity)

        name = self._start if start is None else None
        start_one = partial(_begin, name=name, capacity=self._capacity, site=sites.partition)
        if self._absent is None:
            begin = lambda key, start, _: start_one(values, key, start)  # noqa: E731
            cells = None
        else:
            missing = sites.missing
            assert missing is not None
            cells = (init_params or {}).get(missing)

            def begin(key: Array, start: Any, cells: Any) -> PartitionGibbsState:
                key, key_cells = jax.random.split(key)
                site = run_model(self._model, model_args, model_kwargs or {}, feasible)[missing]
                cells = jnp.asarray(site["fn"].sample(key_cells) if cells is None else cells, float)
                given = {missing: cells}
                state = start_one(read_values(self._model, sites, given, model_args, model_kwargs), key, start)
                return state._replace(z={**state.z, **given})

        if is_prng_key(rng_key):
            return begin(rng_key, start, cells)
        own = [None if each is None or jnp.ndim(each) == 1 else 0 for each in (start, cells)]
        return jax.vmap(begin, (0, *own))(rng_key, start, cells)

    @property
    def capacity(self) -> int:
        """Number of clusters for which there is room.

        A run that goes on sets the number with which it began, which may depend on whether native kernels run; None is that
        of a new run.
        """
        return self._capacity

    @capacity.setter
    def capacity(self, clusters: int | None) -> None:
        self._room = clusters

    @property
    def _capacity(self) -> int:
        assert self._sites is not None
        size = self._sites.size
        limits = [limit for limit in (self._max_clusters, self._sites.max_clusters, self._room) if limit is not None]
        return min([size, *limits] if limits or self._native else [default_capacity(size)])

    def _sample_one(
        self, state: PartitionGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> PartitionGibbsState:
        sites = self._sites
        assert sites is not None, "`init` must be called before `sample`"
        cells = {name: value for name, value in state.z.items() if name == sites.missing}
        values = read_values(self._model, sites, cells, model_args, model_kwargs)
        seating = Seating(values.component, values.X, values.prior)
        key, key_step = jax.random.split(state.rng_key)
        # one call for all draws: each call of a random function is compiled separately, and slowly
        draws = jax.random.uniform(key_step, (draws_per_step(sites.size, self._split_merge, self._restricted_scans),))
        old = state.z[sites.partition]
        step = gibbs_step(seating, old, draws, self._capacity, self._split_merge, self._restricted_scans)
        joint = stop_if_undefined("PartitionGibbs", step.log_joint, step.labels)
        if self._absent is not None:
            key, key_cells = jax.random.split(key)
            step, cells = self._with_incomplete_rows(step, values, cells, key_cells)
            joint = step.log_joint
        restricted = self._capacity < sites.size
        words, truncated = (f"{self._capacity} clusters", step.truncated) if restricted else (None, None)
        labels, hits, mass = counted_hits(self, words, state, step.labels, step.refused, truncated)
        return PartitionGibbsState(
            {sites.partition: labels, **cells},
            joint,
            step.n_clusters,
            step.largest_cluster,
            step.entropy,
            step.accepted,
            hits,
            mass,
            state.i + 1,
            key,
        )

    def _with_incomplete_rows(
        self, step: GibbsStep, values: MixtureValues, cells: Mapping[str, Array], key: Array
    ) -> tuple[GibbsStep, dict[str, Array]]:
        """The step, continued by new clusters and cells of the rows with missing values."""
        assert self._absent is not None
        ((site, old),) = cells.items()
        labels, new = redraw_incomplete_rows(values, step.labels, self._absent, self._capacity, key)
        X = jnp.asarray(values.X).at[np.nonzero(self._absent)].set(new)
        seating = Seating(values.component, X, values.prior)
        joint, *sizes = partition_diagnostics(seating, labels, self._capacity)
        names = ("n_clusters", "largest_cluster", "entropy")
        step = step._replace(labels=labels, log_joint=joint, **dict(zip(names, sizes, strict=True)))
        return step, {site: new.astype(old.dtype)}


@partial(jax.jit, static_argnames=("name", "capacity", "site"))
def _begin(
    values: MixtureValues,
    key: Array,
    labels: Int[Array, " n"] | None,
    name: str | None,
    capacity: int,
    site: str,
) -> PartitionGibbsState:
    """Return the state at the given labels, or at the named initialisation."""
    seating, size = Seating(values.component, values.X, values.prior), values.X.shape[0]
    key, key_start = jax.random.split(key)
    if labels is None:
        assert name is not None
        labels = starting_labels(name, seating, jax.random.uniform(key_start, (size + 1,)), capacity)
    else:
        labels = first_come_labels(jnp.asarray(labels).astype(int), size)
        # unchecked labels beyond the capacity share its last slot: a valid start that the chain soon leaves
        labels = jnp.minimum(labels, capacity - 1)
    zero = jnp.zeros((), int)
    diagnostics = partition_diagnostics(seating, labels, capacity)
    return PartitionGibbsState({site: labels}, *diagnostics, zero, zero, jnp.zeros(()), zero, key)
