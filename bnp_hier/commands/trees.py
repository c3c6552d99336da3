"""`bnp-hier tree`: a binary tree of merges or a tree with any branching, as Newick text, a figure or a web page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bnp_hier.advice.column_kinds import component_for
from bnp_hier.advice.default_models import hierarchical_mixture, mixture
from bnp_hier.advice.model_checks import check_model
from bnp_hier.capabilities import BinaryTree, EvidenceBound
from bnp_hier.commands.console import (
    INCOMPLETE,
    Chains,
    Data,
    Depth,
    Drop,
    Family,
    FixedSamples,
    FixedWarmup,
    Header,
    Items,
    Json,
    Kinds,
    MixtureConcentration,
    Progress,
    Seed,
    Truth,
    check_positive,
    counted,
    err,
    out,
    print_json,
    print_warnings,
    read_data,
    size_in_words,
)
from bnp_hier.commands.output_files import FIGURES, check_outputs
from bnp_hier.datasets import Dataset
from bnp_hier.methods import METHODS, RunOptions, run_methods
from bnp_hier.reports.verdicts import clusters_at_cuts
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.runs.saved_fit import is_saved_fit, load_fit
from bnp_hier.utils.files import replacing, write_text

__all__ = ["tree"]

TREE_METHODS = ("bhc", "bhmc")
FORMATS = (".nwk", ".newick", *FIGURES, ".html")


def tree(
    data: Data,
    method: Annotated[
        str,
        typer.Option(
            help="bhc: a binary tree with the probability of every merge. bhmc: a tree with any branching, sampled by MCMC, "
            "with the share of draws that contain each node."
        ),
    ] = "bhc",
    truth: Truth = None,
    drop: Drop = None,
    kinds: Kinds = None,
    items: Items = None,
    header: Header = None,
    family: Family = "auto",
    concentration: MixtureConcentration = None,
    threshold: Annotated[float, typer.Option(help="Merge probability below which a binary tree is cut.")] = 0.5,
    depth: Depth = 3,
    out_files: Annotated[
        list[Path] | None,
        typer.Option("--out", help=f"File to write; its suffix sets the format: {', '.join(FORMATS)}. May be repeated."),
    ] = None,
    seed: Seed = 0,
    chains: Chains = 4,
    warmup: FixedWarmup = None,
    samples: FixedSamples = None,
    progress: Progress = True,
    as_json: Json = False,
) -> None:
    """Build a tree with the probability of every merge or node, and write it as Newick text, a figure or a web page.

    DATA may also be a file, of any name, saved by `bnp-hier fit` with the method bhc, agglomerative or bhmc.
    Without --out, the tree is printed as Newick text.
    """
    if method not in TREE_METHODS:
        raise ValueError(f"--method must be one of {', '.join(TREE_METHODS)}, but it is {method!r}")
    check_positive(concentration=concentration, chains=chains, warmup=warmup, samples=samples, depth=depth)
    if not 0 <= threshold <= 1:
        raise ValueError(f"--threshold must be a probability, but it is {threshold}")
    files = out_files or []
    unknown = [file for file in files if file.suffix.lower() not in FORMATS]
    if unknown:
        raise ValueError(f"{unknown[0]}: found a file name ending in {unknown[0].suffix!r}, expected {', '.join(FORMATS)}")
    check_outputs({"the fit" if is_saved_fit(data) else "the data": data}, {"--out": files})
    if is_saved_fit(data):
        saved = load_fit(data)
        if saved.trees is not None:
            _write_sampled(saved.fit, saved.data, saved.seconds, files, as_json, notes=saved.notes)
        elif isinstance(saved.fit, BinaryTree):
            _write_merges(saved.fit, saved.method, saved.data, threshold, files, as_json)
        else:
            raise ValueError(
                f"{data} contains a fit by {saved.method}, which has no tree; expected a fit by bhc, agglomerative or bhmc"
            )
        return
    whole = read_data(data, truth, items, drop, kinds, header)
    chosen = component_for(whole.X, family, whole.feature_names, whole.categories, whole.column_kinds)
    err.print(f"{whole.name}: {size_in_words(whole)}, family {chosen.name} ({chosen.reason})")
    model = mixture(chosen.prior, concentration)
    print_warnings(check_model(model, whole.X, whole.feature_names, kinds=whole.column_kinds))
    options = RunOptions(chains, warmup or 500, samples or 1000, random_state=seed, progress_bar=progress)
    if METHODS[method].hierarchical:
        model = hierarchical_mixture(chosen.prior, concentration, depth)
    outcome, title = run_methods([method], model, whole.X, options), METHODS[method].title
    if title not in outcome.fits:
        if outcome.interrupted:
            raise KeyboardInterrupt
        raise ValueError("; ".join(outcome.problems))
    fit = outcome.fits[title]
    if METHODS[method].hierarchical:
        _write_sampled(fit, whole, outcome.seconds[title], files, as_json, problems=outcome.problems)
    else:
        _write_merges(fit, method, whole, threshold, files, as_json)
    if outcome.problems:
        raise typer.Exit(INCOMPLETE)


def _write_merges(fit: BinaryTree, method: str, data: Dataset, threshold: float, files: list[Path], as_json: bool) -> None:
    """Write a binary tree of merges."""
    from bnp_hier.reports.tree_page import tree_figure, write_tree_page

    merges = fit.dendrogram_
    labels = merges.cut(threshold)
    newick = merges.to_newick(data.item_names)
    for file in files:
        if file.suffix.lower() in FIGURES:
            with replacing(file) as draft:
                tree_figure(merges, names=data.item_names, threshold=threshold).savefig(draft, dpi=150)
        elif file.suffix.lower() == ".html":
            title = f"{data.name}: tree by {METHODS[method].title if method in METHODS else method}"
            write_tree_page(file, merges, title=title, names=data.item_names, threshold=threshold, classes=data.classes)
        else:
            write_text(file, newick + "\n")
    if as_json:
        # the log joint of one partition is a lower bound, too
        bound = fit.log_evidence_bound_ if isinstance(fit, EvidenceBound) else fit.log_joint_
        print_json(
            {
                "data": data.name,
                "newick": newick,
                "labels": labels,
                "children": merges.children,
                "merge_probability": merges.probabilities,
                "log_evidence_bound": bound,
                "files": files,
            }
        )
        return
    cuts = ", ".join(f"{at:g}: {clusters}" for at, clusters in clusters_at_cuts(merges).items())
    found = counted(int(labels.max()) + 1, "cluster")
    err.print(f"cut at merge probability {threshold:g}: {found} (cut at {cuts})", highlight=False)
    _tell_files(newick, files)


def _write_sampled(
    run: ResumableRun,
    data: Dataset,
    seconds: float,
    files: list[Path],
    as_json: bool,
    problems: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write the medoid tree of the chains."""
    from bnp_hier.reports.tree_page import SampledTree

    sampled = SampledTree.of(run, data, problems, seconds)
    sampled.notes.extend(notes)
    newick = sampled.tree.to_newick(data.item_names)
    for file in files:
        if file.suffix.lower() in FIGURES:
            with replacing(file) as draft:
                sampled.figure(data).savefig(draft, dpi=150)
        elif file.suffix.lower() == ".html":
            sampled.write_page(file, data)
        else:
            write_text(file, newick + "\n")
    if as_json:
        print_json(
            {
                "data": data.name,
                "newick": newick,
                "paths": sampled.tree.paths,
                "support": sampled.support,
                "notes": sampled.notes,
                "problems": sampled.problems,
                "files": files,
            }
        )
        return
    for note in sampled.notes:
        err.print(f"• {note}", highlight=False)
    print_warnings(sampled.problems)
    _tell_files(newick, files)


def _tell_files(newick: str, files: list[Path]) -> None:
    """Print where the tree was written, or the tree itself if there is no file."""
    if not files:
        out.print(newick, soft_wrap=True, highlight=False, markup=False)
    for file in files:
        out.print(f"tree: {file}", highlight=False, soft_wrap=True)
