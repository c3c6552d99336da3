"""`bnp-hier compare`: all methods on one data set, in one table and one report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bnp_hier.advice.covariance_structures import Structure, best_component
from bnp_hier.advice.model_checks import check_model
from bnp_hier.advice.recommendation import Advice, default_budget, plan_methods, size_of
from bnp_hier.capabilities import TreePosterior
from bnp_hier.commands.console import (
    INCOMPLETE,
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
    err,
    method_names,
    out,
    print_json,
    print_table,
    print_warnings,
    read_data,
)
from bnp_hier.commands.fitting import write_clusters
from bnp_hier.commands.model_options import described, mixture
from bnp_hier.commands.output_files import check_outputs
from bnp_hier.datasets import Dataset
from bnp_hier.inspection.trace import Model
from bnp_hier.methods import Outcome, RunOptions, partition_methods, run_methods
from bnp_hier.utils.files import replacing, write_text
from bnp_hier.utils.interruption import finishing

__all__ = ["compare"]

AHEAD = {
    "map-dp": ("descend", "merge_pair", "anneal", "known", "diagonal"),
    "bhc": ("marginals_of", "predictives", "agglomerate", "tree_masses", "node_statistics"),
    "gibbs": ("step_of_gibbs", "row_densities", "summaries_of", "joint"),
}
"""Native kernels and families that methods need, but not at once, and that take long to compile."""

SHOWN = {
    "clusters": "clusters",
    "log_joint_shared": "log joint",
    "evidence_bound": "evidence at least",
    "held_out": "held out",
    "ARI": "ARI",
    "rhat": "R-hat",
    "seconds": "seconds",
}
"""Columns of the comparison that a terminal of 80 columns has room for, and their headings."""

FILES = {
    "labels.csv": "the cluster of every row by every method, and how certain it is",
    "clusters.csv": "means and shares of every column in each cluster, over the draws of the method shown",
    "association.csv": "how far each column goes with the clusters",
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
    seed: Seed = 0,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the report and its accompanying files.")] = Path(
        "bnp-hier-report"
    ),
    chains: Chains = 4,
    warmup: Warmup = None,
    samples: Samples = None,
    progress: Progress = True,
    as_json: Json = False,
) -> None:
    """Cluster a data set with several methods, compare them in one table, and write a report.

    The output folder gets report.html, labels.csv (the clusters of every row and how certain they are: the mean probability of
    sharing a cluster with its other rows), tree.nwk (with bhc) and one ArviZ file (netCDF) per method.
    """
    chosen = None if methods is None else method_names(methods)
    if not 0.0 <= held_out < 1.0:
        raise ValueError(f"--held-out must be at least 0 and less than 1, but it is {held_out}")
    check_positive(chains=chains, warmup=warmup, samples=samples, concentration=concentration, minutes=minutes)
    check_outputs({"the data": data}, {"--out": _files_in(out_dir)})
    whole = read_data(data, truth, items, drop, kinds, header)
    _compile_ahead(chosen)
    training, test = _split(whole, held_out, seed)
    suited, structures = best_component(
        training.X, family, training.feature_names, training.categories, seed, training.column_kinds
    )
    model = mixture(suited.prior, concentration)
    n, d = training.X.shape
    err.print(f"{whole.name}: {n} rows, {d} columns, family {suited.name} ({suited.reason})", highlight=False)
    warnings = check_model(model, training.X, training.feature_names, kinds=training.column_kinds)
    print_warnings(warnings)

    wanted = RunOptions(
        chains, RunOptions.warmup if warmup is None else warmup, samples or RunOptions.samples, None, seed, progress
    )
    plan = plan_methods(size_of(suited.component, training.X), default_budget(n) if minutes is None else 60 * minutes, wanted)
    chosen, skipped = _taken(plan, chosen)
    options = {advice.name: advice.options for advice in plan}
    if warmup is not None or samples is not None:  # as requested, even if they exceed the budget
        options = dict.fromkeys(options, wanted)
    outcome = _run(chosen, model, training, options)
    words = {
        "--truth": truth,
        "--items": items,
        "--family": family,
        "--methods": ",".join(name for name in partition_methods() if name in chosen),
        "--concentration": concentration,
        "--held-out": held_out or None,
        "--seed": seed,
        "--chains": chains,
        "--warmup": warmup,
        "--samples": samples,
        "--minutes": minutes,
    }
    facts = {
        "data": f"{whole.name}, {n} rows × {d} columns" + (f", {len(test)} rows held out" if test is not None else ""),
        "family": f"{suited.name}: {suited.reason}",
        **({"covariance matrices": "; ".join(map(_scored, structures))} if structures else {}),
        "model": described(suited.prior, concentration),
        "chains": _lengths(options, chosen),
        "seed": str(seed),
        "not run": "; ".join(skipped) or "–",
    }
    with finishing(lambda: announced_finishing("the report")), err.status("comparing") if progress else nullcontext():
        from bnp_hier.reports.report import Findings, write_report

        findings = Findings.of(training, outcome.fits, held_out=test, seconds=outcome.seconds, random_state=seed)
        written = _write_files(out_dir, findings)
        report = write_report(
            out_dir / "report.html",
            findings,
            problems=outcome.problems,
            warnings=warnings,
            facts=facts,
            files=written,
            reproduce=_command(data, words, {"--drop": drop, "--kinds": kinds}, header),
        )
    if as_json:
        content = {"data": whole.name, "family": suited.name, "methods": findings.table.reset_index().to_dict("records")}
        rest = {
            "headline": findings.headline(),
            "notes": findings.notes,
            "problems": outcome.problems,
            "warnings": warnings,
            "report": report,
        }
        print_json(content | rest)
    else:
        _print(findings, report)
    if outcome.problems:
        raise typer.Exit(INCOMPLETE)


def _scored(structure: Structure) -> str:
    return f"{structure.covariance}: score {structure.score:.1f} nats, {structure.clusters} clusters"


def _taken(plan: Sequence[Advice], named: list[str] | None) -> tuple[list[str], list[str]]:
    """The methods to run, those that the plan chose unless some are named; and why others are not."""
    if named is not None:
        return named, []
    skipped = [f"{advice.title} ({advice.reason.split(';')[0]})" for advice in plan if not advice.chosen]
    return [advice.name for advice in plan if advice.chosen], skipped


def _run(chosen: list[str], model: Model, training: Dataset, options: dict[str, RunOptions]) -> Outcome:
    """Run the methods, say how they go, and stop if none gave a result."""
    outcome = run_methods(
        chosen,
        model,
        training.X,
        options,
        begun=lambda method: err.print(f"{method.title} ...", highlight=False),
        ended=lambda method, seconds: err.print(f"{method.title} done in {seconds:.1f} s", highlight=False),
    )
    print_warnings(outcome.problems)
    if not outcome.fits:
        if outcome.interrupted:
            raise KeyboardInterrupt
        raise ValueError("; ".join(outcome.problems))
    return outcome


def _command(data: str, words: Mapping[str, object], repeated: Mapping[str, list[str] | None], header: bool | None) -> str:
    """The command that makes the report again; options without a value are left out."""
    again = [word for flag, value in words.items() if value is not None for word in (flag, str(value))]
    again += [word for flag, values in repeated.items() for value in values or [] for word in (flag, value)]
    again += [] if header is None else ["--header" if header else "--no-header"]
    return shlex.join(["bnp-hier", "compare", data, *again])


def _print(findings: Any, report: Path) -> None:
    """The headline, the table, the findings, and where the report is."""
    table = findings.table.reindex(columns=[name for name in SHOWN if name in findings.table])
    sampled = list(findings.certainty)  # their bound is the log joint of the point estimate
    table.loc[sampled, "evidence_bound"] = table.loc[sampled, "log_joint_shared"]
    truncated = [name for name, fit in findings.fits.items() if hasattr(fit, "bound_target_")]
    table.loc[truncated, "evidence_bound"] = np.nan  # a bound on the evidence of another model
    out.print(f"\n{findings.headline()}\n", style="bold", highlight=False)
    caption = "log joint and evidence in nats, at the same hyperparameters; more in the report"
    print_table(table.rename(columns=SHOWN).dropna(axis=1, how="all"), "Methods compared", caption)
    for note in findings.notes:
        out.print(f"• {note}", highlight=False)
    out.print(f"report: {report}", highlight=False)


def _lengths(options: dict[str, RunOptions], chosen: list[str]) -> str:
    """The chains' lengths in words."""
    of = [options[name] for name in chosen if partition_methods()[name].is_chain]
    return ", ".join(f"{o.chains} chains of {o.warmup} warm-up and {o.samples} kept sweeps" for o in of) or "none"


def _split(data: Dataset, share: float, seed: int) -> tuple[Dataset, np.ndarray | None]:
    n, m = len(data.X), round(share * len(data.X))
    if m == 0:
        return data, None
    if n - m < 2:
        raise ValueError(
            f"--held-out {share:g} holds out {m} of {n} rows and leaves {n - m} for the methods, which need at least 2"
        )
    order = np.random.default_rng(seed).permutation(n)
    kept, rest = np.sort(order[m:]), order[:m]
    return data.rows(kept), data.X[rest]


def _compile_ahead(methods: Sequence[str] | None) -> None:
    """Start to compile kernels on another core, the first time that they are needed on this machine."""
    with suppress(ImportError):  # without Numba, there are no kernels
        from bnp_hier.native.warming_up import start_compiling

        # covariance structures are compared by MAP-DP, whatever the methods
        start_compiling(
            [name for method, names in AHEAD.items() if method in ("map-dp", *(methods or AHEAD)) for name in names]
        )


def _write_files(folder: Path, findings: Any) -> dict[str, str]:
    """Write labels, trees and ArviZ files, and return what each contains."""
    written = {}
    write_clusters(folder / "labels.csv", findings.data, {**findings.labels, **findings.certainties()})
    for fit in findings.fits.values():
        if isinstance(fit, TreePosterior):
            write_text(folder / "tree.nwk", fit.dendrogram_.to_newick(findings.data.item_names) + "\n")
            written["tree.nwk"] = FILES["tree.nwk"]
    for name, package in findings.packages.items():
        _write_package(folder / _package_file(name), package)
        written[_package_file(name)] = f"the draws of {name} and quantities computed from them, for ArviZ (netCDF)"
    return {"labels.csv": FILES["labels.csv"], **_write_profiles(folder, findings), **written}


def _write_profiles(folder: Path, findings: Any) -> dict[str, str]:
    """Write what the clusters of the method shown contain."""
    found = findings.profiles
    for name, table in (("clusters.csv", found.profiles), ("association.csv", found.association)):
        write_text(folder / name, table.to_csv(float_format="%.6g"))
    return {name: FILES[name] for name in ("clusters.csv", "association.csv")}


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


def _files_in(folder: Path) -> list[Path]:
    """All files that a comparison may write."""
    names = ["report.html", "labels.csv", "tree.nwk", *(_package_file(method.title) for method in partition_methods().values())]
    return [folder / name for name in names]
