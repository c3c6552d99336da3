"""The summary of a clustering as text and as HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from bnp_hier.utils.wording import printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Summary"]

WIDTH = 100
"""Characters of a line of text."""

MOST_CLUSTERS = 12
"""Largest number of clusters that are listed, the largest first."""

NEXT = "Next: .plot(), .to_frame(), .report('report.html'), .to_arviz(), .predict(X_new), .table, .notes"


class Summary(NamedTuple):
    """What a result shows of itself.

    - **title** - the data.
    - **headline** - the finding in a sentence or two.
    - **clusters** - one line for each cluster: `rows`, `probability` and `features`.
    - **lines** - further facts, without a full stop.
    - **warnings** - sentences.
    """

    title: str
    headline: str
    clusters: pd.DataFrame
    lines: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_text(self) -> str:
        """The summary for a terminal; control characters are written out."""
        head = "cluster    rows  probability  distinguishing features, with means or shares"
        lines = [printable(self.title), *_wrapped(self.headline), "", head]
        shown = self._largest()
        for row in shown.itertuples():
            start = f"{row.Index:>7} {row.rows:>7}  {row.probability:>11.2f}  "
            lines += _wrapped(str(row.features) or "–", start, " " * len(start))
        lines += [*self._more(), ""]
        for line in self.lines:
            lines += _wrapped(f"{line}.")
        for warning in self.warnings:
            lines += _wrapped(f"Warning: {warning}", "", "  ")
        return "\n".join([*lines, NEXT])

    def as_html(self) -> str:
        """The same as HTML: text is escaped, and there are no scripts, styles or links."""
        heads = ("cluster", "rows", "probability", "distinguishing features, with means or shares")
        body = [
            (f"{row.Index}", f"{row.rows}", f"{row.probability:.2f}", str(row.features) or "–")
            for row in self._largest().itertuples()
        ]
        parts = [
            f"<p>{_html(self.title)}</p>",
            f"<p><strong>{_html(self.headline)}</strong></p>",
            "<table><thead><tr>" + "".join(f'<th scope="col">{_html(head)}</th>' for head in heads) + "</tr></thead><tbody>",
            *(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in cells)}</tr>" for cells in body),
            "</tbody></table>",
            *(f"<p>{_html(line)}</p>" for line in self._more()),
            "<ul>",
            *(f"<li>{_html(line)}.</li>" for line in self.lines),
            *(f"<li>Warning: {_html(warning)}</li>" for warning in self.warnings),
            "</ul>",
        ]
        return f"<div>{''.join(parts)}</div>"

    def _largest(self) -> pd.DataFrame:
        return self.clusters.nlargest(MOST_CLUSTERS, "rows") if len(self.clusters) > MOST_CLUSTERS else self.clusters

    def _more(self) -> Iterator[str]:
        if len(self.clusters) > MOST_CLUSTERS:
            yield f"and {len(self.clusters) - MOST_CLUSTERS} smaller clusters, in .clusters"


def _wrapped(text: str, start: str = "", indent: str = "") -> list[str]:
    return textwrap.wrap(printable(text, one_line=True), WIDTH, initial_indent=start, subsequent_indent=indent) or [start]


def _html(text: str) -> str:
    return escape(printable(text, one_line=True))
