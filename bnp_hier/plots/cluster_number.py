"""Posterior probabilities of the number of clusters, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import axes_of_size, cluster_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["number_of_clusters"]

_LEAST_SHOWN = 0.001
"""Probability below which a number of clusters at either end has no bar."""

_MOST_WRITTEN = 15
"""Most bars with their probability written above them."""


def number_of_clusters(probabilities: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Plot a bar chart of the posterior distribution of the number of clusters.

    The most probable number has the darker bar. Numbers at either end with a probability below 0.001 are left out. If
    there are at most 15 bars, the probabilities are written above them.

    Parameters
    ----------
    probabilities
        (K + 1,) probabilities of 0, 1, ..., K clusters, such as those of `bnp_hier.number_of_clusters`.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes, with one bar per number of clusters in `ax.patches`.

    Raises
    ------
    ValueError
        If the probabilities are not a vector of numbers from 0 to 1 that sum to 1.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> draws = [[0, 0, 1], [0, 0, 0], [5, 5, 2], [1, 0, 0]]
    >>> ax = bnp.plots.number_of_clusters(bnp.number_of_clusters(draws))
    >>> ax.figure.savefig("clusters.png")  # doctest: +SKIP
    """
    from matplotlib.ticker import MaxNLocator

    heights = np.asarray(probabilities, dtype=np.float64)
    if heights.ndim != 1 or not len(heights):
        raise ValueError(f"probabilities must be a vector that is not empty, but they have shape {heights.shape}")
    if not ((heights >= 0) & (heights <= 1)).all() or abs(heights.sum() - 1.0) > 1e-6:
        raise ValueError(f"probabilities must lie between 0 and 1 and sum to 1, but they sum to {heights.sum():g}")
    shown = np.flatnonzero(heights >= _LEAST_SHOWN)
    numbers = np.arange(shown[0], shown[-1] + 1) if len(shown) else np.arange(len(heights))
    axes = axes_of_size(ax, (6.0, 2.8))
    (color,) = cluster_colors(1)
    bars = axes.bar(numbers, heights[numbers], color=color, width=0.7)
    for number, bar in zip(numbers, bars, strict=True):
        bar.set_alpha(1.0 if number == heights.argmax() else 0.5)
    if len(numbers) <= _MOST_WRITTEN:
        axes.bar_label(bars, [f"{height:.0%}" if height >= 0.005 else "<1%" for height in heights[numbers]], fontsize=9)
    axes.set(xlabel="number of clusters", ylabel="posterior probability", ylim=(0.0, min(1.15 * heights.max(), 1.12)))
    axes.set_xlim(numbers[0] - 0.7, numbers[-1] + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.spines[["top", "right"]].set_visible(False)
    return axes
