"""Raykov, Boukouvalas & Little (2014), Table 1: agreement with the truth and iterations on CRP mixtures of normals.

The paper gives neither the size of its samples, nor the concentration, nor the base measure, nor how the convergence of the
Gibbs sampler was assessed. Here: 400 rows in the plane, N0 = 3, and a base measure whose means are so far apart that MAP-DP
agrees with the truth about as well as in the paper. Every Bayesian method is run at the values that generated the data.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import DIFFERS, OPEN, REPRODUCES, Report, arguments, decided
from matplotlib.figure import Figure
from numpyro.diagnostics import split_gelman_rubin
from resuming import Cells
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture

import bnp_hier as bnp
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm
from bnp_hier.partitions.joint_density import log_joint

CONCENTRATION = 3.0
BASE = bnp.NormalInverseWishart(mean=np.zeros(2), kappa=0.04, nu=4.0, scale=np.eye(2))
MODEL = partial(dpm, component=BASE, concentration=CONCENTRATION)

MOST_CLUSTERS = 32
"""Capacity of the Gibbs sampler; 400 rows at N0 = 3 form 15 ± 3 clusters."""

CHAINS, CHECKS, SETTLED = 2, 30, 1.1
"""Number of Gibbs chains, number of convergence checks, and the R-hat below which the chains have converged."""

GIBBS, MAP_DP, SINGLE, ORDERS, DP_MEANS, GREEDY_VB, RANDOM_VB = METHODS = (
    "Gibbs-MAP",
    "MAP-DP",
    "MAP-DP K=1",
    "MAP-DP x10",
    "DP-means",
    "VB greedy",
    "VB random",
)

# mean and standard deviation over 100 samples in the paper: NMI, iterations
PAPER = {
    GIBBS: ((0.81, 0.1), (1395, 651)),
    MAP_DP: ((0.82, 0.1), (10, 3)),
    DP_MEANS: ((0.68, 0.1), (18, 7)),
    RANDOM_VB: ((0.75, 0.1), (45, 18)),
}

WITHIN = 0.03
"""Largest difference in mean NMI at which two methods count as similar."""


class Sizes(NamedTuple):
    """Size of the experiment: number of samples, rows per sample, and Gibbs sweeps per chain."""

    samples: int
    n: int
    sweeps: int


class Sample(NamedTuple):
    """Data (n, 2), true labels (n,), and a seed."""

    X: np.ndarray
    z: np.ndarray
    seed: int


class Fit(NamedTuple):
    """Labels (n,), iterations, and whether the method converged or, for DP-means, reached K."""

    labels: np.ndarray
    iterations: int
    reached: bool = True


@partial(jax.jit, static_argnames="n")
def _crp_mixture(key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    key_labels, key_parameters, key_rows = jax.random.split(key, 3)
    z = bnp.ChineseRestaurantProcess(CONCENTRATION, n).sample(key_labels)
    parameters = BASE.prior().sample(key_parameters, (n,))
    return BASE.likelihood(parameters[z]).sample(key_rows), z


def crp_mixture(seed: int, index: int, n: int) -> Sample:
    """Draw labels from the Chinese restaurant process, a mean and a covariance per cluster, then the rows."""
    with jax.enable_x64(True):
        X, z = _crp_mixture(jax.random.fold_in(jax.random.key(seed), index), n)
    return Sample(np.asarray(X), np.asarray(z), index)


@partial(jax.jit, static_argnames="sweeps")
def _chain(key: jax.Array, X: jax.Array, sweeps: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Labels of the most probable draw of one chain, and its log joint and number of clusters, (sweeps,) each."""
    kernel = bnp.PartitionGibbs(MODEL, split_merge=0, max_clusters=min(MOST_CLUSTERS, len(X)))
    state = kernel.init(key, 0, None, (X,), {})

    def step(carry: tuple, _: None) -> tuple[tuple, tuple]:
        state, best, labels = carry
        state = kernel.sample(state, (X,), {})
        labels = jnp.where(state.log_joint > best, state.z["z"], labels)
        return (state, jnp.maximum(best, state.log_joint), labels), (state.log_joint, state.n_clusters)

    (_, _, labels), (joint, clusters) = jax.lax.scan(step, (state, state.log_joint, state.z["z"]), None, sweeps)
    return labels, joint, clusters


def settled_after(traces: list[np.ndarray]) -> tuple[int, bool]:
    """Sweeps after which the R-hat of every trace, (chains, sweeps), stays low, and whether it is low at the end.

    R-hat is computed over the second half of the sweeps so far, at evenly spaced checks.
    """
    sweeps = traces[0].shape[1]
    checks = np.linspace(0, sweeps, CHECKS + 1).astype(int)[1:]
    low = [all(float(split_gelman_rubin(t[:, c // 2 : c])) < SETTLED for t in traces) for c in checks if c >= 8]
    checks = checks[-len(low) :]
    last_high = max((i for i, fine in enumerate(low) if not fine), default=-1)
    return int(checks[min(last_high + 1, len(low) - 1)]), low[-1]


def gibbs(sample: Sample, sweeps: int) -> Fit:
    """Most probable draw of several chains that start at draws from the prior over partitions."""
    keys = jax.random.split(jax.random.key(sample.seed), CHAINS)
    with jax.enable_x64(True):
        chains = [_chain(key, jnp.asarray(sample.X), sweeps) for key in keys]
    labels, joint, clusters = map(np.asarray, zip(*chains, strict=True))
    found = labels[joint.max(1).argmax()]
    # a trace that never moves has no R-hat
    moving = [trace.astype(float) for trace in (joint, clusters) if trace.std() > 0]
    return Fit(found, *settled_after(moving))


def map_dp(sample: Sample, **options: object) -> Fit:
    """MAP-DP; `n_iter_` includes the sweep that seats the rows and the last one, in which nothing moves."""
    fit = bnp.MAPDP(MODEL, random_state=sample.seed, **options).fit(sample.X)
    return Fit(fit.labels_, fit.n_iter_)


def dp_means(sample: Sample) -> Fit:
    """DP-means with the penalty that gives the true number of clusters, or the nearest number found."""
    clusters = int(sample.z.max()) + 1
    fit = bnp.DPMeans(n_clusters=clusters).fit(sample.X)
    return Fit(fit.labels_, fit.n_iter_, fit.n_clusters_ == clusters)


def greedy_vb(sample: Sample) -> Fit:
    """Truncated stick-breaking from one greedy pass over the rows; the truncation is rounded up to share compilations."""
    truncation = -(-10 * (int(sample.z.max()) + 1) // 64) * 64
    fit = bnp.VariationalDP(MODEL, truncation=truncation, n_init=1, max_iter=1000, tol=1e-3).fit(sample.X)
    return Fit(fit.labels_, fit.n_iter_, fit.converged_)


def random_vb(sample: Sample) -> Fit:
    """The same model and truncation, fitted by scikit-learn from random responsibilities."""
    fit = BayesianGaussianMixture(
        n_components=min(10 * (int(sample.z.max()) + 1), len(sample.X)),
        weight_concentration_prior=CONCENTRATION,
        mean_precision_prior=BASE.kappa,
        mean_prior=BASE.mean,
        degrees_of_freedom_prior=BASE.nu,
        covariance_prior=BASE.scale,
        init_params="random",
        max_iter=1000,
        random_state=sample.seed,
    ).fit(sample.X)
    return Fit(fit.predict(sample.X), fit.n_iter_, fit.converged_)


def methods(sweeps: int) -> dict[str, Callable[[Sample], Fit]]:
    """The rows of the table."""
    return {
        GIBBS: partial(gibbs, sweeps=sweeps),
        MAP_DP: partial(map_dp, n_init=1, merge=False),
        SINGLE: partial(map_dp, n_init=1, merge=False, init="single"),
        ORDERS: map_dp,
        DP_MEANS: dp_means,
        GREEDY_VB: greedy_vb,
        RANDOM_VB: random_vb,
    }


def joint_of(sample: Sample, labels: np.ndarray) -> float:
    """Log p(X, partition) at the values that generated the data (nats)."""
    with jax.enable_x64(True):
        rows = BASE.suff_stats(sample.X)
        return float(log_joint(BASE, rows, jnp.asarray(labels), Prior(CONCENTRATION), len(labels)))


class Results(NamedTuple):
    """What every method found on every sample: arrays (methods, samples), and sizes of clusters.

    - **nmi** - agreement with the truth, normalised by the mean of both entropies.
    - **iterations**, **reached** - as in `Fit`.
    - **gain** - log joint of the partition minus that of the true one (nats).
    - **sizes** - for the truth (first) and every method, for every sample: sizes of the clusters, largest first.
    """

    nmi: np.ndarray
    iterations: np.ndarray
    reached: np.ndarray
    gain: np.ndarray
    sizes: list[list[np.ndarray]]


def experiment(cells: Cells, seed: int, sizes: Sizes) -> Results:
    """Run every method on every sample."""
    scores, found = [], []
    for index in range(sizes.samples):
        one = cells(one_sample, seed, index, *sizes[1:])
        scores.append(one["scores"])
        found.append([np.array(counts) for counts in one["sizes"]])
    return Results(*np.array(scores).transpose(2, 1, 0), [list(column) for column in zip(*found, strict=True)])


def one_sample(seed: int, index: int, n: int, sweeps: int) -> dict[str, list]:
    """Scores of every method, and sizes of the true clusters (first) and of those that each method found, largest first."""
    sample = crp_mixture(seed, index, n)
    truth = joint_of(sample, sample.z)
    with warnings.catch_warnings():
        # shown in the report instead: penalties that miss K, one-cluster starts, runs that stop early
        warnings.simplefilter("ignore")
        fits = [method(sample) for method in methods(sweeps).values()]
    partitions = [sample.z, *(fit.labels for fit in fits)]
    sizes = [np.sort(np.unique(labels, return_counts=True)[1])[::-1] for labels in partitions]
    return {"scores": [_scores(sample, fit, truth) for fit in fits], "sizes": sizes}


def _scores(sample: Sample, fit: Fit, truth: float) -> tuple[float, ...]:
    agreement = normalized_mutual_info_score(sample.z, fit.labels)
    return agreement, fit.iterations, fit.reached, joint_of(sample, fit.labels) - truth


def sizes_of(options: argparse.Namespace) -> Sizes:
    """The paper's 100 samples, or a few small ones."""
    sizes = Sizes(100, 400, 1200) if options.full else Sizes(3, 100, 150)
    return sizes._replace(samples=options.samples or sizes.samples)


def own_arguments(description: str | None) -> argparse.ArgumentParser:
    """Options of both scripts of this experiment."""
    parser = arguments(description)
    parser.add_argument("--samples", type=int, help="number of CRP samples, at least 2; 3, or 100 with --full")
    return parser


def setting(seed: int, sizes: Sizes) -> str:
    """One line that describes the run."""
    return f"{sizes.samples} CRP samples of {sizes.n} rows in the plane, N0 = {CONCENTRATION:g}, seed {seed}"


def save_sizes(results: Results, path: Path, title: str) -> None:
    """Sizes of all clusters, for the figure: sample, method, sizes."""
    lines = [f"# {title}; {', '.join(METHODS)}"]
    for name, found in zip(("actual", *METHODS), results.sizes, strict=True):
        lines += [f"{index},{name},{' '.join(map(str, sizes))}" for index, sizes in enumerate(found)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def paired(values: np.ndarray, one: str, other: str) -> tuple[float, float]:
    """Mean difference of two methods over the samples, and its standard error."""
    gap = values[METHODS.index(one)] - values[METHODS.index(other)]
    return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))


def similar(report: Report, values: np.ndarray, one: str, other: str) -> None:
    """Report whether two methods differ by less than `WITHIN`."""
    mean, error = paired(values, one, other)
    outcome = REPRODUCES if abs(mean) + 2 * error < WITHIN else DIFFERS if abs(mean) - 2 * error > WITHIN else OPEN
    claim = f"{one} and {other} have similar NMI (within {WITHIN})"
    report.verdict(claim, outcome, f"{one} - {other} = {mean:+.3f} ± {error:.3f}")


def better(report: Report, values: np.ndarray, one: str, other: str) -> None:
    """Report whether the first method has the larger mean."""
    mean, error = paired(values, one, other)
    report.verdict(f"{one} has higher NMI than {other}", decided(mean, error), f"{one} - {other} = {mean:+.3f} ± {error:.3f}")


def fewest(report: Report, iterations: np.ndarray) -> None:
    """Report whether MAP-DP needs the fewest iterations, and how many times more the others need."""
    mean = dict(zip(METHODS, iterations.mean(1), strict=True))
    others = (GIBBS, DP_MEANS, GREEDY_VB, RANDOM_VB)
    gaps = [paired(iterations, other, MAP_DP) for other in others]
    ahead, behind = all(gap > 2 * error for gap, error in gaps), any(gap < -2 * error for gap, error in gaps)
    ratios = ", ".join(f"{other} {mean[other] / mean[MAP_DP]:.1f}" for other in others)
    report.verdict(
        "MAP-DP needs the fewest iterations",
        REPRODUCES if ahead else DIFFERS if behind else OPEN,
        f"times as many: {ratios} (paper: Gibbs 140, DP-means 1.8, variational 4.5)",
    )


def draw(results: Results, path: Path) -> None:
    """Plot NMI and iterations of every method on every sample, with their means; hollow markers are the paper's means."""
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    place = np.arange(len(METHODS))
    jitter = np.random.default_rng(0).uniform(-0.22, 0.22, results.nmi.shape)
    for axis, values, name, column in zip(axes, results[:2], ("NMI with the truth", "iterations"), (0, 1), strict=True):
        axis.plot((place[:, None] + jitter).T, values.T, ".", ms=3, color="0.7", zorder=1)
        axis.errorbar(place, values.mean(1), values.std(1, ddof=1), fmt="o", ms=5, capsize=3, color="#332288", label="here")
        theirs = [METHODS.index(method) for method in PAPER]
        quoted = np.array([PAPER[method][column] for method in PAPER]).T
        axis.errorbar(np.array(theirs) + 0.3, *quoted, fmt="o", ms=5, capsize=3, mfc="none", color="#cc6677", label="paper")
        axis.set_xticks(place, METHODS, rotation=35, ha="right", fontsize=8)
        axis.set_ylabel(f"{name} (mean ± sd)", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_yscale("log")
    axes[0].legend(fontsize=8, loc="lower left")
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = own_arguments(__doc__)
    options = parser.parse_args()
    sizes = sizes_of(options)
    if sizes.samples < 2:
        parser.error("--samples must be at least 2, because the standard errors are computed over samples")
    report = Report(options.out, "map_dp_table1")
    title = setting(options.seed, sizes)
    report("MAP-DP Table 1: agreement with the truth (NMI) and iterations, mean (standard deviation) over samples")
    report(f"{title}; {'paper sizes' if options.full else 'small sizes'}")
    report(f"base measure: covariance ~ IW({BASE.nu:g}, I), mean ~ N(0, covariance / {BASE.kappa:g}); given to every method")
    report(f"Gibbs-MAP: most probable draw of {CHAINS} chains, {sizes.sweeps} sweeps each, no split-merge; iterations: sweeps")
    report(f"  after which R-hat (log joint, number of clusters; second half of the sweeps so far) stays below {SETTLED}")
    report("MAP-DP: rows are added one by one; K=1: all start in one cluster, as printed in the paper; x10: best of ten")
    report("  orders, with merges (iterations: of the best order); DP-means: penalty halved to the true number of clusters;")
    report("  VB: 10 x true number of components, from a greedy pass (VariationalDP) or random weights (scikit-learn)")
    report("joint: log p(X, partition) minus that of the true partition (nats), mean\n")
    with Cells(options.out, report.name, __file__, sizes.samples) as cells:
        results = experiment(cells, options.seed, sizes)

    report(f"{'':<12}{'NMI':>14}{'paper':>13}{'iterations':>15}{'paper':>13}{'clusters':>10}{'joint':>8}")
    counted = [np.mean([len(sizes) for sizes in found]) for found in results.sizes]
    for k, name in enumerate(METHODS):
        quoted = PAPER.get(name)
        theirs = [f"{quoted[0][0]} ({quoted[0][1]})", f"{quoted[1][0]} ({quoted[1][1]})"] if quoted else ["-", "-"]
        nmi, iterations = results.nmi[k], results.iterations[k]
        report(
            f"{name:<12}{nmi.mean():>7.3f} ({nmi.std(ddof=1):.3f}){theirs[0]:>13}"
            f"{f'{iterations.mean():.1f} ({iterations.std(ddof=1):.1f})':>15}{theirs[1]:>13}"
            f"{counted[k + 1]:>10.1f}{results.gain[k].mean():>8.1f}"
        )
    report(f"{'actual':<12}{'':>55}{counted[0]:>10.1f}{0:>8.1f}\n")
    missed = (1 - results.reached).sum(1).astype(int)
    stuck = sum(len(found) == 1 for found in results.sizes[1 + METHODS.index(SINGLE)])
    report(f"Gibbs not converged within {sizes.sweeps} sweeps (counted as {sizes.sweeps}): {missed[0]} of {sizes.samples}")
    report(f"DP-means found no penalty for the true number of clusters: {missed[METHODS.index(DP_MEANS)]} of {sizes.samples}")
    report(f"MAP-DP from one cluster stayed at one cluster: {stuck} of {sizes.samples}\n")

    report("The paper's claims (MAP-DP's own NMI is near the paper's by the choice of the base measure):")
    similar(report, results.nmi, MAP_DP, GIBBS)
    for other in (DP_MEANS, RANDOM_VB, GREEDY_VB):
        better(report, results.nmi, MAP_DP, other)
    fewest(report, results.iterations)
    save_sizes(results, options.out / "map_dp_sizes.csv", title)
    draw(results, options.out / "map_dp_table1.png")
    report.save()


if __name__ == "__main__":
    main()
