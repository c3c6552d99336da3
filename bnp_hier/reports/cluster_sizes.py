"""Which clusters are large, and how unequal sizes are said in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from bnp_hier.utils.wording import in_words

__all__ = ["large_clusters", "sizes_in_words"]

SMALL = 0.2
"""Share of the size of the median row's cluster below which a cluster is small."""

TINY = 2
"""Rows up to which a cluster is tiny."""


def large_clusters(sizes: ArrayLike) -> Bool[np.ndarray, " k"]:
    """(K,) whether each cluster is large: at least a fifth of the size of the cluster that the median row belongs to.

    Rows are ordered by the sizes of their clusters, so that at least half of all rows are in large clusters.
    """
    counts = np.asarray(sizes)
    ordered = np.sort(counts)[::-1]
    typical = ordered[np.searchsorted(np.cumsum(ordered), counts.sum() / 2)]
    return counts >= SMALL * typical


def sizes_in_words(sizes: ArrayLike) -> str:
    """Say how many of the rows the large clusters hold and how many clusters are tiny; empty if none is small or tiny.

    Examples
    --------
    >>> sizes_in_words([90, 69, 62, 59, 2, 2, 1, 1])
    'the four largest hold 98% of the rows, and four have at most two rows'
    >>> sizes_in_words([50, 45, 55])
    ''
    """
    return ", and ".join(_clauses(np.asarray(sizes)))


def _clauses(sizes: np.ndarray) -> Iterator[str]:
    large, tiny = large_clusters(sizes), sizes[sizes <= TINY]
    if not large.all():
        share = sizes[large].sum() / sizes.sum()
        held = "more than 99%" if share > 0.99 else f"{share:.0%}"
        some = int(large.sum())
        yield f"the largest holds {held} of the rows" if some == 1 else f"the {in_words(some)} largest hold {held} of the rows"
    if len(tiny) and len(sizes) > 1:
        most = int(tiny.max())
        rows = "a single row" if most == 1 else f"{'at most ' if tiny.min() < most else ''}{in_words(most)} rows"
        all_of_them = "all" if len(tiny) == len(sizes) else in_words(len(tiny))
        each = " each" if most == tiny.min() and len(tiny) > 1 else ""
        yield f"{all_of_them} {'has' if len(tiny) == 1 else 'have'} {rows}{each}"
