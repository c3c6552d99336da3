"""`bnp-hier compare`: all methods on one data set, in one table and one report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bnp_hier.capabilities import TreePosterior
from bnp_hier.clustering.plans import ClusteringOptions, ClusteringPlan
from bnp_hier.clustering.results import ClusteringResult
from bnp_hier.commands.console import (
    INCOMPLETE,
    NAME,
    Chains,
    Concentration,
    Data,
    Drop,
    Family,
    Header,
    Items,
    Json,
    Kinds,
    Minutes,
    Progress,
    Samples,
    Seed,
    Truth,
    Warmup,
    announced_finishing,
    check_positive,
    command_line,
    err,
    is_file,
    method_names,
    out,
    print_json,
    print_table,
    print_warnings,
    program,
    read_data,
    size_in_words,
)
from bnp_hier.commands.fitting import write_clusters
from bnp_hier.commands.output_files import FIGURES as SUFFIXES
from bnp_hier.commands.output_files import check_outputs
from bnp_hier.methods import Outcome, partition_methods
from bnp_hier.utils.files import replacing, write_text
from bnp_hier.utils.interruption import finishing

__all__ = ["compare"]

FIGURES = "figures"
"""Folder of figure files, beside the report."""

SHOWN = {
    "clusters": "clusters",
    "log_posterior": "log posterior",
    "evidence_bound": "evidence ≥",
    "held_out": "held out",
    "ARI": "ARI",
    "rhat": "R-hat",
    "seconds": "seconds",
}
"""Columns of the comparison that a terminal of 80 columns has room for, and their headings."""

FIT = "fit.npz"
"""File beside the report that `bnp-hier predict` reads."""

FILES = {
    "labels.csv": "the cluster of every row by every method, how certain it is, and the p-value of the row",
    "tree.nwk": "the tree of BHC, in Newick format",
}
"""Files beside the report -> what they contain."""


def compare(
    data: Data,
    truth: Truth = None,
    drop: Drop = None,
    kinds: Kinds = None,
    items: Items = None,
    header: Header = None,
    family: Family = "auto",
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="auto (as many as fit the time budget), or some of "
            f"{', '.join(partition_methods())}, comma-separated; may be repeated.",
            show_default="auto",
        ),
    ] = None,
    minutes: Minutes = None,
    concentration: Concentration = None,
    held_out: Annotated[
        float, typer.Option(help="Share of the rows to hold out from all methods for scoring their predictions.")
    ] = 0.0,
    drop_rows: Annotated[
        str, typer.Option(help="Rows to leave out: empty (those without any value), or missing (if any value is missing).")
    ] = "empty",
    seed: Seed = 0,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the report and its accompanying files.")] = Path(
        "bnp-hier-report"
    ),
    figures: Annotated[
        str | None,
        typer.Option(help="Write every figure to a file as well, in the subfolder figures: pdf, png or svg."),
    ] = None,
    chains: Chains = 4,
    warmup: Warmup = None,
    samples: Samples = None,
    progress: Progress = True,
    as_json: Json = False,
) -> None:
    """Cluster a data set with several methods, compare them in one table, and write a report.

    The output folder gets report.html, labels.csv (the clusters of every row, its p-value and, for MCMC, the probabilities of
    its cluster and of the next), clusters.csv (means, shares, intervals and sizes), association.csv, tree.nwk (with bhc), one
    ArviZ file (netCDF) per method, and fit.npz, the fit whose clusters the report shows, for predict.
    """
    chosen = None if methods is None else method_names(methods)
    if not 0.0 <= held_out < 1.0:
        raise ValueError(f"--held-out must be at least 0 and less than 1, but it is {held_out}")
    if figures is not None and f".{figures}" not in SUFFIXES:
        raise ValueError(f"--figures must be pdf, png or svg, but it is {figures!r}")
    check_positive(chains=chains, warmup=warmup, samples=samples, concentration=concentration, minutes=minutes)
    check_outputs({"the data": data}, {"--out": _files_in(out_dir, figures)})
    whole = read_data(data, truth, items, drop, kinds, header)
    asked = ClusteringOptions(
        family=family,
        methods=chosen,
        budget=None if minutes is None else 60 * minutes,
        concentration=concentration,
        held_out=held_out,
        drop_rows=drop_rows,
        random_state=seed,
        chains=chains,
        warmup=warmup,
        samples=samples,
        progress_bar=progress,
    )
    plan = ClusteringPlan.of(whole, asked)
    advice = plan.advice
    err.print(f"{whole.name}: {size_in_words(plan.data)}, family {advice.family} ({advice.family_reason})", highlight=False)
    print_warnings(advice.warnings)
    words = {
        "--items": items,
        "--family": family,
        "--methods": ",".join(name for name in partition_methods() if name in plan.methods),
        "--concentration": concentration,
        "--held-out": held_out or None,
        "--drop-rows": None if drop_rows == "empty" else drop_rows,
        "--seed": seed,
        "--figures": figures,
        "--chains": chains,
        "--warmup": warmup,
        "--samples": samples,
        "--minutes": minutes,
    }
    repeated = {"--truth": truth, "--drop": drop, "--kinds": kinds}
    again = partial(_again, data, words, repeated, header, plan)
    result = ClusteringResult(plan, _run(plan), again=again)
    with finishing(lambda: announced_finishing("the report")), err.status("comparing") if progress else nullcontext():
        written = _write_files(out_dir, result, figures)
        report = result.report(out_dir / "report.html", files=written)
    if as_json:
        content = {"data": whole.name, "family": advice.family, "methods": result.table.reset_index().to_dict("records")}
        rest = {
            "headline": result.headline,
            "notes": result.notes,
            "problems": result.problems,
            "warnings": result.warnings,
            "leading_method": result.method,
            "report": report,
            "fit": out_dir / FIT,
        }
        print_json(content | rest)
    else:
        print_warnings(result.fit_check.sentences)
        _print(result.findings, report)
        predict = f"{shlex.quote(program())} {command_line('predict', str(out_dir / FIT), {}, {}, header)}"
        if result.remedy:
            out.print(f"what the warnings and checks advise: {result.remedy}", highlight=False, soft_wrap=True, markup=False)
        out.print(f"fit of {result.method}: {out_dir / FIT}", highlight=False, soft_wrap=True)
        out.print(f"to assign new rows to its clusters: {predict} NEW.csv", highlight=False, soft_wrap=True)
    if result.problems:
        raise typer.Exit(INCOMPLETE)


def _again(
    data: str,
    words: Mapping[str, object],
    repeated: Mapping[str, Sequence[str] | None],
    header: bool | None,
    plan: ClusteringPlan,
    *,
    kinds: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    family: str | None = None,
    times: int = 1,
) -> str:
    """The command that makes the report again, or changes it; empty if the command cannot make the changes for these data."""
    words, repeated = dict(words), dict(repeated)
    if family is not None:
        words["--family"] = family
    if times > 1 and (plan.asked.samples is not None or plan.asked.warmup is not None):
        words["--samples"] = times * plan.asked.longest.samples
    elif times > 1:
        words["--minutes"] = math.ceil(times * plan.budget / 60)
    if is_file(data):
        of_kinds = [",".join(f"{name}={kind}" for name, kind in kinds.items())] if kinds else []
        repeated["--kinds"] = [*(repeated["--kinds"] or ()), *of_kinds]
        repeated["--drop"] = [*(repeated["--drop"] or ()), *drop]
    elif (kinds or drop) and family is None and times == 1:
        return ""
    return f"{NAME} {command_line('compare', data, words, repeated, header)}"


def _run(plan: ClusteringPlan) -> Outcome:
    """Run the methods, say how they go, and stop if none gave a result."""
    outcome = plan.run(
        begun=lambda method: err.print(f"{method.title} ...", highlight=False),
        ended=lambda method, seconds: err.print(f"{method.title} done in {seconds:.1f} s", highlight=False),
    )
    print_warnings(outcome.problems)
    return outcome


def _print(findings: Any, report: Path) -> None:
    """The headline, the table, the findings, and where the report is."""
    table = findings.table.reindex(columns=[name for name in SHOWN if name in findings.table])
    sampled = list(findings.certainty)  # their bound is the log joint of the point estimate
    table.loc[sampled, "evidence_bound"] = findings.table.loc[sampled, "log_joint_shared"]
    truncated = [name for name, fit in findings.fits.items() if hasattr(fit, "bound_target_")]
    table.loc[truncated, "evidence_bound"] = np.nan  # a bound on the evidence of another model
    out.print(f"\n{findings.headline()}\n", style="bold", highlight=False)
    caption = "nats; log posterior: at each partition's best hyperparameters"
    print_table(table.rename(columns=SHOWN).dropna(axis=1, how="all"), "Methods compared", caption)
    for note in findings.notes:
        out.print(f"• {note}", highlight=False)
    out.print(f"report: {report}", highlight=False, soft_wrap=True)


def _write_files(folder: Path, result: ClusteringResult, figures: str | None) -> dict[str, str]:
    """Write labels, trees, tables, figures, ArviZ files and the fit, and return what each contains."""
    from bnp_hier.reports.figures import write_figures
    from bnp_hier.reports.profiles import write_tables

    written, findings = {}, result.findings
    pvalues = {} if findings.pvalues is None else {f"{findings.lead} p-value": findings.pvalues}
    write_clusters(folder / "labels.csv", findings.data, {**findings.labels, **findings.certainties(), **pvalues})
    for fit in findings.fits.values():
        if isinstance(fit, TreePosterior):
            write_text(folder / "tree.nwk", fit.dendrogram_.to_newick(findings.data.item_names) + "\n")
            written["tree.nwk"] = FILES["tree.nwk"]
    for name, package in findings.packages.items():
        _write_package(folder / _package_file(name), package)
        written[_package_file(name)] = f"the draws of {name} and quantities computed from them, for ArviZ (netCDF)"
    tables = write_tables(folder, findings.profiles)
    drawn = {} if figures is None else write_figures(folder / FIGURES, findings, figures)
    result.save(folder / FIT)
    written[FIT] = f"the fit of {result.method} with its data, for bnp-hier predict and bnp_hier.load_fit"
    return {"labels.csv": FILES["labels.csv"], **tables, **written, **{f"{FIGURES}/{name}": of for name, of in drawn.items()}}


def _write_package(path: Path, package: Any) -> None:
    """A netCDF file."""
    with replacing(path) as draft:
        try:
            package.to_netcdf(str(draft), engine="h5netcdf")
        except RuntimeError as error:  # HDF5's, when a disk is full
            raise OSError(f"{path} cannot be written: {error}") from error


def _package_file(method: str) -> str:
    """Name of a method's ArviZ file."""
    return f"{method.lower().replace(' ', '-')}.nc"


def _files_in(folder: Path, figures: str | None) -> list[Path]:
    """All files that a comparison may write; of the figures, one."""
    drawn = [] if figures is None else [f"{FIGURES}/profiles.{figures}"]
    others = ["labels.csv", "clusters.csv", "association.csv", "tree.nwk", FIT]
    names = ["report.html", *others, *drawn, *(_package_file(method.title) for method in partition_methods().values())]
    return [folder / name for name in names]
