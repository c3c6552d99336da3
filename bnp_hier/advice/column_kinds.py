"""Infer the kind of each column of a table, and a likelihood that suits the columns."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.components import FAMILIES, FORMS, Component, LearnedPrior
from bnp_hier.components.hints import Columns
from bnp_hier.components.learned import prior_of
from bnp_hier.datasets.conversions import converted
from bnp_hier.datasets.recognition import MOST_CLASSES, identifier, is_code, share_scale, written_date
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.wording import did_you_mean, listed

__all__ = [
    "ColumnKind",
    "advised",
    "Family",
    "STRUCTURES",
    "choose_family",
    "continuous_columns",
    "infer_column_kinds",
    "component_for",
    "dropping",
    "how_to_drop",
    "how_to_take",
    "in_brackets",
    "names_of_columns",
]

STRUCTURES = {
    "normal": "full",
    "known": "shared by all clusters",
    "diagonal": "diagonal",
    "shared-diagonal": "diagonal and shared",
    "spherical": "spherical and shared",
}
"""Families of continuous columns -> their covariance matrices within clusters."""

COUNT_DISPERSION = 20.0
"""Ratio of variance and mean up to which large whole numbers may be counts whose mean differs between clusters."""

MOST_GRADES = 11
"""Largest number of grades, or of codes of items, for which categories are worth trying."""

MOST_CODES = 5
"""Largest number of different numbers that are codes, or ties, unless they are a scale."""

FEWEST_REPEATS = 5
"""Number of times that every grade or code occurs on average, at least."""

FEWEST_ALIKE = 3
"""Number of columns from which items with the same codes, and counts, are taken alike."""

BOUNDED = 0.05
"""Share of the largest code above which items that start at 0 are codes rather than counts."""

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
    - **kind** - "binary", "count", "continuous", "category" (one of the indicators of a column), "identifier", "date",
      "constant" (other than 0 and 1) or "empty"; when reading files, also "unusable".
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
    kinds: Mapping[Any, str] | None = None,
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
    requested = {} if kinds is None else _checked(kinds, names)
    inferred = [_kind(name, column, requested.get(name)) for name, column in zip(names, matrix.T, strict=True)]
    _taken_alike(inferred, matrix)
    for group in categories:
        of = matrix[:, list(group)]
        totals = of.sum(1)
        if not np.isin(of, (0.0, 1.0)).all() or totals.max() > 1:
            raise ValueError(
                f"columns {', '.join(inferred[j].name for j in group)} are not indicators of a category: expected at most one "
                "1 in every row, and 0 otherwise"
            )
        missing = float((totals == 0).mean())
        for j in group:
            inferred[j] = ColumnKind(inferred[j].name, "category", f"one of {len(group)} categories", missing)
    return tuple(inferred)


def _checked(kinds: Mapping[Any, str], names: Sequence[str]) -> Mapping[str, str]:
    """Given kinds, all of which need no conversion of the column, by the names of columns as texts."""
    kinds = {str(name): kind for name, kind in kinds.items()}
    for name, kind in kinds.items():
        if name not in names:
            hint = did_you_mean(name, names, 1)
            raise ValueError(f"there is no column {name!r} to take as {kind!r}; {hint} columns are {listed(names, 30)}")
        if kind not in ("continuous", "count", "binary"):
            raise ValueError(
                f"column {name!r}: found the kind {kind!r}, expected continuous, count or binary; columns are converted to "
                "others when they are read (kinds= of bnp_hier.datasets.from_frame and read_table)"
            )
    return kinds


def _kind(name: str, column: Float[np.ndarray, " n"], requested: str | None) -> ColumnKind:
    cells = column[~np.isnan(column)]
    missing = 1.0 - len(cells) / len(column)
    if np.isinf(cells).any():  # which every family refuses
        return ColumnKind(name, "continuous", "infinite values", missing)
    if requested is None or not len(cells):
        kind, reason, alternative = _judge(name, cells)
        return ColumnKind(name, kind, reason, missing, alternative)
    _, wrong, expected = converted(requested, column)
    if wrong is not None:
        raise ValueError(
            f"column {name!r}, row {wrong}: found {column[wrong]:g}, expected {expected}, as the column is taken as {requested}"
        )
    if cells.min() == cells.max() and requested == "continuous":
        return ColumnKind(name, "constant", f"{cells[0]:g} in every row", missing, "drop")
    return ColumnKind(name, requested, "as requested", missing)


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
    if reason := written_date(name, cells):
        return "date", reason, "drop"
    values = np.unique(cells)
    repeated = len(values) * FEWEST_REPEATS <= len(cells)
    codes = (
        len(values) <= MOST_CODES
        and not _is_scale(values)
        and not (_is_sparse(cells) and (cells == 1).sum() >= (cells > 1).sum())
    )
    if repeated and (codes or (is_code(name) and len(values) <= MOST_CLASSES and _is_whole(cells))):
        return "continuous", f"{len(values)} different numbers in {len(cells)} rows, perhaps codes", "category"
    if (cells != np.round(cells)).any():
        return "continuous", *_of_measurements(name, cells)
    whole = f"whole numbers from {low:g} to {high:g}"
    graded = "ordered" if repeated and high - low < MOST_GRADES else ""
    if low < 0:
        return "continuous", f"{whole}, some of them negative", graded
    if share_scale(name, cells):
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
        return "continuous", f"{whole}, {why}{': perhaps grades' if graded else ''}", graded
    return "count", f"{whole}, variance {spread:.3g}, mean {mean:.3g}", graded if low > 0 else ""


def _is_scale(values: Float[np.ndarray, " m"]) -> bool:
    """Whether distinct values are consecutive whole numbers, of which at most one in three is absent, or evenly spaced."""
    gaps = np.diff(values)
    whole = (values == np.round(values)).all() and np.ptp(values) < 1.5 * len(values)
    return bool(whole or (len(values) > 3 and np.allclose(gaps, gaps[0], rtol=1e-6)))


def _taken_alike(kinds: list[ColumnKind], X: Float[np.ndarray, "n d"]) -> None:
    """Give columns that belong together the same kind: items with the same few codes, and counts of any size."""
    whole = [j for j, kind in enumerate(kinds) if kind.kind in ("count", "continuous", "binary") and _is_whole(X[:, j])]
    ranges = {j: (np.nanmin(X[:, j]), np.nanmax(X[:, j])) for j in whole}
    coded = [j for j in whole if 1 < np.ptp(ranges[j]) < MOST_GRADES and kinds[j].reason != "as requested"]
    if coded:
        low, high = max(dict.fromkeys(ranges[j] for j in coded), key=[ranges[j] for j in coded].count)
        items = [j for j in coded if low <= ranges[j][0] and ranges[j][1] <= high]
        same = sum(ranges[j] == (low, high) for j in items)
        few = FEWEST_REPEATS * (high - low + 1) <= len(X)
        if same >= max(FEWEST_ALIKE, len(items) / 2) and few and (low > 0 or _looks_bounded(X[:, items], high)):
            reason = f"codes from {low:g} to {high:g}, as in {len(items)} columns"
            for j in items:
                kinds[j] = kinds[j]._replace(kind="continuous", reason=reason, alternative="category")
    counts = [j for j in whole if kinds[j].kind == "count" or "large enough for a normal" in kinds[j].reason]
    counts = [j for j in counts if kinds[j].alternative in ("", "count", "log", "log1p") and kinds[j].reason != "as requested"]
    tops = [ranges[j][1] for j in counts]
    top = max(dict.fromkeys(tops), key=tops.count, default=0.0)
    shared = top >= MOST_GRADES and tops.count(top) >= max(FEWEST_ALIKE, len(counts) / 2)  # few rows have few small counts
    if shared and _looks_bounded(X[:, counts], top):  # such as grey levels
        for j in counts:
            reason = f"whole numbers on a scale up to {top:g}, as in {tops.count(top)} columns"
            kinds[j] = kinds[j]._replace(kind="continuous", reason=reason, alternative="count")
        return
    large = [j for j in counts if kinds[j].kind != "count"]
    if len(counts) >= FEWEST_ALIKE and len(large) < len(counts) / 3:  # a rare word has few different counts, or a large one
        sparse = [
            j for j in whole if kinds[j].kind == "continuous" and _is_sparse(X[:, j]) and kinds[j].reason != "as requested"
        ]
        for j in sparse if len(sparse) < len(counts) / 3 else ():
            reason = f"whole numbers from 0 to {ranges[j][1]:g}, mostly 0, as the counts of other columns"
            kinds[j] = kinds[j]._replace(kind="count", reason=reason, alternative="")
    # as Poisson, counts that vary more within clusters would each become a cluster
    if len(counts) >= FEWEST_ALIKE and len(large) >= len(counts) / 3:
        for j in set(counts) - set(large):
            reason = f"whole numbers from {ranges[j][0]:g} to {ranges[j][1]:g}, as the larger counts of other columns"
            kinds[j] = kinds[j]._replace(kind="continuous", reason=reason, alternative="count")


def _is_whole(column: Float[np.ndarray, " n"]) -> bool:
    cells = column[~np.isnan(column)]
    return bool(len(cells) and cells.min() >= 0 and (cells == np.round(cells)).all())


def _is_sparse(column: Float[np.ndarray, " n"]) -> bool:
    return bool((column == 0).mean() > 0.5 and np.nanmin(column) == 0)


def _looks_bounded(items: Float[np.ndarray, "n k"], top: float) -> bool:
    """Whether columns of whole numbers from 0 have a bound: counts would seldom be as large as the largest of all."""
    return bool(np.nanmean(items == top) > BOUNDED)


def _of_measurements(name: str, cells: Float[np.ndarray, " m"]) -> tuple[str, str]:
    """The range of continuous numbers, what is unusual about them, and another kind that is worth trying."""
    low, high = cells.min(), cells.max()
    bound = share_scale(name, cells)
    if bound is None:
        tails, alternative = _of_tails(cells)
        return f"{low:g} to {high:g}{tails}", alternative
    what = f"{'percentages' if bound == 100 else 'proportions'} from {low:g} to {high:g}"
    near = low < NEAR_BOUND * bound or high > (1 - NEAR_BOUND) * bound
    if not near:
        return what, ""
    where = 0 if low < NEAR_BOUND * bound else bound
    return f"{what}, some of them near {where:g}", "logit" if low > 0 and high < bound else ""


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
    kinds: Mapping[Any, str] | None = None,
    structure: str | None = None,
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
    structure
        Family of the continuous columns, which determines the covariance matrices of clusters: "normal", "known",
        "shared-diagonal", "diagonal" or "spherical". By default, the family itself, or "diagonal" if it is "mixed".

    Raises
    ------
    ValueError
        If the family is unknown or does not fit the data, if a value is infinite, or if empty or constant columns leave its
        prior undefined; the message on them also names identifiers and dates, so that all can be left out at once.
    """
    if family != "auto" and family not in FAMILIES:
        raise ValueError(f"family must be one of auto, {', '.join(FAMILIES)}, but it is {family!r}")
    matrix = as_matrix(X, min_rows=2)
    inferred = infer_column_kinds(matrix, names_of_columns(X, feature_names), categories, kinds)
    infinite = np.argwhere(np.isinf(matrix))
    if len(infinite):
        row, column = infinite[0].tolist()
        raise ValueError(
            f"X has an infinite value at row {row}, column {column} ({inferred[column].name!r}); expected finite numbers: mark "
            "it as missing, or leave out the column"
        )
    if any(kind.kind == "empty" for kind in inferred):
        raise ValueError(_useless(inferred))
    reason = "as requested"
    if family == "auto":
        family, reason = choose_family(inferred, matrix)
    if structure is not None and family != "mixed":
        family = structure
    parts = _parts(family, inferred, categories)
    if any(FAMILIES[part].is_normal and _is_constant(matrix[:, j]) for part, columns in parts for j in columns):
        raise ValueError(_useless(inferred))
    options: dict[str, Any] = dict(FORMS.get(family, {}))
    if family == "mixed":
        families, columns = zip(*parts, strict=True)
        options = {
            "families": [structure if structure and part == "diagonal" else part for part in families],
            "columns": columns,
        }
    fixed, prior = (prior_of(FAMILIES[family], matrix, learn, **options) for learn in (False, True))
    return Family(family, reason, cast(Component, fixed), prior)


def continuous_columns(family: Family, kinds: Sequence[ColumnKind], categories: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Columns whose covariance matrices within clusters may have several structures."""
    return next((columns for part, columns in _parts(family.name, kinds, categories) if part in STRUCTURES), ())


def _parts(family: str, kinds: Sequence[ColumnKind], categories: Sequence[Sequence[int]]) -> list[tuple[str, tuple[int, ...]]]:
    """Family and columns of each part; there is a single part unless the family is "mixed"."""
    if family != "mixed":
        return [(family, tuple(range(len(kinds))))]
    part_for: dict[str, str] = {}
    for name, part in FAMILIES.items():
        for kind in part.part_for:
            part_for.setdefault(kind, name)
    chosen = [part_for[column.kind] for column in kinds]
    groups = {part: tuple(j for j, other in enumerate(chosen) if other == part) for part in dict.fromkeys(part_for.values())}
    indicators = part_for["category"]  # one part per category
    parts = [(part, columns) for part, columns in groups.items() if part != indicators and columns]
    return [*parts, *((indicators, tuple(group)) for group in categories if group)]


def _is_constant(column: Float[np.ndarray, " n"]) -> bool:
    return bool(np.nanmin(column) == np.nanmax(column))


def _useless(kinds: Sequence[ColumnKind]) -> str:
    """Error message about columns for which there is no prior, together with others that had better be left out."""
    dropped = [kind for kind in kinds if kind.alternative == "drop"]
    why = "; ".join(f"{kind.name!r}: {_called(kind)}{kind.reason}" for kind in dropped)
    return f"some columns say nothing about clusters, or only tell rows apart: {why}; leave them out ({how_to_drop(dropped)})"


def _called(kind: ColumnKind) -> str:
    return "an identifier, " if kind.kind == "identifier" else ""


def how_to_drop(kinds: Sequence[ColumnKind]) -> str:
    """How columns are left out in Python and on the command line."""
    return f"drop={[kind.name for kind in kinds]!r}, or {dropping(kinds)}"


def how_to_take(kinds: Sequence[ColumnKind]) -> str:
    """How columns are taken for their alternatives in Python and on the command line."""
    asked = {kind.name: kind.alternative for kind in kinds}
    words = ",".join(f"{name}={kind}" for name, kind in asked.items())
    return f"kinds={asked!r}, or --kinds {shlex.quote(words)}"


def advised(advice: str) -> dict[str, Any]:
    """The arguments `kinds` and `drop` of `bnp_hier.cluster` that advice written by `how_to_take` or `how_to_drop` names."""
    arguments = {}
    for name, value in re.findall(r"(kinds|drop)=([{\[].*?[}\]]), or --", advice):
        with suppress(SyntaxError, ValueError):
            arguments[name] = ast.literal_eval(value)
    return arguments


def dropping(kinds: Iterable[ColumnKind]) -> str:
    """The options of the command line that leave columns out."""
    names = [kind.name for kind in kinds]
    if any("," in name for name in names):
        return " ".join("--drop " + shlex.quote(name) for name in names)
    return "--drop " + shlex.quote(",".join(names))


def in_brackets(kind: ColumnKind) -> str:
    """' [--kinds name=kind]' or ' [--drop name]' for a column with an alternative kind, else ''."""
    if not kind.alternative:
        return ""
    option = dropping([kind]) if kind.alternative == "drop" else f"--kinds {shlex.quote(f'{kind.name}={kind.alternative}')}"
    return f" [{option}]"
