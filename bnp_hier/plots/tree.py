"""Plots of binary trees over items, with their cut and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import axes_of_size, cluster_codes, cluster_colors, plain_texts, short_name
from bnp_hier.plots.texts import Occupied, write_apart
from bnp_hier.trees import Dendrogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

__all__ = ["dendrogram"]

_CUT = "0.5"
_MIXED = "0.15"
_MOST_CLASSES = 9  # length of the palette
_ALL_ODDS = 30
_AXIS = {"rank": "merges made so far", "odds": "−log merge probability (nats)"}


def dendrogram(
    tree: Dendrogram,
    *,
    labels: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    threshold: float = 0.5,
    heights: str = "rank",
    ax: Axes | None = None,
    annotate: int | None = None,
) -> Axes:
    """Draw a binary tree, with nodes above the cut dashed and grey, and nodes below it solid in the colour of their cluster.

    A node is cut if its merge probability and those of all its ancestors are below the threshold, as in `Dendrogram.cut`; it
    is kept otherwise. Unlikely merges under a kept node are also dashed, but in the colour of their cluster. A strip under
    the leaves shows each item's cluster. The nodes are stored in `ax.collections` as one collection labelled "kept" and one
    labelled "cut", with a bracket of four points per node.

    Parameters
    ----------
    tree
        The tree, of any size and depth.
    labels
        (n,) clusters or known classes to colour by, whole numbers or text; by default, the clusters of the cut. Kept nodes
        that contain several are black. If `labels` has at most nine distinct values, they are listed beside
        the tree.
    names
        n names for the leaves, by default item numbers; drawn if they fit, for up to about 60 leaves.
    threshold
        Merge probability below which nodes are cut, between 0 and 1.
    heights
        "rank" or "odds", see `Dendrogram.heights`.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.
    annotate
        Number of merges, counted from the last, whose log odds log r/(1 − r) are written beside their nodes where there is
        room; by default, all in trees of up to 30 leaves and none in larger ones.

    Returns
    -------
    ax
        The axes; leaves are at 0, 1, ... in the order of `tree.leaf_order()`.

    Raises
    ------
    ValueError
        If there is not one label or name per item, the threshold is not a probability, the kind of heights is unknown, or
        `annotate` is negative.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> tree = bnp.Dendrogram([[0, 1], [2, 3], [4, 5]], [3.0, 2.0, -4.0])
    >>> ax = bnp.plots.dendrogram(tree, names=["cat", "lion", "cow", "sheep"])
    >>> ax.figure.savefig("tree.png")  # doctest: +SKIP
    """
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    n = tree.n_items
    if names is not None and len(names) != n:
        raise ValueError(f"names must have one entry for each of the {n} items, but there are {len(names)}")
    if annotate is not None and annotate < 0:
        raise ValueError(f"annotate must be 0 or more, but it is {annotate}")
    parts = tree.cut(threshold)
    clusters, codes = cluster_codes(parts if labels is None else labels, n)
    branches = _brackets(tree, heights)
    kept = _one_cluster(tree, parts)
    with np.errstate(divide="ignore"):
        unlikely = tree.log_odds < np.log(threshold) - np.log1p(-threshold)  # as in `Dendrogram.cut`
    pure = _one_cluster(tree, codes)
    order = tree.leaf_order()

    palette = cluster_colors(len(clusters))
    colors = palette[codes[order[tree.first_positions()[n:]]]]
    colors[~pure] = (0.15, 0.15, 0.15, 1.0)
    width = float(np.clip(150.0 / n, 0.6, 1.5))

    axes = axes_of_size(ax, (8.0, 4.5))
    for chosen, style, color, label in (
        (~kept, "dashed", _CUT, "cut"),
        (kept, np.where(unlikely[kept], "dashed", "solid").tolist() or "solid", colors[kept], "kept"),
    ):
        lines = LineCollection(list(branches[chosen]), linestyles=style, colors=color, linewidths=width, label=label)
        lines.set_rasterized(n > 1000)
        axes.add_collection(lines)
    top = branches[..., 1].max(initial=0.0)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(0.0, 1.03 * top if top > 0 else 1.0), ylabel=_AXIS[heights])
    if heights == "odds" and top > 1.0:  # kept nodes end at −log(threshold); cut ones may reach thousands
        axes.set_yscale("symlog", linthresh=1.0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    _leaves(axes, palette[codes[order]], [str(item if names is None else names[item]) for item in order])

    if labels is not None and len(clusters) <= _MOST_CLASSES:
        # added as an artist because the other legend would replace it; artists are clipped to the axes by default
        axes.add_artist(_class_key(axes, [short_name(cluster) for cluster in clusters], palette)).set_clip_on(False)
    below = f"merge probability below {threshold:g}"
    entries = [
        Line2D([], [], color=_CUT, linestyle="dashed", label=f"cut: {below}"),
        Line2D([], [], color=_MIXED, label="contains several clusters"),
        Line2D([], [], color=_MIXED, linestyle="dashed", label=f"not cut: {below}, but under a kept merge"),
    ]
    present = (~kept, kept & ~pure, kept & unlikely)
    shown = [entry for entry, wanted in zip(entries, present, strict=True) if wanted.any()]
    if shown:
        axes.legend(handles=shown, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8)
    written = (n - 1 if n <= _ALL_ODDS else 0) if annotate is None else min(annotate, n - 1)
    if written:
        _write_odds(axes, tree, branches, written)
    return axes


def _brackets(tree: Dendrogram, kind: str) -> Float[np.ndarray, "m 4 2"]:
    """Left foot, left shoulder, right shoulder and right foot of each internal node.

    A node is centred over its leaves, so it is always between its children and almost straight above a big child.
    """
    center = tree.first_positions() + (tree.sizes - 1) / 2
    height = np.concatenate([np.zeros(tree.n_items), tree.heights(kind)])
    x = center[tree.children][:, [0, 0, 1, 1]]
    y = height[tree.children][:, [0, 0, 1, 1]]
    y[:, 1:3] = height[tree.n_items :, None]
    return np.stack([x, y], axis=-1)


def _one_cluster(tree: Dendrogram, codes: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " m"]:
    """Whether all items under each internal node have the same code."""
    codes = codes[tree.leaf_order()]
    changes = np.concatenate([[0], np.cumsum(codes[1:] != codes[:-1])])
    first, last = tree.first_positions(), tree.first_positions() + tree.sizes - 1
    return (changes[first] == changes[last])[tree.n_items :]


def _class_key(axes: Axes, names: Sequence[str], colors: Float[np.ndarray, "k 4"]) -> Legend:
    """Legend of the classes, to the right of the tree."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=color, linewidth=5.0, label=name) for name, color in zip(names, colors, strict=True)]
    return plain_texts(
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, handlelength=1.0)
    )


def _write_odds(axes: Axes, tree: Dendrogram, branches: Float[np.ndarray, "m 4 2"], count: int) -> None:
    """Write the log odds of the last merges beside the tops of their brackets."""
    axes.figure.figure.draw_without_rendering()  # fixes the layout, which determines whether text fits
    last = np.arange(len(branches))[::-1][:count]
    center = (tree.first_positions() + (tree.sizes - 1) / 2)[tree.n_items :]
    points = np.column_stack([center, branches[:, 1, 1]])[last]
    ends = np.concatenate([branches[:, :-1], branches[:, 1:]], axis=-1).reshape(-1, 2, 2)
    lines = np.concatenate([ends.min(axis=1), ends.max(axis=1)], axis=1)
    offsets = [(2.0, 2.0), (-2.0, 2.0), (2.0, -2.0), (-2.0, -2.0)]
    texts = [_odds_text(odds) for odds in tree.log_odds[last]]
    write_apart(axes, points, texts, offsets, 7.0, Occupied(lines=lines), color="0.2")


def _odds_text(odds: float) -> str:
    """Three significant digits, or all digits before the decimal point."""
    if np.isinf(odds):
        return "∞" if odds > 0 else "−∞"
    digits = 0 if abs(odds) >= 99.95 else 1 if abs(odds) >= 9.995 else 2
    return f"{round(odds, digits) + 0.0:.{digits}f}".replace("-", "−")


def _leaves(axes: Axes, colors: Float[np.ndarray, "n 4"], names: Sequence[str]) -> None:
    """Draw a strip of cluster colours under the axis, and the names if there is room for text of at least 7 points."""
    from matplotlib.collections import LineCollection
    from matplotlib.transforms import ScaledTranslation

    n, figure = len(names), axes.figure
    starts = np.flatnonzero(np.concatenate([[True], (colors[1:] != colors[:-1]).any(axis=1)]))
    ends = np.append(starts[1:], n)
    runs = [[(start - 0.5, 0.0), (end - 0.5, 0.0)] for start, end in zip(starts, ends, strict=True)]
    strip = LineCollection(runs, colors=colors[starts], linewidths=5.0, capstyle="butt", label="clusters")
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
