"""Hard assignment passes: label every row by its expected log likelihood, and sum statistics by label.

An expected log likelihood is linear in the row's sufficient statistics, so that a pass over many rows is two matrix
products: scores = Φ C, and statistics = onehot(labels)ᵀ Φ, Φ the rows' statistics (Kurihara & Welling 2009, Eqs. 20, 40, 46).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics

__all__ = [
    "BLOCK",
    "Assigner",
    "DenseAssigner",
    "Features",
    "Pass",
    "Scores",
    "assign_blocks",
    "features_of",
    "in_blocks",
    "row_features",
]

BLOCK = 4096
"""Rows in one pair of matrix products; their statistics stay in the processor's cache."""


class Scores(NamedTuple):
    """What labels a row: score of cluster k = ⟨natural_k, suff_stats(x)⟩ + log_weight_k, the largest wins.

    - **natural** - expected natural parameters, leading dimension k.
    - **log_weight** - (k,) of the clusters' labels; −inf for one that takes no row.
    """

    natural: Statistics
    log_weight: Float[Array, " k"]


class Pass(NamedTuple):
    """Result of one pass.

    - **labels** - (n,) cluster of each row, the first of those that tie.
    - **stats** - statistics of the rows of each cluster, leading dimension k.
    - **counts** - (k,) number of rows of each cluster.
    """

    labels: Int[Array, " n"]
    stats: Statistics
    counts: Float[Array, " k"]


class Assigner(Protocol):
    """A way to make passes over one data set; all give the same labels."""

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array, " k"]]:
        """Statistics of the rows of each cluster, and their numbers."""

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row, the first of those that tie."""


class Features(NamedTuple):
    """Which entries of a row's flattened statistics are different functions of the row.

    - **kept** - of each group of equal entries one: for every leaf, positions in the leaf.
    - **group** - group of every entry of all leaves.
    """

    kept: tuple[tuple[int, ...], ...]
    group: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of groups."""
        return sum(map(len, self.kept))


def row_features(component: Component) -> Features:
    """All entries but the upper triangles of square leaves that are symmetric for any row, such as x xᵀ."""
    rng = np.random.default_rng(0)
    kinds = (
        rng.uniform(0.1, 3.0, (4, component.dim)),
        rng.integers(0, 2, (4, component.dim)),
        rng.integers(0, 9, (4, component.dim)),
    )
    leaves = jax.tree.leaves(component.suff_stats(np.concatenate(kinds)))
    kept: list[tuple[int, ...]] = []
    group: list[int] = []
    for leaf in map(np.asarray, leaves):
        own = np.arange(leaf[0].size).reshape(leaf.shape[1:])
        if leaf.ndim == 3 and leaf.shape[1] == leaf.shape[2] and (leaf == leaf.transpose(0, 2, 1)).all():
            own = np.maximum(own, own.T)
        different, place = np.unique(own, return_inverse=True)
        group += (sum(map(len, kept)) + place.ravel()).tolist()
        kept.append(tuple(different.tolist()))
    return Features(tuple(kept), tuple(group))


def features_of(component: Component, X: Float[Array, "n d"], features: Features) -> Float[Array, "n f"]:
    """The rows' statistics, those entries that are kept."""
    leaves = jax.tree.leaves(component.suff_stats(X))
    # picked leaf by leaf: the compiler then never writes down what is not kept
    parts = [leaf.reshape(len(X), -1)[:, np.array(kept)] for leaf, kept in zip(leaves, features.kept, strict=True)]
    return jnp.concatenate(parts, axis=1)


def flatten(tree: Statistics, batch: int) -> Float[Array, "... p"]:
    """All leaves flattened after their `batch` leading dimensions and joined."""
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([leaf.reshape(*leaf.shape[:batch], -1) for leaf in leaves], axis=-1)


def unflatten(flat: Float[Array, "k p"], like: Statistics) -> Statistics:
    """Rows of `flat` in the shape of a pytree whose leaves have leading dimension k."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([int(np.prod(leaf.shape[1:])) for leaf in leaves])
    parts = jnp.split(flat, ends[:-1].tolist(), axis=1)
    return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])


@partial(jax.jit, static_argnames="features")
def assign_blocks(
    component: Component, blocks: Float[Array, "b c d"], n: ArrayLike, scores: Scores, features: Features
) -> Pass:
    """Label the first n rows of the blocks and sum their statistics; the labels of the others mean nothing.

    One step for each block: memory beyond the rows and labels does not grow with their number.
    """
    k = scores.log_weight.shape[0]
    group = np.array(features.group)
    coefficients = jax.ops.segment_sum(flatten(scores.natural, 1).T, group, features.width)  # (f, k)

    def step(carry: tuple[Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        sums, counts = carry
        rows, start = block
        numbers = features_of(component, rows, features)
        labels = jnp.argmax(numbers @ coefficients + scores.log_weight, axis=1)
        there = start + jnp.arange(rows.shape[0]) < n
        chosen = ((labels[:, None] == jnp.arange(k)) & there[:, None]).astype(numbers.dtype)
        return (sums + chosen.T @ numbers, counts + chosen.sum(0)), labels.astype(jnp.int32)

    b, c, _ = blocks.shape
    start = (jnp.zeros((k, features.width), coefficients.dtype), jnp.zeros(k, coefficients.dtype))
    (sums, counts), labels = jax.lax.scan(step, start, (blocks, c * jnp.arange(b)))
    return Pass(labels.reshape(-1), unflatten(sums[:, group], scores.natural), counts)


def in_blocks(X: Float[np.ndarray, "n d"], blocks: int | None = None) -> Float[Array, "b c d"]:
    """The rows in blocks of one size, as many as needed or as told, filled up with copies of the first row."""
    n, d = X.shape
    size = min(BLOCK, n) if blocks is None else BLOCK
    filled = np.concatenate([X, np.broadcast_to(X[:1], ((blocks or -(-n // size)) * size - n, d))])
    return jnp.asarray(filled).reshape(-1, size, d)


class DenseAssigner:
    """Passes by matrix products over all rows and clusters.

    Parameters
    ----------
    component
        Conjugate component.
    X
        Data, (n, d).
    """

    def __init__(self, component: Component, X: Float[np.ndarray, "n d"]) -> None:
        self.component, self.n, self.blocks = component, len(X), in_blocks(X)
        self._features = row_features(component)

    def _pass(self, scores: Scores) -> Pass:
        return assign_blocks(self.component, self.blocks, np.asarray(self.n), scores, self._features)

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array, " k"]]:
        """Statistics of the rows of each cluster, and their numbers."""
        _, stats, counts = self._pass(scores)
        return stats, counts

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row, the first of those that tie."""
        return np.asarray(self._pass(scores).labels)[: self.n]
