"""Infer the kind of each column of a table, and a likelihood that suits the columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.components import FAMILIES, FORMS, Component, LearnedPrior
from bnp_hier.components.hints import Columns
from bnp_hier.components.learned import prior_of
from bnp_hier.datasets.conversions import converted
from bnp_hier.datasets.recognition import bounds_of_shares, identifier, written_date
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.wording import listed, nearest

__all__ = [
    "ColumnKind",
    "Family",
    "choose_family",
    "infer_column_kinds",
    "component_for",
    "dropping",
    "in_brackets",
    "names_of_columns",
]

COUNT_DISPERSION = 20.0
"""Ratio of variance and mean up to which large whole numbers may be counts whose mean differs between clusters."""

MOST_GRADES = 10
"""Largest number of grades for which an ordered scale or categories are worth trying."""

EXPECTED_ZEROS = 5.0
"""Expected number of zeros among counts, if there are none, from which whole numbers are not taken for counts."""

NEAR_BOUND = 0.05
"""Distance from 0 and from the largest possible value, relative to it, within which proportions are near a bound."""

LONG_TAIL = 3.0
"""Skewness above which a column has a long tail."""

HEAVY_TAILS = 10.0
"""Excess kurtosis above which a column has heavy tails."""

FEWEST_FOR_TAILS = 20
"""Number of values from which tails are judged."""

FEW_COUNTS = 20.0
"""Mean, excluding zeros, up to which whole numbers are treated as counts; larger ones are just as often measurements."""


class ColumnKind(NamedTuple):
    """The kind of one column.

    - **name** - name of the column.
    - **kind** - "binary", "count", "continuous", "category" (one of the indicators of a text column), "ordered" (steps on a
      scale), "identifier", "date", "constant" (other than 0 and 1) or "empty"; when reading files, also "unusable".
    - **reason** - the observation that decided the kind.
    - **missing** - share of missing values.
    - **alternative** - another kind that is worth trying, such as "count" or "log"; "drop" to leave the column out;
      empty if none is.
    """

    name: str
    kind: str
    reason: str
    missing: float
    alternative: str = ""


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
    X: ArrayLike,
    feature_names: Sequence[str] | None = None,
    categories: Sequence[Sequence[int]] = (),
    kinds: Mapping[str, str] | None = None,
) -> tuple[ColumnKind, ...]:
    """Infer the kind of each column from its name and values; only categories have to be given.

    Parameters
    ----------
    X
        Data, (n, d); NaN is a missing value. A pandas or polars DataFrame provides its own column names.
    feature_names
        Names of the columns; by default x0, x1, ....
    categories
        Groups of columns; each group contains the indicators of one category, as in `Dataset.categories`.
    kinds
        Name of a column -> "continuous", "count" or "binary", which overrules what its values suggest.

    Raises
    ------
    ValueError
        If X is not a table of numbers, the number of names is wrong, the columns of a group are not indicators, or a given kind
        does not exist or does not suit the values.
    """
    matrix = as_matrix(X)
    names = names_of_columns(X, feature_names)
    given = {} if kinds is None else _checked(kinds, names)
    found = [_kind(name, column, given.get(name)) for name, column in zip(names, matrix.T, strict=True)]
    for group in categories:
        of = matrix[:, list(group)]
        totals = of.sum(1)
        top = totals.max()
        if not ((of >= 0) & (of == np.round(of))).all() or not np.isin(totals, (0.0, top)).all():
            raise ValueError(
                f"columns {', '.join(found[j].name for j in group)} are neither indicators of a category (at most one 1 in "
                "every row, and 0 otherwise) nor the steps of a scale (whole numbers with the same sum in all rows)"
            )
        kind, reason = ("ordered", f"steps on a scale of {top + 1:.0f} grades") if top > 1 else ("category", "")
        missing = float((totals == 0).mean())
        for j in group:
            found[j] = ColumnKind(found[j].name, kind, reason or f"one of {len(group)} categories", missing)
    return tuple(found)


def _checked(kinds: Mapping[str, str], names: Sequence[str]) -> Mapping[str, str]:
    """Given kinds, all of which need no conversion of the column."""
    for name, kind in kinds.items():
        if name not in names:
            hint = nearest(name, names, 1)
            raise ValueError(f"there is no column {name!r} to take as {kind!r}; {hint} columns are {listed(names, 30)}")
        if kind not in ("continuous", "count", "binary"):
            raise ValueError(
                f"column {name!r}: found the kind {kind!r}, expected continuous, count or binary; columns are converted to "
                "others when they are read (kinds= of bnp_hier.datasets.from_frame and read_table)"
            )
    return kinds


def _kind(name: str, column: Float[np.ndarray, " n"], given: str | None) -> ColumnKind:
    cells = column[~np.isnan(column)]
    missing = 1.0 - len(cells) / len(column)
    if np.isinf(cells).any():  # which every family refuses
        return ColumnKind(name, "continuous", "infinite values", missing)
    if given is None or not len(cells):
        kind, reason, alternative = _judge(name, cells)
        return ColumnKind(name, kind, reason, missing, alternative)
    _, wrong, expected = converted(given, column)
    if wrong is not None:
        raise ValueError(
            f"column {name!r}, row {wrong}: found {column[wrong]:g}, expected {expected}, as the column is taken as {given}"
        )
    if cells.min() == cells.max() and given == "continuous":
        return ColumnKind(name, "constant", f"{cells[0]:g} in every row", missing, "drop")
    return ColumnKind(name, given, "as requested", missing)


def _judge(name: str, cells: Float[np.ndarray, " m"]) -> tuple[str, str, str]:
    """Kind of a column, the reason, and another kind that is worth trying."""
    if len(cells) == 0:
        return "empty", "all values are missing", "drop"
    low, high = cells.min(), cells.max()
    if np.isin(cells, (0.0, 1.0)).all():
        return "binary", f"{low:g} in every row" if low == high else "0 and 1 only", "drop" if low == high else ""
    if low == high:
        return "constant", f"{low:g} in every row", "drop"
    if reason := identifier(name, cells):
        return "identifier", reason, "drop"
    if reason := written_date(cells):
        return "date", reason, "drop"
    if (cells != np.round(cells)).any():
        return "continuous", *_of_measurements(name, cells)
    whole = f"whole numbers from {low:g} to {high:g}"
    if low < 0:
        return "continuous", f"{whole}, some of them negative", ""
    if bounds_of_shares(name, cells):
        return "continuous", *_of_measurements(name, cells)
    mean, spread, typical = cells.mean(), cells.var(), cells[cells > 0].mean()
    if typical > FEW_COUNTS:
        reason = f"{whole}, with mean {typical:.3g} where not 0: large enough for a normal"
        tails, alternative = _of_tails(cells)
        return "continuous", reason + tails, alternative or ("count" if spread < COUNT_DISPERSION * mean else "")
    if low > 0 and (spread < 0.5 * mean or len(cells) * np.exp(-mean) > EXPECTED_ZEROS):
        why = f"with less variation than counts (variance {spread:.3g}, mean {mean:.3g})"
        if spread >= 0.5 * mean:
            why = f"none of them 0, unlike counts with mean {mean:.3g}"
        return "continuous", f"{whole}, {why}: perhaps grades", _of_grades(cells)
    return "count", f"{whole}, variance {spread:.3g}, mean {mean:.3g}", _of_grades(cells) if low > 0 else ""


def _of_measurements(name: str, cells: Float[np.ndarray, " m"]) -> tuple[str, str]:
    """The range of continuous numbers, what is unusual about them, and another kind that is worth trying."""
    low, high = cells.min(), cells.max()
    bound = bounds_of_shares(name, cells)
    if bound is None:
        tails, alternative = _of_tails(cells)
        return f"{low:g} to {high:g}{tails}", alternative
    what = f"{'percentages' if bound == 100 else 'proportions'} from {low:g} to {high:g}"
    near = low < NEAR_BOUND * bound or high > (1 - NEAR_BOUND) * bound
    if not near:
        return what, ""
    where = 0 if low < NEAR_BOUND * bound else bound
    return f"{what}, some of them near {where:g}", "logit" if low > 0 and high < bound else ""


def _of_grades(cells: Float[np.ndarray, " m"]) -> str:
    """Whether grades are worth trying as an ordered scale or, if they vary more than a binomial variable, as categories."""
    top = np.ptp(cells)
    if top >= MOST_GRADES:
        return ""
    mean = (cells - cells.min()).mean()
    return "ordered" if cells.var() <= 1.5 * mean * (top - mean) / top else "category"


def _of_tails(cells: Float[np.ndarray, " m"]) -> tuple[str, str]:
    """What is unusual about the tails, and a transformation that makes them shorter."""
    if len(cells) < FEWEST_FOR_TAILS:
        return "", ""
    skewness, kurtosis = _moments(cells)
    if cells.min() >= 0 and skewness > LONG_TAIL:
        kind, transformed = ("log", np.log(cells)) if cells.min() > 0 else ("log1p", np.log1p(cells))
        shorter = abs(_moments(transformed)[0]) < 0.5 * skewness
        return f", with a long right tail (skewness {skewness:.1f})", kind if shorter else ""
    if kurtosis > HEAVY_TAILS:
        return f", with heavy tails (excess kurtosis {kurtosis:.0f}), for which outliers may get clusters of their own", ""
    return "", ""


def _moments(cells: Float[np.ndarray, " m"]) -> tuple[float, float]:
    """Skewness and excess kurtosis."""
    z = (cells - cells.mean()) / max(cells.std(), np.finfo(float).tiny)
    return float((z**3).mean()), float((z**4).mean() - 3.0)


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
    kinds: Mapping[str, str] | None = None,
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
    kinds
        Kinds that are given: name of a column -> "continuous", "count" or "binary".

    Raises
    ------
    ValueError
        If the family is unknown or does not fit the data, if a value is infinite, or if empty or constant columns leave its
        prior undefined; the message on them also names identifiers and dates, so that all can be left out at once.
    """
    if family != "auto" and family not in FAMILIES:
        raise ValueError(f"family must be one of auto, {', '.join(FAMILIES)}, but it is {family!r}")
    matrix = as_matrix(X, min_rows=2)
    found = infer_column_kinds(matrix, names_of_columns(X, feature_names), categories, kinds)
    infinite = np.argwhere(np.isinf(matrix))
    if len(infinite):
        row, column = infinite[0].tolist()
        raise ValueError(
            f"X has an infinite value at row {row}, column {column} ({found[column].name!r}); expected finite numbers: mark it "
            "as missing, or leave out the column"
        )
    if any(kind.kind == "empty" for kind in found):
        raise ValueError(_useless(found))
    reason = "as requested"
    if family == "auto":
        family, reason = choose_family(found, matrix)
    parts = _parts(family, found, categories)
    if any(part.is_normal and _is_constant(matrix[:, j]) for part, columns in parts for j in columns):
        raise ValueError(_useless(found))
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


def _is_constant(column: Float[np.ndarray, " n"]) -> bool:
    return bool(np.nanmin(column) == np.nanmax(column))


def _useless(kinds: Sequence[ColumnKind]) -> str:
    """Error message about columns for which there is no prior, together with others that had better be left out."""
    found = [kind for kind in kinds if kind.alternative == "drop"]
    why = "; ".join(f"{kind.name!r}: {_called(kind)}{kind.reason}" for kind in found)
    how = f"leave them out with {dropping(found)} (drop= in Python)"
    return f"some columns say nothing about clusters, or only tell rows apart: {why}; {how}"


def _called(kind: ColumnKind) -> str:
    return "an identifier, " if kind.kind == "identifier" else ""


def dropping(kinds: Iterable[ColumnKind]) -> str:
    """The options of the command line that leave columns out."""
    names = [kind.name for kind in kinds]
    if any("," in name for name in names):
        return " ".join("--drop " + shlex.quote(name) for name in names)
    return "--drop " + shlex.quote(",".join(names))


def in_brackets(kind: ColumnKind) -> str:
    """The option of the command line that takes a column for something else, in brackets; empty if nothing is worth trying."""
    if not kind.alternative:
        return ""
    option = dropping([kind]) if kind.alternative == "drop" else f"--kinds {shlex.quote(f'{kind.name}={kind.alternative}')}"
    return f" [{option}]"
