"""Kurihara & Welling (2009), Figures 3 and 4: Bayesian k-means in the plane, and the agglomerative tree of some mails.

Figure 3 uses data as in Table 1, with its two larger numbers of rows. Figure 4 uses 25 spam mails and 25 other mails,
drawn at random from spambase, with each attribute reduced to zero or not.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import matplotlib
import numpy as np
import scipy.cluster.hierarchy
from common import LINKAGES, Report, arguments, decided, linkage, spambase
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from me_table1 import CLUSTERS, TAUS, bayesian_kmeans, default_search, separated_gaussians

import bnp_hier as bnp
from bnp_hier.models import dpm

PAPER_CLUSTERS = {0.1: 8, 0.5: 9, 2.0: 10}
PAPER_PURITY, PAPER_OFFSET = 0.816, 11_000
OMEGA, PHI = 0.1, 1.0
"""Hyperparameters of the bits and of the weights (appendix C)."""


def draw_clusters(axes: Axes, X: np.ndarray, labels: np.ndarray, title: str) -> None:
    """Plot the rows in the colours of their clusters, with an ellipse of two standard deviations per cluster."""
    colors = matplotlib.colormaps["tab20"](np.arange(labels.max() + 1) % 20)
    axes.scatter(X[:, 0], X[:, 1], s=3, lw=0, alpha=0.6, c=colors[labels], rasterized=True)
    for k, color in enumerate(colors):
        rows = X[labels == k]
        if len(rows) < 3:
            continue
        values, vectors = np.linalg.eigh(np.cov(rows.T))
        width, height = 4.0 * np.sqrt(np.maximum(values, 0.0))
        angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
        shape = {"width": width, "height": height, "angle": angle, "fill": False}
        axes.add_patch(Ellipse(rows.mean(0), **shape, color="white", lw=2.4))
        axes.add_patch(Ellipse(rows.mean(0), **shape, color=0.75 * color[:3], lw=1.2))
    low, high = np.quantile(X, [0.002, 0.998], axis=0)
    pad = 0.1 * (high - low)
    axes.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]), xticks=[], yticks=[])
    axes.set_title(title, fontsize=10)


def figure3(report: Report, out: Path, seed: int, sizes: tuple[int, ...], sets: int, default: bool) -> None:
    """Clusters of Bayesian k-means at three separations; the largest data set with the median number of clusters is drawn."""
    report(f"Figure 3: {sets} data sets of {CLUSTERS} Gaussians in the plane for each tau and N, which the paper does not give")
    report(
        "BKM: the paper's search; default: the package's (starts 1, 2, 4, 8, 16; polish) in the same model; free energy in nats"
    )
    figure = Figure(figsize=(10.5, 7.0), layout="constrained")
    panels = figure.subplots(2, len(TAUS))
    found: dict[float, list[int]] = {tau: [] for tau in TAUS}
    for (column, tau), n in product(enumerate(TAUS), sizes):
        data = [separated_gaussians(np.random.default_rng([seed, round(1000 * tau), n, 2, k]), tau, n, 2) for k in range(sets)]
        fits = [bayesian_kmeans(X, k) for k, (X, _) in enumerate(data)]
        numbers = np.array([fit.n_clusters_ for fit in fits])
        found[tau] += numbers.tolist()
        report(f"  tau = {tau:g}, N = {n}, BKM:     {' '.join(map(str, numbers))}; mean {numbers.mean():.1f}")
        if default:
            others = [default_search(X, k) for k, (X, _) in enumerate(data)]
            better = np.array([fit.n_clusters_ for fit in others])
            gain = np.array([fit.free_energy_ - other.free_energy_ for fit, other in zip(fits, others, strict=True)])
            report(f"  tau = {tau:g}, N = {n}, default: {' '.join(map(str, better))}; mean {better.mean():.1f}")
            report(f"    free energy lower by {np.median(gain):.1f} (median; {gain.min():.1f} to {gain.max():.1f})")
        if n == max(sizes):
            typical = int(np.argsort(numbers, kind="stable")[sets // 2])
            X, y = data[typical]
            draw_clusters(panels[0, column], X, y, f"τ = {tau:g}: drawn from {CLUSTERS}")
            draw_clusters(panels[1, column], X, fits[typical].labels_, f"τ = {tau:g}: BKM finds {numbers[typical]}")
    for tau, numbers in found.items():
        example = PAPER_CLUSTERS[tau]
        report.verdict(
            f"the number of clusters in the paper's example at tau = {tau:g}, {example}, is within the range of BKM's",
            min(numbers) <= example <= max(numbers),
            f"{min(numbers)} to {max(numbers)} in {len(numbers)} data sets, median {np.median(numbers):g}",
        )
    figure.savefig(out / "me_figure3.png", dpi=80)


def agglomerative(X: np.ndarray) -> bnp.AgglomerativeBayesianClustering:
    """The paper's model of bits (appendix C)."""
    d = X.shape[1]
    component = bnp.BetaBernoulli(a=np.full(d, OMEGA), b=np.full(d, OMEGA))
    model = partial(dpm, component=component, concentration=PHI)
    return bnp.AgglomerativeBayesianClustering(model, label_prior="finite", progress_bar=False).fit(X)


def linkage_by_energy(fit: bnp.AgglomerativeBayesianClustering) -> np.ndarray:
    """SciPy's linkage matrix with height −F, which is zero at single rows and never decreases towards the root."""
    children = fit.dendrogram_.children
    n = len(children) + 1
    height = np.concatenate([np.zeros(n), fit.free_energies_[0] - fit.free_energies_[1:]])
    for t, pair in enumerate(children):
        height[n + t] = max(height[n + t], *height[pair])
    return np.column_stack([children, height[n:], fit.dendrogram_.sizes[n:]]).astype(float)


def figure4(report: Report, out: Path, seed: int, subsets: int) -> None:
    """The tree of one subset, and the purity of this and other trees over several subsets."""
    fits, purity = [], {name: np.zeros(subsets) for name in ("ABC", *LINKAGES)}
    for k in range(subsets):
        X, y = spambase(np.random.default_rng([seed, k]), 25)
        fits.append((agglomerative(X), y))
        purity["ABC"][k] = fits[-1][0].dendrogram_.purity(y)
        for name in LINKAGES:
            purity[name][k] = linkage(X, name).purity(y)
    typical = int(np.argsort(purity["ABC"], kind="stable")[subsets // 2])
    fit, y = fits[typical]
    energies = fit.free_energies_
    report(f"\nFigure 4: agglomerative Bayesian clustering of 25 + 25 mails, {subsets} random subsets, product of Bernoullis")
    report(f"  omega0 = {OMEGA:g}, phi0 = {PHI:g} (appendix C); dendrogram purity, mean ± std over subsets:")
    for name, values in purity.items():
        report(f"    {name:<9}{values.mean():.3f} ± {values.std(ddof=1):.3f}, from {values.min():.3f} to {values.max():.3f}")
    report(f"  the paper's one example: {PAPER_PURITY}")
    report(
        f"  drawn: the subset of median purity, {purity['ABC'][typical]:.3f}, "
        f"{fit.n_clusters_} clusters at the least free energy"
    )
    report(f"  free energy (nats): single mails {energies[0]:.1f}, least {energies.min():.1f}, one cluster {energies[-1]:.1f}")
    lowest, highest = purity["ABC"].min(), purity["ABC"].max()
    report.verdict(
        f"the purity of the paper's example, {PAPER_PURITY}, is within the range of the subsets",
        bool(lowest <= PAPER_PURITY <= highest),
        f"{lowest:.3f} to {highest:.3f}; at least as pure as the example: {(purity['ABC'] >= PAPER_PURITY).sum()} of {subsets}",
    )
    best = max(LINKAGES[:3], key=lambda name: purity[name].mean())
    gap = purity["ABC"] - purity[best]
    error = gap.std(ddof=1) / np.sqrt(subsets)
    report.verdict(
        "ours, not the paper's: ABC purer than single, complete and average linkage on 50 mails",
        decided(gap.mean(), error),
        f"ABC - {best} = {gap.mean():+.3f} ± {error:.3f}",
    )
    report(f"  the paper adds {PAPER_OFFSET} to −F so that no height is negative; {energies[0]:.1f}, the free energy of single")
    report("  rows, is enough: 50 rows of 57 bits cannot cost 11000, so the paper used other attributes or units.")

    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    axes = figure.subplots()
    drawn = scipy.cluster.hierarchy.dendrogram(
        linkage_by_energy(fit),
        ax=axes,
        labels=["S" if spam else "N" for spam in y],
        color_threshold=0,
        above_threshold_color="0.3",
    )
    axes.set_xticklabels(drawn["ivl"], rotation=0, fontsize=9)
    for text in axes.get_xticklabels():
        text.set_color("C3" if text.get_text() == "S" else "C0")
    axes.axhline(energies[0] - energies.min(), color="C2", lw=1, ls="--", label="least free energy")
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    axes.set_ylim(0.0, 1.15 * (energies[0] - energies.min()))  # room for the legend
    axes.set_ylabel(f"{energies[0]:.0f} − free energy (nats)")
    axes.set_title(f"25 mails (N) and 25 spam mails (S): purity {purity['ABC'][typical]:.3f}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out / "me_figure4.png", dpi=80)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--figures", type=int, nargs="+", choices=(3, 4), default=(3, 4))
    options = parser.parse_args()
    report = Report(options.out, "me_figures3_4")
    report(f"ME Figures 3 and 4, seed {options.seed}, {'full' if options.full else 'small'} sizes\n")
    if 3 in options.figures:
        figure3(report, options.out, options.seed, *(((1000, 5000), 10, True) if options.full else ((300,), 2, False)))
    if 4 in options.figures:
        figure4(report, options.out, options.seed, 50 if options.full else 5)
    report.save()


if __name__ == "__main__":
    main()
