"""Trees over items with arbitrary branching and fixed depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.trees.exports import newick_of_paths
from bnp_hier.trees.scores import f_measure, purity
from bnp_hier.utils.labels import canonical_labels

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

__all__ = ["Hierarchy"]


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """A tree with arbitrary branching and fixed depth, in which every item belongs to a leaf.

    Parameters
    ----------
    paths
        (n, depth) node numbers on the path of each item, from the child of the root to the leaf; the root has number 0 and is
        omitted. The numbers are arbitrary: nodes are renumbered 1, 2, ... level by level, in order of appearance.
    labels
        (n,) mixture component of each item, if the items come from a mixture.
    weights
        (numbers, k) proportions of the components at each node, indexed by the numbers given in `paths`; the rows are
        reordered to match the new numbers.

    Raises
    ------
    ValueError
        If a node number occurs on two levels or under two parents, or an array does not have one entry per item or node.

    Examples
    --------
    >>> from bnp_hier import Hierarchy
    >>> tree = Hierarchy.from_names([("pet", "cat"), ("pet", "dog"), ("farm", "cow")])
    >>> tree.labels_at(1), tree.to_newick(["Tom", "Rex", "Ada"])
    (array([0, 0, 1]), '(((Tom:1):1,(Rex:1):1):1,((Ada:1):1):1);')
    """

    paths: Int[np.ndarray, "n depth"]
    labels: Int[np.ndarray, " n"] | None = None
    weights: Float[np.ndarray, "nodes k"] | None = None

    def __post_init__(self) -> None:
        paths = np.asarray(self.paths)
        if paths.ndim != 2 or 0 in paths.shape or paths.dtype.kind not in "iu":
            raise ValueError(
                f"Hierarchy: paths must be whole numbers of shape (n, depth), with at least one item and one level, but they "
                f"have shape {paths.shape} and type {paths.dtype}"
            )
        n, depth = paths.shape
        given = [0]  # original number of each renumbered node
        renamed = np.zeros((n, depth), dtype=np.int64)
        above = np.zeros(n, dtype=np.int64)
        for level, column in enumerate(paths.T):
            names, ranks = np.unique(column), canonical_labels(column)
            known = np.isin(names, given)
            if known.any():
                raise ValueError(f"Hierarchy: node {names[known][0]} occurs on level {level + 1} and on a level above it")
            first = np.unique(ranks, return_index=True)[1]
            strays = above != above[first][ranks]
            if strays.any():
                item = int(strays.argmax())
                other = int(first[ranks[item]])
                raise ValueError(
                    f"Hierarchy: node {column[item]} has two different parents on the paths of items {other} and {item}"
                )
            renamed[:, level] = above = len(given) + ranks
            given += column[first].tolist()
        object.__setattr__(self, "paths", renamed)
        if self.labels is not None:
            labels = np.asarray(self.labels)
            if labels.shape != (n,):
                raise ValueError(
                    f"Hierarchy: labels must have one entry per item, shape ({n},), but they have shape {labels.shape}"
                )
            object.__setattr__(self, "labels", labels)
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64)
            if weights.ndim != 2 or len(weights) <= max(given):
                raise ValueError(
                    f"Hierarchy: weights must have a row for every node number up to {max(given)}, "
                    f"but they have shape {weights.shape}"
                )
            if min(given) < 0:
                raise ValueError(
                    f"Hierarchy: node {min(given)} has no row of weights, which are indexed by the numbers in paths: number "
                    "the nodes from 1"
                )
            object.__setattr__(self, "weights", weights[given])

    @classmethod
    def from_names(cls, paths: Sequence[Sequence[Any]]) -> Hierarchy:
        """Create a hierarchy from paths of names, such as ("clothing", "shoes", "boots"), from below the root to the leaf.

        Equal names under different parents are different nodes. A path may be padded at its end with None, NaN or empty
        strings. Paths shorter than the longest one are extended to its depth by a chain of single nodes, so that every level
        is a partition of all items (Huang et al. 2021, section 5.2).

        Raises
        ------
        ValueError
            If a path is empty, or a name follows a missing one.
        """
        ends = []
        for item, path in enumerate(paths):
            kept = [name for name in path if not _is_missing(name)]
            if not kept or any(map(_is_missing, list(path)[: len(kept)])):
                raise ValueError(
                    "expected a path of at least one name for every item, with missing names only at its end, but the path of "
                    f"item {item} is {list(path)}"
                )
            ends.append(tuple(kept))
        if not ends:
            raise ValueError("expected a path of names for every item, but there are no paths")
        depth = max(map(len, ends))
        numbers: dict[tuple[Any, ...], int] = {}
        return cls(
            np.array(
                # nodes of a chain below a short path are distinguished by their level
                [
                    [numbers.setdefault((level, *path[:level]), len(numbers) + 1) for level in range(1, depth + 1)]
                    for path in ends
                ]
            )
        )

    @property
    def n_items(self) -> int:
        """Number of items n."""
        return self.paths.shape[0]

    @property
    def depth(self) -> int:
        """Number of levels below the root."""
        return self.paths.shape[1]

    @property
    def n_nodes(self) -> int:
        """Number of nodes, including the root."""
        return int(self.paths.max()) + 1

    @property
    def parents(self) -> Int[np.ndarray, " nodes"]:
        """Parent of each node; −1 for the root."""
        parents = np.full(self.n_nodes, -1, dtype=np.int64)
        above = np.column_stack([np.zeros(self.n_items, dtype=np.int64), self.paths[:, :-1]])
        parents[self.paths] = above
        return parents

    @property
    def levels(self) -> Int[np.ndarray, " nodes"]:
        """Level of each node: 0 for the root, `depth` for the leaves."""
        levels = np.zeros(self.n_nodes, dtype=np.int64)
        levels[self.paths] = np.arange(1, self.depth + 1)
        return levels

    @property
    def sizes(self) -> Int[np.ndarray, " nodes"]:
        """Number of items under each node."""
        sizes = np.bincount(self.paths.ravel(), minlength=self.n_nodes)
        sizes[0] = self.n_items
        return sizes

    def items(self, node: int) -> Int[np.ndarray, " m"]:
        """Items under a node.

        Raises
        ------
        ValueError
            If the node does not exist.
        """
        if not 0 <= node < self.n_nodes:
            raise ValueError(f"node must be a number from 0 to {self.n_nodes - 1}, but it is {node}")
        return np.arange(self.n_items) if node == 0 else np.flatnonzero((self.paths == node).any(1))

    def labels_at(self, level: int) -> Int[np.ndarray, " n"]:
        """Cluster labels at a level (0 for the root, `depth` for the leaves), numbered in order of appearance.

        Levels greater than `depth` repeat the clusters of the leaves.

        Raises
        ------
        ValueError
            If the level is negative or not an integer.
        """
        if level != int(level) or level < 0:
            raise ValueError(f"level must be a whole number of at least 0 (the root), but it is {level}")
        if level == 0:
            return np.zeros(self.n_items, dtype=np.int64)
        return canonical_labels(self.paths[:, min(int(level), self.depth) - 1])

    def clades(self) -> set[frozenset[int]]:
        """Sets of items under the nodes, including the root."""
        return {frozenset(self.items(node).tolist()) for node in range(self.n_nodes)}

    def representatives(self, X: ArrayLike, count: int = 3) -> list[Int[np.ndarray, " _"]]:
        """Representative items of each node: those nearest to the mean of its items, nearest first.

        Parameters
        ----------
        X
            (n, d) rows with the coordinates of the items; missing values (NaN) are ignored.
        count
            Maximum number of items per node.

        Raises
        ------
        ValueError
            If there is not one row per item.
        """
        from bnp_hier.utils.arrays import as_matrix

        X = as_matrix(X)
        if len(X) != self.n_items:
            raise ValueError(f"X must have one row per item, {self.n_items} in total, but it has shape {X.shape}")
        found = []
        for node in range(self.n_nodes):
            items = self.items(node)
            rows = np.ma.masked_invalid(X[items])
            distance = ((rows - rows.mean(0)) ** 2).sum(1)
            found.append(items[np.argsort(np.ma.filled(distance, np.inf), kind="stable")[:count]])
        return found

    def to_networkx(self) -> nx.DiGraph:
        """Convert to a directed NetworkX graph, with edges from the root, node 0, towards the leaves.

        Nodes have the attributes `level`, `size` and `items` (a list), and `weights` if the hierarchy has them.
        """
        import networkx as nx

        graph = nx.DiGraph()
        levels, sizes, parents = self.levels.tolist(), self.sizes.tolist(), self.parents.tolist()
        for node in range(self.n_nodes):
            graph.add_node(node, level=levels[node], size=sizes[node], items=self.items(node).tolist())
            if self.weights is not None:
                graph.nodes[node]["weights"] = self.weights[node]
            if node:
                graph.add_edge(parents[node], node)
        return graph

    def to_newick(self, names: Sequence[str] | None = None) -> str:
        """Return a Newick string in which the items are the leaves, each below its node; every branch has length 1.

        Parameters
        ----------
        names
            One name per item; by default, the item numbers.

        Raises
        ------
        ValueError
            If there is not one name per item.
        """
        return newick_of_paths(self.paths, names)

    def scores(self, truth_paths: Sequence[Sequence[Any]]) -> pd.DataFrame:
        """Compare each level with a true hierarchy by purity, NMI, ARI and F-measure, each at most 1.

        Parameters
        ----------
        truth_paths
            True path of each item, as names or numbers from below the root down to the leaf; see `from_names`.

        Returns
        -------
        scores
            One row per level, from 1 (the children of the root) to the depth of the deeper hierarchy; the shallower one is
            represented by its last level from there on.

        Raises
        ------
        ValueError
            If there is not one path per item, or a path is empty.
        """
        import pandas as pd
        from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

        if len(truth_paths) != self.n_items:
            raise ValueError(f"truth_paths must have one path per item, {self.n_items} in total, but it has {len(truth_paths)}")
        truth = Hierarchy.from_names(truth_paths)
        measures = {
            "purity": purity,
            "NMI": normalized_mutual_info_score,
            "ARI": adjusted_rand_score,
            "F-measure": f_measure,
        }
        levels = range(1, max(self.depth, truth.depth) + 1)
        rows = [
            {name: float(score(truth.labels_at(level), self.labels_at(level))) for name, score in measures.items()}
            for level in levels
        ]
        return pd.DataFrame(rows, index=pd.Index(levels, name="level"))


def _is_missing(name: Any) -> bool:
    return name is None or name == "" or (isinstance(name, float | np.floating) and bool(np.isnan(name)))
