"""A self-contained HTML page whose sections contain text, tables and figures."""

from __future__ import annotations

import base64
import functools
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from bnp_hier.reports.dark_figures import PAPER, dark
from bnp_hier.utils.files import write_text
from bnp_hier.utils.wording import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

__all__ = ["Section", "write_page"]

_DPI = 150

_MARGIN = 0.1
"""White space around a figure, in inches."""

_WIDE = 1150
"""Pixels beyond which a figure is not shrunk to the page."""


@dataclass(frozen=True)
class Section:
    """A part of a page with its own heading; empty content is left out, and so are empty sections.

    Parameters
    ----------
    heading
        Its heading.
    text
        A paragraph.
    notes
        Sentences, as a list.
    facts
        Name -> value.
    tables
        Caption -> DataFrame, whose index becomes the row headers. Numbers are rounded column by column, those of columns with
        "log" or "evidence" in their name to one or two decimals. Missing values are shown as dashes.
    figures
        Caption -> figure; the caption is also the alternative text.
    folds
        Summary -> sentences, collapsed until opened.
    links
        File beside the page -> what it contains.
    code
        Text in a fixed-width font.
    """

    heading: str
    text: str = ""
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    folds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    code: str = ""


def write_page(path: str | os.PathLike[str], *, title: str, sections: Sequence[Section], headline: str = "") -> Path:
    """Write a page as one HTML file that needs nothing else: no script, no other file, no network.

    The page suits phones and laptops, in light and dark mode, and contains every figure in both. All text is treated as plain
    text, never as HTML.

    Parameters
    ----------
    path
        File to write; missing folders are created. The file is replaced as a whole, so it is never half-written.
    title
        Heading of the page.
    sections
        Its content.
    headline
        The conclusion, in large type below the title.

    Returns
    -------
    path
        The file written.
    """
    page = _templates().get_template("page.html")
    return write_text(path, page.render(title=title, headline=headline, sections=list(map(_view, sections))))


@functools.cache
def _templates() -> Environment:
    """The templates, which print everything as plain text, with control characters written out."""
    return Environment(
        loader=PackageLoader("bnp_hier.reports"),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # macros return Markup
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


class _Image(NamedTuple):
    """A figure as shown on the page.

    - **light**, **dark** - PNG, in base 64, for a light and for a dark page.
    - **width**, **height** - in pixels of the page.
    - **is_wide** - whether it scrolls sideways rather than shrink its text.
    """

    light: str
    dark: str
    width: int
    height: int
    is_wide: bool


class _Column(NamedTuple):
    """A column of a table in text.

    - **name** - its heading.
    - **cells** - the values, rounded.
    - **is_number** - whether they are all numbers.
    """

    name: str
    cells: list[str]
    is_number: bool


def _view(section: Section) -> dict[str, Any]:
    """The content of a section, for the template."""
    images = {caption: _image(figure) for caption, figure in section.figures.items()}
    tables = {caption: _table(table) for caption, table in section.tables.items()}
    links = [(quote(name), name, what) for name, what in section.links.items()]
    shown = {each.name: getattr(section, each.name) for each in fields(section)}
    shown |= {"figures": images, "tables": tables, "links": links}
    return shown | {"is_empty": not any(content for name, content in shown.items() if name != "heading")}


def _image(figure: Figure) -> _Image:
    figure.draw_without_rendering()  # everything finds its place, once for both modes
    layout = figure.get_layout_engine()
    figure.set_layout_engine("none")
    box = figure.get_tightbbox().padded(_MARGIN)
    light = _png(figure, "white", box)
    with dark(figure):
        on_dark = _png(figure, PAPER, box)
    figure.set_layout_engine(layout)
    width, height = (int.from_bytes(light[i : i + 4], "big") * 96 // _DPI for i in (16, 20))  # pixels, from the header
    return _Image(base64.b64encode(light).decode(), base64.b64encode(on_dark).decode(), width, height, width > _WIDE)


def _png(figure: Figure, paper: str, box: Bbox) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, bbox_inches=box, facecolor=paper)
    return stream.getvalue()


def _table(table: pd.DataFrame) -> dict[str, Any]:
    """Heading and entries of the row headers, and the columns."""
    names = [" / ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in table.columns]
    values = [table.iloc[:, j].tolist() for j in range(len(names))]
    columns = [
        _Column(name, _column(name, cells), all(_is_number(cell) or _is_missing(cell) for cell in cells))
        for name, cells in zip(names, values, strict=True)
    ]
    return {"index_name": str(table.index.name or ""), "index": [str(name) for name in table.index], "columns": columns}


def _column(name: str, values: Sequence[Any]) -> list[str]:
    """The values of one column as text, all with the same number of decimals."""
    numbers = [float(value) for value in values if _is_number(value) and math.isfinite(value)]
    largest = max(map(abs, numbers), default=0.0)
    if all(number.is_integer() for number in numbers):
        decimals = 0
    elif any(word in name.lower() for word in ("log", "evidence")):
        decimals = 1 if largest >= 1000 else 2
    else:
        decimals = 0 if largest >= 1000 else 1 if largest >= 100 else 2 if largest >= 10 else 3
    return [_cell(value, decimals) for value in values]


def _cell(value: Any, decimals: int) -> str:
    if _is_missing(value):
        return "–"
    if isinstance(value, Integral) or not _is_number(value):
        return str(value)
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    text = f"{value:.{decimals}f}"
    return f"{value:.1g}" if value != 0 and float(text) == 0 else text


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not _is_missing(value)


def _is_missing(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, Real) and math.isnan(value))
