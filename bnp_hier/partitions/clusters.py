"""Statistics, joint densities and predictive densities of the clusters of hard partitions; call in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num
from scipy.special import gammaln

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import GibbsTypePrior
from bnp_hier.partitions.capacities import in_steps, more_slots
from bnp_hier.partitions.engine import has_kernels, kernel, kernel_arguments, settings
from bnp_hier.partitions.incomplete_rows import log_densities_of_observed
from bnp_hier.partitions.joint_density import log_joint
from bnp_hier.partitions.scoring import in_chunks, log_weighted_densities
from bnp_hier.utils.padding import padded, padded_size

__all__ = [
    "joint_and_statistics",
    "joint_of_clusters",
    "log_predictives",
    "marginals_by",
    "marginals_of",
    "packed",
    "row_length",
    "unpacked",
]


def packed(stats: Statistics) -> Float[np.ndarray, "k p"]:
    """Concatenate the statistics of clusters, one row per cluster, as the kernels need them."""
    leaves = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(stats)]
    return np.concatenate([leaf.reshape(len(leaf), prod(leaf.shape[1:])) for leaf in leaves], axis=1)


def unpacked(component: Component, rows: Float[np.ndarray, "k p"]) -> Statistics:
    """Inverse of `packed`."""
    leaves, structure = jax.tree.flatten(_row_shapes(component))
    parts = np.split(rows, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
    shaped = [part.reshape(len(rows), *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def joint_and_statistics(
    component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], prior: GibbsTypePrior
) -> tuple[float, Statistics]:
    """Return log p(X, labels) in nats and the sufficient statistics of the clusters 0, ..., K − 1, as NumPy arrays."""
    k = int(labels.max()) + 1
    if has_kernels(component):
        given = kernel_arguments(component, X)
        stats, joint = np.empty((k, row_length(component))), np.empty(())
        kernel("densities.JOINT")(
            *given, np.ascontiguousarray(labels, dtype=np.int64), settings(prior, len(labels), k), stats, joint
        )
        return float(joint), unpacked(component, stats)
    slots = in_steps(k)
    joint, stats = _summarize(component, padded(X), padded(labels, slots), prior, slots)  # labels ≥ slots are left out
    return float(joint), jax.tree.map(lambda leaf: np.asarray(leaf)[:k], stats)


def joint_of_clusters(component: Component, stats: Statistics, counts: Num[np.ndarray, " k"], prior: GibbsTypePrior) -> float:
    """Log p(X, labels) from the statistics and sizes of the clusters, all of them with rows (nats)."""
    discount = np.asarray(prior.discount, np.float64)
    seating = prior.log_whole(counts.sum()) + prior.log_open(np.arange(1, len(counts))).sum()
    seating += (gammaln(counts - discount) - gammaln(1.0 - discount)).sum()
    return float(seating + marginals_of(component, stats, counts).sum())


def marginals_of(component: Component, stats: Statistics, counts: Num[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Log marginal likelihood of each cluster, from their statistics and sizes (nats)."""
    return marginals_by(component)(packed(stats), counts)


def marginals_by(component: Component) -> Callable[[Float[np.ndarray, "k p"], Num[np.ndarray, " k"]], Float[np.ndarray, " k"]]:
    """Function that computes log marginal likelihoods from packed statistics and sizes, for many calls with one component."""
    if has_kernels(component):
        run, given = kernel("densities.MARGINALS_OF"), kernel_arguments(component, np.empty((0, component.dim)))

        def natively(rows: Float[np.ndarray, "k p"], counts: Num[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
            marginals = np.empty(len(rows))
            run(*given, rows, np.array(counts.max(), np.int64), marginals)
            return marginals

        return natively

    def by_xla(rows: Float[np.ndarray, "k p"], counts: Num[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        filled = np.pad(rows, ((0, padded_size(len(rows)) - len(rows)), (0, 0)))
        return np.array(_log_marginals(component, unpacked(component, filled)))[: len(rows)]

    return by_xla


@jax.jit
def _log_marginals(component: Component, stats: Statistics) -> Float[Array, " k"]:
    return component.log_marginal(stats)


def log_predictives(
    component: Component, stats: Statistics, X: Float[np.ndarray, "m d"], total: int
) -> Float[np.ndarray, "m k1"]:
    """Log predictive density of each row in each of k hard clusters and, last, in a new one (nats).

    Missing values (NaN) are integrated out.

    Parameters
    ----------
    component, stats
        Component, and the statistics of the clusters as NumPy arrays.
    X
        Rows, (m, d).
    total
        A number of rows that no cluster exceeds.
    """
    absent = component.incomplete_cells(X)
    if absent.any():
        densities = log_predictives(component, stats, np.where(absent, 0.0, X), total)
        k, rows = densities.shape[1], absent.any(axis=1)
        given = more_slots(stats, in_steps(k) - k + 1)
        densities[rows] = in_chunks(lambda some: log_densities_of_observed(component, given, some), X[rows])[:, :k]
        return densities
    if has_kernels(component):
        clusters = packed(stats)
        clusters = np.concatenate([clusters, np.zeros((1, clusters.shape[1]))])
        densities = np.empty((len(X), len(clusters)))
        kernel("densities.PREDICTIVES")(*kernel_arguments(component, X), clusters, np.array(total, np.int64), densities)
        return densities
    k = len(jax.tree.leaves(stats)[0])
    slots = in_steps(k + 1)
    given = more_slots(stats, slots - k)
    return in_chunks(lambda rows: _log_predictives(component, given, rows), X)[:, : k + 1]


@jax.jit
def _log_predictives(component: Component, stats: Statistics, X: Float[Array, "c d"]) -> Float[Array, "c k"]:
    return log_weighted_densities(component, stats, jnp.zeros(len(jax.tree.leaves(stats)[0])), X)


def row_length(component: Component) -> int:
    """Number of sufficient statistics of a row."""
    return sum(leaf.size for leaf in jax.tree.leaves(_row_shapes(component)))


def _row_shapes(component: Component) -> Statistics:
    leaves, structure = jax.tree.flatten(component)
    return _shapes_for(structure, tuple(np.shape(leaf) for leaf in leaves))


@lru_cache(maxsize=64)
def _shapes_for(structure: Any, shapes: tuple[tuple[int, ...], ...]) -> Statistics:
    """Shapes of the statistics of a row for a component with these fields; tracing takes a millisecond each time."""
    component = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes])
    row = jax.ShapeDtypeStruct((component.dim,), np.float64)
    return jax.eval_shape(lambda component, row: component.suff_stats(row), component, row)


@partial(jax.jit, static_argnames="slots")
def _summarize(
    component: Component, X: Float[Array, "n d"], labels: Int[Array, " n"], prior: GibbsTypePrior, slots: int
) -> tuple[Float[Array, ""], Statistics]:
    rows = component.suff_stats(X)
    return log_joint(component, rows, labels, prior, slots), cluster_statistics(rows, labels, slots)
