"""Hard assignment passes, which label every row by its expected log likelihood and sum the statistics by label.

An expected log likelihood is linear in the row's sufficient statistics, so a pass over many rows consists of two matrix
products: scores = Φ C and statistics = onehot(labels)ᵀ Φ, where Φ are the rows' statistics (Kurihara & Welling 2009, Eqs. 20,
40, 46).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.partitions.row_features import Features, coefficients_of, feature_map, features_of, statistics_of
from bnp_hier.partitions.scoring import in_chunks
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.padding import padded

__all__ = [
    "BLOCK",
    "CHUNK",
    "Assigner",
    "DenseAssigner",
    "Pass",
    "Scores",
    "WeightedAssigner",
    "added",
    "assign",
    "assign_blocks",
    "coordinates_of",
    "feature_blocks",
    "in_blocks",
    "joined",
    "rows_at_once",
]

BLOCK = 1024
"""Number of rows in one pair of matrix products; their features fit in the processor's cache."""

CHUNK = 64 * BLOCK
"""Maximum number of rows whose features are computed at once; see `rows_at_once`."""

PIECE_NUMBERS = 1 << 20
"""Number of values that `assign` reads at once, at most `CHUNK` rows; fewer rows use the same program."""

KEPT_NUMBERS = 1 << 26
"""Maximum number of values (8 bytes each) for which the features of all rows are kept between passes."""


class Scores(NamedTuple):
    """Coefficients of the cluster scores ⟨natural_k, suff_stats(x)⟩ + log_weight_k; a row joins the highest-scoring cluster.

    - **natural** - expected natural parameters, leading dimension k.
    - **log_weight** - (k,) log weights of the cluster labels; −inf for a cluster that receives no rows.
    """

    natural: Statistics
    log_weight: Float[Array | np.ndarray, " k"]


class Pass(NamedTuple):
    """Result of one pass.

    - **labels** - (n,) cluster of each row; the first one in case of ties.
    - **stats** - statistics of the rows of each cluster, leading dimension k.
    - **counts** - (k,) number of rows per cluster.
    """

    labels: Int[Array | np.ndarray, " n"]
    stats: Statistics
    counts: Float[Array | np.ndarray, " k"]


def rows_at_once(width: int) -> int:
    """Number of rows whose features, `width` values each, are computed at once: whole blocks, fewer for many columns."""
    return min(CHUNK, BLOCK * max(1, KEPT_NUMBERS // (BLOCK * width)))


@runtime_checkable
class Assigner(Protocol):
    """Makes assignment passes over one data set; all implementations return the same labels."""

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array | np.ndarray, " k"]]:
        """Statistics and number of the rows of each cluster."""

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row; the first one in case of ties."""


@partial(jax.jit, static_argnames="features")
def feature_blocks(component: Component, blocks: Float[Array, "b c d"], features: Features) -> Float[Array, "b c f"]:
    """Compute the features of the rows in the blocks for the matrix products."""
    return jax.lax.map(lambda rows: features_of(component, rows, features), blocks)


@partial(jax.jit, static_argnames="features")
def _assign(numbers: Float[Array, "b c f"], n: ArrayLike, scores: Scores, features: Features) -> Pass:
    k = scores.log_weight.shape[0]
    coefficients = coefficients_of(scores.natural, features)

    def step(carry: tuple[Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        sums, counts = carry
        rows, start = block
        labels = jnp.argmax(rows @ coefficients + scores.log_weight[None], axis=1)
        there = start + jnp.arange(rows.shape[0]) < n
        chosen = ((labels[:, None] == jnp.arange(k)[None]) & there[:, None]).astype(rows.dtype)
        return (sums + chosen.T @ rows, counts + chosen.sum(0)), labels.astype(jnp.int32)

    b, c, _ = numbers.shape
    start = (jnp.zeros((k, features.width), coefficients.dtype), jnp.zeros(k, coefficients.dtype))
    (sums, counts), labels = jax.lax.scan(step, start, (numbers, c * jnp.arange(b)))
    return Pass(labels.reshape(-1), statistics_of(sums, features, scores.natural), counts)


def assign_blocks(component: Component, blocks: Float[Array, "b c d"], n: int, scores: Scores, features: Features) -> Pass:
    """Label the first n rows of the blocks and sum their statistics; the labels of the remaining rows are meaningless."""
    return _assign(feature_blocks(component, blocks, features), np.asarray(n), scores, features)


def assign(component: Component, rows: Float[np.ndarray, "m d"], scores: Scores) -> Pass:
    """Label each row by the cluster with the highest score, and sum the statistics and count the rows of each cluster.

    A pure function for use in any process: adding up the statistics and counts of the parts of a table gives those of the
    whole table. It computes in double precision whatever the setting of JAX, from rows in double or single precision, and
    compiles one program for each component, number of columns, number of slots and precision of the rows, however many rows
    there are.

    Parameters
    ----------
    component
        Conjugate component, whose arrays are NumPy float64 arrays.
    rows
        (m, d) rows, m ≥ 1, float64 or float32.
    scores
        Scores of the clusters, NumPy float64 arrays.

    Returns
    -------
    Pass
        Labels (int32), statistics and counts (float64), all of them NumPy arrays.
    """
    size = BLOCK * min(CHUNK // BLOCK, max(1, PIECE_NUMBERS // (BLOCK * rows.shape[1])))
    parts = []
    with double_precision():
        features = _known_features(component)
        for at in range(0, len(rows), size):
            piece = rows[at : at + size]
            found = _assign_piece(component, _one_size(piece, size), np.asarray(len(piece)), scores, features)
            # read at once: the caller may reuse the memory of the rows
            parts.append((len(piece), jax.tree.map(np.asarray, found)))
    stats, counts = reduce(partial(jax.tree.map, np.add), ((found.stats, found.counts) for _, found in parts))
    return Pass(joined(parts), stats, counts)


def _known_features(component: Component) -> Features:
    """The result of `feature_map`, computed once for each component."""
    leaves, structure = jax.tree.flatten(component)
    exact = [np.asarray(leaf, dtype=np.float64) for leaf in leaves]
    return _features_of(structure, tuple((leaf.shape, leaf.tobytes()) for leaf in exact))


@lru_cache(maxsize=64)
def _features_of(structure: Any, leaves: tuple[tuple[tuple[int, ...], bytes], ...]) -> Features:
    return feature_map(jax.tree.unflatten(structure, [np.frombuffer(leaf).reshape(shape) for shape, leaf in leaves]))


def _one_size(piece: Float[np.ndarray, "m d"], size: int) -> Float[np.ndarray, "b c d"]:
    """Split at most `size` rows into blocks, always the same number; those without rows have no meaning."""
    m, d = piece.shape
    if m < size:
        filled = np.empty((size, d), piece.dtype)
        filled[:m], filled[m : -(-m // BLOCK) * BLOCK] = piece, piece[0]
        piece = filled
    return piece.reshape(-1, BLOCK, d)


@partial(jax.jit, static_argnames="features")
def _assign_piece(
    component: Component, blocks: Float[Array, "b c d"], n: Array | np.ndarray, scores: Scores, features: Features
) -> Pass:
    """Label the first n rows and sum their features block by block, without looking at blocks beyond them."""
    k = scores.log_weight.shape[0]
    coefficients = coefficients_of(scores.natural, features)
    b, c, _ = blocks.shape

    def step(at: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        found, sums, counts = carry
        rows = features_of(component, blocks[at].astype(coefficients.dtype), features)
        labels = jnp.argmax(rows @ coefficients + scores.log_weight[None], axis=1)
        # beyond the last slot, rows are left out; adding row by row takes less time than a product with indicators
        place = jnp.where(c * at + jnp.arange(c) < n, labels, k)
        sums += jax.ops.segment_sum(rows, place, k)
        counts += jax.ops.segment_sum(jnp.ones(c, counts.dtype), place, k)
        return found.at[at].set(labels.astype(jnp.int32)), sums, counts

    start = (jnp.zeros((b, c), jnp.int32), jnp.zeros((k, features.width), coefficients.dtype), jnp.zeros(k, coefficients.dtype))
    found, sums, counts = jax.lax.fori_loop(0, (n + c - 1) // c, step, start)
    return Pass(found.reshape(-1), statistics_of(sums, features, scores.natural), counts)


def in_blocks(X: Float[np.ndarray, "n d"]) -> Float[Array, "b c d"]:
    """Split the rows into equal blocks, padded with copies of the first row."""
    filled, d = padded(X), X.shape[1]
    size = min(BLOCK, len(filled))
    whole = np.concatenate([filled, np.broadcast_to(X[:1], (-len(filled) % size, d))])
    return jax.device_put(whole.reshape(-1, size, d))


def coordinates_of(component: Component, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
    """The component's coordinates of the rows.

    Raises
    ------
    NotImplementedError
        If the component does not define them.
    """
    return in_chunks(partial(_coordinates, component), X)


@jax.jit
def _coordinates(component: Component, X: Float[Array, "n d"]) -> Float[Array, "n q"]:
    return component.coordinates(X)


class DenseAssigner:
    """Assignment passes by matrix products over all rows and clusters.

    Parameters
    ----------
    component
        Conjugate component.
    X
        Data, (n, d).
    """

    def __init__(self, component: Component, X: Float[np.ndarray, "n d"]) -> None:
        self.component, self._features = component, feature_map(component)
        kept = len(X) * self._features.width <= KEPT_NUMBERS
        size = len(X) if kept else rows_at_once(self._features.width)
        self._parts = [(len(part), in_blocks(part)) for part in (X[at : at + size] for at in range(0, len(X), size))]
        self._kept = feature_blocks(component, self._parts[0][1], self._features) if kept else None

    def _passes(self, scores: Scores) -> Iterator[tuple[int, Pass]]:
        """Yield the number of rows and the result of each part."""
        for n, blocks in self._parts:
            if self._kept is None:
                yield n, assign_blocks(self.component, blocks, n, scores, self._features)
            else:
                yield n, _assign(self._kept, np.asarray(n), scores, self._features)

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array | np.ndarray, " k"]]:
        """Statistics and number of the rows of each cluster."""
        return added(self._passes(scores))

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row; the first one in case of ties."""
        return joined(self._passes(scores))


class WeightedAssigner:
    """Assignment passes over a sample, each of whose rows represents several rows.

    Parameters
    ----------
    assigner
        Makes passes over the sample.
    weight
        Number of rows that a row represents, by which the sums are multiplied.
    """

    def __init__(self, assigner: Assigner, weight: float) -> None:
        self.assigner, self.weight = assigner, weight

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array | np.ndarray, " k"]]:
        """Statistics and number of the rows of each cluster."""
        return jax.tree.map(lambda leaf: self.weight * leaf, self.assigner(scores))

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row of the sample; the first one in case of ties."""
        return self.assigner.labels(scores)


def added(passes: Iterable[tuple[int, Pass]]) -> tuple[Statistics, Float[Array | np.ndarray, " k"]]:
    """Statistics and number of the rows of each cluster, summed over the passes (at least one)."""
    return reduce(lambda one, other: jax.tree.map(jnp.add, one, other), ((found.stats, found.counts) for _, found in passes))


def joined(passes: Iterable[tuple[int, Pass]]) -> Int[np.ndarray, " n"]:
    """Labels of the rows of several passes, concatenated without padding."""
    return np.concatenate([np.asarray(found.labels)[:n] for n, found in passes])
