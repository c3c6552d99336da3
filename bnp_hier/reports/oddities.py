"""Which rows are unusual under the model, and in which columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from bnp_hier.posterior.cluster_profiles import Column
from bnp_hier.utils.rounding import rounded, with_sd

__all__ = ["MOST_ROWS", "UNUSUAL", "odd_columns", "unusual_rows"]

MOST_ROWS = 3000
"""Most rows for which p-values are computed: their number times that of the draws is what they take."""

UNUSUAL = 0.01
"""p-value below which a row is listed."""

FEWEST = 5
"""Other rows that a cluster needs for a row to be compared with them."""

APART = 2.0
"""Standard deviations of these rows from which on a column is named."""

NO_COLUMN = "the combination of many"
"""Said of a row that is not far from the others in any column."""


def unusual_rows(
    pvalues: Float[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    columns: Sequence[Column],
    names: Sequence[str] | None = None,
    most: int = 12,
) -> pd.DataFrame:
    """The rows with the smallest p-values below 0.01, with their clusters and the columns that make them odd.

    Parameters
    ----------
    pvalues, labels
        Of the rows.
    columns
        Columns by which they are compared.
    names
        n names of the rows; by default their numbers.
    most
        Most rows in the table.
    """
    rows = [int(i) for i in np.argsort(pvalues, kind="stable")[:most] if pvalues[i] < UNUSUAL]
    return pd.DataFrame(
        {
            "row": [str(i) if names is None else names[i] for i in rows],
            "p-value": [f"{pvalues[i]:.1g}" for i in rows],
            "cluster": [int(labels[i]) for i in rows],
            "columns that make it odd": ["; ".join(odd_columns(i, labels, columns)) or NO_COLUMN for i in rows],
        }
    ).set_index("row")


def odd_columns(row: int, labels: Int[np.ndarray, " n"], columns: Sequence[Column], most: int = 3) -> list[str]:
    """The columns in which a row is farthest from the other rows of its cluster, in words; none if it is close in all.

    A column is named if the row's value is at least two standard deviations of these rows from their mean; a level of a
    category, if at most a fifth of them have it, which is the same. If there is none, a column of numbers is named if its
    value is as far from what the row's other numbers predict, by linear regression over these rows. If its cluster has fewer
    than five other rows, the row is compared with those of the cluster, of at least five rows, to which it is closest, in root
    mean square; without any, with all rows.
    """
    others = np.arange(len(labels)) != row
    sizes = np.bincount(labels[others], minlength=labels.max() + 1)
    clusters = [int(labels[row])] if sizes[labels[row]] >= FEWEST else [int(k) for k in np.flatnonzero(sizes >= FEWEST)]
    whose = {f"cluster {k}": others & (labels == k) for k in clusters} or {"the table": others}
    compared = {
        where: [each for column in columns for each in _deviations(row, column, rows, where)] for where, rows in whose.items()
    }
    where = min(compared, key=lambda where: np.mean([min(each.size, 9.0) ** 2 for each in compared[where]] or [0.0]))
    for found in (compared[where], _residuals(row, columns, whose[where], where)):
        far = sorted((each for each in found if each.size >= APART), key=lambda each: -each.size)
        if far:
            return [each.words for each in far[:most]]
    return []


@dataclass(frozen=True)
class _Deviation:
    """How far a row is from others in a column, in standard deviations, and that in words."""

    size: float
    words: str


def _deviations(row: int, column: Column, rows: Bool[np.ndarray, " n"], where: str) -> Iterator[_Deviation]:
    """That of the row from other rows; none if the value is missing in it or in all of them."""
    own, values = column.values[row], column.values[rows]
    values = values[~np.isnan(values[:, 0])]
    if np.isnan(own[0]) or not len(values):
        return
    if column.kind in ("category", "binary"):
        level = column.levels[int(own.argmax())] if column.kind == "category" else f"{own[0]:g}"
        same = int((values == own).all(1).sum())
        share = (same + 0.5) / (len(values) + 1)
        words = f"{column.name} = {level} (of the other rows of {where}: {same / len(values):.0%})"
        yield _Deviation(float(np.sqrt((1 - share) / share)), words)
        return
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    gap = abs(float(own[0]) - mean)
    value, middle = (_moment(each) if column.kind == "date" else each for each in (float(own[0]), mean))
    words = f"{column.name} {rounded(value, sd)} (other rows of {where}: {with_sd(middle, sd, sd)})"
    yield _Deviation(gap / sd if sd > 0 else np.inf if gap > 0 else 0.0, words)


def _residuals(row: int, columns: Sequence[Column], rows: Bool[np.ndarray, " n"], where: str) -> Iterator[_Deviation]:
    """How far the row's numbers are from what its others predict; none if there are fewer than three rows for each column."""
    numbers = [column for column in columns if column.kind == "number" and not np.isnan(column.values[row, 0])]
    if len(numbers) < 2:
        return
    table = np.column_stack([column.values[:, 0] for column in numbers])
    known = table[rows & ~np.isnan(table).any(1)]
    if len(known) < 3 * len(numbers) or not (known.std(0) > 0).all():
        return
    centre, spread = known.mean(0), known.std(0, ddof=1)
    precision = np.linalg.inv(np.corrcoef(known.T) + 1e-9 * np.eye(len(numbers)))
    pull, own = precision @ ((table[row] - centre) / spread), np.diag(precision)
    gaps, sds, sizes = spread * pull / own, spread / np.sqrt(own), np.abs(pull) / np.sqrt(own)
    for column, value, gap, sd, size, unit in zip(numbers, table[row], gaps, sds, sizes, spread, strict=True):
        predicted = f"{with_sd(value - gap, sd, sd)} by its other numbers, as in the other rows of {where}"
        yield _Deviation(float(size), f"{column.name} {rounded(value, unit)} (predicted: {predicted})")


def _moment(days: float) -> Any:
    """Days since 1970 as a date."""
    return pd.Timestamp(np.datetime64(round(days * 86_400), "s"))
