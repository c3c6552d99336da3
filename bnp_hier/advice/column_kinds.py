"""What kind of number each column of a table holds, and the likelihood of one cluster that suits it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.components import FAMILIES, Component, ProductComponent
from bnp_hier.components.hints import Columns
from bnp_hier.utils.arrays import as_matrix

__all__ = ["ColumnKind", "Family", "choose_family", "infer_column_kinds", "component_for", "names_of_columns"]

FEW_COUNTS = 20.0
"""Mean, zeros apart, up to which whole numbers are taken for counts; larger ones are as often measurements."""


class ColumnKind(NamedTuple):
    """One column.

    - **name** - of the column.
    - **kind** - "binary", "count", "continuous", "category" (one of the indicators of a column of text), "row number",
      "constant" (other than 0 and 1) or "empty".
    - **reason** - what was seen.
    - **missing** - share of its cells that are missing.
    """

    name: str
    kind: str
    reason: str
    missing: float


class Family(NamedTuple):
    """A family, and why.

    - **name** - as in `FAMILIES`.
    - **reason** - a sentence.
    - **component** - the family with the prior that its `from_data` reads off the data.
    """

    name: str
    reason: str
    component: Component


def names_of_columns(X: ArrayLike, feature_names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names given, a DataFrame's own, or x0, x1, ....

    Raises
    ------
    ValueError
        If there are not as many names as columns.
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
    """What kind of number each column holds, judged by its values alone, but for categories.

    Parameters
    ----------
    X
        Data, (n, d); NaN is a missing value. A pandas or polars DataFrame brings its own names.
    feature_names
        Names of the columns; x0, x1, ... if there are none.
    categories
        Groups of columns, each the indicators of one category, as `Dataset.categories` has them.

    Raises
    ------
    ValueError
        If X is no table of numbers, the names do not fit, or a group holds other than indicators.
    """
    matrix = as_matrix(X)
    kinds = [_kind(name, column) for name, column in zip(names_of_columns(X, feature_names), matrix.T, strict=True)]
    for group in categories:
        of = matrix[:, list(group)]
        if not np.isin(of, (0.0, 1.0)).all() or (of.sum(1) > 1).any():
            raise ValueError(
                f"columns {', '.join(kinds[j].name for j in group)} are no indicators of a category: expected at most one 1 in "
                "every row, and 0 else"
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
        return "empty", "no value at all"
    low, high = cells.min(), cells.max()
    if np.isin(cells, (0.0, 1.0)).all():
        return "binary", f"{low:g} in every row" if low == high else "0 and 1 only"
    if low == high:
        return "constant", f"{low:g} in every row"
    if (cells != np.round(cells)).any():
        return "continuous", f"{low:g} to {high:g}"
    values = len(np.unique(cells))
    if values == len(cells) > 2 and high - low == len(cells) - 1 and (np.diff(cells) == 1).all():
        return "row number", f"{low:g}, {low + 1:g}, ..., {high:g}: one more in every row"
    whole = f"whole numbers from {low:g} to {high:g}"
    if low < 0:
        return "continuous", f"{whole}, some below 0"
    mean, spread, typical = cells.mean(), cells.var(), cells[cells > 0].mean()
    if typical > FEW_COUNTS:
        return "continuous", f"{whole}, on average {typical:.3g} where not 0: so large that a normal describes them"
    if low > 0 and spread < 0.5 * mean:
        return (
            "continuous",
            f"{whole}, which vary less than counts do (variance {spread:.3g}, mean {mean:.3g}): grades, perhaps",
        )
    return "count", f"{whole}, variance {spread:.3g}, mean {mean:.3g}"


def choose_family(kinds: Sequence[ColumnKind], X: Float[np.ndarray, "n d"]) -> tuple[str, str]:
    """Name of the family that suits the columns, and why.

    Raises
    ------
    ValueError
        If none does.
    """
    columns = Columns(tuple(kind.kind for kind in kinds), X)
    for name, family in FAMILIES.items():
        reason = family.suits(columns)
        if reason is not None:
            return name, reason
    raise ValueError(
        f"no family suits columns of these kinds: {', '.join(sorted(columns.found))}; name one of {', '.join(FAMILIES)}"
    )


def component_for(
    X: ArrayLike,
    family: str = "auto",
    feature_names: Sequence[str] | None = None,
    categories: Sequence[Sequence[int]] = (),
) -> Family:
    """The component with its default prior for a table.

    Parameters
    ----------
    X
        Data, (n, d); NaN is a missing value.
    family
        One of `FAMILIES`, or "auto" for the one that suits the kinds of columns.
    feature_names
        Names of the columns.
    categories
        Groups of columns, each the indicators of one category: a "mixed" family has a `DirichletMultinomial` for each.

    Raises
    ------
    ValueError
        If the family is unknown, the data do not fit it, or columns without any variation stand in the way of its prior.
    """
    if family != "auto" and family not in FAMILIES:
        raise ValueError(f"family must be one of auto, {', '.join(FAMILIES)}, but it is {family!r}")
    matrix = as_matrix(X, min_rows=2)
    kinds = infer_column_kinds(matrix, names_of_columns(X, feature_names), categories)
    empty = [kind.name for kind in kinds if kind.kind == "empty"]
    if empty:
        raise ValueError(f"these columns hold no value at all: {', '.join(empty)}; {_leave_out(empty)}")
    reason = "as asked for"
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
            f"these columns hold one value only, from which a Normal prior cannot be read: {', '.join(constant)}; "
            f"{_leave_out(constant)}"
        )
    if family == "mixed":
        families, columns = zip(*parts, strict=True)
        return Family(family, reason, ProductComponent.from_data(matrix, families=families, columns=columns))
    return Family(family, reason, FAMILIES[family].from_data(matrix))


def _parts(
    family: str, kinds: Sequence[ColumnKind], categories: Sequence[Sequence[int]]
) -> list[tuple[type[Component], tuple[int, ...]]]:
    """Family and columns of every part; of one part, unless the family is "mixed"."""
    if family != "mixed":
        return [(FAMILIES[family], tuple(range(len(kinds))))]
    part_for = {kind: part for part in FAMILIES.values() for kind in part.part_for}
    chosen = [part_for[kind.kind] for kind in kinds]
    groups = {part: tuple(j for j, other in enumerate(chosen) if other is part) for part in dict.fromkeys(part_for.values())}
    indicators = part_for["category"]  # one part for each category
    parts = [(part, columns) for part, columns in groups.items() if part is not indicators and columns]
    return [*parts, *((indicators, tuple(group)) for group in categories if group)]


def _leave_out(names: Sequence[str]) -> str:
    return f"leave them out with {' '.join('--drop ' + shlex.quote(name) for name in names)}"
