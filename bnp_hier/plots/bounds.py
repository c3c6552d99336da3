"""Plots of bounds and estimates of the evidence, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from bnp_hier.plots.palette import axes_of_size, cluster_colors, short_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["evidence_bounds"]

_MARKS = {"exact": ("D", "exact"), "lower bound": ("s", "lower bound"), "estimate": ("o", "estimate ± 2 s.e.")}
"""Kind -> its marker, and what it is called in the key."""

_COLUMNS = ("value", "standard_error", "kind", "target", "verdict")


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

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> X = [[0.0], [0.2], [0.1], [6.0], [6.1]]
    >>> table = bnp.evidence.table(model, X, progress_bar=False)  # doctest: +SKIP
    >>> ax = bnp.plots.evidence_bounds(table)  # doctest: +SKIP
    >>> ax.figure.savefig("bounds.png")  # doctest: +SKIP
    """
    from matplotlib.ticker import MaxNLocator

    missing = [column for column in _COLUMNS if column not in table.columns]
    if missing:
        raise ValueError(f"the table must have the columns {', '.join(_COLUMNS)}, but it lacks {', '.join(missing)}")
    if not len(table):
        raise ValueError("the table must have at least one row, but it is empty")
    kinds = [str(kind) for kind in table["kind"]]
    unknown = [kind for kind in kinds if kind not in _MARKS]
    if unknown:
        raise ValueError(f"kinds must be one of {', '.join(map(repr, _MARKS))}, but one is {unknown[0]!r}")
    value = np.asarray(table["value"], dtype=np.float64)
    error = np.asarray(table["standard_error"], dtype=np.float64)
    failed = np.array([str(verdict).startswith("failed") for verdict in table["verdict"]])
    heights, headings = _rows([str(target) for target in table["target"]])
    low, high = _range(value, np.where(np.isfinite(error), 2.0 * error, 0.0), failed)

    size = (7.5, 1.0 + 0.32 * (len(table) + len(headings)))
    axes = axes_of_size(ax, size)
    axes.set(xlim=(low, high), ylim=(heights.min() - 0.6, 0.6))
    colors = dict(zip(_MARKS, cluster_colors(len(_MARKS)), strict=True))
    for row, (x, y, kind) in enumerate(zip(value, heights, kinds, strict=True)):
        mark: dict[str, Any] = dict(linestyle="", color=colors[kind], markersize=7, zorder=3, clip_on=False)
        if failed[row]:
            mark["markerfacecolor"] = "white"
        if np.isfinite(x) and not low <= x <= high:
            axes.plot(low if x < low else high, y, marker="<" if x < low else ">", **mark)
        elif np.isfinite(x):
            _mark(axes, x, y, kind, 2.0 * error[row], mark)
        if kind == "exact" and np.isfinite(x) and not failed[row]:
            same = heights[np.asarray(table["target"].astype(str) == str(table["target"].iloc[row]))]
            axes.vlines(x, same.min() - 0.5, same.max() + 0.5, colors=[colors[kind]], linewidths=1.0, label="exact", zorder=1)
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
    _key(axes, {kind: color for kind, color in colors.items() if kind in kinds}, bool(failed.any()))
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
    if kind == "estimate" and np.isfinite(reach):
        axes.errorbar(x, y, xerr=reach, color=mark["color"], linewidth=1.5, capsize=3.0, zorder=2)
    elif kind == "lower bound":
        # the same length at any scale: the arrow means "or more", not an amount
        arrow = dict(arrowstyle="<-", color=mark["color"], shrinkA=0.0, shrinkB=0.0, linewidth=1.5)
        axes.annotate("", (x, y), (22.0, 0.0), textcoords="offset points", arrowprops=arrow, annotation_clip=False)
    axes.plot(x, y, marker=_MARKS[kind][0], **mark)


def _written(value: float, error: float) -> str:
    if not np.isfinite(value):
        return "no value" if np.isnan(value) else ("∞" if value > 0 else "−∞")
    text = f"{value:.2f}" if not np.isfinite(error) or error == 0 else f"{value:.2f} ± {error:.2g}"
    return text.replace("-", "−")


def _key(axes: Axes, colors: dict[str, Float[np.ndarray, " 4"]], failed: bool) -> None:
    from matplotlib.lines import Line2D

    shown: dict[str, dict[str, Any]] = {}
    for kind, color in colors.items():
        marker, text = _MARKS[kind]
        shown[text] = dict(marker=marker, color=color)
    if failed:
        shown["failed"] = dict(marker="o", color="0.4", markerfacecolor="white")
    axes.legend(
        handles=[Line2D([], [], linestyle="", markersize=6, label=text, **mark) for text, mark in shown.items()],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=4,
        frameon=False,
        fontsize=8,
        borderaxespad=0.0,
        handletextpad=0.2,
        columnspacing=1.2,
    )
