"""`bnp-hier datasets` and `bnp-hier recommend`: describe data sets, and recommend methods for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.stats import skew

from bnp_hier import datasets as sets
from bnp_hier.advice.column_kinds import ColumnKind, dropping, infer_column_kinds
from bnp_hier.advice.preparation import UsablePart
from bnp_hier.advice.recommendation import default_budget
from bnp_hier.advice.recommendation import recommend as recommend_for
from bnp_hier.commands.console import (
    MOST_LISTED,
    out,
    print_json,
    print_table,
    print_warnings,
    program,
    size_in_words,
)
from bnp_hier.commands.options import Header, Json, Minutes, TableOptions, check_positive, is_file
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.conversions import features_of, order_of
from bnp_hier.datasets.recognition import ordered_scale
from bnp_hier.utils.wording import counted, listed

__all__ = ["datasets", "recommend"]


MOST_EXAMPLES = 2
"""Largest number of columns in an example of the option, if no other kind is worth trying."""

SKEWED = 1.0
"""Skewness above which logarithms are an example."""

MOST_COLUMNS = 60
"""Largest number of columns that are shown."""


def datasets(
    name: Annotated[str | None, typer.Argument(help="Data set or file to describe.", show_default="list all data sets")] = None,
    header: Header = None,
    as_json: Json = False,
) -> None:
    """List the available data sets, or describe a data set or file: its size and the kinds of its columns."""
    if name is None:
        table = sets.listing()
        if as_json:
            print_json({"datasets": table.reset_index().to_dict("records")})
        else:
            print_table(table, "Data sets", "files are read from the folder given by the environment variable BNP_HIER_DATA")
        return
    part = TableOptions(name, header=header).read_usable()
    data = part.data
    kinds = () if data is None else infer_column_kinds(data.X, data.feature_names, data.categories, data.column_kinds)
    classes = None if data is None or data.y is None else len(np.unique(data.y))
    title, description = (Path(name).name, "") if data is None else (data.name, data.description)
    if as_json:
        columns = [kind._asdict() for kind in (*unusable_kinds(part), *kinds)]
        print_json({"name": title, "rows": part.rows, "classes": classes, "description": description, "columns": columns})
        return
    if data is None or part.unusable:
        bad = len(part.unusable)
        d = bad + (0 if data is None else len(data.source_columns))
        which = "which" if d == 1 else f"of which {bad}"
        out.print(f"{title}: {counted(part.rows, 'row')}, {counted(d, 'column')}, {which} cannot be used")
    else:
        known = "no known classes" if classes is None else f"{classes} known classes"
        out.print(f"{title}: {description}\n{size_in_words(data)}, {known}")
    shown = print_columns(part, kinds)
    if is_file(name):
        _print_options(part, shown, ", add to the other commands")


def _print_options(part: UsablePart, shown: Sequence[ColumnKind], where: str = "") -> None:
    """The options that treat columns differently, or leave them out, to be pasted."""
    otherwise, without = taking_otherwise(part, shown), leaving_out(part, shown)
    if otherwise:
        out.print(f"to treat columns differently{where}: {otherwise}", soft_wrap=True)
    if without:
        what = "unusable and uninformative" if part.unusable else "uninformative"
        out.print(f"to leave out {what} columns{where}: {without}", soft_wrap=True)


def recommend(
    table: TableOptions,
    *,
    minutes: Minutes = None,
    as_json: Json = False,
) -> None:
    """Recommend a likelihood and the methods that fit the time budget, and warn about questionable choices.

    It says what each column is taken for, and how to treat it differently. Columns that cannot be used are left out, and
    the reasons are shown. For continuous columns, the covariance structures of the clusters are compared by fits of MAP-DP;
    nothing else is run. `bnp-hier compare` with the same options runs the recommended methods.
    """
    check_positive(minutes=minutes)
    part = table.read_usable()
    whole = part.data
    if whole is None:
        reasons = ""
        if as_json:  # standard output has nothing but an object
            reasons = f" ({listed((f'{each.name!r}: {each.reason}' for each in part.unusable), MOST_LISTED)})"
        else:
            print_columns(part, ())
        raise ValueError(f"{Path(table.data).name}: no column can be used to find clusters{reasons}")
    budget = None if minutes is None else 60 * minutes
    advice = recommend_for(whole, family=table.family, budget=budget)
    if as_json:
        methods = [{"name": a.name, "run": a.chosen, "seconds": a.seconds, "reason": a.reason} for a in advice.methods]
        print_json(
            {
                "data": whole.name,
                "family": advice.family,
                "reason": advice.family_reason,
                "columns": [kind._asdict() for kind in (*unusable_kinds(part), *advice.columns)],
                "structures": [structure._asdict() for structure in advice.structures],
                "methods": methods,
                "warnings": advice.warnings,
            }
        )
        return
    out.print(f"{whole.name}: family {advice.family}: {advice.family_reason}", soft_wrap=True)
    shown = print_columns(part, advice.columns)
    if is_file(table.data):
        _print_options(part, shown)
    if advice.structures:
        import pandas as pd

        compared = pd.DataFrame(advice.structures).set_index("covariance").round(1)
        print_table(
            compared,
            "Covariance matrices of the clusters",
            "nats; the score is the log joint less the cost of the hyperparameters",
        )
    methods = advice.table()[["run", "minutes", "reason"]]
    methods["minutes"] = [f"{value:.1f}" for value in methods["minutes"]]
    allowed = (default_budget(len(whole.X)) if budget is None else budget) / 60
    print_table(methods, "Methods", f"expected minutes on two cores; the budget for all is {allowed:.1f} (--minutes)")
    print_warnings(advice.warnings)
    if part.unusable:
        # --kinds rejects columns that are left out
        used = [f"{name}={kind}" for name, kind in table.given_kinds.items() if name in whole.kinds]
        words = {"--family": None if table.family == "auto" else table.family, "--minutes": minutes}
        again = table.command_line("compare", words, kinds=[",".join(used)] if used else None)
        out.print(f"to run them: {shlex.quote(program())} {again} {leaving_out(part, shown)}", soft_wrap=True)
    else:
        out.print("to run them, use bnp-hier compare with the same options")


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
