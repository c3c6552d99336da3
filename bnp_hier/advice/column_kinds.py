"""Infer the kind of each column of a table, and a likelihood that suits the columns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.components import FAMILIES, FORMS, Component, LearnedPrior
from bnp_hier.components.hints import Columns
from bnp_hier.components.learned import prior_of
from bnp_hier.utils.arrays import as_matrix

__all__ = ["ColumnKind", "Family", "choose_family", "infer_column_kinds", "component_for", "names_of_columns"]

FEW_COUNTS = 20.0
"""Mean, excluding zeros, up to which whole numbers are treated as counts; larger ones are just as often measurements."""


class ColumnKind(NamedTuple):
    """The kind of one column.

    - **name** - name of the column.
    - **kind** - "binary", "count", "continuous", "category" (one of the indicators of a text column), "row number",
      "constant" (other than 0 and 1) or "empty".
    - **reason** - the observation that decided the kind.
    - **missing** - share of missing values.
    """

    name: str
    kind: str
    reason: str
    missing: float


class Family(NamedTuple):
    """A family and the reason for choosing it.

    - **name** - name in `FAMILIES`.
    - **reason** - why it was chosen, in a clause.
    - **component** - the family with the fixed prior that its `from_data` derives from the data.
    - **prior** - the family with priors on the hyperparameters, as its `from_data` returns it by default.
    """

    name: str
    reason: str
    component: Component
    prior: Component | LearnedPrior


def names_of_columns(X: ArrayLike, feature_names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Column names: those given, those of a DataFrame, or x0, x1, ....

    Raises
    ------
    ValueError
        If the number of names differs from the number of columns.
    """
    columns = getattr(X, "columns", None) if feature_names is None else feature_names
    d = np.shape(X)[1]
    names = tuple(f"x{j}" for j in range(d)) if columns is None else tuple(map(str, columns))
    if len(names) != d:
        raise ValueError(f"X has {d} columns, but there are {len(names)} feature_names")
    return names


def infer_column_kinds(
    X: ArrayLike, feature_names: Sequence[str] | None = None, categories: Sequence[Sequence[int]] = ()
) -> tuple[ColumnKind, ...]:
    """Infer the kind of each column from its values; only categories have to be given.

    Parameters
    ----------
    X
        Data, (n, d); NaN is a missing value. A pandas or polars DataFrame provides its own column names.
    feature_names
        Names of the columns; by default x0, x1, ....
    categories
        Groups of columns; each group contains the indicators of one category, as in `Dataset.categories`.

    Raises
    ------
    ValueError
        If X is not a table of numbers, the number of names is wrong, or the columns of a group are not indicators.
    """
    matrix = as_matrix(X)
    kinds = [_kind(name, column) for name, column in zip(names_of_columns(X, feature_names), matrix.T, strict=True)]
    for group in categories:
        of = matrix[:, list(group)]
        if not np.isin(of, (0.0, 1.0)).all() or (of.sum(1) > 1).any():
            raise ValueError(
                f"columns {', '.join(kinds[j].name for j in group)} are not indicators of a category: expected at most one 1 "
                "in every row, and 0 otherwise"
            )
        reason, missing = f"one of {len(group)} categories", float((of.sum(1) == 0).mean())
        for j in group:
            kinds[j] = kinds[j]._replace(kind="category", reason=reason, missing=missing)
    return tuple(kinds)


def _kind(name: str, column: Float[np.ndarray, " n"]) -> ColumnKind:
    cells = column[~np.isnan(column)]
    missing = 1.0 - len(cells) / len(column)
    kind, reason = _judge(cells)
    return ColumnKind(name, kind, reason, missing)


def _judge(cells: Float[np.ndarray, " m"]) -> tuple[str, str]:
    if len(cells) == 0:
        return "empty", "all values are missing"
    low, high = cells.min(), cells.max()
    if np.isin(cells, (0.0, 1.0)).all():
        return "binary", f"{low:g} in every row" if low == high else "0 and 1 only"
    if low == high:
        return "constant", f"{low:g} in every row"
    if (cells != np.round(cells)).any():
        return "continuous", f"{low:g} to {high:g}"
    values = len(np.unique(cells))
    if values == len(cells) > 2 and high - low == len(cells) - 1 and (np.diff(cells) == 1).all():
        return "row number", f"{low:g}, {low + 1:g}, ..., {high:g}: increases by one in every row"
    whole = f"whole numbers from {low:g} to {high:g}"
    if low < 0:
        return "continuous", f"{whole}, some of them negative"
    mean, spread, typical = cells.mean(), cells.var(), cells[cells > 0].mean()
    if typical > FEW_COUNTS:
        return "continuous", f"{whole}, with mean {typical:.3g} where not 0: large enough for a normal"
    if low > 0 and spread < 0.5 * mean:
        return (
            "continuous",
            f"{whole}, with less variation than counts (variance {spread:.3g}, mean {mean:.3g}): perhaps grades",
        )
    return "count", f"{whole}, variance {spread:.3g}, mean {mean:.3g}"


def choose_family(kinds: Sequence[ColumnKind], X: Float[np.ndarray, "n d"]) -> tuple[str, str]:
    """Name of the family that suits the columns, and the reason.

    Raises
    ------
    ValueError
        If no family suits them.
    """
    columns = Columns(tuple(kind.kind for kind in kinds), X)
    for name, family in FAMILIES.items():
        reason = family.suits(columns)
        if reason is not None:
            return name, reason
    raise ValueError(
        f"no family suits columns of these kinds: {', '.join(sorted(columns.found))}; choose one of {', '.join(FAMILIES)}"
    )


def component_for(
    X: ArrayLike,
    family: str = "auto",
    feature_names: Sequence[str] | None = None,
    categories: Sequence[Sequence[int]] = (),
) -> Family:
    """Choose the component for a table and give it the default prior.

    Parameters
    ----------
    X
        Data, (n, d); NaN is a missing value.
    family
        One of `FAMILIES`, or "auto" for the one that suits the columns.
    feature_names
        Names of the columns.
    categories
        Groups of columns, each containing the indicators of one category; the "mixed" family models each group by a
        `DirichletMultinomial`.

    Raises
    ------
    ValueError
        If the family is unknown or does not fit the data, or if empty or constant columns leave its prior undefined.
    """
    if family != "auto" and family not in FAMILIES:
        raise ValueError(f"family must be one of auto, {', '.join(FAMILIES)}, but it is {family!r}")
    matrix = as_matrix(X, min_rows=2)
    kinds = infer_column_kinds(matrix, names_of_columns(X, feature_names), categories)
    empty = [kind.name for kind in kinds if kind.kind == "empty"]
    if empty:
        raise ValueError(f"all values are missing in these columns: {', '.join(empty)}; {_leave_out(empty)}")
    reason = "as requested"
    if family == "auto":
        family, reason = choose_family(kinds, matrix)
    parts = _parts(family, kinds, categories)
    constant = [
        kinds[j].name
        for part, columns in parts
        if part.is_normal
        for j in columns
        if np.nanmin(matrix[:, j]) == np.nanmax(matrix[:, j])
    ]
    if constant:
        raise ValueError(
            f"these columns are constant, so no normal prior can be derived from them: {', '.join(constant)}; "
            f"{_leave_out(constant)}"
        )
    options: dict[str, Any] = dict(FORMS.get(family, {}))
    if family == "mixed":
        families, columns = zip(*parts, strict=True)
        options = {"families": families, "columns": columns}
    fixed, prior = (prior_of(FAMILIES[family], matrix, learn, **options) for learn in (False, True))
    return Family(family, reason, cast(Component, fixed), prior)


def _parts(
    family: str, kinds: Sequence[ColumnKind], categories: Sequence[Sequence[int]]
) -> list[tuple[type[Component], tuple[int, ...]]]:
    """Family and columns of each part; there is a single part unless the family is "mixed"."""
    if family != "mixed":
        return [(FAMILIES[family], tuple(range(len(kinds))))]
    part_for: dict[str, type[Component]] = {}
    for part in FAMILIES.values():
        for kind in part.part_for:
            part_for.setdefault(kind, part)
    chosen = [part_for[column.kind] for column in kinds]
    groups = {part: tuple(j for j, other in enumerate(chosen) if other is part) for part in dict.fromkeys(part_for.values())}
    indicators = part_for["category"]  # one part per category
    parts = [(part, columns) for part, columns in groups.items() if part is not indicators and columns]
    return [*parts, *((indicators, tuple(group)) for group in categories if group)]


def _leave_out(names: Sequence[str]) -> str:
    return f"leave them out with {' '.join('--drop ' + shlex.quote(name) for name in names)}"
