"""Probabilities with which an item joins the clusters of a partition."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num

from bnp_hier.components.special import log_gamma_ratio, log_gamma_ratio_in_numpy
from bnp_hier.distributions.chinese_restaurant import ChineseRestaurantProcess, log_partition_prior
from bnp_hier.distributions.partition_prior import PartitionPrior, log_block
from bnp_hier.utils.arrays import is_traced

__all__ = [
    "GibbsTypePrior",
    "Prior",
    "TabulatedPrior",
    "draw_index",
    "log_seating",
    "log_slot_seating",
    "process_of",
    "seating_prior",
]


class Prior(NamedTuple):
    """Parameters of a Dirichlet or Pitman-Yor process.

    - **concentration** - α.
    - **discount** - Pitman-Yor discount, 0 for the Dirichlet process.
    """

    concentration: ArrayLike
    discount: ArrayLike = 0.0

    def log_open(self, clusters: Any) -> Any:
        """Log weight with which an item opens a cluster, given one or more clusters among the others: log (α + kδ)."""
        if is_traced(self, clusters) or isinstance(clusters, jax.Array):
            k = jnp.asarray(clusters)
            k = k if jnp.issubdtype(k.dtype, jnp.floating) else k.astype(float)
            return jnp.log(jnp.asarray(self.concentration, k.dtype) + k * jnp.asarray(self.discount, k.dtype))
        alpha, discount = (np.asarray(value, dtype=np.float64) for value in self)
        return np.log(alpha + np.asarray(clusters) * discount)

    @property
    def of_a_further_item(self) -> Prior:
        """The prior with which an item beside all others is seated: the same."""
        return self

    def log_whole(self, n: Any) -> Any:
        """Log V(n, 1) (nats)."""
        if is_traced(self):
            return -log_gamma_ratio(jnp.asarray(self.concentration, float) + 1.0, jnp.asarray(n - 1.0, float))
        return -log_gamma_ratio_in_numpy(np.asarray(self.concentration, np.float64) + 1.0, np.float64(n - 1))

    def log_prob(self, counts: Num[Array | np.ndarray, " k"]) -> Float[Array, ""]:
        """Log probability of a partition with these cluster sizes, of which zeros are ignored (nats)."""
        return log_partition_prior(counts, *self)


class TabulatedPrior(NamedTuple):
    """Another partition prior of Gibbs type for a known number n of items; see `PartitionPrior`.

    - **discount** - σ.
    - **log_one** - log V(n, 1).
    - **log_opens** - (2, K) log V(m, k + 1) − log V(m, k) for k = 1, ..., K: for m = n, and for m = n + 1.
    """

    discount: ArrayLike
    log_one: ArrayLike
    log_opens: Float[Array | np.ndarray, "two k"]

    @property
    def of_a_further_item(self) -> TabulatedPrior:
        """The prior with which an item beside all n others is seated; it has no log V(n, 1)."""
        return TabulatedPrior(self.discount, jnp.nan, self.log_opens[1:])

    def log_open(self, clusters: Any) -> Any:
        """Log weight with which an item opens a cluster, given one or more clusters among the others."""
        if is_traced(self, clusters) or isinstance(clusters, jax.Array):
            at, logs = jnp.asarray(clusters).astype(int) - 1, jnp.asarray(self.log_opens[0], float)
            return jnp.where(at < len(logs), logs[at], -jnp.inf)
        before, known = np.asarray(clusters, int) - 1, np.asarray(self.log_opens[0], np.float64)
        return np.where(before < len(known), known[np.minimum(before, len(known) - 1)], -np.inf)

    def log_whole(self, n: Any) -> Any:
        """Log V(n, 1) (nats), for the number of items of the table."""
        del n
        return self.log_one

    def log_prob(self, counts: Num[Array | np.ndarray, " k"]) -> Float[Array, ""]:
        """Log probability of a partition with these cluster sizes, of which zeros are ignored (nats)."""
        counts = jnp.asarray(counts, jnp.result_type(float))
        opens = jnp.asarray(self.log_opens[0], counts.dtype)
        opened = jnp.arange(1, len(opens) + 1) < (counts > 0).sum()
        return (
            jnp.asarray(self.log_one, counts.dtype)
            + jnp.where(opened, opens, 0.0).sum()
            + log_block(counts, self.discount).sum()
        )


GibbsTypePrior = Prior | TabulatedPrior
"""What the conditionals and the density of a partition are computed from."""


def process_of(prior: GibbsTypePrior) -> Prior:
    """Return the parameters of a Dirichlet or Pitman-Yor process.

    Raises
    ------
    ValueError
        If the prior is another one.
    """
    if not isinstance(prior, Prior):
        raise ValueError(
            "this method is for Dirichlet and Pitman-Yor processes, and the model has another partition prior: use a "
            "ChineseRestaurantProcess, or what is for all priors (PartitionGibbs, and MAPDP of rows in memory)"
        )
    return prior


def seating_prior(prior: PartitionPrior) -> GibbsTypePrior:
    """Read a partition prior at its current parameters; works under ``jit``."""
    if isinstance(prior, ChineseRestaurantProcess):
        return Prior(prior.concentration, prior.discount)
    clusters = np.arange(1, prior.size + 1)
    n, opens = prior.size, [prior.log_open(m, clusters) for m in (prior.size, prior.size + 1)]
    return TabulatedPrior(prior.discount, prior.log_v(n, 1), jnp.stack(opens))


def log_seating(
    counts: Float[Array | np.ndarray, " k"], prior: GibbsTypePrior, max_clusters: ArrayLike = jnp.inf
) -> Float[Array | np.ndarray, " k1"]:
    """Log probability that the next item joins each cluster (−inf where empty) and, last, opens a new one.

    If there are already `max_clusters` clusters, no new one opens, and its probability is shared among the others in proportion
    to their own.
    """
    xp = np if isinstance(counts, np.ndarray) else jnp
    occupied = counts > 0
    clusters = occupied.sum(dtype=counts.dtype)
    room = clusters < max_clusters
    opening = xp.where(clusters > 0, xp.exp(prior.log_open(xp.maximum(clusters, 1.0))), 1.0)
    weights = xp.append(xp.where(occupied, counts - prior.discount, 0.0), opening)
    possible = xp.append(occupied, room)
    logs = xp.where(possible, xp.log(xp.where(possible, weights, 1.0)), -xp.inf)
    return logs - xp.log(weights[:-1].sum() + xp.where(room, opening, 0.0))


def log_slot_seating(counts: Float[Array, " k"], prior: Prior) -> Float[Array, " k"]:
    """Log probability that the next item joins each slot, where a new cluster is equally likely to take any empty slot.

    Proportional to (n_k − δ) for an occupied slot and (α + cδ)/(K − c) for an empty one, with c of K slots occupied. If no
    slot is empty, this is the partition prior restricted to the existing clusters.
    """
    concentration, discount = prior
    occupied = counts > 0
    clusters = occupied.sum(dtype=counts.dtype)
    opening = (concentration + clusters * discount) / jnp.maximum(counts.shape[0] - clusters, 1)
    weights = jnp.where(occupied, counts - discount, opening)
    return jnp.log(weights) - jnp.log(weights.sum())


def draw_index(weights: Float[Array, " k"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Draw an index with probability proportional to its weight, by inversion: first a block of indices, then one within it.

    Two short cumulative sums cost less than one long one. Trailing indices with zero weight affect only the rounding.
    """
    k = weights.shape[0]
    width = max(1, round(k**0.5))
    blocks = jnp.pad(weights, (0, -k % width)).reshape(-1, width)

    def invert(weights: Array, target: Array) -> tuple[Array, Array]:
        upto = jnp.where(jnp.tri(weights.shape[0], dtype=bool), weights, 0.0).sum(1)
        # kept within (0, total] despite rounding, so that an index with zero weight is never drawn
        target = jnp.clip(target, jnp.finfo(weights.dtype).tiny, upto[-1])
        index = (upto < target).sum()
        return index, target - upto[index] + weights[index]

    totals = blocks.sum(1)
    block, rest = invert(totals, uniform * totals.sum())
    index, _ = invert(blocks[block], rest)
    return block * width + index
