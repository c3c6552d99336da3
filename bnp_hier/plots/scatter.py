"""Scatter plots and histograms of the data, coloured by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import cluster_codes, cluster_colors, plain_texts, short_name
from bnp_hier.plots.texts import Occupied, write_apart
from bnp_hier.utils.arrays import as_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["pairs"]

_MOST_ENTRIES = 12
_MOST_NAMES = 60
_FEW_VALUES = 12


def pairs(
    X: ArrayLike,
    *,
    labels: ArrayLike,
    feature_names: Sequence[str] | None = None,
    max_columns: int = 5,
    item_names: Sequence[str] | None = None,
) -> Figure:
    """Plot all pairs of columns: scatter plots below the diagonal, and stacked histograms of the clusters on it.

    Columns with few distinct whole numbers (binary data, ratings) are jittered in the scatter plots. Points with a missing
    value are left out of the panels of that column.

    Parameters
    ----------
    X
        (n, d) data; NaN is a missing value.
    labels
        (n,) clusters.
    feature_names
        d names; by default, column numbers.
    max_columns
        Maximum number of columns to show. If there are more, those whose cluster means differ most (with the highest ratio
        of between-cluster variance to total variance) are shown in their order in `X`, and the title says so.
    item_names
        n names, written beside the points where there is room, for up to 60 points.

    Returns
    -------
    figure
        A new figure, not registered with pyplot.

    Raises
    ------
    ValueError
        If `X` is empty or not (n, d), if there is not one label or point name per row or one feature name per column,
        or if `max_columns` is below 1.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> iris = bnp.datasets.load("iris")
    >>> fit = bnp.DPMeans(n_clusters=3).fit(iris.X)
    >>> figure = bnp.plots.pairs(iris.X, labels=fit.labels_, feature_names=iris.feature_names)
    >>> figure.savefig("pairs.png")  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    X = as_matrix(X)
    n, d = X.shape
    if feature_names is not None and len(feature_names) != d:
        raise ValueError(f"feature_names must have one entry for each of the {d} columns, but there are {len(feature_names)}")
    if item_names is not None and len(item_names) != n:
        raise ValueError(f"item_names must have one entry for each of the {n} rows, but there are {len(item_names)}")
    if max_columns < 1:
        raise ValueError(f"max_columns must be 1 or more, but it is {max_columns}")
    clusters, codes = cluster_codes(labels, n)
    shown = np.arange(d) if d <= max_columns else _telling_columns(X, codes, max_columns)
    names = [f"column {j}" if feature_names is None else short_name(feature_names[j]) for j in shown.tolist()]

    size = len(shown)
    across = max(size, 2)  # the legend is in the upper right corner
    panel = max(1.8, 5.0 / across)
    figure = Figure(figsize=(panel * across + 0.6, panel * size + (0.9 if size > 1 else 0.0)), layout="constrained")
    grid = figure.add_gridspec(size, across, width_ratios=[3, 1] if size == 1 else None)
    rng = np.random.default_rng(0)
    order = rng.permutation(n)  # so that no cluster hides the others
    colors = cluster_colors(len(clusters))[codes]
    spread = np.column_stack([_jittered(X[:, j], rng) for j in shown])

    panels = [[figure.add_subplot(grid[row, column]) for column in range(row + 1)] for row in range(size)]
    for row in range(size):
        _histograms(panels[row][row], X[:, shown[row]], codes, len(clusters))
        for column in range(row):
            points = spread[order][:, [column, row]]
            complete = np.isfinite(points).all(axis=1)
            panels[row][column].scatter(
                points[complete, 0],
                points[complete, 1],
                s=float(np.clip(4000.0 / n, 2.0, 18.0)),
                c=colors[order][complete],
                alpha=float(np.clip(20.0 / np.sqrt(n), 0.25, 0.8)),
                linewidths=0.0,
                rasterized=True,
            )
    _share_axes(panels, names, [_few_whole_numbers(X[np.isfinite(X[:, j]), j]) is not None for j in shown])
    _legend(figure.add_subplot(grid[0, -1]), clusters, codes)
    if size < d:
        figure.suptitle(f"{size} of {d} columns: those whose cluster means differ most", fontsize=11)
    if item_names is not None and n <= _MOST_NAMES:
        figure.draw_without_rendering()  # fixes the layout, which determines whether text fits
        for row in range(size):
            for column in range(row):
                _write_names(panels[row][column], spread[:, [column, row]], [short_name(name) for name in item_names])
    return figure


def _telling_columns(X: Float[np.ndarray, "n d"], codes: Int[np.ndarray, " n"], most: int) -> Int[np.ndarray, " columns"]:
    """Non-constant columns with the highest ratio of between-cluster variance to total variance.

    If all columns are constant, the first one.
    """
    here = np.isfinite(X)
    present = np.maximum(here.sum(axis=0), 1)
    filled = np.where(here, X, 0.0)
    centred = np.where(here, filled - filled.sum(axis=0) / present, 0.0)
    varies = np.where(here, X, -np.inf).max(axis=0) > np.where(here, X, np.inf).min(axis=0)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(codes.max() + 1))
    sums = np.add.reduceat(centred[order], starts, axis=0)
    counts = np.add.reduceat(here[order].astype(np.int64), starts, axis=0)
    between = (sums**2 / np.maximum(counts, 1)).sum(axis=0)
    total = (centred**2).sum(axis=0)
    ratio = np.where(varies, between / np.where(varies, total, 1.0), -1.0)
    best = np.argsort(-ratio, kind="stable")[:most]
    return np.sort(best[: max(1, int(varies[best].sum()))])


def _few_whole_numbers(values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " k"] | None:
    """The distinct values of a column with few distinct whole numbers; None for other columns."""
    distinct = np.unique(values)
    return distinct if 0 < len(distinct) <= _FEW_VALUES and (distinct == np.round(distinct)).all() else None


def _jittered(column: Float[np.ndarray, " n"], rng: np.random.Generator) -> Float[np.ndarray, " n"]:
    distinct = _few_whole_numbers(column[np.isfinite(column)])
    if distinct is None:
        return column
    gap = np.diff(distinct).min(initial=np.inf)
    return column + 0.3 * (gap if np.isfinite(gap) else 1.0) * rng.uniform(-1.0, 1.0, len(column))


def _bin_edges(values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " bins"]:
    distinct = _few_whole_numbers(values)
    if distinct is None:
        if not len(values):
            return np.array([0.0, 1.0])
        low, high = values.min(), values.max()
        pad = 0.5 * max(1.0, abs(low)) if low == high else 0.0
        bins = int(np.clip(np.sqrt(len(values)), 8, 40))
        return np.unique(np.linspace(low - pad, high + pad, bins + 1))
    middles = (distinct[1:] + distinct[:-1]) / 2
    half = np.diff(distinct).min(initial=np.inf) / 2
    half = half if np.isfinite(half) else 0.5
    return np.concatenate([[distinct[0] - half], middles, [distinct[-1] + half]])


def _histograms(axes: Axes, column: Float[np.ndarray, " n"], codes: Int[np.ndarray, " n"], n_clusters: int) -> None:
    here = np.isfinite(column)
    edges = _bin_edges(column[here])
    floor = np.zeros(len(edges) - 1)
    for k, color in enumerate(cluster_colors(n_clusters)):
        top = floor + np.histogram(column[here & (codes == k)], edges)[0]
        axes.stairs(top, edges, baseline=floor, fill=True, facecolor=color, alpha=0.8)
        floor = top
    axes.set_ylim(0.0, 1.05 * max(floor.max(), 1.0))


def _share_axes(rows: list[list[Axes]], names: Sequence[str], whole: Sequence[bool]) -> None:
    """Let the panels of a column share the x axis and those of a row the y axis, with text at the outer ones only."""
    from matplotlib.ticker import MaxNLocator

    size = len(names)
    text = 10 if size < 4 else 8  # no name is wider than its panel
    for row, panels in enumerate(rows):
        for column, panel in enumerate(panels):
            if row > column:
                panel.sharex(rows[column][column])
                if column:
                    panel.sharey(panels[0])
            # few, and none at the ends: long labels would overlap each other and those of the next panel
            panel.xaxis.set_major_locator(MaxNLocator(3, integer=whole[column], prune="both"))
            panel.yaxis.set_major_locator(MaxNLocator(4, integer=whole[row]))
            panel.spines[["top", "right"]].set_visible(False)
            panel.tick_params(labelsize=8, labelbottom=row == size - 1, labelleft=column == 0 and row > 0)
            if row == size - 1:
                panel.set_xlabel(names[column], parse_math=False, fontsize=text)
            if column == 0 and row > 0:
                panel.set_ylabel(names[row], parse_math=False, fontsize=text)
        if size > 1:
            panels[-1].set_yticks([])
    if size == 1:
        rows[0][0].tick_params(labelleft=True)
        rows[0][0].set_ylabel("points")


def _legend(axes: Axes, clusters: Shaped[np.ndarray, " k"], codes: Int[np.ndarray, " n"]) -> None:
    """Add a legend of the clusters' colours and sizes, largest first."""
    from matplotlib.lines import Line2D

    axes.set_axis_off()
    sizes = np.bincount(codes, minlength=len(clusters))
    order = np.argsort(-sizes, kind="stable")
    colors = cluster_colors(len(clusters))
    few = order if len(order) <= _MOST_ENTRIES else order[: _MOST_ENTRIES - 1]
    handles = [
        Line2D([], [], linestyle="", marker="o", color=colors[k], label=f"{short_name(clusters[k])} ({sizes[k]})") for k in few
    ]
    if len(few) < len(order):
        handles.append(Line2D([], [], linestyle="", label=f"… and {len(order) - len(few)} more"))
    title = "cluster (points)"
    plain_texts(axes.legend(handles=handles, title=title, loc="upper right", fontsize=8, title_fontsize=8, frameon=False))


def _write_names(axes: Axes, points: Float[np.ndarray, "n 2"], names: Sequence[str]) -> None:
    """Write each name to the right of its point unless it would overlap a point or an earlier name, or leave the panel."""
    here = np.isfinite(points).all(axis=1)
    write_apart(axes, points[here], np.array(names)[here].tolist(), [(3.0, 0.0)], 6.0, Occupied(points[here]))
