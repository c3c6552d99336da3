"""The likelihood of a partition: the rows of each cluster share a component whose parameters are integrated out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.components.base import Component, Statistics
from bnp_hier.components.learned import LearnedPrior
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.sharded_arrays import is_spread

__all__ = ["ConjugateMixture", "cluster_statistics", "cluster_statistics_in_any_order"]


def cluster_statistics(rows: Statistics, labels: Int[Array, " n"], size: int) -> Statistics:
    """Sum the rows' statistics for each of the labels 0, ..., size − 1; rows with other labels are ignored."""
    return jax.tree.map(lambda leaf: jax.ops.segment_sum(leaf, labels, size), rows)


def cluster_statistics_in_any_order(rows: Statistics, labels: Int[Array, " n"], size: int) -> Statistics:
    """Compute `cluster_statistics` so that it does not depend on how the rows are distributed over devices.

    In double precision, each value is split into a multiple of a coarse step, a multiple of a fine one, and a rest, which is
    dropped. Steps are powers of two for which the sum over n rows of either part is exact, in any order. With m = ⌈log2 n⌉, the
    rest of a value is at most 2^(2m − 104) of the largest absolute value of that statistic. Single precision has too few digits
    for this: there, sums are those of `cluster_statistics`.
    """

    def summed(leaf: Array) -> Array:
        leaf = leaf.astype(jnp.result_type(float))
        if leaf.dtype != jnp.float64:
            return jax.ops.segment_sum(leaf, labels, size)
        coarse = _rounded(leaf)
        fine = _rounded(leaf - coarse)
        return jax.ops.segment_sum(coarse, labels, size) + jax.ops.segment_sum(fine, labels, size)

    return jax.tree.map(summed, rows)


def _rounded(leaf: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """Round to multiples of a power of two, of which sums over all rows have no more than 52 digits."""
    _, exponent = jnp.frexp(jnp.abs(leaf).max(axis=0))  # the largest value is below 2 to this power
    step = jnp.ldexp(jnp.ones(exponent.shape), exponent + (leaf.shape[0] - 1).bit_length() - 52)
    step = jnp.maximum(step, jnp.finfo(leaf.dtype).tiny)
    return jnp.round(leaf / step) * step


class _RowSupports(constraints.Constraint):
    """Constraint on tables: every row satisfies a given constraint."""

    event_dim = 2

    def __init__(self, row: constraints.Constraint) -> None:
        self.row = row

    @property
    def is_discrete(self) -> bool:
        return self.row.is_discrete

    def __call__(self, x: Any) -> Any:
        return jnp.asarray(self.row(x)).all(-1)

    def feasible_like(self, prototype: Any) -> Any:
        return self.row.feasible_like(prototype)

    def tree_flatten(self) -> Any:
        return (), ((), {"row": self.row})


class ConjugateMixture(dist.Distribution):
    """Distribution of an (n, d) table given a partition of its rows, with cluster parameters integrated out.

    Parameters
    ----------
    component
        The conjugate component of one cluster, or a `LearnedPrior` of one, whose hyperparameters become sites of the model.
    assignments
        Cluster of each row: (n,) whole numbers in 0, ..., n − 1.
    max_clusters
        If given, all labels must be below this number, and the density requires this many marginal likelihoods instead of n.

    Raises
    ------
    TypeError
        If `component` is not a component.
    ValueError
        If the assignments are not whole numbers in the allowed range, or `max_clusters` is not a whole number of at least 1.

    Notes
    -----
    `log_prob` is the sum over clusters of the log marginal likelihood of their rows, and is differentiable in the component's
    hyperparameters. `sample` draws each cluster's parameters from the prior and then the rows, so that NumPyro's prior
    predictive checks work.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from bnp_hier import BetaBernoulli, ConjugateMixture
    >>> bits = BetaBernoulli(a=jnp.ones(1), b=jnp.ones(1))
    >>> log_probability = ConjugateMixture(bits, jnp.array([0, 0, 1])).log_prob(jnp.array([[1.0], [1.0], [0.0]]))
    >>> round(float(jnp.exp(log_probability)), 4)  # 1/3 for two ones together, 1/2 for the zero alone
    0.1667
    """

    pytree_data_fields = ("component", "assignments")
    pytree_aux_fields = ("max_clusters",)

    def __init__(
        self,
        component: Component | LearnedPrior,
        assignments: Int[Array | np.ndarray, "... n"],
        max_clusters: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(component, LearnedPrior):
            component = component()
        if not isinstance(component, Component):
            raise TypeError(f"ConjugateMixture: component must be a bnp_hier component, but it is {type(component).__name__}")
        if jnp.ndim(assignments) < 1 or not jnp.issubdtype(jnp.result_type(assignments), jnp.integer):
            raise ValueError(
                "ConjugateMixture: assignments must be a vector of whole numbers, one per row, but they have shape "
                f"{jnp.shape(assignments)} and type {jnp.result_type(assignments)}"
            )
        if max_clusters is not None and (max_clusters != int(max_clusters) or max_clusters < 1):
            raise ValueError(f"ConjugateMixture: max_clusters must be a whole number of at least 1, but it is {max_clusters}")
        n = jnp.shape(assignments)[-1]
        labels = n if max_clusters is None else min(n, max_clusters)
        if not is_traced(assignments) and not is_spread(assignments) and np.size(assignments):
            low, high = np.min(np.asarray(assignments)), np.max(np.asarray(assignments))  # not traced while the model is
            if low < 0 or high >= labels:
                raise ValueError(
                    f"ConjugateMixture: assignments must lie in 0, ..., {labels - 1}, but they span {low} to {high}"
                )
        self.component, self.assignments, self.max_clusters = component, assignments, max_clusters
        super().__init__(batch_shape=jnp.shape(assignments)[:-1], event_shape=(n, component.dim), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=2)
    def support(self) -> _RowSupports:
        """Rows in the component's support."""
        return _RowSupports(self.component.support)

    @property
    def _slots(self) -> int:
        n = self.event_shape[0]
        return n if self.max_clusters is None else min(n, self.max_clusters)

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... n d"]) -> Float[Array, "..."]:
        """Sum over clusters of the log marginal likelihood (nats).

        Raises
        ------
        ValueError
            If the last two dimensions are not (n, d).
        """
        if jnp.shape(value)[-2:] != self.event_shape:
            raise ValueError(f"ConjugateMixture: expected a table of shape {self.event_shape}, but got {jnp.shape(value)}")

        def one(x: Array | np.ndarray, labels: Array) -> Array:
            component = self.component.centered_on(x)
            stats = cluster_statistics(component.suff_stats(x), labels, self._slots)
            return component.log_marginal(stats).sum()

        labels = jnp.asarray(self.assignments)
        if jnp.ndim(value) == 2 and labels.ndim == 1:
            return one(value, labels)
        batch = jnp.broadcast_shapes(jnp.shape(value)[:-2], labels.shape[:-1])
        n, d = self.event_shape
        x = jnp.broadcast_to(value, (*batch, n, d)).reshape(-1, n, d)
        flat = jnp.broadcast_to(labels, (*batch, n)).reshape(-1, n)
        return jax.vmap(one)(x, flat).reshape(batch)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Num[Array, "... n d"]:
        """Draw tables from the marginal model."""
        shape = (*sample_shape, *self.batch_shape)
        assert key is not None
        n, d = self.event_shape
        labels = jnp.broadcast_to(jnp.asarray(self.assignments), (*shape, n)).reshape(-1, n)

        def one(key_one: Array, z: Array) -> Array:
            key_parameters, key_rows = jax.random.split(key_one)
            parameters = self.component.prior().sample(key_parameters, (self._slots,))
            return self.component.likelihood(parameters[z]).sample(key_rows)

        return jax.vmap(one)(jax.random.split(key, labels.shape[0]), labels).reshape(*shape, n, d)
