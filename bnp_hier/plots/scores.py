"""Plots of the agreement of hierarchies with a true one, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bnp_hier.plots.palette import cluster_colors, plain_texts, short_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["level_scores"]

_MARKERS = "osD^vP<X>"
_MOST_ACROSS = 4


def level_scores(scores: Mapping[str, pd.DataFrame | Sequence[pd.DataFrame]]) -> Figure:
    """Plot the mean score of every method at every level, one panel per measure, as in Figure 6 of Huang et al. (2021).

    Error bars span the mean ± 2 standard errors over seeds; a single seed has none. Methods are slightly offset at every
    level so that no bar hides another.

    Parameters
    ----------
    scores
        Name of the method -> tables of scores, one per seed, or a single table. The tables are those of `Hierarchy.scores`,
        with levels as rows and measures as columns. Methods may have different levels.

    Returns
    -------
    figure
        A new figure, not registered with pyplot, with one panel per measure, in the order of the columns.

    Raises
    ------
    ValueError
        If there is nothing to plot, a value is not a table, tables have different measures, tables of one method have
        different levels, levels are not whole numbers, or a score is missing or infinite.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> X, paths = [[0.0], [0.2], [6.0], [6.1]], [("pet", "cat"), ("pet", "dog"), ("farm", "cow"), ("farm", "cow")]
    >>> trees = [bnp.recursive_kmeans(X, depth=2, branching=2, random_state=seed) for seed in range(3)]
    >>> figure = bnp.plots.level_scores({"recursive k-means": [tree.scores(paths) for tree in trees]})
    >>> figure.savefig("scores.png")  # doctest: +SKIP
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    tables = _checked(scores)
    measures = list(next(iter(tables.values()))[0].columns)
    across = min(_MOST_ACROSS, len(measures))
    down = -(-len(measures) // across)
    figure = Figure(figsize=(0.4 + 2.5 * max(across, 2), 0.7 + 2.4 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    apart = min(0.12, 0.6 / len(tables))
    levels = {level for each in tables.values() for level in each[0].index}
    for panel, measure in zip(panels, measures, strict=False):
        for place, (name, each) in enumerate(tables.items()):
            values = np.array([table[measure] for table in each], dtype=np.float64)
            panel.errorbar(
                each[0].index.to_numpy() + apart * (place - (len(tables) - 1) / 2),
                values.mean(axis=0),
                2.0 * _standard_errors(values) if len(values) > 1 else None,
                color=cluster_colors(place + 1)[place],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=4.5,
                linewidth=1.2,
                elinewidth=1.0,
                capsize=2.5,
                label=short_name(name, 40),
            )
        panel.set_title(str(measure), loc="left", fontsize=10, parse_math=False)
        panel.set_xlim(min(levels) - 0.5, max(levels) + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
        panel.grid(axis="y", color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
    for panel in panels[len(measures) :]:
        panel.remove()
    figure.supxlabel("level (1: children of the root)", fontsize=9)
    seeds = max(map(len, tables.values()))
    key = figure.legend(
        panels[0].containers,  # given one by one, as those whose name begins with an underscore would be left out
        [short_name(name, 40) for name in tables],
        title="mean ± 2 standard errors over seeds" if seeds > 1 else None,
        loc="outside upper center",
        ncols=min(len(tables), across + 1),
        frameon=False,
        fontsize=8,
        title_fontsize=8,
    )
    plain_texts(key)
    return figure


def _standard_errors(values: Float[np.ndarray, "seeds levels"]) -> Float[np.ndarray, " levels"]:
    return values.std(axis=0, ddof=1) / np.sqrt(len(values))


def _checked(scores: Mapping[str, pd.DataFrame | Sequence[pd.DataFrame]]) -> dict[str, list[pd.DataFrame]]:
    """Check the scores and return a list of tables per method."""
    import pandas as pd

    if not scores:
        raise ValueError("scores must have at least one method, but it is empty")
    tables: dict[str, list[pd.DataFrame]] = {}
    measures: list[str] | None = None
    for name, given in scores.items():
        each = [given] if isinstance(given, pd.DataFrame) else list(given)
        if not each:
            raise ValueError(f"scores must have at least one table per method, but {name!r} has none")
        for seed, table in enumerate(each):
            if not isinstance(table, pd.DataFrame) or not table.size:
                found = "empty" if isinstance(table, pd.DataFrame) else f"a {type(table).__name__}"
                raise ValueError(f"scores must be tables of levels and measures, but table {seed} of {name!r} is {found}")
            measures = list(table.columns) if measures is None else measures
            if list(table.columns) != measures:
                raise ValueError(
                    f"all tables must have the same measures, {measures}, but table {seed} of {name!r} has "
                    f"{list(table.columns)}"
                )
            if list(table.index) != list(each[0].index):
                raise ValueError(
                    f"all tables of {name!r} must have the same levels, {list(each[0].index)}, but table {seed} has "
                    f"{list(table.index)}"
                )
            if table.index.dtype.kind not in "iu":
                raise ValueError(f"levels must be whole numbers, but those of {name!r} are {list(table.index)}")
            if not np.isfinite(table.to_numpy(dtype=np.float64)).all():
                raise ValueError(f"scores must be finite, but table {seed} of {name!r} has missing or infinite scores")
        tables[name] = each
    return tables
