"""Figures as SVG elements inside an HTML page."""

from __future__ import annotations

import hashlib
import io
import re
from typing import TYPE_CHECKING

import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["inline_svg"]


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
