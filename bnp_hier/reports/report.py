"""The report on a comparison: what was found, how sure it is, and the figures, in one HTML file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from bnp_hier import plots
from bnp_hier.arviz_bridge import to_arviz
from bnp_hier.capabilities import Chains, TreePosterior
from bnp_hier.comparison import tabulate
from bnp_hier.datasets import Dataset
from bnp_hier.evidence import tree_bound
from bnp_hier.posterior.convergence import LABEL_INVARIANT, diagnostics
from bnp_hier.posterior.draws import partition_of, shared_programs
from bnp_hier.posterior.item_uncertainty import assignment_uncertainty
from bnp_hier.posterior.partitions import coclustering
from bnp_hier.reports.tree_page import tree_figures
from bnp_hier.reports.verdicts import (
    agreement,
    association,
    best_partition,
    chains_verdict,
    clusters_at_cuts,
    clusters_verdict,
    held_out_verdict,
    tree_verdict,
)
from bnp_hier.reports.web_page import Section, write_page
from bnp_hier.utils.wording import listed

__all__ = ["Findings", "write_report"]

MOST_PAIRED = 600
"""Most rows in a plot of all pairs of rows; of more, so many are drawn at random."""

MOST_POINTS = 3000
"""Most rows in a scatter plot."""

TREE_DRAWS = 200
"""Partitions drawn from a tree."""

ALL_BOUNDS = 300
"""Most rows for which the costly bounds of a tree are computed."""

MOST_CLASSES = 15
"""Most known classes for a table of clusters by classes."""

TELLING = 0.3
"""Standard deviations by which a cluster's mean differs from that of all rows, where it is mentioned."""


@dataclass(frozen=True)
class Findings:
    """What came of several methods on one data set, computed once for the table, the files and the report.

    Parameters
    ----------
    data
        What was fitted.
    fits
        Method -> fit.
    table
        Of `bnp_hier.compare`.
    labels
        Method -> (n,) its one partition.
    packages
        Method -> ArviZ data.
    random_state
        Of rows drawn for the plots.
    """

    data: Dataset
    fits: dict[str, Any]
    table: pd.DataFrame
    labels: dict[str, Int[np.ndarray, " n"]]
    packages: dict[str, Any]
    random_state: int = 0

    @classmethod
    def of(
        cls,
        data: Dataset,
        fits: Mapping[str, Any],
        *,
        held_out: np.ndarray | None = None,
        seconds: Mapping[str, float] | None = None,
        random_state: int = 0,
    ) -> Findings:
        """Compare the fits and read their draws."""
        named = partial(to_arviz, feature_names=data.feature_names, item_names=data.item_names)
        with shared_programs():
            labels = {name: partition_of(fit, data.X) for name, fit in fits.items()}
            table = tabulate(fits, data.X, labels, held_out, data.y, seconds)
            packages = {
                name: named(fit, data.X, num_samples=TREE_DRAWS, random_state=random_state) for name, fit in fits.items()
            }
        return cls(data, dict(fits), table, labels, packages, random_state)

    def draws(self, name: str) -> Int[np.ndarray, "chain draw n"]:
        """Partitions of a method."""
        return np.asarray(self.packages[name]["posterior"]["z"])

    @property
    def lead(self) -> str:
        """The method that the figures follow: chains if there are any, otherwise the most probable partition."""
        chains = [name for name, fit in self.fits.items() if isinstance(fit, Chains)]
        return chains[0] if chains else str(self.table["log_joint"].idxmax())

    def certainties(self) -> dict[str, Float[np.ndarray, " n"]]:
        """For each method that is chains: mean probability of each row to be with another of its cluster; NaN if alone."""
        of_chains = [name for name, fit in self.fits.items() if isinstance(fit, Chains)]
        return {
            f"{name} certainty": assignment_uncertainty(self.draws(name), self.labels[name]).coclustering for name in of_chains
        }

    def notes(self) -> list[str]:
        """What was found, in plain sentences."""
        known = {} if self.data.y is None else {name: association(self.draws(name), self.data.y) for name in self.fits}
        found = [*best_partition(self.table), *agreement(self.table, known), *held_out_verdict(self.table)]
        for name, fit in self.fits.items():
            if isinstance(fit, Chains):
                found += chains_verdict(name, diagnostics(self.packages[name]), fit.num_chains)
                found += clusters_verdict(name, self.draws(name), self.labels[name])
            elif isinstance(fit, TreePosterior):
                found += tree_verdict(name, clusters_at_cuts(fit.dendrogram_), self.draws(name)[0])
        sizes = np.sort(np.bincount(self.labels[self.lead]))[::-1]
        found.append(f"The clusters of {self.lead} have {listed(sizes, 12)} rows; what is in each is listed below.")
        for name, row in self.table[self.table["capacity_hits"].fillna(0) > 0].iterrows():
            found.append(f"{name} met its capacity {row['capacity_hits']:.0f} times: more clusters were wanted than allowed.")
        return found

    # ---- sections ---------------------------------------------------------------------------------------------------------

    def comparison(self) -> Section:
        """The table, and how alike the partitions are."""
        alike = [f"NMI {name}" for name in self.table.index]
        main = self.table.drop(columns=alike).dropna(axis=1, how="all")
        tables = {"Methods compared; log quantities in nats": main}
        if len(self.fits) > 1:
            between = self.table[alike].set_axis(list(self.table.index), axis=1).astype(float)
            tables["Agreement between the methods: normalised mutual information, 1 if alike"] = between
        return Section("Comparison", tables=tables)

    def evidence(self) -> Section:
        """Lower bounds on the log evidence, and their gaps to the best one."""
        rows = []
        for name, row in self.table.iterrows():
            if np.isfinite(row["evidence_bound"]) and row["bound_kind"] != "none":
                rows.append((f"{name}: {row['bound_kind']}", float(row["evidence_bound"]), _at(self.fits[str(name)])))
            fit = self.fits[str(name)]
            if isinstance(fit, TreePosterior) and len(self.data.X) <= ALL_BOUNDS:
                for kind in ("alternatives", "recursive", "pairs"):
                    rows.append((f"{name}: {kind}", float(tree_bound(fit, kind)), _at(fit)))
        table = pd.DataFrame(rows, columns=["lower bound", "log_evidence_at_least", "hyperparameters"]).set_index("lower bound")
        if not len(table):
            return Section("Evidence")
        # bounds at different hyperparameters bound different numbers
        best = table.groupby("hyperparameters")["log_evidence_at_least"].transform("max")
        table["evidence_gap_to_best"] = table["log_evidence_at_least"] - best
        text = (
            "Each number is a lower bound on the log evidence of the model at the hyperparameters named beside it: the higher "
            "the tighter. Bounds at different hyperparameters bound different numbers, so that gaps are among those at the "
            "same ones. One partition alone bounds it by its log joint; a tree by all partitions that it holds."
        )
        return Section("Evidence", text=text, tables={"Lower bounds on the log evidence (nats)": table})

    def chains(self) -> Section:
        """Diagnostics of methods that are Markov chains."""
        tables, figures = {}, {}
        for name, fit in self.fits.items():
            if not isinstance(fit, Chains):
                continue
            tables[f"{name}: R-hat and effective sample sizes of what does not depend on the clusters' names"] = diagnostics(
                self.packages[name]
            )
            posterior = self.packages[name]["posterior"]
            caption = f"{name}: traces and rank histograms; chains that agree look alike"
            figures[caption] = plots.traces({of: np.asarray(posterior[of]) for of in LABEL_INVARIANT})
        return Section("Chains", tables=tables, figures=figures)

    def figures(self) -> Section:
        """Columns by cluster, co-clustering probabilities, and the tree."""
        figures: dict[str, Figure] = {}
        data, lead = self.data, self.lead
        some = _some(len(data.X), MOST_POINTS, self.random_state)
        caption = f"Columns of the data, coloured by the clusters of {lead}{_of(len(some), len(data.X))}"
        figures[caption] = plots.pairs(data.X[some], labels=self.labels[lead][some], feature_names=data.feature_names)
        for name in self.fits:
            draws = self.draws(name)
            if draws.shape[0] * draws.shape[1] == 1:
                continue
            some = _some(len(data.X), MOST_PAIRED, self.random_state)
            figure = Figure(figsize=(6, 5), layout="constrained")
            plots.coclustering(coclustering(draws[..., some]), labels=self.labels[name][some], ax=figure.subplots())
            figures[f"Probability that two rows share a cluster, {name}{_of(len(some), len(data.X))}"] = figure
        for name, fit in self.fits.items():
            if isinstance(fit, TreePosterior):
                drawn = tree_figures(fit.dendrogram_, data.item_names)
                figures |= {f"{name}: {caption[0].lower()}{caption[1:]}": figure for caption, figure in drawn.items()}
        return Section("Figures", figures=figures)

    def clusters(self) -> Section:
        """What is in each cluster of the leading method, folded up."""
        labels, data = self.labels[self.lead], self.data
        folds: dict[str, list[str]] = {}
        for cluster in np.argsort(-np.bincount(labels), kind="stable")[:30]:
            rows = np.flatnonzero(labels == cluster)
            lines = [line for line in [_described(data, rows)] if line]
            if data.y is not None:
                names, counts = np.unique(data.y[rows], return_counts=True)
                order = np.argsort(-counts)[:8]
                lines.append("Known classes: " + ", ".join(f"{names[i]} ({counts[i]})" for i in order))
            lines.append("Rows: " + listed(rows if data.item_names is None else (data.item_names[i] for i in rows), 200))
            folds[f"Cluster {cluster}: {len(rows)} rows"] = lines
        tables = {}
        if data.y is not None and len(np.unique(data.y)) <= MOST_CLASSES:
            crossed = pd.crosstab(pd.Series(labels, name="cluster"), pd.Series(data.y, name="class"))
            tables[f"Rows by cluster of {self.lead} and known class"] = crossed
        return Section(f"Clusters of {self.lead}", tables=tables, folds=folds)


def write_report(
    path: str | os.PathLike[str],
    findings: Findings,
    *,
    problems: Sequence[str] = (),
    warnings: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    reproduce: str = "",
) -> Path:
    """Write the report on a comparison.

    Parameters
    ----------
    path
        File to write.
    findings
        What came of the methods.
    problems
        What failed or is missing.
    warnings
        Choices that look wrong.
    facts
        Name -> value of what the run was.
    reproduce
        Command or code that makes the report again.
    """
    sections = [
        Section("What is missing", notes=problems),
        Section("What was found", notes=findings.notes()),
        Section("Look at this before you trust it", notes=[f"{warning[0].upper()}{warning[1:]}." for warning in warnings]),
        findings.comparison(),
        findings.figures(),
        findings.clusters(),
        findings.evidence(),
        findings.chains(),
        Section("The run", facts=facts or {}),
        Section("Do it again", code=reproduce),
    ]
    return write_page(path, title=f"{findings.data.name}: Bayesian nonparametric clustering", sections=sections)


def _at(fit: Any) -> str:
    """The hyperparameters of a bound, in words."""
    if isinstance(fit, Chains):
        return "posterior medians"
    values = ", ".join(f"{name} = {float(value):.3g}" for name, value in fit.hyperparameters_.items() if np.ndim(value) == 0)
    return values or "fixed"


def _some(n: int, most: int, seed: int) -> Int[np.ndarray, " m"]:
    """All of n rows, or so many drawn at random."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def _of(shown: int, n: int) -> str:
    return "" if shown == n else f" ({shown} of {n} rows, drawn at random)"


def _described(data: Dataset, rows: Int[np.ndarray, " m"], most: int = 6) -> str:
    """The columns in which a cluster differs most from all rows."""
    with np.errstate(invalid="ignore", divide="ignore"):
        here, all_rows = data.X[rows], data.X
        seen = ~np.isnan(all_rows)
        count = np.maximum(seen.sum(0), 1)
        mean = np.where(seen, all_rows, 0.0).sum(0) / count
        deviation = np.sqrt(np.where(seen, (all_rows - mean) ** 2, 0.0).sum(0) / count)
        there = ~np.isnan(here)
        own = np.where(there, here, 0.0).sum(0) / np.maximum(there.sum(0), 1)
    gap = np.where((deviation > 0) & there.any(0), (own - mean) / np.where(deviation > 0, deviation, 1.0), 0.0)
    order = [j for j in np.argsort(-np.abs(gap))[:most] if abs(gap[j]) >= TELLING]
    bits = (np.isin(all_rows, (0.0, 1.0)) | ~seen).all(0)

    def written(j: int) -> str:
        if bits[j]:
            return f"{data.feature_names[j]} {own[j]:.0%} ({mean[j]:.0%})"
        digits = max(0, 2 - math.floor(math.log10(max(deviation[j], 1e-300))))  # a hundredth of the spread is shown
        return f"{data.feature_names[j]} {own[j]:.{min(digits, 12)}f} ({mean[j]:.{min(digits, 12)}f})"

    listed = ", ".join(written(j) for j in order)
    return f"Distinguishing features, by mean or share of ones (of all rows): {listed}" if order else ""
