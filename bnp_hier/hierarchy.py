"""Trees over items as plain values, with exports to SciPy, networkx and newick."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.wording import printable

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

__all__ = ["Dendrogram", "Hierarchy", "canonical_labels"]


@dataclasses.dataclass(frozen=True, eq=False)
class Dendrogram:
    """A binary tree over n items, built by n − 1 merges.

    Parameters
    ----------
    children
        (n − 1, 2) node numbers merged at each step. Items are 0, ..., n − 1; the node made by merge t is n + t.
    log_odds
        (n − 1,) log posterior odds that the items under each node are one cluster rather than split as the tree says
        (nats); log r/(1 − r) for BHC. Other algorithms may use any merge score whose larger values bind more tightly.

    Raises
    ------
    ValueError
        If the arrays do not describe a binary tree in which every node is merged once.

    Examples
    --------
    >>> from bnp_hier import Dendrogram
    >>> tree = Dendrogram([[0, 1], [2, 3], [4, 5]], [3.0, 2.0, -4.0])
    >>> tree.cut(), tree.purity([0, 0, 1, 1])
    (array([0, 0, 1, 1]), 1.0)
    """

    children: Int[np.ndarray, "m 2"]
    log_odds: Float[np.ndarray, " m"]

    def __post_init__(self) -> None:
        children, log_odds = np.asarray(self.children), np.asarray(self.log_odds, dtype=np.float64)
        if children.size and children.dtype.kind not in "iu":
            raise ValueError(f"Dendrogram: children must be whole numbers, but their type is {children.dtype}")
        children = children.astype(np.int64)
        if children.ndim != 2 or children.shape[1] != 2 or log_odds.shape != (children.shape[0],):
            raise ValueError(
                f"Dendrogram: children must be (n - 1, 2) and log_odds (n - 1,), got {children.shape} and {log_odds.shape}"
            )
        if np.isnan(log_odds).any():
            raise ValueError(
                f"Dendrogram: log_odds must be numbers, but that of merge {int(np.isnan(log_odds).argmax())} is NaN"
            )
        n = children.shape[0] + 1
        order = np.arange(n, 2 * n - 1)[:, None]
        if (np.sort(children.ravel()) != np.arange(2 * n - 2)).any() or (children >= order).any():
            raise ValueError("Dendrogram: every node but the root must be merged exactly once, after it was made")
        object.__setattr__(self, "children", children)
        object.__setattr__(self, "log_odds", log_odds)

    @classmethod
    def from_linkage(cls, Z: ArrayLike) -> Dendrogram:
        """The tree of a SciPy linkage matrix, its log odds the negative distances: one that Ward's method made, for example.

        Parameters
        ----------
        Z
            (n − 1, 4): nodes merged, distance, and number of items.

        Raises
        ------
        ValueError
            If it is no linkage matrix.
        """
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != 4 or (Z[:, :2] != Z[:, :2].astype(int)).any():
            raise ValueError(f"Z must be a linkage matrix, (n - 1, 4) with node numbers first, but its shape is {Z.shape}")
        return cls(Z[:, :2].astype(int), -Z[:, 2])

    @property
    def n_items(self) -> int:
        """Number of items (leaves) n."""
        return len(self.children) + 1

    @property
    def sizes(self) -> Int[np.ndarray, " nodes"]:
        """Number of items under each of the 2n − 1 nodes."""
        n = self.n_items
        sizes = np.ones(2 * n - 1, dtype=np.int64)
        for t, (left, right) in enumerate(self.children):
            sizes[n + t] = sizes[left] + sizes[right]
        return sizes

    @property
    def parents(self) -> Int[np.ndarray, " nodes"]:
        """Parent of each of the 2n − 1 nodes; −1 for the root."""
        n = self.n_items
        parents = np.full(2 * n - 1, -1, dtype=np.int64)
        parents[self.children] = np.arange(n, 2 * n - 1)[:, None]
        return parents

    @property
    def probabilities(self) -> Float[np.ndarray, " m"]:
        """Merge probability r of each internal node."""
        return np.exp(-np.logaddexp(0.0, -self.log_odds))

    def leaf_order(self) -> Int[np.ndarray, " n"]:
        """Items from left to right as drawn: every node's items are consecutive."""
        return np.argsort(self.first_positions()[: self.n_items])

    def first_positions(self) -> Int[np.ndarray, " nodes"]:
        """Position, in the leaf order, of the first item under each node."""
        n, sizes = self.n_items, self.sizes
        first = np.zeros(2 * n - 1, dtype=np.int64)
        for t in range(n - 2, -1, -1):
            left, right = self.children[t]
            first[left], first[right] = first[n + t], first[n + t] + sizes[left]
        return first

    def cut(self, threshold: float = 0.5) -> Int[np.ndarray, " n"]:
        """Clusters found by going down from the root and stopping at nodes with merge probability r ≥ `threshold`.

        Parameters
        ----------
        threshold
            Merge probability between 0 and 1; 0.5 is the rule of Heller & Ghahramani (2005).

        Returns
        -------
        labels
            (n,) whole numbers from 0, in the order in which the items first show them.

        Raises
        ------
        ValueError
            If the threshold does not lie between 0 and 1.
        """
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold must be a probability between 0 and 1, but it is {threshold}")
        with np.errstate(divide="ignore"):
            limit = np.log(threshold) - np.log1p(-threshold)
        n = self.n_items
        top = np.arange(2 * n - 1)  # the node at which the way down from the root has stopped, for each node
        for t in range(n - 2, -1, -1):
            node = n + t
            if top[node] != node or self.log_odds[t] >= limit:
                top[self.children[t]] = top[node]
        return canonical_labels(top[:n])

    def to_hierarchy(self, counts: Sequence[int]) -> Hierarchy:
        """The clusters that are left when the last merges are undone, on every level as many as asked for.

        Parameters
        ----------
        counts
            Number of clusters on each level from the root's children down, never falling, each from 1 to n.

        Raises
        ------
        ValueError
            If there is no level, or the counts fall or are not whole numbers from 1 to n.
        """
        n = self.n_items
        wanted = [int(count) for count in counts]
        if not wanted or wanted != list(counts) or wanted != sorted(wanted) or wanted[0] < 1 or wanted[-1] > n:
            raise ValueError(
                f"counts must be whole numbers of clusters from 1 to {n}, one for each level, that never fall, but they are "
                f"{list(counts)}"
            )
        parent = np.where(self.parents < 0, 2 * n - 1, self.parents)
        paths, first = [], 1
        for count in wanted:
            top = np.arange(2 * n - 1)
            for node in range(2 * n - 2, -1, -1):
                if parent[node] < 2 * n - count:  # its parent's merge is not undone
                    top[node] = top[parent[node]]
            paths.append(first + canonical_labels(top[:n]))
            first += count
        return Hierarchy(np.column_stack(paths))

    def heights(self, kind: str = "odds") -> Float[np.ndarray, " m"]:
        """Heights for drawing, never falling towards the root.

        Parameters
        ----------
        kind
            "odds": running maximum of −log r, the nats lost by calling the node one cluster; a merge of probability 0 is
            put a little above all others. "rank": number of merges made so far, which spreads crowded trees out.

        Raises
        ------
        ValueError
            If the kind is unknown.
        """
        if kind == "rank":
            return np.arange(1.0, self.n_items)
        if kind != "odds":
            raise ValueError(f'heights must be "odds" or "rank", but it is {kind!r}')
        n = self.n_items
        heights = np.concatenate([np.zeros(n), np.logaddexp(0.0, -self.log_odds)])
        heights[np.isinf(heights)] = 1.1 * heights[np.isfinite(heights)].max() + 1.0
        for t, (left, right) in enumerate(self.children):
            heights[n + t] = max(heights[n + t], heights[left], heights[right])
        return heights[n:]

    def to_linkage(self, heights: str = "odds") -> Float[np.ndarray, "m 4"]:
        """SciPy's linkage matrix Z, for `scipy.cluster.hierarchy`; merges are reordered so that heights never fall.

        Parameters
        ----------
        heights
            See `heights`. Node numbers follow the order of heights, as SciPy requires; children are kept.
        """
        n = self.n_items
        height = self.heights(heights)
        order = np.argsort(height, kind="stable")
        new_number = np.arange(2 * n - 1)
        new_number[n + order] = np.arange(n, 2 * n - 1)
        sizes = self.sizes[n:]
        pairs = np.sort(new_number[self.children[order]], axis=1)
        return np.column_stack([pairs, height[order], sizes[order]]).astype(np.float64)

    def to_networkx(self) -> nx.DiGraph:
        """Directed tree from the root to the items; nodes carry `size`, internal nodes `log_odds` and `height`."""
        import networkx as nx

        graph = nx.DiGraph()
        n, sizes, heights = self.n_items, self.sizes, self.heights()
        for item in range(n):
            graph.add_node(item, size=1)
        for t, (left, right) in enumerate(self.children.tolist()):
            graph.add_node(n + t, size=int(sizes[n + t]), log_odds=float(self.log_odds[t]), height=float(heights[t]))
            graph.add_edges_from([(n + t, left), (n + t, right)])
        return graph

    def to_newick(self, names: Sequence[str] | None = None) -> str:
        """Newick text with branch lengths from `heights`; names with special characters are quoted.

        Parameters
        ----------
        names
            One name per item; the item numbers by default.

        Raises
        ------
        ValueError
            If there is not one name per item.
        """
        n = self.n_items
        if names is not None and len(names) != n:
            raise ValueError(f"names must have one entry per item, {n}, but it has {len(names)}")
        texts = [_newick_name(str(name)) for name in (names if names is not None else range(n))]
        height, parents = np.concatenate([np.zeros(n), self.heights()]), self.parents
        lengths = [f":{length:.6g}" for length in height[parents[:-1]] - height[:-1]] + [""]
        # pieces are joined once at the end: text put together at every level is copied as often as the tree is deep
        pieces: list[str] = []
        waiting: list[int | str] = [2 * n - 2]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                pieces.append(item)
            elif item < n:
                pieces.append(texts[item] + lengths[item])
            else:
                left, right = self.children[item - n].tolist()
                pieces.append("(")
                waiting += [")" + lengths[item], right, ",", left]
        return "".join(pieces) + ";"

    def purity(self, y: ArrayLike, pick: str = "pair") -> float:
        """Dendrogram purity: expected share, over two items of one class, of that class in their smallest subtree.

        Parameters
        ----------
        y
            (n,) class labels.
        pick
            "pair": all pairs of items of one class are equally likely. "leaf": an item uniformly, then another of its class,
            as in the paper, so that large classes weigh less. Equal for classes of one size.

        Returns
        -------
        purity
            Between 0 and 1; 1 when every class is a subtree. Heller & Ghahramani (2005), section 5.

        Raises
        ------
        ValueError
            If there is not one label per item, no class has two items, or `pick` is unknown.
        """
        if pick not in ("pair", "leaf"):
            raise ValueError(f'pick must be "pair" or "leaf", but it is {pick!r}')
        classes, codes = np.unique(np.asarray(y), return_inverse=True)
        n = self.n_items
        if codes.shape != (n,):
            raise ValueError(f"y must have one label per item, shape ({n},), but it has shape {codes.shape}")
        size = np.bincount(codes)
        weight = np.ones(len(classes)) if pick == "pair" else 1.0 / np.maximum(size - 1, 1)
        counts = np.zeros((2 * n - 1, len(classes)))
        counts[np.arange(n), codes] = 1.0
        pairs = total = 0.0
        for t, (left, right) in enumerate(self.children):
            node = counts[left] + counts[right]
            counts[n + t] = node
            meeting = weight * counts[left] * counts[right]
            pairs += meeting.sum()
            total += (meeting * node).sum() / node.sum()
        if pairs == 0:
            raise ValueError("purity needs a class with at least two items")
        return float(total / pairs)


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
        from bnp_hier.components.base import as_matrix

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
        if names is not None and len(names) != self.n_items:
            raise ValueError(f"names must have one entry per item, {self.n_items}, but it has {len(names)}")
        texts = [_newick_name(str(name)) for name in (names if names is not None else range(self.n_items))]

        def below(items: list[int], level: int) -> str:
            if level == self.depth:
                return ",".join(f"{texts[item]}:1" for item in items)
            return ",".join(
                f"({below(list(group), level + 1)}):1" for _, group in groupby(items, key=lambda i: self.paths[i, level])
            )

        return f"({below(np.lexsort(self.paths.T[::-1]).tolist(), 0)});"

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

        from bnp_hier.metrics import f_measure, purity

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


def canonical_labels(labels: ArrayLike) -> Int[np.ndarray, " n"]:
    """Labels renamed 0, 1, ... in the order in which the items first show them."""
    labels = np.asarray(labels)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(labels.shape)]


def _newick_name(name: str) -> str:
    name = printable(name).replace("\n", "\\u000a")
    # an underscore outside quotes stands for a space
    if name and not any(c in " _()[]{}/\\,;:'\"\t\n" for c in name):
        return name
    return "'" + name.replace("'", "''") + "'"


def _is_missing(name: Any) -> bool:
    return name is None or name == "" or (isinstance(name, float | np.floating) and bool(np.isnan(name)))
