"""The increases of a tree bound at each merge, as in Figure 2b of Xu, Heller & Ghahramani (2009)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import cluster_colors
from bnp_hier.plots.texts import Occupied, write_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["bound_increments"]

_NAMED = 5
_BINS = 20
_MANY = 50


def bound_increments(increments: ArrayLike, *, axes: Axes) -> Axes:
    """Plot the increase of the tree bound due to the relocations at each merge, and the distribution of these increases.

    Merges are ordered from left to right as the tree made them; the root is last. High stems mark where the clustering is
    uncertain (Xu, Heller & Ghahramani 2009, Figure 2b). The five highest are numbered.

    Parameters
    ----------
    increments
        (n − 1,) increase of the tree bound due to the relocations at each merge alone (nats), 0 or more; NaN for a merge
        without relocations.
    axes
        Axes to draw in; the histogram is in its `child_axes[0]`.
    """
    from matplotlib.ticker import MaxNLocator

    heights = np.asarray(increments, dtype=np.float64)
    merges = np.flatnonzero(~np.isnan(heights))
    values = np.maximum(heights[merges], 0.0)  # rounding may push differences slightly below 0
    top = values.max(initial=0.0)
    top = top if top > 0 else 1.0

    (color,) = cluster_colors(1)
    many = len(heights) > 1000
    stems = axes.vlines(merges, 0.0, values, colors=[color], linewidths=float(np.clip(300.0 / max(len(heights), 1), 0.6, 2.0)))
    stems.set(label="increments", rasterized=many, clip_on=False)
    if len(heights) <= 200:
        axes.plot(merges, values, linestyle="", marker="o", markersize=3.5, color=color, clip_on=False)
    axes.set(xlim=(-0.6, max(len(heights), 1) - 0.4), ylim=(0.0, 1.15 * top))
    without = len(heights) - len(merges)
    axes.set_xlabel("merge" if not without else f"merge ({without} of {len(heights)} without relocations)")
    axes.set_ylabel("gain from relocations (nats)")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.spines[["top", "right"]].set_visible(False)

    side = axes.inset_axes((1.03, 0.0, 0.22, 1.0), sharey=axes)
    edges = np.linspace(0.0, top, _BINS + 1)
    counts = np.histogram(values, edges)[0]
    side.stairs(counts, edges, orientation="horizontal", fill=True, color=color, alpha=0.8)
    side.set_xlabel("merges")
    if counts.max() > _MANY:  # the bar of the many small gains would dwarf all others
        side.set_xscale("log")
        side.xaxis.set_major_formatter(lambda count, _: f"{count:g}")
        side.set_xlim(0.5, 2.0 * counts.max())
    else:
        side.set_xlim(left=0.0)
        side.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    side.tick_params(labelleft=False)
    side.spines[["top", "right"]].set_visible(False)

    highest = np.argsort(-values, kind="stable")[:_NAMED]
    highest = highest[values[highest] > 0]
    points = np.column_stack([merges, values])[highest]
    stem_lines = np.column_stack([merges, np.zeros(len(merges)), merges, values])
    axes.figure.figure.draw_without_rendering()  # fixes the layout, which determines whether text fits
    places = [(0.0, 4.0), (5.0, 0.0), (-5.0, 0.0)]
    write_apart(axes, points, [str(merge) for merge in merges[highest]], places, 8.0, Occupied(points, lines=stem_lines))
    return axes
