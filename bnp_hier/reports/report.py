"""The report on a comparison: findings, their certainty, and figures, in one HTML file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from bnp_hier import plots
from bnp_hier.arviz_bridge import to_arviz
from bnp_hier.capabilities import Chains, TreePosterior
from bnp_hier.comparison import shared_component, shared_hyperparameters, tabulate
from bnp_hier.components import GammaPoisson
from bnp_hier.datasets import Dataset
from bnp_hier.evidence import tree_bound
from bnp_hier.posterior.cluster_profiles import ClusterProfiles
from bnp_hier.posterior.convergence import LABEL_INVARIANT, diagnostics
from bnp_hier.posterior.count_dispersion import dispersion_within
from bnp_hier.posterior.credible_balls import number_of_clusters
from bnp_hier.posterior.draws import partition_of, shared_summaries
from bnp_hier.posterior.gains_of_parts import part_gains
from bnp_hier.posterior.partitions import coclustering
from bnp_hier.reports.headlines import headline
from bnp_hier.reports.profiles import association_table, profiles_of, profiles_table
from bnp_hier.reports.row_certainty import RowCertainty
from bnp_hier.reports.tree_page import tree_figures
from bnp_hier.reports.verdicts import (
    DIAGNOSTICS,
    IN_WORDS,
    ROUGH_RHAT,
    agreement,
    association,
    best_partition,
    chains_verdict,
    clusters_at_cuts,
    clusters_verdict,
    dispersion_verdict,
    held_out_verdict,
    parts_verdict,
    tree_verdict,
)
from bnp_hier.reports.web_page import Section, write_page
from bnp_hier.utils.wording import listed

__all__ = ["MOST_PAIRED", "MOST_POINTS", "Findings", "some_rows", "write_report"]

MOST_PAIRED = 600
"""Most rows in a heat map of all pairs of rows; of more, this many are drawn at random."""

MOST_POINTS = 3000
"""Most rows in a scatter plot."""

TREE_DRAWS = 200
"""Partitions drawn from a tree."""

ALL_BOUNDS = 300
"""Most rows for which the costly bounds of a tree are computed."""

MOST_CLASSES = 15
"""Most known classes for a table of clusters by classes."""

TELLING = 0.3
"""Standard deviations by which a cluster's mean must differ from that of all rows to be mentioned."""

HEADINGS = {
    "clusters": "clusters",
    "log_joint_shared": "log joint (nats)",
    "held_out": "held-out log density (nats per row)",
    "held_out_se": "standard error of the held-out log density",
    "NMI": "NMI with the known classes",
    "ARI": "adjusted Rand index",
    "seconds": "seconds",
    "rhat": "largest R\u2011hat",
    "ess": "smallest effective sample size",
    "capacity_hits": "capacity hits",
}
"""Columns of the comparison that the report shows, and their headings."""


@dataclass(frozen=True)
class Findings:
    """The results of several methods on one data set, computed once for the table, the files and the report.

    Parameters
    ----------
    data
        What was fitted.
    fits
        Method -> fit.
    table
        Of `bnp_hier.compare`.
    labels
        Method -> (n,) its partition.
    packages
        Method -> ArviZ data.
    certainty
        Method -> how certain each row's cluster is, of the methods that are chains.
    random_state
        Of rows drawn for the plots.
    """

    data: Dataset
    fits: dict[str, Any]
    table: pd.DataFrame
    labels: dict[str, Int[np.ndarray, " n"]]
    packages: dict[str, Any]
    certainty: dict[str, RowCertainty]
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
        """Compare the fits and collect their draws."""
        named = partial(to_arviz, feature_names=data.feature_names, item_names=data.item_names)
        with shared_summaries():
            labels = {name: partition_of(fit, data.X) for name, fit in fits.items()}
            table = tabulate(fits, data.X, labels, held_out, data.y, seconds)
            packages = {
                name: named(fit, data.X, num_samples=TREE_DRAWS, random_state=random_state) for name, fit in fits.items()
            }
        chains = [name for name, fit in fits.items() if isinstance(fit, Chains)]
        certainty = {name: RowCertainty.of(_partitions(packages[name]), labels[name]) for name in chains}
        return cls(data, dict(fits), table, labels, packages, certainty, random_state)

    def draws(self, name: str) -> Int[np.ndarray, "chain draw n"]:
        """Partitions of a method."""
        return _partitions(self.packages[name])

    @property
    def lead(self) -> str:
        """The method shown in the figures: the first chains, or else the method with the most probable partition."""
        return next(iter(self.certainty), None) or str(self.table["log_joint_shared"].fillna(-np.inf).idxmax())

    def headline(self) -> str:
        """The number of clusters, its probability, and which methods agree, in a sentence or two."""
        if self.lead not in self.certainty:
            return headline(self.lead, self.labels)
        rhat = diagnostics(self.packages[self.lead]).loc["n_clusters", "rhat"]  # NaN where all draws have the same number
        return headline(self.lead, self.labels, number_of_clusters(self.draws(self.lead)), converged=not rhat > ROUGH_RHAT)

    def certainties(self) -> dict[str, Float[np.ndarray, " n"]]:
        """For each chain method, each row's mean probability of sharing a cluster with the others of its own; NaN if alone."""
        return {f"{name} certainty": certainty.own for name, certainty in self.certainty.items()}

    @cached_property
    def profiles(self) -> ClusterProfiles:
        """What the clusters of the method shown contain."""
        return profiles_of(self.fits[self.lead], self.data, self.labels[self.lead])

    @cached_property
    def notes(self) -> list[str]:
        """The findings in plain sentences."""
        known = {} if self.data.y is None else {name: association(self.draws(name), self.data.y) for name in self.fits}
        found = [*best_partition(self.table), *agreement(self.table, known), *held_out_verdict(self.table)]
        for name, fit in self.fits.items():
            if isinstance(fit, Chains):
                found += chains_verdict(name, diagnostics(self.packages[name]), fit.num_chains)
                found += clusters_verdict(name, self.draws(name), self.certainty[name])
            elif isinstance(fit, TreePosterior):
                found += tree_verdict(name, clusters_at_cuts(fit.dendrogram_), self.draws(name)[0])
        sizes = np.bincount(self.labels[self.lead])
        found.append(f"The clusters of {self.lead} have {listed(np.sort(sizes)[::-1], 12)} rows; each is described below.")
        found += self._of_parts()
        for name, row in self.table[self.table["capacity_hits"].fillna(0) > 0].iterrows():
            found.append(
                f"{name} reached its limit on the number of clusters {row['capacity_hits']:.0f} times: raise it (max_clusters)."
            )
        return found

    def _of_parts(self) -> Iterator[str]:
        """What separates the clusters of the lead, and whether counts are over-dispersed within them."""
        X, labels, names = self.data.X, self.labels[self.lead], list(self.data.feature_names)
        component = shared_component(self.fits, X)
        if component is None:
            return
        yield from parts_verdict(self.lead, part_gains(component, X, labels), names)
        for part, columns in component.parts_and_columns():
            if isinstance(part, GammaPoisson):
                index = dispersion_within(X[:, list(columns)], labels)
                yield from dispersion_verdict(self.lead, {names[j]: value for j, value in zip(columns, index, strict=True)})

    def comparison(self) -> pd.DataFrame:
        """The table of methods with headings in words, and log joints at shared hyperparameters."""
        shown = self.table[[name for name in HEADINGS if name in self.table]].rename(columns=HEADINGS)
        if not self.table["capacity_hits"].fillna(0).any():
            shown = shown.drop(columns=HEADINGS["capacity_hits"])
        return shown.dropna(axis=1, how="all")

    # ---- sections ---------------------------------------------------------------------------------------------------------

    def methods(self) -> Section:
        """The table of methods, and the agreement of their partitions."""
        alike = [f"NMI {name}" for name in self.table.index]
        shared = _written(shared_hyperparameters(self.fits, self.data.X))
        caption = f"Methods compared; the log joint of each method's partition is at the same hyperparameters ({shared})"
        tables = {caption: self.comparison()}
        if len(self.fits) > 1:
            between = self.table[alike].set_axis(list(self.table.index), axis=1).astype(float)
            tables["Agreement between the methods: normalised mutual information (NMI), 1 for identical partitions"] = between
        return Section("Methods", tables=tables)

    def evidence(self) -> Section:
        """Lower bounds on the log evidence, and their gaps to the best one."""
        shared = _written(shared_hyperparameters(self.fits, self.data.X))
        rows: list[tuple[str, float, str]] = []
        targets: list[str] = []  # a variational bound is on the evidence of a truncated model
        for name, row in self.table.iterrows():
            fit = self.fits[str(name)]
            if isinstance(fit, Chains):  # the point estimate, at the hyperparameters of the others
                rows.append((f"{name}: one partition", float(row["log_joint_shared"]), shared))
            else:
                at = _written(fit.hyperparameters_)
                rows.append((f"{name}: {row['bound_kind']}", float(row["evidence_bound"]), at))
                completed = hasattr(fit, "missing_values_")  # the tree is one of a completed table
                if isinstance(fit, TreePosterior) and len(self.data.X) <= ALL_BOUNDS and not completed:
                    kinds = ("alternatives", "recursive", "pairs")
                    rows += [(f"{name}: {kind}", float(tree_bound(fit, kind)), at) for kind in kinds]
            targets += [getattr(fit, "bound_target_", "")] * (len(rows) - len(targets))
        heads = ["lower bound", "log evidence, at least (nats)", "hyperparameters"]
        table = pd.DataFrame(rows, columns=heads).set_index("lower bound")
        groups = table[heads[1]].groupby([table["hyperparameters"].to_numpy(), np.array(targets)])
        gap = groups.transform("max") - table[heads[1]]
        table.insert(1, "gap to the tightest (nats)", gap.where(groups.transform("size") > 1))
        table = table[np.isfinite(table[heads[1]])].sort_values(heads[1], ascending=False, kind="stable")
        if not len(table):
            return Section("Evidence")
        text = (
            "Each number is a lower bound on the log evidence of the model at the hyperparameters in its row; higher bounds "
            "are tighter. Bounds at different hyperparameters, or on the evidence of a truncated model, bound different "
            "numbers and are not compared. A single partition bounds the evidence by its log joint, a tree by the sum over all "
            "partitions that it contains."
        )
        return Section("Evidence", text=text, tables={"Lower bounds on the log evidence": table})

    def chains(self) -> Section:
        """Convergence of the methods that are Markov chains."""
        tables, figures = {}, {}
        for name in self.certainty:
            table = diagnostics(self.packages[name]).rename(columns=DIAGNOSTICS)
            table.index = pd.Index([IN_WORDS.get(str(of), str(of)).removeprefix("the ") for of in table.index], name="quantity")
            tables[f"{name}: convergence of quantities that do not depend on how clusters are numbered"] = table
            posterior = self.packages[name]["posterior"]
            caption = f"{name}: traces and rank histograms; the histograms of chains that agree follow the dashed line"
            figures[caption] = plots.traces(
                {IN_WORDS[of].removeprefix("the "): np.asarray(posterior[of]) for of in LABEL_INVARIANT}
            )
        return Section("Chains", tables=tables, figures=figures)

    def certainty_of_rows(self) -> Section:
        """The probability of each number of clusters, and the least certain rows with their alternatives."""
        tables, figures = {}, {}
        for name, certainty in self.certainty.items():
            figures[f"{name}: posterior distribution of the number of clusters"] = _figure(
                plots.number_of_clusters(number_of_clusters(self.draws(name)))
            )
            doubtful = certainty.most_uncertain(self.data.item_names, self.data.classes)
            if len(doubtful):
                tables[f"{name}: the least certain rows, with their mean probability of sharing a cluster"] = doubtful
        return Section("How certain the clusters are", tables=tables, figures=figures)

    def figures(self) -> Section:
        """The columns by cluster, the co-clustering probabilities, and the tree."""
        figures: dict[str, Figure] = {}
        data, lead = self.data, self.lead
        some = some_rows(len(data.X), MOST_POINTS, self.random_state)
        caption = f"The columns of the data, coloured by the clusters of {lead}{_of(len(some), len(data.X))}"
        figures[caption] = plots.pairs(data.X[some], labels=self.labels[lead][some], feature_names=data.feature_names)
        for name in self.fits:
            draws = self.draws(name)
            if draws.shape[0] * draws.shape[1] == 1:
                continue
            some = some_rows(len(data.X), MOST_PAIRED, self.random_state)
            figure = Figure(figsize=(6, 5), layout="constrained")
            plots.coclustering(coclustering(draws[..., some]), labels=self.labels[name][some], ax=figure.subplots())
            figures[f"Probability that two rows share a cluster, {name}{_of(len(some), len(data.X))}"] = figure
        for name, fit in self.fits.items():
            if isinstance(fit, TreePosterior):
                drawn = tree_figures(fit.dendrogram_, data.item_names)
                figures |= {f"{name}: {caption[0].lower()}{caption[1:]}": figure for caption, figure in drawn.items()}
        return Section("Figures", figures=figures)

    def clusters(self) -> Section:
        """The content of each cluster of the leading method, collapsed."""
        labels, data, classes = self.labels[self.lead], self.data, self.data.classes
        folds: dict[str, list[str]] = {}
        for cluster in np.argsort(-np.bincount(labels), kind="stable")[:30]:
            rows = np.flatnonzero(labels == cluster)
            lines = [line for line in [_described(data, rows)] if line]
            if classes is not None:
                names, counts = np.unique(classes[rows], return_counts=True)
                order = np.argsort(-counts)[:8]
                lines.append("Known classes: " + ", ".join(f"{names[i]} ({counts[i]})" for i in order))
            lines.append("Rows: " + listed(rows if data.item_names is None else (data.item_names[i] for i in rows), 200))
            folds[f"Cluster {cluster}: {len(rows)} rows"] = lines
        tables = {
            "Means and shares by cluster, with their intervals over the draws where these matter; all of them are in "
            "clusters.csv": profiles_table(self.profiles),
            "How strongly columns are associated with the clusters, from 0 to 1; those that were used to find the clusters are "
            "associated by construction": association_table(self.profiles),
        }
        if classes is not None and len(np.unique(classes)) <= MOST_CLASSES:
            crossed = pd.crosstab(pd.Series(labels, name="cluster"), pd.Series(classes, name="class"))
            tables[f"Rows by cluster of {self.lead} and known class"] = crossed
        text = "Clusters are numbered as in labels.csv." if folds else ""
        return Section(f"Clusters of {self.lead}", text=text, tables=tables, folds=folds)


def write_report(
    path: str | os.PathLike[str],
    findings: Findings,
    *,
    problems: Sequence[str] = (),
    warnings: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    reproduce: str = "",
) -> Path:
    """Write the report on a comparison.

    Parameters
    ----------
    path
        File to write.
    findings
        The results of the methods.
    problems
        What failed or is missing, in sentences.
    warnings
        Doubtful choices, in sentences without a capital or a full stop.
    facts
        Name -> value: settings of the run; the version of the package and the date are added.
    files
        File beside the report -> what it contains.
    reproduce
        Command or code that makes the report again.
    """
    now = datetime.now().astimezone()
    run = {**(facts or {}), "version": f"bnp_hier {version('bnp-hier')}", "date": f"{now:%Y-%m-%d %H:%M %Z}"}
    sections = [
        Section("What is missing", notes=problems),
        Section("What was found", notes=findings.notes),
        Section("Check before you trust the results", notes=[f"{warning[0].upper()}{warning[1:]}." for warning in warnings]),
        findings.certainty_of_rows(),
        findings.methods(),
        findings.figures(),
        findings.clusters(),
        findings.evidence(),
        findings.chains(),
        Section("Files", links=files or {}),
        Section("The run", facts=run),
        Section("How to reproduce this report", code=reproduce),
    ]
    title = f"{findings.data.name}: Bayesian nonparametric clustering"
    return write_page(path, title=title, headline=findings.headline(), sections=sections)


def _partitions(package: Any) -> Int[np.ndarray, "chain draw n"]:
    return np.asarray(package["posterior"]["z"])


def _figure(axes: Any) -> Figure:
    """The figure of a plot."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure


def _written(hyperparameters: Mapping[str, Any]) -> str:
    """The scalar hyperparameters, for a table."""
    values = ", ".join(f"{name} = {float(value):.3g}" for name, value in hyperparameters.items() if np.ndim(value) == 0)
    return values or "fixed in the model"


def some_rows(n: int, most: int, seed: int) -> Int[np.ndarray, " m"]:
    """All n rows, or a random sample of them."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def _of(shown: int, n: int) -> str:
    return "" if shown == n else f" ({shown} of {n} rows, drawn at random)"


def _described(data: Dataset, rows: Int[np.ndarray, " m"], most: int = 6) -> str:
    """The columns in which a cluster differs most from the whole data set."""
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

    features = ", ".join(written(j) for j in order)
    return f"Distinguishing features, with mean or share of ones in this cluster (in all rows): {features}" if order else ""
