"""Kurihara & Welling (2009), Figure 5: the evaluations that kd-trees and conga lines save.

The paper reports ratios of run times; here they are ratios of evaluations, which are the same on any machine. For Bayesian
k-means (BKM; MME with counts), an evaluation is the cost of a row or a box under a cluster, in one pass at the true clusters,
where n·K are needed without a tree. For agglomerative clustering (ABC), it is the change of the free energy from merging a
pair. The naive algorithm scans all pairs before each merge; an algorithm that stores the matrix of pairs, whose memory grows as
n², needs (n − 1)². The paper's boxes go down to 1,000 rows, the package's to 64. The paper does not give its centres, spreads
and counts: see `normal_clusters` and `counts`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import Report, Subset, arguments
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from scipy.spatial.distance import pdist

import bnp_hier as bnp
from bnp_hier.deterministic.hard_assignment.free_energies import scores_from
from bnp_hier.deterministic.hard_assignment.kd_tree import KDTreeAssigner
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.models import dpm
from bnp_hier.partitions.seating import Prior

ALPHA = 2.0
"""The paper's φ0."""

Factors = dict[Any, np.ndarray]
"""Factors, (repetitions, curves), for each value of the argument that varies."""


def normal_clusters(rng: np.random.Generator, n: int, d: int, k: int, tau: float) -> Subset:
    """Clusters with random covariance factors, whose centres are at least τ times their mean spread apart.

    The centres are uniform in a cube of side 2τ√k, whatever the number of columns.
    """
    spread = rng.uniform(0.5, 1.5, k)
    nearest = tau * pdist(spread[:, None], lambda a, b: a[0] + b[0]) / 2
    while (pdist(centers := rng.uniform(0.0, 2 * tau * np.sqrt(k), (k, d))) < nearest).any():
        pass
    factors = rng.normal(size=(k, d, d)) / np.sqrt(d)
    y = rng.integers(k, size=n)
    noise = spread[y][:, None] * rng.normal(size=(n, d))
    X = centers[y]
    for label in range(k):
        X[y == label] += noise[y == label] @ factors[label].T
    return X, y


def counts(rng: np.random.Generator, n: int, d: int, k: int = 5, total: int = 50) -> Subset:
    """Rows of `total` counts, from clusters with uniformly distributed probabilities."""
    y = rng.integers(k, size=n)
    return rng.multinomial(total, rng.dirichlet(np.ones(d), k)[y]).astype(float), y


def tree_factor(component: bnp.Component, X: np.ndarray, y: np.ndarray) -> list[float]:
    """Evaluations of a pass without a kd-tree divided by those of a pass with it, at the clusters y."""
    with jax.enable_x64(True):
        k = int(y.max()) + 1
        parts = [
            cluster_statistics(component.suff_stats(X[at : at + 2048]), y[at : at + 2048], k) for at in range(0, len(X), 2048)
        ]
        stats = functools.reduce(functools.partial(jax.tree.map, np.add), parts)
        sizes = np.bincount(y, minlength=k).astype(float)
        tree = KDTreeAssigner(component, X)
        tree(scores_from(component, stats, sizes, Prior(ALPHA), "finite"))
    return [len(X) / (tree.visited_nodes + tree.touched_rows)]


def kmeans_factor(rng: np.random.Generator, n: int = 20_000, d: int = 2, tau: float = 3.0) -> list[float]:
    X, y = normal_clusters(rng, n, d, 5, tau)
    return tree_factor(bnp.NormalInverseWishart.from_data(X, rule="me", learn=False), X, y)


def multinomial_factor(rng: np.random.Generator, n: int = 10_000, d: int = 8) -> list[float]:
    X, y = counts(rng, n, d)
    return tree_factor(bnp.DirichletMultinomial(np.ones(d)), X, y)


def agglomerative_factors(rng: np.random.Generator, n: int) -> list[float]:
    """Naive evaluations divided by those of conga lines (all, after the first merge) and of the other engine (all).

    The last number is the evaluations of conga lines divided by those with a stored matrix of pairs.
    """
    X, _ = normal_clusters(rng, n, 2, 10, 3.0)
    component = bnp.NormalInverseWishart.from_data(X, rule="agglomerative", learn=False)
    model = functools.partial(dpm, component=component, concentration=ALPHA)
    conga, row_best = (
        bnp.AgglomerativeBayesianClustering(model, "finite", engine=engine, progress_bar=False).fit(X)
        for engine in ("conga_line", "row_best")
    )
    assert (conga.dendrogram_.children == row_best.dendrogram_.children).all()
    naive, first = (n - 1) * n * (n + 1) / 6, n * (n - 1) / 2
    after = (naive - first) / (conga.evaluations_ - first)
    stored = conga.evaluations_ / (n - 1) ** 2
    return [naive / conga.evaluations_, after, naive / row_best.evaluations_, stored]


def measured(factor: Callable[..., list[float]], name: str, values: Sequence[Any], repetitions: int, seed: int) -> Factors:
    """Factors at each value of one argument, on several data sets."""
    return {
        value: np.array([factor(np.random.default_rng([seed, k]), **{name: value}) for k in range(repetitions)])
        for value in values
    }


def line(factors: Factors, curve: int = 0) -> np.ndarray:
    """Mean factor at each value."""
    return np.array([table[:, curve].mean() for table in factors.values()])


def outcome(holds: bool) -> str:
    return "reproduces" if holds else "DOES NOT REPRODUCE"


def verdicts(by_n: Factors, by_d: Factors, by_tau: Factors, abc: Factors, mme_by_n: Factors, mme_by_d: Factors) -> list[str]:
    """The paper's statements about its figure, and whether the means here agree."""

    def rises(factors: Factors) -> bool:
        return bool((np.diff(line(factors)) > 0).all())

    means, columns, pairs, mme = line(by_n), line(by_d), line(abc), line(mme_by_n)
    most, widest, taus = max(by_n), max(by_d), line(by_tau)
    return [
        f"BKM: rises with n: {outcome(rises(by_n))}; {means[-1]:.0f} at n = {most} (paper: 67 at 80000)",
        f"BKM: rises with tau: {outcome(taus[-1] > taus[0])}; from {taus[0]:.1f} to {taus[-1]:.1f}",
        f"BKM: falls with d: {outcome(columns[-1] < columns[0])}; from {columns[0]:.1f} to {columns[-1]:.2f}",
        f"BKM: still above 1 in many columns: {outcome(columns[-1] > 1.1)}; {columns[-1]:.2f} at d = {widest}"
        " (paper: 3.6 at 256)",
        f"ABC: rises with n: {outcome(rises(abc))}; {pairs[-1]:.1f} at n = {max(abc)}",
        "ABC: only slightly faster, owing to overhead: not decided, overhead is not counted; but conga lines make"
        f" {line(abc, 3)[-1]:.1f} times as many evaluations as a stored matrix of pairs",
        f"MME: above 1, but below BKM: {outcome(bool((mme > 1).all() and (mme < means).all()))}; {mme[-1]:.2f} at n = {most},"
        f" {line(mme_by_d)[-1]:.2f} at d = {max(mme_by_d)}",
    ]


def draw(panels: dict[str, tuple[str, Factors]], path: Path) -> None:
    """Plot one panel per experiment: mean factor ± standard deviation."""
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    grid = figure.subplots(2, 3).ravel()
    for axes, (title, (name, factors)) in zip(grid, panels.items(), strict=True):
        curves = {"conga lines": 0, "after the first merge": 1, "row best": 2} if "ABC" in title else {None: 0}
        values = np.array(list(factors))
        for k, (label, curve) in enumerate(curves.items()):
            spreads = [table[:, curve].std() for table in factors.values()]
            axes.errorbar(values, line(factors, curve), spreads, marker="oxs"[k], ms=5, capsize=2, label=label)
        axes.axhline(1.0, color="0.7", lw=0.8, zorder=0)
        axes.set(xscale="linear" if name == "tau" else "log", yscale="log", title=title.split(",")[0])
        axes.set_ylim(0.8, 1.4 * max(axes.get_ylim()[1], 10.0))
        axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_xlabel({"n": "rows", "d": "columns", "tau": "τ, least separation of two clusters"}[name])
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves) > 1:
            axes.legend(fontsize=8, loc="upper left", frameon=False)
    for axes in grid[::3]:
        axes.set_ylabel("evaluations spared, factor")
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repetitions", type=int, default=3, help="data sets per point")
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    full = options.full
    experiments = {
        "BKM + kd-tree": (kmeans_factor, "n", (5_000, 10_000, 20_000, 40_000, 80_000) if full else (1_000, 2_000, 8_000)),
        "BKM + kd-tree, n fixed": (kmeans_factor, "d", (2, 4, 8, 16, 32, 64) if full else (2, 4, 8)),
        "BKM + kd-tree, n, d fixed": (kmeans_factor, "tau", (0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0) if full else (0.5, 3.0)),
        "ABC + conga lines": (agglomerative_factors, "n", (50, 100, 200, 400, 800, 1_600) if full else (50, 100, 200)),
        "MME + kd-tree": (multinomial_factor, "n", (5_000, 10_000, 20_000, 40_000, 80_000) if full else (1_000, 2_000, 8_000)),
        "MME + kd-tree, n fixed": (multinomial_factor, "d", (2, 4, 8, 16, 32) if full else (2, 8)),
    }
    report = Report(options.out, "me_figure5")
    report("ME Figure 5: evaluations without a fast data structure, divided by those with it (the paper: ratios of run times)")
    report(f"{options.repetitions} data sets for each point, seed {options.seed}; BKM: n = 20000, d = 2, tau = 3, K = 5;")
    report("ABC: d = 2, tau = 3, K = 10; MME: n = 10000, d = 8, K = 5; unless varied. Mean ± standard deviation.")
    found: dict[str, tuple[str, Factors]] = {}
    for title, (factor, name, values) in experiments.items():
        factors = measured(factor, name, values, options.repetitions, options.seed)
        found[title] = name, factors
        report(f"\n{title.split(',')[0]}, {name} varied")
        if "ABC" in title:
            report(f"{'':>8}{'conga lines':>16}{'after the first':>18}{'row best':>14}   conga lines' evaluations / (n - 1)²")
        for value, table in factors.items():
            cells = [f"{mean:.2f} ± {spread:.2f}" for mean, spread in zip(table.mean(0), table.std(0), strict=True)]
            report(f"{value:>8}" + "".join(f"{cell:>17}" for cell in cells))
    report("\nThe paper's claims, in evaluations:")
    for words in verdicts(*(factors for _, factors in found.values())):
        report("  " + words)
    draw(found, options.out / "me_figure5.png")
    report.save()


if __name__ == "__main__":
    main()
