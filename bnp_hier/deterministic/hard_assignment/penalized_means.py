"""Passes of DP-means over tables in parts: centres go to the parts; sums of their rows and proposed clusters come back.

Rows within √penalty of a centre join the nearest one. Those farther from all centres open clusters among themselves, part by
part, and the clusters are then compared: optimistic concurrency control (Pan et al. 2013).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.deterministic.row_sources.appearance import first_rows, in_order_of_appearance
from bnp_hier.deterministic.row_sources.protocol import RowSource, counted_from
from bnp_hier.partitions.capacities import in_steps
from bnp_hier.partitions.scoring import in_chunks
from bnp_hier.utils.arrays import first_cell
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["MeansPass", "check_finite", "first_come", "nearest_labels", "next_centers", "pass_over"]

MOST = 1e150
"""Largest absolute value whose squared distances can be summed in double precision."""


class Group(NamedTuple):
    """Sums over the rows that are assigned to points, one entry per point.

    - **points** - (k, d) the points.
    - **counts** - number of their rows.
    - **shifts** - (k, d) sum of their rows' differences from them.
    - **scatter** - sum of their rows' squared distances from them.
    """

    points: Float[np.ndarray, "k d"]
    counts: Float[np.ndarray, " k"]
    shifts: Float[np.ndarray, "k d"]
    scatter: Float[np.ndarray, " k"]


class MeansPass(NamedTuple):
    """Result of a pass.

    - **near** - the centres, with the rows at most √penalty from the nearest one.
    - **far** - rows that open clusters, with the rows that join them.
    - **objective** - Σ squared distance from the nearest centre + penalty × number of centres that are nearest for some row.
    - **first** - (k,) number of the first row for which each centre is the nearest; the largest integer if there is none.
    """

    near: Group
    far: Group
    objective: float
    first: Int[np.ndarray, " k"]


class _PartSums(NamedTuple):
    """What a pass needs to know about a part; see `MeansPass`. **beyond** - Σ squared distance of the far rows."""

    near: Group
    far: Group
    beyond: float
    first: Int[np.ndarray, " k"]


def check_finite(rows: Float[np.ndarray, "n d"]) -> None:
    """Raise ValueError if a value is not finite or too large to be squared; the message locates it."""
    wrong = ~np.isfinite(rows)
    if wrong.any():
        what = "a missing value (NaN)" if np.isnan(rows[wrong][0]) else "an infinite value (inf)"
        raise ValueError(f"X has {what} at {first_cell(wrong)}; DPMeans needs finite numbers")
    beyond = np.abs(rows) > MOST
    if beyond.any():
        raise ValueError(
            f"X has {rows[beyond][0]:g} at {first_cell(beyond)}, which is too large to be squared in double precision"
        )


@jax.jit
def first_come(
    X: Float[Array, "n d"], centers: Float[Array, "s d"], clusters: Int[Array, ""], penalty: Float[Array, ""]
) -> tuple[Int[Array, " n"], Int[Array, ""], Int[Array, ""]]:
    """Assign the rows one after the other: a row farther than √penalty from all centres opens a cluster at its place.

    Returns
    -------
    labels, clusters, refused
        Labels, number of clusters, and how often a row needed a new cluster but no slot was free.
    """
    index = jnp.arange(centers.shape[0])

    def visit(carry: tuple[Array, Array, Array], x: Array) -> tuple[tuple[Array, Array, Array], Array]:
        centers, clusters, refused = carry
        gaps = jnp.where(index < clusters, ((centers - x[None]) ** 2).sum(1), jnp.inf)
        nearest = gaps.argmin()
        far = gaps[nearest] > penalty
        opens = far & (clusters < centers.shape[0])
        label = jnp.where(opens, clusters, nearest)
        centers = centers.at[label].set(jnp.where(opens, x, centers[label]))
        return (centers, clusters + opens.astype(int), refused + (far & ~opens).astype(int)), label

    (_, clusters, refused), labels = jax.lax.scan(visit, (centers, clusters, jnp.int64(0)), X)
    return labels, clusters, refused


@jax.jit
def _nearest(centers: Float[Array, "s d"], X: Float[Array, "c d"]) -> Float[Array, "c two"]:
    """Nearest centre of each row, and its squared distance."""

    def one(x: Array) -> Array:
        gaps = ((centers - x[None]) ** 2).sum(1)
        best = gaps.argmin()
        return jnp.stack([best.astype(gaps.dtype), gaps[best]])

    return jax.vmap(one)(X)


def _nearest_centers(
    centers: Float[np.ndarray, "k d"], rows: Float[np.ndarray, "m d"]
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Nearest centre of each row, the first one in case of ties, and its squared distance."""
    slots = np.full((in_steps(len(centers)), rows.shape[1]), np.inf)  # few numbers of slots, so that few programs are compiled
    slots[: len(centers)] = centers
    with double_precision():
        found = in_chunks(partial(_nearest, slots), rows)
    return found[:, 0].astype(np.int64), found[:, 1]


def nearest_labels(centers: Float[np.ndarray, "k d"], rows: Float[np.ndarray, "m d"], start: int = 0) -> Int[np.ndarray, " m"]:
    """Number of the nearest centre of each row; the first one in case of ties."""
    return _nearest_centers(centers, rows.astype(np.float64))[0]


def _grouped(points: Float[np.ndarray, "k d"], rows: Float[np.ndarray, "m d"], labels: Int[np.ndarray, " m"]) -> Group:
    k, gaps = len(points), rows - points[labels]
    shifts = [np.bincount(labels, column, minlength=k) for column in gaps.T]
    scatter = np.bincount(labels, (gaps**2).sum(1), minlength=k)
    return Group(points, np.bincount(labels, minlength=k).astype(float), np.array(shifts).T, scatter)


def _opened(rows: Float[np.ndarray, "m d"], penalty: float) -> Group:
    """Clusters of rows that are far from all centres, each at its first row."""
    m, d = rows.shape
    if not m:
        return _grouped(rows, rows, np.empty(0, np.int64))
    # repeated rows join the cluster of the first copy; a power of two, so that few programs are compiled
    filled = np.concatenate([rows, np.broadcast_to(rows[-1], ((1 << (m - 1).bit_length()) - m, d))])
    slots = 64
    with double_precision():
        while True:
            found, _, refused = first_come(filled, np.zeros((slots, d)), np.asarray(0), np.asarray(penalty))
            if not refused:
                break
            slots *= 4
    labels = np.asarray(found)[:m]
    return _grouped(rows[np.unique(labels, return_index=True)[1]], rows, labels)


def _pass_part(
    centers: Float[np.ndarray, "k d"], penalty: float, check: bool, rows: Float[np.ndarray, "m d"], start: int
) -> _PartSums:
    rows = rows.astype(np.float64)
    if check:
        with counted_from(start):
            check_finite(rows)
    labels, gaps = _nearest_centers(centers, rows)
    first = first_rows(labels, start, len(centers))
    near = gaps <= penalty
    return _PartSums(
        _grouped(centers, rows[near], labels[near]), _opened(rows[~near], penalty), float(gaps[~near].sum()), first
    )


def pass_over(source: RowSource, centers: Float[np.ndarray, "k d"], penalty: float, check: bool) -> MeansPass:
    """Assign all rows to their nearest centre, or to new clusters if it is farther than √penalty.

    Parameters
    ----------
    source
        The rows.
    centers, penalty
        Centres, and penalty for a cluster.
    check
        Whether to raise a ValueError if a value is not a finite number.
    """
    total: _PartSums | None = None
    far: list[Group] = []
    for part in source.map(partial(_pass_part, centers, penalty, check)):
        far.append(part.far)
        total = part if total is None else _added(total, part)
    if total is None:
        raise ValueError("X is empty: the row source has no parts; expected at least two rows")
    opened = Group(*map(np.concatenate, zip(*far, strict=True)))
    used = len(in_order_of_appearance(total.first))
    return MeansPass(total.near, opened, float(total.near.scatter.sum()) + total.beyond + penalty * used, total.first)


def _added(one: _PartSums, other: _PartSums) -> _PartSums:
    """Sums of two parts, without the clusters that they open."""
    near = Group(one.near.points, *(a + b for a, b in zip(one.near[1:], other.near[1:], strict=True)))
    return _PartSums(near, one.far, one.beyond + other.beyond, np.minimum(one.first, other.first))


def next_centers(found: MeansPass, penalty: float) -> Float[np.ndarray, "k d"]:
    """Means of the clusters after a pass, for which the objective is at most that of the pass.

    The proposed clusters are accepted one after the other. One that was opened at most √penalty from an earlier one joins the
    nearest of these unless that costs more than the penalty, by the sums of squared distances. No choice increases the
    objective: the rows of a proposal, m in number, had squared distances greater than the penalty, so that their sum exceeds
    m × penalty, whereas as a cluster they cost at most (m − 1) × penalty + penalty.
    """
    near, far = found.near, found.far
    used = near.counts > 0
    means = near.points[used] + near.shifts[used] / near.counts[used, None]
    opened: list[int] = []
    counts, shifts = far.counts.copy(), far.shifts.copy()
    for new, point in enumerate(far.points):
        if opened:
            gaps = far.points[opened] - point
            squared = (gaps**2).sum(1)
            nearest = int(squared.argmin())
            # Σ ‖x − q‖² − Σ ‖x − p‖² of the rows of p, for the point q of the cluster that they would join
            cost = far.counts[new] * squared[nearest] - 2 * far.shifts[new] @ gaps[nearest]
            if squared[nearest] <= penalty and cost <= penalty:
                into = opened[nearest]
                counts[into] += far.counts[new]
                shifts[into] += far.shifts[new] - far.counts[new] * gaps[nearest]
                continue
        opened.append(new)
    return np.concatenate([means, far.points[opened] + shifts[opened] / counts[opened, None]])
