"""Plots of hierarchies: drawn trees and scores by level."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.cluster.hierarchy import fcluster, linkage

import bnp_hier as bnp
from bnp_hier import Hierarchy, plots
from bnp_hier.plots.branch_layout import branches, heights
from bnp_hier.plots.name_lines import Word, wrap
from bnp_hier.plots.palette import cluster_colors

SHOP = Hierarchy.from_names(
    [["tools"]] * 3
    + [["clothing", "shoes", "boots"]] * 4
    + [["clothing", "shoes", "sandals"]] * 2
    + [["clothing", "hats"]] * 5
    + [["food", "fruit", "apples"]]
)
GOODS = "hammer saw pliers b1 b2 b3 b4 s1 s2 h1 h2 h3 h4 h5 apple".split()


@cache
def animals() -> tuple[Hierarchy, tuple[str, ...]]:
    data = bnp.datasets.load("animals33")
    joined = linkage(data.X, "ward")
    columns = [100 * level + fcluster(joined, k, "maxclust") for level, k in enumerate((2, 5, 11, 16), 1)]
    return Hierarchy(np.column_stack(columns)), tuple(data.item_names)


@cache
def large(n: int = 2000) -> tuple[Hierarchy, np.ndarray]:
    """A tree of n items and 500 leaves of uneven sizes, and the item's node at level 1."""
    rng = np.random.default_rng(0)
    column, paths = np.r_[np.arange(500), rng.choice(500, n - 500, p=rng.dirichlet(np.full(500, 0.5)))], []
    for level, (nodes, above) in enumerate([(500, 110), (110, 25), (25, 6), (6, 1)]):
        paths.append(1000 * (4 - level) + column)
        column = rng.choice(above, nodes, p=rng.dirichlet(np.full(above, 1.0)))[column]
    return Hierarchy(np.column_stack(paths[::-1])), paths[-1]


def is_only_child(tree: Hierarchy) -> np.ndarray:
    counts = np.bincount(tree.parents[1:], minlength=tree.n_nodes)
    return np.r_[False, counts[tree.parents[1:]] == 1]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text()]


def drawn_names(axes: Axes) -> set[str]:
    return {name.strip() for text in texts(axes) for name in text.split(",") if name.strip()}


def boxes(found: list[Text]) -> np.ndarray:
    renderer = FigureCanvasAgg(found[0].figure.figure).get_renderer()
    return np.array([text.get_window_extent(renderer).extents for text in found if text.get_text().strip()])


def overlaps(found: list[Text]) -> int:
    """How many pairs of texts overlap on the page."""
    left, bottom, right, top = boxes(found).T
    touching = (left[:, None] < right) & (right[:, None] > left) & (bottom[:, None] < top) & (top[:, None] > bottom)
    return int(np.triu(touching, 1).sum())


def written(axes: Axes) -> list[Text]:
    """All text of a picture that holds these axes only."""
    axes.figure.draw_without_rendering()
    keys = [key for key in axes.get_children() if hasattr(key, "get_texts")]
    return [*axes.texts, *axes.get_xticklabels(), axes.xaxis.label, *(text for key in keys for text in key.get_texts())]


def collection(axes: Axes, label: str) -> PathCollection:
    (found,) = (each for each in axes.collections if each.get_label() == label)
    assert isinstance(found, PathCollection)
    return found


def count(axes: Axes, label: str) -> int:
    return len(np.asarray(collection(axes, label).get_offsets()))


def tidy(axes: Axes) -> bool:
    """Whether no texts overlap, and all are on the page."""
    found = written(axes)
    corners, size = boxes(found), axes.figure.bbox.size
    return overlaps(found) == 0 and bool((corners[:, :2] > -1).all() and (corners[:, 2:] < size + 1).all())


# ---- what is drawn as one, and where ---------------------------------------------------------------------------------


def test_only_children_are_one_branch_with_their_parent() -> None:
    found = branches(SHOP, np.ones(SHOP.n_nodes, dtype=bool), SHOP.depth)
    # root, clothing, shoes, boots, sandals, hats, tools, food
    assert [(each.parent, each.top, each.bottom, each.is_end) for each in found] == [
        (-1, 0, 0, False),
        (0, 1, 1, False),
        (1, 2, 2, False),
        (2, 3, 3, True),
        (2, 3, 3, True),
        (1, 2, 3, True),
        (0, 1, 3, True),
        (0, 1, 3, True),
    ]
    assert SHOP.n_nodes - is_only_child(SHOP).sum() == len(found)


def test_branches_have_the_height_they_need() -> None:
    found = branches(SHOP, np.ones(SHOP.n_nodes, dtype=bool), SHOP.depth)
    middles, total = heights(found, np.where([each.is_end for each in found], 1.0, 0.2))
    assert total == 5.0 and middles[[3, 4, 5, 6, 7]].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert middles[2] == 1.0 and middles[1] == 1.75
    middles, total = heights(found, np.array([0.2, 0.2, 6.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    assert total == 9.0 and middles[2] == 3.0 and middles[[3, 4]].tolist() == [2.5, 3.5] and middles[5] == 6.5


@pytest.mark.parametrize(
    ("room", "most", "lines"),
    [
        (18.0, 1, [["aa", "bb", "cc", "dd", "ee", "ff"]]),
        (17.0, 1, [["aa", "bb", "+ 4 more"]]),
        (9.0, 2, [["aa", "bb", "cc"], ["dd", "ee", "ff"]]),
        (9.0, 1, [["6 items"]]),
        (12.0, 1, [["aa", "+ 5 more"]]),
        (1.0, 3, [["6 items"]]),
    ],
)
def test_names_fill_lines(room: float, most: int, lines: list[list[str]]) -> None:
    words = [Word(text) for text in ("aa", "bb", "cc", "dd", "ee", "ff")]
    found = wrap(words, lambda word: len(word.text) + 1.0, room, most, "6 items")
    assert [[word.text for word in line] for line in found] == lines


# ---- trees -----------------------------------------------------------------------------------------------------------


def test_small_tree_has_every_node_and_name() -> None:
    axes = plots.hierarchy(SHOP, names=GOODS)
    assert count(axes, "nodes") == 8 and count(axes, "groups") == 0
    assert drawn_names(axes) == set(GOODS)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0\n1 node", "1\n3 nodes", "2\n4 nodes", "3\n5 nodes"]
    assert tidy(axes)


def test_animals_are_all_named() -> None:
    tree, names = animals()
    rng = np.random.default_rng(0)
    for options in ({}, {"labels": rng.integers(0, 3, 33), "support": rng.random(tree.n_nodes)}):
        axes = plots.hierarchy(tree, names=names, **options)
        found = {word for text in drawn_names(axes) for word in [text] if word in names}
        assert found == set(names)
        assert count(axes, "nodes") == tree.n_nodes - is_only_child(tree).sum()
        assert tidy(axes)


def test_names_are_written_as_they_are() -> None:
    tree = Hierarchy.from_names([["a", "x"], ["a", "y"], ["b", "z"]])
    axes = plots.hierarchy(tree, names=["$x_1$", "a_b$", "a very long name without an end"])
    assert {"$x_1$", "a_b$"} < drawn_names(axes) and any("…" in text for text in texts(axes))
    assert {"0", "1", "2"} <= drawn_names(plots.hierarchy(tree))


@pytest.mark.parametrize("paths", [np.array([[1]]), np.tile(np.arange(1, 7), (5, 1)), np.arange(1, 4)[None]])
def test_chains_are_a_line_with_one_circle(paths: np.ndarray) -> None:
    axes = plots.hierarchy(Hierarchy(paths), names=[f"item {i}" for i in range(len(paths))])
    assert count(axes, "nodes") == 1 and len(texts(axes)) == 1
    assert axes.texts[0].xy[0] == paths.shape[1]
    assert tidy(axes)


@pytest.mark.slow
def test_many_leaves_stay_readable() -> None:
    tree, groups = large()
    assert (tree.labels_at(4).max(), tree.n_items) == (499, 2000)
    rng = np.random.default_rng(1)
    mixed = np.where(rng.random(2000) < 0.2, rng.integers(0, 6, 2000), groups)
    for options in ({}, {"names": [f"product {i}" for i in range(2000)], "labels": mixed, "support": rng.random(tree.n_nodes)}):
        axes = plots.hierarchy(tree, **options)
        assert 40 < len(texts(axes)) and 0 < count(axes, "groups") < count(axes, "nodes") < 200
        assert max(axes.figure.get_size_inches()) < 12.0
        assert tidy(axes)
        whole = " ".join(texts(axes))
        assert re.search(r"\d+ nodes, \d+ items: ", whole) and re.search(r"\+ \d+ more", whole)


@pytest.mark.slow
def test_a_wide_tree_shows_the_largest_and_counts_the_rest() -> None:
    rng = np.random.default_rng(0)
    leaves = np.r_[np.arange(500), rng.choice(500, 1500, p=rng.dirichlet(np.full(500, 0.5)))]
    axes = plots.hierarchy(Hierarchy(leaves[:, None] + 1))
    shown = count(axes, "nodes") - 1
    sizes = np.sort(np.bincount(leaves))[::-1]
    assert count(axes, "groups") == 1 and shown > 40
    assert any(text.startswith(f"{500 - shown} nodes, {sizes[shown:].sum():,} items: ") for text in texts(axes))
    assert tidy(axes)


def test_small_siblings_are_drawn_together() -> None:
    axes = plots.hierarchy(SHOP, names=GOODS, min_size=4)
    # root, clothing, shoes, boots, hats, and sandals, which has no small sibling
    assert count(axes, "nodes") == 6 and count(axes, "groups") == 1
    assert "2 nodes, 4 items: hammer, saw, pliers, apple" in texts(axes)
    assert count(plots.hierarchy(SHOP, min_size=100), "groups") == 1
    assert count(plots.hierarchy(SHOP, min_size=1), "groups") == 0
    tree, _ = large()
    axes = plots.hierarchy(tree, min_size=40)
    assert count(axes, "nodes") > 40 and count(axes, "groups") > 5 and tidy(axes)


@pytest.mark.slow
def test_every_node_of_a_large_tree_can_be_asked_for() -> None:
    tree, _ = large(500)
    n_drawn = tree.n_nodes - is_only_child(tree).sum()
    axes = plots.hierarchy(tree, min_size=1)
    assert count(axes, "nodes") == n_drawn and count(axes, "groups") == 0 and len(texts(axes)) == 500
    assert tidy(axes)
    # axes that are too small for all texts have those of the largest
    small = plots.hierarchy(tree, min_size=1, ax=Figure(figsize=(5, 4)).subplots())
    assert count(small, "nodes") == n_drawn and 5 < len(texts(small)) < 50
    assert overlaps(list(small.texts)) == 0


def test_nothing_is_drawn_below_the_level() -> None:
    axes = plots.hierarchy(SHOP, names=GOODS, level=1)
    assert count(axes, "nodes") == 4 and len(texts(axes)) == 3
    assert drawn_names(axes) == set(GOODS)
    assert [text.get_text()[0] for text in axes.get_xticklabels()] == ["0", "1"]
    tree, groups = large()
    axes = plots.hierarchy(tree, level=2, labels=groups)
    assert np.asarray(collection(axes, "nodes").get_offsets())[:, 0].max() == 2 and tidy(axes)


def test_larger_nodes_have_larger_circles_and_stand_higher() -> None:
    axes = plots.hierarchy(SHOP)
    circles = collection(axes, "nodes")
    places, areas = np.asarray(circles.get_offsets()), circles.get_sizes()
    assert areas[0] == max(areas) and (np.diff(areas[places[:, 0] == 1]) < 0).all()
    assert (np.diff(places[places[:, 0] == 1, 1]) > 0).all() and axes.yaxis_inverted()


def test_labels_colour_nodes_and_name_classes() -> None:
    labels = np.array(["tool"] * 3 + ["shoe"] * 6 + ["hat"] * 5 + ["food"])
    axes = plots.hierarchy(SHOP, names=GOODS, labels=labels)
    palette = cluster_colors(4)  # food, hat, shoe, tool
    colors = collection(axes, "nodes").get_facecolors()
    places = np.asarray(collection(axes, "nodes").get_offsets())
    assert (colors[places[:, 0] == 3] == palette[2]).all()
    keys = [[text.get_text() for text in key.get_texts()] for key in axes.get_children() if hasattr(key, "get_texts")]
    assert ["food", "hat", "shoe", "tool"] in keys
    slices = [each for each in axes.collections if each.get_label() == "classes"]
    assert sorted(len(each.get_paths()) for each in slices) == [2, 4]  # clothing, and the root
    # names of an end of several classes are marked one by one
    axes = plots.hierarchy(SHOP, names=GOODS, labels=labels, level=1)
    marks = {to_rgba(line.get_color()) for line in axes.lines}
    assert marks == {tuple(palette[1]), tuple(palette[2])}
    assert {*"b1 b2 h5".split(), "hammer, saw, pliers"} <= set(texts(axes))
    many = plots.hierarchy(SHOP, labels=np.arange(15))
    assert len([key for key in many.get_children() if hasattr(key, "get_texts")]) == 1 and tidy(many)


def test_support_is_written_beside_nodes() -> None:
    support = np.linspace(0.0, 0.99, SHOP.n_nodes)
    axes = plots.hierarchy(SHOP, names=GOODS, support=support)
    # neither all items nor single ones
    parents = is_only_child(SHOP)
    expected = {f"{support[node]:.2f}" for node in range(1, SHOP.n_nodes) if SHOP.sizes[node] > 1 and not parents[node]}
    assert expected == {text for text in texts(axes) if re.fullmatch(r"\d\.\d\d", text)} and len(expected) == 6
    assert tidy(axes)


@pytest.mark.slow
def test_drawn_in_given_axes() -> None:
    tree, names = animals()
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert plots.hierarchy(tree, names=names, ax=left) is left
    assert plots.hierarchy(large(500)[0], ax=right) is right
    figure.draw_without_rendering()
    assert overlaps([*left.texts, *right.texts]) == 0
    assert tuple(figure.get_size_inches()) == (11.0, 5.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["a", "b"]}, "names must have one entry for each of the 15 items, but there are 2"),
        ({"labels": [0, 1]}, r"labels must have one entry per item, shape \(15,\), but they have shape \(2,\)"),
        ({"level": 0}, "level must be a whole number from 1 to the tree's depth, 3, but it is 0"),
        ({"level": 4}, "level must be a whole number from 1 to the tree's depth, 3, but it is 4"),
        ({"min_size": 0}, "min_size must be 1 or more, but it is 0"),
        ({"support": [1.0]}, r"support must have one entry per node, shape \(13,\), but it has shape \(1,\)"),
        ({"support": [*[0.5] * 12, 1.5]}, "support must be probabilities between 0 and 1, but that of node 12 is 1.5"),
        ({"support": [np.nan, *[0.5] * 12]}, "that of node 0 is nan"),
    ],
)
def test_hierarchy_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.hierarchy(SHOP, **options)


# ---- scores ----------------------------------------------------------------------------------------------------------


def table(seed: int, levels: int = 4, columns: tuple[str, ...] = ("purity", "NMI", "ARI", "F-measure")) -> pd.DataFrame:
    values = np.random.default_rng(seed).random((levels, len(columns)))
    return pd.DataFrame(values, index=pd.Index(range(1, levels + 1), name="level"), columns=list(columns))


def bars(axes: Axes) -> dict[str, ErrorbarContainer]:
    return {each.get_label(): each for each in axes.containers if isinstance(each, ErrorbarContainer)}


def test_scores_have_means_and_intervals() -> None:
    scores = {"one": [table(s) for s in range(5)], "two": [table(s, 3) for s in range(5)], "alone": table(9)}
    figure = plots.level_scores(scores)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["purity", "NMI", "ARI", "F-measure"]
    for axes in figure.axes:
        found = bars(axes)
        assert list(found) == ["one", "two", "alone"]
        measure = axes.get_title(loc="left")
        values = np.array([each[measure] for each in scores["one"]])
        line, _, (interval,) = found["one"].lines
        np.testing.assert_allclose(line.get_ydata(), values.mean(0))
        np.testing.assert_array_equal(np.round(line.get_xdata()), [1, 2, 3, 4])
        half = 2 * values.std(0, ddof=1) / np.sqrt(5)
        ends = np.array(interval.get_segments())[:, :, 1]
        np.testing.assert_allclose(ends, np.column_stack([values.mean(0) - half, values.mean(0) + half]))
        assert len(found["two"].lines[0].get_xdata()) == 3 and not found["alone"].has_yerr
        places = [each.lines[0].get_xdata()[0] for each in found.values()]
        assert len(set(places)) == 3 and np.ptp(places) < 0.5
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["one", "two", "alone"]
    figure.draw_without_rendering()
    assert not any(key.get_window_extent().overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_methods_whose_names_begin_with_an_underscore_are_in_the_key() -> None:
    """Matplotlib leaves them out of legends that it collects itself."""
    figure = plots.level_scores({"_old": table(0, 2, ("ARI",)), "new$_{": table(1, 2, ("ARI",))})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["_old", "new$_{"]


@pytest.mark.slow
def test_scores_of_a_hierarchy() -> None:
    truth = [["a", str(i % 3)] for i in range(15)]
    figure = plots.level_scores({"$shop_": SHOP.scores(truth)})
    assert len(figure.axes) == 4 and figure.legends[0].get_title().get_text() == ""
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), [1, 2, 3])
    figure.draw_without_rendering()
    assert len(plots.level_scores({"one": table(0, 2, ("ARI",))}).axes) == 1
    assert len(plots.level_scores({"one": table(0, 2, tuple("abcde"))}).axes) == 5


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (lambda: {}, "scores must have at least one method, but it is empty"),
        (lambda: {"one": []}, "scores must have at least one table per method, but 'one' has none"),
        (lambda: {"one": [table(0), [1.0]]}, "scores must be tables of levels and measures, but table 1 of 'one' is a list"),
        (lambda: {"one": table(0).iloc[:0]}, "but table 0 of 'one' is empty"),
        (
            lambda: {"one": [table(0), table(1, 3)]},
            r"all tables of 'one' must have the same levels, \[1, 2, 3, 4\], but table 1 has \[1, 2, 3\]",
        ),
        (lambda: {"one": table(0), "two": table(0, 4, ("ARI",))}, r"but table 0 of 'two' has \['ARI'\]"),
        (lambda: {"one": table(0) * np.nan}, "table 0 of 'one' has missing or infinite scores"),
        (lambda: {"one": table(0).set_index(pd.Index(list("abcd")))}, "levels must be whole numbers, but those of 'one'"),
    ],
)
def test_scores_say_what_is_wrong(scores: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.level_scores(scores())
