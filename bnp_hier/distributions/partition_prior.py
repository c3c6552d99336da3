"""Partition priors of Gibbs type: everything that follows from a discount and one function of the number of clusters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.distributions.model_draws import RememberedDraws
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.programs import compiled

__all__ = ["PartitionPrior", "cluster_counts", "log_block"]

UNSEEN = 1e-14
"""Total probability, divided by √n, below which larger numbers of clusters are ignored."""


def cluster_counts(labels: Int[Array, "... n"], size: int) -> Int[Array, "... k"]:
    """Number of items with each of the labels 0, ..., size − 1."""
    flat = labels.reshape(-1, labels.shape[-1])
    counts = jax.vmap(lambda row: jax.ops.segment_sum(jnp.ones_like(row), row, size))(flat)
    return counts.reshape(*labels.shape[:-1], size)


def log_block(counts: Num[Array | np.ndarray, "..."], discount: ArrayLike) -> Float[Array, "..."]:
    """Log (1 − σ)_{m − 1} for clusters of m items, 0 for empty ones (nats)."""
    counts = jnp.asarray(counts, jnp.result_type(float))
    discount = jnp.asarray(discount, counts.dtype)
    occupied = counts > 0
    # where(...) inside and outside keeps gradients finite at empty slots
    return jnp.where(occupied, gammaln(jnp.where(occupied, counts, 1.0) - discount) - gammaln(1.0 - discount), 0.0)


class PartitionPrior(RememberedDraws):
    """Gibbs-type distribution of a partition of `size` items, as a vector of cluster labels.

    The probability of a partition into k clusters with n_1, ..., n_k of the n items is V(n, k) Π_c (1 − σ)_{n_c − 1}, with
    σ < 1 and (x)_m = Γ(x + m)/Γ(x) (Gnedin & Pitman 2006). A prior is therefore defined by `discount`, σ, and the method
    `log_v`, log V; all else follows. V has to satisfy V(1, 1) = 1 and V(n, k) = (n − kσ) V(n + 1, k) + V(n + 1, k + 1): the
    probabilities then sum to one, and those of a subset of the items do not depend on the other items.

    Parameters
    ----------
    size
        Number of items n.
    discount
        σ < 1; larger values favour more small clusters.
    max_clusters
        If given, partitions into more clusters have probability zero; the density is not renormalised.
    batch_shape
        Common shape of the parameters, which need not be scalars.

    Raises
    ------
    ValueError
        If the size or `max_clusters` is not a whole number of at least 1, or the discount is not below 1.

    Notes
    -----
    Draws are labelled in order of appearance: item 0 has label 0, the first item in another cluster has label 1, ... `log_prob`
    is the log probability of the partition that the labels describe, however its clusters are numbered.

    Examples
    --------
    A prior of one's own is a class with σ and log V. This one is a Dirichlet process whose concentration is 0.5 or 2, each with
    probability 1/2:

    >>> import jax.numpy as jnp
    >>> from jax.scipy.special import gammaln, logsumexp
    >>> from bnp_hier import PartitionPrior
    >>> class TwoConcentrations(PartitionPrior):
    ...     def log_v(self, n, clusters):
    ...         alpha = jnp.array([0.5, 2.0])
    ...         k = jnp.asarray(clusters, float)[..., None]
    ...         terms = k * jnp.log(alpha) + gammaln(alpha) - gammaln(alpha + n)
    ...         return logsumexp(terms, axis=-1) - jnp.log(2.0)
    >>> TwoConcentrations(3).cluster_number_probabilities().round(3)
    array([0.  , 0.35, 0.45, 0.2 ])
    """

    arg_constraints = {"discount": constraints.less_than(1.0)}
    pytree_data_fields: tuple[str, ...] = ("discount",)
    pytree_aux_fields: tuple[str, ...] = ("size", "max_clusters")
    reparametrized_params: list[str] = []

    def __init__(
        self,
        size: int,
        discount: ArrayLike = 0.0,
        max_clusters: int | None = None,
        *,
        batch_shape: tuple[int, ...] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = type(self).__name__
        if size != int(size) or size < 1:
            raise ValueError(f"{name}: size must be a whole number of at least 1, but it is {size}")
        if max_clusters is not None and (max_clusters != int(max_clusters) or max_clusters < 1):
            raise ValueError(f"{name}: max_clusters must be a whole number of at least 1, but it is {max_clusters}")
        if not is_traced(discount) and not (np.asarray(discount) < 1).all():
            raise ValueError(f"{name}: discount must be below 1, but it is {discount}")
        self.discount, self.size, self.max_clusters = discount, int(size), max_clusters
        batch = jnp.shape(discount) if batch_shape is None else batch_shape
        super().__init__(batch_shape=batch, event_shape=(self.size,), validate_args=validate_args)

    def log_v(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log V(n, k) for each of the numbers of clusters k ≥ 1 (nats), −∞ where no partition has as many.

        Parameters
        ----------
        n
            Number of items.
        clusters
            Numbers of clusters, of a shape that broadcasts against the batch shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define log_v(n, clusters)")

    def log_open(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log weight with which one of n items opens a cluster, given k ≥ 1 clusters among the others (nats).

        log V(n, k + 1) − log V(n, k); the item joins a cluster of n_c others with weight n_c − σ.
        """
        k = jnp.asarray(clusters, jnp.result_type(float))
        more = self.log_v(n, k + 1.0)
        # −∞ − (−∞): numbers of clusters that do not occur
        return jnp.where(more == -jnp.inf, -jnp.inf, more - self.log_v(n, k))

    def log_block(self, counts: Num[Array | np.ndarray, "..."]) -> Float[Array, "..."]:
        """Log (1 − σ)_{m − 1} for clusters of m items, 0 for empty ones (nats)."""
        return log_block(counts, self.discount)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Label vectors with entries 0, ..., n − 1."""
        return constraints.independent(constraints.integer_interval(0, self.size - 1), 1)

    @validate_sample
    def log_prob(self, value: Int[Array | np.ndarray, "... n"]) -> Float[Array, "..."]:
        """Log probability of the partition that the labels describe (nats)."""
        counts = cluster_counts(jnp.asarray(value), self.size)
        clusters = (counts > 0).sum(-1)
        blocks = self.log_block(jnp.moveaxis(counts, -1, 0)).sum(0)
        return jnp.where(clusters <= self._most, self.log_v(self.size, clusters) + blocks, -jnp.inf)

    @property
    def _most(self) -> int:
        """Largest number of clusters."""
        return self.size if self.max_clusters is None else min(self.size, self.max_clusters)

    def cluster_number_probabilities(self, n: int | None = None) -> Float[np.ndarray, " n1"]:
        """Probabilities of 0, 1, ..., n clusters among n items, (n + 1,).

        P(k) = V(n, k) C(n, k), where C(n, k), the sum of Π_c (1 − σ)_{n_c − 1} over the partitions into k clusters, satisfies
        C(n + 1, k) = (n − kσ) C(n, k) + C(n, k − 1). Large numbers of clusters with a total probability below 1e-14 √n are set
        to 0. `max_clusters` is ignored.

        Parameters
        ----------
        n
            Number of items; None for `size`.

        Raises
        ------
        ValueError
            If the parameters are not scalars, n is not a whole number of at least 1, or the probabilities do not sum to one.
        """
        n = self.size if n is None else n
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"n must be a whole number of items, at least 1, but it is {n!r}")
        if self.batch_shape:
            raise ValueError(f"{type(self).__name__}: the parameters must be scalars, but they have shape {self.batch_shape}")
        leaves, structure = self.as_pytree()
        slots, shapes = min(64, n), tuple(leaf.shape for leaf in leaves)
        with double_precision():
            while True:
                program = _number_program(structure, shapes, slots)
                probabilities = np.exp(np.asarray(program(leaves, np.asarray(n), np.zeros(slots))))
                # log V is a difference of numbers as large as n log n
                complete = abs(1.0 - probabilities.sum()) < 1e-11 * (n + 1)
                if slots == n or (complete and slots * probabilities[-1] < UNSEEN * n**0.5):
                    break
                slots = min(4 * slots, n)
        if not complete:
            raise ValueError(
                f"{type(self).__name__}: the probabilities of all numbers of clusters among {n} items sum to "
                f"{probabilities.sum():.6g}, so that log_v does not satisfy V(n, k) = (n − kσ) V(n + 1, k) + V(n + 1, k + 1)"
            )
        # the rounding of log V is much the same for all numbers of clusters
        return np.concatenate([[0.0], probabilities / probabilities.sum(), np.zeros(n - slots)])

    def as_pytree(self) -> tuple[list[Any], Any]:
        """Parameters in double precision, and the structure from which and from others the distribution is rebuilt.

        Raises
        ------
        TypeError
            If the class does not declare all attributes that it sets, as NumPyro's distributions have to.
        """
        leaves, structure = jax.tree.flatten(self)
        lost = set(vars(self)) - set(vars(jax.tree.unflatten(structure, leaves)))
        if lost:
            raise TypeError(
                f"{type(self).__name__} sets the attributes {', '.join(sorted(lost))} without declaring them: list parameters "
                "in `arg_constraints` or `pytree_data_fields` of the class, and what is not an array in `pytree_aux_fields`"
            )
        return [np.asarray(leaf, np.float64) for leaf in leaves], structure

    def expected_clusters(self, n: int | None = None) -> float:
        """Mean number of clusters among n items (None: `size`); errors are those of `cluster_number_probabilities`."""
        probabilities = self.cluster_number_probabilities(n)
        return float(np.arange(len(probabilities)) @ probabilities)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Int[Array, "... n"]:
        """Draw partitions: the number of clusters, and a partition given this number, which depends on σ alone.

        Needs memory for n × n numbers, or n × `max_clusters`. With `max_clusters`, draws are from the density renormalised.
        """
        assert key is not None
        shape = (*sample_shape, *self.batch_shape)
        numbers = jnp.arange(1, self._most + 1).reshape(-1, *[1] * len(self.batch_shape))
        log_v = jnp.moveaxis(jnp.broadcast_to(self.log_v(self.size, numbers), (self._most, *self.batch_shape)), 0, -1)
        log_v = jnp.broadcast_to(log_v, (*shape, self._most)).reshape(-1, self._most)
        discount = jnp.broadcast_to(jnp.asarray(self.discount, log_v.dtype), shape).reshape(-1)
        keys = jax.random.split(key, len(log_v))
        # one after the other: each needs a table of its own
        draws = jax.lax.map(lambda each: _draw_partition(*each, self.size), (keys, discount, log_v))
        return draws.reshape(*shape, self.size)


def _next_coefficients(logs: Float[Array, " s"], m: ArrayLike, discount: Array) -> Float[Array, " s"]:
    """Log [C(m + 1, k)/(m + 1)!] from log [C(m, k)/m!], for k = 1, ..., s: without the factor, logs would lose digits."""
    m, k = jnp.asarray(m, logs.dtype), jnp.arange(1, len(logs) + 1).astype(logs.dtype)
    weights = jnp.where(k <= m, m - k * discount, jnp.ones_like(k))
    fewer = jnp.concatenate([jnp.full(1, -jnp.inf, logs.dtype), logs[:-1]])
    return jnp.logaddexp(jnp.log(weights) + logs, fewer) - jnp.log(m + 1.0)


def _log_coefficients(discount: Array, n: Array, empty: Float[Array, " s"]) -> Float[Array, " s"]:
    """Log [C(n, k)/n!] for k = 1, ..., s."""
    first = jnp.full_like(empty, -jnp.inf).at[0].set(0.0)
    return jax.lax.fori_loop(1, n, lambda m, logs: _next_coefficients(logs, m, discount), first)


@lru_cache(maxsize=64)
def _number_program(structure: Any, shapes: tuple[tuple[int, ...], ...], slots: int) -> Callable[..., Array]:
    """Program for the log probabilities of 1, ..., `slots` clusters, from parameters of these shapes and n."""

    def log_probabilities(leaves: list[Any], n: Array, empty: Array) -> Array:
        prior = jax.tree.unflatten(structure, leaves)
        coefficients = _log_coefficients(jnp.asarray(prior.discount, empty.dtype), n, empty)
        count = n.astype(empty.dtype)
        log_v = prior.log_v(count, jnp.arange(1, len(empty) + 1).astype(empty.dtype))
        return coefficients + (log_v + gammaln(count + 1.0))

    return compiled(log_probabilities, [np.zeros(shape) for shape in shapes], np.asarray(slots), np.zeros(slots))


@partial(jax.jit, static_argnames="n")
def _draw_partition(key: Array, discount: Array, log_v: Float[Array, " s"], n: int) -> Int[Array, " n"]:
    """Draw a partition: from the last item to the first, whether it opened a cluster; then which cluster each other joined."""
    first = jnp.full_like(log_v, -jnp.inf).at[0].set(0.0)
    last, before = jax.lax.scan(
        lambda logs, m: (_next_coefficients(logs, m, discount), logs), first, jnp.arange(1.0, n, dtype=log_v.dtype)
    )
    key, key_number = jax.random.split(key)
    k = jax.random.categorical(key_number, log_v + last)
    uniforms = jax.random.uniform(key, (2, n), log_v.dtype)

    def backward(k: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        logs, m, uniform = step
        joined = jnp.log(m - (k + 1).astype(m.dtype) * discount) + logs[k]
        opened = jnp.where(k > 0, logs[k - 1], -jnp.inf)
        opens = jnp.log(uniform) < opened - jnp.logaddexp(joined, opened)
        return k - opens.astype(k.dtype), opens

    steps = before, jnp.arange(1.0, n, dtype=log_v.dtype), uniforms[0, 1:]
    opens = jnp.concatenate([jnp.ones(1, bool), jax.lax.scan(backward, k, steps, reverse=True)[1]])

    def forward(counts: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        opens, uniform = step
        cumulative = jnp.cumsum(jnp.where(counts > 0, counts - discount, 0.0))
        # an item that joins never opens a cluster by rounding
        joined = jnp.minimum((cumulative <= uniform * cumulative[-1]).sum(), (counts > 0).sum() - 1)
        label = jnp.where(opens, (counts > 0).sum(), joined)
        return counts.at[label].add(1.0), label.astype(int)

    return jax.lax.scan(forward, jnp.zeros_like(log_v), (opens, uniforms[1]))[1]
