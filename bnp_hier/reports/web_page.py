"""One self-contained HTML page of sections: sentences, tables, figures."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bnp_hier.utils.files import write_text
from bnp_hier.utils.wording import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Section", "write_page"]

_DPI = 150

_WIDE = 1150
"""Pixels beyond which a figure is not shrunk to the page."""

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2126; --soft: #5b636d; --line: #d9dde2; --shade: #f4f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16191d; --ink: #e6e8eb; --soft: #a0a8b2; --line: #363c44; --shade: #1f2429; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
ul, dl { max-width: 46rem; }
li { margin: .3rem 0; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .7rem; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
tr:last-child > * { border-bottom: 0; }
thead tr > * { background: var(--shade); color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--line); }
tr > th:first-child { position: sticky; left: 0; background: var(--shade); max-width: 45vw; overflow: hidden;
  text-overflow: ellipsis; }
caption { text-align: left; padding: .5rem .7rem; color: var(--soft); }
section > .scroll, details { margin: .8rem 0; }
summary { cursor: pointer; padding: .3rem 0; }
p { max-width: 46rem; }
.number { text-align: right; }
dl { display: grid; grid-template-columns: fit-content(40%) 1fr; gap: .3rem 1.2rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; }
figure { margin: 1.2rem 0 2rem; }
.plot { background: #fff; border: 1px solid var(--line); border-radius: .4rem; padding: .4rem; overflow-x: auto; }
img { display: block; margin: 0 auto; height: auto; max-width: 100%; min-width: min(36rem, var(--natural)); }
.wide img { max-width: none; }
figcaption { margin-top: .5rem; color: var(--soft); font-size: .9rem; }
pre { margin: 0; padding: .8rem 1rem; background: var(--shade); font-size: .85rem; line-height: 1.45; }
"""


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading of its own; what is empty is left out, and so is an empty section.

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
        Caption -> DataFrame, its index as row headers. Numbers are rounded column by column; columns with "log" or
        "evidence" in their name to one or two decimals. A missing value is a dash.
    figures
        Caption -> figure; the caption is the text for those who cannot see the figure, too.
    folds
        Summary -> sentences, folded up until asked for.
    code
        Text in fixed width.
    """

    heading: str
    text: str = ""
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    folds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    code: str = ""

    def html(self) -> str:
        """The section, or nothing."""
        parts = [
            f"<p>{_text(self.text)}</p>" if self.text else "",
            "<ul>" + "".join(f"<li>{_text(note)}</li>" for note in self.notes) + "</ul>" if self.notes else "",
            _facts(self.facts) if self.facts else "",
            *(_table(caption, table) for caption, table in self.tables.items()),
            *(_figure(caption, figure) for caption, figure in self.figures.items()),
            *(_fold(summary, items) for summary, items in self.folds.items()),
            _scrolling(self.heading, f"<pre><code>{_text(self.code)}</code></pre>") if self.code else "",
        ]
        content = "\n".join(part for part in parts if part)
        return f"<section>\n<h2>{_text(self.heading)}</h2>\n{content}\n</section>\n" if content else ""


def write_page(path: str | os.PathLike[str], *, title: str, sections: Sequence[Section]) -> Path:
    """Write a page as one HTML file that needs nothing else: no script, no other file, no network.

    The page is read on phones and laptops, in light and dark mode. All text is taken as plain text, never as HTML.

    Parameters
    ----------
    path
        File to write; missing folders are made. The file is replaced as a whole, so that it is never half-written.
    title
        Heading of the page.
    sections
        What is on it.

    Returns
    -------
    path
        The file written.
    """
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{_text(title)}</h1>
{"".join(section.html() for section in sections)}</main>
</body>
</html>
"""
    return write_text(path, page)


def _scrolling(name: str, content: str) -> str:
    """A region of its own that scrolls sideways, by keyboard too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(name)}">{content}</div>'


def _figure(caption: str, figure: Figure) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, bbox_inches="tight", facecolor="white")
    data = stream.getvalue()
    width, height = (int.from_bytes(data[i : i + 4], "big") * 96 // _DPI for i in (16, 20))  # pixels, from the header
    image = (
        f'<img src="data:image/png;base64,{base64.b64encode(data).decode()}" alt="{_text(caption)}" '
        f'width="{width}" height="{height}" style="--natural: {width}px">'
    )
    kind = "plot wide" if width > _WIDE else "plot"  # scrolls sideways rather than shrink its text
    region = f'<div class="{kind}" role="region" tabindex="0" aria-label="{_text(caption)}">'
    return f"<figure>{region}{image}</div><figcaption>{_text(caption)}</figcaption></figure>\n"


def _facts(facts: Mapping[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items()) + "</dl>"


def _fold(summary: str, items: Sequence[str]) -> str:
    listed = "".join(f"<li>{_text(item)}</li>" for item in items)
    return f"<details><summary>{_text(summary)}</summary><ul>{listed}</ul></details>"


def _table(caption: str, table: pd.DataFrame) -> str:
    names = [" / ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in table.columns]
    columns = [table.iloc[:, j].tolist() for j in range(len(names))]
    cells = [_column(name, values) for name, values in zip(names, columns, strict=True)]
    classes = [' class="number"' if all(_is_number(v) or _is_missing(v) for v in values) else "" for values in columns]
    head = "".join(f'<th scope="col"{kind}>{_text(name)}</th>' for name, kind in zip(names, classes, strict=True))
    rows = [f'<tr><th scope="col">{_text(table.index.name or "")}</th>{head}</tr>']
    for row, name in enumerate(table.index):
        data = "".join(f"<td{kind}>{_text(column[row])}</td>" for column, kind in zip(cells, classes, strict=True))
        rows.append(f'<tr><th scope="row">{_text(name)}</th>{data}</tr>')
    body = f"<thead>{rows[0]}</thead>\n<tbody>\n" + "\n".join(rows[1:]) + "\n</tbody>"
    return _scrolling(caption, f"<table>\n<caption>{_text(caption)}</caption>\n{body}\n</table>")


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


def _text(value: object) -> str:
    return escape(printable(value), quote=True)
