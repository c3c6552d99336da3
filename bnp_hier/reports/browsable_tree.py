"""Trees that readers open, search and zoom on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.plots.palette import cluster_codes
from bnp_hier.trees import Dendrogram, Hierarchy
from bnp_hier.utils.wording import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BrowsableTree"]


@dataclass(frozen=True, eq=False)
class BrowsableTree:
    """A tree of any branching for a page: its inner nodes in preorder, and its items from the first to the last leaf.

    Parameters
    ----------
    parents
        (m,) parent of each inner node; −1 for the root, which comes first.
    first
        (m,) position of the first item under each inner node.
    sizes
        (m,) number of items under each inner node.
    heights
        (m,) inner nodes with larger ones are nearer to the root.
    values
        (m,) what is said of the inner nodes.
    measure
        "odds": the values are log odds of a merge; "share": shares of the draws that contain the node.
    order
        (n,) items from the first to the last leaf.
    names
        Names of the n items, in their own order; None for their numbers.
    clusters
        (n,) cluster of each item, which determines the colours of branches.
    classes
        (n,) known class of each item, for the strip beside the leaves.
    figures
        Caption -> figure, for readers without scripts.
    """

    parents: Int[np.ndarray, " m"]
    first: Int[np.ndarray, " m"]
    sizes: Int[np.ndarray, " m"]
    heights: Int[np.ndarray, " m"]
    values: Float[np.ndarray, " m"]
    measure: str
    order: Int[np.ndarray, " n"]
    names: Sequence[str] | None
    clusters: Int[np.ndarray, " n"]
    classes: ArrayLike | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @classmethod
    def of_merges(
        cls,
        tree: Dendrogram,
        names: Sequence[str] | None = None,
        threshold: float = 0.5,
        classes: ArrayLike | None = None,
        figures: Mapping[str, Figure] | None = None,
    ) -> BrowsableTree:
        """A binary tree, whose branches are coloured by its cut."""
        n = tree.n_items
        first = tree.first_positions()
        nodes = np.arange(n, 2 * n - 1)
        order = nodes[np.lexsort((-tree.sizes[nodes], first[nodes]))]  # ancestors come before their descendants
        place = np.full(2 * n, -1)
        place[order] = np.arange(n - 1)
        return cls(
            place[tree.parents[order]],  # the root's, -1, is the last
            first[order],
            tree.sizes[order],
            order - n,
            tree.log_odds[order - n],
            "odds",
            tree.leaf_order(),
            names,
            tree.cut(threshold),
            classes,
            figures or {},
        )

    @classmethod
    def of_levels(
        cls,
        tree: Hierarchy,
        support: Float[np.ndarray, " nodes"],
        names: Sequence[str] | None = None,
        classes: ArrayLike | None = None,
        figures: Mapping[str, Figure] | None = None,
    ) -> BrowsableTree:
        """A tree of any branching, whose branches are coloured by the children of the root.

        Nodes with the same items as their parent, and those of a single item, are left out.
        """
        order = np.lexsort(tree.paths.T[::-1])
        ordered = tree.paths[order]
        found = [(0, tree.n_items, 0, 0)]  # first position, number of items, level, node
        for level in range(tree.depth):
            starts = np.flatnonzero(np.r_[True, ordered[1:, level] != ordered[:-1, level]])
            ends = np.r_[starts[1:], tree.n_items]
            found += [(int(a), int(b - a), level + 1, int(ordered[a, level])) for a, b in zip(starts, ends, strict=True)]
        kept: list[tuple[int, int, int, int]] = []
        parents: list[int] = []
        above: list[int] = []  # nodes that contain the present one
        for node in sorted(found, key=lambda each: (each[0], -each[1], each[2])):
            while above and kept[above[-1]][0] + kept[above[-1]][1] <= node[0]:
                above.pop()
            if above and (node[1] == 1 or kept[above[-1]][:2] == node[:2]):
                continue
            parents.append(above[-1] if above else -1)
            above.append(len(kept))
            kept.append(node)
        first, sizes, levels, nodes = np.array(kept).T
        return cls(
            np.array(parents), first, sizes, -levels, support[nodes], "share", order, names, tree.labels_at(1), classes,
            figures or {},
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Arrays for the page's script, in which items have their positions among the leaves."""
        names = [printable(i if self.names is None else self.names[i], one_line=True) for i in self.order]
        codes = cluster_codes(self.clusters, len(self.order))[1]
        content = {
            "parents": self.parents.tolist(),
            "first": self.first.tolist(),
            "sizes": self.sizes.tolist(),
            "heights": self.heights.tolist(),
            "values": [None if np.isinf(value) and value > 0 else _digits(value) for value in self.values],
            "measure": self.measure,
            "names": names,
            "clusters": codes[self.order].tolist(),
        }
        if self.classes is None:
            return content | {"classes": None}
        found, classes = cluster_codes(self.classes, len(self.order))
        return content | {
            "classes": classes[self.order].tolist(),
            "class_names": [printable(name, one_line=True) for name in found],
            "class_colors": _matched(codes, classes).tolist(),
        }


def _digits(value: float) -> float:
    """Three significant digits; minus infinity as a number that JSON has."""
    return float(f"{max(value, -1e300):.3g}")


def _matched(clusters: Int[np.ndarray, " n"], classes: Int[np.ndarray, " n"]) -> Int[np.ndarray, " k"]:
    """For each class, the number of the cluster whose colour it gets: clusters and classes are paired to share most items."""
    from scipy.optimize import linear_sum_assignment

    shared = np.zeros((classes.max() + 1, clusters.max() + 1), dtype=np.int64)
    np.add.at(shared, (classes, clusters), 1)
    rows, columns = linear_sum_assignment(-shared)
    colors = np.full(len(shared), -1)
    colors[rows] = columns
    free = iter(sorted(set(range(shared.shape[0] + shared.shape[1])) - set(columns.tolist())))
    return np.array([color if color >= 0 else next(free) for color in colors])
