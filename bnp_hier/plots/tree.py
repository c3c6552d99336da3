"""A binary tree over items, its cut and its clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from bnp_hier.hierarchy import Dendrogram
from bnp_hier.plots.palette import cluster_codes, cluster_colours, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["dendrogram"]

_CUT = "0.5"
_MIXED = "0.15"
_AXIS = {"rank": "merges made so far", "odds": "−log merge probability (nats)"}


def dendrogram(
    tree: Dendrogram,
    labels: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    threshold: float = 0.5,
    heights: str = "rank",
    ax: Axes | None = None,
) -> Axes:
    """Draw a tree: what the threshold cuts dashed and grey, what it keeps solid in the colour of its cluster.

    A node is cut when its merge probability and those of all nodes above it are below the threshold, as in
    `Dendrogram.cut`. A strip under the leaves shows each item's cluster. Nodes are kept in `ax.collections` as one
    collection labelled "kept" and one labelled "cut", a bracket of four points per node.

    Parameters
    ----------
    tree
        The tree, of any size and depth.
    labels
        (n,) clusters to colour by; those of the cut by default. Kept nodes that hold several clusters are black.
    names
        n names for the leaves, item numbers by default; drawn where they fit, for up to about 60 leaves.
    threshold
        Merge probability below which nodes are cut, between 0 and 1.
    heights
        "rank" or "odds", see `Dendrogram.heights`.
    ax
        Axes to draw in; by default those of a new figure (`ax.figure`), which pyplot does not hold on to.

    Returns
    -------
    ax
        The axes; leaves stand at 0, 1, ... in the order `tree.leaf_order()`.

    Raises
    ------
    ValueError
        If there is not one label or one name per item, the threshold is no probability, or the kind of heights is
        unknown.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    n = tree.n_items
    if names is not None and len(names) != n:
        raise ValueError(f"names must have one entry per item, {n}, but they have {len(names)}")
    parts = tree.cut(threshold)
    clusters, codes = cluster_codes(parts if labels is None else labels, n)
    branches = _brackets(tree, heights)
    kept = _one_cluster(tree, parts)
    pure = _one_cluster(tree, codes)
    order = tree.leaf_order()

    palette = cluster_colours(len(clusters))
    colours = palette[codes[order[tree.first_positions()[n:]]]]
    colours[~pure] = (0.15, 0.15, 0.15, 1.0)
    width = float(np.clip(150.0 / n, 0.6, 1.5))

    axes = Figure(figsize=(8.0, 4.5), layout="constrained").subplots() if ax is None else ax
    for chosen, style, colour, label in (
        (~kept, "dashed", _CUT, "cut"),
        (kept, "solid", colours[kept], "kept"),
    ):
        lines = LineCollection(list(branches[chosen]), linestyles=style, colors=colour, linewidths=width, label=label)
        lines.set_rasterized(n > 1000)
        axes.add_collection(lines)
    top = branches[..., 1].max(initial=0.0)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(0.0, 1.03 * top if top > 0 else 1.0), ylabel=_AXIS[heights])
    if heights == "odds" and top > 1.0:  # what is kept ends at −log(threshold); what is cut may go on for thousands of nats
        axes.set_yscale("symlog", linthresh=1.0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    _leaves(axes, palette[codes[order]], [str(item if names is None else names[item]) for item in order])

    entries = [
        Line2D([], [], color=_CUT, linestyle="dashed", label=f"cut: merge probability below {threshold:g}"),
        Line2D([], [], color=_MIXED, label="holds several clusters"),
    ]
    shown = [entry for entry, wanted in zip(entries, (~kept, kept & ~pure), strict=True) if wanted.any()]
    if shown:
        axes.legend(handles=shown, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8)
    return axes


def _brackets(tree: Dendrogram, kind: str) -> Float[np.ndarray, "m 4 2"]:
    """Left foot, left shoulder, right shoulder and right foot of each internal node.

    A node stands over the middle of its leaves: always between its children, and a big child goes almost straight up.
    """
    centre = tree.first_positions() + (tree.sizes - 1) / 2
    height = np.concatenate([np.zeros(tree.n_items), tree.heights(kind)])
    x = centre[tree.children][:, [0, 0, 1, 1]]
    y = height[tree.children][:, [0, 0, 1, 1]]
    y[:, 1:3] = height[tree.n_items :, None]
    return np.stack([x, y], axis=-1)


def _one_cluster(tree: Dendrogram, codes: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " m"]:
    """Whether all items under each internal node have the same code."""
    codes = codes[tree.leaf_order()]
    changes = np.concatenate([[0], np.cumsum(codes[1:] != codes[:-1])])
    first, last = tree.first_positions(), tree.first_positions() + tree.sizes - 1
    return (changes[first] == changes[last])[tree.n_items :]


def _leaves(axes: Axes, colours: Float[np.ndarray, "n 4"], names: Sequence[str]) -> None:
    """A strip of cluster colours under the axis, and the names if there is room for text of at least 7 points."""
    from matplotlib.collections import LineCollection
    from matplotlib.transforms import ScaledTranslation

    n, figure = len(names), axes.figure
    starts = np.flatnonzero(np.concatenate([[True], (colours[1:] != colours[:-1]).any(axis=1)]))
    ends = np.append(starts[1:], n)
    runs = [[(start - 0.5, 0.0), (end - 0.5, 0.0)] for start, end in zip(starts, ends, strict=True)]
    strip = LineCollection(runs, colors=colours[starts], linewidths=5.0, capstyle="butt", label="clusters")
    strip.set_transform(axes.get_xaxis_transform() + ScaledTranslation(0.0, -5.0 / 72.0, figure.dpi_scale_trans))
    strip.set(clip_on=False, rasterized=True, in_layout=False)
    axes.add_collection(strip, autolim=False)
    points = axes.get_window_extent().width * 72 / figure.dpi
    size = min(9.0, 0.9 * points / n)
    if size < 7.0:
        axes.set_xticks([])
        axes.set_xlabel(f"{n} items", labelpad=12)
        return
    texts = [short_name(name) for name in names]
    upright = 0.7 * size * max(map(len, texts)) < points / n
    axes.set_xticks(np.arange(n), texts, rotation=0 if upright else 90, fontsize=size, parse_math=False)
    axes.tick_params(axis="x", length=0, pad=10)
