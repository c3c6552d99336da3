"""Plots of trees at full size, of predictive densities and of bounds."""

import io
import math
import time
from functools import partial
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Annotation
from scipy.stats import multivariate_normal

import bnp_hier as bnp
from bnp_hier import plots
from bnp_hier.models import dpm
from bnp_hier.plots.palette import cluster_colors
from bnp_hier.plots.texts import Occupied, write_apart
from bnp_hier.trees import Dendrogram
from tests.parameters import few


def saved(figure: Figure, kind: str = "png", dpi: int = 100) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi)
    return buffer.getvalue()


def caterpillar(n: int, log_odds: np.ndarray | None = None) -> Dendrogram:
    children = np.column_stack([np.r_[0, n : 2 * n - 2], np.arange(1, n)])
    return Dendrogram(children, np.linspace(5, -5, n - 1) if log_odds is None else log_odds)


def random_tree(n: int, log_odds: np.ndarray, seed: int = 0) -> Dendrogram:
    rng = np.random.default_rng(seed)
    nodes, children = list(range(n)), []
    for t in range(n - 1):
        children.append([nodes.pop(int(rng.integers(len(nodes)))) for _ in range(2)])
        nodes.append(n + t)
    return Dendrogram(np.array(children), log_odds)


# merges (0 1), (2 3), ((2 3) 4), ((0 1) (2 3 4)), all
ODDS = np.array([34.71, -0.853, 1.3862, -1.386, -123.4])
SMALL = Dendrogram(np.array([[0, 1], [2, 3], [7, 4], [6, 8], [9, 5]]), ODDS)


def collection(axes: Axes, label: str) -> LineCollection:
    (found,) = (c for c in axes.collections if c.get_label() == label)
    assert isinstance(found, LineCollection)
    return found


def written(axes: Axes) -> dict[str, Annotation]:
    return {text.get_text(): text for text in axes.texts if isinstance(text, Annotation)}


def overlaps(axes: Axes) -> int:
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    return sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def inside(axes: Axes) -> bool:
    """Whether all that is drawn is on the page."""
    axes.figure.draw_without_rendering()
    box, (width, height) = axes.figure.get_tightbbox(), axes.figure.get_size_inches()
    return box.x0 > -0.02 and box.y0 > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02


# ---- trees of 5,000 leaves -------------------------------------------------------------------------------------------

DEEP = 5000


@pytest.mark.parametrize("heights", ["rank", "odds"])
def test_deep_tree_draws_to_small_files(heights: str) -> None:
    started = time.process_time()
    axes = plots.dendrogram(caterpillar(DEEP), heights=heights, annotate=5)
    cut, kept = collection(axes, "cut").get_segments(), collection(axes, "kept").get_segments()
    assert len(cut) + len(kept) == DEEP - 1 and len(cut) == (DEEP - 1) // 2
    assert 10_000 < len(saved(axes.figure)) < 300_000
    assert 10_000 < len(saved(axes.figure, "svg")) < 500_000
    assert time.process_time() - started < 15.0  # takes one


def test_deep_tree_as_values() -> None:
    """None of this may call itself once a level: Python stops at 1,000."""
    tree, n = caterpillar(DEEP), DEEP
    assert tree.sizes.tolist() == [1] * n + list(range(2, n + 1))
    assert tree.leaf_order().tolist() == list(range(n))
    labels = tree.cut()
    n_kept = int((tree.log_odds >= 0).sum())
    assert (labels[: n_kept + 1] == 0).all() and labels[n_kept + 1 :].tolist() == list(range(1, n - n_kept))
    linkage = tree.to_linkage("rank")
    np.testing.assert_array_equal(linkage[:, 3], np.arange(2, n + 1))
    graph = tree.to_networkx()
    assert len(graph) == 2 * n - 1 and nx.dag_longest_path_length(graph) == n - 1
    # one class of pairs at the bottom, one at the top: the smallest subtree of the latter is everything
    y = np.arange(n) + 10
    y[[0, 1]], y[[n - 2, n - 1]] = 0, 1
    counted = np.where(y < 10, y, 2 + np.arange(n) % 2)
    assert 0 < tree.purity(counted) < 1
    assert tree.purity(np.r_[0, 0, np.arange(2, n) % 2 + 1]) < tree.purity(np.r_[np.zeros(n // 2), np.ones(n - n // 2)])
    newick = tree.to_newick()
    assert newick.startswith("(" * (n - 1) + "0:") and newick.count(")") == n - 1 and newick.endswith(";")
    assert [int(part.split(",")[-1].strip("(")) for part in newick.split(":")[:-1] if not part.endswith(")")] == list(range(n))


def slow_newick(tree: Dendrogram, names: list[str]) -> str:
    n = tree.n_items
    height = np.concatenate([np.zeros(n), tree.heights()])

    def text(node: int) -> str:
        if node < n:
            return names[node]
        return "(" + ",".join(f"{text(c)}:{height[node] - height[c]:.6g}" for c in tree.children[node - n].tolist()) + ")"

    return text(2 * n - 2) + ";"


def test_newick_is_linear_and_as_a_recursion_writes_it() -> None:
    for seed in range(5):
        tree = random_tree(40, np.random.default_rng(seed).normal(size=39) * 3, seed)
        assert tree.to_newick() == slow_newick(tree, [str(i) for i in range(40)])
    assert Dendrogram(np.empty((0, 2), dtype=int), np.empty(0)).to_newick(["only"]) == "only;"
    started = time.process_time()
    assert caterpillar(50_000).to_newick().count(",") == 49_999
    assert time.process_time() - started < 10.0  # takes half a second; texts joined at every level take half a minute


# ---- odds, dashes and classes on trees -------------------------------------------------------------------------------


def test_odds_stand_at_their_nodes() -> None:
    axes = plots.dendrogram(SMALL, annotate=5)
    texts = written(axes)
    places = {"34.7": (0.5, 1), "−0.85": (2.5, 2), "1.39": (3, 3), "−1.39": (2, 4), "−123": (2.5, 5)}
    assert {text: tuple(map(float, texts[text].xy)) for text in texts} == places
    assert not overlaps(axes) and inside(axes)
    assert list(written(plots.dendrogram(SMALL, annotate=2))) == ["−123", "−1.39"]
    assert not written(plots.dendrogram(SMALL, annotate=0))
    assert len(written(plots.dendrogram(SMALL, annotate=99))) == 5
    with pytest.raises(ValueError, match="annotate must be 0 or more, but it is -1"):
        plots.dendrogram(SMALL, annotate=-1)


def test_odds_are_written_in_small_trees_only() -> None:
    assert len(written(plots.dendrogram(caterpillar(30)))) == 29
    assert not written(plots.dendrogram(caterpillar(31)))
    axes = plots.dendrogram(caterpillar(4, np.array([np.inf, -1e-9, -np.inf])), heights="odds")
    assert set(written(axes)) == {"∞", "0.00", "−∞"} and saved(axes.figure)


@pytest.mark.parametrize("heights", few(["rank", "odds"]))
def test_odds_never_overlap(heights: str) -> None:
    log_odds = np.linspace(9, -9, 299) + np.random.default_rng(0).normal(size=299)
    axes = plots.dendrogram(random_tree(300, log_odds), annotate=299, heights=heights)
    assert 20 < len(axes.texts) < 299
    assert not overlaps(axes) and inside(axes)
    first = [text.get_text() for text in axes.texts][0]
    assert float(first.replace("−", "-")) == round(log_odds[-1], 1)  # the root is never the one left out


def test_odds_in_axes_that_are_given() -> None:
    figure = Figure(figsize=(7, 6), layout="constrained")
    lower = figure.subfigures(2, 1)[1]
    axes = plots.dendrogram(SMALL, ax=lower.subplots())
    assert len(written(axes)) == 5 and saved(figure)


def test_every_unlikely_merge_is_dashed() -> None:
    log_odds = np.random.default_rng(1).normal(size=59) * 2
    tree = random_tree(60, log_odds)
    for threshold in (0.2, 0.5):
        axes = plots.dendrogram(tree, threshold=threshold)
        kept, cut = collection(axes, "kept"), collection(axes, "cut")
        assert cut.get_linestyle()[0][1] is not None
        merges = np.array([int(segment[1, 1]) - 1 for segment in kept.get_segments()])
        dashed = np.array([dashes is not None for _, dashes in kept.get_linestyle()])
        np.testing.assert_array_equal(dashed, tree.probabilities[merges] < threshold)
        assert dashed.any() and not dashed.all()
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        assert texts[-1] == f"not cut: merge probability below {threshold:g}, but under a kept merge"
        assert inside(axes)


@pytest.mark.parametrize("labels", [["$b", "$b", "a", "a", "a", "c"], [30, 30, 7, 7, 7, 99]])
def test_leaves_and_branches_have_the_colours_of_their_classes(labels: list) -> None:
    axes = plots.dendrogram(SMALL, labels=labels)
    names, codes = np.unique(labels, return_inverse=True)
    colors = cluster_colors(3)
    strip = collection(axes, "clusters")
    runs = {int(segment[0, 0] + 0.5): color for segment, color in zip(strip.get_segments(), strip.get_colors(), strict=True)}
    for position, item in enumerate(SMALL.leaf_order()):
        if position in runs:
            np.testing.assert_allclose(runs[position], colors[codes[item]])
    assert sorted(runs) == [0, 2, 5]
    np.testing.assert_allclose(collection(axes, "kept").get_colors(), colors[codes[[0, 2, 2]]])
    (key,) = (child for child in axes.get_children() if type(child).__name__ == "Legend" and child is not axes.get_legend())
    assert [text.get_text() for text in key.get_texts()] == [str(name) for name in names]
    for handle, color in zip(key.legend_handles, colors, strict=True):
        assert handle is not None and to_rgba(handle.get_color()) == tuple(color)
    assert inside(axes) and saved(axes.figure)
    assert not key.get_window_extent().overlaps(axes.get_window_extent())


def test_no_names_for_more_classes_than_colours() -> None:
    for n, legends in ((9, 1), (10, 0)):
        axes = plots.dendrogram(caterpillar(n, np.full(n - 1, 2.0)), labels=np.arange(n))
        keys = [child for child in axes.get_children() if type(child).__name__ == "Legend"]
        assert len([key for key in keys if key is not axes.get_legend()]) == legends


def test_texts_avoid_dots_lines_and_edges() -> None:
    axes = Figure(figsize=(4, 4)).subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.99, 0.2], [0.2, 0.2]])
    line = [[0.5, 0.5, 0.7, 0.55]]
    write_apart(
        axes, points, ["first", "second", "third", "edge", "dot"], [(3, 3), (-3, 3)], 8.0, Occupied([[0.22, 0.22]], lines=line)
    )
    texts = written(axes)
    assert texts["first"].get_horizontalalignment() == "right"  # the line is on the other side
    assert texts["second"].get_horizontalalignment() == "left"  # over the line rather than not at all
    assert "third" not in texts
    assert texts["edge"].get_horizontalalignment() == "right"
    assert texts["dot"].get_horizontalalignment() == "right"


# ---- predictive density ----------------------------------------------------------------------------------------------


def normal_fit(X: np.ndarray, covariance: np.ndarray, scale: float = 1.0) -> SimpleNamespace:
    density = multivariate_normal(np.zeros(2), covariance)
    return SimpleNamespace(labels_=np.arange(len(X)) % 2, score_samples=lambda Y: density.logpdf(Y / scale) - 2 * np.log(scale))


def density_of(axes: Axes) -> QuadContourSet:
    (found,) = (c for c in axes.collections if c.get_label() == "density")
    return found


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6])
def test_contours_of_a_normal_enclose_their_shares(scale: float) -> None:
    covariance = np.array([[2.0, 0.9], [0.9, 1.0]])
    X = scale * np.array([[-4.0, -3.5], [4.0, 3.5], [0.0, 1.0]])
    axes = plots.predictive_density(normal_fit(X, covariance, scale), X, resolution=200)
    contours = density_of(axes)
    shares = [0.9, 0.75, 0.5, 0.25]
    paths: list[Path] = contours.get_paths()
    assert len(paths) == len(shares)
    for path, share in zip(paths, shares, strict=True):
        vertices = path.vertices[1:] / scale
        distance = np.einsum("ij,jk,ik->i", vertices, np.linalg.inv(covariance), vertices)
        np.testing.assert_allclose(distance, -2 * math.log1p(-share), rtol=0.02, atol=0.02)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["90%", "75%", "50%", "25%"]
    assert inside(axes) and saved(axes.figure)


def test_points_have_the_colours_of_their_clusters() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2)) * [1.0, 3.0]
    X[3, 0] = np.nan
    fit = normal_fit(X, np.diag([1.0, 9.0]))
    complete = np.isfinite(X).all(axis=1)
    for columns in ((0, 1), (1, 0)):
        axes = plots.predictive_density(fit, X, columns=columns)
        (points,) = (c for c in axes.collections if c.get_label() == "points")
        np.testing.assert_array_equal(points.get_offsets(), X[complete][:, columns])
        np.testing.assert_allclose(points.get_facecolors()[:, :3], cluster_colors(2)[fit.labels_[complete], :3])
        assert (axes.get_xlabel(), axes.get_ylabel()) == tuple(f"column {c}" for c in columns)
        widths = np.ptp(np.vstack([path.vertices for path in density_of(axes).get_paths()]), axis=0)
        assert widths[columns.index(1)] > 2 * widths[columns.index(0)]


def test_regions_beyond_the_picture_have_no_contour() -> None:
    X = np.array([[-0.1, 0.0], [0.1, 0.2]])
    axes = plots.predictive_density(normal_fit(X, np.eye(2)), X)
    assert not [c for c in axes.collections if c.get_label() == "density"] and axes.get_legend() is None
    axes = plots.predictive_density(normal_fit(X * 8, np.eye(2)), X * 8, levels=[0.99, 0.01, 0.2])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["20%", "1%"]
    one = np.zeros((1, 2))
    assert saved(plots.predictive_density(normal_fit(one, np.eye(2) * 0.01), one).figure)  # no range of the data


@pytest.mark.slow
def test_density_of_an_estimator() -> None:
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(0, 0.4, (4, 2)), rng.normal([4, 1], 0.5, (4, 2)), rng.normal([2, 5], 0.3, (4, 2))])
    component = bnp.NormalInverseGamma(np.full(2, 2.0), 0.05, 3.0, 0.3)
    fit = bnp.BHC(partial(dpm, component=component, concentration=1.0), progress_bar=False).fit(X)
    assert fit.n_clusters_ == 3
    axes = plots.predictive_density(fit, X, resolution=60, levels=[0.3, 0.6])
    outer, inner = density_of(axes).get_paths()
    assert (outer.codes == Path.MOVETO).sum() == 3
    within, without = fit.score_samples(inner.vertices), fit.score_samples(outer.vertices)
    assert np.ptp(within) < 0.1 and np.ptp(without) < 0.1  # nats: level curves, up to the grid
    assert within.min() > without.max()
    assert saved(axes.figure)


def test_density_refuses() -> None:
    X = np.zeros((4, 2))
    fit = normal_fit(X, np.eye(2))
    for bad in (np.zeros((4, 3)), np.zeros((4, 1)), np.zeros(4)):
        with pytest.raises(ValueError, match=r"two (columns|dimensions).*shape \(4,"):
            plots.predictive_density(fit, bad)
    with pytest.raises(ValueError, match="columns must be"):
        plots.predictive_density(fit, X, columns=(0, 2))
    with pytest.raises(ValueError, match=r"labels.*\(3,\).*\(4,\)"):
        plots.predictive_density(fit, X[:3])
    with pytest.raises(ValueError, match="resolution.*1"):
        plots.predictive_density(fit, X, resolution=1)
    for levels in ([0.5, 1.0], [0.0], [np.nan]):
        with pytest.raises(ValueError, match="levels must be shares"):
            plots.predictive_density(fit, X, levels=levels)
    with pytest.raises(ValueError, match="no row without missing values"):
        plots.predictive_density(fit, np.full((4, 2), np.nan))


# ---- table of bounds -------------------------------------------------------------------------------------------------

ROWS = {
    "exact": (-123.456, np.nan, "exact", "ok"),
    "tree: bhc": (-124.2, np.nan, "lower bound", "ok"),
    "smc": (-123.4, 0.15, "estimate", "ok"),
    "occupancy": (-123.6, 0.1, "estimate", "failed: over"),
    "variational": (-100.0, np.nan, "lower bound", "failed: above the exact value"),
    "harmonic mean of likelihoods, never use": (np.nan, np.nan, "estimate", "failed: no draws"),
}


def evidence_table(**changes: object) -> pd.DataFrame:
    table = pd.DataFrame.from_dict(ROWS, orient="index", columns=["value", "standard_error", "kind", "verdict"])
    return table.assign(target="log p(X)", seconds=0.1).assign(**changes)


def marks(axes: Axes) -> dict[float, tuple[str, float, bool]]:
    """Height -> marker, place, whether it is filled."""
    drawn = [line for line in axes.lines if line.get_marker() in ("D", "s", "o", "<", ">")]
    return {
        float(line.get_ydata()[0]): (
            line.get_marker(),
            float(line.get_xdata()[0]),
            to_rgba(line.get_markerfacecolor()) != (1, 1, 1, 1),
        )
        for line in drawn
    }


def test_rows_of_the_table() -> None:
    axes = plots.evidence_bounds(evidence_table())
    found = marks(axes)
    high = axes.get_xlim()[1]
    assert found == {
        0.0: ("D", -123.456, True),
        -1.0: ("s", -124.2, True),
        -2.0: ("o", -123.4, True),
        -3.0: ("o", -123.6, False),
        -4.0: (">", high, False),  # beyond the others: no axis of 24 nats
    }
    assert high < -122
    (line,) = collection(axes, "exact").get_segments()
    np.testing.assert_allclose(line, [[-123.456, -5.5], [-123.456, 0.5]])
    bars = [c.get_segments()[0] for c in axes.containers for c in c.lines[2]]
    np.testing.assert_allclose([(b[0, 0], b[1, 0]) for b in bars], [(-123.7, -123.1), (-123.8, -123.4)])
    arrows = [text for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]
    assert [tuple(map(float, arrow.xy)) for arrow in arrows] == [(-124.2, -1.0)]
    axes.figure.draw_without_rendering()
    path = arrows[0].arrow_patch.get_path().vertices
    assert path[:, 0].max() > axes.transData.transform((-124.2, -1.0))[0] + 10  # to the right
    texts = [text.get_text() for text in axes.texts if text.get_text()]
    assert texts == ["−123.46", "−124.20", "−123.40 ± 0.15", "−123.60 ± 0.1 (failed)", "−100.00 (failed)", "no value (failed)"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "exact",
        "lower bound",
        "estimate ± 2 s.e.",
        "failed",
    ]
    assert axes.get_xlabel() == "log p(X) (nats)" and inside(axes) and not overlaps(axes) and saved(axes.figure)


def test_an_exact_value_is_compared_with_its_target_only() -> None:
    targets = ["log p(X | α)", "log p(X)", "log p(X | α)", "log p(X)", "log p(X)", "log p(X)"]
    axes = plots.evidence_bounds(evidence_table(target=targets))
    headings = {text.get_text(): text.get_position()[1] for text in axes.texts if not isinstance(text, Annotation)}
    assert headings == {"log p(X | α)": 0.0, "log p(X)": -3.0}
    assert axes.get_yticks().tolist() == [-1, -4, -2, -5, -6, -7]
    (line,) = collection(axes, "exact").get_segments()
    np.testing.assert_allclose(line[:, 1], [-2.5, -0.5])
    assert axes.get_xlabel() == "nats" and inside(axes)


@pytest.mark.parametrize("rows", [[0], [1], [2], [5], [3, 4], [4]])
def test_short_tables(rows: list[int]) -> None:
    axes = plots.evidence_bounds(evidence_table().iloc[rows], ax=Figure(figsize=(7, 2), layout="constrained").subplots())
    assert len(marks(axes)) == sum(row != 5 for row in rows) and inside(axes) and saved(axes.figure)
    infinite = evidence_table(value=-np.inf)
    assert not marks(plots.evidence_bounds(infinite.iloc[rows]))


def test_table_refuses() -> None:
    with pytest.raises(ValueError, match="it lacks target, verdict"):
        plots.evidence_bounds(evidence_table().drop(columns=["target", "verdict"]))
    with pytest.raises(ValueError, match="empty"):
        plots.evidence_bounds(evidence_table().iloc[:0])
    with pytest.raises(ValueError, match="kinds must be one of 'exact'.*one is 'guess'"):
        plots.evidence_bounds(evidence_table(kind="guess"))
