"""The report on a comparison as one HTML file, in the order of the questions that readers have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bnp_hier.capabilities import Chains, TreePosterior
from bnp_hier.comparison import shared_hyperparameters
from bnp_hier.evidence import tree_bound
from bnp_hier.reports.chains import DIAGNOSTICS, IN_WORDS
from bnp_hier.reports.figures import (
    MOST_CLASSES,
    NamedFigure,
    alternative_figures,
    association_figure,
    cluster_number_figures,
    coclustering_figures,
    flow_figures,
    pairs_figure,
    profile_figure,
    trace_figures,
)
from bnp_hier.reports.findings import Findings
from bnp_hier.reports.known_classes import known_classes_of
from bnp_hier.reports.profiles import association_table, profiles_table
from bnp_hier.reports.tree_page import BRANCHES, browsable_merges
from bnp_hier.reports.trust import checks
from bnp_hier.reports.web_page import Section, write_page
from bnp_hier.utils.wording import counted, listed

__all__ = ["write_report"]

ALL_BOUNDS = 300
"""Most rows for which the costly bounds of a tree are computed."""

MOST_LISTED, MOST_CLUSTERS = 12, 30
"""Most clusters in the table at the beginning, and most whose rows are listed: the largest."""

MOST_NAMED = 200
"""Most rows of a cluster that are listed."""

HEADINGS = {
    "clusters": "clusters",
    "log_posterior": "log posterior (nats)",
    "held_out": "held-out log density (nats per row)",
    "held_out_diff": "difference to the best held-out log density",
    "held_out_dse": "standard error of this paired difference",
    "NMI": "NMI with the known classes",
    "ARI": "adjusted Rand index",
    "seconds": "seconds",
    "rhat": "largest R\u2011hat",
    "ess": "smallest effective sample size",
    "capacity_hits": "capacity hits",
}
"""Columns of the comparison that the report shows, and their headings."""


def write_report(
    path: str | os.PathLike[str],
    findings: Findings,
    *,
    problems: Sequence[str] = (),
    warnings: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    code: Mapping[str, str] | None = None,
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
    code
        Heading of a section -> command or code, such as that which makes the report again; empty ones are left out.
    """
    now = datetime.now().astimezone()
    parts = {"parts of the model": findings.parts} if findings.parts else {}
    run = {**(facts or {}), **parts, "version": f"bnp_hier {version('bnp-hier')}", "date": f"{now:%Y-%m-%d %H:%M %Z}"}
    sections = [
        Section("What is missing", notes=problems),
        groups(findings),
        certainty(findings),
        unusual(findings),
        methods(findings),
        tree(findings),
        contents(findings),
        trust(findings, warnings),
        evidence(findings),
        Section("Files", links=files or {}),
        Section("The run", facts=run),
        *(Section(heading, code=text) for heading, text in (code or {}).items()),
    ]
    title = f"{findings.data.name}: Bayesian nonparametric clustering"
    return write_page(path, title=title, headline=findings.headline(), sections=sections)


# ---- sections -------------------------------------------------------------------------------------------------------------


def groups(findings: Findings) -> Section:
    """How many clusters there are, how large they are, and what distinguishes them."""
    table = findings.clusters
    largest = table.nlargest(MOST_LISTED, "rows", keep="first") if len(table) > MOST_LISTED else table
    caption = f"The clusters of {findings.lead}, numbered as in labels.csv"
    if len(table) > MOST_LISTED:
        caption += f"; the largest {MOST_LISTED} of {len(table)}"
    return Section(
        "How many groups are there, and what are they?",
        notes=findings.notes_on_clusters,
        tables={caption: largest},
        drawings=_shown([profile_figure(findings)]),
        tables_first=True,
    )


def certainty(findings: Findings) -> Section:
    """The probability of each number of clusters, and the least certain rows with their alternatives."""
    tables = {}
    for name, certainty in findings.trusted.items():
        doubtful = certainty.most_uncertain(findings.data.item_names, findings.data.classes)
        if len(doubtful):
            tables[f"{name}: the least certain rows, with the probabilities of their cluster and of another"] = doubtful
    text = "" if findings.certainty else "No method has drawn from the posterior: run gibbs to see how sure this is."
    return Section(
        "How sure is that?",
        text=text,
        notes=findings.notes_on_certainty,
        drawings=_shown([*cluster_number_figures(findings), *alternative_figures(findings)]),
        figures=_shown(coclustering_figures(findings)),
        tables=tables,
    )


def unusual(findings: Findings) -> Section:
    """The rows with the smallest leave-one-out p-values, and the columns that make them odd."""
    table = findings.unusual
    text = (
        "The p-value of a row is the probability that a row drawn from the model, given all other rows, has at most its "
        "density. Columns that make a row odd are those in which it is at least two standard deviations from the mean of the "
        "other rows of its cluster (if there are fewer than five, of the closest cluster) or, if there are none, from what its "
        "other numbers predict by linear regression over these rows."
    )
    caption = f"The most unusual rows under {findings.lead}; the p-values of all rows are in labels.csv"
    return Section(
        "Which rows are unusual?",
        text="" if table is None else text,
        notes=findings.notes_on_unusual_rows,
        tables={} if table is None or not len(table) else {caption: table},
    )


def methods(findings: Findings) -> Section:
    """The table of methods, and the agreement of their partitions."""
    alike = [f"NMI {name}" for name in findings.table.index]
    caption = "Methods compared; the log posterior of each method's partition is at the hyperparameters that suit it best"
    tables = {caption: _comparison(findings.table)}
    if len(findings.fits) > 1:
        between = findings.table[alike].set_axis(list(findings.table.index), axis=1).astype(float)
        tables["Agreement between the methods: normalised mutual information (NMI), 1 for identical partitions"] = between
    heading = "Do the methods agree?" if len(findings.fits) > 1 else "How good is the partition?"
    return Section(heading, notes=findings.notes_on_methods, drawings=_shown(flow_figures(findings)), tables=tables)


def tree(findings: Findings) -> Section:
    """The trees of merges."""
    data = findings.data
    trees = {
        f"{name}. {BRANCHES.format(0.5)}": browsable_merges(fit.dendrogram_, data.item_names, classes=data.classes)
        for name, fit in findings.fits.items()
        if isinstance(fit, TreePosterior)
    }
    return Section("Which groups are close to each other?", notes=findings.notes_on_trees if trees else (), trees=trees)


def contents(findings: Findings) -> Section:
    """The content of each cluster of the method shown, collapsed, and what the columns have to do with the clusters."""
    labels, data, classes = findings.labels[findings.lead], findings.data, findings.data.classes
    folds: dict[str, list[str]] = {}
    words, sizes = findings.clusters.iloc[:, -1], np.bincount(labels)
    for cluster in np.argsort(-sizes, kind="stable")[:MOST_CLUSTERS]:
        rows = np.flatnonzero(labels == cluster)
        lines = [f"Distinguishing features: {words[cluster]}"] if words[cluster] else []
        if classes is not None:
            lines.append(known_classes_of(classes[rows]))
        lines.append("Rows: " + listed(rows if data.item_names is None else (data.item_names[i] for i in rows), MOST_NAMED))
        folds[f"Cluster {cluster}: {counted(len(rows), 'row')}"] = lines
    tables = {
        "Means ± standard deviations, or shares, of the rows of each cluster and, in parentheses, 95% intervals of its "
        "mean parameters; all of them are in clusters.csv": profiles_table(findings.profiles, sizes),
        "How strongly columns are associated with the clusters, from 0 to 1; those that were used to find the clusters are "
        "associated by construction": association_table(findings.profiles),
    }
    if classes is not None and len(np.unique(classes)) <= MOST_CLASSES:
        crossed = pd.crosstab(pd.Series(labels, name="cluster"), pd.Series(classes, name="class"))
        tables[f"Rows by cluster of {findings.lead} and known class"] = crossed
    text = (
        "Means, standard deviations and shares are those of the rows that the partition puts into a cluster. The intervals "
        "are those of the parameters of the clusters to which these rows belong in the draws; they can be far from the means "
        "of the rows where a cluster has few rows, which are with others in many draws."
    )
    return Section(
        "What is in each group?",
        text=text,
        tables=tables,
        drawings=_shown([association_figure(findings)]),
        figures=_shown([pairs_figure(findings)]),
        folds=folds,
    )


def trust(findings: Findings, warnings: Sequence[str]) -> Section:
    """Checks with what to do, and the convergence of chains."""
    caption = "Checks: passed, look (judge for yourself) or act (do what is said before using the results)"
    tables = {caption: checks(findings, warnings)}
    for name, found in findings.convergence.items():
        table = found.rename(columns=DIAGNOSTICS)
        table.index = pd.Index([IN_WORDS.get(str(of), str(of)).removeprefix("the ") for of in table.index], name="quantity")
        tables[f"{name}: convergence of quantities that do not depend on how clusters are numbered"] = table
    notes = [*findings.notes_on_chains, *findings.notes_on_limits]
    return Section("Can the computation be trusted?", notes=notes, tables=tables, figures=_shown(trace_figures(findings)))


def evidence(findings: Findings) -> Section:
    """Lower bounds on the log evidence, and their gaps to the best one."""
    shared = _written(shared_hyperparameters(findings.fits, findings.data.X))
    rows: list[tuple[str, float, str]] = []
    targets: list[str] = []  # a variational bound is on the evidence of a truncated model
    for name, row in findings.table.iterrows():
        fit = findings.fits[str(name)]
        if isinstance(fit, Chains):  # the point estimate, at the hyperparameters of the others
            rows.append((f"{name}: one partition", float(row["log_joint_shared"]), shared))
        else:
            at = _written(fit.hyperparameters_)
            rows.append((f"{name}: {row['bound_kind']}", float(row["evidence_bound"]), at))
            completed = hasattr(fit, "missing_values_")  # the tree is one of a completed table
            if isinstance(fit, TreePosterior) and len(findings.data.X) <= ALL_BOUNDS and not completed:
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


def _comparison(table: pd.DataFrame) -> pd.DataFrame:
    """The table of methods with headings in words."""
    headings = HEADINGS | {name: f"{HEADINGS['ARI']} with {name[4:]!r}" for name in table if name.startswith("ARI ")}
    shown = table[[name for name in headings if name in table]].rename(columns=headings)
    if not table["capacity_hits"].fillna(0).any():
        shown = shown.drop(columns=HEADINGS["capacity_hits"])
    return shown.dropna(axis=1, how="all")


def _shown(figures: Iterable[NamedFigure]) -> dict[str, Figure]:
    return {each.caption: each.figure for each in figures}


def _written(hyperparameters: Mapping[str, Any]) -> str:
    """The scalar hyperparameters, for a table."""
    values = ", ".join(f"{name} = {float(value):.3g}" for name, value in hyperparameters.items() if np.ndim(value) == 0)
    return values or "fixed in the model"
