"""Text beside points, written only where it is legible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Occupied", "write_apart"]

_DOT = 2.0  # radius that is kept free around a dot, in points
_HORIZONTAL = {-1: "right", 0: "center", 1: "left"}
_VERTICAL = {-1: "top", 0: "center", 1: "bottom"}


class Occupied(NamedTuple):
    """Areas that are already occupied, in data coordinates.

    - **dots** - (m, 2) centres of dots, which no text may touch.
    - **boxes** - (f, 4) boxes (left, bottom, right, top), such as other text, which no text may touch.
    - **lines** - (l, 4) bounding boxes of lines, which text should avoid.
    """

    dots: ArrayLike = ()
    boxes: ArrayLike = ()
    lines: ArrayLike = ()


def write_apart(
    axes: Axes,
    points: Float[np.ndarray, "k 2"],
    texts: Sequence[str],
    offsets: Sequence[tuple[float, float]],
    size: float,
    occupied: Occupied,
    color: str = "black",
) -> None:
    """Write each text beside its point unless it would overlap an earlier text or an occupied area, or leave the axes.

    Parameters
    ----------
    axes
        Axes with final limits, in a figure with a final layout (`draw_without_rendering`), which determines whether text
        fits.
    points
        (k, 2) positions in data coordinates, the most important first.
    texts
        k texts.
    offsets
        Candidate positions of the text relative to its point, as (right, up) in points (1/72 inch). The first free one that
        crosses the fewest lines is used.
    size
        Size of the text in points.
    occupied
        Areas that are already occupied.
    color
        Colour of the text.
    """
    from matplotlib.patheffects import withStroke

    scale = axes.figure.dpi / 72
    frame = axes.get_window_extent()
    dots = _in_pixels(axes, occupied.dots)
    full = np.hstack([dots - _DOT * scale, dots + _DOT * scale])
    lines = _boxes_in_pixels(axes, occupied.lines)
    full = np.vstack([full, _boxes_in_pixels(axes, occupied.boxes)])
    for point, (x, y), text in zip(points, axes.transData.transform(points), texts, strict=True):
        width, height = 0.62 * size * len(text) * scale, 1.1 * size * scale
        best: tuple[int, np.ndarray, tuple[float, float]] | None = None
        for right, up in offsets:
            left = x + right * scale - width * (1 - np.sign(right)) / 2
            bottom = y + up * scale - height * (1 - np.sign(up)) / 2
            box = np.array([left, bottom, left + width, bottom + height])
            inside = left >= frame.x0 and box[2] <= frame.x1 and bottom >= frame.y0 and box[3] <= frame.y1
            if not inside or _touching(box, full):
                continue
            over = _touching(box, lines)
            if best is None or over < best[0]:
                best = over, box, (right, up)
        if best is None:
            continue
        _, box, (right, up) = best
        full = np.vstack([full, box])
        axes.annotate(
            text,
            point,
            xytext=(right, up),
            textcoords="offset points",
            horizontalalignment=_HORIZONTAL[int(np.sign(right))],
            verticalalignment=_VERTICAL[int(np.sign(up))],
            fontsize=size,
            color=color,
            parse_math=False,
            path_effects=[withStroke(linewidth=2.0, foreground="white")] if len(lines) else None,
        )


def _in_pixels(axes: Axes, places: ArrayLike) -> Float[np.ndarray, "m 2"]:
    return axes.transData.transform(np.asarray(places, dtype=np.float64).reshape(-1, 2))


def _boxes_in_pixels(axes: Axes, boxes: ArrayLike) -> Float[np.ndarray, "l 4"]:
    corners = _in_pixels(axes, boxes).reshape(-1, 2, 2)  # inverted axes flip boxes
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def _touching(box: Float[np.ndarray, " 4"], others: Float[np.ndarray, "m 4"]) -> int:
    """Number of other boxes that the box touches."""
    apart = (box[0] > others[:, 2]) | (box[2] < others[:, 0]) | (box[1] > others[:, 3]) | (box[3] < others[:, 1])
    return int((~apart).sum())
