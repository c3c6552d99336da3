"""Plots of evidence bounds: which merges of the tree improve them, and how estimators compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import cluster_colors, short_name
from bnp_hier.plots.texts import Occupied, write_apart

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["bound_increments", "evidence_bounds"]

_NAMED = 5
_BINS = 20
_MANY = 50
_KINDS = ("exact", "lower bound", "estimate")
_COLUMNS = ("value", "standard_error", "kind", "target", "verdict")


def bound_increments(increments: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Plot the increase of the tree bound due to the relocations at each merge, and the distribution of these increases.

    Merges are ordered from left to right as the tree made them; the root is last. High stems mark where the clustering is
    uncertain (Xu, Heller & Ghahramani 2009, Figure 2b). The five highest are numbered.

    Parameters
    ----------
    increments
        (n − 1,) increase of the tree bound due to the relocations at each merge alone (nats), 0 or more; NaN for a merge
        without relocations.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes, with the stems in the collection labelled "increments"; the histogram beside them is in
        `ax.child_axes[0]`.

    Raises
    ------
    ValueError
        If the increments are not a vector, or one is negative or infinite.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    heights = np.asarray(increments, dtype=np.float64)
    if heights.ndim != 1:
        raise ValueError(f"increments must be a vector with one entry per merge, but they have shape {heights.shape}")
    wrong = np.flatnonzero((heights < -1e-9) | np.isinf(heights))  # rounding may push differences slightly below 0
    if len(wrong):
        raise ValueError(f"increments must be finite and not negative, but that of merge {wrong[0]} is {heights[wrong[0]]}")
    merges = np.flatnonzero(~np.isnan(heights))
    values = np.maximum(heights[merges], 0.0)
    top = values.max(initial=0.0)
    top = top if top > 0 else 1.0

    axes = Figure(figsize=(8.0, 3.6), layout="constrained").subplots() if ax is None else ax
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


def evidence_bounds(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot estimators of the evidence side by side: bounds, estimates and exact values, one per row.

    A lower bound is a square with an arrow to the right, where the evidence lies; an estimate is a dot with an error bar of
    ± two standard errors; an exact value is a diamond with a vertical line across all rows of its target. Markers of results
    that failed their check are hollow. The axis covers the results that did not fail; a failed result outside of it is a
    hollow triangle at the edge, pointing outwards.

    Parameters
    ----------
    table
        DataFrame returned by `bnp_hier.evidence.table`: one row per estimator, with the columns "value" and
        "standard_error" (nats), "kind" ("exact", "lower bound" or "estimate"), "target" (the estimated quantity) and
        "verdict".
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes. With a single target, row i of the table is at height −i; with several, each target has a heading.

    Raises
    ------
    ValueError
        If the table is empty, lacks a column or contains an unknown kind.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    missing = [column for column in _COLUMNS if column not in table.columns]
    if missing:
        raise ValueError(f"the table must have the columns {', '.join(_COLUMNS)}, but it lacks {', '.join(missing)}")
    if not len(table):
        raise ValueError("the table must have at least one row, but it is empty")
    kinds = [str(kind) for kind in table["kind"]]
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown:
        raise ValueError(f"kinds must be one of {', '.join(map(repr, _KINDS))}, but one is {unknown[0]!r}")
    value = np.asarray(table["value"], dtype=np.float64)
    error = np.asarray(table["standard_error"], dtype=np.float64)
    failed = np.array([str(verdict).startswith("failed") for verdict in table["verdict"]])
    heights, headings = _rows([str(target) for target in table["target"]])
    low, high = _range(value, np.where(np.isfinite(error), 2.0 * error, 0.0), failed)

    size = (7.5, 1.0 + 0.32 * (len(table) + len(headings)))
    axes = Figure(figsize=size, layout="constrained").subplots() if ax is None else ax
    axes.set(xlim=(low, high), ylim=(heights.min() - 0.6, 0.6))
    exact_color, bound_color, estimate_color = cluster_colors(3)
    for row, (x, y, kind) in enumerate(zip(value, heights, kinds, strict=True)):
        shown = dict(zip(_KINDS, (exact_color, bound_color, estimate_color), strict=True))[kind]
        mark: dict[str, Any] = dict(linestyle="", color=shown, markersize=7, zorder=3, clip_on=False)
        if failed[row]:
            mark["markerfacecolor"] = "white"
        if np.isfinite(x) and not low <= x <= high:
            axes.plot(low if x < low else high, y, marker="<" if x < low else ">", **mark)
        elif np.isfinite(x):
            _mark(axes, x, y, kind, 2.0 * error[row], mark)
        if kind == "exact" and np.isfinite(x) and not failed[row]:
            same = heights[np.asarray(table["target"].astype(str) == str(table["target"].iloc[row]))]
            axes.vlines(x, same.min() - 0.5, same.max() + 0.5, colors=[shown], linewidths=1.0, label="exact", zorder=1)
        axes.annotate(
            _written(x, error[row]) + (" (failed)" if failed[row] else ""),
            (1.0, y),
            (12.0, 0.0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            annotation_clip=False,
            verticalalignment="center",
            fontsize=8,
            color="0.4" if failed[row] else "black",
            parse_math=False,
        )
    axes.hlines(heights, low, high, colors="0.9", linewidths=0.6, zorder=0)
    axes.set_yticks(heights, [short_name(name, 40) for name in table.index], parse_math=False)
    for heading, y in headings.items():
        axes.text(
            0.0, y, heading, transform=axes.get_yaxis_transform(), va="center", fontsize=9, style="italic", parse_math=False
        )
    axes.set_xlabel("nats" if headings else f"{table['target'].iloc[0]} (nats)", parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.tick_params(axis="y", length=0, pad=9)  # room for the triangles at the edge
    axes.spines[["top", "right", "left"]].set_visible(False)
    _key(axes, [kind for kind in _KINDS if kind in kinds], bool(failed.any()))
    return axes


def _rows(targets: list[str]) -> tuple[Float[np.ndarray, " rows"], dict[str, float]]:
    """Height of each row, and of the headings if there are several targets; rows with the same target are adjacent."""
    distinct = list(dict.fromkeys(targets))
    heights, headings, y = np.zeros(len(targets)), {}, 0.0
    for target in distinct:
        if len(distinct) > 1:
            headings[target], y = y, y - 1.0
        for row in [i for i, other in enumerate(targets) if other == target]:
            heights[row], y = y, y - 1.0
    return heights, headings


def _range(value: Float[np.ndarray, " rows"], reach: Float[np.ndarray, " rows"], failed: np.ndarray) -> tuple[float, float]:
    """Limits of the axis: all values that did not fail, with room for the arrows."""
    here = np.isfinite(value) & ~failed
    if not here.any():
        here = np.isfinite(value)
    if not here.any():
        return 0.0, 1.0
    low, high = float((value - reach)[here].min()), float((value + reach)[here].max())
    span = high - low if high - low > 1e-9 * max(1.0, abs(low)) else 5.0
    return low - 0.08 * span, high + 0.12 * span


def _mark(axes: Axes, x: float, y: float, kind: str, reach: float, mark: dict[str, Any]) -> None:
    if kind == "estimate":
        if np.isfinite(reach):
            axes.errorbar(x, y, xerr=reach, color=mark["color"], linewidth=1.5, capsize=3.0, zorder=2)
        axes.plot(x, y, marker="o", **mark)
    elif kind == "exact":
        axes.plot(x, y, marker="D", **mark)
    else:
        # the same length at any scale: the arrow means "or more", not an amount
        arrow = dict(arrowstyle="<-", color=mark["color"], shrinkA=0.0, shrinkB=0.0, linewidth=1.5)
        axes.annotate("", (x, y), (22.0, 0.0), textcoords="offset points", arrowprops=arrow, annotation_clip=False)
        axes.plot(x, y, marker="s", **mark)


def _written(value: float, error: float) -> str:
    if not np.isfinite(value):
        return "no value" if np.isnan(value) else ("∞" if value > 0 else "−∞")
    text = f"{value:.2f}" if not np.isfinite(error) or error == 0 else f"{value:.2f} ± {error:.2g}"
    return text.replace("-", "−")


def _key(axes: Axes, kinds: list[str], failed: bool) -> None:
    from matplotlib.lines import Line2D

    marks = {
        kind: (marker, text)
        for kind, marker, text in zip(
            _KINDS,
            ("D", "s", "o"),
            ("exact", "lower bound", "estimate ± 2 s.e."),
            strict=True,
        )
    }
    colors = dict(zip(_KINDS, cluster_colors(3), strict=True))
    handles = [
        Line2D([], [], linestyle="", marker=marks[kind][0], color=colors[kind], label=marks[kind][1], markersize=6)
        for kind in kinds
    ]
    if failed:
        handles.append(
            Line2D([], [], linestyle="", marker="o", color="0.4", markerfacecolor="white", label="failed", markersize=6)
        )
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=4,
        frameon=False,
        fontsize=8,
        borderaxespad=0.0,
        handletextpad=0.2,
        columnspacing=1.2,
    )
