"""Trees of any branching and fixed depth over items."""

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
    """A tree of any branching and fixed depth: every item lies in a leaf, at the end of a path from the root.

    Parameters
    ----------
    paths
        (n, depth) node numbers of every item, from the root's child to the leaf; the root is number 0 and left out. Any
        numbers will do; they are renamed 1, 2, ... level by level, in the order in which the items first show them.
    labels
        (n,) component of every item, if the items are a mixture's.
    weights
        (numbers, k) proportions of the components at every node, looked up by the numbers given in `paths`; the rows are put
        in the new order.

    Raises
    ------
    ValueError
        If a number stands on two levels or under two parents, or an array does not have one entry per item or node.

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
        given = [0]  # the given number of every new one
        renamed = np.zeros((n, depth), dtype=np.int64)
        above = np.zeros(n, dtype=np.int64)
        for level, column in enumerate(paths.T):
            names, ranks = np.unique(column), canonical_labels(column)
            known = np.isin(names, given)
            if known.any():
                raise ValueError(f"Hierarchy: node {names[known][0]} stands on level {level + 1} and on a level above it")
            first = np.unique(ranks, return_index=True)[1]
            strays = above != above[first][ranks]
            if strays.any():
                item = int(strays.argmax())
                other = int(first[ranks[item]])
                raise ValueError(
                    f"Hierarchy: node {column[item]} stands under two parents, on the paths of items {other} and {item}"
                )
            renamed[:, level] = above = len(given) + ranks
            given += column[first].tolist()
        object.__setattr__(self, "paths", renamed)
        if self.labels is not None:
            labels = np.asarray(self.labels)
            if labels.shape != (n,):
                raise ValueError(f"Hierarchy: labels must have one entry per item, {n}, but they have shape {labels.shape}")
            object.__setattr__(self, "labels", labels)
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64)
            if weights.ndim != 2 or len(weights) <= max(given):
                raise ValueError(
                    f"Hierarchy: weights must have a row for every node number up to {max(given)}, "
                    f"but they have shape {weights.shape}"
                )
            object.__setattr__(self, "weights", weights[given])

    @classmethod
    def from_names(cls, paths: Sequence[Sequence[Any]]) -> Hierarchy:
        """The tree of paths of names, such as ("clothing", "shoes", "boots"), from below the root to the leaf.

        Equal names under different parents are different nodes. Paths end where they end, or at the first None, NaN or empty
        text; those that are shorter than the longest are extended to its depth by a chain of single nodes, so that every
        level is a partition of all items (Huang et al. 2021, section 5.2).

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
                    f"expected a path of names for every item, missing ones only at its end, but that of item {item} is "
                    f"{list(path)}"
                )
            ends.append(tuple(kept))
        if not ends:
            raise ValueError("expected a path of names for every item, but there are none")
        depth = max(map(len, ends))
        numbers: dict[tuple[Any, ...], int] = {}
        return cls(
            np.array(
                # a chain below a short path is named by its length
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
        """Number of nodes, the root included."""
        return int(self.paths.max()) + 1

    @property
    def parents(self) -> Int[np.ndarray, " nodes"]:
        """Parent of every node; −1 for the root."""
        parents = np.full(self.n_nodes, -1, dtype=np.int64)
        above = np.column_stack([np.zeros(self.n_items, dtype=np.int64), self.paths[:, :-1]])
        parents[self.paths] = above
        return parents

    @property
    def levels(self) -> Int[np.ndarray, " nodes"]:
        """Level of every node: 0 for the root, `depth` for leaves."""
        levels = np.zeros(self.n_nodes, dtype=np.int64)
        levels[self.paths] = np.arange(1, self.depth + 1)
        return levels

    @property
    def sizes(self) -> Int[np.ndarray, " nodes"]:
        """Number of items under every node."""
        sizes = np.bincount(self.paths.ravel(), minlength=self.n_nodes)
        sizes[0] = self.n_items
        return sizes

    def items(self, node: int) -> Int[np.ndarray, " m"]:
        """The items under a node.

        Raises
        ------
        ValueError
            If there is no such node.
        """
        if not 0 <= node < self.n_nodes:
            raise ValueError(f"node must be a number from 0 to {self.n_nodes - 1}, but it is {node}")
        return np.arange(self.n_items) if node == 0 else np.flatnonzero((self.paths == node).any(1))

    def labels_at(self, level: int) -> Int[np.ndarray, " n"]:
        """Clusters at a level, 0 for the root and `depth` for the leaves, numbered in order of appearance.

        Levels below the leaves repeat them.

        Raises
        ------
        ValueError
            If the level is negative.
        """
        if level != int(level) or level < 0:
            raise ValueError(f"level must be a whole number of at least 0 (the root), but it is {level}")
        if level == 0:
            return np.zeros(self.n_items, dtype=np.int64)
        return canonical_labels(self.paths[:, min(int(level), self.depth) - 1])

    def clades(self) -> set[frozenset[int]]:
        """The sets of items under the nodes, the root's included."""
        return {frozenset(self.items(node).tolist()) for node in range(self.n_nodes)}

    def representatives(self, X: ArrayLike, count: int = 3) -> list[Int[np.ndarray, " _"]]:
        """For every node, its (at most `count`) items nearest to their mean, nearest first.

        Parameters
        ----------
        X
            (n, d) rows in which items near each other are alike; cells that are NaN are left out.
        count
            How many items to name.

        Raises
        ------
        ValueError
            If there is not one row per item.
        """
        from bnp_hier.utils.arrays import as_matrix

        X = as_matrix(X)
        if len(X) != self.n_items:
            raise ValueError(f"X must have one row per item, {self.n_items}, but it has shape {X.shape}")
        found = []
        for node in range(self.n_nodes):
            items = self.items(node)
            rows = np.ma.masked_invalid(X[items])
            distance = ((rows - rows.mean(0)) ** 2).sum(1)
            found.append(items[np.argsort(np.ma.filled(distance, np.inf), kind="stable")[:count]])
        return found

    def to_networkx(self) -> nx.DiGraph:
        """Directed tree from the root, node 0, to the leaves.

        Nodes carry `level`, `size` and the list `items`, and `weights` if the hierarchy has them.
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
        """Newick text whose leaves are the items, below the node that holds them; every branch has length 1.

        Parameters
        ----------
        names
            One name per item; the item numbers by default.

        Raises
        ------
        ValueError
            If there is not one name per item.
        """
        return newick_of_paths(self.paths, names)

    def scores(self, truth_paths: Sequence[Sequence[Any]]) -> pd.DataFrame:
        """How well every level agrees with that of a true hierarchy: purity, NMI, ARI and F-measure, each at most 1.

        Parameters
        ----------
        truth_paths
            For every item the true path, as names or numbers from below the root to its end; see `from_names`.

        Returns
        -------
        scores
            One row per level, from 1 (the root's children) to the depth of the deeper hierarchy; the other's last level
            stands for those that it has not.

        Raises
        ------
        ValueError
            If there is not one path per item, or a path is empty.
        """
        import pandas as pd
        from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

        if len(truth_paths) != self.n_items:
            raise ValueError(f"truth_paths must have one path per item, {self.n_items}, but it has {len(truth_paths)}")
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
