"""Flows of items between the clusters of several partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import axes_of_size, cluster_codes, cluster_colors, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["partition_flow"]

_MOST_BLOCKS = 12
"""Most clusters of a partition with a block of their own; smaller ones share a block."""

_WIDTH = 0.14
"""Width of a block, where neighbouring partitions are 1 apart."""

_GAP = 0.025
"""Space between blocks, as a share of the items."""

_INCHES_A_LABEL = 0.19
"""Least distance of two labels."""

_GREY = (0.35, 0.35, 0.35, 1.0)

_LEAST_WRITTEN = 0.03
"""Share of the items from which on a block between the ends has its label."""


class _ClusterBlocks(NamedTuple):
    """The clusters of one partition as blocks on top of one another.

    - **name** - of the partition.
    - **labels** - of the blocks; "others" is the block that small clusters share.
    - **colors** - (k, 4) of the clusters; grey for "others".
    - **codes** - (n,) block of each item.
    - **sizes** - (k,) number of items.
    - **low** - (k,) lower end of each block.
    """

    name: str
    labels: list[str]
    colors: Float[np.ndarray, "k 4"]
    codes: Int[np.ndarray, " n"]
    sizes: Int[np.ndarray, " k"]
    low: Float[np.ndarray, " k"]


def partition_flow(partitions: Mapping[str, ArrayLike], *, ax: Axes | None = None) -> Axes:
    """Plot which items of a cluster of one partition are in which clusters of the next, as an alluvial diagram.

    Each partition is a column of blocks, one for each cluster, and a band between two blocks is as high as the number of items
    that they share; bands have the colours of the clusters of the first partition. The clusters of the first partition are in
    sorted order, and those of the others in an order that keeps bands from crossing. Of more than twelve clusters, the
    smallest share a block named "others".

    Parameters
    ----------
    partitions
        Name -> (n,) labels, whole numbers or text, of two or more partitions of the same items.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes; blocks and bands are in `ax.patches`, and each has a description as its `get_gid`.

    Raises
    ------
    ValueError
        If there are fewer than two partitions, no items, or partitions of different lengths.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> ax = bnp.plots.partition_flow({"MAP-DP": [0, 0, 0, 1, 1], "species": ["cat", "cat", "dog", "dog", "dog"]})
    >>> ax.figure.savefig("flow.png")  # doctest: +SKIP
    """
    columns = _columns(partitions)
    most = max(len(column.labels) for column in columns)
    size = (2.6 + 1.5 * len(columns), float(np.clip(2.2 + 0.22 * most, 3.0, 5.5)))
    axes = axes_of_size(ax, size)
    for place, (left, right) in enumerate(zip(columns[:-1], columns[1:], strict=True)):
        _draw_bands(axes, place, (left, right), columns[0])
    for place, column in enumerate(columns):
        _draw_blocks(axes, place, column, len(columns))
    top = max(column.low[0] + column.sizes[0] for column in columns)
    axes.set(xlim=(-_WIDTH, len(columns) - 1 + _WIDTH), ylim=(min(column.low[-1] for column in columns), top))
    axes.set_xticks(range(len(columns)), [_wrapped(column.name) for column in columns], fontsize=9, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    return axes


def _columns(partitions: Mapping[str, ArrayLike]) -> list[_ClusterBlocks]:
    """Blocks of every partition, from top to bottom."""
    if len(partitions) < 2:
        raise ValueError(f"partitions must contain at least two partitions, but there are {len(partitions)}")
    n = len(np.asarray(next(iter(partitions.values()))))
    if not n:
        raise ValueError("partitions must be of at least one item, but there are none")
    found: list[_ClusterBlocks] = []
    height = np.arange(n, dtype=np.float64)
    for name, labels in partitions.items():
        clusters, codes = cluster_codes(labels, n)
        kept, codes = _pooled(codes)
        texts = [short_name(clusters[k], 16) for k in kept] + (["others"] if codes.max() == len(kept) else [])
        colors = np.concatenate([cluster_colors(len(clusters))[kept], [_GREY]])
        if found:  # by the mean place of their items in the column before
            order = np.argsort(np.bincount(codes, weights=height) / np.bincount(codes), kind="stable")
        else:
            order = np.arange(len(texts))
        codes = np.argsort(order)[codes]
        sizes = np.bincount(codes)
        total = n * (1.0 + _GAP * (len(sizes) - 1))
        low = total / 2 - np.cumsum(sizes) - _GAP * n * np.arange(len(sizes))
        found.append(_ClusterBlocks(str(name), [texts[k] for k in order], colors[order], codes, sizes, low))
        height = -low[codes] - sizes[codes] / 2
    return found


def _pooled(codes: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " kept"], Int[np.ndarray, " n"]]:
    """Clusters that have a block of their own, and the block of each item; that of the others is the last."""
    sizes = np.bincount(codes)
    if len(sizes) <= _MOST_BLOCKS:
        return np.arange(len(sizes)), codes
    kept = np.sort(np.argsort(-sizes, kind="stable")[: _MOST_BLOCKS - 1])
    place = np.full(len(sizes), len(kept))
    place[kept] = np.arange(len(kept))
    return kept, place[codes]


def _draw_bands(axes: Axes, place: int, sides: tuple[_ClusterBlocks, _ClusterBlocks], first: _ClusterBlocks) -> None:
    """Bands between two neighbouring columns, one for each pair of blocks and cluster of the first partition."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    left, right = sides
    groups, counts = np.unique(np.stack([left.codes, right.codes, first.codes]), axis=1, return_counts=True)
    at_left = _stacked(left, groups[[0, 1, 2]], counts)
    at_right = _stacked(right, groups[[1, 0, 2]], counts)
    start, end = place + _WIDTH / 2, place + 1 - _WIDTH / 2
    middle = (start + end) / 2
    bend = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    for (a, b, c), count, y, z in zip(groups.T, counts, at_left, at_right, strict=True):
        upper = [(start, y + count), (middle, y + count), (middle, z + count), (end, z + count)]
        lower = [(end, z), (middle, z), (middle, y), (start, y)]
        band = PathPatch(Path([*upper, *lower, upper[0]], bend), facecolor=first.colors[c], alpha=0.5, linewidth=0.0)
        band.set_gid(f"{count} items: {left.name} {left.labels[a]} → {right.name} {right.labels[b]}")
        axes.add_patch(band)


def _stacked(
    side: _ClusterBlocks, keys: Int[np.ndarray, "3 bands"], counts: Int[np.ndarray, " bands"]
) -> Float[np.ndarray, " bands"]:
    """Lower end of each band at a column: bands are stacked within their block, in the order of the blocks opposite."""
    order = np.lexsort(keys[::-1])
    down = np.empty(len(counts))
    down[order] = np.cumsum(counts[order])
    before = np.concatenate([[0], np.cumsum(side.sizes)])[keys[0]]
    return side.low[keys[0]] + side.sizes[keys[0]] - (down - before)


def _draw_blocks(axes: Axes, place: int, column: _ClusterBlocks, across: int) -> None:
    """Blocks of a column with their labels: beside them at both ends, and otherwise inside where there is room."""
    from matplotlib.patches import Rectangle

    n, height = len(column.codes), axes.figure.figure.get_figheight()
    middles = column.low + column.sizes / 2
    total = column.low[0] + column.sizes[0] - column.low[-1]
    beside = _apart(middles, column.sizes, _INCHES_A_LABEL / height * total)
    for k, (label, size, low) in enumerate(zip(column.labels, column.sizes, column.low, strict=True)):
        color = column.colors[k] if place == 0 else _GREY
        block = Rectangle((place - _WIDTH / 2, low), _WIDTH, size, facecolor=color, linewidth=0.0)
        block.set_gid(f"{column.name} {label}: {size} items")
        axes.add_patch(block)
        if place in (0, across - 1):
            side = -1 if place == 0 else 1
            axes.text(
                place + side * (_WIDTH / 2 + 0.04),
                beside[k],
                f"{label} ({size})",
                ha="right" if side < 0 else "left",
                va="center",
                fontsize=9,
                parse_math=False,
            )
        elif size >= _LEAST_WRITTEN * n:
            text = short_name(label, 5)
            axes.text(place, middles[k], text, ha="center", va="center", fontsize=8, color="white", parse_math=False)


def _apart(middles: Float[np.ndarray, " k"], weights: Int[np.ndarray, " k"], least: float) -> Float[np.ndarray, " k"]:
    """Places of labels from top to bottom, at least so far apart that none hides another, and else as near as can be."""
    from sklearn.isotonic import isotonic_regression

    down = least * np.arange(len(middles))
    return isotonic_regression(middles + down, sample_weight=weights, increasing=False) - down


def _wrapped(name: str) -> str:
    """A name on several lines of up to 18 characters."""
    import textwrap

    return textwrap.fill(short_name(name, 72), 18)
