"""`bnp-hier compare`: all methods on one data set, in one table and one report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
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
    announced_finishing,
    err,
    method_names,
    out,
    print_json,
    print_table,
    print_warnings,
    program,
    size_in_words,
)
from bnp_hier.commands.fitting import write_clusters
from bnp_hier.commands.options import Chains, Json, Minutes, Progress, Seed, TableOptions, check_positive, is_file
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


@dataclass(frozen=True)
class ComparisonOptions:
    """The methods to compare, how long they run, and what is written."""

    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="auto (as many as fit the time budget), or some of "
            f"{', '.join(partition_methods())}, comma-separated; may be repeated.",
            show_default="auto",
        ),
    ] = None
    minutes: Minutes = None
    concentration: Annotated[
        float | None, typer.Option(help="Concentration of the Dirichlet process.", show_default="a Gamma(2, 20) prior")
    ] = None
    held_out: Annotated[
        float, typer.Option(help="Share of the rows to hold out from all methods for scoring their predictions.")
    ] = 0.0
    drop_rows: Annotated[
        str, typer.Option(help="Rows to leave out: empty (those without any value), or missing (if any value is missing).")
    ] = "empty"
    seed: Seed = 0
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the report and its accompanying files.")] = Path(
        "bnp-hier-report"
    )
    figures: Annotated[
        str | None,
        typer.Option(help="Write every figure to a file as well, in the subfolder figures: pdf, png or svg."),
    ] = None
    chains: Chains = 4
    warmup: Annotated[
        int | None,
        typer.Option(help="Warm-up sweeps per chain.", show_default="500, or fewer if the time budget requires it"),
    ] = None
    samples: Annotated[
        int | None,
        typer.Option(help="Sweeps kept per chain.", show_default="until the chains have converged or the time budget is spent"),
    ] = None
    progress: Progress = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.held_out < 1.0:
            raise ValueError(f"--held-out must be at least 0 and less than 1, but it is {self.held_out}")
        if self.figures is not None and f".{self.figures}" not in SUFFIXES:
            raise ValueError(f"--figures must be pdf, png or svg, but it is {self.figures!r}")
        check_positive(
            chains=self.chains,
            warmup=self.warmup,
            samples=self.samples,
            concentration=self.concentration,
            minutes=self.minutes,
        )

    def of_plan(self, family: str) -> ClusteringOptions:
        """The same for a `ClusteringPlan`."""
        return ClusteringOptions(
            family=family,
            methods=None if self.methods is None else method_names(self.methods),
            budget=None if self.minutes is None else 60 * self.minutes,
            concentration=self.concentration,
            held_out=self.held_out,
            drop_rows=self.drop_rows,
            random_state=self.seed,
            chains=self.chains,
            warmup=self.warmup,
            samples=self.samples,
            progress_bar=self.progress,
        )

    def words(self, plan: ClusteringPlan) -> dict[str, object]:
        """Words of a command line that compares the methods of a plan again."""
        return {
            "--family": plan.asked.family,
            "--methods": ",".join(name for name in partition_methods() if name in plan.methods),
            "--concentration": self.concentration,
            "--held-out": self.held_out or None,
            "--drop-rows": None if self.drop_rows == "empty" else self.drop_rows,
            "--seed": self.seed,
            "--figures": self.figures,
            "--chains": self.chains,
            "--warmup": self.warmup,
            "--samples": self.samples,
            "--minutes": self.minutes,
        }


def compare(table: TableOptions, *, options: ComparisonOptions, as_json: Json = False) -> None:
    """Cluster a data set with several methods, compare them in one table, and write a report.

    The output folder gets report.html, labels.csv (the clusters of every row, its p-value and, for MCMC, the probabilities of
    its cluster and of the next), clusters.csv (means, shares, intervals and sizes), association.csv, tree.nwk (with bhc), one
    ArviZ file (netCDF) per method, and fit.npz, the fit whose clusters the report shows, for predict.
    """
    folder, asked = options.out_dir, options.of_plan(table.family)
    check_outputs({"the data": table.data}, {"--out": _files_in(folder, options.figures)})
    whole = table.read()
    plan = ClusteringPlan.of(whole, asked)
    advice = plan.advice
    err.print(f"{whole.name}: {size_in_words(plan.data)}, family {advice.family} ({advice.family_reason})")
    print_warnings(advice.warnings)
    result = ClusteringResult(plan, _run(plan), again=partial(_again, table, options.words(plan), plan))
    waiting = err.status("comparing") if options.progress else nullcontext()
    with finishing(lambda: announced_finishing("the report")), waiting:
        written = _write_files(folder, result, options.figures)
        report = result.report(folder / "report.html", files=written)
    if as_json:
        print_json(
            {
                "data": whole.name,
                "family": advice.family,
                "methods": result.table.reset_index().to_dict("records"),
                "headline": result.headline,
                "notes": result.notes,
                "problems": result.problems,
                "warnings": result.warnings,
                "leading_method": result.method,
                "report": report,
                "fit": folder / FIT,
            }
        )
    else:
        print_warnings(result.fit_check.sentences)
        _print(result.findings, report)
        predict = shlex.join([program(), "predict", str(folder / FIT), *table.header_words])
        if result.remedy:
            out.print(f"what the warnings and checks advise: {result.remedy}", soft_wrap=True)
        out.print(f"fit of {result.method}: {folder / FIT}", soft_wrap=True)
        out.print(f"to assign new rows to its clusters: {predict} NEW.csv", soft_wrap=True)
    if result.problems:
        raise typer.Exit(INCOMPLETE)


def _again(
    table: TableOptions,
    words: Mapping[str, object],
    plan: ClusteringPlan,
    *,
    kinds: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    family: str | None = None,
    times: int = 1,
) -> str:
    """The command that makes the report again, or changes it; empty if the command cannot make the changes for these data."""
    words, changed = dict(words), {}
    if family is not None:
        words["--family"] = family
    if times > 1 and (plan.asked.samples is not None or plan.asked.warmup is not None):
        words["--samples"] = times * plan.asked.longest.samples
    elif times > 1:
        words["--minutes"] = math.ceil(times * plan.budget / 60)
    if is_file(table.data):
        of_kinds = [",".join(f"{name}={kind}" for name, kind in kinds.items())] if kinds else []
        changed = {"kinds": [*(table.kinds or ()), *of_kinds], "drop": [*(table.drop or ()), *drop]}
    elif (kinds or drop) and family is None and times == 1:
        return ""
    return f"{NAME} {table.command_line('compare', words, **changed)}"


def _run(plan: ClusteringPlan) -> Outcome:
    """Run the methods, say how they go, and stop if none gave a result."""
    outcome = plan.run(
        begun=lambda method: err.print(f"{method.title} ..."),
        ended=lambda method, seconds: err.print(f"{method.title} done in {seconds:.1f} s"),
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
    out.print(f"\n{findings.headline()}\n", style="bold")
    caption = "nats; log posterior: at each partition's best hyperparameters"
    print_table(table.rename(columns=SHOWN).dropna(axis=1, how="all"), "Methods compared", caption)
    for note in findings.notes:
        out.print(f"• {note}")
    out.print(f"report: {report}", soft_wrap=True)


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
