"""Flows between partitions: bands are the contingency table, blocks are the clusters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from sklearn.metrics.cluster import contingency_matrix

from bnp_hier import plots
from bnp_hier.plots.palette import cluster_colors

RNG = np.random.default_rng(0)


def blocks(axes: Axes) -> dict[str, Rectangle]:
    """Rectangles by the partition and label that they describe."""
    return {str(p.get_gid()).rpartition(":")[0]: p for p in axes.patches if isinstance(p, Rectangle)}


def bands(axes: Axes) -> dict[tuple[str, str], list[PathPatch]]:
    """Bands by the blocks that they join."""
    found: dict[tuple[str, str], list[PathPatch]] = {}
    for patch in axes.patches:
        if isinstance(patch, PathPatch):
            _, left, right = re.fullmatch(r"(\d+) items: (.*) → (.*)", str(patch.get_gid())).groups()
            found.setdefault((left, right), []).append(patch)
    return found


def test_bands_are_as_high_as_the_contingency_table() -> None:
    a, b, c = (RNG.integers(0, k, 200) for k in (3, 4, 2))
    axes = plots.partition_flow({"a": a, "b": b, "c": c})
    found, drawn = bands(axes), blocks(axes)
    for left, right, one, other in (("a", "b", a, b), ("b", "c", b, c)):
        counts = contingency_matrix(one, other)
        for (i, j), count in np.ndenumerate(counts):
            heights = [float(np.ptp(band.get_path().vertices[[0, 7], 1])) for band in found[(f"{left} {i}", f"{right} {j}")]]
            assert sum(heights) == pytest.approx(count)
    assert sum(len(each) for each in found.values()) <= 3 * 4 + 3 * 4 * 2
    for name, labels in (("a", a), ("b", b), ("c", c)):
        assert [drawn[f"{name} {k}"].get_height() for k in range(labels.max() + 1)] == np.bincount(labels).tolist()


def test_bands_lie_within_their_blocks_without_overlap() -> None:
    a, b = (RNG.integers(0, k, 300) for k in (5, 4))
    axes = plots.partition_flow({"a": a, "b": b})
    drawn = blocks(axes)
    for side, corners in (("a", (7, 0)), ("b", (4, 3))):
        for name, block in drawn.items():
            if name.startswith(side):
                parts = [
                    band.get_path().vertices[list(corners), 1]
                    for ends, each in bands(axes).items()
                    if name in ends
                    for band in each
                ]
                low, high = np.array(sorted(map(tuple, parts))).T
                assert low[0] == pytest.approx(block.get_y()) and high[-1] == pytest.approx(block.get_y() + block.get_height())
                np.testing.assert_allclose(low[1:], high[:-1])


def test_equal_partitions_do_not_cross_and_colours_are_those_of_the_first() -> None:
    a = np.repeat([0, 1, 2], 10)
    axes = plots.partition_flow({"a": a, "b": np.array(["z", "y", "x"])[a]})
    assert set(bands(axes)) == {("a 0", "b z"), ("a 1", "b y"), ("a 2", "b x")}
    ((band,), *_) = bands(axes).values()
    vertices = band.get_path().vertices
    assert vertices[0, 1] == vertices[3, 1] and vertices[7, 1] == vertices[4, 1]
    np.testing.assert_allclose(band.get_facecolor()[:3], cluster_colors(1)[0][:3])
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["0 (10)", "1 (10)", "2 (10)", "z (10)", "y (10)", "x (10)"]


def test_small_clusters_share_a_block_in_grey() -> None:
    labels = np.concatenate([np.repeat(np.arange(11), 20), np.arange(11, 40)])
    axes = plots.partition_flow({"a": labels, "b": labels})
    assert len(blocks(axes)) == 24 and blocks(axes)["a others"].get_height() == 29
    red, green, blue, _ = blocks(axes)["a others"].get_facecolor()
    assert red == green == blue
    axes.figure.draw_without_rendering()


def test_labels_of_small_blocks_do_not_overlap() -> None:
    labels = np.concatenate([np.repeat(np.arange(11), [1000, 1, 1, 1, 500, 1, 1, 1, 1, 1, 1])])
    axes = plots.partition_flow({"a": labels, "b": labels[::-1]})
    axes.figure.draw_without_rendering()
    for place in (0, 1):
        texts = [text for text in axes.texts if (text.get_position()[0] < 0.5) == (place == 0)]
        boxes = sorted((text.get_window_extent() for text in texts), key=lambda box: box.y0)
        assert len(boxes) == 11
        assert all(below.y1 <= above.y0 + 2.0 for below, above in zip(boxes[:-1], boxes[1:], strict=True))


@pytest.mark.parametrize(
    ("partitions", "message"),
    [({"a": [0, 1]}, "at least two"), ({"a": [], "b": []}, "at least one item"), ({"a": [0, 1], "b": [0]}, r"\(2,\).*\(1,\)")],
)
def test_flow_refuses(partitions: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.partition_flow(partitions)
