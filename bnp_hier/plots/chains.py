"""Whether chains agree: traces and rank histograms of label-invariant numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import cluster_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["traces"]

_MOST_BINS = 20


def traces(draws: Mapping[str, ArrayLike]) -> Figure:
    """Trace of every chain (left), and how the ranks of its draws among all draws are spread (right).

    Chains that have found the same distribution have rank histograms that follow the dashed line. Equal draws are
    ranked in random order, so that this also holds for whole numbers such as the number of clusters.

    Parameters
    ----------
    draws
        Name -> (chains, draws) values of a number that does not depend on how clusters are labelled.

    Returns
    -------
    figure
        A new figure, which pyplot does not hold on to; one row per name, two axes in each.

    Raises
    ------
    ValueError
        If there is nothing to draw, an array is not (chains, draws), or a draw is NaN.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    if not draws:
        raise ValueError("draws must have at least one name, but it is empty")
    checked = {name: _chains(name, values) for name, values in draws.items()}
    figure = Figure(figsize=(9.0, 0.4 + 2.2 * len(checked)), layout="constrained")
    rows = figure.subplots(len(checked), 2, squeeze=False, width_ratios=[3, 2])
    for (trace, histogram), (name, values) in zip(rows, checked.items(), strict=True):
        n_chains, n_draws = values.shape
        bins = int(np.clip(n_draws // 10, 1, _MOST_BINS))
        edges = np.linspace(0, values.size, bins + 1)
        for colour, line, places in zip(cluster_colours(n_chains), values, _ranks(values), strict=True):
            trace.plot(line, color=colour, linewidth=0.7, alpha=0.8, rasterized=n_draws > 2000)
            histogram.stairs(np.histogram(places, edges)[0], edges, baseline=None, color=colour, linewidth=1.2)
        histogram.axhline(n_draws / bins, color="0.3", linestyle="dashed", linewidth=1.0)
        histogram.set(xlim=(0, values.size), ylabel="draws per bin")
        histogram.set_ylim(0, 1.1 * max(histogram.get_ylim()[1], 1.5 * n_draws / bins))
        trace.set_title(str(name), loc="left", fontsize=10, parse_math=False)
        histogram.set_title(f"ranks of {name}", loc="left", fontsize=10, parse_math=False)
        trace.margins(x=0.0)
        for axes in (trace, histogram):
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.tick_params(labelsize=8)
    most = max(len(values) for values in checked.values())
    handles = [Line2D([], [], color=colour, label=f"chain {c}") for c, colour in enumerate(cluster_colours(most))]
    if 1 < most <= 8:
        figure.legend(handles=handles, loc="outside upper right", ncols=most, frameon=False, fontsize=8)
    rows[-1, 0].set_xlabel("draw")
    rows[-1, 1].set_xlabel("rank among the draws of all chains")
    return figure


def _chains(name: str, values: ArrayLike) -> Float[np.ndarray, "chains draws"]:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{name!r} must have shape (chains, draws), but it has shape {values.shape}")
    missing = np.argwhere(np.isnan(values))
    if len(missing):
        chain, draw = missing[0]
        raise ValueError(f"{name!r} has NaN in chain {chain}, draw {draw}: such draws cannot be ranked")
    return values


def _ranks(values: Float[np.ndarray, "chains draws"]) -> Int[np.ndarray, "chains draws"]:
    """Ranks 0, 1, ... among all draws, ties in random order."""
    flat = values.ravel()
    order = np.lexsort([np.random.default_rng(0).random(flat.size), flat])
    ranks = np.empty(flat.size, dtype=np.int64)
    ranks[order] = np.arange(flat.size)
    return ranks.reshape(values.shape)
