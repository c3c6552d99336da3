"""Plots of what clusters contain, and of the columns that are associated with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bnp_hier.plots.palette import axes_of_size, cluster_colors, short_name
from bnp_hier.posterior.cluster_profiles import ClusterProfiles, deviations, is_share, sizes_of
from bnp_hier.utils.rounding import with_interval
from bnp_hier.utils.wording import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["associations", "cluster_profiles"]

_MOST_ROWS = 25
"""Most columns or levels of a plot, the strongest first."""

_MOST_LEVELS = 5
"""Most levels of a category, those that differ most from all rows."""

_MOST_CLUSTERS = 10
"""Most clusters of a plot, the largest first."""

_CHARACTER = 0.06
"""Width of a character of a cell, in inches."""

_OWN, _INTERVAL = "mean ± standard deviation of the rows, or share", "\n(in parentheses: interval of the mean parameter)"
"""What is in the cells of the profiles."""

_FULL = 2.0
"""Standard deviations from the mean of all rows at which the colours end."""


def cluster_profiles(description: ClusterProfiles, *, ax: Axes | None = None) -> Axes:
    """Plot the means and shares of the columns in each cluster as a table whose cells are coloured by their deviation.

    Rows are the columns of the data, or up to five levels of categories, those most strongly associated with the clusters
    first, and at most 25. Columns are the clusters in order of their numbers, with their sizes, but only the ten largest if
    there are more. A cell contains the mean and the standard deviation, or the share, of the cluster's own rows. Below, in
    parentheses, is the credible interval of the cluster's mean parameter, if the column has one (`bnp_hier.describe`). The
    colour is the difference of the rows' mean from that of all rows, in standard deviations over all rows. Names of columns
    that were not used to find the clusters are in italics.

    Parameters
    ----------
    description
        Result of `bnp_hier.describe`.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes, with the deviations in `ax.images[0]`.

    Examples
    --------
    >>> import pandas as pd
    >>> import bnp_hier as bnp
    >>> X = pd.DataFrame({"length": [0.0, 0.1, 0.2, 9.0, 9.1, 9.2]})
    >>> found = bnp.describe(bnp.MAPDP().fit(X), X, others=pd.DataFrame({"site": list("aabbbb")}))
    >>> ax = bnp.plots.cluster_profiles(found)
    >>> ax.figure.savefig("profiles.png")  # doctest: +SKIP
    """
    profiles = description.profiles.sort_index()
    table = profiles.join(deviations(profiles))
    sizes = sizes_of(description)
    shown = np.sort(sizes.sort_values(ascending=False, kind="stable").index[:_MOST_CLUSTERS])
    rows = _strongest(description, table["deviation"])
    colored = np.array([table.loc[row, "deviation"].reindex(shown) for row in rows], dtype=np.float64)
    texts = [[_cell(table.loc[(*row, cluster)], is_share(description, *row)) for cluster in shown] for row in rows]
    lines = [line for cells in texts for text in cells for line in text.split("\n")]
    size = 2.2 + max(1.05, _CHARACTER * max(map(len, lines))) * len(shown), 1.0 + 0.42 * len(rows)
    axes = axes_of_size(ax, size)
    image = axes.imshow(colored, cmap="RdBu_r", vmin=-_FULL, vmax=_FULL, aspect="auto")
    for y in range(len(rows)):
        for x, text in enumerate(texts[y]):
            strong = abs(np.nan_to_num(colored[y, x])) > 0.75 * _FULL
            color = "white" if strong else "black"
            axes.text(x, y, text, color=color, ha="center", va="center", fontsize=7, linespacing=1.1, parse_math=False)
    axes.set_xticks(range(len(shown)), [f"cluster {k}\n{counted(sizes[k], 'row')}" for k in shown], fontsize=8)
    axes.xaxis.tick_top()
    _write_names(axes, rows, description.association["used"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, location="bottom", shrink=0.6, aspect=40, ticks=[-_FULL, -1, 0, 1, _FULL])
    bar.set_label("difference from all rows (standard deviations)", fontsize=8)
    axes.set_xlabel(_OWN + (_INTERVAL if any("\n" in text for cells in texts for text in cells) else ""), fontsize=7)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return axes


def associations(description: ClusterProfiles, *, ax: Axes | None = None) -> Axes:
    """Plot how strongly columns are associated with the clusters, with intervals over the draws.

    A dot is the mean of ε² (numbers and dates) or Cramér's V (categories) over the draws, and a line its interval; both
    measures lie between 0 and 1. The dots of columns that were not used to find the clusters are hollow; the others are
    associated with the clusters by construction. At most 25 columns are shown, the strongest first.

    Parameters
    ----------
    description
        Result of `bnp_hier.describe`.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes.

    Examples
    --------
    >>> import pandas as pd
    >>> import bnp_hier as bnp
    >>> X = pd.DataFrame({"length": [0.0, 0.1, 0.2, 9.0, 9.1, 9.2]})
    >>> found = bnp.describe(bnp.MAPDP().fit(X), X, others=pd.DataFrame({"site": list("aabbbb")}))
    >>> ax = bnp.plots.associations(found)
    >>> ax.figure.savefig("associations.png")  # doctest: +SKIP
    """
    table = description.association.head(_MOST_ROWS)
    axes = axes_of_size(ax, (6.4, 0.9 + 0.3 * len(table)))
    (color,) = cluster_colors(1)
    place = np.arange(len(table))
    axes.hlines(place, table["low"], table["high"], colors=[color], linewidths=2.0)
    for used, fill, label in ((True, color, "used to find the clusters"), (False, "white", "not used")):
        some = (table["used"] == used).to_numpy(dtype=bool)
        if some.any():
            axes.plot(
                table["effect"].to_numpy(dtype=np.float64)[some],
                place[some],
                linestyle="none",
                marker="o",
                markersize=6.5,
                markerfacecolor=fill,
                markeredgecolor=color,
                markeredgewidth=1.5,
                label=label,
            )
    axes.set(xlim=(-0.02, 1.02), ylim=(len(table) - 0.5, -0.5))
    axes.set_xlabel("association with the clusters (ε² or Cramér\u2019s V), and its interval over the draws", fontsize=8)
    _write_names(axes, [(str(name), "") for name in table.index], table["used"])
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if table["used"].nunique() > 1:
        axes.figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    return axes


def _cell(profile: pd.Series, share: bool) -> str:
    """Mean and standard deviation, or share, and the interval of the parameter in another line."""
    mean, sd, low, high, spread = (profile[name] for name in ("mean", "sd", "low", "high", "spread"))
    return with_interval(mean, sd, low, high, spread, share, separator="\n")


def _strongest(description: ClusterProfiles, deviation: pd.Series) -> list[tuple[str, str]]:
    """Columns and levels, the columns that are most strongly associated first; of many levels, those that differ most."""
    place = {name: rank for rank, name in enumerate(description.association.index)}
    largest = deviation.abs().fillna(0.0).groupby(["column", "level"], sort=False).max()
    rank = largest.groupby("column", sort=False).rank(ascending=False, method="first")
    rows = list(dict.fromkeys((column, level) for column, level, _ in description.profiles.index))
    return sorted((row for row in rows if rank[row] <= _MOST_LEVELS), key=lambda row: place[row[0]])[:_MOST_ROWS]


def _write_names(axes: Axes, rows: Sequence[tuple[str, str]], used: pd.Series) -> None:
    """Names of columns and levels beside the rows, in italics where the column was not used to find the clusters."""
    names = [short_name(f"{column} = {level}" if level else column, 28) for column, level in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8, parse_math=False)
    for text, (column, _) in zip(axes.get_yticklabels(), rows, strict=True):
        text.set_fontstyle("normal" if used[column] else "italic")
