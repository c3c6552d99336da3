"""What each column of a table is taken for and why, and the options that change it, for `recommend` and `datasets`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
from scipy.stats import skew

from bnp_hier.advice.column_kinds import ColumnKind, dropping
from bnp_hier.commands.console import print_table
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.conversions import features_of, order_of
from bnp_hier.datasets.recognition import ordered_scale
from bnp_hier.datasets.tabular import UsablePart

__all__ = ["leaving_out", "print_columns", "taking_otherwise", "unusable_kinds"]

MOST_EXAMPLES = 2
"""Largest number of columns in an example of the option, if no other kind is worth trying."""

SKEWED = 1.0
"""Skewness above which logarithms are an example."""

MOST_COLUMNS = 60
"""Largest number of columns that are shown."""


def unusable_kinds(part: UsablePart) -> list[ColumnKind]:
    """The columns that cannot be used, as kinds of columns."""
    return [ColumnKind(each.name, "unusable", each.reason, each.missing, "drop") for each in part.unusable]


def print_columns(part: UsablePart, kinds: Sequence[ColumnKind]) -> list[ColumnKind]:
    """Print and return what each column is taken for and why, and what else it might be; a category is one column."""
    import pandas as pd

    shown = unusable_kinds(part) + ([] if part.data is None else _whole_columns(part.data, kinds))
    rows = [(k.name, k.kind, k.reason, k.alternative or None, f"{k.missing:.0%}" if k.missing else None) for k in shown]
    frame = pd.DataFrame(rows[:MOST_COLUMNS], columns=["column", "taken as", "because", "or", "missing"]).set_index("column")
    more = f"and {len(rows) - MOST_COLUMNS} more" if len(rows) > MOST_COLUMNS else ""
    print_table(frame.dropna(axis=1, how="all"), "Columns", more)
    return shown


def _whole_columns(data: Dataset, kinds: Sequence[ColumnKind]) -> list[ColumnKind]:
    """The kinds of the columns as they were read: the indicators of a category are one column."""
    of = {kind.name: kind for kind in kinds}
    whole: dict[str, ColumnKind] = {}
    for name, levels in data.levels.items():
        names, is_ordered = features_of(name, None, levels), bool(order_of(data.kinds.get(name, "")))
        scale = () if is_ordered else ordered_scale(levels)
        order = f", which seem ordered: {' < '.join(scale)}" if scale else ""
        reason = f"from low to high: {', '.join(levels)}" if is_ordered else f"{len(levels)} values{order}"
        what = "ordered" if is_ordered else "category"
        whole |= dict.fromkeys(names, ColumnKind(name, what, reason, of[names[0]].missing, _as_option(scale)))
    for name, unit in data.units.items():
        for feature in features_of(name, data.kinds.get(name), data.levels.get(name, ())):
            one = whole.get(feature, of[feature])
            if not one.reason.startswith("percentages"):
                whole[feature] = one._replace(reason=f"{one.reason}, in {unit}")
    return list(dict.fromkeys(whole.get(kind.name, kind) for kind in kinds))


def _as_option(scale: Sequence[str]) -> str:
    """Value of --kinds that declares this scale, or ''."""
    if any("<" in grade for grade in scale):
        return ""
    return "ordered" if any("," in grade or "=" in grade for grade in scale) else "<".join(scale)


def taking_otherwise(part: UsablePart, shown: Sequence[ColumnKind]) -> str:
    """Suggested --kinds option for doubtful columns, or ''."""
    others = [f"{kind.name}={kind.alternative}" for kind in shown if kind.alternative not in ("", "drop")]
    if not others and part.data is not None:
        others = _examples(part.data, shown)[:MOST_EXAMPLES]
    return f"--kinds {shlex.quote(','.join(others))}" if others else ""


def _examples(data: Dataset, shown: Sequence[ColumnKind]) -> list[str]:
    """Columns of numbers with another kind that they can be taken for, unless they had better be left out.

    The order of texts is not guessed.
    """
    values = dict(zip(data.feature_names, data.X.T, strict=True))
    found = []
    for name, kind in ((kind.name, kind.kind) for kind in shown if kind.alternative != "drop"):
        if kind in ("binary", "count") and name in values:
            found.append(f"{name}=continuous")
        elif kind == "continuous" and name in values and np.nanmin(values[name]) > 0:
            if skew(values[name], nan_policy="omit") > SKEWED:
                found.append(f"{name}=log")
    return found


def leaving_out(part: UsablePart, shown: Sequence[ColumnKind]) -> str:
    """Suggested --drop and --items options for uninformative columns and the names of the rows, or ''."""
    named = next((each.name for each in part.unusable if each.names_rows), None)
    if part.data is not None and part.data.items is not None:
        named = None
    useless = [kind for kind in shown if kind.alternative == "drop" and kind.name != named]
    options = [f"--items {shlex.quote(named)}"] if named else []
    return " ".join([*options, dropping(useless)] if useless else options)
