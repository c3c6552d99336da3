"""Mass, cluster weights and exact samples for tree-consistent partitions and those with clusters made of two disjoint nodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.checks import no_log_marginal
from bnp_hier.deterministic.agglomeration.tree_evidence import node_statistics
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.labels import canonical_labels

__all__ = ["UnionFamily", "union_masses"]

CHUNK = 1 << 16
"""Maximum number of unions evaluated at once."""


class _Choices(NamedTuple):
    """Clusters that may cross one merge: unions of a node on the left and a node on the right.

    - **left**, **right** - node numbers; the children themselves come last, so that the last pair is the node itself.
    - **log_share** - log probability that each pair is a cluster, given that no cluster extends beyond the merge.
    """

    left: Int[np.ndarray, " a"]
    right: Int[np.ndarray, " b"]
    log_share: Float[np.ndarray, "a b"]


@jax.jit
def _node_table(component: Component, X: Array, concentration: Array, children: Array) -> tuple[Statistics, Array, Array]:
    stats = node_statistics(component.suff_stats(X), children)
    sizes = node_statistics(jnp.ones(X.shape[0]), children)
    return stats, sizes, jnp.log(concentration) + gammaln(sizes) + component.log_marginal(stats)


@partial(jax.jit, static_argnames="n")
def _union_chunk(
    component: Component, stats: Statistics, sizes: Array, concentration: Array, pairs: Int[Array, "c 2"], n: int
) -> Float[Array, " c"]:
    left, right = pairs.T
    joint = jax.tree.map(lambda leaf: leaf[left] + leaf[right], stats)
    return jnp.log(concentration) + gammaln(sizes[left] + sizes[right]) + component.log_marginal_up_to(n)(joint)


def union_masses(
    component: Component, X: np.ndarray, concentration: float, tree: Dendrogram, pairs: Int[np.ndarray, "c 2"]
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " c"]]:
    """φ1 = log α + lgamma(N) + m(D) of each node and of the union of each pair of disjoint nodes (nats). Call in float64.

    Raises
    ------
    ValueError
        If the log marginal likelihood of a union is not finite; the message names its rows.
    """
    alpha = jnp.asarray(concentration, float)
    stats, sizes, single = _node_table(component, jnp.asarray(X), alpha, jnp.asarray(tree.children))
    c = len(pairs)
    out = np.empty(c)
    for start in range(0, c, CHUNK):
        part = pairs[start : start + CHUNK]
        # padded to a power of two, so that few programs are compiled
        length = min(CHUNK, max(256, 1 << (len(part) - 1).bit_length()))
        padded = np.concatenate([part, np.zeros((length - len(part), 2), int)])
        masses = _union_chunk(component, stats, sizes, alpha, jnp.asarray(padded), tree.n_items)
        out[start : start + CHUNK] = np.asarray(masses)[: len(part)]
    undefined = ~(out < np.inf)
    if undefined.any():
        order, first = tree.leaf_order(), tree.first_positions()
        under = [order[first[node] : first[node] + tree.sizes[node]] for node in pairs[undefined.argmax()]]
        raise no_log_marginal(component, np.concatenate(under))
    return np.asarray(single), out


class UnionFamily:
    """Tree-consistent partitions, and those in which a cluster joins a node left of a merge with a node right of it.

    Every partition of the family decomposes in a unique way: at each merge, either no cluster crosses it, or exactly one
    does; this cluster consists of one node from each side, and everything beside the paths to these nodes is again
    partitioned by the family. The total mass therefore follows from the recursion
    φ_k = log(exp(φ_l + φ_r) + Σ_{a, b} exp(φ1(a ∪ b) + Σ φ of the siblings on the paths to l and r)).

    Parameters
    ----------
    component, X, concentration
        Component, data (n, d), and α of the Dirichlet process.
    tree
        The tree.
    reach
        Maximum total number of generations by which a and b lie below the two children: 0 yields the tree-consistent
        partitions, 1 the relocations of Xu, Heller & Ghahramani (2009) at all nodes in all combinations, None all pairs.
    budget
        Maximum number of unions; the reach is reduced until they fit.
    start
        At merges before this number, only the node itself may be a cluster that crosses the merge.

    Attributes
    ----------
    log_mass : float
        φ of the root (nats).
    n_unions : int
        Number of unions considered, not counting the nodes of the tree.
    reach : int
        The reach used.
    """

    def __init__(
        self,
        component: Component,
        X: np.ndarray,
        concentration: float,
        tree: Dendrogram,
        reach: int | None,
        budget: int,
        start: int = 0,
    ) -> None:
        self.tree, n = tree, tree.n_items
        self._sizes = tree.sizes
        # nodes in post-order: the nodes under a node are consecutive and end with the node itself
        first = 2 * tree.first_positions()
        depth = np.zeros(2 * n - 1, int)
        for t in range(n - 2, -1, -1):
            left, right = tree.children[t]
            depth[[left, right]] = depth[n + t] + 1
            first[left], first[right] = first[n + t], first[n + t] + 2 * self._sizes[left] - 1
        self._first = first
        place = first + 2 * self._sizes - 2
        self._nodes = np.argsort(place)
        self._depth = depth
        self.reach = self._affordable(reach, budget, start)
        self._choose(component, X, concentration, start)

    def _under(self, node: int) -> slice:
        """Post-order positions of the nodes under a node, ending with the node itself."""
        return slice(self._first[node], self._first[node] + 2 * self._sizes[node] - 1)

    def _affordable(self, reach: int | None, budget: int, start: int) -> int:
        """Largest reach, up to the requested one, whose unions fit the budget."""
        n = self.tree.n_items
        counts = np.zeros(2 * n, np.int64)  # number of pairs by total number of generations
        for t in range(start, n - 1):
            left, right = (self._depth[self._nodes[self._under(c)]] - self._depth[c] for c in self.tree.children[t])
            most = n if reach is None else reach
            pairs = np.convolve(np.bincount(left[left <= most]), np.bincount(right[right <= most]))
            counts[: len(pairs)] += pairs
        deepest = int(np.flatnonzero(counts).max(initial=0)) if reach is None else reach
        total = np.cumsum(counts)[: deepest + 1]
        return max(int((total - total[0] <= budget).sum()) - 1, 0)

    def _choose(self, component: Component, X: np.ndarray, concentration: float, start: int) -> None:
        n, tree = self.tree.n_items, self.tree
        sides: list[tuple[np.ndarray, np.ndarray]] = []
        allowed: list[np.ndarray] = []
        for t, children in enumerate(tree.children):
            reach = self.reach if t >= start else 0
            nodes = [self._nodes[self._under(child)] for child in children]
            below = [self._depth[some] - self._depth[child] for some, child in zip(nodes, children, strict=True)]
            left, right = (some[gap <= reach] for some, gap in zip(nodes, below, strict=True))
            gaps = (gap[gap <= reach] for gap in below)
            allowed.append(np.add.outer(*gaps) <= reach)
            sides.append((left, right))
        pairs = np.concatenate(
            [
                np.column_stack([np.repeat(a, len(b)), np.tile(b, len(a))])[ok.ravel()]
                for (a, b), ok in zip(sides, allowed, strict=True)
            ]
        )
        single, masses = union_masses(component, X, concentration, tree, pairs)
        self.n_unions = len(pairs) - (n - 1)
        self.log_masses = np.concatenate([single[:n], np.zeros(n - 1)])
        paths = np.zeros(2 * n - 1)  # by post-order position: Σ φ of the siblings up to the root of the node's current tree
        self._choices: list[_Choices] = []
        done = 0
        place = np.empty(2 * n - 1, int)
        place[self._nodes] = np.arange(2 * n - 1)
        for t, ((left, right), ok) in enumerate(zip(sides, allowed, strict=True)):
            a, b = tree.children[t]
            block = np.full(ok.shape, -np.inf)
            block[ok] = masses[done : done + ok.sum()]
            done += ok.sum()
            block += paths[place[left]][:, None] + paths[place[right]]
            split = self.log_masses[a] + self.log_masses[b]
            peak = block.max()
            mass = np.logaddexp(split, peak + np.log(np.exp(block - peak).sum()))
            self.log_masses[n + t] = mass
            self._choices.append(_Choices(left, right, block - mass))
            paths[self._under(a)] += self.log_masses[b]
            paths[self._under(b)] += self.log_masses[a]
            paths[place[n + t]] = 0.0
        self.log_mass = float(self.log_masses[-1])

    def weights(self) -> tuple[Int[np.ndarray, "c 2"], Float[np.ndarray, " c"], Float[np.ndarray, " n"]]:
        """Posterior probability of every cluster: the gradient of φ of the root, by one backward pass through the recursion.

        Returns
        -------
        pairs, weights, singletons
            Pairs of nodes whose union is a cluster with positive probability (a node of the tree is the pair of its
            children), their probabilities, and the probability of each item of being a singleton.
        """
        n, tree = self.tree.n_items, self.tree
        place = np.empty(2 * n - 1, int)
        place[self._nodes] = np.arange(2 * n - 1)
        reached = np.zeros(2 * n - 1)  # ∂/∂φ
        reached[-1] = 1.0
        on_path = np.zeros(2 * n - 1)  # ∂/∂paths, by post-order position
        pairs, weights = [], []
        for t in range(n - 2, -1, -1):
            (a, b), (left, right, log_share) = tree.children[t], self._choices[t]
            top = reached[n + t]
            beside = on_path[self._under(a)].sum(), on_path[self._under(b)].sum()
            split = top * np.exp(self.log_masses[a] + self.log_masses[b] - self.log_masses[n + t])
            reached[a] += split + beside[1]
            reached[b] += split + beside[0]
            share = top * np.exp(log_share)
            on_path[place[left]] += share.sum(1)
            on_path[place[right]] += share.sum(0)
            i, j = np.nonzero(share)
            pairs.append(np.column_stack([left[i], right[j]]))
            weights.append(share[i, j])
        return np.concatenate(pairs), np.concatenate(weights), reached[:n]

    def coclustering(self) -> Float[np.ndarray, "n n"]:
        """Posterior probability that two items are in the same cluster."""
        n = self.tree.n_items
        pairs, weights, singletons = self.weights()
        table = np.zeros((2 * n - 1, 2 * n - 1))
        left, right = pairs.T
        np.add.at(table, (left, right), weights)
        table += table.T
        table[np.diag_indices(2 * n - 1)] += np.bincount(left, weights, 2 * n - 1) + np.bincount(right, weights, 2 * n - 1)
        table[np.diag_indices(n)] += singletons
        for axis in (table, table.T):  # propagate from every node down to its items
            for t in range(n - 2, -1, -1):
                axis[self.tree.children[t]] += axis[n + t]
        return table[:n, :n]

    def sample(self, uniforms: Float[np.ndarray, "s m"]) -> Int[np.ndarray, "s n"]:
        """Draw exact samples of partitions, each from up to 2n − 1 of its uniform numbers.

        Going down from the root, a sample decides at each merge whether a cluster crosses it, and which one.
        """
        tree = self.tree
        starts, parents, order = tree.first_positions(), tree.parents.tolist(), tree.leaf_order()
        children = tree.children.tolist()
        cumulative: dict[int, Float[np.ndarray, " c"]] = {}

        def choose(node: int, u: float) -> tuple[int, int] | None:
            """Draw the pair of nodes that form a cluster across this merge, or None if no cluster crosses it."""
            left, right, log_share = self._choices[node - tree.n_items]
            if node not in cumulative:
                cumulative[node] = np.cumsum(np.exp(log_share.ravel()))
            if u >= cumulative[node][-1]:
                return None
            i, j = divmod(int(np.searchsorted(cumulative[node], u, side="right")), len(right))
            return int(left[i]), int(right[j])

        def draw(uniforms: Iterator[float]) -> Int[np.ndarray, " n"]:
            labels = np.empty(tree.n_items, int)
            waiting, clusters = [2 * tree.n_items - 2], 0
            while waiting:
                node = waiting.pop()
                if node < tree.n_items:
                    members = [(node, node)]
                else:
                    pair = choose(node, next(uniforms))
                    if pair is None:
                        waiting += children[node - tree.n_items]
                        continue
                    members = list(zip(pair, children[node - tree.n_items], strict=True))
                for chosen, child in members:
                    labels[order[starts[chosen] : starts[chosen] + self._sizes[chosen]]] = clusters
                    while chosen != child:  # the subtrees beside the path are partitioned independently
                        one, other = children[parents[chosen] - tree.n_items]
                        waiting.append(other if one == chosen else one)
                        chosen = parents[chosen]
                clusters += 1
            return canonical_labels(labels)

        return np.stack([draw(iter(row)) for row in uniforms.tolist()])
