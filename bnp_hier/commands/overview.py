"""`bnp-hier datasets` and `bnp-hier recommend`: describe data sets, and recommend methods for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer

from bnp_hier import datasets as sets
from bnp_hier.advice.column_kinds import ColumnKind, dropping, infer_column_kinds
from bnp_hier.advice.recommendation import default_budget
from bnp_hier.advice.recommendation import recommend as recommend_for
from bnp_hier.commands.console import (
    Data,
    Drop,
    Family,
    Header,
    Items,
    Json,
    Kinds,
    Minutes,
    Truth,
    check_positive,
    is_file,
    out,
    print_json,
    print_table,
    print_warnings,
    read_data,
)
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.conversions import features_of, order_of
from bnp_hier.datasets.recognition import ordered_scale

__all__ = ["datasets", "recommend"]

MOST_OFFERED = 8
"""Largest number of columns in the option that is offered."""

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
    data = read_data(name, header=header)
    kinds = infer_column_kinds(data.X, data.feature_names, data.categories, data.column_kinds)
    classes = None if data.y is None else len(np.unique(data.y))
    n, d = len(data.X), len(data.source_columns)
    if as_json:
        columns = [kind._asdict() for kind in kinds]
        print_json({"name": data.name, "rows": n, "classes": classes, "description": data.description, "columns": columns})
        return
    out.print(f"{data.name}: {data.description}", highlight=False)
    out.print(
        f"{n} rows, {d} columns, {'no known classes' if classes is None else f'{classes} known classes'}", highlight=False
    )
    _print_columns(data, kinds, is_file(name))


def _print_columns(data: Dataset, kinds: Sequence[ColumnKind], of_file: bool) -> None:
    """What each column is taken for and why, and what else it might be; the indicators of a category are one column.

    For a file, the options that take columns for something else, or leave them out, are printed to be pasted.
    """
    import pandas as pd

    of = {kind.name: kind for kind in kinds}
    whole: dict[str, ColumnKind] = {}
    for name in [*data.levels, *(name for name, kind in data.kinds.items() if order_of(kind))]:
        levels, kind = data.levels.get(name, ()), data.kinds.get(name)
        names = features_of(name, kind, levels)
        scale = ordered_scale(levels)
        order = f", which seem ordered: {' < '.join(scale)}" if scale else ""
        reason = f"{len(levels)} values{order}" if levels else f"from low to high: {(kind or '').replace('<', ', ')}"
        what = "category" if levels else "ordered"
        whole |= dict.fromkeys(names, ColumnKind(name, what, reason, of[names[0]].missing, "<".join(scale)))
    shown = list(dict.fromkeys(whole.get(kind.name, kind) for kind in kinds))
    rows = [(k.name, k.kind, k.reason, k.alternative or None, f"{k.missing:.0%}" if k.missing else None) for k in shown]
    frame = pd.DataFrame(rows[:MOST_COLUMNS], columns=["column", "taken as", "because", "or", "missing"]).set_index("column")
    more = f"and {len(rows) - MOST_COLUMNS} more" if len(rows) > MOST_COLUMNS else ""
    print_table(frame.dropna(axis=1, how="all"), "Columns", more)
    if not of_file:
        return
    others = [f"{kind.name}={kind.alternative}" for kind in shown if kind.alternative not in ("", "drop")]
    example = ",".join(others[:MOST_OFFERED]) or "a=count,b=category"
    out.print(f"to take columns for something else: --kinds {shlex.quote(example)}", highlight=False, soft_wrap=True)
    useless = [kind for kind in shown if kind.alternative == "drop"]
    if useless:
        out.print(f"to leave out columns that say nothing about clusters: {dropping(useless)}", highlight=False, soft_wrap=True)


def recommend(
    data: Data,
    truth: Truth = None,
    drop: Drop = None,
    kinds: Kinds = None,
    items: Items = None,
    header: Header = None,
    family: Family = "auto",
    minutes: Minutes = None,
    as_json: Json = False,
) -> None:
    """Recommend a likelihood and the methods that fit the time budget, and warn about questionable choices.

    It says what each column is taken for, and how to take it for something else. For continuous columns, the covariance
    structures of the clusters are compared by fits of MAP-DP; nothing else is run. `bnp-hier compare` with the same options
    runs the recommended methods.
    """
    check_positive(minutes=minutes)
    whole = read_data(data, truth, items, drop, kinds, header)
    budget = None if minutes is None else 60 * minutes
    advice = recommend_for(whole, family=family, budget=budget)
    if as_json:
        methods = [{"name": a.name, "run": a.chosen, "seconds": a.seconds, "reason": a.reason} for a in advice.methods]
        print_json(
            {
                "data": whole.name,
                "family": advice.family,
                "reason": advice.family_reason,
                "columns": [kind._asdict() for kind in advice.columns],
                "structures": [structure._asdict() for structure in advice.structures],
                "methods": methods,
                "warnings": advice.warnings,
            }
        )
        return
    out.print(f"{whole.name}: family {advice.family}: {advice.family_reason}", highlight=False, soft_wrap=True)
    _print_columns(whole, advice.columns, is_file(data))
    if advice.structures:
        import pandas as pd

        compared = pd.DataFrame(advice.structures).set_index("covariance")[["family", "score", "log_joint", "clusters"]]
        compared[["score", "log_joint"]] = compared[["score", "log_joint"]].round(1)
        print_table(
            compared,
            "Covariance matrices of the clusters",
            "nats; the score is the log joint less the cost of the hyperparameters",
        )
    table = advice.table()[["run", "minutes", "reason"]]
    table["minutes"] = [f"{value:.1f}" for value in table["minutes"]]
    allowed = (default_budget(len(whole.X)) if budget is None else budget) / 60
    print_table(table, "Methods", f"expected minutes on two cores; the budget for all is {allowed:.1f} (--minutes)")
    print_warnings(advice.warnings)
    out.print("to run them, use bnp-hier compare with the same options", highlight=False)
