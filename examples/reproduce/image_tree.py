"""Plots of trees over images, in which the most representative images stand for each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8
from numpy.typing import ArrayLike

from bnp_hier.plots.branch_layout import (
    Branch,
    branches,
    draw_edges,
    heights,
    largest_first,
)
from bnp_hier.trees import Hierarchy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["montage"]

_MOST_IN_ROW = 6
_TEXT = 7.0  # in points
# in inches
_LARGEST, _SMALLEST = 0.34, 0.1  # largest and smallest height of an image, small in large figures
_WIDEST, _TALLEST, _NARROWEST = 14.0, 16.0, 3.5
_BETWEEN = 0.45  # space between a montage and the next level
_CAPTION = 0.16
_APART = 0.07  # space between a montage and the one below it
_NOTE, _NOTE_HEIGHT = 1.9, 0.08
_HEAD, _MARGIN = 0.35, 0.1


def montage(
    tree: Hierarchy, images: Float[np.ndarray, "n h w"], *, X: ArrayLike, count: int = 6, max_nodes: int = 40
) -> Figure:
    """Draw a tree with the most representative images of every node, as in Figure 5 of Huang et al. (2021).

    The root is at the left and levels are columns. Each node shows the number of its items and, below it, up to `count` of
    them: those nearest to their mean, nearest first. Siblings with more items are placed higher. A single child
    contains the same items as its parent and is not shown again.

    Parameters
    ----------
    tree
        The tree, of any size and depth.
    images
        Brightnesses.
    X
        (n, d) rows in which similar images are close together, see `Hierarchy.representatives`.
    count
        Maximum number of images per node.
    max_nodes
        Maximum number of nodes shown, largest first. The figure states how many are left out, and where.
    """
    from matplotlib.figure import Figure

    lowest = tree.depth
    chosen = tree.representatives(X, count)
    kept, n_kept, n_nodes = _largest(tree, lowest, max_nodes)
    found = [each._replace(bottom=each.top) if each.is_end else each for each in branches(tree, kept, lowest)]
    is_kept = [bool(kept[branch.nodes[0]]) for branch in found]
    most = len(chosen[0])
    down = -(-most // _MOST_IN_ROW)
    across = -(-most // down)
    plan = _plan(found, is_kept, across, down, *images.shape[1:])

    width, height = plan.width + 2 * _MARGIN, plan.height + _HEAD
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((_MARGIN / width, 0.0, plan.width / width, plan.height / height))
    axes.set(xlim=(0.0, plan.width / plan.pitch), ylim=(plan.height, 0.0))
    axes.set_axis_off()
    draw_edges(axes, found, plan.middles, 1.0 - _BETWEEN / 2 / plan.pitch)
    paint = _painter(images)
    for branch, y, is_drawn in zip(found, plan.middles.tolist(), is_kept, strict=True):
        n_items = int(tree.sizes[list(branch.nodes)].sum())
        if is_drawn:
            sheet = _sheet(paint(images[chosen[branch.nodes[0]]]), across)
            _place(axes, sheet, branch.top, y, plan, _counted(n_items, "image"))
        else:
            text = f"+ {_counted(len(branch.nodes), 'smaller node')}, {_counted(n_items, 'image')}"
            axes.text(branch.top + 0.03, y, text, color="0.35", fontsize=_TEXT, verticalalignment="center")
    left_out = "" if n_kept == n_nodes else f"; {_counted(n_nodes - n_kept, 'smaller node')} left out"
    title = f"{_counted(tree.n_items, 'image')}, {_counted(n_kept, 'node')} down to level {lowest}{left_out}"
    figure.text(_MARGIN / width, 1.0 - _MARGIN / height, title, verticalalignment="top", fontsize=9.0)
    return figure


class _Plan(NamedTuple):
    """Positions of the montages, in inches.

    Attributes
    ----------
    pixel
        Height and width of a pixel.
    pitch
        Distance from one level to the next.
    middles
        Vertical middle of every montage or note, counted downwards.
    width, height
        Size of the whole drawing.
    """

    pixel: float
    pitch: float
    middles: Float[np.ndarray, " b"]
    width: float
    height: float


def _plan(found: Sequence[Branch], is_kept: Sequence[bool], across: int, down: int, h: int, w: int) -> _Plan:
    """Make the images as large as the figure allows, with `across` by `down` of them at every node."""
    for height in np.linspace(_LARGEST, _SMALLEST, 12).tolist():
        pixel = height / h
        strip = across * (w + _gap(h)) * pixel
        pitch = strip + _BETWEEN
        needed = np.where(is_kept, down * (h + _gap(h)) * pixel, _NOTE_HEIGHT) + _CAPTION + _APART
        middles, total = heights(found, needed)
        width = max(pitch * branch.top + (strip if kept else _NOTE) for branch, kept in zip(found, is_kept, strict=True))
        if width <= _WIDEST and total <= _TALLEST:
            break
    return _Plan(pixel, pitch, middles + (_CAPTION - _APART) / 2, max(width, _NARROWEST), total)


def _gap(h: int) -> int:
    """Number of pixels between images."""
    return max(1, h // 24)


def _largest(tree: Hierarchy, lowest: int, most: int) -> tuple[Bool[np.ndarray, " nodes"], int, int]:
    """Return which nodes are kept, and the numbers of kept nodes and of all nodes, only children not counted."""
    order = largest_first(tree, lowest)
    lonely = is_only_child(tree)
    distinct = order[~lonely[order]]
    kept = np.zeros(tree.n_nodes, dtype=bool)
    kept[distinct[:most]] = True
    parents = tree.parents
    for node in np.flatnonzero(lonely):  # parents have smaller numbers
        kept[node] = kept[parents[node]]
    return kept, min(most, len(distinct)), len(distinct)


def is_only_child(tree: Hierarchy) -> Bool[np.ndarray, " nodes"]:
    """Whether each node has no siblings and therefore contains the same items as its parent; False for the root."""
    parents = tree.parents
    counts = np.bincount(parents[1:], minlength=tree.n_nodes)
    return np.concatenate([[False], counts[parents[1:]] == 1])


def _sheet(painted: UInt8[np.ndarray, "m h w 4"], across: int) -> UInt8[np.ndarray, "rows columns 4"]:
    """Place images side by side with white gaps, in rows of `across`."""
    m, h, w, _ = painted.shape
    gap = _gap(h)
    across = min(across, m)
    down = -(-m // across)
    sheet = np.full((down * (h + gap) - gap, across * (w + gap) - gap, 4), 255, dtype=np.uint8)
    for place, image in enumerate(painted):
        top, left = place // across * (h + gap), place % across * (w + gap)
        sheet[top : top + h, left : left + w] = image
    return sheet


def _place(axes: Axes, sheet: UInt8[np.ndarray, "rows columns 4"], x: float, y: float, plan: _Plan, caption: str) -> None:
    """Draw the images of a node to the right of a position, with a caption above them."""
    rows, columns, _ = sheet.shape
    right, half = x + columns * plan.pixel / plan.pitch, rows * plan.pixel / 2
    axes.imshow(sheet, extent=(x, right, y + half, y - half), aspect="auto", zorder=2)
    axes.text(x, y - half - 0.03, caption, fontsize=_TEXT, verticalalignment="bottom")


def _painter(images: Float[np.ndarray, "n h w"]) -> Callable[[np.ndarray], UInt8[np.ndarray, "m h w 4"]]:
    """Return a function that converts images to red, green, blue and opacity, with all brightnesses on one scale."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    scale = Normalize(float(images.min()), float(images.max()))
    return lambda some: colormaps["gray"](scale(some), bytes=True)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
