"""Figures for a dark page: the same figure with light ink on dark paper."""

from __future__ import annotations

import colorsys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colors
from matplotlib.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER", "dark", "on_dark"]

PAPER = "#16191d"
"""Background of a dark page."""

_INK = 0.91
_GREY = 0.08
_LEAST_LIGHTNESS = 0.58


@contextmanager
def dark(figure: Figure) -> Iterator[Figure]:
    """Within it, the figure is drawn in light ink on dark paper; afterwards its colours are what they were.

    Greys change places, black for the page's ink and white for its paper; other colours are lightened where they would be
    too dark to see. The colours of images (heat maps) stay, since they have a scale beside them, and so do those of texts that
    are written on images.

    Parameters
    ----------
    figure
        The figure.
    """
    # all are read before any is changed: a colour may be reached in two ways, through axes and through their patch
    found = [(write, read()) for artist in figure.findobj() for read, write in _colours(artist)]
    changes = [(write, before, after) for write, before in found if (after := on_dark(before)) is not None]
    try:
        for write, _, after in changes:
            write(after)
        yield figure
    finally:
        for write, before, _ in reversed(changes):
            write(before)


def _colours(artist: Any) -> Iterator[tuple[Any, Any]]:
    """Getter and setter of every colour of an artist."""
    if getattr(artist, "get_array", lambda: None)() is not None:  # coloured by a map
        return
    if isinstance(artist, Text) and artist.axes is not None and artist.axes.images and artist in artist.axes.texts:
        return
    for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
        read, write = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
        if read is not None and write is not None:
            yield read, write


def on_dark(color: Any) -> Any:
    """Return a colour of a light page, or several, as shown on a dark page; None where there is none to change."""
    if color is None or (isinstance(color, str) and color in {"none", "auto", "inherit"}):
        return None
    try:
        values = colors.to_rgba_array(color)
    except ValueError:
        return None
    if not len(values):
        return None
    changed = np.array([_changed(*value) for value in values])
    single = isinstance(color, str) or np.ndim(color) < 2
    return tuple(changed[0]) if single else changed


def _changed(red: float, green: float, blue: float, alpha: float) -> tuple[float, float, float, float]:
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    if max(red, green, blue) - min(red, green, blue) < _GREY:
        paper = np.array(colors.to_rgb(PAPER))
        grey = paper + (1.0 - lightness) * (_INK - paper)
        return (*grey, alpha)
    return (*colorsys.hls_to_rgb(hue, max(lightness, _LEAST_LIGHTNESS), saturation), alpha)
