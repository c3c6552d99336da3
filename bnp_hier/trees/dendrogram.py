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
        height = np.concatenate([np.zeros(self.n_items), self.heights()])
        return newick_of_merges(self.children, height[self.parents[:-1]] - height[:-1], names)

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
        return dendrogram_purity(self.children, y, pick)
