"""Prepare a table as it comes: leave out what cannot or should not shape clusters, and decide what columns are taken for."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bnp_hier.advice.column_kinds import ColumnKind, infer_column_kinds
from bnp_hier.components.checks import rounding_variances
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.recognition import known_classes
from bnp_hier.datasets.tabular import RawTable, Roles, UnusableColumn
from bnp_hier.utils.wording import listed

__all__ = ["MOST_NAMED", "UsablePart", "dependent_columns", "empty_rows", "incomplete_rows", "prepared"]

MOST_NAMED = 12
"""Largest number of columns, or of values, that are named in a note."""

EXPLAINED = 0.999
"""Share of its variance from which a column may follow from others but for rounding errors."""

LEAST_REST = 1e-12
"""Share of its variance, times the number of columns, up to which a column follows from others."""

ROUNDINGS = 4.0
"""Ratio of what is left of a column and the variance of rounding errors up to which they explain it."""

ABSURD = 1e6
"""Distance from the median, in interquartile ranges of the column, beyond which a number is taken for an error."""


class UsablePart(NamedTuple):
    """What can be used of a table.

    - **data** - the usable columns; None if there are none.
    - **unusable** - the others.
    - **rows** - number of rows.
    """

    data: Dataset | None
    unusable: tuple[UnusableColumn, ...]
    rows: int


def prepared(table: RawTable, roles: Roles = Roles(), *, refuse: bool = True) -> UsablePart:  # noqa: B008 - immutable
    """Convert a table to numbers as `bnp_hier.datasets.read_table` does, but decide by itself what that leaves to the user.

    Left out are columns without values or with a single one, dates, identifiers, texts that are not categories, known classes
    and, of columns of numbers that are linearly dependent, those that follow from the columns before them. Numbers that are
    codes, and grades of a scale, become categories. Numbers that can only be errors count as missing. A first column that has
    no name, or a different text in almost every row, names the rows. The `notes` of the data say so. A column whose kind is
    given is taken as it says.

    Parameters
    ----------
    table, roles
        As for `RawTable.dataset`.
    refuse
        Whether a column with text beside numbers, or with numbers in a notation that cannot be read, is an error; otherwise it
        is left out, as is a first column of names that has a name itself.

    Raises
    ------
    ValueError
        As `RawTable.dataset`.
    """
    given = {table.column(name).name: kind for name, kind in roles.kinds.items()}
    asked, dropped, items = set(given), table.named(roles.drop), roles.items
    known = table.named(() if roles.truth is None else roles.truth)
    unusable, found_names = list(table.unusable(roles._replace(kinds=given))), []
    if items is None:
        first = table.index or next((each.name for each in unusable if each.names_rows and refuse), None)
        if first == table.frame.columns[0] and first not in (*asked, *dropped, *known):
            items = first
            unusable = [each for each in unusable if each.name != first]
            found_names = [
                f"the first column, {first!r}, is taken for the names of the rows (otherwise, use items= or --items)"
            ]
    converted = {each.name: "category" for each in unusable if table.column(each.name).is_mixed}
    given |= converted
    unusable = [each for each in unusable if each.name not in converted and not (refuse and table.column(each.name).is_refused)]
    if len(table.frame) < 2:  # in which every column is constant
        return UsablePart(table.dataset(Roles(roles.truth, items, dropped, given)), (), len(table.frame))

    def leave_out(found: Mapping[str, str]) -> Dataset:
        for name, reason in found.items():
            unusable.append(UnusableColumn(name, reason, float(table.column(name).missing.mean()), False))
        names = [each.name for each in unusable]
        left = {name: kind for name, kind in given.items() if name not in names}
        return _without_errors(table.dataset(Roles(roles.truth, items, [*dropped, *names], left)), asked)

    try:
        data = leave_out({})
        classes = {
            name: why
            for name in data.source_columns
            if name not in given and (why := known_classes(name, len(table.column(name).distinct), len(table.frame)))
        }
        data = leave_out(classes) if classes else data
        found = [kind for kind in _kinds_of(data) if kind.name in data.source_columns and kind.name not in asked]
        converted |= {kind.name: kind.alternative for kind in found if kind.alternative in ("category", "ordered")}
        given |= converted
        useless = [kind for kind in found if kind.alternative == "drop"]
        data = leave_out({kind.name: f"{'an identifier: ' * (kind.kind == 'identifier')}{kind.reason}" for kind in useless})
        data = leave_out(_following(data, asked))
    except ValueError:
        if refuse or not unusable:
            raise
        return UsablePart(None, tuple(unusable), len(table.frame))
    notes = [*data.notes, *found_names]
    if converted:
        notes.append(f"columns with few different values are taken as categories: {_named(converted)}{_otherwise(converted)}")
    if unusable:
        reasons = [f"{each.name!r} ({each.reason})" for each in unusable]
        notes.append(f"left out: {listed(reasons, MOST_NAMED)}; to use a column, give its kind, as in kinds= or --kinds")
    return UsablePart(dataclasses.replace(data, notes=tuple(notes)), tuple(unusable), len(table.frame))


def _kinds_of(data: Dataset) -> tuple[ColumnKind, ...]:
    return infer_column_kinds(data.X, data.feature_names, data.categories, data.column_kinds)


def _named(names: Iterable[str]) -> str:
    return listed(map(repr, names), MOST_NAMED)


def _otherwise(names: Iterable[str]) -> str:
    first = next(iter(names))
    return f" (kinds={{{first!r}: 'continuous'}} or --kinds {first}=continuous takes the numbers)"


def _following(data: Dataset, asked: Collection[str]) -> dict[str, str]:
    """Columns of numbers that follow from others -> why they are left out."""
    kinds = _kinds_of(data)
    source = {places[0]: name for name, places in data.source_columns.items() if len(places) == 1}
    numbers = [j for j, kind in enumerate(kinds) if kind.kind in ("continuous", "count") and j in source]
    found = {source[numbers[j]] for j in dependent_columns(data.X[:, numbers])}
    if not found:
        return {}
    totals = data.X[:, numbers].sum(axis=1)
    total = np.nanmedian(totals)
    whole = np.nanmax(np.abs(totals - total)) <= 1e-6 * abs(total)
    why = f"the columns sum to {total:g} in every row, a composition" if whole else "it follows from other columns"
    return {name: why for name in data.source_columns if name in found and name not in asked}


def dependent_columns(X: Float[np.ndarray, "n d"]) -> tuple[int, ...]:
    """Columns that follow from those before them, but for rounding, in the complete rows, such as a copy or a total.

    There are none for few rows: at most d rows always lie in a plane.
    """
    rows, d = X[~np.isnan(X).any(axis=1)], X.shape[1]
    if len(rows) <= d + 1 or d < 2:
        return ()
    rows = rows - rows.mean(axis=0)
    scale = np.abs(rows).max(axis=0)
    rows = rows / np.where(scale > 0, scale, 1.0)  # first, so that no square overflows
    rows = rows / np.maximum(rows.std(axis=0), np.finfo(float).tiny)
    if np.linalg.eigvalsh(rows.T @ rows / len(rows))[0] > 1 - EXPLAINED:  # the rest of no column is smaller
        return ()
    errors = rounding_variances(rows, np.ones(d))
    kept: list[int] = []
    found: list[int] = []
    for j, column in enumerate(rows.T):
        slopes = np.linalg.lstsq(rows[:, kept], column, rcond=None)[0] if kept else np.zeros(0)
        rest = ((column - rows[:, kept] @ slopes) ** 2).mean()
        rounding = ROUNDINGS * (errors[j] + (slopes**2 * errors[kept]).sum())
        follows = rest <= LEAST_REST * d or rest <= min(1 - EXPLAINED, rounding)
        (found if follows else kept).append(j)
    return tuple(found)


def _without_errors(data: Dataset, asked: Collection[str]) -> Dataset:
    """The data without numbers that can only be errors, with notes on them."""
    X, notes = data.X.copy(), list(data.notes)
    for j, name in enumerate(data.feature_names):
        if np.isnan(X[:, j]).all() or np.isinf(X[:, j]).any():  # refused by its name later
            continue
        quarter, middle, upper = np.nanpercentile(X[:, j], (25, 50, 75))
        width = upper - quarter
        wrong = np.abs(X[:, j] - middle) > ABSURD * width if width > 0 else np.zeros(len(X), dtype=bool)
        if not wrong.any() or name in asked or wrong.mean() > 0.01 + 1.0 / len(X):
            continue
        rows = np.flatnonzero(wrong)
        shown = listed((f"{X[i, j]:g} in row {i}" for i in rows), MOST_NAMED)
        notes.append(
            f"column {name!r}: {shown}, where the other values lie about {middle:g}, can only be an error and counts as "
            f"missing (kinds={{{name!r}: 'continuous'}} or --kinds {name}=continuous keeps it)"
        )
        X[rows, j] = np.nan
    return dataclasses.replace(data, X=X, notes=tuple(notes)) if len(notes) > len(data.notes) else data


def empty_rows(data: Dataset) -> Bool[np.ndarray, " n"]:
    """Rows without any value."""
    return np.asarray(_absent(data).all(axis=1))


def incomplete_rows(data: Dataset) -> Bool[np.ndarray, " n"]:
    """Rows in which a value is missing."""
    return np.asarray(_absent(data).any(axis=1))


def _absent(data: Dataset) -> Bool[np.ndarray, "n d"]:
    """Which cells are missing, those of a category included."""
    absent = np.isnan(data.X)
    for group in map(list, data.categories):
        absent[:, group] = (data.X[:, group] == 0).all(axis=1, keepdims=True)
    return absent
