"""Binary trees over items."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.trees.exports import newick_of_merges
from bnp_hier.trees.hierarchy import Hierarchy
from bnp_hier.trees.scores import dendrogram_purity
from bnp_hier.utils.labels import canonical_labels

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Dendrogram"]


@dataclasses.dataclass(frozen=True, eq=False)
class Dendrogram:
    """A binary tree over n items, built by n − 1 merges.

    Parameters
    ----------
    children
        (n − 1, 2) numbers of the nodes merged at each step. Items are 0, ..., n − 1; the node made by merge t is n + t.
    log_odds
        (n − 1,) log posterior odds that the items under each node form one cluster rather than being split as in the tree
        (nats); log r/(1 − r) for BHC. Other algorithms may use any merge score whose larger values mean tighter clusters.

    Raises
    ------
    ValueError
        If the arrays do not describe a binary tree in which every node except the root is merged exactly once.

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
                "Dendrogram: children must have shape (n - 1, 2) and log_odds shape (n - 1,), but their shapes are "
                f"{children.shape} and {log_odds.shape}"
            )
        if np.isnan(log_odds).any():
            raise ValueError(
                f"Dendrogram: log_odds must not be NaN, but the value of merge {int(np.isnan(log_odds).argmax())} is NaN"
            )
        n = children.shape[0] + 1
        order = np.arange(n, 2 * n - 1)[:, None]
        if (np.sort(children.ravel()) != np.arange(2 * n - 2)).any() or (children >= order).any():
            raise ValueError("Dendrogram: every node except the root must be merged exactly once, after it was created")
        object.__setattr__(self, "children", children)
        object.__setattr__(self, "log_odds", log_odds)

    @classmethod
    def from_linkage(cls, Z: ArrayLike) -> Dendrogram:
        """Create a dendrogram from a SciPy linkage matrix, such as that of Ward's method; log odds are negative distances.

        Parameters
        ----------
        Z
            (n − 1, 4): nodes merged, distance, and number of items.

        Raises
        ------
        ValueError
            If Z is not a linkage matrix.
        """
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != 4 or (Z[:, :2] != Z[:, :2].astype(int)).any():
            raise ValueError(
                f"Z must be a linkage matrix, shape (n - 1, 4), with node numbers first, but it has shape {Z.shape}"
            )
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
        """Items from left to right in a plot of the tree; the items under each node are consecutive."""
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
        """Cut the tree into clusters: descend from the root and stop at nodes with merge probability r ≥ `threshold`.

        Parameters
        ----------
        threshold
            Merge probability between 0 and 1; 0.5 is the rule of Heller & Ghahramani (2005).

        Returns
        -------
        labels
            (n,) cluster labels, integers from 0 in order of appearance.

        Raises
        ------
        ValueError
            If the threshold is not between 0 and 1.
        """
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold must be a probability between 0 and 1, but it is {threshold}")
        with np.errstate(divide="ignore"):
            limit = np.log(threshold) - np.log1p(-threshold)
        n = self.n_items
        top = np.arange(2 * n - 1)  # for each node, the node at which the descent from the root stopped
        for t in range(n - 2, -1, -1):
            node = n + t
            if top[node] != node or self.log_odds[t] >= limit:
                top[self.children[t]] = top[node]
        return canonical_labels(top[:n])

    def to_hierarchy(self, counts: Sequence[int]) -> Hierarchy:
        """Convert to a hierarchy whose levels have the given numbers of clusters, obtained by undoing the last merges.

        Parameters
        ----------
        counts
            Number of clusters on each level, from the children of the root down: a non-decreasing sequence of integers from 1
            to n.

        Raises
        ------
        ValueError
            If `counts` is empty, decreases, or contains anything but integers from 1 to n.
        """
        n = self.n_items
        wanted = [int(count) for count in counts]
        if not wanted or wanted != list(counts) or wanted != sorted(wanted) or wanted[0] < 1 or wanted[-1] > n:
            raise ValueError(
                f"counts must be whole numbers from 1 to {n}, one per level and in non-decreasing order, but they are "
                f"{list(counts)}"
            )
        parent = np.where(self.parents < 0, 2 * n - 1, self.parents)
        paths, first = [], 1
        for count in wanted:
            top = np.arange(2 * n - 1)
            for node in range(2 * n - 2, -1, -1):
                if parent[node] < 2 * n - count:  # the merge of the parent is not undone
                    top[node] = top[parent[node]]
            paths.append(first + canonical_labels(top[:n]))
            first += count
        return Hierarchy(np.column_stack(paths))

    def heights(self, kind: str = "odds") -> Float[np.ndarray, " m"]:
        """Node heights for plots; they never decrease towards the root.

        Parameters
        ----------
        kind
            "odds": running maximum of −log r, the loss in nats from making the node one cluster; a merge of probability 0 is
            placed slightly above all others. "rank": number of merges made so far, which spreads out crowded trees.

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
        """Convert to a SciPy linkage matrix Z, with the merges sorted by height.

        Parameters
        ----------
        heights
            Kind of heights, see `heights`. Nodes are renumbered in order of height, as SciPy requires; the tree is the same.

        Raises
        ------
        ValueError
            If the kind is unknown.
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
        """Convert to a directed NetworkX graph, with edges from the root towards the items.

        Nodes have the attribute `size`, and internal nodes also `log_odds` and `height`.
        """
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
        """Return a Newick string with branch lengths from `heights`; names with special characters are quoted.

        Parameters
        ----------
        names
            One name per item; by default, the item numbers.

        Raises
        ------
        ValueError
            If there is not one name per item.
        """
        height = np.concatenate([np.zeros(self.n_items), self.heights()])
        return newick_of_merges(self.children, height[self.parents[:-1]] - height[:-1], names)

    def purity(self, y: ArrayLike, pick: str = "pair") -> float:
        """Dendrogram purity: for two random items of a class, the expected share of this class in their smallest subtree.

        Parameters
        ----------
        y
            (n,) class labels.
        pick
            "pair": all pairs of items of the same class are equally likely. "leaf": an item is drawn uniformly and then another
            one of its class, as in the paper, so that large classes have less weight. The two agree if all classes are of
            equal size.

        Returns
        -------
        purity
            Between 0 and 1; 1 if every class is a subtree. Heller & Ghahramani (2005), section 5.

        Raises
        ------
        ValueError
            If there is not one label per item, no class has two items, or `pick` is unknown.
        """
        return dendrogram_purity(self.children, y, pick)
