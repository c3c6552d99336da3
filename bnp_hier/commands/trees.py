"""`bnp-hier tree`: a binary tree of merges or a tree with any branching, as Newick text, a figure or a web page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnp_hier.capabilities import BinaryTree, EvidenceBound
from bnp_hier.commands.console import INCOMPLETE, err, out, print_json, print_warnings
from bnp_hier.commands.fitting import fitted
from bnp_hier.commands.options import ChainOptions, Json, MixtureOptions, TableOptions
from bnp_hier.commands.output_files import FIGURES, check_outputs
from bnp_hier.methods import METHODS
from bnp_hier.reports.verdicts import clusters_at_cuts
from bnp_hier.runs.saved_fit import SavedFit, is_saved_fit, load_fit
from bnp_hier.utils.files import replacing, write_text
from bnp_hier.utils.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["tree"]

TREE_METHODS = ("bhc", "bhmc")
FORMATS = (".nwk", ".newick", *FIGURES, ".html")


def tree(
    table: TableOptions,
    *,
    method: Annotated[
        str,
        typer.Option(
            help="bhc: a binary tree with the probability of every merge. bhmc: a tree with any branching, sampled by MCMC, "
            "with the share of draws that contain each node."
        ),
    ] = "bhc",
    mixture: MixtureOptions,
    threshold: Annotated[float, typer.Option(help="Merge probability below which a binary tree is cut.")] = 0.5,
    out_files: Annotated[
        list[Path] | None,
        typer.Option("--out", help=f"File to write; its suffix sets the format: {', '.join(FORMATS)}. May be repeated."),
    ] = None,
    chains: ChainOptions,
    as_json: Json = False,
) -> None:
    """Build a tree with the probability of every merge or node, and write it as Newick text, a figure or a web page.

    DATA may also be a file, of any name, saved by `bnp-hier fit` with the method bhc, agglomerative or bhmc.
    Without --out, the tree is printed as Newick text.
    """
    if method not in TREE_METHODS:
        raise ValueError(f"--method must be one of {', '.join(TREE_METHODS)}, but it is {method!r}")
    if not 0 <= threshold <= 1:
        raise ValueError(f"--threshold must be a probability, but it is {threshold}")
    files = out_files or []
    unknown = next((file for file in files if file.suffix.lower() not in FORMATS), None)
    if unknown is not None:
        raise ValueError(f"{unknown}: found a file name ending in {unknown.suffix!r}, expected {', '.join(FORMATS)}")
    is_saved = is_saved_fit(table.data)
    check_outputs({"the fit" if is_saved else "the data": table.data}, {"--out": files})
    problems: Sequence[str] = ()
    if is_saved:
        saved = load_fit(table.data)
        notes = saved.notes
    else:
        saved, problems = fitted(method, table, mixture, chains)
        notes = ()  # they have been printed
    if saved.trees is not None:
        content, remarks = _write_sampled(saved, files, problems, notes)
    elif isinstance(saved.fit, BinaryTree):
        content, remarks = _write_merges(saved.fit, saved, threshold, files)
    else:
        raise ValueError(
            f"{table.data} contains a fit by {saved.method}, which has no tree; expected a fit by bhc, agglomerative or bhmc"
        )
    if as_json:
        print_json({"data": saved.data.name, **content, "files": files})
    else:
        for remark in remarks:
            err.print(remark)
        if saved.trees is not None:
            print_warnings(problems)
        if not files:
            out.print(content["newick"], soft_wrap=True)
        for file in files:
            out.print(f"tree: {file}", soft_wrap=True)
    if problems:
        raise typer.Exit(INCOMPLETE)


def _write_merges(
    fit: BinaryTree, saved: SavedFit, threshold: float, files: Sequence[Path]
) -> tuple[dict[str, Any], list[str]]:
    """Write a binary tree of merges; return what --json prints, and remarks."""
    from bnp_hier.reports.tree_page import tree_figure, write_tree_page

    merges, data = fit.dendrogram_, saved.data
    labels, newick = merges.cut(threshold), merges.to_newick(data.item_names)
    title = f"{data.name}: tree by {METHODS[saved.method].title if saved.method in METHODS else saved.method}"
    _write(
        files,
        newick,
        draw=lambda: tree_figure(merges, names=data.item_names, threshold=threshold),
        write_page=lambda file: write_tree_page(
            file, merges, title=title, names=data.item_names, threshold=threshold, classes=data.classes
        ),
    )
    content = {
        "newick": newick,
        "labels": labels,
        "children": merges.children,
        "merge_probability": merges.probabilities,
        # the log joint of one partition is a lower bound, too
        "log_evidence_bound": fit.log_evidence_bound_ if isinstance(fit, EvidenceBound) else saved.fit.log_joint_,
    }
    cuts = ", ".join(f"{at:g}: {clusters}" for at, clusters in clusters_at_cuts(merges).items())
    found = counted(int(labels.max()) + 1, "cluster")
    return content, [f"cut at merge probability {threshold:g}: {found} (cut at {cuts})"]


def _write_sampled(
    saved: SavedFit, files: Sequence[Path], problems: Sequence[str], notes: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Write the medoid tree of the chains; return what --json prints, and remarks."""
    from bnp_hier.reports.tree_page import SampledTree

    data = saved.data
    sampled = SampledTree.of(saved.fit, data, problems, saved.seconds)
    sampled.notes.extend(notes)
    newick = sampled.tree.to_newick(data.item_names)
    _write(files, newick, draw=lambda: sampled.figure(data), write_page=lambda file: sampled.write_page(file, data))
    content = {
        "newick": newick,
        "paths": sampled.tree.paths,
        "support": sampled.support,
        "notes": sampled.notes,
        "problems": sampled.problems,
    }
    return content, [f"• {note}" for note in sampled.notes]


def _write(files: Sequence[Path], newick: str, *, draw: Callable[[], Figure], write_page: Callable[[Path], Path]) -> None:
    """Write each file in the format that its suffix names."""
    for file in files:
        if file.suffix.lower() in FIGURES:
            with replacing(file) as draft:
                draw().savefig(draft, dpi=150)
        elif file.suffix.lower() == ".html":
            write_page(file)
        else:
            write_text(file, newick + "\n")
