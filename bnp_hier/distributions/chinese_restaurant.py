"""The Chinese restaurant process: the partition prior of Dirichlet-process and Pitman-Yor mixtures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.distributions.partition_prior import PartitionPrior, cluster_counts
from bnp_hier.native.availability import ffi_available
from bnp_hier.utils.arrays import is_traced

__all__ = [
    "ChineseRestaurantProcess",
    "cluster_counts",
    "log_cluster_priors",
    "log_partition_prior",
    "log_v_of_pitman_yor",
    "seat_all",
    "seat_by_weights",
    "seat_customers",
]


def log_partition_prior(
    counts: Num[Array | np.ndarray, "... k"], concentration: ArrayLike, discount: ArrayLike = 0.0
) -> Float[Array, "..."]:
    """Log probability of a partition with these cluster sizes (zeros are ignored) under a Pitman-Yor process (nats).

    Σ_{l=1}^{K−1} log(α + lδ) + Σ_k [lgamma(n_k − δ) − lgamma(1 − δ)] − [lgamma(α + n) − lgamma(α + 1)]; for the Dirichlet
    process, δ = 0, this is K log α + Σ_k lgamma(n_k) + lgamma(α) − lgamma(n + α).
    """
    counts = jnp.asarray(counts, jnp.result_type(float))
    alpha, discount = jnp.asarray(concentration), jnp.asarray(discount)
    rank = jnp.cumsum(counts > 0, axis=-1, dtype=counts.dtype) - 1
    clusters = log_cluster_priors(counts, rank, alpha[..., None], discount[..., None])
    return clusters.sum(-1) - log_gamma_ratio(alpha + 1.0, counts.sum(-1) - 1.0)


def log_cluster_priors(
    counts: Float[Array, "... k"], rank: Float[Array, "... k"], concentration: ArrayLike, discount: ArrayLike
) -> Float[Array, "... k"]:
    """Terms of `log_partition_prior` that belong to single clusters, 0 for empty ones (nats).

    `rank` is the number of clusters before each one: the first opens with probability one.
    """
    occupied = counts > 0
    opening = jnp.where(occupied & (rank > 0), jnp.log(jnp.where(rank > 0, concentration + rank * discount, 1.0)), 0.0)
    # where(...) inside and outside keeps gradients finite at empty slots
    sizes = jnp.where(occupied, gammaln(jnp.where(occupied, counts, 1.0) - discount) - gammaln(1.0 - discount), 0.0)
    return opening + sizes


class ChineseRestaurantProcess(PartitionPrior):
    """Distribution of a partition of `size` items, as a vector of cluster labels: Dirichlet or Pitman-Yor process.

    Gibbs type with V(n, k) = Π_{l=1}^{k−1} (α + lδ) / (α + 1)_{n−1}.

    Parameters
    ----------
    concentration
        α > 0 (> −discount for Pitman-Yor); larger values favour more clusters.
    size
        Number of items n.
    discount
        Pitman-Yor discount in [0, 1); 0 is the Dirichlet process.
    max_clusters
        If given, partitions into more clusters have probability zero. The density is not renormalised, so that the joint
        density with a prior on `concentration` is the untruncated one restricted to the remaining partitions.

    Raises
    ------
    ValueError
        If the size or `max_clusters` is not a whole number of at least 1, the discount is not in [0, 1), or the concentration
        is not finite and above −discount.

    Notes
    -----
    See Pitman & Yor (1997) for the process with a discount.

    Draws are labelled in order of appearance (item 0 has label 0, the first item in another cluster has label 1, ...).
    `log_prob` is the log probability of the partition that the labels describe, however its clusters are numbered; the
    probabilities of all partitions (not of all label vectors) sum to one. Labels lie in 0, ..., n − 1. Draws follow the
    process without `max_clusters`, except that no new cluster opens once this number is reached.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from bnp_hier import ChineseRestaurantProcess
    >>> log_probability = ChineseRestaurantProcess(1.0, 3).log_prob(jnp.array([0, 0, 1]))
    >>> round(float(jnp.exp(log_probability)), 4)  # one of three ways to separate one item, 1/6 each
    0.1667
    """

    arg_constraints = {"concentration": constraints.real, "discount": constraints.unit_interval}
    pytree_data_fields = ("concentration",)

    def __init__(
        self,
        concentration: ArrayLike,
        size: int,
        discount: ArrayLike = 0.0,
        max_clusters: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not is_traced(concentration, discount):
            d, c = np.asarray(discount), np.asarray(concentration)
            if not ((d >= 0) & (d < 1)).all():
                raise ValueError(f"ChineseRestaurantProcess: discount must lie in [0, 1), but it is {d}")
            if not (c > -d).all():
                raise ValueError(f"ChineseRestaurantProcess: concentration must exceed {0.0 - np.min(d):g}, but it is {c}")
            if not np.isfinite(c).all():
                raise ValueError(f"ChineseRestaurantProcess: concentration must be finite, but it is {c}")
        self.concentration = concentration
        batch = jnp.broadcast_shapes(jnp.shape(concentration), jnp.shape(discount))
        super().__init__(size, discount, max_clusters, batch_shape=batch, validate_args=validate_args)

    def log_v(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log V(n, k); see `PartitionPrior.log_v`."""
        return log_v_of_pitman_yor(n, clusters, self.concentration, self.discount)

    def log_open(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log (α + kδ), whatever n is; see `PartitionPrior.log_open`."""
        k = jnp.asarray(clusters, jnp.result_type(float))
        return jnp.log(jnp.asarray(self.concentration, k.dtype) + k * jnp.asarray(self.discount, k.dtype))

    @validate_sample
    def log_prob(self, value: Int[Array | np.ndarray, "... n"]) -> Float[Array, "..."]:
        """Log probability of the partition that the labels describe (nats)."""
        counts = cluster_counts(jnp.asarray(value), self.size)
        log_prob = log_partition_prior(counts, self.concentration, self.discount)
        if self.max_clusters is not None:
            log_prob = jnp.where((counts > 0).sum(-1) <= self.max_clusters, log_prob, -jnp.inf)
        return log_prob

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Int[Array, "... n"]:
        """Draw partitions by seating one customer at a time, labelled in order of appearance."""
        assert key is not None
        shape = (*sample_shape, *self.batch_shape)
        alpha = jnp.broadcast_to(jnp.asarray(self.concentration, jnp.result_type(float)), shape)
        discount = jnp.broadcast_to(jnp.asarray(self.discount, alpha.dtype), shape)
        return seat_all(key, alpha, discount, self.size, self._most)


def log_v_of_pitman_yor(n: ArrayLike, clusters: Any, concentration: Any, discount: Any) -> Float[Array, "..."]:
    """Log V(n, k) of a Pitman-Yor process (nats)."""
    alpha, d = (jnp.asarray(value, jnp.result_type(float)) for value in (concentration, discount))
    k = jnp.asarray(clusters, alpha.dtype)
    step = jnp.where(d > 0, d, 1.0)
    # (α + δ)(α + 2δ)... in k − 1 factors; where(...) keeps the other branch finite
    pitman_yor = (k - 1.0) * jnp.log(step) + log_gamma_ratio(jnp.where(d > 0, alpha / step, 0.0) + 1.0, k - 1.0)
    dirichlet = (k - 1.0) * jnp.log(jnp.where(d > 0, 1.0, alpha))
    openings, count = jnp.where(d > 0, pitman_yor, dirichlet), jnp.asarray(n, alpha.dtype)
    return jnp.where(k <= count, openings - log_gamma_ratio(alpha + 1.0, count - 1.0), -jnp.inf)


def seat_all(
    key: Array, concentration: Float[Array, "*b"], discount: Float[Array, "*b"], size: int, slots: ArrayLike
) -> Int[Array, "*b n"]:
    """Draw one partition per pair of parameters, into at most `slots` clusters each."""
    room = slots if isinstance(slots, int) else size
    parameters = (jnp.broadcast_to(each, concentration.shape).reshape(-1) for each in (concentration, discount, slots))
    return _seat_all(key, *parameters, size, room).reshape(*concentration.shape, size)


@partial(jax.jit, static_argnames=("size", "room"))
def _seat_all(
    key: Array, concentration: Float[Array, " b"], discount: Float[Array, " b"], slots: Int[Array, " b"], size: int, room: int
) -> Int[Array, "b n"]:
    """Draw one partition per pair of parameters."""
    uniforms = jax.random.uniform(key, (concentration.shape[0], size), concentration.dtype)
    return jax.vmap(partial(seat_customers, room=room))(uniforms, concentration, discount, slots)


def seat_customers(
    uniforms: Float[Array, " n"], concentration: ArrayLike, discount: ArrayLike, slots: ArrayLike, room: int | None = None
) -> Int[Array, " n"]:
    """Seat one customer at a time, by inversion of the uniform draws; tables are numbered in order of appearance.

    If `slots` tables are occupied, customers join these in proportion to their weights. `room`, at least `slots`, is the number
    of tables for which XLA reserves memory; None for one per customer.
    """
    alpha, d = (jnp.asarray(value, uniforms.dtype) for value in (concentration, discount))
    if ffi_available():
        from bnp_hier.native.starts import SEAT_ALL

        shape = jax.ShapeDtypeStruct(uniforms.shape, jnp.result_type(int))
        return SEAT_ALL.ffi_call([shape], uniforms, jnp.stack([alpha, d]), jnp.asarray(slots))[0]

    opening = lambda tables: alpha + tables.astype(d.dtype) * d  # noqa: E731
    return seat_by_weights(uniforms, d, opening, slots, room or len(uniforms))


def seat_by_weights(
    uniforms: Float[Array, " n"], discount: ArrayLike, opening: Callable[[Array], Array], slots: ArrayLike, room: int
) -> Int[Array, " n"]:
    """Seat one customer at a time; `opening` computes the weight of a new table from the number of occupied ones."""
    d = jnp.asarray(discount, uniforms.dtype)

    def seat(counts: Array, uniform: Array) -> tuple[Array, Array]:
        occupied = counts > 0
        tables = occupied.sum()
        opens = (jnp.arange(len(counts)) == tables) & (tables < slots)
        # the first customer always opens a table
        new = jnp.where(tables > 0, opening(jnp.maximum(tables, 1)), 1.0)
        cumulative = jnp.cumsum(jnp.where(occupied, counts - d, jnp.where(opens, new, 0.0)))
        label = (cumulative <= uniform * cumulative[-1]).sum()
        return counts.at[label].add(1.0), label.astype(int)

    return jax.lax.scan(seat, jnp.zeros(room, uniforms.dtype), uniforms)[1]
