"""Kurihara & Welling (2009), Table 1: the number of clusters that six methods find in mixtures of ten Gaussians.

The paper says about its data only that no two centroids are closer than tau × the mean of the two stds and that the rows of
each cluster are multiplied by a random matrix. Here a std is the root mean square distance of a cluster's rows from its
centroid: with the std of one column instead, isotropic methods find one cluster in many columns, where the paper's find ten.
The cube of the centroids has the same diagonal in any number of columns, such that the competitors come near the paper's
numbers for small tau.

`--full` runs all 27 cells with ten data sets each: about one CPU hour. Finished fits are stored, so that a run that was
stopped goes on; with `--hours`, it stops by itself and reports the data sets on which every method has been run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial, wraps
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from baselines import GaussiansBIC, KMeansBIC, VariationalGaussians, g_means, split_merge
from common import Report, Subset, arguments, decided
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpyro.infer import MCMC
from resuming import Cells
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.models import dpm

CLUSTERS = 10
DIAGONAL = 10.0
"""Diagonal of the cube of the centroids unless tau requires a larger one, in mean stds of one column."""

CONCENTRATION = 2.0
"""φ0 of Eq. 21; also the Dirichlet process's concentration for the sampler, as in Eq. 23."""

MOST_SAMPLED = 32
"""Maximum number of clusters of the sampler."""

METHODS = ("G-means", "k-means+BIC", "MoG+BIC", "BKM", "VBMG", "CGibbs")
DEFAULT = "BKM default"
"""The package's own search, from several starts, in the model of BKM; not in the paper, and run only with two columns."""

TAUS, SIZES, DIMENSIONS = (0.1, 0.5, 2.0), (100, 1000, 5000), (2, 32, 64)

Cell = tuple[float, int, int]
"""tau, N, D."""

# mean ± std over ten runs in the paper, in the order of `METHODS`; cells in the order of its rows
_PAPER = """
4.50±2.42 2.00±1.41 3.80±2.04 2.00±0.82 4.30±2.16 6.32±1.39
7.40±3.86 1.00±0.00 1.70±0.48 2.50±4.74 1.00±0.00 2.60±0.84
13.10±5.47 1.00±0.00 1.00±0.00 13.30±1.06 1.30±0.48 1.70±0.48
32.10±12.33 3.50±1.90 7.80±1.32 7.40±1.96 8.80±0.79 15.11±1.84
39.10±10.07 1.10±0.32 5.60±1.65 7.70±1.16 9.90±0.32 7.20±1.14
49.40±22.51 1.00±0.00 3.60±1.43 5.70±4.79 2.90±0.74 6.50±0.97
108.90±15.07 3.80±1.62 9.20±2.70 8.10±4.72 9.90±0.32 15.23±2.11
130.90±46.17 2.70±1.49 3.90±2.64 10.00±0.00 9.80±0.42 7.90±0.57
104.30±51.93 1.30±0.67 2.10±0.32 10.00±0.00 10.00±0.00 7.20±1.55
4.80±2.49 2.50±1.72 5.20±2.35 4.10±3.60 4.40±2.12 6.73±1.48
7.40±4.06 1.00±0.00 2.00±0.00 14.80±5.35 1.00±0.00 3.07±0.92
10.60±6.55 1.00±0.00 1.00±0.00 13.80±0.92 1.40±0.52 1.70±0.48
21.30±4.55 4.20±1.87 9.20±1.32 4.30±3.65 9.40±0.84 14.52±2.45
25.60±10.31 1.20±0.42 9.20±0.63 9.20±2.10 9.90±0.31 7.20±0.79
37.90±9.72 1.60±1.08 3.80±0.84 11.40±6.15 3.80±1.03 6.10±1.37
82.00±14.91 4.20±1.32 9.10±2.76 8.10±3.57 9.80±0.42 12.00±1.76
74.00±32.40 2.60±0.97 8.90±1.45 9.90±0.32 10.00±0.00 7.40±1.26
74.30±31.72 2.50±1.72 9.60±0.52 9.70±0.48 9.80±0.42 7.20±1.69
6.80±3.26 2.10±1.45 6.50±1.96 8.30±1.89 7.20±2.15 5.96±0.61
11.90±1.20 3.30±2.21 2.40±0.00 10.70±5.17 1.00±0.00 4.75±0.97
9.90±3.87 2.20±2.20 1.00±0.00 13.80±0.63 1.00±0.00 2.96±0.68
18.30±5.29 4.30±1.57 9.50±1.65 9.60±1.26 9.80±0.42 8.26±1.63
13.90±2.08 6.80±2.94 7.40±1.90 9.40±1.26 9.00±0.94 7.50±0.53
13.50±3.66 8.60±2.41 3.00±0.67 12.60±3.31 4.00±1.03 6.40±0.97
48.70±14.22 5.30±2.50 9.60±1.58 10.00±0.00 9.40±1.43 9.33±1.12
15.00±5.79 9.50±1.84 7.90±1.10 10.00±0.00 10.00±0.00 7.50±0.85
11.60±2.07 9.90±2.12 8.40±0.97 10.00±0.00 10.00±0.00 6.60±1.58
"""
PAPER: dict[Cell, np.ndarray] = {
    cell: np.array([text.split("±") for text in line.split()], float)
    for cell, line in zip(product(TAUS, SIZES, DIMENSIONS), _PAPER.split("\n")[1:-1], strict=True)
}


SETUP = """\
Data: centroids uniform in a cube of diagonal 10, 5% larger at each try until none are closer than tau × (mean of their
stds); std, the root mean square distance from the centroid, uniform in [0.5, 1.5] × √D; rows multiplied by a matrix
of normal entries with variance 1/D; labels uniform. Methods: the search from one cluster by splits and merges is
shared by the second to fifth; BKM: that alone, K Dirichlet(2) weights, prior of Eq. 21; VBMG: the same model; CGibbs:
its Dirichlet process with concentration 2, no split-merge moves, mean over the second half of the sweeps.
mean ± std (standard error); ari: mean adjusted Rand index with the true clusters, which the paper does not report.
"""


def separated_gaussians(rng: np.random.Generator, tau: float, n: int, d: int) -> Subset:
    """Rows of ten Gaussians with full covariances, whose centroids are all at least tau × the mean std apart."""
    std = np.sqrt(d) * rng.uniform(0.5, 1.5, CLUSTERS)
    one, other = np.triu_indices(CLUSTERS, 1)
    least, side = tau * (std[one] + std[other]) / 2.0, DIAGONAL / np.sqrt(d)
    centroids = rng.uniform(0.0, side, (CLUSTERS, d))
    while (np.linalg.norm(centroids[one] - centroids[other], axis=1) < least).any():
        side *= 1.05
        centroids = rng.uniform(0.0, side, (CLUSTERS, d))
    y = rng.integers(CLUSTERS, size=n)
    factors = (std / d)[:, None, None] * rng.normal(size=(CLUSTERS, d, d))  # so that E[squared distance] = std²
    noise = rng.normal(size=(n, d))
    X = centroids[y]
    for k in range(CLUSTERS):
        X[y == k] += noise[y == k] @ factors[k].T
    return X, y


def paper_model(X: np.ndarray, seed: int) -> Callable[[np.ndarray], None]:
    """The paper's model and prior (Eqs. 15 and 21), without the prior over labels, which is the estimator's `label_prior`."""
    return partial(
        dpm,
        component=bnp.NormalInverseWishart.from_data(X, rule="me", random_state=seed, learn=False),
        concentration=CONCENTRATION,
    )


def bayesian_kmeans(X: np.ndarray, seed: int) -> bnp.BayesianKMeans:
    """The paper's algorithm: K labels with Dirichlet weights, splits and merges from one cluster, no other search."""
    return bnp.BayesianKMeans(paper_model(X, seed), label_prior="finite", n_init=1, polish=False, random_state=seed).fit(X)


def default_search(X: np.ndarray, seed: int) -> bnp.BayesianKMeans:
    """The package's own search in the same model."""
    return bnp.BayesianKMeans(paper_model(X, seed), label_prior="finite", random_state=seed).fit(X)


def collapsed_gibbs(X: np.ndarray, seed: int, sweeps: int) -> tuple[float, np.ndarray]:
    """Mean number of clusters over the second half of the sweeps, single-item moves only, and the last labels."""
    kernel = bnp.PartitionGibbs(paper_model(X, seed), split_merge=0, max_clusters=MOST_SAMPLED)
    with jax.enable_x64(True):
        run = MCMC(kernel, num_warmup=sweeps // 2, num_samples=sweeps - sweeps // 2, progress_bar=False)
        run.run(jax.random.key(seed), X, extra_fields=("n_clusters",))
        numbers, last = np.asarray(run.get_extra_fields()["n_clusters"]), np.asarray(run.get_samples()["z"][-1])
    return float(numbers.mean()), last


def labels_of(method: str, X: np.ndarray, seed: int) -> np.ndarray:
    """Clusters that a method finds, except for the sampler."""
    if method == "G-means":
        return g_means(X)
    if method == "k-means+BIC":
        return split_merge(KMeansBIC(X)).labels
    if method == "MoG+BIC":
        return split_merge(GaussiansBIC(X)).labels
    if method == "VBMG":
        component = bnp.NormalInverseWishart.from_data(X, rule="me", random_state=seed, learn=False)
        return split_merge(VariationalGaussians(X, component, CONCENTRATION)).labels
    search = {"BKM": bayesian_kmeans, DEFAULT: default_search}[method]
    return np.asarray(search(X, seed).labels_)


def one_fit(method: str, cell: Cell, repetition: int, seed: int, sweeps: int) -> list[float]:
    """Number of clusters that a method finds in one data set, adjusted Rand index with the true ones, and CPU time (s)."""
    tau, n, d = cell
    X, y = separated_gaussians(np.random.default_rng([seed, round(1000 * tau), n, d, repetition]), tau, n, d)
    before = time.process_time()
    if method == "CGibbs":
        number, labels = collapsed_gibbs(X, repetition, sweeps)
    else:
        labels = labels_of(method, X, repetition)
        number = float(len(np.unique(labels)))
    return [number, float(adjusted_rand_score(y, labels)), time.process_time() - before]


class Plan(NamedTuple):
    """What is run: the cells, the data sets in each, the seed of all, and the sweeps of the sampler."""

    cells: list[Cell]
    repetitions: int
    seed: int
    sweeps: int

    def jobs(self) -> list[tuple[Cell, int]]:
        """Every data set: first two of each cell, then the others, small ones first."""
        all_jobs = product(self.cells, range(self.repetitions))
        return sorted(all_jobs, key=lambda job: (job[1] >= 2, job[0][1] * job[0][2], job[0], job[1]))


def methods_of(cell: Cell) -> tuple[str, ...]:
    """All methods; the package's own search only with two columns."""
    return (*METHODS, DEFAULT) if cell[2] == 2 else METHODS


class OutOfTimeError(Exception):
    """The time that the run was given is over."""


Results = dict[Cell, dict[str, np.ndarray]]
"""For each cell and method, (data sets, 3): the results of `one_fit`."""


def run_all(plan: Plan, out: Path, hours: float) -> Results:
    """Results on the data sets on which all methods were run, in cells with at least two of them."""
    found: dict[Cell, list[dict[str, list[float]]]] = {cell: [] for cell in plan.cells}
    end = time.monotonic() + 3600 * hours
    jobs = plan.jobs()

    @wraps(one_fit)
    def in_time(*arguments: Any) -> list[float]:
        if time.monotonic() > end:
            raise OutOfTimeError  # through `Cells`, so that the finished fits are kept
        return one_fit(*arguments)

    try:
        with Cells(out, "me_table1", __file__, sum(len(methods_of(cell)) for cell, _ in jobs)) as cells:
            for cell, repetition in jobs:
                one = {}
                for method in methods_of(cell):
                    one[method] = cells(in_time, method, cell, repetition, plan.seed, plan.sweeps * (method == "CGibbs"))
                found[cell].append(one)
    except OutOfTimeError:
        pass
    return {
        cell: {name: np.array([one[name] for one in sets]) for name in sets[0]} for cell, sets in found.items() if len(sets) > 1
    }


def row(report: Report, title: str, cells: list[str]) -> None:
    """One line of the table."""
    report(f"{title:<24}" + "".join(f"{cell:>23}" for cell in cells))


def spread(values: np.ndarray) -> str:
    """Mean ± standard deviation over repetitions, as in the paper, and the standard error of the mean."""
    std = values.std(ddof=1)
    return f"{values.mean():.2f} ± {std:.2f} ({std / np.sqrt(len(values)):.2f})"


def report_cell(report: Report, cell: Cell, results: dict[str, np.ndarray]) -> None:
    """The lines of one cell."""
    tau, n, d = cell
    row(report, f"{tau:<4g}{n:>6}{d:>4}{len(results['BKM']):>6}", [spread(results[name][:, 0]) for name in METHODS])
    if cell in PAPER:
        row(report, "  paper", [f"{mean:.2f} ± {std:.2f}       " for mean, std in PAPER[cell]])
    row(report, "  ari", [f"{results[name][:, 1].mean():.2f}              " for name in METHODS])
    if DEFAULT in results:
        number, agreement, _ = results[DEFAULT].T
        report(f"  {DEFAULT} (starts 1, 2, 4, 8, 16; polish): {spread(number)}, ari {agreement.mean():.2f}")


def paired(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Mean difference and its standard error over the data sets that both methods were run on."""
    gap = left - right
    return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))


def paper_errors(cells: list[Cell]) -> dict[str, float]:
    """Mean over cells of the distance of the paper's mean from ten."""
    means = np.array([PAPER[cell][:, 0] for cell in cells])
    return dict(zip(METHODS, np.abs(means - CLUSTERS).mean(0), strict=True))


def verdicts(report: Report, numbers: dict[Cell, dict[str, np.ndarray]]) -> None:
    """Report the paper's claims, tested on |K − 10| paired by data set."""
    cells = list(numbers)
    error = {name: np.concatenate([abs(numbers[cell][name] - CLUSTERS) for cell in cells]) for name in METHODS}
    theirs = paper_errors(cells) if set(cells) <= set(PAPER) else None
    report("\nMean distance of K from ten over all data sets (paper: of its means, over the same cells)")
    row(report, "", list(METHODS))
    row(report, "", [f"{error[name].mean():.2f}" for name in METHODS])
    if theirs:
        row(report, "  paper", [f"{theirs[name]:.2f}" for name in METHODS])

    full, isotropic = METHODS[2:], METHODS[:2]
    nearest = min(isotropic, key=lambda name: error[name].mean())
    report(f"\nThe paper's claims, tested on |K - 10| paired by data set ({len(error['BKM'])} of them)")
    for name in full:
        gap, deviation = paired(error[name], error[nearest])
        report.verdict(
            f"{name} is nearer to ten than G-means and k-means+BIC (here the nearer is {nearest})",
            decided(gap, deviation, -1),
            f"{name} - {nearest} = {gap:+.2f} ± {deviation:.2f}",
        )
    for one, other in (("BKM", "VBMG"), ("BKM", "MoG+BIC"), ("VBMG", "MoG+BIC")):
        gap, deviation = paired(error[one], error[other])
        report.verdict(
            f"no difference above 2 standard errors between {one} and {other}",
            abs(gap) <= 2 * deviation,
            f"{one} - {other} = {gap:+.2f} ± {deviation:.2f}",
        )
    best = min(("BKM", "VBMG", "MoG+BIC"), key=lambda name: error[name].mean())
    worse = 0
    for cell in cells:
        gap, deviation = paired(abs(numbers[cell]["CGibbs"] - CLUSTERS), abs(numbers[cell][best] - CLUSTERS))
        worse += gap > 2 * deviation
    report.verdict(
        "the sampler, which has no splits and merges, is sometimes worse than these three",
        worse > 0,
        f"in {worse} of {len(cells)} cells it is further from ten, by more than 2 standard errors, than {best}, the nearest "
        "of the three over all cells",
    )
    large = [cell for cell in cells if cell[1] >= 5000 and cell[2] >= 32]
    if large:
        right = np.concatenate([numbers[cell]["BKM"] == CLUSTERS for cell in large])
        report.verdict(
            "BKM finds ten from 5000 rows in 32 and 64 columns (means from 9.7 to 10.0; taken as: in nine of ten data sets)",
            right.mean() >= 0.9,
            f"in {right.sum()} of {len(right)} data sets",
        )


def draw(numbers: dict[Cell, dict[str, np.ndarray]], path: Path) -> None:
    """Plot the mean number of clusters ± std of each method, with N from left to right; hollow markers are the paper's."""
    taus = sorted({tau for tau, _, _ in numbers})
    sizes, dims = sorted({n for _, n, _ in numbers}), sorted({d for _, _, d in numbers})
    figure = Figure(figsize=(3.6 * len(dims) + 0.8, 2.3 * len(taus) + 0.8), layout="constrained")
    panels = figure.subplots(len(taus), len(dims), squeeze=False, sharex=True, sharey=True)
    place = np.arange(len(METHODS))
    colors = [f"C{i}" for i in range(len(sizes))]
    for (i, tau), (j, d) in product(enumerate(taus), enumerate(dims)):
        axes = panels[i, j]
        axes.axhline(CLUSTERS, color="0.8", lw=1, zorder=0)
        for k, n in enumerate(sizes):
            if (tau, n, d) not in numbers:
                continue
            at = place + 0.26 * (k - (len(sizes) - 1) / 2)
            values = [numbers[tau, n, d][name] for name in METHODS]
            mean, std = np.mean(values, axis=1), np.std(values, axis=1, ddof=1)
            below = np.minimum(std, mean - 0.7)  # so that the bar stays on the logarithmic axis
            axes.errorbar(at, mean, [below, std], fmt="o", ms=4, capsize=2, lw=1, color=colors[k])
            if (tau, n, d) in PAPER:
                axes.plot(at + 0.09, PAPER[tau, n, d][:, 0], "o", ms=4, mfc="none", color=colors[k], alpha=0.7)
        axes.set_yscale("log")
        axes.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axes.minorticks_off()
        axes.set_title(f"τ = {tau:g}, D = {d}", fontsize=10)
        axes.set_xticks(place, METHODS, rotation=40, ha="right", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("clusters found", fontsize=9)
    marks = [Line2D([], [], marker="o", ls="", color=color, label=f"N = {n}") for color, n in zip(colors, sizes, strict=True)]
    marks.append(Line2D([], [], marker="o", ls="", mfc="none", color="0.4", label="paper"))
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), frameon=False, fontsize=9)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repetitions", type=int, help="data sets per cell; 2, or 10 with --full")
    parser.add_argument("--sweeps", type=int, help="sweeps of the sampler; 40, or 60 with --full (not given in the paper)")
    parser.add_argument("--tau", type=float, nargs="+", help="only these separations")
    parser.add_argument("--n", type=int, nargs="+", help="only these numbers of rows")
    parser.add_argument("--d", type=int, nargs="+", help="only these numbers of columns")
    parser.add_argument("--hours", type=float, default=np.inf, help="stop after this time; the next run goes on from there")
    options = parser.parse_args()
    repetitions = options.repetitions or (10 if options.full else 2)
    sweeps = options.sweeps or (60 if options.full else 40)
    if repetitions < 2 or sweeps < 2:
        parser.error("--repetitions and --sweeps must be at least 2")
    taus = options.tau or (TAUS if options.full else (0.5, 2.0))
    sizes = options.n or SIZES[: 3 if options.full else 1]
    dims = options.d or DIMENSIONS[: 3 if options.full else 1]
    plan = Plan(list(product(taus, sizes, dims)), repetitions, options.seed, sweeps)

    report = Report(options.out, "me_table1")
    results = run_all(plan, options.out, options.hours)
    if not results:
        parser.error("no cell has two data sets yet: run again with more --hours")
    report("ME Table 1: number of clusters found in mixtures of ten Gaussians, mean ± std over data sets")
    counts = [len(found["BKM"]) for found in results.values()]
    least = f"{max(counts)} at most, at least {min(counts)}" if len(set(counts)) > 1 else str(counts[0])
    report(
        f"{least} data sets in each cell (the paper: 10) of {len(results)} cells (the paper: 27), seed {options.seed}, "
        f"{sweeps} sweeps of the sampler"
    )
    if sum(counts) < len(plan.cells) * repetitions:
        report(f"stopped after {sum(counts)} of {len(plan.cells) * repetitions} data sets")
    report(SETUP)
    row(report, "tau    N     D  sets", list(METHODS))
    for cell, found in results.items():
        report_cell(report, cell, found)
    largest = max(results, key=lambda cell: (cell[1] * cell[2], cell))
    report(f"\nMean CPU time (s) of a fit at tau = {largest[0]:g}, N = {largest[1]}, D = {largest[2]}, compiling included")
    row(report, "", list(METHODS))
    row(report, "", [f"{results[largest][name][:, 2].mean():.1f}" for name in METHODS])
    numbers = {cell: {name: values[:, 0] for name, values in found.items()} for cell, found in results.items()}
    verdicts(report, numbers)
    draw(numbers, options.out / "me_table1.png")
    report.save()


if __name__ == "__main__":
    main()
