import io
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from scipy.stats import rankdata

from bnp_hier import plots
from bnp_hier.plots import (
    bounds,
    chains,
    density,
    heatmap,
    palette,
    scatter,
    texts,
    tree,
)
from bnp_hier.plots.palette import cluster_codes, cluster_colors, short_name
from bnp_hier.trees import Dendrogram


def as_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


def block_matrix(labels: np.ndarray, inside: float = 0.9, outside: float = 0.1) -> np.ndarray:
    matrix = np.where(labels[:, None] == labels, inside, outside)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def logit(r: list[float]) -> np.ndarray:
    return np.log(r) - np.log1p(-np.array(r))


def caterpillar(n: int, log_odds: np.ndarray) -> Dendrogram:
    return Dendrogram(np.column_stack([np.r_[0, n : 2 * n - 2], np.arange(1, n)]), log_odds)


# Items 0 1 | 2 3 4 | 5: merges (0 1), (2 3), ((2 3) 4), ((0 1) (2 3 4)), all.
SMALL = Dendrogram(np.array([[0, 1], [2, 3], [7, 4], [6, 8], [9, 5]]), logit([0.9, 0.3, 0.8, 0.2, 0.1]))


def collection(axes: Axes, label: str) -> LineCollection:
    (found,) = (c for c in axes.collections if c.get_label() == label)
    assert isinstance(found, LineCollection)
    return found


# Shared by all plots


def test_no_pyplot_window_and_no_matplotlib_at_import() -> None:
    plots.coclustering(np.eye(3))
    plots.dendrogram(SMALL)
    plots.pairs(np.zeros((3, 2)), labels=[0, 1, 1])
    plots.traces({"a": np.zeros((2, 5))})
    assert plt.get_fignums() == []
    for module in (bounds, chains, density, heatmap, palette, plots, scatter, texts, tree):
        assert not [n for n, v in vars(module).items() if getattr(v, "__module__", "").startswith("matplotlib")]
    assert sorted(plots.__all__) == [
        "associations",
        "cluster_profiles",
        "coclustering",
        "dendrogram",
        "evidence_bounds",
        "hierarchy",
        "level_scores",
        "number_of_clusters",
        "pairs",
        "partition_flow",
        "predictive_density",
        "rank",
        "traces",
    ]


def test_palette_cycles() -> None:
    colors = cluster_colors(20)
    assert colors.shape == (20, 4) and cluster_colors(0).shape == (0, 4)
    assert len(np.unique(colors[:9], axis=0)) == 9
    np.testing.assert_array_equal(colors[9:18], colors[:9])
    assert (colors >= 0).all() and (colors <= 1).all() and (colors[:, 3] == 1).all()
    luminance = colors[:9, :3] @ [0.2126, 0.7152, 0.0722]
    assert luminance.max() < 0.8  # readable on white
    with pytest.raises(ValueError, match="-1"):
        cluster_colors(-1)


def test_codes_and_short_names() -> None:
    clusters, codes = cluster_codes(["b", "a", "b"], 3)
    assert clusters.tolist() == ["a", "b"] and codes.tolist() == [1, 0, 1]
    assert short_name("x" * 20) == "x" * 20
    assert short_name("petal length of the flower") == "petal leng…he flower"
    assert len(short_name("0123456789" * 9)) == 20


# Number of clusters


def test_bars_are_the_probabilities_between_the_first_and_the_last_that_matter() -> None:
    probabilities = [0.0, 0.0, 0.25, 0.0, 0.7, 0.0496, 0.0004]
    axes = plots.number_of_clusters(probabilities)
    places = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
    np.testing.assert_allclose(places, [2, 3, 4, 5])
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], probabilities[2:6])
    assert [text.get_text() for text in axes.texts] == ["25%", "<1%", "70%", "5%"]
    assert max(axes.patches, key=lambda bar: bar.get_alpha()).get_height() == 0.7
    assert len(plots.number_of_clusters(np.full(40, 1 / 40)).texts) == 0
    for wrong in ([], [[1.0]], [0.5, 0.6], [1.5, -0.5], [np.nan]):
        with pytest.raises(ValueError, match="probabilities must"):
            plots.number_of_clusters(wrong)


# Heat map


def test_heatmap_shows_the_matrix_in_the_order_it_names() -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([2, 0, 1], [5, 4, 6]))
    noise = rng.uniform(0, 0.1, (15, 15))
    matrix = block_matrix(labels) - np.where(np.eye(15), 0, noise + noise.T) / 2
    axes = plots.coclustering(matrix, labels=labels)
    order = np.array([int(text.get_text()) for text in axes.get_yticklabels()])
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(item) for item in order]
    assert sorted(order) == list(range(15))
    np.testing.assert_array_equal(labels[order], np.repeat([0, 1, 2], [4, 6, 5]))
    np.testing.assert_allclose(axes.images[0].get_array(), matrix[np.ix_(order, order)])
    assert axes.images[0].get_clim() == (0.0, 1.0)
    for lines, across in zip(axes.collections, (1, 0), strict=True):
        assert [segment[0][across] for segment in lines.get_segments()] == [3.5, 9.5]
    assert axes.images[0].colorbar.ax.get_ylabel() == "probability of sharing a cluster"


@pytest.mark.parametrize("labels", [None, [0] * 12])
def test_heatmap_brings_hidden_blocks_together(labels: list[int] | None) -> None:
    blocks = np.arange(12) % 3
    axes = plots.coclustering(block_matrix(blocks), labels=labels)
    order = [int(text.get_text()) for text in axes.get_xticklabels()]
    assert (np.diff(blocks[order]) != 0).sum() == 2
    assert sum(len(lines.get_segments()) for lines in axes.collections) == 0


@pytest.mark.parametrize("n", [1, 2, 10, 40, 41, 2000])
def test_heatmap_of_any_size(n: int) -> None:
    labels = np.arange(n) % 5
    axes = plots.coclustering(block_matrix(labels), labels=labels)
    shown = [text for text in axes.get_xticklabels() if text.get_visible() and text.get_text()]
    assert len(shown) == (n if n <= 40 else 5)
    if n > 40:
        assert [text.get_text() for text in shown] == list("01234")
        sizes = [f"{k} ({size})" for k, size in enumerate(np.bincount(labels))]
        assert [text.get_text() for text in axes.get_yticklabels()] == sizes
    assert as_png(axes.figure).startswith(b"\x89PNG")


def test_heatmap_does_not_drown_in_lines_and_draws_in_given_axes() -> None:
    axes = Figure().subplots()
    assert plots.coclustering(np.eye(100), labels=np.arange(100), ax=axes) is axes
    assert not axes.collections and axes.images[0].get_array().shape == (100, 100)


@pytest.mark.parametrize(
    ("matrix", "labels", "message"),
    [
        (np.zeros((3, 4)), None, r"square.*\(3, 4\)"),
        (np.zeros(3), None, r"square.*\(3,\)"),
        (np.zeros((0, 0)), None, r"\(0, 0\)"),
        (np.eye(3) * 2, None, "probabilities.*2.0 in row 0, column 0"),
        (np.full((2, 2), np.nan), None, "probabilities.*nan"),
        (np.array([[1.0, 0.5], [0.2, 1.0]]), None, "symmetric"),
        (np.eye(3), [0, 1], r"labels.*\(3,\).*\(2,\)"),
    ],
)
def test_heatmap_refuses(matrix: np.ndarray, labels: list[int] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.coclustering(matrix, labels=labels)


# Tree


def test_tree_cuts_are_dashed_and_clusters_have_their_colours() -> None:
    assert SMALL.cut().tolist() == [0, 0, 1, 1, 1, 2]
    axes = plots.dendrogram(SMALL)
    cut, kept = collection(axes, "cut"), collection(axes, "kept")
    assert [float(s[1][1]) for s in cut.get_segments()] == [4.0, 5.0]
    assert [float(s[1][1]) for s in kept.get_segments()] == [1.0, 2.0, 3.0]  # 2 is unlikely but under a kept node
    assert cut.get_linestyle()[0][1] is not None  # dashes
    dashes = [dashes for _, dashes in kept.get_linestyle()]
    assert dashes[0] is None and dashes[1] is not None and dashes[2] is None  # unlikely, but not cut
    colors = cluster_colors(3)
    np.testing.assert_allclose(kept.get_colors(), colors[[0, 1, 1]])
    red, green, blue, _ = cut.get_colors()[0]
    assert red == green == blue
    strip = collection(axes, "clusters")
    np.testing.assert_allclose(strip.get_colors(), colors[SMALL.cut()[SMALL.leaf_order()][[0, 2, 5]]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "cut: merge probability below 0.5",
        "not cut: merge probability below 0.5, but under a kept merge",
    ]


def test_tree_brackets_stand_on_their_children() -> None:
    axes = plots.dendrogram(SMALL, threshold=0.0)
    np.testing.assert_allclose(
        collection(axes, "kept").get_segments(),
        [
            [[0, 0], [0, 1], [1, 1], [1, 0]],
            [[2, 0], [2, 2], [3, 2], [3, 0]],
            [[2.5, 2], [2.5, 3], [4, 3], [4, 0]],
            [[0.5, 1], [0.5, 4], [3, 4], [3, 3]],
            [[2, 4], [2, 5], [5, 5], [5, 0]],
        ],
    )
    assert not collection(axes, "cut").get_segments() and axes.get_legend() is None
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_cut_branches_are_those_above_the_cut(threshold: float) -> None:
    rng = np.random.default_rng(3)
    n = 60
    nodes = list(range(n))
    children = []
    for t in range(n - 1):
        pair = [nodes.pop(int(rng.integers(len(nodes)))) for _ in range(2)]
        children.append(pair)
        nodes.append(n + t)
    random_tree = Dendrogram(np.array(children), rng.normal(size=n - 1) * 3)
    labels = random_tree.cut(threshold)
    under = [{i} for i in range(n)]
    for left, right in children:
        under.append(under[left] | under[right])
    n_cut = sum(len({labels[i] for i in items}) > 1 for items in under[n:])
    axes = plots.dendrogram(random_tree, threshold=threshold)
    assert len(collection(axes, "cut").get_segments()) == n_cut == labels.max()
    assert len(collection(axes, "kept").get_segments()) == n - 1 - n_cut
    for segment in [*collection(axes, "cut").get_segments(), *collection(axes, "kept").get_segments()]:
        assert segment[0, 0] < segment[2, 0] and segment[1, 1] >= max(segment[0, 1], segment[3, 1])


def test_tree_with_other_labels() -> None:
    labels = np.array(["a", "a", "b", "b", "a", "c"])
    axes = plots.dendrogram(SMALL, labels=labels)
    kept = collection(axes, "kept").get_colors()
    np.testing.assert_allclose(kept[:2], cluster_colors(3)[:2])
    np.testing.assert_allclose(kept[2], to_rgba("0.15"))
    assert [text.get_text() for text in axes.get_legend().get_texts()][1] == "contains several clusters"


def test_tree_heights_name_the_axis() -> None:
    assert plots.dendrogram(SMALL).get_ylabel() == "merges made so far"
    axes = plots.dendrogram(SMALL, heights="odds")
    assert "nats" in axes.get_ylabel()
    tops = [s[1][1] for s in collection(axes, "cut").get_segments()]
    np.testing.assert_allclose(tops, -np.log([0.2, 0.1]))
    impossible = Dendrogram(SMALL.children, np.array([2.0, 1.0, 0.0, -1.0, -np.inf]))
    axes = plots.dendrogram(impossible, heights="odds")
    assert np.isfinite(axes.get_ylim()).all() and as_png(axes.figure)


def test_tree_writes_names_where_they_fit() -> None:
    names = ["ant", "a very, very long name with a tail", "$x$ and $", "bee", "<b>", "ü"]
    axes = plots.dendrogram(SMALL, names=names)
    assert [text.get_text() for text in axes.get_xticklabels()] == [short_name(names[i]) for i in SMALL.leaf_order()]
    assert as_png(axes.figure)
    for n, fits in ((50, True), (150, False)):
        axes = plots.dendrogram(caterpillar(n, np.zeros(n - 1)), names=[f"item {i}" for i in range(n)])
        assert len(axes.get_xticklabels()) == (n if fits else 0)
        assert axes.get_xlabel() == ("" if fits else "150 items")
    small = Figure(figsize=(2, 2)).subplots()
    assert plots.dendrogram(caterpillar(50, np.zeros(49)), ax=small) is small
    assert not small.get_xticklabels()


def test_caterpillar_of_5000_leaves_draws() -> None:
    n = 5000
    axes = plots.dendrogram(caterpillar(n, np.linspace(5, -5, n - 1)))
    assert len(collection(axes, "cut").get_segments()) + len(collection(axes, "kept").get_segments()) == n - 1
    assert as_png(axes.figure)


def test_tree_of_one_item() -> None:
    axes = plots.dendrogram(Dendrogram(np.empty((0, 2), dtype=int), np.empty(0)), heights="odds")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0"]
    assert as_png(axes.figure)


def test_tree_refuses() -> None:
    with pytest.raises(ValueError, match="names must have one entry for each of the 6 items, but there are 2"):
        plots.dendrogram(SMALL, names=["a", "b"])
    with pytest.raises(ValueError, match=r"labels.*\(6,\).*\(3,\)"):
        plots.dendrogram(SMALL, labels=[0, 1, 2])
    with pytest.raises(ValueError, match="threshold"):
        plots.dendrogram(SMALL, threshold=1.5)
    with pytest.raises(ValueError, match="heights"):
        plots.dendrogram(SMALL, heights="depth")


# Pairs


def panels(figure: Figure) -> tuple[list[Axes], list[Axes]]:
    """Histograms and scatter plots."""
    histograms = [axes for axes in figure.axes if any(isinstance(p, StepPatch) for p in axes.patches)]
    return histograms, [axes for axes in figure.axes if axes.collections]


def column_names(figure: Figure) -> list[str]:
    return [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]


def legend_texts(figure: Figure) -> list[str]:
    (legend,) = (axes.get_legend() for axes in figure.axes if axes.get_legend())
    return [text.get_text() for text in legend.get_texts()]


def test_pairs_draws_every_point_in_its_colour() -> None:
    rng = np.random.default_rng(1)
    X, labels = rng.normal(size=(60, 3)), np.repeat([7, 3], [40, 20])
    X[4, 0] = X[50, 1] = np.nan
    figure = plots.pairs(X, labels=labels, feature_names=["sepal", "petal", "stem"])
    histograms, scatters = panels(figure)
    assert len(histograms) == len(scatters) == 3
    assert column_names(figure) == ["sepal", "petal", "stem"]
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == ["petal", "stem"]
    for axes, (row, column) in zip(scatters, [(1, 0), (2, 0), (2, 1)], strict=True):
        (points,) = axes.collections
        assert isinstance(points, PathCollection)
        here = np.isfinite(X[:, [row, column]]).all(axis=1)
        drawn = points.get_offsets().data
        expected = X[here][:, [column, row]]
        np.testing.assert_allclose(drawn[np.lexsort(drawn.T)], expected[np.lexsort(expected.T)])
        color = cluster_colors(2)[(labels[here] == 7).astype(int)]
        np.testing.assert_allclose(points.get_facecolors()[np.lexsort(drawn.T), :3], color[np.lexsort(expected.T), :3])
    for j, axes in enumerate(histograms):
        heights = [p.get_data().values - p.get_data().baseline for p in axes.patches]
        assert [h.sum() for h in heights] == [np.isfinite(X[labels == k, j]).sum() for k in (3, 7)]
    assert legend_texts(figure) == ["7 (40)", "3 (20)"]
    assert figure.get_suptitle() == "" and as_png(figure)


def test_pairs_chooses_the_columns_whose_cluster_means_differ() -> None:
    rng = np.random.default_rng(2)
    labels = np.arange(200) % 4
    X = rng.normal(size=(200, 9))
    X[:, 6] += 5 * labels
    X[:, 2] = 1e-9 * (X[:, 2] + 3 * labels)  # small numbers, clear clusters
    X[:, 4] += 0.8 * labels
    X[:, 0] = 0.1  # constant
    X[:, 8] = np.nan
    X[::2, 6] = np.nan
    figure = plots.pairs(X, labels=labels, max_columns=3)
    assert column_names(figure) == ["column 2", "column 4", "column 6"]
    assert figure.get_suptitle() == "3 of 9 columns: those whose cluster means differ most"


def test_pairs_never_chooses_constant_columns() -> None:
    X = np.full((30, 8), 0.1)
    X[:, 5] = np.arange(30) % 7
    labels = np.arange(30) % 2
    assert column_names(plots.pairs(X, labels=labels)) == ["column 5"]
    assert column_names(plots.pairs(np.full((4, 8), 0.1), labels=[0, 0, 1, 1])) == ["column 0"]
    assert column_names(plots.pairs(X[:, :3], labels=labels)) == ["column 0", "column 1", "column 2"]


def test_pairs_of_one_column() -> None:
    figure = plots.pairs(np.random.default_rng(0).normal(size=(50, 1)), labels=np.arange(50) % 2)
    histograms, scatters = panels(figure)
    assert len(histograms) == 1 and not scatters
    assert histograms[0].get_ylabel() == "points" and legend_texts(figure) == ["0 (25)", "1 (25)"]
    assert as_png(figure)


def test_pairs_jitters_binary_columns_only() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 80), rng.normal(size=80)]).astype(float)
    figure = plots.pairs(X, labels=X[:, 0])
    (histogram, _), (axes,) = panels(figure)
    drawn = axes.collections[0].get_offsets().data
    np.testing.assert_array_equal(np.sort(drawn[:, 1]), np.sort(X[:, 1]))
    assert len(np.unique(drawn[:, 0])) == 80
    assert (np.abs(drawn[:, 0] - np.round(drawn[:, 0])) <= 0.3).all()
    assert np.round(drawn[:, 0]).sum() == X[:, 0].sum()
    np.testing.assert_array_equal(histogram.patches[0].get_data().edges, [-0.5, 0.5, 1.5])
    again = plots.pairs(X, labels=X[:, 0])
    np.testing.assert_array_equal(panels(again)[1][0].collections[0].get_offsets().data, drawn)


def test_pairs_legend_stops_at_twelve() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    labels = np.repeat(np.arange(24), np.arange(1, 25))
    texts = legend_texts(plots.pairs(X, labels=labels))
    assert texts == [f"{k} ({k + 1})" for k in range(23, 12, -1)] + ["… and 13 more"]
    assert len(legend_texts(plots.pairs(X, labels=np.arange(300) % 12))) == 12


def test_pairs_of_many_points_is_translucent_and_rasterized() -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 6))
    _, scatters = panels(plots.pairs(X, labels=np.arange(20_000) % 15))
    points = scatters[0].collections[0]
    assert len(scatters) == 10 and points.get_rasterized()
    assert points.get_alpha() < 0.5 and points.get_sizes().max() < 5


def test_pairs_writes_names_that_do_not_collide() -> None:
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1e-3], [np.nan, 0.5], [0.52, 0.51]])
    figure = plots.pairs(X, labels=[0, 0, 1, 1, 1, 1], item_names=["left", "up $", "right", "close", "missing", "middle"])
    (axes,) = panels(figure)[1]
    assert {text.get_text() for text in axes.texts} == {"left", "up $", "middle"}
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a in boxes for b in boxes if a is not b)
    many = plots.pairs(np.random.default_rng(0).normal(size=(61, 2)), labels=np.zeros(61), item_names=["x"] * 61)
    assert not panels(many)[1][0].texts


@pytest.mark.parametrize(
    "X",
    [
        np.full((3, 2), np.nan),
        np.full((3, 2), 5.0),
        np.full((3, 2), 1e17 + 0.0),
        np.array([[0.1, 1.0], [np.nextafter(0.1, 1), 2.0]]),
        np.array([[0.5, 0.25]]),
    ],
    ids=["all missing", "constant", "large", "nearly constant", "one row"],
)
def test_pairs_of_awkward_data(X: np.ndarray) -> None:
    assert as_png(plots.pairs(X, labels=np.arange(len(X)), feature_names=["$a", "b$ $c_{"]))


def test_pairs_refuses() -> None:
    X = np.zeros((4, 2))
    for bad in (np.zeros(4), np.zeros((0, 2)), np.zeros((4, 0))):
        with pytest.raises(ValueError, match=r"shape \(n, d\)|X is empty"):
            plots.pairs(bad, labels=np.zeros(len(bad)))
    with pytest.raises(ValueError, match=r"labels.*\(4,\).*\(3,\)"):
        plots.pairs(X, labels=[0, 1, 2])
    with pytest.raises(ValueError, match="feature_names.*2 columns, but there are 1"):
        plots.pairs(X, labels=np.zeros(4), feature_names=["a"])
    with pytest.raises(ValueError, match="item_names.*4 rows, but there are 1"):
        plots.pairs(X, labels=np.zeros(4), item_names=["a"])
    with pytest.raises(ValueError, match="max_columns.*0"):
        plots.pairs(X, labels=np.zeros(4), max_columns=0)


# Chains


def test_traces_and_rank_histograms() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 200)) + np.array([[0.0], [0.0], [4.0]])
    figure = plots.traces({"log_joint": values, "a_$b$_$": rng.integers(1, 4, (2, 50))})
    trace, ranks, other, _ = figure.axes
    assert trace.get_title(loc="left") == "log_joint" and other.get_title(loc="left") == "a_$b$_$"
    np.testing.assert_array_equal([line.get_ydata() for line in trace.lines], values)
    counts = np.array([patch.get_data().values for patch in ranks.patches])
    edges = ranks.patches[0].get_data().edges
    assert counts.shape == (3, 20) and (counts.sum(axis=1) == 200).all()
    np.testing.assert_array_equal(counts.sum(axis=0), 600 / 20)
    pooled = rankdata(values).reshape(values.shape) - 1
    np.testing.assert_array_equal(counts, [np.histogram(chain, edges)[0] for chain in pooled])
    assert counts[2, :5].sum() == 0  # the chain that is elsewhere
    (expected,) = ranks.lines
    assert set(expected.get_ydata()) == {10.0} and expected.get_linestyle() == "--"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["chain 0", "chain 1", "chain 2"]
    assert as_png(figure)


def test_ties_are_ranked_fairly() -> None:
    figure = plots.traces({"constant": np.ones((4, 1000))})
    counts = np.array([patch.get_data().values for patch in figure.axes[1].patches])
    assert (np.abs(counts - 50) < 5 * math.sqrt(50)).all()


def test_traces_of_one_short_chain() -> None:
    figure = plots.traces({"a": np.arange(3.0)[None]})
    assert not figure.legends and figure.axes[1].patches[0].get_data().values.tolist() == [3]
    assert as_png(figure)


def test_traces_refuses() -> None:
    with pytest.raises(ValueError, match="empty"):
        plots.traces({})
    for shape in ((5,), (2, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"'entropy' must have shape \(chains, draws\)"):
            plots.traces({"entropy": np.zeros(shape)})
    with pytest.raises(ValueError, match="'entropy' has NaN in chain 1, draw 0"):
        plots.traces({"entropy": np.array([[0.0, 1.0], [np.nan, 1.0]])})


def idata(**variables: np.ndarray) -> dict[str, xr.Dataset]:
    sample = ("chain", "draw")
    dims = {name: (*sample, *(f"{name}_dim_{i}" for i in range(v.ndim - 2))) for name, v in variables.items()}
    return {"posterior": xr.Dataset({name: (dims[name], v) for name, v in variables.items()})}


@pytest.mark.usefixtures("unchecked")
def test_rank_histograms_of_arviz_data() -> None:
    rng = np.random.default_rng(0)
    data = idata(
        log_joint=rng.normal(size=(3, 200)) + np.array([[0.0], [0.0], [4.0]]),
        n_clusters=rng.integers(1, 4, (3, 200)),
        kappa=rng.gamma(1.0, size=(3, 200, 2)),
        z=rng.integers(0, 3, (3, 200, 5)),
    )
    figure = plots.rank(data)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"ranks of {name}" for name in ("log_joint", "n_clusters", "kappa[0]", "kappa[1]")]
    beside = plots.traces({"log_joint": data["posterior"]["log_joint"].values}).axes[1]
    for patch, same in zip(figure.axes[0].patches, beside.patches, strict=True):
        np.testing.assert_array_equal(patch.get_data().values, same.get_data().values)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["chain 0", "chain 1", "chain 2"]
    both = plots.traces(data).axes
    assert [axes.get_title(loc="left") for axes in both[1::2]] == titles
    np.testing.assert_array_equal([line.get_ydata() for line in both[0].lines], data["posterior"]["log_joint"].values)
    assert len(plots.rank(data, var_names="n_clusters").axes) == 1 and as_png(figure)
    with pytest.warns(RuntimeWarning, match="z: these values depend on the cluster labels") as caught:
        assert len(plots.rank(data, var_names=["z"]).axes) == 5
    assert caught[0].filename == __file__


def test_rank_refuses() -> None:
    data = idata(a=np.array([[0.0, 1.0], [np.nan, 1.0]]))
    for names, message in ((None, "'a' has NaN in chain 1, draw 0"), ("b", "no variable 'b'"), ([], "var_names must name")):
        with pytest.raises(ValueError, match=message):
            plots.rank(data, var_names=names)
