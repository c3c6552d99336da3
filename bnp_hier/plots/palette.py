"""Helpers shared by all plots: axes, clusters, their colours, and short names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from bnp_hier.utils.wording import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

__all__ = ["axes_of_size", "cluster_codes", "cluster_colors", "plain_texts", "short_name"]

# Distinguishable with common colour vision deficiencies: the "muted" scheme of Paul Tol's note on colour schemes (2021),
# with a stronger yellow.
_COLOURS = (
    "332288 indigo",
    "cc6677 rose",
    "117733 green",
    "88ccee cyan",
    "ddaa33 yellow",
    "aa4499 purple",
    "44aa99 teal",
    "882255 wine",
    "999933 olive",
)


def axes_of_size(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The given axes, or those of a new figure of this size (in inches), which is not registered with pyplot."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def plain_texts(legend: Legend) -> Legend:
    """A legend whose texts, such as names of clusters, are not read as formulas."""
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def cluster_colors(n_clusters: int) -> Float[np.ndarray, "k 4"]:
    """Return colours for clusters 0, ..., k − 1: a cycle of nine that colour-blind readers can distinguish.

    Parameters
    ----------
    n_clusters
        Number of clusters k, 0 or more.

    Returns
    -------
    colours
        (k, 4) red, green, blue and opacity between 0 and 1.

    Raises
    ------
    ValueError
        If the number is negative.
    """
    if n_clusters < 0:
        raise ValueError(f"the number of clusters must be 0 or more, but it is {n_clusters}")
    palette = np.array([[*bytes.fromhex(color.split()[0]), 255] for color in _COLOURS]) / 255.0
    return palette[np.arange(n_clusters) % len(palette)]


def cluster_codes(labels: ArrayLike, n_items: int) -> tuple[Shaped[np.ndarray, " k"], Int[np.ndarray, " n"]]:
    """Return the clusters in sorted order and, for each item, the position of its cluster, which determines its colour.

    Parameters
    ----------
    labels
        (n,) labels that can be sorted: whole numbers or text.
    n_items
        Number of items n, each of which must have a label.

    Returns
    -------
    clusters
        (k,) distinct labels.
    codes
        (n,) positions in `clusters`.

    Raises
    ------
    ValueError
        If there is not one label per item.
    """
    labels = np.asarray(labels)
    if labels.shape != (n_items,):
        raise ValueError(f"labels must have one entry per item, shape ({n_items},), but they have shape {labels.shape}")
    clusters, codes = np.unique(labels, return_inverse=True)
    return clusters, codes


def short_name(name: object, most: int = 20) -> str:
    """Return the name as one line of printable text, with the middle left out if it exceeds `most` characters."""
    text = printable(name, one_line=True)
    tail = most // 2 - 1
    return text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[-tail:]}"
