"""Plots of trees with any branching: their nodes, the sizes of the nodes and the names of the items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from bnp_hier.plots.branch_layout import (
    Branch,
    branches,
    checked_level,
    draw_edges,
    heights,
    largest_first,
)
from bnp_hier.plots.name_lines import Line, Word, join, text_width, wrap
from bnp_hier.plots.palette import cluster_codes, cluster_colors, plain_texts, short_name
from bnp_hier.plots.texts import Occupied, write_apart
from bnp_hier.trees import Hierarchy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

__all__ = ["hierarchy"]

_MIXED = (0.35, 0.35, 0.35, 1.0)
_MOST_CLASSES = 9  # length of the palette
# in points (1/72 inch)
_TEXT = 7.5
_LINE = 1.3 * _TEXT
_WIDTH, _HEIGHT, _TALLEST = 570.0, 70 * _LINE, 14_000.0  # of new axes; the last is the limit if every node is requested
_NARROWEST = 270.0
_FEWEST_LINES = 3.0
_CIRCLE, _LARGEST = 3.2, 18.0  # diameter of the circle of one item, and largest diameter of the root
_WIDEST_COLUMN = 100.0
_MOST_LINES, _FEW_LINES = 6, 2  # of text beside an end: the limit, and the limit if there is too little room
_PARAGRAPH = 0.5  # space between texts of several lines, in lines
_WIDEST_SPACING = 2.0  # largest distance between consecutive lines, in lines of text
_LEFT = 14.0  # space to the left of the root
_GAP = 3.0  # space before text
_KEY_ROW = 12.0
_SQUARE = 8.0  # square in the colour of a name


def hierarchy(
    tree: Hierarchy,
    *,
    names: Sequence[str] | None = None,
    labels: ArrayLike | None = None,
    level: int | None = None,
    min_size: int | None = None,
    support: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a tree with any branching, from the root at the left, as in Figure 4 of Huang et al. (2021).

    Levels are columns, with the number of nodes at each level above them. A circle is a node; its diameter grows
    with the fourth root of the number of its items, as the key shows. A square represents several siblings, drawn without
    their descendants. Beside the end of each branch, as many names of its items are written as fit. A single
    child contains the same items as its parent and is drawn as part of one line, without a circle. Siblings with more items
    are placed higher.

    Circles and squares are stored in `ax.collections` as one collection labelled "nodes" and one labelled "groups".

    Parameters
    ----------
    tree
        The tree, of any size and depth.
    names
        n names of the items, by default item numbers.
    labels
        (n,) clusters or known classes to colour by, whole numbers or text. Nodes with several classes are drawn as pie charts,
        and at branches with several classes, a square in the colour of its class precedes each name. Up to nine classes are
        listed below the tree.
    level
        Level below which nothing is drawn, at least 1.
    min_size
        Siblings with fewer items than this are drawn together as "k nodes, m items"; 1 draws every node, in a new figure as
        tall as necessary. By default, the largest nodes are drawn, as many as the available lines of text allow.
    support
        (nodes,) posterior probability of each node, such as the share of draws that contain a node with the same items;
        written, where there is room, beside the circles of nodes that contain more than one item but not all.
    ax
        Axes to draw in; by default, those of a new figure (`ax.figure`) that is not registered with pyplot.

    Returns
    -------
    ax
        The axes, with levels as x; y counts lines of text, downwards.

    Raises
    ------
    ValueError
        If there is not one name or label per item or one support per node, the tree does not have this level below the root,
        `min_size` is below 1, or a support is not a probability.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> tree = bnp.Hierarchy.from_names([("pet", "cat"), ("pet", "dog"), ("farm", "cow")])
    >>> ax = bnp.plots.hierarchy(tree, names=["Tom", "Rex", "Ada"])
    >>> ax.figure.savefig("tree.png")  # doctest: +SKIP
    """
    n = tree.n_items
    if names is not None and len(names) != n:
        raise ValueError(f"names must have one entry for each of the {n} items, but there are {len(names)}")
    lowest = checked_level(tree, level)
    if min_size is not None and min_size < 1:
        raise ValueError(f"min_size must be 1 or more, but it is {min_size}")
    probabilities = None if support is None else _checked_support(support, tree.n_nodes)
    clusters, codes = (np.empty(0), None) if labels is None else cluster_codes(labels, n)
    texts = [short_name(item if names is None else names[item]) for item in range(n)]
    scale = min(_CIRCLE, _LARGEST / n**0.25)
    letters = text_width(_TEXT)

    def head(axes: Axes, room: _Room, column: float) -> None:
        _head(axes, tree, lowest, column)
        axes.set_xlim(-_LEFT / column, (room.width - _LEFT) / column)

    def prepare(axes: Axes, room: _Room, column: float) -> None:
        head(axes, room, column)
        _keys(axes, clusters, n, scale, probabilities is not None, room.width, letters)

    room = _Room(_WIDTH, _HEIGHT)
    if ax is not None:
        prepare(ax, _room(ax), _WIDEST_COLUMN)
        room = _room(ax)
    plan = _plan(tree, _Writing(texts, codes, letters), lowest, min_size, scale, room, ax is None)
    if ax is None:
        axes = _new_axes(plan.room, lambda made: prepare(made, plan.room, plan.column))
    else:
        axes = ax
        head(axes, room, plan.column)
    axes.set_ylim((plan.total + plan.drawn) / 2, (plan.total - plan.drawn) / 2)
    lines = draw_edges(axes, plan.branches, plan.middles, 0.5)
    _draw_nodes(axes, plan, codes, len(clusters), scale)
    filled = _write_names(axes, plan, len(clusters), letters)
    if probabilities is not None:
        _write_support(axes, plan, probabilities, lines, filled, scale)
    return axes


class _Room(NamedTuple):
    """Width and height of axes, in points."""

    width: float
    height: float


class _Writing(NamedTuple):
    """Names of the n items, their colour codes if any, and a function for the width of a text in points."""

    texts: Sequence[str]
    codes: Int[np.ndarray, " n"] | None
    letters: Callable[[str], float]


class _Plan(NamedTuple):
    """The elements of the drawing and their positions.

    Attributes
    ----------
    branches
        The branches shown.
    items
        Items of every branch.
    middles
        Vertical middle of every branch, in lines from the top.
    lines
        Text beside every branch; empty for branches that are not ends.
    column
        Distance from one level to the next, in points.
    gaps
        Distance from the end of every branch to its text, in points.
    total
        Number of lines.
    room
        Size of the axes.
    """

    branches: list[Branch]
    items: list[Int[np.ndarray, " _"]]
    middles: Float[np.ndarray, " b"]
    lines: list[list[Line]]
    column: float
    gaps: list[float]
    total: float
    room: _Room

    @property
    def drawn(self) -> float:
        """Height of the axes in lines: the number of lines, unless they would be too far apart."""
        return max(self.total, self.room.height / _LINE / _WIDEST_SPACING)

    @property
    def pitch(self) -> float:
        """Distance from one line to the next, in points."""
        return self.room.height / self.drawn


def _plan(
    tree: Hierarchy, writing: _Writing, lowest: int, min_size: int | None, scale: float, room: _Room, is_new: bool
) -> _Plan:
    """Choose the branches to draw, the distance between levels, and the names to write."""
    texts, codes, letters = writing
    capacity = room.height / _LINE
    shown, items, needed = _chosen(tree, lowest, min_size, capacity, scale)
    words = [_words(branch, ids, texts, codes) for branch, ids in zip(shown, items, strict=True)]

    def width(word: Word) -> float:
        return letters(word.text) + (letters(", ") if word.code < 0 else _SQUARE + letters("  "))

    starts = [_group_text(branch, ids) if len(branch.nodes) > 1 else "" for branch, ids in zip(shown, items, strict=True)]
    counts = [_counted(len(ids), "item") for ids in items]
    gaps = _gaps(shown, items, scale)

    def written(index: int, most: int, column: float) -> list[Line]:
        if not shown[index].is_end:
            return []
        space = room.width - _LEFT - column * shown[index].bottom - gaps[index]
        return wrap(words[index], width, space, most, counts[index], starts[index])

    ends = [index for index, branch in enumerate(shown) if branch.is_end]
    half = 0.5 * room.width
    longest = max(_length(words[index], width, starts[index], half) + gaps[index] + 1.0 for index in ends)
    column = min(_WIDEST_COLUMN, max(1.0, room.width - _LEFT - min(longest, half)) / lowest)

    full = [written(index, _MOST_LINES, column) for index in range(len(shown))]
    longest_text = max(map(len, full))
    for most in [longest_text, *range(min(longest_text, _FEW_LINES), 0, -1)]:
        lines = [each if len(each) <= most else written(index, most, column) for index, each in enumerate(full)]
        lengths = np.array([len(each) + _PARAGRAPH * (len(each) > 1) for each in lines])
        middles, total = heights(shown, np.maximum(needed, lengths))
        if total <= capacity:
            break

    if is_new:
        used = max(
            _LEFT + column * shown[index].bottom + gaps[index] + sum(map(width, line))
            for index in ends
            for line in lines[index]
        )
        room = _Room(max(_NARROWEST, used), min(_TALLEST, max(_FEWEST_LINES, total) * _LINE))
    return _Plan(shown, items, middles, lines, column, gaps, total, room)


def _chosen(
    tree: Hierarchy, lowest: int, min_size: int | None, capacity: float, scale: float
) -> tuple[list[Branch], list[Int[np.ndarray, " _"]], Float[np.ndarray, " b"]]:
    """Branches, their items, and the number of lines their circles need; by default, as many branches as there are lines."""
    sizes, parents = tree.sizes, tree.parents
    order = largest_first(tree, lowest)
    is_last = np.zeros(len(order), dtype=bool)  # of the siblings: it takes the line of the group not yet drawn
    is_last[len(order) - 1 - np.unique(parents[order[::-1]], return_index=True)[1]] = True
    lines = np.cumsum(~is_last) + 1
    limit = capacity
    while True:
        individual = np.zeros(tree.n_nodes, dtype=bool)
        individual[order[lines <= limit] if min_size is None else order[sizes[order] >= min_size]] = True
        individual[0] = True
        shown = branches(tree, individual, lowest)
        items = [_items(tree, branch) for branch in shown]
        needed = np.array([(scale * len(ids) ** 0.25 + 2.0) / _LINE for ids in items])
        needed = np.where([branch.is_end for branch in shown], np.maximum(needed, 1.0), needed)
        total = heights(shown, needed)[1]
        if min_size is not None or total <= capacity or limit <= 1.0:
            return shown, items, needed
        limit = max(1.0, min(limit - 1.0, limit - (total - capacity)))


def _items(tree: Hierarchy, branch: Branch) -> Int[np.ndarray, " m"]:
    """The items of a branch: those of its node, or of its siblings together."""
    if branch.top == 0:
        return np.arange(tree.n_items)
    return np.flatnonzero(np.isin(tree.paths[:, branch.top - 1], branch.nodes))


def _words(
    branch: Branch, items: Int[np.ndarray, " m"], texts: Sequence[str], codes: Int[np.ndarray, " n"] | None
) -> list[Word]:
    """The names of the items; names of several classes are sorted by class, largest first, and marked with their class."""
    if not branch.is_end:
        return []
    if codes is None or (codes[items] == codes[items[0]]).all():
        return [Word(texts[item]) for item in items]
    counts = np.bincount(codes[items])
    order = items[np.lexsort([codes[items], -counts[codes[items]]])]
    return [Word(texts[item], int(codes[item])) for item in order]


def _length(words: Sequence[Word], width: Callable[[Word], float], start: str, most: float) -> float:
    """Width of a line of all words, but at most `most`."""
    total = width(Word(start)) if start else 0.0
    for word in words:
        total += width(word)
        if total > most:
            return most
    return total


def _group_text(branch: Branch, items: Int[np.ndarray, " m"]) -> str:
    return f"{len(branch.nodes)} nodes, {_counted(len(items), 'item')}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _gaps(shown: Sequence[Branch], items: Sequence[Int[np.ndarray, " _"]], scale: float) -> list[float]:
    """Distance from each branch to its text, in points: beyond the largest circle of an end at its level."""
    radii = [
        scale * len(ids) ** 0.25 / 2 if branch.top == branch.bottom else 0.0 for branch, ids in zip(shown, items, strict=True)
    ]
    largest: dict[int, float] = {}
    for branch, radius in zip(shown, radii, strict=True):
        if branch.is_end:
            largest[branch.bottom] = max(largest.get(branch.bottom, 0.0), radius)
    return [largest.get(branch.bottom, 0.0) + _GAP for branch in shown]


def _room(axes: Axes) -> _Room:
    axes.figure.figure.draw_without_rendering()  # fixes the layout
    box = axes.get_window_extent()
    return _Room(box.width * 72 / axes.figure.dpi, box.height * 72 / axes.figure.dpi)


def _new_axes(room: _Room, prepare: Callable[[Axes], None]) -> Axes:
    """Create axes of this size in a new figure with room for the text around them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=((room.width + 30.0) / 72, (room.height + 100.0) / 72), layout="constrained")
    axes = figure.subplots()
    prepare(axes)
    for _ in range(2):  # margins may depend on the size
        now = _room(axes)
        figure.set_figwidth(figure.get_figwidth() + (room.width - now.width) / 72)
        figure.set_figheight(figure.get_figheight() + (room.height - now.height) / 72)
    figure.draw_without_rendering()
    return axes


def _head(axes: Axes, tree: Hierarchy, lowest: int, column: float) -> None:
    """Write the levels, and the number of nodes at each, above the columns."""
    counts = np.bincount(tree.levels)
    if column >= 45.0:
        texts = [f"{level}\n{_counted(int(counts[level]), 'node')}" for level in range(lowest + 1)]
    else:
        step = int(np.ceil(14.0 / column))
        texts = [str(level) if level % step == 0 else "" for level in range(lowest + 1)]
    axes.set_xticks(range(lowest + 1), texts, fontsize=_TEXT)
    axes.tick_params(axis="x", length=0, labeltop=True, labelbottom=False)
    axes.set_yticks([])
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("level", loc="left", fontsize=_TEXT)


def _keys(
    axes: Axes,
    clusters: Shaped[np.ndarray, " k"],
    n: int,
    scale: float,
    has_support: bool,
    width: float,
    letters: Callable[[str], float],
) -> None:
    """Add keys below the axes: circles of several sizes and the meaning of the numbers, then the classes."""
    from matplotlib.lines import Line2D

    first = [
        Line2D([], [], linestyle="", marker="o", markersize=scale * size**0.25, color=_MIXED, label=_counted(size, "item"))
        for size in (10 ** np.arange(len(str(n)))[-4:]).tolist()
    ]
    if has_support:
        first.append(Line2D([], [], linestyle="", label="beside a node: posterior probability"))
    second = [
        Line2D([], [], color=color, linewidth=5.0, label=short_name(cluster))
        for color, cluster in zip(cluster_colors(len(clusters)), clusters, strict=True)
    ]
    key, rows = _key(axes, first, width, 0, letters)
    if 0 < len(second) <= _MOST_CLASSES:
        _key(axes, second, width, rows, letters)
        # added as an artist because the other key replaced it; artists are clipped to the axes by default
        axes.add_artist(key).set_clip_on(False)


def _key(
    axes: Axes, handles: Sequence[Line2D], width: float, rows_above: int, letters: Callable[[str], float]
) -> tuple[Legend, int]:
    """Add a key below the axes, below the given number of rows of another key; return it and its number of rows."""
    from matplotlib.transforms import ScaledTranslation

    length = max(1.2, *(handle.get_markersize() / _TEXT for handle in handles))
    widths = [letters(str(handle.get_label())) + (length + 2.0) * _TEXT for handle in handles]
    columns = len(handles) if sum(widths) <= width else max(1, int(width / max(widths)))
    key = axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=axes.transAxes + ScaledTranslation(0.0, -_KEY_ROW * rows_above / 72, axes.figure.dpi_scale_trans),
        ncols=columns,
        frameon=False,
        fontsize=_TEXT,
        handlelength=length,
        columnspacing=1.2,
        borderaxespad=0.6,
    )
    return plain_texts(key), -(-len(handles) // columns)


def _draw_nodes(axes: Axes, plan: _Plan, codes: Int[np.ndarray, " n"] | None, n_clusters: int, scale: float) -> None:
    """Draw circles for nodes and squares for groups in the colour of their class, divided if they contain several."""
    palette = cluster_colors(max(n_clusters, 1))
    shares = [np.ones(1) if codes is None else np.bincount(codes[ids], minlength=n_clusters) / len(ids) for ids in plan.items]
    colors = np.array([palette[share.argmax()] for share in shares])
    centers = np.array([[branch.top, y] for branch, y in zip(plan.branches, plan.middles, strict=True)])
    areas = (scale * np.array([len(ids) for ids in plan.items]) ** 0.25) ** 2
    is_group = np.array([len(branch.nodes) > 1 for branch in plan.branches])
    for chosen, marker, label in ((~is_group, "o", "nodes"), (is_group, "s", "groups")):
        axes.scatter(
            centers[chosen, 0],
            centers[chosen, 1],
            s=areas[chosen],
            c=colors[chosen],
            marker=marker,
            linewidths=0.0,
            clip_on=False,
            zorder=3,
            label=label,
        )
    for index in np.flatnonzero([share.max() < 1.0 for share in shares]):
        _divide(axes, centers[index], areas[index], shares[index], palette, bool(is_group[index]))


def _divide(
    axes: Axes,
    center: Float[np.ndarray, " 2"],
    area: float,
    shares: Float[np.ndarray, " k"],
    palette: Float[np.ndarray, "k 4"],
    is_group: bool,
) -> None:
    """Cover a circle with slices, or a square with stripes, in proportion to the shares."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D, IdentityTransform

    classes = np.flatnonzero(shares)
    ends = np.concatenate([[0.0], np.cumsum(shares[classes])])
    half = Affine2D().scale(0.5)
    paths = [
        Affine2D().scale(1.0, to - start).translate(-0.5, 0.5 - to).transform_path(Path.unit_rectangle())
        if is_group
        else half.transform_path(Path.wedge(90.0 - 360.0 * to, 90.0 - 360.0 * start))
        for start, to in zip(ends[:-1], ends[1:], strict=True)
    ]
    slices = PathCollection(
        paths,
        [area],
        offsets=[center],
        offset_transform=axes.transData,
        facecolors=palette[classes],
        linewidths=0.0,
        clip_on=False,
        zorder=4,
        label="classes",
    )
    slices.set_transform(IdentityTransform())
    axes.add_collection(slices, autolim=False)


def _write_names(
    axes: Axes, plan: _Plan, n_clusters: int, letters: Callable[[str], float]
) -> list[tuple[float, float, float, float]]:
    """Write the text beside the ends, largest branches first if not all fit, and return its boxes."""
    palette = cluster_colors(n_clusters)
    boxes: list[tuple[float, float, float, float]] = []
    taken: list[float] = []
    for index in np.argsort([-len(ids) for ids in plan.items], kind="stable"):
        branch, lines = plan.branches[index], plan.lines[index]
        positions = plan.middles[index] + (np.arange(len(lines)) - (len(lines) - 1) / 2) * _LINE / plan.pitch
        if plan.pitch < 0.99 * _LINE:
            if any(abs(y - other) * plan.pitch < _LINE for y in positions for other in taken):
                continue
            taken += positions.tolist()
        for number, (line, y) in enumerate(zip(lines, positions.tolist(), strict=True)):
            right = plan.gaps[index]
            if all(word.code < 0 for word in line):
                text = join(line, number == len(lines) - 1)
                _write(axes, text, branch.bottom, y, right)
                right += letters(text)
            else:
                for word in line:
                    if word.code >= 0:
                        _mark(axes, branch.bottom, y, right, palette[word.code])
                        right += _SQUARE
                    _write(axes, word.text, branch.bottom, y, right)
                    right += letters(word.text) + letters("  ")
            half = 0.45 * _LINE / plan.pitch
            boxes.append((branch.bottom, y - half, branch.bottom + right / plan.column, y + half))
    return boxes


def _write(axes: Axes, text: str, x: float, y: float, right: float) -> None:
    written = axes.annotate(
        text,
        (x, y),
        xytext=(right, 0.0),
        textcoords="offset points",
        verticalalignment="center_baseline",
        fontsize=_TEXT,
        color="0.1",
        parse_math=False,
    )
    written.set_in_layout(False)


def _mark(axes: Axes, x: float, y: float, right: float, color: Float[np.ndarray, " 4"]) -> None:
    """Draw a square in the colour of a name's class before the name."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    shift = ScaledTranslation((right + 2.5) / 72, 0.0, axes.figure.dpi_scale_trans)
    square = Line2D(
        [x], [y], linestyle="", marker="s", markersize=4.5, markeredgewidth=0.0, color=color.tolist(), clip_on=False
    )
    square.set(transform=axes.transData + shift, in_layout=False)
    axes.add_artist(square)


def _write_support(
    axes: Axes,
    plan: _Plan,
    support: Float[np.ndarray, " nodes"],
    lines: Float[np.ndarray, "l 4"],
    filled: Sequence[tuple[float, float, float, float]],
    scale: float,
) -> None:
    """Write the probabilities beside the circles, largest nodes first."""
    n = len(plan.items[0])
    largest = np.argsort([-len(ids) for ids in plan.items], kind="stable").tolist()
    shown = [index for index in largest if 1 < len(plan.items[index]) < n and len(plan.branches[index].nodes) == 1]
    texts = [f"{support[plan.branches[index].nodes[0]]:.2f}" for index in shown]
    x, y = np.array([branch.top for branch in plan.branches], dtype=np.float64), plan.middles
    radii = scale * np.array([len(ids) for ids in plan.items]) ** 0.25 / 2
    right, down = radii / plan.column, radii / plan.pitch
    circles = np.column_stack([x - right, y - down, x + right, y + down])
    points = np.column_stack([x - right, y])[shown]
    boxes = np.vstack([circles, np.reshape(filled, (-1, 4))])
    write_apart(axes, points, texts, [(-1.5, 1.0), (-1.5, -1.0)], 6.0, Occupied(boxes=boxes, lines=lines), color="0.35")


def _checked_support(support: ArrayLike, n_nodes: int) -> Float[np.ndarray, " nodes"]:
    support = np.asarray(support, dtype=np.float64)
    if support.shape != (n_nodes,):
        raise ValueError(f"support must have one entry per node, shape ({n_nodes},), but it has shape {support.shape}")
    wrong = ~((support >= 0.0) & (support <= 1.0))
    if wrong.any():
        node = int(wrong.argmax())
        raise ValueError(f"support must be probabilities between 0 and 1, but that of node {node} is {support[node]}")
    return support
