"""No two texts of a picture overlap, at 10, 200 and 5000 items with long names, clusters and classes."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import bnp_hier as bnp
from bnp_hier import plots
from tests.parameters import few

SIZES = (10, 200, 5000)


def _names(n: int) -> list[str]:
    return [f"a rather long name of item {i}" for i in range(n)]


def _dendrogram(n: int, rng: np.random.Generator) -> Figure:
    children = np.column_stack([np.r_[0, np.arange(n, 2 * n - 2)], np.arange(1, n)])
    tree = bnp.Dendrogram(children, np.linspace(5.0, -5.0, n - 1))
    return plots.dendrogram(tree, labels=rng.integers(0, 9, n), names=_names(n)).figure


def _hierarchy(n: int, rng: np.random.Generator) -> Figure:
    paths = [(f"a{i % 4}", f"b{i % 12}", f"c{rng.integers(0, 60)}") for i in range(n)]
    tree = bnp.Hierarchy.from_names(paths)
    classes = np.array(["a class with a long name", "another", "third"])[np.arange(n) % 3]
    return plots.hierarchy(tree, names=_names(n), labels=classes, support=rng.random(tree.n_nodes)).figure


def _coclustering(n: int, rng: np.random.Generator) -> Figure:
    labels = rng.integers(0, max(3, n // 100), n)
    figure = Figure(figsize=(6, 5), layout="constrained")
    plots.coclustering((labels[:, None] == labels).astype(float), labels=labels, ax=figure.subplots())
    return figure


def _pairs(n: int, rng: np.random.Generator) -> Figure:
    X = 1e4 * rng.normal(size=(n, 7)) + 1e5
    columns = [f"a column with a long name {j}" for j in range(7)]
    return plots.pairs(X, labels=rng.integers(0, max(3, n // 100), n), feature_names=columns)


def _named_points(n: int, rng: np.random.Generator) -> Figure:
    return plots.pairs(rng.normal(size=(n, 2)), labels=rng.integers(0, 4, n), feature_names=["x", "y"], item_names=_names(n))


def _beyond(figure: Figure) -> set[Text]:
    """Labels of ticks outside of the axes, which Matplotlib keeps but does not draw."""
    found = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-9 * (high - low)
            ticks = [tick for tick in axis.get_major_ticks() if not low - slack <= tick.get_loc() <= high + slack]
            found |= {label for tick in ticks for label in (tick.label1, tick.label2)}
    return found


@pytest.mark.parametrize("n", few(SIZES, 2))
@pytest.mark.parametrize("draw", [_dendrogram, _hierarchy, _coclustering, _pairs, _named_points], ids=lambda f: f.__name__[1:])
def test_texts_do_not_overlap(draw, n: int) -> None:
    with matplotlib.rc_context({"figure.dpi": 100}):
        figure = draw(n, np.random.default_rng(0))
        figure.draw_without_rendering()
        hidden = _beyond(figure)
        shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip() and text not in hidden]
        boxes = [(text, text.get_window_extent()) for text in shown]
    clashes = [
        (a.get_text(), b.get_text())
        for i, (a, one) in enumerate(boxes)
        for b, other in boxes[:i]
        if min(one.x1, other.x1) - max(one.x0, other.x0) > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1
    ]
    assert boxes and not clashes, clashes[:5]
