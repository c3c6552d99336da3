"""Tables of what the clusters contain, for the report and the files beside it."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped

from bnp_hier.datasets import Dataset
from bnp_hier.datasets.conversions import features_of
from bnp_hier.datasets.recognition import DATE
from bnp_hier.posterior.cluster_profiles import (
    MOST_LEVELS,
    ClusterProfiles,
    Column,
    column_of,
    describe_columns,
    deviations,
    is_share,
)
from bnp_hier.utils.files import write_text
from bnp_hier.utils.rounding import rounded, with_interval

__all__ = [
    "association_table",
    "columns_of",
    "distinguishing_features",
    "features_in_words",
    "profiles_of",
    "profiles_table",
    "write_tables",
]

CREDIBLE = 0.95
"""Probability of the intervals."""

TELLING = 0.3
"""Standard deviations by which a cluster's mean must differ from that of all rows to be mentioned."""

VERY = 1.5
"""Standard deviations from which on a difference is called very large."""

MOST_CLUSTERS, MOST_ROWS = 8, 40
"""Largest numbers of clusters, and of columns or levels, in a table of the report; the files contain all."""


def profiles_of(fit: Any, data: Dataset, labels: Int[np.ndarray, " n"]) -> ClusterProfiles:
    """Describe clusters by the columns of a data set as they were read, those that were left out, and the known classes."""
    draws = int(np.clip(3e8 / data.X.size, 20, 200))  # a few seconds on large data
    return describe_columns(fit, data.X, labels, columns_of(data), CREDIBLE, draws)


def columns_of(data: Dataset) -> list[Column]:
    """The columns of a data set as they were read, and, if they can be described, those left out and the known classes."""
    source = {one: name for name in data.sources for one in features_of(name, data.kinds.get(name), data.levels.get(name, ()))}
    used: dict[str, pd.Series] = {}
    for name, values in zip(data.feature_names, data.X.T, strict=True):
        owner = source.get(name, name)
        used.setdefault(owner, _series(data.sources[owner]) if owner in data.sources else pd.Series(values))
    found = [column_of(name, column, True) for name, column in used.items()]
    others: dict[str, pd.Series] = {name: _series(values) for name, values in data.others.items()}
    if data.classes is not None:
        others["known class"] = pd.Series(data.classes.astype(str))
    for name, column in others.items():
        is_text = not pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_datetime64_any_dtype(column)
        if name not in used and column.notna().any() and not (is_text and column.nunique() > MOST_LEVELS):
            found.append(column_of(name, column, False))
    return found


def _series(values: Shaped[np.ndarray, " n"]) -> pd.Series:
    """A column as numbers, as dates if all texts are written so, or as texts."""
    if values.dtype.kind != "U":
        return pd.Series(values)
    column = pd.Series(values, dtype=object).where(values != "", None)
    if all(DATE.match(text) for text in column.dropna()):
        with suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the order of day and month is a guess
            return pd.to_datetime(column, format="mixed")
    return column


def association_table(found: ClusterProfiles) -> pd.DataFrame:
    """How far the columns go with the clusters, the strongest first, in the words of the report."""
    table = found.association.head(MOST_ROWS)
    interval = [f"{low:.2f} to {high:.2f}" for low, high in zip(table["low"], table["high"], strict=True)]
    shown = {
        "kind": table["kind"],
        "used to find the clusters": np.where(table["used"], "yes", "no"),
        "measure": table["measure"],
        "association": table["effect"].round(3),
        "over the draws": interval,
    }
    return pd.DataFrame(shown, index=table.index)


def profiles_table(found: ClusterProfiles) -> pd.DataFrame:
    """Means and shares with their intervals: a row for each column or level, the strongest first, a column for each cluster."""
    place = {name: rank for rank, name in enumerate(found.association.index)}
    table = found.profiles.reset_index()
    table = table[table["cluster"] < MOST_CLUSTERS]
    table = table.assign(share=[is_share(found, str(row.column), str(row.level)) for row in table.itertuples()])
    table = table.assign(
        rank=table["column"].map(place),
        text=[with_interval(row.mean, row.low, row.high, row.sd, bool(row.share)) for row in table.itertuples()],
        all_rows=[rounded(row.overall, row.sd, bool(row.share)) for row in table.itertuples()],
        name=[f"{row.column} = {row.level}" if row.level else str(row.column) for row in table.itertuples()],
    ).sort_values(["rank", "level", "cluster"], kind="stable")
    wide = table.pivot(index="name", columns="cluster", values="text").loc[list(dict.fromkeys(table["name"]))]
    wide.columns = [f"cluster {k}" for k in wide.columns]
    overall = table.drop_duplicates("name").set_index("name")["all_rows"]
    return wide.assign(**{"all rows": overall}).rename_axis("column").head(MOST_ROWS)


def write_tables(folder: Path, found: ClusterProfiles) -> dict[str, str]:
    """Write clusters.csv and association.csv, and return what each contains."""
    tables = {"clusters.csv": found.profiles, "association.csv": found.association}
    for name, table in tables.items():
        write_text(folder / name, table.to_csv(float_format="%.6g"))
    return {
        "clusters.csv": "means and shares of every column in each cluster, their intervals over the draws, and numbers of rows",
        "association.csv": "how far each column goes with the clusters, with intervals over the draws",
    }


def distinguishing_features(found: ClusterProfiles, most: int = 3) -> list[str]:
    """For each cluster, the columns whose means or shares differ most from those of all rows, the most telling first.

    A difference is measured in standard deviations of the column over all rows; columns that were not used to find the
    clusters are left out, and so are differences of less than 0.3.
    """
    return [", ".join(f"{name} {own} (all rows {of_all})" for name, own, of_all, _ in each[:most]) for each in _telling(found)]


def features_in_words(found: ClusterProfiles, most: int = 3) -> list[str]:
    """The same with a word for the direction and the size of each difference; "very" from 1.5 standard deviations on."""
    return [
        "; ".join(
            f"{'very ' if abs(gap) >= VERY else ''}{'high' if gap > 0 else 'low'} {name}: {own} (all rows {of_all})"
            for name, own, of_all, gap in each[:most]
        )
        for each in _telling(found)
    ]


def _telling(found: ClusterProfiles) -> list[list[tuple[str, str, str, float]]]:
    """For each cluster, names of columns, their values in the cluster and in all rows, and their deviations."""
    table = found.profiles.join(deviations(found.profiles)).reset_index()
    table = table[table["column"].map(found.association["used"]).astype(bool)]
    table = table.assign(gap=table["deviation"].abs())
    telling = table[table["gap"] >= TELLING].sort_values("gap", ascending=False, kind="stable")
    telling = telling.drop_duplicates(["cluster", "column"])  # of a category, the level that tells most
    words: list[list[tuple[str, str, str, float]]] = [[] for _ in range(int(table["cluster"].max()) + 1)]
    for row in telling.itertuples():
        name = f"{row.column} = {row.level}" if row.level else str(row.column)
        share = is_share(found, str(row.column), str(row.level))
        own, of_all = (rounded(value, row.spread, share) for value in (row.mean, row.overall))
        words[int(str(row.cluster))].append((name, own, of_all, float(str(row.deviation))))
    return words
