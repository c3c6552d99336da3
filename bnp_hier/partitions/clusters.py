"""Statistics, joint densities and predictive densities of the clusters of hard partitions; call in float64."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import gammaln

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.partitions.capacities import in_steps, more_slots
from bnp_hier.partitions.engine import has_kernels, kernel_arguments, settings
from bnp_hier.partitions.joint_density import log_joint
from bnp_hier.partitions.scoring import in_chunks, log_weighted_densities
from bnp_hier.partitions.seating import Prior

__all__ = ["joint_and_statistics", "joint_of_clusters", "log_predictives", "packed", "row_length", "unpacked"]


def packed(stats: Statistics) -> Float[np.ndarray, "k p"]:
    """Concatenate the statistics of clusters, one row per cluster, as the kernels need them."""
    leaves = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(stats)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def unpacked(component: Component, rows: Float[np.ndarray, "k p"]) -> Statistics:
    """Inverse of `packed`."""
    one = jax.eval_shape(component.suff_stats, jax.ShapeDtypeStruct((component.dim,), np.float64))
    leaves, structure = jax.tree.flatten(one)
    parts = np.split(rows, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
    shaped = [part.reshape(len(rows), *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def joint_and_statistics(
    component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], prior: Prior
) -> tuple[float, Statistics]:
    """Return log p(X, labels) in nats and the sufficient statistics of the clusters 0, ..., K − 1, as NumPy arrays."""
    k = int(labels.max()) + 1
    if has_kernels(component):
        from bnp_hier.native.densities import JOINT

        given = kernel_arguments(component, X)
        stats, joint = np.empty((k, row_length(component))), np.empty(())
        JOINT(*given, np.ascontiguousarray(labels, dtype=np.int64), settings(prior), stats, joint)
        return float(joint), unpacked(component, stats)
    joint, stats = _summarize(component, jnp.asarray(X), jnp.asarray(labels), prior, in_steps(k))
    return float(joint), jax.tree.map(lambda leaf: np.asarray(leaf)[:k], stats)


def joint_of_clusters(component: Component, stats: Statistics, counts: Int[np.ndarray, " k"], prior: Prior) -> float:
    """Log p(X, labels) from the statistics and sizes of the clusters, all of them with rows (nats)."""
    k, (alpha, discount) = len(counts), settings(prior)
    seating = np.log(alpha + discount * np.arange(1, k)).sum() + gammaln(alpha + 1.0) - gammaln(alpha + counts.sum())
    seating += (gammaln(counts - discount) - gammaln(1.0 - discount)).sum()
    if has_kernels(component):
        from bnp_hier.native.densities import MARGINALS_OF

        marginals, most = np.empty(k), np.array(counts.max(), np.int64)
        MARGINALS_OF(*kernel_arguments(component, np.empty((0, component.dim))), packed(stats), most, marginals)
    else:
        padded = more_slots(stats, in_steps(k) - k)
        marginals = np.asarray(_log_marginals(component, padded))[:k]
    return float(seating + marginals.sum())


@jax.jit
def _log_marginals(component: Component, stats: Statistics) -> Float[Array, " k"]:
    return component.log_marginal(stats)


def log_predictives(
    component: Component, stats: Statistics, X: Float[np.ndarray, "m d"], total: int
) -> Float[np.ndarray, "m k1"]:
    """Log predictive density of each row in each of k hard clusters and, last, in a new one (nats).

    Parameters
    ----------
    component, stats
        Component, and the statistics of the clusters as NumPy arrays.
    X
        Rows, (m, d).
    total
        A number of rows that no cluster exceeds.
    """
    if has_kernels(component):
        from bnp_hier.native.densities import PREDICTIVES

        clusters = packed(stats)
        clusters = np.concatenate([clusters, np.zeros((1, clusters.shape[1]))])
        densities = np.empty((len(X), len(clusters)))
        PREDICTIVES(*kernel_arguments(component, X), clusters, np.array(total, np.int64), densities)
        return densities
    k = len(jax.tree.leaves(stats)[0])
    slots = in_steps(k + 1)
    padded = more_slots(stats, slots - k)
    return in_chunks(lambda rows: _log_predictives(component, padded, rows), X)[:, : k + 1]


@jax.jit
def _log_predictives(component: Component, stats: Statistics, X: Float[Array, "c d"]) -> Float[Array, "c k"]:
    return log_weighted_densities(component, stats, jnp.zeros(len(jax.tree.leaves(stats)[0])), X)


def row_length(component: Component) -> int:
    """Number of sufficient statistics of a row."""
    one = jax.eval_shape(component.suff_stats, jax.ShapeDtypeStruct((component.dim,), np.float64))
    return sum(leaf.size for leaf in jax.tree.leaves(one))


@partial(jax.jit, static_argnames="slots")
def _summarize(
    component: Component, X: Float[Array, "n d"], labels: Int[Array, " n"], prior: Prior, slots: int
) -> tuple[Float[Array, ""], Statistics]:
    rows = component.suff_stats(X)
    return log_joint(component, rows, labels, prior, slots), cluster_statistics(rows, labels, slots)
