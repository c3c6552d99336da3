"""Trees as figures with room for the names of their leaves, and as pages that list the items of each cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jax.typing import ArrayLike
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from bnp_hier import plots
from bnp_hier.arviz_bridge import to_arviz
from bnp_hier.datasets import Dataset
from bnp_hier.posterior.convergence import diagnostics
from bnp_hier.posterior.hierarchies import hierarchy_draws
from bnp_hier.reports.browsable_tree import BrowsableTree
from bnp_hier.reports.chains import DIAGNOSTICS, chains_verdict
from bnp_hier.reports.known_classes import known_classes_of
from bnp_hier.reports.verdicts import clusters_at_cuts, support_verdict
from bnp_hier.reports.web_page import Section, write_page
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.trees import Dendrogram, Hierarchy
from bnp_hier.utils.wording import counted, listed

__all__ = ["BRANCHES", "SampledTree", "browsable_merges", "tree_figure", "write_tree_page"]

BRANCHES = "Branches have the colours of the clusters; those whose merge probability is below {:g} are grey and dashed"
"""Caption of a tree of merges."""

MOST_NAMED = 250
"""Largest number of leaves for which the figure is as wide as their names require."""

INCHES_A_NAME = 0.15
"""Width per leaf at which names are legible."""

LEAST_INCHES = 10.0
"""Width of small trees and of trees without names."""


def tree_figure(tree: Dendrogram, names: Sequence[str] | None = None, threshold: float = 0.5) -> Figure:
    """Plot the dendrogram, wide enough for the names of up to 250 leaves.

    Parameters
    ----------
    tree
        The tree.
    names
        Names of the n leaves; without them, item numbers are shown where there is room.
    threshold
        Merge probability below which a branch is cut.
    """
    n = tree.n_items
    width = max(LEAST_INCHES, INCHES_A_NAME * n + 1.5) if names is not None and n <= MOST_NAMED else LEAST_INCHES
    figure = Figure(figsize=(width, 5.0), layout="constrained")
    plots.dendrogram(tree, names=names, threshold=threshold, ax=figure.subplots())
    return figure


def browsable_merges(
    tree: Dendrogram, names: Sequence[str] | None = None, threshold: float = 0.5, classes: ArrayLike | None = None
) -> BrowsableTree:
    """Prepare a tree for a page, with a figure for readers without scripts, whose leaves are named if the page is wide enough.

    Parameters
    ----------
    tree, names, threshold
        As of `tree_figure`.
    classes
        (n,) known classes, for a strip beside the leaves.
    """
    fitting = names if INCHES_A_NAME * tree.n_items <= LEAST_INCHES else None
    figures = {BRANCHES.format(threshold): tree_figure(tree, fitting, threshold)}
    return BrowsableTree.of_merges(tree, names, threshold, classes, figures)


def doubtful_merges(tree: Dendrogram, items: Sequence[str]) -> pd.DataFrame:
    """Up to twelve merges with probabilities between 0.01 and 0.99, those closest to even odds.

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
    """Write a tree as one HTML file: the figure, and the items of every cluster of the cut, collapsed.

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
        (n,) known classes, which are counted in each cluster.
    """
    labels = tree.cut(threshold)
    items = _items(names, tree.n_items)
    sizes = np.bincount(labels)
    several = np.argsort(-sizes, kind="stable")[: (sizes > 1).sum()]
    groups = {f"Cluster {cluster}: {sizes[cluster]} items": np.flatnonzero(labels == cluster) for cluster in several}
    folds = _folds(groups, items, classes)
    if (sizes == 1).any():
        alone = np.flatnonzero(sizes[labels] == 1)
        folds |= _folds({f"Alone in a cluster: {counted(len(alone), 'item')}": alone}, items)
    merges = doubtful_merges(tree, items).reset_index()
    merges.index = pd.RangeIndex(1, len(merges) + 1)
    cuts = {f"{at:g}": f"{clusters} clusters" for at, clusters in clusters_at_cuts(tree).items()}
    sections = [
        Section("Tree", trees={BRANCHES.format(threshold): browsable_merges(tree, names, threshold, classes)}),
        Section(f"Clusters, cut at merge probability {threshold:g}", folds=folds),
        Section(
            "How much the cut matters",
            text="The number of clusters at other merge probabilities, and the merges closest to even odds:",
            facts=cuts,
            tables={"Merges in doubt": merges} if len(merges) else {},
        ),
        Section(
            "Newick",
            text="The height of a node is the largest −log merge probability (nats) in its subtree; branch lengths are "
            "differences in height.",
            code=tree.to_newick(names),
        ),
    ]
    return write_page(path, title=title, sections=sections)


def _items(names: Sequence[str] | None, n: int) -> list[str]:
    """Names of the items, by default their numbers."""
    return [str(i) for i in range(n)] if names is None else list(map(str, names))


def _folds(
    groups: Mapping[str, Int[np.ndarray, " m"]], items: Sequence[str], classes: ArrayLike | None = None
) -> dict[str, list[str]]:
    """Heading of a group -> its known classes, if any, and its items."""
    return {
        heading: [
            *([] if classes is None else [known_classes_of(np.asarray(classes)[rows])]),
            ", ".join(items[i] for i in rows),
        ]
        for heading, rows in groups.items()
    }


@dataclass(frozen=True)
class SampledTree:
    """The medoid tree of chains over trees of any branching, and how well the draws support it.

    Parameters
    ----------
    tree
        The draw with the least expected variation of information from all others.
    support
        (nodes,) share of the draws that have a node with the same items.
    diagnostics
        R-hat and effective sample sizes of summaries of the trees.
    notes
        What was found, in sentences.
    problems
        What is missing.
    facts
        Name -> value: data, model and chains of the run.
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
            "data": f"{data.name}, {data.X.shape[0]} rows × {len(data.source_columns)} columns",
            "model": f"tree of depth {tree.depth}, nested Chinese restaurant process, nodes share components{numbers}",
            "chains": f"{chains}, {kept} draws each, in {seconds:.0f} s",
        }
        return cls(tree, support, table, notes, list(problems), facts)

    def figure(self, data: Dataset) -> Figure:
        """Plot the tree with named leaves, coloured by the known classes if any, and the support beside the nodes."""
        drawn = plots.hierarchy(self.tree, names=data.item_names, labels=data.classes, support=self.support).figure
        assert isinstance(drawn, Figure)
        return drawn

    def browsable(self, data: Dataset) -> BrowsableTree:
        """The same for a page."""
        figures = {"The number beside a node is the share of the draws that contain it": self.figure(data)}
        return BrowsableTree.of_levels(self.tree, self.support, data.item_names, data.classes, figures)

    def write_page(self, path: str | os.PathLike[str], data: Dataset) -> Path:
        """Write one HTML file: findings, figure, the items of every node of the first level, diagnostics, and Newick text."""
        sizes, support = self.tree.sizes, self.support
        nodes = sorted(np.flatnonzero((self.tree.levels == 1) & (sizes > 0)).tolist(), key=lambda node: -sizes[node])
        branches = {
            f"Branch {place}: {sizes[node]} items, in {support[node]:.0%} of the draws": self.tree.items(node)
            for place, node in enumerate(nodes)
        }
        folds = _folds(branches, _items(data.item_names, self.tree.n_items), data.classes)
        sections = [
            Section("What is missing", notes=self.problems),
            Section("What was found", notes=self.notes),
            Section("Tree", trees={"Every node is described by the share of the draws that contain it": self.browsable(data)}),
            Section("Branches of the root", folds=folds),
            Section("Chains", tables={"Convergence of summaries of the trees": self.diagnostics.rename(columns=DIAGNOSTICS)}),
            Section("The run", facts=self.facts),
            Section("Newick", code=self.tree.to_newick(data.item_names)),
        ]
        return write_page(path, title=f"{data.name}: hierarchical mixture over a tree", sections=sections)
