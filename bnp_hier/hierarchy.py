"""Trees over items as plain values, with exports to SciPy, networkx and newick."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

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


def canonical_labels(labels: ArrayLike) -> Int[np.ndarray, " n"]:
    """Labels renamed 0, 1, ... in the order in which the items first show them."""
    labels = np.asarray(labels)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(labels.shape)]


def _newick_name(name: str) -> str:
    # an underscore outside quotes stands for a space
    if name and not any(c in " _()[]{}/\\,;:'\"\t\n" for c in name):
        return name
    return "'" + name.replace("'", "''") + "'"
