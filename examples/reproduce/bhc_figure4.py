"""Heller & Ghahramani (2005), Figure 4: BHC's evidence bound against the purity of its tree as hyperparameters vary.

The paper's 50 points are iterations of an optimisation; elsewhere it says that a line search over one hyperparameter was used
for Gaussian components. It names neither the data set nor the settings. Here the spread (Gaussian data) or the strength
(binary data) of the component's prior takes 50 values on a line with concentration 1, or 10 values on a grid with five
concentrations, and the paper's greedy tree is built at each setting, on several subsets of four data sets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from common import (
    BITS,
    DIFFERS,
    NORMAL,
    PARTLY,
    REPRODUCES,
    Report,
    Subset,
    arguments,
    digits,
    mnist_digits,
    spambase,
    synthetic,
)
from matplotlib.figure import Figure
from scipy.stats import spearmanr

import bnp_hier as bnp
from bnp_hier.models import dpm

PAPER = 0.888
THREE = (0, 2, 4)
LIMITS = {NORMAL: ("within", 0.02, 1.0), BITS: ("strength", 0.2, 20.0)}
"""The hyperparameter that varies, and its limits."""


def bounds_and_purities(X: np.ndarray, y: np.ndarray, kind: str, settings: list[tuple[float, float]]) -> np.ndarray:
    """Bound and purity of the greedy tree at each concentration and spread or strength, (settings, 2)."""
    found = []
    for alpha, other in settings:
        component: bnp.Component = (
            bnp.NormalInverseWishart.from_data(X, within=other, learn=False)
            if kind == NORMAL
            else bnp.BetaBernoulli.from_data(X, strength=other, learn=False)
        )
        fit = bnp.BHC(partial(dpm, component=component, concentration=alpha), refine=None, progress_bar=False).fit(X)
        found.append((fit.log_evidence_bound_, fit.dendrogram_.purity(y, pick="leaf")))
    return np.array(found)


def line_and_grid(kind: str, count: int) -> dict[str, list[tuple[float, float]]]:
    """Settings on a line with concentration 1, and about as many on a grid."""
    _, low, high = LIMITS[kind]
    alphas = np.geomspace(0.1, 10.0, max(count // 10, 2))
    grid = product(alphas, np.geomspace(low, high, count // len(alphas)))
    return {"line": [(1.0, other) for other in np.geomspace(low, high, count)], "grid": list(grid)}


def correlations(table: np.ndarray) -> tuple[float, float]:
    """Linear and rank correlation of bound and purity; 0 if the purity is constant."""
    bounds, purity = table.T
    if np.ptp(purity) == 0:
        return 0.0, 0.0
    return float(np.corrcoef(bounds, purity)[0, 1]), float(spearmanr(bounds, purity).statistic)


def report_set(
    report: Report, axes: Any, name: str, kind: str, make: Callable[..., Subset], sizes: tuple[int, int, int]
) -> None:
    """Report the correlations on subsets of one data set, and draw the first; sizes: settings, subsets, seed."""
    count, subsets, seed = sizes
    label, low, high = LIMITS[kind]
    settings = line_and_grid(kind, count)
    data = [make(np.random.default_rng([seed, k])) for k in range(subsets)]
    tables = {way: np.array([bounds_and_purities(X, y, kind, chosen) for X, y in data]) for way, chosen in settings.items()}
    report(f"\n{name}: n = {len(data[0][1])}, {subsets} subsets, {label} in [{low:g}, {high:g}]")
    for way, table in tables.items():
        linear, ranks = np.array([correlations(one) for one in table]).T
        alphas = "alpha = 1" if way == "line" else "alpha in [0.1, 10]"
        report(f"  {way}: {len(settings[way])} settings, {alphas}; correlation {linear.mean():.3f}")
        report(f"    (from {linear.min():.3f} to {linear.max():.3f} over subsets; of ranks {ranks.mean():.3f})")
        best = np.take_along_axis(table[..., 1], table[..., 0].argmax(1)[:, None], 1)[:, 0]
        report(f"    purity {best.mean():.3f} at the highest bound, {table[..., 1].mean():.3f} over all settings,")
        report(f"    {table[..., 1].max(1).mean():.3f} at the purest setting (means over subsets)")
        outcome = REPRODUCES if linear.mean() > 0.7 else PARTLY if linear.mean() > 0.3 else DIFFERS
        report.verdict(
            f"{name}, {way}: bound and purity are strongly correlated (taken as: mean correlation above 0.7; partly: 0.3)",
            outcome,
            f"correlation {linear.mean():.3f} (paper: {PAPER})",
        )
        bounds, purity = table[0].T
        values = [np.log10(other) for _, other in settings[way]]
        marks = axes.scatter(bounds, purity, c=values, s=22, marker="os"[way == "line"], cmap="viridis", label=way)
    axes.legend(fontsize=8, frameon=False)
    axes.set(title=name, xlabel="evidence bound (nats)", ylabel="dendrogram purity")
    axes.spines[["top", "right"]].set_visible(False)
    axes.figure.colorbar(marks, ax=axes, label=f"log10 {label}")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--settings", type=int, help="approximate number of hyperparameter settings; 10, or 50 with --full")
    parser.add_argument("--subsets", type=int, help="subsets of each data set; 1, or 5 with --full")
    options = parser.parse_args()
    settings = options.settings or (50 if options.full else 10)
    size = 20 if options.full else 8
    sets: dict[str, tuple[str, Callable[..., Subset]]] = {"3digits": (BITS, partial(digits, classes=THREE, size=size))}
    if options.full:
        sets |= {"3mnist": (BITS, partial(mnist_digits, classes=THREE)), "spambase": (BITS, spambase)}
        sets |= {"synthetic": (NORMAL, synthetic)}

    report = Report(options.out, "bhc_figure4")
    report("BHC Figure 4: evidence bound (nats) against dendrogram purity over hyperparameter settings, greedy trees")
    figure = Figure(figsize=(4.2 * len(sets), 4.0), layout="constrained")
    panels = figure.subplots(1, len(sets), squeeze=False)[0]
    sizes = settings, options.subsets or (5 if options.full else 1), options.seed
    for axes, (name, (kind, make)) in zip(panels, sets.items(), strict=True):
        report_set(report, axes, name, kind, make, sizes)
    figure.savefig(options.out / "bhc_figure4.png", dpi=70)
    report.save()


if __name__ == "__main__":
    main()
