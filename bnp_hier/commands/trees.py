"""`bnp-hier tree`: the tree of Bayesian hierarchical clustering, in the format of the file asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bnp_hier.column_kinds import component_for
from bnp_hier.commands.console import (
    Concentration,
    Data,
    Drop,
    Family,
    Items,
    Json,
    Progress,
    Seed,
    Truth,
    check_positive,
    err,
    out,
    print_json,
    print_warnings,
    read_data,
)
from bnp_hier.commands.model_options import mixture
from bnp_hier.datasets import Dataset
from bnp_hier.deterministic import BHC
from bnp_hier.model_checks import check_model
from bnp_hier.routes import ROUTES, RunOptions
from bnp_hier.saved_fit import load_fit

__all__ = ["tree"]

PICTURES = (".png", ".svg", ".pdf")
FORMATS = (".nwk", ".newick", *PICTURES, ".html")


def tree(
    data: Data,
    truth: Truth = None,
    drop: Drop = None,
    items: Items = None,
    family: Family = "auto",
    concentration: Concentration = None,
    threshold: Annotated[float, typer.Option(help="Merge probability below which a branch is cut.")] = 0.5,
    out_files: Annotated[
        list[Path] | None,
        typer.Option("--out", help=f"File to write; its suffix says the format: {', '.join(FORMATS)}. May be repeated."),
    ] = None,
    seed: Seed = 0,
    progress: Progress = True,
    as_json: Json = False,
) -> None:
    """Build a tree with the probability of every merge, and write it as Newick text, a picture, or a web page.

    DATA may also be a file of `bnp-hier fit --method bhc`. Without --out, the tree is printed as Newick text.
    """
    check_positive(concentration=concentration)
    if not 0 <= threshold <= 1:
        raise ValueError(f"--threshold must be a probability, but it is {threshold}")
    files = out_files or []
    unknown = [file for file in files if file.suffix.lower() not in FORMATS]
    if unknown:
        raise ValueError(f"{unknown[0]}: found a file name ending in {unknown[0].suffix!r}, expected {', '.join(FORMATS)}")
    if data.endswith(".joblib"):
        saved = load_fit(data)
        if not isinstance(saved.fit, BHC):
            raise ValueError(f"{data} holds a fit of {ROUTES[saved.route].title}, which has no tree; use --method bhc")
        bhc, whole = saved.fit, saved.data
    else:
        whole = read_data(data, truth, items, drop)
        chosen = component_for(whole.X, family, whole.feature_names)
        model = mixture(chosen.component, concentration)
        err.print(f"{whole.name}: {len(whole.X)} rows, {whole.X.shape[1]} columns, family {chosen.name} ({chosen.reason})")
        print_warnings(check_model(model, whole.X, whole.feature_names))
        bhc = ROUTES["bhc"].run(model, whole.X, RunOptions(seed=seed, progress=progress))
    labels = bhc.dendrogram_.cut(threshold)
    for file in files:
        _write(file, bhc, whole, threshold)
    newick = bhc.dendrogram_.to_newick(whole.item_names)
    sizes = np.sort(np.bincount(labels))[::-1]
    if as_json:
        bound = bhc.log_evidence_bound_
        print_json({"data": whole.name, "newick": newick, "labels": labels, "log_evidence_bound": bound, "files": files})
        return
    if not files:
        out.print(newick, soft_wrap=True, highlight=False, markup=False)
    err.print(f"cut at merge probability {threshold:g}: {len(sizes)} clusters", highlight=False)
    for file in files:
        out.print(f"tree: {file}", highlight=False)


def _write(file: Path, bhc: BHC, data: Dataset, threshold: float) -> None:
    from bnp_hier.tree_page import tree_figure, write_tree_page

    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix.lower() in PICTURES:
        tree_figure(bhc.dendrogram_, names=data.item_names, threshold=threshold).savefig(file, dpi=150)
    elif file.suffix.lower() == ".html":
        title = f"{data.name}: tree of Bayesian hierarchical clustering"
        write_tree_page(file, bhc.dendrogram_, title=title, names=data.item_names, threshold=threshold, classes=data.y)
    else:
        file.write_text(bhc.dendrogram_.to_newick(data.item_names) + "\n", encoding="utf-8")
