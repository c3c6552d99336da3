"""`bnp-hier datasets` and `bnp-hier recommend`: describe data sets, and recommend methods for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bnp_hier import datasets as sets
from bnp_hier.advice.column_kinds import ColumnKind, infer_column_kinds
from bnp_hier.advice.recommendation import default_budget
from bnp_hier.advice.recommendation import recommend as recommend_for
from bnp_hier.commands.console import (
    MOST_LISTED,
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
    command_line,
    counted,
    is_file,
    out,
    print_json,
    print_table,
    print_warnings,
    program,
    read_usable,
    size_in_words,
)
from bnp_hier.commands.described_columns import leaving_out, print_columns, taking_otherwise, unusable_kinds
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.conversions import parse_kinds
from bnp_hier.datasets.tabular import UsablePart
from bnp_hier.utils.wording import listed

__all__ = ["datasets", "recommend"]


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
    part = read_usable(name, header=header)
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
        out.print(f"{title}: {counted(part.rows, 'row')}, {counted(d, 'column')}, {which} cannot be used", highlight=False)
    else:
        known = "no known classes" if classes is None else f"{classes} known classes"
        out.print(f"{title}: {description}\n{size_in_words(data)}, {known}", highlight=False)
    shown = print_columns(part, kinds)
    if is_file(name):
        _print_options(part, shown, ", add to the other commands")


def _print_options(part: UsablePart, shown: Sequence[ColumnKind], where: str = "") -> None:
    """The options that treat columns differently, or leave them out, to be pasted."""
    otherwise, without = taking_otherwise(part, shown), leaving_out(part, shown)
    if otherwise:
        out.print(f"to treat columns differently{where}: {otherwise}", highlight=False, soft_wrap=True)
    if without:
        what = "unusable and uninformative" if part.unusable else "uninformative"
        out.print(f"to leave out {what} columns{where}: {without}", highlight=False, soft_wrap=True)


def _given_kinds(words: Sequence[str] | None, data: Dataset) -> list[str]:
    """The given kinds of the columns that are used, as a value of --kinds, which rejects columns that are left out."""
    used = [f"{name}={kind}" for name, kind in parse_kinds(words or ()).items() if name in data.kinds]
    return [",".join(used)] if used else []


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

    It says what each column is taken for, and how to treat it differently. Columns that cannot be used are left out, and
    the reasons are shown. For continuous columns, the covariance structures of the clusters are compared by fits of MAP-DP;
    nothing else is run. `bnp-hier compare` with the same options runs the recommended methods.
    """
    check_positive(minutes=minutes)
    part = read_usable(data, truth, items, drop, kinds, header)
    whole = part.data
    if whole is None:
        reasons = ""
        if as_json:  # standard output has nothing but an object
            reasons = f" ({listed((f'{each.name!r}: {each.reason}' for each in part.unusable), MOST_LISTED)})"
        else:
            print_columns(part, ())
        raise ValueError(f"{Path(data).name}: no column can be used to find clusters{reasons}")
    budget = None if minutes is None else 60 * minutes
    advice = recommend_for(whole, family=family, budget=budget)
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
    out.print(f"{whole.name}: family {advice.family}: {advice.family_reason}", highlight=False, soft_wrap=True)
    shown = print_columns(part, advice.columns)
    if is_file(data):
        _print_options(part, shown)
    if advice.structures:
        import pandas as pd

        compared = pd.DataFrame(advice.structures).set_index("covariance").round(1)
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
    if part.unusable:
        words = {"--items": items, "--family": None if family == "auto" else family, "--minutes": minutes}
        again = command_line(
            "compare", data, words, {"--truth": truth, "--drop": drop, "--kinds": _given_kinds(kinds, whole)}, header
        )
        what = f"{shlex.quote(program())} {again} {leaving_out(part, shown)}"
        out.print(f"to run them: {what}", highlight=False, soft_wrap=True)
    else:
        out.print("to run them, use bnp-hier compare with the same options", highlight=False)
