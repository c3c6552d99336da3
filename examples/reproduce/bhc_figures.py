"""Heller & Ghahramani (2005), Figures 5 to 8: trees of newsgroup documents and digits, and toy problems in the plane.

Figure 5 shows the top of the trees with the words that distinguish each node from its sibling, Figure 7 the whole trees,
Figure 6 the trees of 120 digits, and Figure 8 three toy problems. The paper's digits (CEDAR Buffalo) are not freely available:
scikit-learn's and reduced MNIST images stand in. The points of Figure 8 are not listed; ours follow its caption.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from common import (
    BITS,
    NORMAL,
    Report,
    arguments,
    best_words,
    decided,
    digits,
    greedy_bhc,
    information_gain,
    linkage,
    load,
    mnist_digits,
    newsgroups,
)
from matplotlib.figure import Figure

import bnp_hier as bnp
from bnp_hier.models import dpm

TREES = ("average linkage", "BHC")
PAPER_6 = (0.870, 0.924)
"""Purity of the two trees in the paper's Figure 6."""

GROUPS = np.array(["autos", "baseball", "hockey", "space"])


def members(tree: bnp.Dendrogram, node: int) -> np.ndarray:
    """Items under a node."""
    start = tree.first_positions()[node]
    return tree.leaf_order()[start : start + tree.sizes[node]]


def telling_words(X: np.ndarray, inside: np.ndarray, sibling: np.ndarray, words: np.ndarray) -> list[str]:
    """Of the words more frequent inside than in the sibling, the three that best tell the two apart (mutual information)."""
    both = np.concatenate([inside, sibling])
    gain = information_gain(X[both], np.arange(len(both)) < len(inside))
    gain[X[inside].mean(0) <= X[sibling].mean(0)] = -1.0
    return [str(words[j]) for j in np.argsort(-gain)[:3] if gain[j] >= 0]


def top_nodes(tree: bnp.Dendrogram) -> list[int]:
    """The last three merges."""
    return [2 * tree.n_items - 2 - k for k in range(3)]


def describe(tree: bnp.Dendrogram, X: np.ndarray, y: np.ndarray, words: np.ndarray) -> dict[int, str]:
    """Number of documents and distinguishing words of the nodes created or joined by the last three merges."""
    texts = {2 * tree.n_items - 2: f"{tree.n_items} documents"}
    for node in top_nodes(tree):
        pair = tree.children[node - tree.n_items].tolist()
        for child, other in (pair, pair[::-1]):
            here = members(tree, child)
            telling = telling_words(X, here, members(tree, other), words)
            texts[child] = f"{len(here)} documents\n" + "\n".join(telling)
    return texts


def write_top(report: Report, tree: bnp.Dendrogram, texts: dict[int, str], y: np.ndarray, node: int, depth: int = 0) -> None:
    """Report the top of a tree as indented text, with the number of documents per group."""
    counts = np.bincount(y[members(tree, node)], minlength=4)
    of_groups = ", ".join(f"{count} {group}" for count, group in zip(counts, GROUPS, strict=True) if count)
    report("  " * (depth + 1) + texts[node].replace("\n", " ", 1).replace("\n", ", ") + f"  [{of_groups}]")
    if node in top_nodes(tree):
        for child in tree.children[node - tree.n_items].tolist():
            write_top(report, tree, texts, y, child, depth + 1)


def draw_top(axes: object, tree: bnp.Dendrogram, texts: dict[int, str], title: str) -> None:
    """Draw the top of a tree as boxes."""
    place: dict[int, tuple[float, float]] = {}
    leaves = 0

    def settle(node: int, depth: int) -> float:
        nonlocal leaves
        if node in top_nodes(tree):
            x = float(np.mean([settle(child, depth + 1) for child in tree.children[node - tree.n_items].tolist()]))
        else:
            x, leaves = float(leaves), leaves + 1
        place[node] = x, -float(depth)
        return x

    settle(2 * tree.n_items - 2, 0)
    for node in top_nodes(tree):
        for child in tree.children[node - tree.n_items].tolist():
            axes.plot(*zip(place[node], place[child], strict=True), color="0.6", zorder=1)
    for node, (x, height) in place.items():
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6"}
        axes.text(x, height, texts[node], ha="center", va="center", fontsize=9, bbox=box, parse_math=False)
    axes.set(xlim=(-0.6, 3.6), ylim=(min(height for _, height in place.values()) - 0.5, 0.4), title=title)
    axes.axis("off")


def meeting_size(tree: bnp.Dendrogram, y: np.ndarray) -> np.ndarray:
    """Mean share of all items in the smallest subtree that contains a document of one group and one of another."""
    k, n = len(GROUPS), tree.n_items
    counts = np.zeros((2 * n - 1, k))
    counts[np.arange(n), y] = 1.0
    pairs, total = np.zeros((k, k)), np.zeros((k, k))
    for t, (left, right) in enumerate(tree.children):
        counts[n + t] = counts[left] + counts[right]
        new = np.outer(counts[left], counts[right])
        pairs += new + new.T
        total += (new + new.T) * counts[n + t].sum() / n
    return total / pairs


def figures_5_and_7(report: Report, out: Path, seed: int, per_group: int, count: int) -> None:
    """Report and draw the trees of newsgroup documents."""
    X, y = newsgroups(np.random.default_rng(seed), per_group, count)
    words = np.array(load("newsgroups4").feature_names)[best_words(count)]
    fit = greedy_bhc(X, BITS)
    fixed = partial(dpm, component=fit.component_, concentration=fit.concentration_)
    ratio = bnp.BHC(fixed, refine=None, shape="ratio", progress_bar=False).fit(X)
    trees = {"BHC": fit.dendrogram_, "average linkage": linkage(X, "average")}
    values = ", ".join(f"{key} {float(value):.3g}" for key, value in fit.hyperparameters_.items())
    report(f"Figures 5 and 7: {len(X)} documents, {count} words; BHC finds {fit.n_clusters_} clusters; learned {values}")
    top = Figure(figsize=(14, 5.5), layout="constrained")
    whole = Figure(figsize=(14, 5), layout="constrained")
    largest, purity = {}, {}
    for (name, tree), top_axes, axes in zip(trees.items(), top.subplots(1, 2), whole.subplots(1, 2), strict=True):
        texts = describe(tree, X, y, words)
        purity[name] = tree.purity(y, pick="leaf")
        report(f"\n{name}, last three merges; dendrogram purity {purity[name]:.3f}")
        write_top(report, tree, texts, y, 2 * tree.n_items - 2)
        draw_top(top_axes, tree, texts, name)
        ends = {child for node in top_nodes(tree) for child in tree.children[node - tree.n_items].tolist()} - set(
            top_nodes(tree)
        )
        largest[name] = max(tree.sizes[node] for node in ends) / len(X)
        bnp.plots.dendrogram(tree, labels=GROUPS[y], threshold=0.5 if name == "BHC" else 0.0, ax=axes)
        axes.set_title(f"{name}: purity {purity[name]:.3f}", loc="left", pad=18)
    report(
        f"\nPurity of the same BHC tree rebuilt inside its clusters (shape ratio): {ratio.dendrogram_.purity(y, 'leaf'):.3f}"
    )
    top.savefig(out / "bhc_figure5.png", dpi=70)
    whole.savefig(out / "bhc_figure7.png", dpi=80)
    meet = meeting_size(fit.dendrogram_, y)
    report("Mean share of the documents in the smallest BHC subtree that contains two documents of different groups:")
    for i, j in ((0, 3), (0, 1), (0, 2), (1, 2)):
        report(f"  {GROUPS[i]} and {GROUPS[j]}: {meet[i, j]:.3f}")
    difference = purity["BHC"] - purity["average linkage"]
    report.verdict("BHC's tree is purer than average linkage's", difference > 0, f"difference {difference:+.3f}")
    report.verdict(
        "BHC's last merges join large parts, average linkage's split off a few documents",
        largest["BHC"] < 0.75 < largest["average linkage"],
        f"largest of four parts {largest['BHC']:.0%} and {largest['average linkage']:.0%}",
    )
    report.verdict(
        "autos lie closer to space than to the sports",
        meet[0, 3] < min(meet[0, 1], meet[0, 2]),
        f"meet in {meet[0, 3]:.0%} of the documents, against {meet[0, 1]:.0%} and {meet[0, 2]:.0%}",
    )


def figure_6(report: Report, out: Path, seed: int, per_digit: int, subsets: int) -> None:
    """Report the purity of both trees over random subsets of three digits, and draw the trees of the first."""
    sources = {"scikit-learn": digits, "MNIST, 8 x 8": mnist_digits}
    report(f"Figure 6: {3 * per_digit} images of the digits 0, 2 and 4, {subsets} random subsets; the first is drawn")
    figure = Figure(figsize=(14, 5 * len(sources)), layout="constrained")
    for (name, source), pair in zip(sources.items(), figure.subplots(len(sources), 2), strict=True):
        purity = np.zeros((subsets, 2))
        for k in range(subsets):
            X, y = source(np.random.default_rng([seed, k]), (0, 2, 4), per_digit)
            fit = greedy_bhc(X, BITS)
            trees = dict(zip(TREES, (linkage(X, "average"), fit.dendrogram_), strict=True))
            purity[k] = [tree.purity(y, pick="leaf") for tree in trees.values()]
            if k == 0:
                for (method, tree), value, axes in zip(trees.items(), purity[0], pair, strict=True):
                    cut = fit.n_clusters_ - 1 if method == "BHC" else 0
                    bnp.plots.dendrogram(
                        tree, labels=y.astype(str), names=y.astype(str), threshold=0.5 if cut else 0.0, annotate=cut, ax=axes
                    )
                    axes.set_title(f"{name}, {method}: purity {value:.3f}", loc="left", pad=18)
                report(f"\n{name}: drawn: purity {purity[0, 0]:.3f} (average linkage), {purity[0, 1]:.3f} (BHC),")
                report(f"  {fit.n_clusters_} clusters where BHC is cut")
        mean, spread, error = purity.mean(0), purity.std(0, ddof=1), purity.std(0, ddof=1) / np.sqrt(subsets)
        report(
            "  over subsets: "
            + ", ".join(f"{TREES[i]} {mean[i]:.3f} ± {error[i]:.3f} (paper's example {PAPER_6[i]:.3f})" for i in (0, 1))
        )
        gap = purity[:, 1] - purity[:, 0]
        deviation = gap.std(ddof=1) / np.sqrt(subsets)
        report.verdict(
            f"{name}: BHC's tree of three digits is purer than average linkage's",
            decided(gap.mean(), deviation),
            f"difference {gap.mean():+.3f} ± {deviation:.3f} (paper's example +0.054), purer in {(gap > 0).sum()} of {subsets}",
        )
        near = np.abs(mean - PAPER_6) <= 2 * spread
        report.verdict(
            f"{name}: the paper's two purities are within 2 standard deviations of those over subsets",
            bool(near.all()),
            ", ".join(f"{TREES[i]} {mean[i]:.3f} ± {spread[i]:.3f}" for i in (0, 1)),
        )
    figure.savefig(out / "bhc_figure6.png", dpi=65)


def toys() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Points and the groups they belong to, by the name of the toy problem."""
    rng = np.random.default_rng(3)

    def blob(center: tuple[float, float], spread: tuple[float, float], size: int) -> np.ndarray:
        return center + rng.normal(size=(size, 2)) * spread

    spreads = [
        blob((0, 0), (0.15, 0.15), 6),
        blob((2.2, 0.2), (0.15, 0.15), 4),
        blob((0.5, 6), (0.6, 0.6), 10),
        blob((7.5, 5), (1.4, 1.4), 7),
    ]
    line = np.column_stack([np.linspace(0, 8, 11), rng.normal(0.0, 0.08, 11)])
    elongated = [blob((9.0, 1.2), (0.35, 0.35), 8), line, blob((2, 4), (0.5, 0.5), 6)]
    parallels = [np.column_stack([np.linspace(0, 9, 14) + rng.normal(0, 0.12, 14), rng.normal(h, 0.06, 14)]) for h in (0, 1.3)]
    named = {"unequal spreads": spreads, "a line and a blob": elongated, "parallels": parallels}
    return {
        name: (np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts]))
        for name, parts in named.items()
    }


def first_joined(tree: bnp.Dendrogram, items: np.ndarray) -> int:
    """Index of the first merge that has all the items under it."""
    wanted = set(items.tolist())
    return next(t for t in range(tree.n_items - 1) if wanted <= set(members(tree, tree.n_items + t).tolist()))


def figure_8(report: Report, out: Path, wanted: list[str]) -> None:
    """Report and draw the toy problems: trees, clusters and predictive densities."""
    report("Figure 8: toy problems, Gaussian components, hyperparameters learned, greedy trees")
    report("The points are not the paper's; they match the description in its caption. The merge order in the first")
    report("depends on the layout: if the two tight groups are closer to each other (1.6 apart), BHC joins them first, too.")
    figure = Figure(figsize=(5.4 * len(wanted), 12), layout="constrained")
    panels = figure.subplots(3, len(wanted), squeeze=False)
    for column, name in zip(panels.T, wanted, strict=True):
        X, y = toys()[name]
        fit = greedy_bhc(X, NORMAL)
        trees = {"average linkage": linkage(X, "average"), "BHC": fit.dendrogram_}
        numbers = [str(i + 1) for i in range(len(X))]
        bnp.plots.dendrogram(
            trees["average linkage"], labels=fit.labels_, names=numbers, threshold=0.0, ax=column[0], annotate=0
        )
        bnp.plots.dendrogram(trees["BHC"], names=numbers, ax=column[1])
        bnp.plots.predictive_density(fit, X, ax=column[2])
        for number, point in zip(numbers, X, strict=True):
            column[2].annotate(number, point, (2, 2), textcoords="offset points", fontsize=6, color="0.3")
        for axes, title in zip(column, (f"{name}: average linkage", "BHC", "clusters, density"), strict=True):
            axes.set_title(title, loc="left", pad=26, fontsize=10)
        purity = {key: tree.purity(y, pick="leaf") for key, tree in trees.items()}
        values = ", ".join(f"{key} {float(value):.3g}" for key, value in fit.hyperparameters_.items())
        report(f"\n{name}: {len(X)} points, {fit.n_clusters_} clusters; learned {values}")
        report(f"  purity for the true groups: BHC {purity['BHC']:.3f}, average linkage {purity['average linkage']:.3f}")
        if name == "unequal spreads":
            near, wide = np.flatnonzero(y <= 1), np.flatnonzero(y == 3)
            earlier = {key: first_joined(tree, wide) < first_joined(tree, near) for key, tree in trees.items()}
            report.verdict(
                "BHC completes the wide cluster before it joins the two tight neighbouring ones, average linkage after",
                earlier["BHC"] and not earlier["average linkage"],
                f"before: BHC {earlier['BHC']}, average linkage {earlier['average linkage']}",
            )
        elif name == "a line and a blob":
            end = int(np.flatnonzero(y == 1)[-1])
            distance = np.linalg.norm(X - X[end], axis=1)
            nearest = {group: np.sort(distance[(y == group) & (distance > 0)])[:4].mean() for group in (0, 1)}
            report(
                f"  point {end + 1}: mean distance to the 4 nearest points of the blob {nearest[0]:.2f}, "
                f"of its own line {nearest[1]:.2f}"
            )
            mates = fit.labels_ == fit.labels_[end]
            own, blob = int((mates & (y == 1)).sum()), int((mates & (y == 0)).sum())
            report.verdict(
                "BHC keeps the end of the line with the line although the blob is closer, and its tree is purer",
                own > blob and purity["BHC"] > purity["average linkage"],
                f"its cluster has {own} points of the line and {blob} of the blob",
            )
        else:
            report.verdict(
                "BHC keeps the parallels apart, average linkage merges across them",
                purity["BHC"] == 1 > purity["average linkage"],
                f"purity {purity['BHC']:.3f} and {purity['average linkage']:.3f}",
            )
    figure.savefig(out / "bhc_figure8.png", dpi=65)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--figures", nargs="+", choices=("5", "6", "8"), default=["5", "6", "8"], help="5 also draws 7")
    parser.add_argument("--per-group", type=int, help="documents per newsgroup; 15, or 200 with --full")
    parser.add_argument("--words", type=int, default=50)
    parser.add_argument("--per-digit", type=int, help="images per digit in Figure 6; 8, or 40 with --full")
    parser.add_argument("--subsets", type=int, help="random subsets in Figure 6; 2, or 10 with --full")
    parser.add_argument(
        "--toys", nargs="+", choices=list(toys()), help="toy problems; the parallels by default, all with --full"
    )
    options = parser.parse_args()
    report = Report(options.out, "bhc_figures")
    if "5" in options.figures:
        figures_5_and_7(report, options.out, options.seed, options.per_group or (200 if options.full else 15), options.words)
        report("")
    if "6" in options.figures:
        subsets = options.subsets or (10 if options.full else 2)
        if subsets < 2:
            parser.error("--subsets must be at least 2")
        figure_6(report, options.out, options.seed, options.per_digit or (40 if options.full else 8), subsets)
        report("")
    if "8" in options.figures:
        figure_8(report, options.out, options.toys or (list(toys()) if options.full else ["parallels"]))
    report.save()


if __name__ == "__main__":
    main()
