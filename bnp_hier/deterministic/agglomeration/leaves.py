"""Leaves of an agglomeration, and the merges that it results in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component

__all__ = ["BAR_FROM", "Leaves", "Merges", "cluster_leaves", "row_leaves", "undefined_score"]

BAR_FROM = 2000
"""Minimum number of leaves for which a progress bar is shown."""


class Leaves(NamedTuple):
    """Leaves of the agglomeration: single rows, or clusters that are kept whole.

    - **X** - the rows, (r, d).
    - **labels** - (r,) leaf of each row.
    - **n** - number of leaves.
    - **names** - name of each leaf in error messages.
    """

    X: Float[np.ndarray, "r d"]
    labels: Int[np.ndarray, " r"]
    n: int
    names: Sequence[str]


class Merges(NamedTuple):
    """A tree and the cost of finding it.

    - **children** - (n − 1, 2) node numbers, smaller first, as in `Dendrogram`.
    - **log_odds** - (n − 1,) log odds of each merge (nats).
    - **evaluations** - number of pair scores computed, not counting padding.
    """

    children: Int[np.ndarray, "m 2"]
    log_odds: Float[np.ndarray, " m"]
    evaluations: int


def row_leaves(X: np.ndarray, numbers: Int[np.ndarray, " n"] | None = None) -> Leaves:
    """Make every row a leaf; error messages identify rows by their position in X, or by `numbers` if given."""
    names = [f"row {number}" for number in (range(len(X)) if numbers is None else numbers)]
    return Leaves(np.asarray(X), np.arange(len(X)), len(X), names)


def cluster_leaves(X: np.ndarray, labels: Int[np.ndarray, " n"]) -> Leaves:
    """Make every cluster a leaf that keeps its rows together, in the order of the labels 0, 1, ..."""
    k = int(labels.max()) + 1
    return Leaves(np.asarray(X), labels, k, [f"cluster {label}" for label in range(k)])


def undefined_score(
    component: Component, names: Sequence[str], pair: tuple[int, int], children: Int[np.ndarray, "m 2"]
) -> ValueError:
    """Create the error for two trees whose merge has no finite score; the message names them.

    Parameters
    ----------
    component, names
        Component, and names of the leaves.
    pair
        The two nodes.
    children
        Merges made so far.
    """
    trees = " and ".join(_named(node, names, children) for node in sorted(pair))
    return ValueError(
        f"the score of merging {trees} is not finite: the log marginal likelihood of {type(component).__name__} is not "
        "finite for one of them or for their union"
    )


def _named(node: int, names: Sequence[str], children: Int[np.ndarray, "m 2"]) -> str:
    """Describe a tree by its leaves."""
    waiting, found = [node], []
    while waiting:  # visits every node of the tree once
        top = waiting.pop()
        if top < len(names):
            found.append(top)
        else:
            waiting += children[top - len(names)].tolist()
    found.sort()
    shown = ", ".join(names[leaf] for leaf in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return shown if len(found) == 1 else f"{{{shown}{more}}}"
