"""`bnp-hier fit` and `bnp-hier predict`: save the fit of one method, and assign new rows to its clusters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bnp_hier import datasets
from bnp_hier.advice.fit_checks import check_fit
from bnp_hier.clustering.plans import compile_ahead
from bnp_hier.commands.console import (
    INCOMPLETE,
    announced_finishing,
    err,
    out,
    print_json,
    print_table,
    print_warnings,
)
from bnp_hier.commands.options import ChainOptions, Header, Json, MixtureOptions, TableOptions, is_file
from bnp_hier.commands.output_files import check_outputs
from bnp_hier.comparison import compare, shared_component
from bnp_hier.datasets import Dataset
from bnp_hier.methods import METHODS, run_methods
from bnp_hier.posterior.outliers import outlier_pvalues
from bnp_hier.reports.headlines import large_in_words
from bnp_hier.reports.known_classes import classes_verdict
from bnp_hier.runs.saved_fit import SavedFit, load_fit
from bnp_hier.utils.files import write_text
from bnp_hier.utils.interruption import finishing
from bnp_hier.utils.spreadsheets import csv_text
from bnp_hier.utils.wording import counted, listed

__all__ = ["fit", "fitted", "predict", "write_clusters"]

MOST_SHOWN = 20
"""Maximum number of predictions that are printed row by row."""


def fit(
    table: TableOptions,
    *,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "map-dp",
    mixture: MixtureOptions,
    out_file: Annotated[Path, typer.Option("--out", help="File for the fit; load it with bnp_hier.load_fit.")] = Path(
        "fit.npz"
    ),
    labels_file: Annotated[Path | None, typer.Option("--labels", help="CSV file for the cluster labels of all rows.")] = None,
    chains: ChainOptions,
    as_json: Json = False,
) -> None:
    """Cluster a data set with one method, and save the fit for `predict`, `tree` and Python."""
    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}, but it is {method!r}")
    check_outputs({"the data": table.data}, {"--out": out_file, "--labels": labels_file})
    compile_ahead([method])
    saved, problems = fitted(method, table, mixture, chains)
    data, title, hierarchical = saved.data, METHODS[method].title, METHODS[method].hierarchical
    if not hierarchical and (component := shared_component({title: saved.fit}, data.X)) is not None:
        misfits = check_fit(component, data.X, saved.labels, data.feature_names, random_state=chains.seed).sentences
        print_warnings(misfits)
        saved = replace(saved, notes=(*saved.notes, *misfits)) if misfits else saved
    with finishing(lambda: announced_finishing("the fit")):
        path = saved.save(out_file)
        if labels_file is not None:
            write_clusters(labels_file, data, {title: saved.labels})
    summary, lines = _of_trees(saved) if hierarchical else _of_partition(saved)
    sizes = np.bincount(saved.labels)  # in the order of the cluster numbers that `predict` reports
    if as_json:
        report = {"data": data.name, "method": method, "family": saved.family, **summary}
        print_json({**report, "sizes": sizes, "notes": saved.notes, "file": path})
    else:
        unequal = large_in_words(sizes)
        found = f"{counted(len(sizes), 'cluster')}, numbered from 0, of sizes {listed(sizes, 12)}"
        out.print(f"{title}: {found}{f'; {unequal}' if unequal else ''}")
        for line in lines:
            out.print(line)
        print_warnings(problems)
        out.print(f"fit: {path}", soft_wrap=True)
    if problems:
        raise typer.Exit(INCOMPLETE)


def fitted(method: str, table: TableOptions, mixture: MixtureOptions, chains: ChainOptions) -> tuple[SavedFit, tuple[str, ...]]:
    """The fit of one method to a table, with warnings about the model as notes; and what went wrong, which is noted too."""
    data = table.read()
    chosen, warnings = table.choose_component(data, mixture.concentration)
    outcome = run_methods([method], mixture.model(chosen.prior, METHODS[method]), data.X, chains.of_run())
    title, problems = METHODS[method].title, tuple(outcome.problems)
    if title not in outcome.fits:
        if outcome.interrupted:
            raise KeyboardInterrupt
        raise ValueError("; ".join(problems))
    notes = (*problems, *warnings)
    return SavedFit(outcome.fits[title], data, method, chosen.name, outcome.seconds[title], notes), problems


def _of_partition(saved: SavedFit) -> tuple[dict[str, Any], list[str]]:
    """Summarise a clustering as numbers and as lines of text."""
    title = METHODS[saved.method].title
    row = compare({title: saved.fit}, saved.data.X, truth=saved.data.truth, seconds={title: saved.seconds}).iloc[0]
    summary = {str(name): value for name, value in row.items() if not str(name).startswith("NMI ")}
    evidence = f"log evidence at least {row['evidence_bound']:.1f} nats ({row['bound_kind']})"
    lines = [f"log joint {row['log_joint']:.1f} nats, {evidence}"]
    if saved.data.classes is not None:
        scores = {str(name): float(score) for name, score in row.items() if str(name).startswith("ARI")}
        lines += classes_verdict(title, saved.labels, saved.data.classes, saved.data.truths, scores)
    return summary, lines


def _of_trees(saved: SavedFit) -> tuple[dict[str, Any], list[str]]:
    """Summarise a hierarchical mixture as numbers and as lines of text."""
    from bnp_hier.reports.tree_page import SampledTree

    sampled = SampledTree.of(saved.fit, saved.data, (), saved.seconds)
    summary = {
        "clusters": int(saved.labels.max()) + 1,
        "rhat": float(sampled.diagnostics["rhat"].max()),
        "seconds": saved.seconds,
        "findings": sampled.notes,
    }
    about = "the clusters are the leaves of the medoid tree, which `bnp-hier tree` draws"
    return summary, [about, *(f"• {note}" for note in sampled.notes)]


def predict(
    fit_file: Annotated[Path, typer.Argument(help="File written by `bnp-hier fit`, or fit.npz of `bnp-hier compare`.")],
    data: Annotated[
        str, typer.Argument(help="New rows: a file with the columns of the fit (other columns are ignored), or a data set.")
    ],
    items: Annotated[
        str | None, typer.Option(help="Column with the names of the rows.", show_default="that of the fit, if the file has it")
    ] = None,
    header: Header = None,
    out_file: Annotated[Path, typer.Option("--out", help="CSV file for the predictions, or - to print them.")] = Path(
        "predictions.csv"
    ),
    as_json: Json = False,
) -> None:
    """Assign new rows to the clusters of a saved fit.

    For every row, report the most probable cluster and its probability, the probability of a new cluster, the log density, and
    (except for bhmc) the p-value of this density: the probability that a row of the model has at most this density.
    """
    import pandas as pd

    to_stdout = str(out_file) == "-"
    if to_stdout and as_json:
        raise ValueError("--out - and --json both write to standard output; expected one of them")
    check_outputs({"the fit": fit_file, "the data": data}, {"--out": None if to_stdout else out_file})
    said = err if to_stdout else out
    saved = load_fit(fit_file)
    X, names = _new_rows(data, saved.data, items, header)
    probabilities = saved.predict_proba(X)
    cluster = probabilities.argmax(axis=1)
    table = pd.DataFrame(
        {
            "item": np.arange(len(X)) if names is None else names,
            "cluster": cluster,
            "probability": probabilities.max(axis=1),
            "probability_of_a_new_cluster": probabilities[:, -1],
            "log_density": saved.score_samples(X),
        }
    )
    if saved.trees is None:
        table["p_value"] = outlier_pvalues(saved.fit, saved.data.X, X)
    text = csv_text(table, index=False)
    if to_stdout:
        out.file.write(text)
    else:
        write_text(out_file, text)
    new = int((cluster == probabilities.shape[1] - 1).sum())
    if as_json:
        print_json({"rows": table.to_dict("records"), "clusters": probabilities.shape[1] - 1, "new": new, "file": out_file})
        return
    sizes = np.bincount(cluster, minlength=probabilities.shape[1])
    said.print(f"{counted(len(X), 'row')}, mean log density {table['log_density'].mean():.3f} nats")
    if len(X) <= MOST_SHOWN and not to_stdout:
        print_table(table.set_index("item"), "Predictions", f"cluster {len(sizes) - 1} denotes a new cluster" if new else "")
    else:
        found = ", ".join(f"cluster {k}: {size}" for k, size in enumerate(sizes[:-1][:12]) if size)
        said.print(f"rows assigned to {found or 'no cluster of the fit'}; to a new cluster: {new}")
    if not to_stdout:
        out.print(f"predictions: {out_file}", soft_wrap=True)


def write_clusters(path: Path, data: Dataset, labels: dict[str, np.ndarray]) -> None:
    """Write a CSV file with one row per item: its name or number, its class if known, and its cluster by each method."""
    import pandas as pd

    frame = pd.DataFrame({"item": data.item_names if data.item_names is not None else np.arange(len(data.X))})
    if data.y is not None:
        frame["truth"] = data.y
    write_text(path, csv_text(frame.assign(**labels), index=False))


def _new_rows(data: str, fitted: Dataset, items: str | None, header: bool | None) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Read the columns of the fit, in its order, and the names of the rows, by default from the column that named its rows."""
    if is_file(data):
        X, names = datasets.read_columns(data, fitted, items=items, header=header)
        if names is None and fitted.items is not None:
            err.print(f"{Path(data).name} has no column {fitted.items!r}, which named the rows of the fit: rows are numbered")
        return X, names
    if items is not None:
        raise ValueError("--items applies only to files; a named data set has its own row names")
    known = datasets.load(data)
    missing = [name for name in fitted.feature_names if name not in known.feature_names]
    if missing:
        raise ValueError(f"data set {data!r} has no column {missing[0]!r}, which the fit requires")
    return known.X[:, [known.feature_names.index(name) for name in fitted.feature_names]], known.item_names
