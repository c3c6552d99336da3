"""`bnp-hier evidence`: lower bounds and estimates of the log evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from bnp_hier import evidence as estimators
from bnp_hier.advice.default_models import described, mixture
from bnp_hier.commands.console import INCOMPLETE, out, print_json, print_table
from bnp_hier.commands.options import Json, Progress, Seed, TableOptions, check_positive
from bnp_hier.commands.output_files import FIGURES, check_outputs
from bnp_hier.utils.files import replacing, write_text
from bnp_hier.utils.spreadsheets import csv_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["evidence"]

MOST_ROWS = 2000
"""Maximum number of rows without an explicit --rows; the best bounds use an exact tree, which is slow for more."""


def evidence(
    table: TableOptions,
    *,
    concentration: Annotated[float, typer.Option(help="Concentration of the Dirichlet process.")] = 1.0,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Use only this many rows, drawn at random.", show_default=f"all; an error if there are more than {MOST_ROWS}"
        ),
    ] = None,
    particles: Annotated[int, typer.Option(help="Number of particles of the particle filter.")] = 200,
    samples: Annotated[int, typer.Option(help="Draws per chain for the occupancy estimate.")] = 500,
    plot: Annotated[Path | None, typer.Option(help="PNG, SVG or PDF file for a plot of the table.")] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="CSV file for the table.")] = None,
    seed: Seed = 0,
    progress: Progress = True,
    as_json: Json = False,
) -> None:
    """Compute all bounds and estimates of the log evidence, with a verdict on each.

    The hyperparameters of the family are learned from the rows, and all values are conditional on them (nats). A family for
    counts or bits cannot be compared with one for continuous numbers: the first yields probabilities, the second densities.
    """
    check_positive(concentration=concentration, rows=rows, particles=particles, samples=samples)
    if plot is not None and plot.suffix.lower() not in FIGURES:
        raise ValueError(f"--plot {plot}: found a file name ending in {plot.suffix!r}, expected {', '.join(FIGURES)}")
    check_outputs({"the data": table.data}, {"--out": out_file, "--plot": plot})
    whole = table.read()
    data = whole
    if rows is not None and rows < len(whole.X):
        data = whole.rows(np.sort(np.random.default_rng(seed).choice(len(whole.X), rows, replace=False)))
    if len(data.X) > MOST_ROWS and rows is None:
        raise ValueError(
            f"{data.name} has {len(data.X)} rows, which would take very long; use a random subset, such as --rows {MOST_ROWS}"
        )
    prior = table.choose_component(data, concentration)[0].prior
    found = estimators.table(
        mixture(prior, concentration),
        data.X,
        num_particles=particles,
        num_samples=samples,
        random_state=seed,
        progress_bar=progress,
    )
    if out_file is not None:
        write_text(out_file, csv_text(found))
    if plot is not None:
        from matplotlib.figure import Figure

        from bnp_hier import plots

        figure = Figure(figsize=(8, 5), layout="constrained")
        plots.evidence_bounds(found, ax=figure.subplots())
        with replacing(plot) as draft:
            figure.savefig(draft, dpi=150)
    model = described(prior, concentration)
    if as_json:
        learned = {name: value.tolist() for name, value in found.attrs["hyperparameters"].items()}
        about = {"data": data.name, "model": model, "n": len(data.X), "hyperparameters": learned}
        print_json(about | {"rows": found.reset_index().to_dict("records")})
    else:
        shown = found[["value", "standard_error", "kind", "gap_to_best_bound"]].set_axis(
            ["value", "error", "kind", "gap"], axis=1
        )
        part = "" if len(data.X) == len(whole.X) else f" ({len(data.X)} of {len(whole.X)} rows)"
        print_table(shown, f"Log evidence of {data.name}{part}", f"nats; {model}")
        for note in _conclusions(found):
            out.print(f"• {note}")
        for path in (out_file, plot):
            if path is not None:
                out.print(f"written: {path}", soft_wrap=True)
    if found["verdict"].str.contains("interrupted").any():
        raise typer.Exit(INCOMPLETE)


def _conclusions(table: pd.DataFrame) -> Iterator[str]:
    """Sentences on the log evidence of the mixture itself: its best lower bound, exact value and estimates."""
    mixture = table[(table["target"] == table["target"].iloc[0]) & np.isfinite(table["value"])]
    bounds = mixture[mixture["kind"] == "lower bound"]["value"]
    if len(bounds):
        yield f"The log evidence is at least {bounds.max():.1f} nats ({bounds.idxmax()})."
    for name, row in mixture[mixture["kind"] != "lower bound"].iterrows():
        yield f"{name}: {row['value']:.2f}; {row['verdict']}."
