"""`bnp-hier datasets` and `bnp-hier recommend`: describe data sets, and recommend methods for them."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from bnp_hier import datasets as sets
from bnp_hier.advice.column_kinds import infer_column_kinds
from bnp_hier.advice.recommendation import default_budget
from bnp_hier.advice.recommendation import recommend as recommend_for
from bnp_hier.commands.console import (
    Data,
    Drop,
    Family,
    Header,
    Items,
    Json,
    Minutes,
    Truth,
    check_positive,
    out,
    print_json,
    print_table,
    print_warnings,
    read_data,
)

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
    data = read_data(name, header=header)
    kinds = infer_column_kinds(data.X, data.feature_names, data.categories)
    classes = None if data.y is None else len(np.unique(data.y))
    n, d = data.X.shape
    if as_json:
        columns = [kind._asdict() for kind in kinds]
        print_json({"name": data.name, "rows": n, "classes": classes, "description": data.description, "columns": columns})
        return
    out.print(f"{data.name}: {data.description}", highlight=False)
    out.print(
        f"{n} rows, {d} columns, {'no known classes' if classes is None else f'{classes} known classes'}", highlight=False
    )
    import pandas as pd

    frame = pd.DataFrame([(k.name, k.kind, k.reason, k.missing) for k in kinds[:60]], columns=["column", *"abc"])
    frame = frame.set_index("column").set_axis(["kind", "values", "missing"], axis=1)
    print_table(frame, "Columns", f"and {d - 60} more" if d > 60 else "")


def recommend(
    data: Data,
    truth: Truth = None,
    drop: Drop = None,
    items: Items = None,
    header: Header = None,
    family: Family = "auto",
    minutes: Minutes = None,
    as_json: Json = False,
) -> None:
    """Recommend a likelihood and the methods that fit the time budget, and warn about questionable choices.

    For continuous columns, the covariance structures of the clusters are compared by fits of MAP-DP; nothing else is run.
    `bnp-hier compare` with the same options runs the recommended methods.
    """
    check_positive(minutes=minutes)
    whole = read_data(data, truth, items, drop, header)
    budget = None if minutes is None else 60 * minutes
    advice = recommend_for(
        whole.X, family=family, feature_names=whole.feature_names, categories=whole.categories, budget=budget
    )
    if as_json:
        methods = [{"name": a.name, "run": a.chosen, "seconds": a.seconds, "reason": a.reason} for a in advice.methods]
        print_json(
            {
                "data": whole.name,
                "family": advice.family,
                "reason": advice.family_reason,
                "structures": [structure._asdict() for structure in advice.structures],
                "methods": methods,
                "warnings": advice.warnings,
            }
        )
        return
    out.print(f"{whole.name}: family {advice.family}: {advice.family_reason}", highlight=False, soft_wrap=True)
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
