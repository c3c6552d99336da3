"""The command `bnp-hier`."""

from __future__ import annotations

import dataclasses
import shlex
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import typer
from numpyro.infer import MCMC, NUTS, Gibbs
from rich.console import Console
from rich.table import Table

from bnp_hier import datasets
from bnp_hier.arviz_bridge import to_arviz
from bnp_hier.comparison import compare as compare_fits
from bnp_hier.comparison import partition_of
from bnp_hier.components import (
    BetaBernoulli,
    Component,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
)
from bnp_hier.datasets import Dataset
from bnp_hier.deterministic import BHC, MAPDP, VariationalDP
from bnp_hier.kernels import PartitionGibbs
from bnp_hier.models import dpm
from bnp_hier.posterior import coclustering
from bnp_hier.posterior.convergence import LABEL_INVARIANT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
out, err = Console(), Console(stderr=True)

FAMILIES: dict[str, type[Component]] = {
    "normal": NormalInverseWishart,
    "diagonal": NormalInverseGamma,
    "known": NormalKnownCovariance,
    "bernoulli": BetaBernoulli,
    "multinomial": DirichletMultinomial,
    "poisson": GammaPoisson,
    "mixed": ProductComponent,
}
METHODS = ("gibbs", "bhc", "map-dp", "variational")
DEFAULT_METHODS = METHODS[:3]


class _Run(NamedTuple):
    """What the routes need: data, model, seed, and the sizes of the MCMC run."""

    data: Dataset
    model: Any
    seed: int
    chains: int
    warmup: int
    samples: int
    progress: bool


@app.callback()
def _commands() -> None:
    """Bayesian nonparametric clustering: one model, every inference route."""


@app.command(
    epilog="Examples:  bnp-hier compare iris   |   bnp-hier compare survey.csv --truth group --family bernoulli --out report"
)
def compare(
    data: Annotated[str, typer.Argument(help="Name of a data set (iris, wine, glass, ...), or a CSV or Parquet file.")],
    truth: Annotated[str | None, typer.Option(help="Column of the file that holds the true classes.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column of the file to leave out; may be repeated.")] = None,
    items: Annotated[str | None, typer.Option(help="Column of the file that names the rows.")] = None,
    family: Annotated[str, typer.Option(help=f"Likelihood of one cluster: auto, {', '.join(FAMILIES)}.")] = "auto",
    methods: Annotated[str, typer.Option(help=f"Comma-separated routes: {', '.join(METHODS)}.")] = ",".join(DEFAULT_METHODS),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the report and its files.")] = Path("bnp-hier-report"),
    held_out: Annotated[
        float, typer.Option(help="Share of the rows kept from all routes, to score their predictive densities.")
    ] = 0.0,
    chains: Annotated[int, typer.Option(help="MCMC chains.")] = 4,
    warmup: Annotated[int, typer.Option(help="Warm-up sweeps per chain.")] = 500,
    samples: Annotated[int, typer.Option(help="Kept sweeps per chain.")] = 1000,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> None:
    """Cluster a data set by every route, compare them in one table, and write a report.

    Writes report.html, labels.csv, tree.nwk (with bhc) and one ArviZ file (netCDF) per route into the output folder.
    """
    chosen = [method.strip() for method in methods.split(",") if method.strip()]
    unknown = [method for method in chosen if method not in METHODS]
    if unknown or not chosen:
        raise ValueError(f"--methods must name some of {', '.join(METHODS)}, but it is {methods!r}")
    if family != "auto" and family not in FAMILIES:
        raise ValueError(f"--family must be one of auto, {', '.join(FAMILIES)}, but it is {family!r}")
    if not 0.0 <= held_out < 1.0:
        raise ValueError(f"--held-out must be a share of at least 0 and below 1, but it is {held_out}")
    for name, value in (("--chains", chains), ("--warmup", warmup), ("--samples", samples)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, but it is {value}")
    whole = _load(data, truth, items, drop or [])
    training, test = _split(whole, held_out, seed)
    name, component = _component(training, family)
    err.print(f"{whole.name}: {len(training.X)} rows, {training.X.shape[1]} columns, family {name}")

    model = partial(dpm, component=component, concentration=dist.Gamma(1.0, 1.0))
    run = _Run(training, model, seed, chains, warmup, samples, progress)
    fits, seconds, problems = _fit_all(chosen, run)
    if not fits:
        raise ValueError("; ".join(problems) or "interrupted before any route had finished")
    reproduce = {
        "--truth": truth,
        "--items": items,
        "--family": family,
        "--methods": ",".join(chosen),
        "--seed": seed,
        "--held-out": held_out,
        "--chains": chains,
        "--warmup": warmup,
        "--samples": samples,
    }
    options = [word for flag, value in reproduce.items() if value is not None for word in (flag, str(value))]
    options += [word for column in drop or [] for word in ("--drop", column)]
    with err.status("comparing") if progress else nullcontext():
        table = compare_fits(fits, training.X, held_out=test, truth=training.y, seconds=seconds)
        _print(table)
        facts = {
            "data": f"{whole.name}, {len(training.X)} rows × {training.X.shape[1]} columns"
            + (f", {len(test)} rows held out" if test is not None else ""),
            "model": f"Dirichlet-process mixture, {type(component).__name__}.from_data, concentration ~ Gamma(1, 1)",
            "seed": str(seed),
        }
        command = shlex.join(["bnp-hier", "compare", data, *options])
        _write(out_dir, run, fits, table, [*problems, *_verdicts(table)], facts, command)
    out.print(f"report: {out_dir / 'report.html'}")


def _load(data: str, truth: str | None, items: str | None, drop: list[str]) -> Dataset:
    path = Path(data)
    if path.suffix or path.exists():
        return datasets.read_table(path, truth=truth, items=items, drop=drop)
    if truth is not None or items is not None or drop:
        raise ValueError("--truth, --items and --drop name columns of a file; a named data set brings its own classes")
    return datasets.load(data)


def _split(data: Dataset, share: float, seed: int) -> tuple[Dataset, np.ndarray | None]:
    n, m = len(data.X), round(share * len(data.X))
    if m == 0:
        return data, None
    order = np.random.default_rng(seed).permutation(n)
    kept, rest = np.sort(order[m:]), order[:m]
    names = None if data.item_names is None else tuple(data.item_names[i] for i in kept)
    classes = None if data.y is None else data.y[kept]
    return dataclasses.replace(data, X=data.X[kept], y=classes, item_names=names), data.X[rest]


def _component(data: Dataset, family: str) -> tuple[str, Component]:
    X = data.X
    bits = ((X == 0) | (X == 1) | np.isnan(X)).all(axis=0)
    constant = np.array([len(X) > 1 and len(np.unique(column[~np.isnan(column)])) == 1 for column in X.T])
    if family == "auto":
        if bits.all():
            family = "bernoulli"
        elif (bits & ~constant).any():
            family = "mixed"
        elif np.isnan(X).any() or X.shape[1] > 20:
            family = "diagonal"
        else:
            family = "normal"
    normal = {"normal": constant, "diagonal": constant, "known": constant, "mixed": constant & ~bits}
    wrong = [data.feature_names[j] for j in np.flatnonzero(normal.get(family, np.zeros(0)))]
    if wrong:
        raise ValueError(
            f"these columns hold one value only, from which a Normal prior cannot be read: {', '.join(wrong)}; leave them out "
            f"with {' '.join('--drop ' + shlex.quote(name) for name in wrong)}"
        )
    return family, FAMILIES[family].from_data(X)


def _fit_all(methods: list[str], run: _Run) -> tuple[dict[str, Any], dict[str, float], list[str]]:
    """Fit the routes, the quick ones first; one that fails or is interrupted does not take the others with it."""
    routes: dict[str, tuple[str, Callable[[_Run], Any]]] = {
        "bhc": ("BHC", lambda run: BHC(run.model, random_state=run.seed, progress_bar=run.progress).fit(run.data.X)),
        "map-dp": ("MAP-DP", lambda run: MAPDP(run.model, random_state=run.seed).fit(run.data.X)),
        "variational": ("variational", lambda run: VariationalDP(run.model, random_state=run.seed).fit(run.data.X)),
        "gibbs": ("Gibbs", _gibbs),
    }
    fits: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    problems: list[str] = []
    for method, (name, fit) in routes.items():
        if method not in methods:
            continue
        started = time.perf_counter()
        err.print(f"{name} ...")
        try:
            fits[name] = fit(run)
        except KeyboardInterrupt:
            problems.append(f"{name} was interrupted and is missing; routes after it were not run.")
            break
        except (ValueError, TypeError) as error:
            problems.append(f"{name} failed: {error}")
            continue
        seconds[name] = time.perf_counter() - started
        err.print(f"{name} done in {seconds[name]:.1f} s")
    for problem in problems:
        err.print(f"[bold red]{problem}")
    return fits, seconds, problems


def _gibbs(run: _Run) -> MCMC:
    kernel = Gibbs([(PartitionGibbs(run.model), ["z"]), (NUTS(run.model), None)])
    mcmc = MCMC(
        kernel,
        num_warmup=run.warmup,
        num_samples=run.samples,
        num_chains=run.chains,
        chain_method="sequential",
        progress_bar=run.progress,
    )
    mcmc.run(jax.random.key(run.seed), run.data.X)
    return mcmc


def _print(table: pd.DataFrame) -> None:
    view = Table(title="Routes compared", caption="log quantities in nats")
    view.add_column("", style="bold")
    for name in table.index:
        view.add_column(str(name), justify="right")
    for quantity in table.columns[table.notna().any()]:
        view.add_row(str(quantity).replace("_", " "), *(_cell(value) for value in table[quantity]))
    out.print(view)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value != value:  # NaN
        return "–"
    return str(int(value)) if float(value).is_integer() else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _verdicts(table: pd.DataFrame) -> list[str]:
    """Plain-language reading of the table."""
    notes = []
    best = table["log_joint"].idxmax()
    notes.append(f"{best} found the most probable single partition (log joint {table.loc[best, 'log_joint']:.1f} nats).")
    if len(table) > 1:
        agreement = table[[f"NMI {name}" for name in table.index]].to_numpy()
        low = agreement[~np.eye(len(table), dtype=bool)].min()
        word = "agree" if low >= 0.9 else "differ somewhat" if low >= 0.6 else "disagree"
        notes.append(f"The routes' partitions {word} (lowest normalised mutual information {low:.2f}).")
    for name, row in table[table["rhat"].notna()].iterrows():
        if row["rhat"] <= 1.01 and row["ess"] >= 400:
            notes.append(f"{name}: the chains agree (R-hat {row['rhat']:.3f}, effective sample size {row['ess']:.0f}).")
        else:
            notes.append(
                f"{name}: R-hat {row['rhat']:.3f}, effective sample size {row['ess']:.0f}: do not trust the number of clusters "
                "to the last digit; run longer (--samples)."
            )
    for name, row in table[table["capacity_hits"].fillna(0) > 0].iterrows():
        notes.append(f"{name} met its capacity {row['capacity_hits']:.0f} times: more clusters were wanted than allowed.")
    return notes


def _write(
    folder: Path,
    run: _Run,
    fits: dict[str, Any],
    table: pd.DataFrame,
    notes: list[str],
    facts: dict[str, str],
    reproduce: str,
) -> None:
    from bnp_hier.report import write_report

    folder.mkdir(parents=True, exist_ok=True)
    labels = {name: partition_of(fit, run.data.X) for name, fit in fits.items()}
    _write_labels(folder / "labels.csv", run.data, labels)
    if "BHC" in fits:
        tree = fits["BHC"].dendrogram_.to_newick(run.data.item_names)
        (folder / "tree.nwk").write_text(tree + "\n", encoding="utf-8")
    packages = {name: to_arviz(fit, run.data.X, random_state=run.seed) for name, fit in fits.items()}
    for name, package in packages.items():
        package.to_netcdf(str(folder / f"{name.lower()}.nc"), engine="h5netcdf")
    figures = _figures(run, fits, labels, packages)
    title = f"{run.data.name}: Bayesian nonparametric clustering"
    write_report(
        folder / "report.html", title=title, table=table, figures=figures, notes=notes, facts=facts, reproduce=reproduce
    )


def _write_labels(path: Path, data: Dataset, labels: dict[str, np.ndarray]) -> None:
    import pandas as pd

    frame = pd.DataFrame({"item": data.item_names if data.item_names is not None else np.arange(len(data.X))})
    if data.y is not None:
        frame["truth"] = data.y
    frame.assign(**labels).to_csv(path, index=False)


def _figures(run: _Run, fits: dict[str, Any], labels: dict[str, np.ndarray], packages: dict[str, Any]) -> dict[str, Figure]:
    from matplotlib.figure import Figure

    from bnp_hier import plots

    figures: dict[str, Figure] = {}
    lead = "Gibbs" if "Gibbs" in fits else next(iter(fits))
    caption = f"Columns of the data, coloured by the clusters of {lead}"
    figures[caption] = plots.pairs(run.data.X, labels[lead], run.data.feature_names)
    for name, package in packages.items():
        if name == "MAP-DP":
            continue
        figure = Figure(figsize=(6, 5), layout="constrained")
        plots.coclustering(coclustering(np.asarray(package["posterior"]["z"])), labels[name], ax=figure.subplots())
        figures[f"Co-clustering probabilities under {name}"] = figure
    if "BHC" in fits:
        figure = Figure(figsize=(9, 5), layout="constrained")
        tree = fits["BHC"].dendrogram_
        plots.dendrogram(tree, labels=fits["BHC"].labels_, names=run.data.item_names, ax=figure.subplots())
        figures["BHC's tree; grey dashed branches are cut"] = figure
    if "Gibbs" in fits:
        posterior = packages["Gibbs"]["posterior"]
        figures["Traces and rank histograms of label-invariant summaries (Gibbs)"] = plots.traces(
            {name: np.asarray(posterior[name]) for name in LABEL_INVARIANT}
        )
    return figures


def main() -> None:
    """Run the command; errors in the input are told in one line."""
    warnings.filterwarnings("ignore", message=".*ArviZ is undergoing a major refactor.*")
    warnings.filterwarnings("ignore", message="There are not enough devices to run parallel chains.*")
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError) as error:
        err.print(f"[bold red]error:[/] {error}", highlight=False)
        raise SystemExit(1) from None
