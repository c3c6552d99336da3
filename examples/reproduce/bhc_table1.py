"""Heller & Ghahramani (2005), Table 1: dendrogram purity of BHC and of classical linkage trees.

The paper gives neither its subsets nor its synthetic mixture, and its digits (CEDAR Buffalo) are not freely available. We use
two stand-ins of 8 x 8 pixels: scikit-learn's digits, which are easier, and reduced MNIST images, on which the linkage trees
are about as pure as in the paper. Every method sees the same random subset. Glass is used whole, where no repetition differs:
its ± is the standard error over rows of their own purity (the mean over their classmates), which a random row in place of the
average over rows would have. Hyperparameters are learned on each subset by
gradient ascent on the bound plus the log prior, with greedy trees. The other two kinds of BHC tree are built at these values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import (
    BITS,
    LINKAGES,
    NORMAL,
    OPEN,
    Report,
    Subset,
    arguments,
    decided,
    digits,
    glass,
    greedy_bhc,
    linkage,
    mnist_digits,
    newsgroups,
    spambase,
    synthetic,
)
from matplotlib.figure import Figure
from resuming import Cells

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.tree_search import ratio_inside_clusters
from bnp_hier.models import dpm

Maker = Callable[[np.random.Generator], Subset]

# purity ± standard error in the paper: single, complete, average, BHC
PAPER = {
    "synthetic": ((0.599, 0.033), (0.634, 0.024), (0.668, 0.040), (0.828, 0.025)),
    "newsgroups": ((0.275, 0.001), (0.315, 0.008), (0.282, 0.002), (0.465, 0.016)),
    "spambase": ((0.598, 0.017), (0.699, 0.017), (0.668, 0.019), (0.728, 0.029)),
    "3digits": ((0.545, 0.015), (0.654, 0.013), (0.742, 0.018), (0.807, 0.022)),
    "10digits": ((0.224, 0.004), (0.299, 0.006), (0.342, 0.005), (0.393, 0.015)),
    "glass": ((0.478, 0.009), (0.476, 0.009), (0.491, 0.009), (0.467, 0.011)),
}
PAPER |= {"3mnist": PAPER["3digits"], "10mnist": PAPER["10digits"]}
PAPER_METHODS = ("single", "complete", "average", "greedy")
METHODS = (*LINKAGES, "greedy", "polish", "ratio")
WHOLE = "glass"
"""The data set of which there are no subsets."""


def makers(full: bool) -> dict[str, tuple[str, Maker]]:
    """Component and subset of each data set, at the paper's sizes or at small ones."""
    three, ten = (0, 2, 4), tuple(range(10))
    if not full:
        return {"3digits": (BITS, partial(digits, classes=three, size=10))}
    return {
        "synthetic": (NORMAL, synthetic),
        "newsgroups": (BITS, newsgroups),
        "spambase": (BITS, spambase),
        "3digits": (BITS, partial(digits, classes=three)),
        "3mnist": (BITS, partial(mnist_digits, classes=three)),
        "10digits": (BITS, partial(digits, classes=ten)),
        "10mnist": (BITS, partial(mnist_digits, classes=ten)),
        "glass": (NORMAL, partial(glass, size=214)),
    }


def row_purities(tree: bnp.Dendrogram, y: np.ndarray) -> np.ndarray:
    """For each row with a classmate, the mean share of its class in the smallest subtrees with it and a classmate.

    The mean over rows is `Dendrogram.purity(y, pick="leaf")`.
    """
    _, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    below = [np.array([i]) for i in range(len(y))]
    total = np.zeros(len(y))
    for left, right in tree.children:
        one, other = below[left], below[right]
        both = np.concatenate([one, other])
        share = np.bincount(codes[both], minlength=len(sizes)) / len(both)
        for here, there in ((one, other), (other, one)):
            total[here] += np.bincount(codes[there], minlength=len(sizes))[codes[here]] * share[codes[here]]
        below.append(both)
    mates = sizes[codes] - 1
    return total[mates > 0] / mates[mates > 0]


def grown(X: np.ndarray, kind: str) -> tuple[list[bnp.Dendrogram], dict[str, float]]:
    """Each method's tree of one subset, and the learned hyperparameters."""
    greedy = greedy_bhc(X, kind)
    fixed = partial(dpm, component=greedy.component_, concentration=greedy.concentration_)
    polish = bnp.BHC(fixed, progress_bar=False).fit(X)
    # the same as shape="ratio", without repeating the search
    with jax.enable_x64(True):
        children, odds = ratio_inside_clusters(polish.component_, polish.X_fit_, polish.concentration_, polish.dendrogram_)
    ratio = bnp.Dendrogram(children, odds)
    trees = [linkage(X, method) for method in LINKAGES] + [greedy.dendrogram_, polish.dendrogram_, ratio]
    return trees, {k: float(v) for k, v in greedy.hyperparameters_.items()}


def one_subset(name: str, full: bool, repetition: int, seed: int) -> dict[str, Any]:
    """Purity of each method's tree on one subset (on glass: of each row), learned hyperparameters, rows and columns."""
    kind, make = makers(full)[name]
    X, y = make(np.random.default_rng([seed, repetition]))
    trees, values = grown(X, kind)
    if name == WHOLE:
        purity = np.transpose([row_purities(tree, y) for tree in trees])
    else:
        purity = np.array([[tree.purity(y, pick="leaf") for tree in trees]])
    return {"purity": purity, "learned": values, "shape": X.shape}


def standard_error(values: np.ndarray) -> np.ndarray:
    """Standard error of the mean over repetitions, or over the rows of glass."""
    return values.std(axis=0, ddof=1) / np.sqrt(len(values))


def report_set(report: Report, name: str, found: list[dict[str, Any]]) -> np.ndarray:
    """Report the purities on one data set, and return them: one row per subset, on glass per row."""
    table = np.concatenate([one["purity"] for one in found])
    texts = [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(table.mean(0), standard_error(table), strict=True)]
    report(f"{name:<11}" + "".join(f"{text:>16}" for text in texts))
    paper = dict(zip(PAPER_METHODS, PAPER[name], strict=True))
    quoted = [f"{paper[m][0]:.3f} ± {paper[m][1]:.3f}" if m in paper else "-" for m in METHODS]
    report(f"{'  paper':<11}" + "".join(f"{text:>16}" for text in quoted))
    learned = [one["learned"] for one in found]
    medians = {key: np.median([values[key] for values in learned]) for key in learned[0]}
    n, d = found[0]["shape"]
    report(
        f"{'  learned':<11}     n = {n}, d = {d}; medians " + ", ".join(f"{key} {value:.3g}" for key, value in medians.items())
    )
    return table


def verdict(report: Report, name: str, values: np.ndarray) -> None:
    """Report whether greedy BHC compares with the paper's three linkages as the paper says, and the purest of all methods."""
    mean = dict(zip(METHODS, values.mean(0), strict=True))
    best = max(PAPER_METHODS[:3], key=mean.__getitem__)
    gap = values[:, METHODS.index("greedy")] - values[:, METHODS.index(best)]
    expected = 1 if name != WHOLE else -1
    outcome = decided(gap.mean(), standard_error(gap), expected)
    first = max(METHODS, key=mean.__getitem__)
    report.verdict(
        f"{name}: " + ("BHC purest of BHC, single, complete, average" if expected > 0 else "BHC not the purest"),
        outcome,
        f"BHC - {best} = {gap.mean():+.3f} ± {standard_error(gap):.3f}"
        + (" (below 2 standard errors)" if outcome == OPEN else "")
        + f"; highest of all seven: {first}",
    )


def draw(tables: dict[str, np.ndarray], path: Path) -> None:
    """Plot the purity of every method on every data set, ± one standard error; hollow markers are the paper's."""
    columns = min(3, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    place = np.arange(len(METHODS))
    for axis, (name, table) in zip(axes, tables.items(), strict=False):
        axis.errorbar(place, table.mean(0), standard_error(table), fmt="o", ms=4, capsize=2, label="here")
        quoted = np.array(PAPER[name])
        theirs = [METHODS.index(method) for method in PAPER_METHODS]
        axis.errorbar(np.array(theirs) + 0.2, *quoted.T, fmt="o", ms=4, capsize=2, mfc="none", color="0.5", label="paper")
        axis.set_title(name, fontsize=10)
        axis.set_xticks(place, METHODS, rotation=45, ha="right", fontsize=8)
        axis.tick_params(axis="y", labelsize=8)
    for axis in axes[len(tables) :]:
        axis.set_axis_off()
    for axis in axes[max(len(tables) - columns, 0) : len(tables)]:  # the lowest in each column
        axis.tick_params(axis="x", labelbottom=True)
    for axis in axes[::columns]:
        axis.set_ylabel("dendrogram purity", fontsize=9)
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repetitions", type=int, help="subsets per data set; 2, or 10 with --full")
    parser.add_argument("--data", nargs="+", help="only these data sets")
    options = parser.parse_args()
    repetitions = options.repetitions or (10 if options.full else 2)
    if repetitions < 2:
        parser.error("--repetitions must be at least 2, because the standard errors are computed over repetitions")
    report = Report(options.out, "bhc_table1")
    report("BHC Table 1: dendrogram purity (pairs drawn by leaf), mean ± standard error over random subsets")
    report(f"{repetitions} repetitions, seed {options.seed}, {'paper sizes' if options.full else 'small sizes'}")
    report("single/complete/average/ward: Euclidean linkage on the same (binarised) rows; greedy: BHC as in the paper;")
    report("polish: BHC's default tree search; ratio: that tree rebuilt inside its clusters by the marginal likelihood ratio.")
    report("3mnist, 10mnist: MNIST images reduced to 8 x 8 bits, beside the paper's numbers for its own digits.")
    report("Glass: raw columns, all 214 rows, so one repetition; ± is the standard error over rows of their own purity.\n")
    report(f"{'':<11}" + "".join(f"{method:>16}" for method in METHODS))
    tables = {}
    names = [name for name in makers(options.full) if not options.data or name in options.data]
    counts = {name: 1 if name == WHOLE else repetitions for name in names}
    with Cells(options.out, report.name, __file__, sum(counts.values())) as cells:
        for name, count in counts.items():
            found = [cells(one_subset, name, options.full, repetition, options.seed) for repetition in range(count)]
            tables[name] = report_set(report, name, found)
    report("\nThe paper's claim: on all data sets except glass, BHC's trees are the purest.")
    for name, table in tables.items():
        verdict(report, name, table)
    draw(tables, options.out / "bhc_table1.png")
    report.save()


if __name__ == "__main__":
    main()
