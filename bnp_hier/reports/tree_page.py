"""Trees as figures that leave room for their names, and as pages with what is in their clusters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jax.typing import ArrayLike
from jaxtyping import Float
from matplotlib.figure import Figure

from bnp_hier import plots
from bnp_hier.arviz_bridge import to_arviz
from bnp_hier.datasets import Dataset
from bnp_hier.posterior.convergence import diagnostics
from bnp_hier.posterior.hierarchies import hierarchy_draws
from bnp_hier.reports.verdicts import chains_verdict, clusters_at_cuts, support_verdict
from bnp_hier.reports.web_page import Section, write_page
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.trees import Dendrogram, Hierarchy
from bnp_hier.utils.wording import listed

__all__ = ["SampledTree", "tree_figure", "tree_figures", "write_tree_page"]

MOST_NAMED = 250
"""Most leaves for which the figure is made as wide as their names need."""

INCHES_A_NAME = 0.15
"""Width of a leaf whose name can be read."""

LEAST_INCHES = 10.0
"""Width of a small tree, and of one without names."""


def tree_figure(tree: Dendrogram, names: Sequence[str] | None = None, threshold: float = 0.5) -> Figure:
    """The dendrogram, wide enough to name up to 250 leaves if they have names.

    Parameters
    ----------
    tree
        The tree.
    names
        n names of the leaves; without them, item numbers where there is room.
    threshold
        Merge probability below which a branch is cut.
    """
    n = tree.n_items
    width = max(LEAST_INCHES, INCHES_A_NAME * n + 1.5) if names is not None and n <= MOST_NAMED else LEAST_INCHES
    figure = Figure(figsize=(width, 5.0), layout="constrained")
    plots.dendrogram(tree, names=names, threshold=threshold, ax=figure.subplots())
    return figure


def tree_figures(tree: Dendrogram, names: Sequence[str] | None = None, threshold: float = 0.5) -> dict[str, Figure]:
    """Caption -> figure: the tree, and where its names make it wider than a page, the whole of it without them before.

    Parameters
    ----------
    tree, names, threshold
        As of `tree_figure`.
    """
    figure = tree_figure(tree, names, threshold)
    caption = f"Branches whose merge probability is below {threshold:g} are grey and dashed"
    if figure.get_size_inches()[0] <= LEAST_INCHES:
        return {caption: figure}
    return {f"The whole tree. {caption}": tree_figure(tree, None, threshold), "The same with names, to scroll": figure}


def doubtful_merges(tree: Dendrogram, items: Sequence[str]) -> pd.DataFrame:
    """The merges nearest to even odds, at most twelve, of those with a probability between 0.01 and 0.99.

    Parameters
    ----------
    tree
        The tree.
    items
        n names.
    """
    order, first, sizes = tree.leaf_order(), tree.first_positions(), tree.sizes

    def side(node: int) -> str:
        return listed((items[i] for i in order[first[node] : first[node] + sizes[node]]), 4)

    probability = tree.probabilities
    open_ = np.flatnonzero((probability > 0.01) & (probability < 0.99))
    rows = []
    for merge in open_[np.argsort(np.abs(tree.log_odds[open_]), kind="stable")][:12]:
        left, right = tree.children[merge]
        rows.append((float(probability[merge]), side(left), side(right)))
    return pd.DataFrame(rows, columns=["probability", "one side", "other side"]).set_index("probability")


def write_tree_page(
    path: str | os.PathLike[str],
    tree: Dendrogram,
    *,
    title: str,
    names: Sequence[str] | None = None,
    threshold: float = 0.5,
    classes: ArrayLike | None = None,
) -> Path:
    """Write a tree as one HTML file: the figure, and every cluster of the cut with its items, folded up.

    Parameters
    ----------
    path
        File to write.
    tree
        The tree.
    title
        Heading of the page.
    names
        n names of the items.
    threshold
        Merge probability below which a branch is cut.
    classes
        (n,) known classes, counted for each cluster.
    """
    labels = tree.cut(threshold)
    items = [str(i) for i in range(tree.n_items)] if names is None else [str(name) for name in names]
    folds: dict[str, list[str]] = {}
    for cluster in np.argsort(-np.bincount(labels), kind="stable"):
        rows = np.flatnonzero(labels == cluster)
        lines = []
        if classes is not None:
            found, counts = np.unique(np.asarray(classes)[rows], return_counts=True)
            lines.append("Known classes: " + ", ".join(f"{found[i]} ({counts[i]})" for i in np.argsort(-counts)[:10]))
        lines.append(", ".join(items[i] for i in rows))
        folds[f"Cluster {cluster}: {len(rows)} items"] = lines
    merges = doubtful_merges(tree, items).reset_index()
    merges.index = pd.RangeIndex(1, len(merges) + 1)
    cuts = {f"{at:g}": f"{clusters} clusters" for at, clusters in clusters_at_cuts(tree).items()}
    sections = [
        Section("Tree", figures=tree_figures(tree, names, threshold)),
        Section(f"Clusters, cut at merge probability {threshold:g}", folds=folds),
        Section(
            "How much the cut matters",
            text="Clusters if the tree is cut at other merge probabilities, and the merges nearest to even odds:",
            facts=cuts,
            tables={"Merges in doubt": merges} if len(merges) else {},
        ),
        Section(
            "Newick",
            text="Branch lengths are differences of heights: nats lost by calling a node one cluster, 0 where that is sure.",
            code=tree.to_newick(names),
        ),
    ]
    return write_page(path, title=title, sections=sections)


@dataclass(frozen=True)
class SampledTree:
    """The medoid tree of chains over trees of any branching, and how sure it is.

    Parameters
    ----------
    tree
        The draw with the least expected variation of information from all others.
    support
        (nodes,) share of the draws that have a node of the same items.
    diagnostics
        R-hat and effective sample sizes of numbers that describe a tree.
    notes
        What was found, in sentences.
    problems
        What is missing.
    facts
        Name -> value of what the run was.
    """

    tree: Hierarchy
    support: Float[np.ndarray, " nodes"]
    diagnostics: pd.DataFrame
    notes: list[str]
    problems: list[str]
    facts: dict[str, str]

    @classmethod
    def of(cls, run: ResumableRun, data: Dataset, problems: Sequence[str] = (), seconds: float = np.nan) -> SampledTree:
        """Read the chains of a `bhmc` model."""
        draws = hierarchy_draws(run, data.X)
        tree = draws[draws.medoid()]
        support = draws.support(tree)
        table = diagnostics(to_arviz(run, data.X))
        notes = [*chains_verdict("BHMC", table, run.num_chains), *support_verdict(tree, support)]
        chains, kept = draws.shape
        fixed = getattr(draws.model, "keywords", {}).items()
        numbers = "".join(f", {name} {value:g}" for name, value in fixed if isinstance(value, float))
        facts = {
            "data": f"{data.name}, {data.X.shape[0]} rows × {data.X.shape[1]} columns",
            "model": f"tree of depth {tree.depth}, nested Chinese restaurant process, nodes share components{numbers}",
            "chains": f"{chains}, {kept} draws each, in {seconds:.0f} s",
        }
        return cls(tree, support, table, notes, list(problems), facts)

    def figure(self, data: Dataset) -> Figure:
        """The tree, ends named, coloured by the known classes if there are any, support beside the nodes."""
        drawn = plots.hierarchy(self.tree, names=data.item_names, labels=data.y, support=self.support).figure
        assert isinstance(drawn, Figure)
        return drawn

    def write_page(self, path: str | os.PathLike[str], data: Dataset) -> Path:
        """One HTML file: findings, figure, every node of the first level with its items, diagnostics, Newick text."""
        items = [str(i) for i in range(self.tree.n_items)] if data.item_names is None else list(data.item_names)
        nodes = [node for node in np.flatnonzero(self.tree.levels == 1) if self.tree.sizes[node]]
        folds: dict[str, list[str]] = {}
        for place, node in enumerate(sorted(nodes, key=lambda node: -self.tree.sizes[node])):
            rows = self.tree.items(int(node))
            lines = []
            if data.y is not None:
                found, counts = np.unique(data.y[rows], return_counts=True)
                lines.append("Known classes: " + ", ".join(f"{found[i]} ({counts[i]})" for i in np.argsort(-counts)[:10]))
            lines.append(", ".join(items[i] for i in rows))
            folds[f"Branch {place}: {len(rows)} items, in {self.support[node]:.0%} of the draws"] = lines
        sections = [
            Section("What is missing", notes=self.problems),
            Section("What was found", notes=self.notes),
            Section("Tree", figures={"Ends are named; beside a node, the share of the draws that have it": self.figure(data)}),
            Section("Branches of the root", folds=folds),
            Section("Chains", tables={"R-hat and effective sample sizes of numbers that describe a tree": self.diagnostics}),
            Section("The run", facts=self.facts),
            Section("Newick", code=self.tree.to_newick(data.item_names)),
        ]
        return write_page(path, title=f"{data.name}: hierarchical mixture over a tree", sections=sections)
