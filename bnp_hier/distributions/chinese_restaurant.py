"""The Chinese restaurant process: the partition prior of Dirichlet-process and Pitman-Yor mixtures."""

from __future__ import annotations

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
from bnp_hier.distributions.model_draws import RememberedDraws
from bnp_hier.native.availability import ffi_available
from bnp_hier.utils.arrays import is_traced

__all__ = [
    "ChineseRestaurantProcess",
    "cluster_counts",
    "log_cluster_priors",
    "log_partition_prior",
    "seat_customers",
]


def cluster_counts(labels: Int[Array, "... n"], size: int) -> Int[Array, "... k"]:
    """Number of items with each of the labels 0, ..., size − 1."""
    flat = labels.reshape(-1, labels.shape[-1])
    counts = jax.vmap(lambda row: jax.ops.segment_sum(jnp.ones_like(row), row, size))(flat)
    return counts.reshape(*labels.shape[:-1], size)


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


class ChineseRestaurantProcess(RememberedDraws):
    """Distribution of a partition of `size` items, as a vector of cluster labels.

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
    pytree_data_fields = ("concentration", "discount")
    pytree_aux_fields = ("size", "max_clusters")
    reparametrized_params: list[str] = []

    def __init__(
        self,
        concentration: ArrayLike,
        size: int,
        discount: ArrayLike = 0.0,
        max_clusters: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if size != int(size) or size < 1:
            raise ValueError(f"ChineseRestaurantProcess: size must be a whole number of at least 1, but it is {size}")
        if max_clusters is not None and (max_clusters != int(max_clusters) or max_clusters < 1):
            raise ValueError(
                f"ChineseRestaurantProcess: max_clusters must be a whole number of at least 1, but it is {max_clusters}"
            )
        if not is_traced(concentration, discount):
            d, c = np.asarray(discount), np.asarray(concentration)
            if not ((d >= 0) & (d < 1)).all():
                raise ValueError(f"ChineseRestaurantProcess: discount must lie in [0, 1), but it is {d}")
            if not (c > -d).all():
                raise ValueError(f"ChineseRestaurantProcess: concentration must exceed {0.0 - np.min(d):g}, but it is {c}")
            if not np.isfinite(c).all():
                raise ValueError(f"ChineseRestaurantProcess: concentration must be finite, but it is {c}")
        self.concentration, self.discount = concentration, discount
        self.size, self.max_clusters = int(size), max_clusters
        batch = jnp.broadcast_shapes(jnp.shape(concentration), jnp.shape(discount))
        super().__init__(batch_shape=batch, event_shape=(self.size,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Label vectors with entries 0, ..., n − 1."""
        return constraints.independent(constraints.integer_interval(0, self.size - 1), 1)

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
        alpha = jnp.broadcast_to(jnp.asarray(self.concentration, jnp.result_type(float)), shape).reshape(-1)
        discount = jnp.broadcast_to(jnp.asarray(self.discount, alpha.dtype), shape).reshape(-1)
        slots = self.size if self.max_clusters is None else min(self.size, self.max_clusters)
        return _seat_all(key, alpha, discount, self.size, slots).reshape(*shape, self.size)


@partial(jax.jit, static_argnames=("size", "slots"))
def _seat_all(
    key: Array, concentration: Float[Array, " b"], discount: Float[Array, " b"], size: int, slots: int
) -> Int[Array, "b n"]:
    """Draw one partition per pair of parameters."""
    uniforms = jax.random.uniform(key, (concentration.shape[0], size), concentration.dtype)
    return jax.vmap(partial(seat_customers, slots=slots))(uniforms, concentration, discount)


def seat_customers(uniforms: Float[Array, " n"], concentration: ArrayLike, discount: ArrayLike, slots: int) -> Int[Array, " n"]:
    """Seat one customer at a time, by inversion of the uniform draws; tables are numbered in order of appearance.

    If `slots` tables are occupied, customers join these in proportion to their weights.
    """
    alpha, d = (jnp.asarray(value, uniforms.dtype) for value in (concentration, discount))
    if ffi_available():
        from bnp_hier.native.starts import SEAT_ALL

        shape = jax.ShapeDtypeStruct(uniforms.shape, jnp.result_type(int))
        return SEAT_ALL.ffi_call([shape], uniforms, jnp.stack([alpha, d]), np.array(slots))[0]

    def seat(counts: Array, uniform: Array) -> tuple[Array, Array]:
        occupied = counts > 0
        tables = occupied.sum()
        opens = jnp.arange(slots) == tables
        # the first customer always opens a table
        opening = jnp.where(tables > 0, alpha + tables.astype(d.dtype) * d, 1.0)
        cumulative = jnp.cumsum(jnp.where(occupied, counts - d, jnp.where(opens, opening, 0.0)))
        label = (cumulative <= uniform * cumulative[-1]).sum()
        return counts.at[label].add(1.0), label.astype(int)

    return jax.lax.scan(seat, jnp.zeros(slots, uniforms.dtype), uniforms)[1]
