"""Heat maps of co-clustering probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import axes_of_size, cluster_codes, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["coclustering"]

_MOST_TICKS = 40
_MOST_LINES = 80

_LEAST_BORDERED = 0.01
"""Share of the items of which one of two neighbouring blocks must consist for a line between them."""

_LEAST_LABELLED = 0.04
"""Share of the items from which on a block has its label beside it."""


def coclustering(matrix: ArrayLike, *, labels: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """Plot a heat map of the probabilities that two items share a cluster.

    Items with the same label are adjacent, and within a label they are in the leaf order of average linkage on
    1 − `matrix`, which puts items that share clusters side by side. Thin lines separate up to 80 labels, except tiny ones.
    Beside the map are the item numbers of up to 40 items; of more, the labels with their numbers of items, where there is room.

    Parameters
    ----------
    matrix
        (n, n) symmetric probabilities, such as those of `bnp_hier.coclustering`.
    labels
        (n,) labels of a partition by which to sort the items; without labels, all items are sorted by linkage.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes, with the image in `ax.images[0]`.

    Raises
    ------
    ValueError
        If the matrix is empty, not square, not symmetric or has entries that are not probabilities, or if there is not
        one label per item.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> draws = [[0, 0, 1], [0, 0, 0], [5, 5, 2], [1, 0, 0]]
    >>> ax = bnp.plots.coclustering(bnp.coclustering(draws), labels=bnp.point_estimate(draws))
    >>> ax.figure.savefig("coclustering.png")  # doctest: +SKIP
    """
    matrix = _probabilities(matrix)
    n = len(matrix)
    clusters, codes = cluster_codes(np.zeros(n, dtype=int) if labels is None else labels, n)
    order = np.concatenate([_linkage_order(matrix, np.flatnonzero(codes == k)) for k in range(len(clusters))])

    axes = axes_of_size(ax, (6.4, 5.4))
    image = axes.imshow(matrix[np.ix_(order, order)], vmin=0.0, vmax=1.0, cmap="Blues")
    axes.figure.colorbar(image, ax=axes, label="probability of sharing a cluster")

    sizes = np.bincount(codes)
    large = np.maximum(sizes[1:], sizes[:-1]) >= _LEAST_BORDERED * n  # lines between tiny blocks would be a black bar
    borders = (np.cumsum(sizes)[:-1] - 0.5)[large]
    if len(clusters) <= _MOST_LINES:
        for draw in (axes.hlines, axes.vlines):
            draw(borders, -0.5, n - 0.5, colors="0.3", linewidths=min(0.8, 16.0 / len(clusters)))

    if n <= _MOST_TICKS:
        size = 9 if n <= 20 else 6
        axes.set_xticks(np.arange(n), order, rotation=90, fontsize=size)
        axes.set_yticks(np.arange(n), order, fontsize=size)
    else:
        _write_labels(axes, [] if labels is None else [short_name(cluster, 16) for cluster in clusters], sizes)
    axes.set_xlabel(f"{n} items" if labels is None else f"{n} items in {len(clusters)} clusters")
    return axes


def _write_labels(axes: Axes, labels: Sequence[str], sizes: Int[np.ndarray, " k"]) -> None:
    """Labels with their numbers of items beside the blocks of a heat map, without those of blocks that are too small."""
    n = int(sizes.sum())
    large = [k for k in range(len(labels)) if sizes[k] >= _LEAST_LABELLED * n]
    middle = (np.cumsum(sizes) - sizes / 2 - 0.5)[large]
    axes.set_xticks(middle, [labels[k] for k in large], fontsize=8, parse_math=False)
    axes.set_yticks(middle, [f"{labels[k]} ({sizes[k]})" for k in large], fontsize=8, parse_math=False)
    axes.tick_params(length=0)


def _probabilities(matrix: ArrayLike) -> Float[np.ndarray, "n n"]:
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"the co-clustering matrix must be square, shape (n, n), but it has shape {matrix.shape}")
    wrong = np.argwhere(~((matrix >= -1e-6) & (matrix <= 1 + 1e-6)))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"the co-clustering matrix must contain probabilities, but has {matrix[row, column]} in row {row}, column {column}"
        )
    if not np.allclose(matrix, matrix.T, rtol=0.0, atol=1e-6):
        row, column = np.unravel_index(np.argmax(np.abs(matrix - matrix.T)), matrix.shape)
        raise ValueError(
            f"the co-clustering matrix must be symmetric, but it has {matrix[row, column]} in row {row}, "
            f"column {column} and {matrix[column, row]} in row {column}, column {row}"
        )
    return np.clip(matrix, 0.0, 1.0)


def _linkage_order(matrix: Float[np.ndarray, "n n"], items: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """The items in the leaf order of average linkage."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(items) < 2:
        return items
    above = np.triu_indices(len(items), k=1)
    return items[leaves_list(linkage(1.0 - matrix[np.ix_(items, items)][above], method="average"))]
