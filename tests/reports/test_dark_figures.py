"""Figures on dark paper: ink and paper change places, and the figure is afterwards what it was."""

from __future__ import annotations

import numpy as np
from matplotlib import colors
from matplotlib.figure import Figure

from bnp_hier import plots
from bnp_hier.reports.dark_figures import PAPER, dark


def _pixels(figure: Figure, paper: str) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    before = figure.get_facecolor()
    figure.set_facecolor(paper)
    canvas.draw()
    figure.set_facecolor(before)
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(float)


def test_dark_figures_are_dark_and_light_ones_come_back() -> None:
    figure = plots.pairs(np.random.default_rng(0).normal(size=(30, 2)), labels=np.arange(30) % 3)
    light = _pixels(figure, "white")
    with dark(figure):
        on_dark = _pixels(figure, PAPER)
    assert np.median(light) == 255
    assert np.abs(np.median(on_dark, axis=(0, 1)) - 255 * np.array(colors.to_rgb(PAPER))).max() < 3
    assert (on_dark.min(-1) > 200).sum() > 100  # the text is light
    # nothing that is drawn is nearly as dark as the paper: at points of saturated colour there is light, too
    saturated = np.ptp(on_dark, axis=-1) > 60
    assert saturated.sum() > 100 and np.quantile(on_dark[saturated].max(-1), 0.05) > 110
    np.testing.assert_array_equal(_pixels(figure, "white"), light)


def test_colour_maps_stay() -> None:
    axes = plots.coclustering(np.eye(5))
    before = axes.images[0].to_rgba(np.eye(5))
    with dark(axes.figure):
        np.testing.assert_array_equal(axes.images[0].to_rgba(np.eye(5)), before)
        assert min(colors.to_rgb(axes.xaxis.label.get_color())) > 0.8
    assert max(colors.to_rgb(axes.xaxis.label.get_color())) < 0.1
