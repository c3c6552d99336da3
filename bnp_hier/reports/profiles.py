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
from bnp_hier.datasets.recognition import DATE, DATE_WITHOUT_YEAR, with_month_first
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
from bnp_hier.utils.spreadsheets import csv_text
from bnp_hier.utils.wording import counted

__all__ = [
    "association_table",
    "columns_of",
    "profiles_of",
    "profiles_table",
    "write_tables",
]

CREDIBLE = 0.95
"""Probability of the intervals."""

MOST_CLUSTERS, MOST_ROWS = 8, 40
"""Largest numbers of clusters, and of columns or levels, in a table of the report; the files contain all."""


def profiles_of(fit: Any, data: Dataset, labels: Int[np.ndarray, " n"]) -> ClusterProfiles:
    """Describe clusters by the columns of a data set as they were read, those that were left out, and the known classes."""
    parameters = (labels.max() + 1) * data.X.shape[1]
    draws = int(np.clip(min(3e8 / data.X.size, 5e6 / parameters), 20, 200))  # a few seconds on large data and many clusters
    return describe_columns(fit, data.X, labels, columns_of(data), CREDIBLE, draws)


def columns_of(data: Dataset) -> list[Column]:
    """The columns of a data set as they were read, and, if they can be described, those left out and the known classes."""
    used: dict[str, pd.Series] = {}
    for name, places in data.source_columns.items():
        if name in data.sources:
            used[name] = _series(data.sources[name])
            if used[name].dtype == object and name in data.levels:
                used[name] = used[name].astype(pd.CategoricalDtype(list(data.levels[name]), ordered=True))
        else:
            used |= {data.feature_names[j]: pd.Series(data.X[:, j]) for j in places}
    found = [column_of(name, column, True) for name, column in used.items()]
    others: dict[str, pd.Series] = {name: _series(values) for name, values in data.others.items()}
    if data.classes is not None:
        others["known class"] = pd.Series(data.classes.astype(str))
    for name, column in others.items():
        is_text = not pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_datetime64_any_dtype(column)
        endless = column.dtype.kind == "f" and np.isinf(column).any()  # no mean
        if name not in used and column.notna().any() and not endless and not (is_text and column.nunique() > MOST_LEVELS):
            found.append(column_of(name, column, False))
    return found


def _series(values: Shaped[np.ndarray, " n"]) -> pd.Series:
    """A column as numbers, as dates if all texts are written so and have a year, or as texts."""
    if values.dtype.kind != "U":
        return pd.Series(values)
    column = pd.Series(values, dtype=object).where(values != "", None)
    there = column.dropna()
    if all(DATE.match(text) and not DATE_WITHOUT_YEAR.match(text) for text in there):
        dates = pd.Series(with_month_first(there.tolist()), index=there.index, dtype=object).reindex(column.index)
        with suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the order of day and month may be a guess, but it is the same in all rows
            return pd.to_datetime(dates, format="mixed")
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


def profiles_table(found: ClusterProfiles, sizes: Int[np.ndarray, " k"]) -> pd.DataFrame:
    """Means and standard deviations, or shares, of the rows of each cluster, and intervals of its mean parameters.

    There is a row for each column or level, the strongest first, and a column for each cluster; of many clusters, the largest.

    Parameters
    ----------
    found
        The clusters' profiles.
    sizes
        (K,) numbers of rows of the clusters.
    """
    place = {name: rank for rank, name in enumerate(found.association.index)}
    table = found.profiles.join(deviations(found.profiles)["spread"]).reset_index()
    largest = np.argsort(-sizes, kind="stable")[:MOST_CLUSTERS]
    table = table[table["cluster"].isin(largest) & (table["column"].map(place) < MOST_ROWS)]
    table = table.assign(share=[is_share(found, str(row.column), str(row.level)) for row in table.itertuples()])
    table = table.assign(
        rank=table["column"].map(place),
        text=[with_interval(row.mean, row.sd, row.low, row.high, row.spread, row.share) for row in table.itertuples()],
        all_rows=[rounded(row.overall, row.spread, bool(row.share)) for row in table.itertuples()],
        name=[f"{row.column} = {row.level}" if row.level else str(row.column) for row in table.itertuples()],
    ).sort_values("rank", kind="stable")
    wide = table.pivot(index="name", columns="cluster", values="text").loc[list(dict.fromkeys(table["name"]))]
    wide.columns = [f"cluster {k}, {counted(sizes[k], 'row')}" for k in wide.columns]
    wide = wide.assign(**{"all rows": table.drop_duplicates("name").set_index("name")["all_rows"]})
    return wide.rename_axis("column").head(MOST_ROWS)


def write_tables(folder: Path, found: ClusterProfiles) -> dict[str, str]:
    """Write clusters.csv and association.csv, and return what each contains."""
    tables = {"clusters.csv": _written(found), "association.csv": found.association}
    for name, table in tables.items():
        write_text(folder / name, csv_text(table, digits=6))
    return {
        "clusters.csv": "numbers of rows, means or shares, and standard deviations of every column in each cluster, and 95% "
        "intervals of its mean parameters",
        "association.csv": "how far each column goes with the clusters, with intervals over the draws",
    }


def _written(found: ClusterProfiles) -> pd.DataFrame:
    """The profiles with six digits; dates to the day or, if they spread by less than a day, to the second."""
    table = found.profiles.map(_with_six_digits).astype(object)
    for name in found.association.index[found.association["kind"] == "date"]:
        rows = table.index.get_level_values("column") == name
        unit, form = ("D", "%Y-%m-%d") if table.loc[rows, "sd"].max() >= 1 else ("s", "%Y-%m-%d %H:%M:%S")
        for column in table.columns:
            table.loc[rows, column] = [
                cell.round(unit).strftime(form) if isinstance(cell, pd.Timestamp) else cell for cell in table.loc[rows, column]
            ]
    return table


def _with_six_digits(cell: Any) -> Any:
    """Numbers beside dates, which pandas would write with all digits."""
    return float(f"{cell:.6g}") if isinstance(cell, float) else cell
