"""Kurihara & Welling (2009), Figure 5: the evaluations and the time that kd-trees and conga lines save.

The paper reports ratios of run times. Here there are ratios of evaluations, which are the same on any machine, and of CPU times
of the package's programs. For Bayesian k-means (BKM; MME with counts), an evaluation is the cost of a row or a box under a
cluster, in one pass at the true clusters, where n·K are needed without a tree; the time without a tree is that of a pass by
matrix products. For agglomerative clustering (ABC), it is the change of the free energy from merging a pair. The naive
algorithm scans all pairs before each merge; an algorithm that stores the matrix of pairs, whose memory grows as n², needs
(n − 1)². The paper's boxes go down to 1,000 rows, the package's to 64. The paper does not give its centres, spreads and counts:
see `normal_clusters` and `counts`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import Report, Subset, arguments
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from resuming import Cells
from scipy.spatial.distance import pdist

import bnp_hier as bnp
from bnp_hier.deterministic.hard_assignment.assignment import DenseAssigner
from bnp_hier.deterministic.hard_assignment.free_energies import scores_from
from bnp_hier.deterministic.hard_assignment.kd_tree import KDTreeAssigner
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm

ALPHA = 2.0
"""The paper's φ0."""

ROWS, FEW_ROWS = (5_000, 10_000, 20_000, 40_000, 80_000), (1_000, 2_000, 8_000)

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


def cpu_time(call: Callable[[], Any], repeats: int) -> float:
    """Median CPU time of a call (s), after a first one that compiles; of fewer calls once they have taken a second in all."""
    times = list[float]()
    for k in range(repeats + 1):
        before = time.process_time()
        jax.block_until_ready(call())
        if k:
            times.append(time.process_time() - before)
        if sum(times) > 1.0:
            break
    return float(np.median(times))


def tree_factors(component: bnp.Component, X: np.ndarray, y: np.ndarray, repeats: int) -> list[float]:
    """Evaluations and CPU time of a pass without a kd-tree divided by those of a pass with it, at the clusters y.

    The other numbers are the CPU times (ms) of a pass without the tree, of one with it, and of building it.
    """
    with jax.enable_x64(True):
        k, step = int(y.max()) + 1, max(64, min(2048, 2**24 // X.shape[1] ** 2))
        parts = [
            cluster_statistics(component.suff_stats(X[at : at + step]), y[at : at + step], k) for at in range(0, len(X), step)
        ]
        stats = functools.reduce(functools.partial(jax.tree.map, np.add), parts)
        sizes = np.bincount(y, minlength=k).astype(float)
        scores = scores_from(component, stats, sizes, Prior(ALPHA), "finite")
        before = time.process_time()
        tree = KDTreeAssigner(component, X)
        built = time.process_time() - before
        dense = DenseAssigner(component, X)
        times = [cpu_time(functools.partial(assigner, scores), repeats) for assigner in (dense, tree)]
    evaluations = len(X) / (tree.visited_nodes + tree.touched_rows)
    return [evaluations, times[0] / times[1], 1000 * times[0], 1000 * times[1], 1000 * built]


def kmeans_factors(rng: np.random.Generator, repeats: int, n: int = 20_000, d: int = 2, tau: float = 3.0) -> list[float]:
    X, y = normal_clusters(rng, n, d, 5, tau)
    return tree_factors(bnp.NormalInverseWishart.from_data(X, rule="me", learn=False), X, y, repeats)


def multinomial_factors(rng: np.random.Generator, repeats: int, n: int = 10_000, d: int = 8) -> list[float]:
    X, y = counts(rng, n, d)
    return tree_factors(bnp.DirichletMultinomial(np.ones(d)), X, y, repeats)


def agglomerative_factors(rng: np.random.Generator, repeats: int, n: int) -> list[float]:
    """Naive evaluations divided by those of conga lines (all, after the first merge) and of the other engine (all).

    The other numbers are the evaluations of conga lines divided by those with a stored matrix of pairs, the CPU time of conga
    lines divided by that of the other engine, and both times (ms).
    """
    X, _ = normal_clusters(rng, n, 2, 10, 3.0)
    component = bnp.NormalInverseWishart.from_data(X, rule="agglomerative", learn=False)
    model = functools.partial(dpm, component=component, concentration=ALPHA)
    engines = [
        bnp.AgglomerativeBayesianClustering(model, "finite", engine=engine, progress_bar=False)
        for engine in ("conga_line", "row_best")
    ]
    times = [cpu_time(functools.partial(_fitted, engine, X), repeats) for engine in engines]
    conga, row_best = engines
    assert (conga.dendrogram_.children == row_best.dendrogram_.children).all()
    naive, first = (n - 1) * n * (n + 1) / 6, n * (n - 1) / 2
    after = (naive - first) / (conga.evaluations_ - first)
    stored = conga.evaluations_ / (n - 1) ** 2
    factors = [naive / conga.evaluations_, after, naive / row_best.evaluations_, stored]
    return [*factors, times[0] / times[1], 1000 * times[0], 1000 * times[1]]


def _fitted(estimator: bnp.AgglomerativeBayesianClustering, X: np.ndarray) -> np.ndarray:
    return np.asarray(estimator.fit(X).free_energies_)


EXPERIMENTS = {function.__name__: function for function in (kmeans_factors, agglomerative_factors, multinomial_factors)}


def one_factor(experiment: str, name: str, value: float, repetition: int, seed: int, repeats: int) -> list[float]:
    """All numbers of one experiment on one data set."""
    return EXPERIMENTS[experiment](np.random.default_rng([seed, repetition]), repeats, **{name: value})


def line(factors: Factors, curve: int = 0) -> np.ndarray:
    """Mean factor at each value."""
    return np.array([table[:, curve].mean() for table in factors.values()])


def verdicts(report: Report, by_n: Factors, by_d: Factors, by_tau: Factors, abc: Factors, mme: dict[str, Factors]) -> None:
    """Report the paper's statements about its figure, and whether the means here agree."""

    def rises(factors: Factors, curve: int = 0) -> bool:
        return bool((np.diff(line(factors, curve)) > 0).all())

    most, widest = max(by_n), max(by_d)
    for unit, curve in (("evaluations", 0), ("CPU time", 1)):
        means, columns, taus, multinomial = line(by_n, curve), line(by_d, curve), line(by_tau, curve), line(mme["n"], curve)
        report.verdict(
            f"BKM, {unit}: the factor rises with n", rises(by_n, curve), f"{means[-1]:.2f} at n = {most} (paper: 67 at 80000)"
        )
        report.verdict(f"BKM, {unit}: rises with tau", bool(taus[-1] > taus[0]), f"from {taus[0]:.2f} to {taus[-1]:.2f}")
        report.verdict(
            f"BKM, {unit}: falls with d", bool(columns[-1] < columns[0]), f"from {columns[0]:.2f} to {columns[-1]:.2f}"
        )
        report.verdict(
            f"BKM, {unit}: still above 1 in many columns",
            bool(columns[-1] > 1.1),
            f"{columns[-1]:.2f} at d = {widest} (paper: 3.6 at 256)",
        )
        report.verdict(
            f"MME, {unit}: above 1, but below BKM",
            bool((multinomial > 1).all() and (multinomial < means).all()),
            f"{multinomial[-1]:.2f} at n = {most}, {line(mme['d'], curve)[-1]:.2f} at d = {max(mme['d'])}",
        )
    pairs = line(abc)
    report.verdict("ABC, evaluations: the factor rises with n", rises(abc), f"{pairs[-1]:.1f} at n = {max(abc)}")
    report.verdict(
        "ABC: only slightly faster than the naive algorithm, owing to overhead (taken as: below 3 at the smallest n)",
        bool(pairs[0] < 3),
        f"{pairs[0]:.1f} times fewer evaluations at n = {min(abc)}; against the stored matrix of pairs, conga lines make "
        f"{line(abc, 3)[-1]:.1f} times as many at n = {max(abc)}, in {line(abc, 4)[-1]:.1f} times the CPU time of 'row_best'",
    )


def draw(panels: dict[str, tuple[str, Factors]], path: Path) -> None:
    """Plot one panel per experiment: mean factor ± standard deviation."""
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    grid = figure.subplots(2, 3).ravel()
    for axes, (title, (name, factors)) in zip(grid, panels.items(), strict=True):
        curves = {"evaluations": 0, "CPU time": 1}
        if "ABC" in title:
            curves = {"conga lines": 0, "after the first merge": 1, "row best": 2}
        values = np.array(list(factors))
        for k, (label, curve) in enumerate(curves.items()):
            spreads = [table[:, curve].std() for table in factors.values()]
            axes.errorbar(values, line(factors, curve), spreads, marker="oxs"[k], ms=5, capsize=2, label=label)
        axes.axhline(1.0, color="0.7", lw=0.8, zorder=0)
        axes.set(xscale="linear" if name == "tau" else "log", yscale="log", title=title.split(",")[0])
        lowest = min(0.8, 0.8 * min(line(factors, curve).min() for curve in curves.values()))
        axes.set_ylim(lowest, 1.4 * max(axes.get_ylim()[1], 10.0))
        axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_xlabel({"n": "rows", "d": "columns", "tau": "τ, least separation of two clusters"}[name])
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, loc="upper left" if name == "n" else "best", frameon=False)
    for axes in grid[::3]:
        axes.set_ylabel("without ÷ with the structure")
    figure.savefig(path, dpi=90)


def report_block(report: Report, title: str, name: str, factors: Factors) -> None:
    """The table of one panel: mean ± standard deviation over data sets."""
    report(f"\n{title.split(',')[0]}, {name} varied")
    if "ABC" in title:
        titles = ("conga lines", "after the first", "row best", "evals/(n-1)²", "time/row best")
        report(" " * 8 + "".join(f"{text:>17}" for text in titles) + f"{'ms':>9}{'ms':>9}")
        shown = 5
    else:
        report(f"{'':>8}{'evaluations':>17}{'CPU time':>17}{'dense ms':>9}{'tree ms':>9}{'built ms':>9}")
        shown = 2
    for value, table in factors.items():
        texts = [f"{mean:.2f} ± {spread:.2f}" for mean, spread in zip(table.mean(0)[:shown], table.std(0), strict=False)]
        times = "".join(f"{mean:>9.1f}" for mean in table.mean(0)[shown:])
        report(f"{value:>8}" + "".join(f"{text:>17}" for text in texts) + times)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repetitions", type=int, default=3, help="data sets per point")
    parser.add_argument("--repeats", type=int, help="timed passes per data set; 3, or 7 with --full")
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    full = options.full
    repeats = options.repeats or (7 if full else 3)
    experiments: dict[str, tuple[str, str, Sequence[float]]] = {
        "BKM + kd-tree": ("kmeans_factors", "n", ROWS if full else FEW_ROWS),
        "BKM + kd-tree, n fixed": ("kmeans_factors", "d", (2, 4, 8, 16, 32, 64, 128, 256) if full else (2, 4, 8)),
        "BKM + kd-tree, n, d fixed": ("kmeans_factors", "tau", (0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0) if full else (0.5, 3.0)),
        "ABC + conga lines": ("agglomerative_factors", "n", (50, 100, 200, 400, 800, 1_600) if full else (50, 100, 200)),
        "MME + kd-tree": (
            "multinomial_factors",
            "n",
            ROWS if full else FEW_ROWS,
        ),
        "MME + kd-tree, n fixed": ("multinomial_factors", "d", (2, 4, 8, 16, 32) if full else (2, 8)),
    }
    report = Report(options.out, "me_figure5")
    report("ME Figure 5: evaluations and CPU time without a fast data structure, divided by those with it (the paper: times)")
    report(f"{options.repetitions} data sets for each point, seed {options.seed}; BKM: n = 20000, d = 2, tau = 3, K = 5;")
    report("ABC: d = 2, tau = 3, K = 10; MME: n = 10000, d = 8, K = 5; unless varied. Mean ± standard deviation.")
    report(f"CPU time: of the package's programs, compiled, median of {repeats} passes (ABC: fits); dense: matrix products")
    found: dict[str, tuple[str, Factors]] = {}
    total = options.repetitions * sum(len(values) for *_, values in experiments.values())
    with Cells(options.out, report.name, __file__, total) as cells:
        for title, (experiment, name, values) in experiments.items():
            factors = {
                value: np.array(
                    [cells(one_factor, experiment, name, value, k, options.seed, repeats) for k in range(options.repetitions)]
                )
                for value in values
            }
            found[title] = name, factors
            report_block(report, title, name, factors)
    report("\nThe paper's claims, in evaluations and in CPU time of compiled programs:")
    by_n, by_d, by_tau, abc, mme_by_n, mme_by_d = (factors for _, factors in found.values())
    verdicts(report, by_n, by_d, by_tau, abc, {"n": mme_by_n, "d": mme_by_d})
    draw(found, options.out / "me_figure5.png")
    report.save()


if __name__ == "__main__":
    main()
