"""A tree as a picture that leaves room for its names, and as a page with what is in its clusters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jax.typing import ArrayLike
from matplotlib.figure import Figure

from bnp_hier import plots
from bnp_hier.hierarchy import Dendrogram
from bnp_hier.web_page import Section, write_page

__all__ = ["tree_figure", "write_tree_page"]

MOST_NAMED = 250
"""Most leaves for which the picture is made as wide as their names need."""

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


def write_tree_page(
    path: str | os.PathLike[str],
    tree: Dendrogram,
    *,
    title: str,
    names: Sequence[str] | None = None,
    threshold: float = 0.5,
    classes: ArrayLike | None = None,
) -> Path:
    """Write a tree as one HTML file: the picture, and every cluster of the cut with its items, folded up.

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
    cuts = {f"{at:g}": f"{int(tree.cut(at).max()) + 1} clusters" for at in (0.1, 0.3, 0.5, 0.7, 0.9)}
    sections = [
        Section(
            "Tree",
            figures={
                "Branches whose merge probability is below the threshold are grey and dashed": tree_figure(
                    tree, names, threshold
                )
            },
        ),
        Section(f"Clusters, cut at merge probability {threshold:g}", folds=folds),
        Section("How much the cut matters", text="Clusters if the tree is cut at other merge probabilities:", facts=cuts),
        Section("Newick", code=tree.to_newick(names)),
    ]
    return write_page(path, title=title, sections=sections)
