"""Export of trees in Newick format."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.utils.wording import printable

__all__ = ["newick_of_merges", "newick_of_paths"]


def newick_of_merges(
    children: Int[np.ndarray, "m 2"], lengths: Float[np.ndarray, " branches"], names: Sequence[str] | None
) -> str:
    """Return the Newick string of a binary tree.

    Parameters
    ----------
    children
        (n − 1, 2) merges, as in `Dendrogram`.
    lengths
        (2n − 2,) lengths of the branches above all nodes except the root.
    names
        One name per item, or None to use the item numbers.

    Raises
    ------
    ValueError
        If there is not one name per item.
    """
    n = len(children) + 1
    texts, above = _quoted(names, n), [f":{length:.6g}" for length in lengths] + [""]
    # the pieces are joined once at the end: joining them at every level would copy the text once per level
    pieces: list[str] = []
    waiting: list[int | str] = [2 * n - 2]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            pieces.append(item)
        elif item < n:
            pieces.append(texts[item] + above[item])
        else:
            left, right = children[item - n].tolist()
            pieces.append("(")
            waiting += [")" + above[item], right, ",", left]
    return "".join(pieces) + ";"


def newick_of_paths(paths: Int[np.ndarray, "n depth"], names: Sequence[str] | None) -> str:
    """Return the Newick string of a tree given by its items' paths; items are below their leaves, all branches have length 1.

    Parameters
    ----------
    paths
        (n, depth) node numbers, as in `Hierarchy`.
    names
        One name per item, or None to use the item numbers.

    Raises
    ------
    ValueError
        If there is not one name per item.
    """
    n, depth = paths.shape
    texts = _quoted(names, n)

    def below(items: list[int], level: int) -> str:
        if level == depth:
            return ",".join(f"{texts[item]}:1" for item in items)
        return ",".join(f"({below(list(group), level + 1)}):1" for _, group in groupby(items, key=lambda i: paths[i, level]))

    return f"({below(np.lexsort(paths.T[::-1]).tolist(), 0)});"


def _quoted(names: Sequence[str] | None, n: int) -> list[str]:
    if names is not None and len(names) != n:
        raise ValueError(f"names must have one entry per item, {n} in total, but there are {len(names)}")
    return [_newick_name(str(name)) for name in (names if names is not None else range(n))]


def _newick_name(name: str) -> str:
    name = printable(name).replace("\n", "\\u000a")
    # an underscore outside quotes is read as a space
    if name and not any(c in " _()[]{}/\\,;:'\"\t\n" for c in name):
        return name
    return "'" + name.replace("'", "''") + "'"
