"""Parallel sampling of a partition, with all rows updated at once by matrix products, for large data and accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int
from numpyro.util import is_prng_key
from sklearn.utils._param_validation import StrOptions

from bnp_hier.deterministic import MAPDP, BayesianKMeans
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.model_draws import is_model_draw
from bnp_hier.distributions.seating import Prior, draw_index
from bnp_hier.inspection.collapsed import MixtureSites, MixtureValues, find_sites, read_values
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.base import PartitionKernel
from bnp_hier.kernels.chunked_rows import flat, in_chunks, row_chunks
from bnp_hier.kernels.initial_labels import check_labels
from bnp_hier.kernels.parallel_moves import (
    Clusters,
    Table,
    draw_labels,
    split_and_merge,
    sum_clusters,
    units_of_clusters,
    units_of_rows,
)
from bnp_hier.kernels.reports import counted_hits, stop_if_undefined
from bnp_hier.kernels.spread_rows import check_same_everywhere, check_spread, spread_arguments
from bnp_hier.models import pitman_yor_mixture
from bnp_hier.partitions.capacities import spread_rows, truncated_probability
from bnp_hier.partitions.row_features import Features, feature_map
from bnp_hier.partitions.scoring import mixture_log_weights
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sizes import size_summaries
from bnp_hier.partitions.sweeps import sweep
from bnp_hier.utils.arrays import as_matrix, is_traced
from bnp_hier.utils.jax_settings import standard_settings
from bnp_hier.utils.labels import first_come_labels
from bnp_hier.utils.options import WholeNumber
from bnp_hier.utils.sharded_arrays import is_spread, replicated, stays_on_device

__all__ = ["ParallelSplitMerge", "ParallelSplitMergeState"]

SWEEP_UP_TO = 10_000
"""Maximum number of rows for which a step also moves rows one at a time."""

SWEEP_SUMS_UP_TO = 1_000_000
"""Maximum total size of these rows' features, since the cost of a move is proportional to the features of a row."""

START_ROWS = 5000
"""Maximum number of rows to which an initialisation is fitted."""

START_STEPS = 100
"""Number of steps of the sampler on these rows if the data have more."""


class ParallelSplitMergeState(NamedTuple):
    """State of the kernel; every field but `z` and `rng_key` is label-invariant and can be collected as an extra field.

    - **z** - dictionary with the partition site's labels, (n,), numbered in order of appearance; −1 for rows without values in
      a distributed table.
    - **summary** - dictionary with "counts" and "statistics" of the clusters, largest first, empty slots last.
    - **log_joint** - log p(X, partition) at the current hyperparameters (nats).
    - **n_clusters** - number of clusters.
    - **largest_cluster** - number of rows in the largest cluster.
    - **entropy** - entropy of the cluster shares (nats).
    - **split_merge_accepted** - number of accepted splits and merges in the last step.
    - **capacity_hits** - number of times since the start that a row or a split found no free slot.
    - **truncated_probability** - conditional probability of a new cluster that the capacity truncated: the mean over at most
      1,024 rows and all steps so far.
    - **i** - number of steps so far.
    - **rng_key** - random key.
    - **rows** - arguments of the model that are distributed over devices; usually none.
    """

    z: dict[str, Int[Array, " n"]]
    summary: dict[str, Any]
    log_joint: Float[Array, ""]
    n_clusters: Int[Array, ""]
    largest_cluster: Int[Array, ""]
    entropy: Float[Array, ""]
    split_merge_accepted: Int[Array, ""]
    capacity_hits: Int[Array, ""]
    truncated_probability: Float[Array, ""]
    i: Int[Array, ""]
    rng_key: Array
    rows: tuple[Array, ...] = ()


class ParallelSplitMerge(PartitionKernel):
    """Exact parallel sampler for the partition of a mixture, which updates all rows at once by matrix products.

    A step proposes splits and merges of many disjoint sets of clusters, each with a Metropolis-Hastings correction, and then
    draws the labels of all rows except one per cluster, given weights and parameters. For small tables, it ends with a sweep of
    single-row moves. The kernel is used like `PartitionGibbs`, alone or in a `Gibbs` composition.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it.
    max_clusters
        Capacity: the target is the posterior restricted to at most this many clusters. If the partition site has a smaller
        `max_clusters`, that applies instead. Reaching the capacity is counted in `capacity_hits` of the state, measured by
        `truncated_probability`, and raises a warning. The cost of a step grows with the capacity.
    init
        "fits": the clusters of `BayesianKMeans` or `MAPDP`, chosen at random, fitted to at most 5,000 rows drawn with a
        seed from the key of the chain. If there are more rows, 100 steps without sweeps follow on these, and each of the
        others joins a cluster drawn from its probabilities. Under chain methods that hide the key, all chains start from
        the same fit; if the rows are distributed over devices, those that were drawn are gathered. "one": one cluster. An
        array: labels from 0, (n,). The `init_params` of `MCMC.run` take precedence.
    sweep
        Whether a step ends with a sweep of single-row moves. None means yes for up to 10,000 rows with up to a million features
        in total, and no otherwise.
    keep_labels
        Whether `MCMC` collects the labels; otherwise it collects `summary`, the clusters' counts and statistics. The labels of
        a million rows in a thousand draws take 4 GB.

    Raises
    ------
    ValueError
        If an option is out of range. At `init`, if the model lacks the two sites or has other latent sites that belong to no
        block, or if the data or initial labels are invalid.

    Notes
    -----
    Weights, parameters and then all labels at once are drawn as in the sub-cluster sampler of Chang & Fisher (2013). The splits
    and merges, and the step for the labels, which cannot empty a cluster, are specific to this package.

    The sampler targets the exact posterior. Rows are processed in their own precision, and sums are kept in JAX's default
    precision: above about 20,000 rows, `numpyro.enable_x64()` with float32 data is fast and precise. Rows may be distributed
    over devices as an array that is sharded along its first dimension: no row leaves its device, and results do not depend on
    the number of devices. A JAX array of 2²² numbers or more stays on its device too: it is checked there and is an argument of
    compiled programs, whereas NumPy arrays are copied and compiled into them as constants.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> kernel = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=component), max_clusters=5)
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)  # doctest: +SKIP
    >>> bnp.point_estimate(mcmc.get_samples()["z"])  # doctest: +SKIP
    array([0, 0, 0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [callable],
        "max_clusters": [WholeNumber()],
        "init": [StrOptions({"fits", "one"}), "array-like"],
        "sweep": ["boolean", None],
        "keep_labels": ["boolean"],
    }

    def __init__(
        self,
        model: Model,
        max_clusters: int = 64,
        *,
        init: str | Any = "fits",
        sweep: bool | None = None,
        keep_labels: bool = True,
    ) -> None:
        super().__init__(model, max_clusters)
        self._init, self._sweep, self._keep_labels = init, sweep, keep_labels
        self._sites: MixtureSites | None = None
        self._features: Features | None = None
        self._of_rows: NamedSharding | None = None
        self._all_there = True

    @property
    def sample_field(self) -> str:  # type: ignore[override]
        """The field that `MCMC` collects."""
        return "z" if self._keep_labels else "summary"

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields collected by `MCMC`."""
        return (self.sample_field,)

    @standard_settings()
    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> ParallelSplitMergeState:
        """Return the state at `init_params` (labels of the partition site) or at the kernel's `init` option."""
        model_args, model_kwargs, self._places, spread, there = spread_arguments(model_args, model_kwargs)
        sites = find_sites(self._model, model_args, model_kwargs)
        if sites.missing in sites.others:
            raise ValueError(
                f"ParallelSplitMerge needs complete rows for components with full or shared covariance matrices, but the model "
                f'has the site {sites.missing!r} of missing values: use Gibbs([(PartitionGibbs(model), ["{sites.partition}", '
                f'"{sites.missing}"]), (HyperparameterGibbs(model), None)]), or a component with independent columns'
            )
        self._refuse_other_sites(sites.partition, sites.others)
        values = read_values(self._model, sites, {}, model_args, model_kwargs)
        if stays_on_device(values.X):
            check_spread(jnp.asarray(values.X), values.component.allows_missing)
            check_same_everywhere((values.component, values.concentration, values.discount), "the prior")
        elif not is_traced(values.X):
            as_matrix(values.X, min_rows=2)
            values.component.validate(values.X)
            values.component.check_precision(values.X)
        values = _moved(values)
        self._of_rows = _sharding_of_rows(values.X)
        self._sites, self._features, self._sample_fn = sites, feature_map(values.component), self._sample_one
        start = (init_params or {}).get(sites.partition)
        if start is None or is_model_draw(start):  # without values from the user, `Gibbs` passes a draw from the model
            start = None if isinstance(self._init, str) else jnp.asarray(self._init)
            if start is not None and not is_prng_key(rng_key):
                start = jnp.broadcast_to(start, (len(rng_key), *start.shape))
        if start is not None and not is_traced(start) and not is_spread(start):
            check_labels(np.asarray(start), sites.size, self._capacity)

        self._all_there = there is None
        if there is not None and self._sweep:
            raise ValueError("sweep=True is not available for distributed tables with rows that have no values")
        begin = partial(_begin, capacity=self._capacity, site=sites.partition, features=self._features)
        if start is None and is_prng_key(rng_key):
            start = self._starting_labels(values, rng_key, there)
        elif start is None:
            start = jnp.stack([self._starting_labels(values, key, there) for key in rng_key])
        if there is not None:
            start = jnp.where(there, start, -1)
        if is_prng_key(rng_key):
            state = begin(values, rng_key, start)
        else:
            state = jax.vmap(begin, (None, 0, 0))(values, rng_key, start)
        return self._placed(state)._replace(rows=spread)

    def _placed(self, state: ParallelSplitMergeState) -> ParallelSplitMergeState:
        """The state with its labels where the rows are, and all else everywhere, before and after a step alike.

        Otherwise, programs would be compiled again for the second step.
        """
        if self._of_rows is None:
            return state
        everywhere = NamedSharding(self._of_rows.mesh, PartitionSpec())
        shardings = jax.tree.map(lambda _: everywhere, state)._replace(z=jax.tree.map(lambda _: self._of_rows, state.z))
        if is_traced(state):
            return jax.lax.with_sharding_constraint(state, shardings)
        return jax.jit(lambda state: state, out_shardings=shardings)(state)

    @property
    def _capacity(self) -> int:
        assert self._sites is not None
        return min(limit for limit in (self._sites.size, self._max_clusters, self._sites.max_clusters) if limit is not None)

    def _starting_labels(self, values: MixtureValues, key: Array, there: Bool[Array, " n"] | None) -> Int[Array, " n"]:
        if self._init == "one" or is_traced(values):
            return jnp.zeros(values.X.shape[0], int)
        with jax.ensure_compile_time_eval():  # fitted to concrete values, even where a chain method traces `init`
            return self._fitted_labels(values, key, there)

    def _fitted_labels(self, values: MixtureValues, key: Array, there: Bool[Array, " n"] | None) -> Int[Array, " n"]:
        n = values.X.shape[0]
        key = jax.random.key(0) if is_traced(key) else key
        seed, kind = map(int, jax.random.randint(key, (2,), 0, 1 << 30))
        chosen = np.random.default_rng(seed).choice(n, min(n, START_ROWS), replace=False)
        if there is not None:
            chosen = chosen[replicated(there[chosen])]
        rows, component, concentration, discount = values.X[chosen], values.component, values.concentration, values.discount
        if stays_on_device(values.X):
            rows, component, concentration, discount = jax.tree.map(replicated, (rows, component, concentration, discount))
        model = partial(pitman_yor_mixture, component=component, concentration=concentration, discount=discount)
        fit: BayesianKMeans | MAPDP = BayesianKMeans(model, polish=False, random_state=seed)
        if kind % 2:
            fit = MAPDP(model, n_init=1, random_state=seed)
        fit.fit(np.asarray(rows, float))
        by_size = np.argsort(np.argsort(-fit.counts_, kind="stable"))
        labels = jnp.asarray(np.where(by_size < self._capacity, by_size, 0)[fit.labels_])
        if n <= START_ROWS:
            return jnp.zeros(n, labels.dtype).at[chosen].set(labels)
        # fitted clusters have hard edges and may be too few: a chain of few rows soon leaves such a start, one of many does not
        few = MixtureValues(Prior(concentration, discount), component, rows)
        capacity = min(self._capacity, len(chosen))
        labels = _settled(few, labels, jax.random.fold_in(key, 1), feature_map(values.component), capacity)
        everyone = _seat_rows(values, rows, labels, jax.random.fold_in(key, 2), self._capacity)
        return everyone.at[chosen].set(labels)

    def _sample_one(
        self, state: ParallelSplitMergeState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> ParallelSplitMergeState:
        sites, features, slots = self._sites, self._features, self._capacity
        assert sites is not None and features is not None, "`init` must be called before `sample`"
        values = _moved(read_values(self._model, sites, {}, model_args, model_kwargs))
        prior = values.process
        table = _table(values, features)
        key, key_step = jax.random.split(state.rng_key)
        small = sites.size <= SWEEP_UP_TO and sites.size * features.width <= SWEEP_SUMS_UP_TO
        swept = self._all_there and (small if self._sweep is None else self._sweep)
        labels, accepted, refused = _step(values, table, prior, state.z[sites.partition], key_step, slots, swept)
        labels = first_come_labels(labels, slots)
        clusters = sum_clusters(table, labels, slots)
        asked = jnp.asarray(spread_rows(sites.size))
        rows = table.component.suff_stats(table.X[asked])
        mass = truncated_probability(table.component, clusters.stats, clusters.counts, rows, labels[asked], prior)
        labels, hits, mass = counted_hits(self, f"{slots} clusters", state, labels, refused, mass)
        by_size, joint, k, largest, entropy = _summaries(table, prior, clusters)
        joint = stop_if_undefined("ParallelSplitMerge", joint, labels if swept else None)
        z = {sites.partition: labels}
        return self._placed(
            ParallelSplitMergeState(z, by_size, joint, k, largest, entropy, accepted, hits, mass, state.i + 1, key)
        )


def _moved(values: MixtureValues) -> MixtureValues:
    """Shift rows and component to the reference point of the statistics, so that single precision is accurate enough."""
    by = values.component.reference()
    if not isinstance(values.X, np.ndarray) or is_traced(by) or not np.any(by):
        return values
    by = np.asarray(by, dtype=np.float64)
    return values._replace(component=values.component.translated(by), X=values.X - by)


def _step(
    values: MixtureValues, table: Table, prior: Prior, labels: Int[Array, " n"], key: Array, slots: int, swept: bool
) -> tuple[Int[Array, " n"], Int[Array, ""], Int[Array, ""]]:
    """Take one step; return the labels in no particular order, the number of accepted moves, and how often no slot was free."""
    size = values.X.shape[0]
    keys = jax.random.split(key, 5)
    clusters = sum_clusters(table, labels, slots)
    # The kind, order and number of moves are fixed or decided by a coin flip, never by the partition.
    # Uniformly drawn rows rarely belong to a given cluster, so most steps go through all clusters.
    units = jax.lax.cond(jax.random.bernoulli(keys[0], 0.75), units_of_clusters, units_of_rows, keys[1], clusters)
    labels, accepted, refused = split_and_merge(keys[2], table, clusters, prior, units)
    labels = draw_labels(keys[3], table, sum_clusters(table, labels, slots), prior)
    if swept:
        order, uniforms = jax.random.uniform(keys[4], (2, size))
        seating = Seating(values.component, values.X, prior)
        labels, full = sweep(seating, labels, jnp.argsort(order), uniforms, slots)
        refused = refused + full
    return labels, accepted, refused


@partial(jax.jit, static_argnames=("features", "slots"))
def _settled(values: MixtureValues, labels: Int[Array, " m"], key: Array, features: Features, slots: int) -> Int[Array, " m"]:
    """Labels after `START_STEPS` steps; compiled once for all chains."""
    table, prior = _table(values, features), values.process

    def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        labels, key = state
        key, key_step = jax.random.split(key)
        moved = _step(values, table, prior, labels, key_step, slots, swept=False)[0]
        return first_come_labels(moved, slots), key

    settled, _ = jax.lax.fori_loop(0, START_STEPS, step, (first_come_labels(labels, slots), key))
    return settled


def _sharding_of_rows(X: Any) -> NamedSharding | None:
    """How numbers of the rows are distributed if the rows are; None if they are not."""
    if not is_spread(X) or not isinstance(X.sharding, NamedSharding):
        return None
    return NamedSharding(X.sharding.mesh, PartitionSpec(*X.sharding.spec[:1]))


@partial(jax.jit, static_argnames="slots")
def _seat_rows(
    values: MixtureValues, few: Float[Array, "m d"], labels: Int[Array, " m"], key: Array, slots: int
) -> Int[Array, " n"]:
    """Draw a cluster for every row from its probabilities given a few labelled rows; no new cluster is opened."""
    stats = cluster_statistics(values.component.suff_stats(few), labels, slots)
    counts, prior = cluster_counts(labels, slots).astype(float), values.process

    def seat(_: None, chunk: tuple[Array, Array]) -> tuple[None, Array]:
        rows, uniforms = chunk
        weights = mixture_log_weights(values.component, stats, counts, prior, rows)[:, :-1]
        return None, jax.vmap(draw_index)(jnp.exp(weights - weights.max(1, keepdims=True)), uniforms).astype(labels.dtype)

    X = jnp.asarray(values.X)
    n = X.shape[0]
    _, drawn = jax.lax.scan(seat, None, (row_chunks(X).X, in_chunks(jax.random.uniform(key, (n,)))))
    return flat(drawn, n)


def _table(values: MixtureValues, features: Features) -> Table:
    X = jnp.asarray(values.X)
    X = X if jnp.issubdtype(X.dtype, jnp.floating) else X.astype(float)
    component = jax.tree.map(jnp.asarray, values.component)
    of_rows = jax.tree.map(lambda leaf: leaf.astype(X.dtype), component)
    return Table(component, of_rows, X, row_chunks(X), features)


def _summaries(table: Table, prior: Prior, clusters: Clusters) -> tuple[dict[str, Any], Array, Array, Array, Array]:
    """Clusters by size, log joint (nats), and the label-invariant summaries of the sizes."""
    order = jnp.argsort(-clusters.counts)
    by_size = {"counts": clusters.counts[order], "statistics": jax.tree.map(lambda leaf: leaf[order], clusters.stats)}
    joint = log_partition_prior(clusters.counts, *prior) + table.component.log_marginal(clusters.stats).sum()
    return by_size, joint, *size_summaries(clusters.counts.astype(int))


@partial(jax.jit, static_argnames=("capacity", "site", "features"))
def _begin(
    values: MixtureValues, key: Array, labels: Int[Array, " n"], capacity: int, site: str, features: Features
) -> ParallelSplitMergeState:
    """Return the state at the given labels."""
    labels = first_come_labels(labels.astype(int), labels.shape[0])
    # labels beyond the capacity share its last slot: a valid start that the chain soon leaves
    labels = jnp.minimum(labels, capacity - 1)  # −1 is kept
    table, prior, zero = _table(values, features), values.process, jnp.zeros((), int)
    summaries = _summaries(table, prior, sum_clusters(table, labels, capacity))
    return ParallelSplitMergeState({site: labels}, *summaries, zero, zero, jnp.zeros(()), zero, jax.random.fold_in(key, 1))
