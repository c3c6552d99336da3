"""Plots of the predictive density of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import axes_of_size, cluster_codes, cluster_colors
from bnp_hier.utils.arrays import as_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["predictive_density"]

_MARGIN = 0.2


def predictive_density(
    fit: Any,
    X: ArrayLike,
    *,
    ax: Axes | None = None,
    columns: tuple[int, int] = (0, 1),
    levels: Sequence[float] = (0.25, 0.5, 0.75, 0.9),
    resolution: int = 120,
) -> Axes:
    """Plot contours of the predictive density of two-column data, with the points coloured by cluster.

    Each contour encloses the smallest region that contains the given share of the predictive mass, so that small or wide
    clusters are visible beside tight ones. A region that extends beyond the plot has no contour; the margins of the plot are
    a fifth of the range of the data.

    Parameters
    ----------
    fit
        A fitted estimator with `score_samples`, the log predictive density, and `labels_`.
    X
        (n, 2) data that the estimator was fitted to. Points with a missing value are not drawn.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.
    columns
        Columns on the horizontal and the vertical axis: (0, 1) or (1, 0).
    levels
        Shares of the predictive mass, between 0 and 1.
    resolution
        Number of grid points per axis at which the density is evaluated.

    Returns
    -------
    ax
        The axes. The contours, if any, are in the collection labelled "density", innermost last; the points are in the one
        labelled "points".

    Raises
    ------
    ValueError
        If `X` does not have exactly two columns or has no complete row, if there is not one label per row, if `columns` is
        neither (0, 1) nor (1, 0), or if a level or the resolution is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0, 0.1], [0.2, 0.0], [0.1, 0.1], [6.0, 6.1], [6.1, 5.9]])
    >>> component = bnp.NormalKnownCovariance(mean=[3.0, 3.0], prior_covariance=9 * np.eye(2), covariance=np.eye(2))
    >>> ax = bnp.plots.predictive_density(bnp.MAPDP(partial(bnp.models.dpm, component=component)).fit(X), X)
    >>> ax.figure.savefig("density.png")  # doctest: +SKIP
    """
    from matplotlib.lines import Line2D

    X = as_matrix(X)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"predictive_density needs data with exactly two columns, but X has shape {X.shape}")
    if sorted(columns) != [0, 1]:
        raise ValueError(f"columns must be (0, 1) or (1, 0), but they are {tuple(columns)}")
    if resolution < 2:
        raise ValueError(f"resolution must be 2 or more, but it is {resolution}")
    shares = np.unique(np.asarray(levels, dtype=np.float64))[::-1]
    if not ((shares > 0) & (shares < 1)).all():
        raise ValueError(f"levels must be shares of the mass, above 0 and below 1, but they are {list(levels)}")
    clusters, codes = cluster_codes(fit.labels_, len(X))
    complete = np.isfinite(X).all(axis=1)
    if not complete.any():
        raise ValueError("X has no row without missing values")

    lines = [_grid_line(column, resolution) for column in X[complete].T]
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)
    log_density = np.asarray(fit.score_samples(grid.reshape(-1, 2)), dtype=np.float64).reshape(resolution, resolution)
    found = _enclosing(log_density, np.prod([line[1] - line[0] for line in lines]), shares)

    across, up = columns
    axes = axes_of_size(ax, (6.4, 5.0))
    shown = _draw_contours(axes, lines[across], lines[up], log_density if across == 1 else log_density.T, found)
    axes.scatter(
        X[complete, across],
        X[complete, up],
        s=float(np.clip(4000.0 / len(X), 2.0, 18.0)),
        c=cluster_colors(len(clusters))[codes[complete]],
        alpha=float(np.clip(20.0 / np.sqrt(len(X)), 0.25, 0.9)),
        linewidths=0.0,
        label="points",
        rasterized=len(X) > 1000,
        zorder=2.0,
    )
    axes.set(xlim=lines[across][[0, -1]], ylim=lines[up][[0, -1]], xlabel=f"column {across}", ylabel=f"column {up}")
    axes.spines[["top", "right"]].set_visible(False)
    if shown:
        axes.legend(
            handles=[Line2D([], [], color=grey, linewidth=1.0, label=f"{100 * shares[i]:g}%") for i, grey in shown.items()],
            title="predictive mass inside",
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=min(len(shown), 6),
            frameon=False,
            fontsize=8,
            title_fontsize=8,
        )
    return axes


def _draw_contours(
    axes: Axes,
    across: Float[np.ndarray, " r"],
    up: Float[np.ndarray, " r"],
    log_density: Float[np.ndarray, "r r"],
    found: Float[np.ndarray, " k"],
) -> dict[int, str]:
    """Draw contours at the log densities that are reached within the plot; return the places of these, and their greys."""
    # on the log scale, because densities can be arbitrarily large or small; the contours are the same
    drawn = np.maximum(log_density, log_density.max() - 700.0)
    heights, index = np.unique(found, return_index=True)
    within = np.isfinite(heights) & (heights < drawn.max()) & (heights > drawn.min())
    heights, index = heights[within], index[within]
    tones = np.linspace(0.75, 0.25, len(found))
    greys = {int(i): str(tones[i]) for i in index}
    if len(heights):
        contours = axes.contour(
            across, up, drawn, levels=heights, colors=list(greys.values()), linewidths=1.0, linestyles="solid"
        )
        contours.set(label="density", zorder=1.5)
        shades = [(0.0, 0.0, 0.0, 0.05 * (k + 1)) for k in range(len(heights))]
        shading = axes.contourf(across, up, drawn, levels=[*heights, drawn.max()], colors=shades)
        shading.set(zorder=0.5, rasterized=True)
    return greys


def _grid_line(column: Float[np.ndarray, " n"], resolution: int) -> Float[np.ndarray, " r"]:
    low, high = column.min(), column.max()
    pad = _MARGIN * (high - low) if high > low else max(1.0, abs(low))
    return np.linspace(low - pad, high + pad, resolution)


def _enclosing(log_density: Float[np.ndarray, "r r"], area: float, shares: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Log densities above which the grid contains the shares of the mass; −inf where the whole grid contains less."""
    ordered = np.sort(log_density.ravel())[::-1]
    mass = np.cumsum(np.exp(ordered + np.log(area)))
    # the sum may exceed 1 if the grid is too coarse for the peaks
    places = np.searchsorted(mass, shares * max(1.0, mass[-1]))
    return np.where(places < len(ordered), ordered[np.minimum(places, len(ordered) - 1)], -np.inf)
