"""A self-contained HTML page whose sections contain text, tables and figures."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.colors import to_hex

from bnp_hier.plots.palette import cluster_colors
from bnp_hier.reports.browsable_tree import BrowsableTree
from bnp_hier.utils.files import write_text
from bnp_hier.utils.wording import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Section", "write_page"]


_DPI = 150

_MARGIN = 0.1
"""White space around a figure, in inches."""

_WIDE = 1150
"""Pixels beyond which a figure is not shrunk to the page."""

_NARROW = 700
"""Pixels up to which a drawing is shrunk to the width of a phone."""

_LONG = 40
"""Characters beyond which a cell of a table may have several lines."""

_LISTED = 3
"""Least number of sections of a page with a contents list."""

_INVERTED = 0.91
"""How far figures are inverted on a dark page, by a CSS filter that keeps hues; paper is left as dark as that of the page."""

_HUES_BACK = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
"""The filter hue-rotate(180deg), by the W3C's recommendation Filter Effects."""

_COLORS = 9
"""Length of the palette of clusters."""

_MOST_CLASSES = 12
"""Most known classes in the legend of a tree."""


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
        "log" or "evidence" in their name to one or two decimals. Missing values are shown as dashes. Tables of more than 30
        rows are collapsed until opened.
    drawings
        Caption -> figure of few lines and texts, which becomes part of the page as SVG; the caption is also the alternative
        text.
    figures
        Caption -> figure, which becomes an image.
    trees
        Caption -> tree that can be opened, searched and zoomed; its own figures are shown to readers without scripts.
    folds
        Summary -> sentences, collapsed until opened.
    links
        File beside the page -> what it contains.
    code
        Text in a fixed-width font; collapsed if it is long.
    tables_first
        Whether the tables come before the figures.
    """

    heading: str
    text: str = ""
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    drawings: Mapping[str, Figure] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    trees: Mapping[str, BrowsableTree] = field(default_factory=dict)
    folds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    tables_first: bool = False


def write_page(path: str | os.PathLike[str], *, title: str, sections: Sequence[Section], headline: str = "") -> Path:
    """Write a page as one HTML file that needs nothing else: no other file, no network.

    The page suits phones and laptops, in light mode and in dark mode, which inverts figures. Its only script sorts tables
    and makes trees browsable; its content security policy allows no other, and no connection to anywhere. Without scripts,
    everything can be read, and trees are figures. All text is treated as plain text, never as HTML. Pages of several sections
    begin with a contents list.

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
    views = list(map(_view, sections))
    for place, view in enumerate(views):  # unique, and fit for an address
        view["anchor"] = f"{re.sub(r'[^a-z0-9]+', '-', view['heading'].lower()).strip('-')}-{place}"
    contents = [(view["anchor"], view["heading"]) for view in views if not view["is_empty"]]
    script = _script()
    content = {
        "title": title,
        "headline": headline,
        "sections": views,
        "contents": contents if len(contents) >= _LISTED else [],
        "colors": _colors(),
        "script": script,
        "script_hash": f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    }
    return write_text(path, page.render(content))


@functools.cache
def _script() -> str:
    """The script of all pages."""
    loader, environment = PackageLoader("bnp_hier.reports"), _templates()
    return "\n".join(["'use strict';", *(loader.get_source(environment, name)[0] for name in ("tables.js", "tree.js"))])


@functools.cache
def _colors() -> str:
    """Style of the classes k0, k1, ...: the colours of clusters, on a light and on a dark page."""
    palette = np.array([color[:3] for color in cluster_colors(_COLORS)])
    inverted = np.clip((_INVERTED + (1.0 - 2.0 * _INVERTED) * palette) @ _HUES_BACK.T, 0.0, 1.0)
    filters = f"filter: invert({_INVERTED}) hue-rotate(180deg)"
    rules = [
        *(f".k{k} {{ color: {to_hex(color)}; }}" for k, color in enumerate(palette)),
        "@media (prefers-color-scheme: dark) {",
        *(f".k{k} {{ color: {to_hex(color)}; }}" for k, color in enumerate(inverted)),
        f".plot img, .drawing {{ {filters}; }}",
        "}",
    ]
    return "\n".join(rules)


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

    - **data** - PNG, in base 64.
    - **width**, **height** - in pixels of the page.
    - **is_wide** - whether it scrolls sideways rather than shrink its text.
    """

    data: str
    width: int
    height: int
    is_wide: bool


class _Drawing(NamedTuple):
    """A figure as SVG elements.

    - **svg** - its SVG element.
    - **width** - in pixels of the page.
    - **least** - width below which it scrolls sideways.
    """

    svg: str
    width: int
    least: int


class _TreeView(NamedTuple):
    """A tree as shown on the page.

    - **content** - what its script reads.
    - **legend** - names of the known classes and the numbers of their colours.
    - **stills** - for readers without scripts.
    """

    content: dict[str, Any]
    legend: list[tuple[str, object]]
    stills: dict[str, _Image]


class _Column(NamedTuple):
    """A column of a table in text.

    - **name** - its heading.
    - **cells** - the values, rounded.
    - **values** - the values of a column of numbers, by which it is sorted; None where missing.
    - **is_number** - whether they are all numbers.
    - **is_long** - whether some are so long that they need several lines.
    """

    name: str
    cells: list[str]
    values: list[Any]
    is_number: bool
    is_long: bool


def _view(section: Section) -> dict[str, Any]:
    """The content of a section, for the template."""
    images = {caption: _image(figure) for caption, figure in section.figures.items()}
    drawings = {caption: _drawing(figure) for caption, figure in section.drawings.items()}
    trees = {caption: _tree(tree) for caption, tree in section.trees.items()}
    tables = {caption: _table(table) for caption, table in section.tables.items()}
    links = [(quote(name), name, what) for name, what in section.links.items()]
    shown = {each.name: getattr(section, each.name) for each in fields(section)}
    shown |= {"figures": images, "drawings": drawings, "trees": trees, "tables": tables, "links": links}
    return shown | {"is_empty": not any(content for name, content in shown.items() if name not in ("heading", "tables_first"))}


def _image(figure: Figure) -> _Image:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, bbox_inches="tight", pad_inches=_MARGIN, facecolor="white")
    data = stream.getvalue()
    width, height = (int.from_bytes(data[i : i + 4], "big") * 96 // _DPI for i in (16, 20))  # pixels, from the header
    return _Image(base64.b64encode(data).decode(), width, height, width > _WIDE)


def _drawing(figure: Figure) -> _Drawing:
    svg = inline_svg(figure, _MARGIN)
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0]) * 96 / 72  # points
    return _Drawing(svg, round(width), round(width * (0.58 if width < _NARROW else 0.8)))


def _tree(tree: BrowsableTree) -> _TreeView:
    content = tree.as_json()
    legend: list[tuple[str, object]] = []
    if content["classes"] is not None:
        named = list(zip(content["class_names"], content["class_colors"], strict=True))
        legend = [(name, color % _COLORS) for name, color in named[:_MOST_CLASSES]]
        if len(named) > _MOST_CLASSES:
            legend.append((f"and {len(named) - _MOST_CLASSES} more", "none"))
    return _TreeView(content, legend, {caption: _image(figure) for caption, figure in tree.figures.items()})


def _table(table: pd.DataFrame) -> dict[str, Any]:
    """Heading and entries of the row headers, and the columns."""
    names = [" / ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in table.columns]
    values = [table.iloc[:, j].tolist() for j in range(len(names))]
    columns = [
        _Column(
            name,
            _column(name, cells),
            [_in_script(cell) if _is_number(cell) else None for cell in cells],
            all(_is_number(cell) or _is_missing(cell) for cell in cells),
            any(len(str(cell)) > _LONG for cell in cells),
        )
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
    elif "r\u2011hat" in name.lower():
        decimals = 4  # which shows why 1.0104 exceeds 1.01
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


def _in_script(value: float) -> str:
    """A number as the page's script reads it."""
    return repr(float(value)).replace("inf", "Infinity")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not _is_missing(value)


def _is_missing(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, Real) and math.isnan(value))


def inline_svg(figure: Figure, margin: float) -> str:
    """Convert a figure to an SVG element without width and height, and with titles that browsers show on hover.

    Parameters
    ----------
    figure
        The figure. Artists whose group id (`set_gid`) contains a space get it as their title.
    margin
        White space around it, in inches.
    """
    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bnp_hier"}):  # text stays text; the same figure, the same SVG
        nothing = {"Date": None, "Creator": None}
        figure.savefig(stream, format="svg", bbox_inches="tight", pad_inches=margin, facecolor="white", metadata=nothing)
    text = stream.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>\s*", "", text, count=1, flags=re.DOTALL)  # of the whole page
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)  # the text of every glyph again
    text = re.sub(r'<g id="([^"]* [^"]*)">', r"<g><title>\1</title>", text)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    mark = f"s{hashlib.sha256(text.encode()).hexdigest()[:8]}-"  # ids must be unique on the page
    text = re.sub(r'\bid="', f'id="{mark}', text)
    text = text.replace('href="#', f'href="#{mark}').replace("url(#", f"url(#{mark}")
    head, _, body = text.partition(">")
    (view,) = re.findall(r'viewBox="([^"]*)"', head)
    lines = re.sub(r"\n\s*", "\n", body)
    return f'<svg viewBox="{view}" stroke-linejoin="round" stroke-linecap="butt">{lines}'
