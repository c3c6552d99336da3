"""Raykov, Boukouvalas & Little (2014), Figure 1: sizes of the clusters found on CRP mixtures of normals, and the true sizes.

The same experiment as Table 1. The sizes are read from its `map_dp_sizes.csv` in the output folder if that file belongs
to the same samples; otherwise the experiment is run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from common import Report, decided
from map_dp_table1 import (
    DP_MEANS,
    GIBBS,
    GREEDY_VB,
    MAP_DP,
    METHODS,
    ORDERS,
    RANDOM_VB,
    experiment,
    own_arguments,
    save_sizes,
    setting,
    sizes_of,
)
from matplotlib.figure import Figure
from resuming import Cells

ACTUAL = "actual"
PANELS = (GIBBS, MAP_DP, ORDERS, DP_MEANS, GREEDY_VB, RANDOM_VB)
RANKS = (1, 2, 3, 5, 8, 12)
SMALL, LEAST = 0.02, 1.5e-3
"""Largest share of the rows of a small cluster, and the smallest share that is plotted."""


def read_sizes(path: Path, title: str) -> dict[str, np.ndarray] | None:
    """Shares of the rows, (samples, ranks), largest first and padded with 0; None if the file belongs to other samples."""
    if not path.exists():
        return None
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    if first != f"# {title}; {', '.join(METHODS)}":
        return None
    found: dict[str, list[list[int]]] = {}
    for line in lines:
        _, name, sizes = line.split(",")
        found.setdefault(name, []).append([int(size) for size in sizes.split()])
    width = max(len(sizes) for rows in found.values() for sizes in rows)
    padded = {name: np.array([sizes + [0] * (width - len(sizes)) for sizes in rows]) for name, rows in found.items()}
    return {name: sizes / sizes.sum(1, keepdims=True) for name, sizes in padded.items()}


def small_clusters(shares: np.ndarray) -> np.ndarray:
    """Number of small clusters in each sample."""
    return ((shares > 0) & (shares <= SMALL)).sum(1).astype(float)


def smaller_half(shares: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Share of the rows outside the ⌈K/2⌉ largest clusters, where K is the true number of clusters."""
    half = -(-(actual > 0).sum(1) // 2)
    return np.where(np.arange(shares.shape[1]) >= half[:, None], shares, 0.0).sum(1)


def verdict(report: Report, claim: str, gap: np.ndarray, expected: int) -> None:
    """Report whether the mean of a paired difference has the sign that the paper reports."""
    mean, error = gap.mean(), gap.std(ddof=1) / np.sqrt(len(gap))
    report.verdict(claim, decided(mean, error, expected), f"{mean:+.3f} ± {error:.3f}")


def draw(shares: dict[str, np.ndarray], path: Path) -> None:
    """Plot the median share of the clusters by rank, with quartiles; lines end where under half the samples have a cluster."""
    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
    last = int((np.median(shares[ACTUAL], 0) > 0).sum()) + 4
    for axis, name in zip(axes, PANELS, strict=True):
        for which, color in ((ACTUAL, "0.35"), (name, "#cc6677")):
            low, middle, high = (np.where(q > 0, q, np.nan) for q in np.percentile(shares[which], (25, 50, 75), axis=0))
            rank = np.arange(1, len(middle) + 1)
            axis.fill_between(rank, np.where(np.isnan(low), LEAST, low), high, color=color, alpha=0.18, lw=0)
            axis.plot(rank, middle, "o-" if which == name else "s--", ms=3.5, lw=1.3, color=color, label=which)
        axis.set_title(name, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set(yscale="log", xlim=(0.5, last + 0.5), ylim=(LEAST, 1.0))
    axes[0].set_xticks(np.arange(1, last + 1, 3))
    axes[0].legend(axes[0].get_lines(), ["actual", "found"], fontsize=8)
    figure.supxlabel("cluster, by decreasing size", fontsize=9)
    figure.supylabel("share of the rows (median, quartiles)", fontsize=9)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = own_arguments(__doc__)
    options = parser.parse_args()
    sizes = sizes_of(options)
    if sizes.samples < 2:
        parser.error("--samples must be at least 2, because the standard errors are computed over samples")
    report = Report(options.out, "map_dp_figure1")
    title, table = setting(options.seed, sizes), options.out / "map_dp_sizes.csv"
    shares = read_sizes(table, title)
    if shares is None:
        with Cells(options.out, report.name, __file__, sizes.samples) as cells:
            save_sizes(experiment(cells, options.seed, sizes), table, title)
        shares = read_sizes(table, title)
    assert shares is not None
    actual = shares[ACTUAL]

    report("MAP-DP Figure 1: median share of the rows in the clusters, by decreasing size, true and found")
    report(f"{title}; methods as in map_dp_table1\n")
    report(f"{'':<12}{'cluster 1':>10}" + "".join(f"{rank:>8}" for rank in RANKS[1:]) + f"{'clusters':>10}{'small':>8}")
    for name, found in shares.items():
        middle = np.pad(np.median(found, 0), (0, max(RANKS)))
        cells = [f"{middle[rank - 1]:.3f}" for rank in RANKS]
        count, small = np.median((found > 0).sum(1)), small_clusters(found).mean()
        report(f"{name:<12}{cells[0]:>10}" + "".join(f"{cell:>8}" for cell in cells[1:]) + f"{count:>10.0f}{small:>8.2f}")
    report(f"clusters: median number of clusters; small: mean number of clusters with at most {SMALL:.0%} of the rows\n")

    report("The paper's claims (differences over samples: mean ± standard error):")
    small = {name: small_clusters(found) for name, found in shares.items()}
    for name in (MAP_DP, ORDERS, GREEDY_VB, RANDOM_VB):
        verdict(report, f"{name} misses small clusters (found minus true number)", small[name] - small[ACTUAL], -1)
    verdict(report, "Gibbs-MAP misses some too", small[GIBBS] - small[ACTUAL], -1)
    for name in (MAP_DP, ORDERS, GREEDY_VB, RANDOM_VB):
        verdict(report, f"Gibbs-MAP finds more of them than {name}", small[GIBBS] - small[name], 1)
    first = shares[DP_MEANS][:, 0] - actual[:, 0]
    rest = smaller_half(shares[DP_MEANS], actual) - smaller_half(actual, actual)
    verdict(report, "DP-means makes the largest cluster too small (share)", first, -1)
    verdict(report, "DP-means makes the smaller half of the clusters too large (share)", rest, 1)
    draw(shares, options.out / "map_dp_figure1.png")
    report.save()


if __name__ == "__main__":
    main()
