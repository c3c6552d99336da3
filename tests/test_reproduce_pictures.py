"""Pictures that only the reproductions draw: trees over images, and the gains of a bound at each merge."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from matplotlib.figure import Figure

from bnp_hier import Hierarchy
from tests.reproductions import FOLDER

SHOP = Hierarchy.from_names(
    [["tools"]] * 3
    + [["clothing", "shoes", "boots"]] * 4
    + [["clothing", "shoes", "sandals"]] * 2
    + [["clothing", "hats"]] * 5
    + [["food", "fruit", "apples"]]
)
IMAGES = np.random.default_rng(0).random((15, 6, 4))
ROWS = IMAGES.reshape(15, -1)


@pytest.fixture
def image_tree(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import image_tree

    return image_tree


@pytest.fixture
def increments(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import increments

    return increments


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in [*figure.texts, *figure.axes[0].texts]]


def test_montage_shows_the_representatives_of_every_node(image_tree: ModuleType) -> None:
    figure = image_tree.montage(SHOP, IMAGES, X=ROWS, count=2)
    assert texts(figure)[0] == "15 images, 8 nodes down to level 3"
    assert sorted(texts(figure)[1:]) == sorted(["1 image", *(f"{k} images" for k in (15, 11, 6, 5, 4, 3, 2))])
    assert len(figure.axes[0].images) == 8
    # two images side by side, a pixel apart, the nearest to the mean first; the root's brightest pixel is white
    sheet = np.asarray(figure.axes[0].images[0].get_array())
    assert sheet.shape == (6, 9, 4) and (sheet[:, 4] == 255).all()
    first = IMAGES[SHOP.representatives(ROWS, 2)[0][0]]
    np.testing.assert_allclose(sheet[:, :4, 0], 255 * (first - IMAGES.min()) / np.ptp(IMAGES), atol=2.0)


def test_montage_leaves_small_nodes_out_and_says_so(image_tree: ModuleType) -> None:
    figure = image_tree.montage(SHOP, IMAGES, X=ROWS, max_nodes=3)  # root, clothing, shoes
    assert len(figure.axes[0].images) == 3
    assert texts(figure)[0] == "15 images, 3 nodes down to level 3; 5 smaller nodes left out"
    assert {"+ 2 smaller nodes, 4 images", "+ 1 smaller node, 5 images", "+ 2 smaller nodes, 6 images"} < set(texts(figure))
    chain = Hierarchy(np.tile(np.arange(1, 5), (15, 1)))
    assert len(image_tree.montage(chain, IMAGES, X=ROWS).axes[0].images) == 1


def test_increments_stand_at_their_merges(increments: ModuleType) -> None:
    values = np.array([np.nan, 0.0, 0.3, np.nan, -1e-15, 0.7, 0.1, 0.02, 0.5, 0.05])
    axes = increments.bound_increments(values, axes=Figure(layout="constrained").subplots())
    here = ~np.isnan(values)
    (stems,) = (each.get_segments() for each in axes.collections if each.get_label() == "increments")
    assert [(s[0, 0], s[0, 1]) for s in stems] == [(t, 0.0) for t in np.flatnonzero(here)]
    np.testing.assert_array_equal([s[1, 1] for s in stems], np.maximum(values[here], 0))
    assert {int(text.get_text()): text.xy[1] for text in axes.texts} == {5: 0.7, 8: 0.5, 2: 0.3, 6: 0.1, 9: 0.05}
    assert axes.get_xlabel() == "merge (2 of 10 without relocations)"
    counts = axes.child_axes[0].patches[0].get_data().values
    assert counts.sum() == here.sum() and counts[0] == 3


@pytest.mark.parametrize("values", [[], [np.nan, np.nan], [0.0, 0.0], [0.4]])
def test_awkward_increments(values: list[float], increments: ModuleType) -> None:
    axes = increments.bound_increments(values, axes=Figure(layout="constrained").subplots())
    assert len(axes.texts) == sum(value > 0 for value in values)
