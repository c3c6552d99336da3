"""Hard assignment passes with a kd-tree: a box of rows that all belong to one cluster is assigned as a whole."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.assignment import (
    Assigner,
    DenseAssigner,
    Pass,
    Scores,
    added,
    assign_blocks,
    coordinates_of,
    feature_blocks,
    in_blocks,
    joined,
    rows_at_once,
)
from bnp_hier.partitions.row_features import feature_map, statistics_of
from bnp_hier.utils.arrays import first_cell

__all__ = ["AutoAssigner", "KDTreeAssigner"]

KD_TREE_FROM, KD_TREE_UP_TO = 200_000, 3
"""Minimum number of rows and maximum number of columns for which a kd-tree pass is faster than one by matrix products."""

TREE_AFTER = 30
"""Number of passes by matrix products that take as long as building the tree."""

LEAF_SIZE = 64
"""Number of rows below which a box is not divided further."""

AT_ONCE = 1 << 21
"""Size of the largest array used to examine a level of the tree."""

TIE = 1e-9
"""A cluster is excluded from a box if its score falls short of the best one by more than this, relative to the best score."""


class _Owners(NamedTuple):
    """Boxes that cover all rows, from left to right.

    - **nodes** - node numbers of the boxes.
    - **owner** - cluster to which all rows of the box belong; −1 if the rows have to be scored individually.
    - **visited** - number of boxes examined.
    """

    nodes: Int[np.ndarray, " m"]
    owner: Int[np.ndarray, " m"]
    visited: int


class _Forms(NamedTuple):
    """Scores of the clusters as quadratic functions of a row's coordinates.

    - **constant** - (k,).
    - **linear** - (k, q).
    - **square** - (k, q, q).
    - **reach** - (k, k, q²) for best cluster b and other cluster c: |square_c − square_b| off the diagonal and
      max(square_c − square_b, 0) on it.
    """

    constant: Float[np.ndarray, " k"]
    linear: Float[np.ndarray, "k q"]
    square: Float[np.ndarray, "k q q"]
    reach: Float[np.ndarray, "k k qq"]


class KDTreeAssigner:
    """Assignment passes with a kd-tree over the rows' coordinates; yields the same labels as `DenseAssigner`.

    The tree is traversed level by level. A cluster is removed from a box's candidates if another one scores higher everywhere
    in the box, and a box with one remaining candidate contributes its precomputed sums (Kurihara & Welling 2009, section 9.1;
    their lower bound on the cost over a box does not hold and is replaced by an exact test). The rows of boxes that are still
    undecided at the bottom of the tree are scored individually.

    Parameters
    ----------
    component
        Conjugate component with `coordinates` and `row_quadratic`.
    X
        Data, (n, d), without missing values.

    Attributes
    ----------
    visited_nodes
        Number of boxes examined in the last pass.
    touched_rows
        Number of rows scored individually in the last pass.

    Raises
    ------
    ValueError
        If X has a missing value.
    NotImplementedError
        If the component does not define coordinates.
    """

    def __init__(self, component: Component, X: Float[np.ndarray, "n d"]) -> None:
        from sklearn.neighbors import KDTree

        if np.isnan(X).any():
            raise ValueError(f"X has a missing value (NaN) at {first_cell(np.isnan(X))}; a kd-tree needs complete rows")
        self.component = component
        tree = KDTree(coordinates_of(component, X), leaf_size=LEAF_SIZE)
        _, order, nodes, bounds = tree.get_arrays()
        self._order = np.asarray(order)
        self._rows = np.ascontiguousarray(X[self._order])
        self._start, self._end = nodes["idx_start"], nodes["idx_end"]
        self._center, self._half = (bounds[1] + bounds[0]) / 2, (bounds[1] - bounds[0]) / 2
        self._first_leaf = len(nodes) // 2
        self._features = feature_map(component)
        self._sums = self._node_sums()
        self.visited_nodes = self.touched_rows = 0

    def _node_sums(self) -> Float[np.ndarray, "nodes f"]:
        """Sum the features of the rows in each box, from blocks of rows for the leaves and then upwards."""
        n, first = len(self._rows), self._first_leaf
        sums = np.zeros((len(self._start), self._features.width))
        starts, size = self._start[first:], rows_at_once(self._features.width)
        for at in range(0, n, size):
            until = min(at + size, n)
            features = np.asarray(feature_blocks(self.component, in_blocks(self._rows[at:until]), self._features))
            features = features.reshape(-1, self._features.width)[: until - at]
            left, right = np.searchsorted(starts, [at, until - 1], side="right") - 1
            inside = np.maximum(starts[left : right + 1] - at, 0)
            sums[first + left : first + right + 1] += np.add.reduceat(features, inside, axis=0)
        width = (first + 1) // 2
        while width:  # one level at a time
            level = np.arange(width - 1, 2 * width - 1)
            sums[level] = sums[2 * level + 1] + sums[2 * level + 2]
            width //= 2
        return sums

    def _forms(self, scores: Scores) -> _Forms:
        form = self.component.row_quadratic(scores.natural)
        constant = np.asarray(form.constant) + np.asarray(scores.log_weight)
        square = np.asarray(form.square)
        difference = square[None] - square[:, None]
        reach = np.abs(difference)
        diagonal = np.arange(square.shape[-1])
        reach[..., diagonal, diagonal] = np.maximum(difference[..., diagonal, diagonal], 0.0)
        return _Forms(constant, np.asarray(form.linear), square, reach.reshape(*reach.shape[:2], -1))

    def _survivors(
        self, forms: _Forms, nodes: Int[np.ndarray, " m"], active: Bool[np.ndarray, "m k"]
    ) -> Bool[np.ndarray, "m k"]:
        """Mark the clusters that may be the best one for some row of each box.

        Let f_c be the score of cluster c, b the best cluster at the centre y of the box, w the half-widths of the box, and D
        the difference of the quadratic terms. Within the box, f_c − f_b is at most its value at y + |gradient|·w +
        Σ_j max(D_jj, 0) w_j² + Σ_{j≠k} |D_jk| w_j w_k.
        """
        m = np.arange(len(nodes))
        center, half = self._center[nodes], self._half[nodes]
        turned = np.einsum("kij,mj->mki", forms.square, center)
        value = forms.constant + center @ forms.linear.T + np.einsum("mki,mi->mk", turned, center)
        value = np.where(active, value, -np.inf)
        best = value.argmax(1)
        gradient = forms.linear + 2 * turned
        slope = np.einsum("mki,mi->mk", np.abs(gradient - gradient[m, best][:, None]), half)
        bend = np.einsum("mkp,mp->mk", forms.reach[best], (half[:, :, None] * half[:, None, :]).reshape(len(nodes), -1))
        top = value[m, best]
        return active & (value - top[:, None] + slope + bend >= -TIE * np.maximum(1.0, np.abs(top))[:, None])

    def _owners(self, scores: Scores) -> _Owners:
        forms = self._forms(scores)
        k, q = forms.linear.shape
        width = max(1, AT_ONCE // (k * q * q))
        nodes = np.zeros(1, int)
        active = np.isfinite(forms.constant)[None]
        found: list[tuple[np.ndarray, np.ndarray]] = []
        visited = 0
        while len(nodes):
            visited += len(nodes)
            parts = range(0, len(nodes), width)
            active = np.concatenate([self._survivors(forms, nodes[at : at + width], active[at : at + width]) for at in parts])
            owned = active.sum(1) == 1
            bottom = ~owned & (nodes >= self._first_leaf)
            found.append((nodes[owned], active[owned].argmax(1)))
            found.append((nodes[bottom], np.full(bottom.sum(), -1)))
            deeper = ~owned & ~bottom
            nodes = (2 * nodes[deeper][:, None] + [1, 2]).ravel()
            active = np.repeat(active[deeper], 2, axis=0)
        every, owner = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.argsort(self._start[every], kind="stable")
        return _Owners(every[order], owner[order], visited)

    def _disputed(self, owners: _Owners) -> Int[np.ndarray, " rows"]:
        """Rows of the boxes without an owner, in the tree's order."""
        nodes = owners.nodes[owners.owner < 0]
        sizes = self._end[nodes] - self._start[nodes]
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(nodes) else sizes
        return (np.arange(sizes.sum()) + np.repeat(self._start[nodes] - offsets, sizes)).astype(np.int64)

    def _look_at(self, rows: Int[np.ndarray, " r"], scores: Scores) -> list[tuple[int, Pass]]:
        """Score individual rows; the number of rows and the result of each part, of which there is at least one."""
        size = rows_at_once(self._features.width)
        parts = []
        for at in range(0, max(len(rows), 1), size):
            some = rows[at : at + size]
            blocks = in_blocks(self._rows[some] if len(some) else self._rows[:1])
            parts.append((len(some), assign_blocks(self.component, blocks, len(some), scores, self._features)))
        return parts

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array, " k"]]:
        """Statistics and number of the rows of each cluster."""
        owners = self._owners(scores)
        rows = self._disputed(owners)
        self.visited_nodes, self.touched_rows = owners.visited, len(rows)
        stats, counts = added(self._look_at(rows, scores))
        owned = owners.owner >= 0
        nodes, owner, k = owners.nodes[owned], owners.owner[owned], len(counts)
        sums = np.zeros((k, self._features.width))
        np.add.at(sums, owner, self._sums[nodes])
        sizes = np.bincount(owner, self._end[nodes] - self._start[nodes], minlength=k)
        whole = statistics_of(jnp.asarray(sums), self._features, scores.natural)
        return jax.tree.map(jnp.add, stats, whole), jnp.asarray(counts) + sizes.astype(counts.dtype)

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row; the first one in case of ties."""
        owners = self._owners(scores)
        rows = self._disputed(owners)
        self.visited_nodes, self.touched_rows = owners.visited, len(rows)
        in_tree = np.repeat(owners.owner, self._end[owners.nodes] - self._start[owners.nodes]).astype(np.int32)
        in_tree[rows] = joined(self._look_at(rows, scores))
        labels = np.empty(len(in_tree), np.int32)
        labels[self._order] = in_tree
        return labels


class AutoAssigner:
    """Assignment passes by the faster method: matrix products, then a kd-tree after enough passes, if it can be faster.

    Parameters
    ----------
    component, X
        See `DenseAssigner`.
    """

    def __init__(self, component: Component, X: Float[np.ndarray, "n d"]) -> None:
        self._component, self._X, self._passes = component, X, 0
        few = len(X) < KD_TREE_FROM or X.shape[1] > KD_TREE_UP_TO or np.isnan(X).any()
        self._settled = few or not _has_coordinates(component, X)
        self.current: Assigner = DenseAssigner(component, X)

    def _next(self) -> Assigner:
        self._passes += 1
        if not self._settled and self._passes > TREE_AFTER:
            self.current, self._settled = KDTreeAssigner(self._component, self._X), True
        return self.current

    def __call__(self, scores: Scores) -> tuple[Statistics, Float[Array | np.ndarray, " k"]]:
        """Statistics and number of the rows of each cluster."""
        return self._next()(scores)

    def labels(self, scores: Scores) -> Int[np.ndarray, " n"]:
        """Cluster of each row; the first one in case of ties."""
        return self._next().labels(scores)


def _has_coordinates(component: Component, X: Float[np.ndarray, "n d"]) -> bool:
    try:
        component.coordinates(X[:1])
    except NotImplementedError:
        return False
    return True
