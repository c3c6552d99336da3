"""Shared code of the reproductions of Huang et al. (2021): chains, their capacity, competing methods and verdicts."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.cluster.hierarchy
from common import Report, arguments
from numpyro.infer import MCMC
from scipy.stats import t as student
from sklearn.cluster import KMeans
from stored_chains import run_stored

import bnp_hier as bnp
from bnp_hier.posterior.convergence import chain_diagnostics

MEASURES = ("purity", "NMI", "ARI", "F-measure")

SHOWN = ("log_joint", "n_nodes", "n_leaves", "n_components", "entropy", "largest_branch", "lca_depth")
"""Label-invariant quantities whose convergence is reported."""

PAPERS_MOVES: dict[str, Any] = {"split_merge": 0, "relabel": False, "sibling_split_merge": 0, "prune_regraft": 0}
"""Options of `BHMCGibbs` without the moves that the paper does not have."""


class Sizes(NamedTuple):
    """Number of chains, warm-up sweeps and further sweeps per chain, and thinning (one sweep in this many is kept)."""

    chains: int
    warmup: int
    draws: int
    thinning: int

    def __str__(self) -> str:
        return f"{self.chains} chains of {self.warmup} + {self.draws} sweeps, one in {self.thinning} kept"


class Run(NamedTuple):
    """Chains of one sampler.

    - **draws** - the draws after the warm-up.
    - **summaries** - label-invariant quantities of the draws, (chain, draw).
    - **trace** - log joint from the first sweep on, (chain, sweep).
    """

    draws: bnp.HierarchyDraws
    summaries: dict[str, np.ndarray]
    trace: np.ndarray

    def best(self, chain: int | None = None) -> tuple[int, int]:
        """Chain and draw with the greatest complete-data likelihood, among all chains or in one."""
        joint = self.summaries["log_joint"]
        if chain is not None:
            return chain, int(joint[chain].argmax())
        found = np.unravel_index(joint.argmax(), joint.shape)
        return int(found[0]), int(found[1])


def own_arguments(description: str | None, *, items: bool = True) -> argparse.ArgumentParser:
    """A parser with the options of the scripts on hierarchical mixtures."""
    parser = arguments(description)
    parser.add_argument("--chains", type=int, help="chains, each with its own seed and start")
    parser.add_argument("--warmup", type=int, help="warm-up sweeps per chain, discarded")
    parser.add_argument("--draws", type=int, help="sweeps per chain after the warm-up")
    parser.add_argument("--thinning", type=int, help="keep one sweep in this many")
    if items:
        parser.add_argument("--items", type=int, help="number of rows")
    return parser


def sizes_of(options: argparse.Namespace, small: Sizes, full: Sizes) -> Sizes:
    """The small sizes or the paper's, with those given on the command line replaced.

    At small sizes, programs are compiled with few optimisations, because compiling takes longer than the runs.
    """
    sizes = full if options.full else small
    if not options.full:
        jax.config.update("jax_disable_most_optimizations", True)
    given = {name: getattr(options, name) for name in Sizes._fields if getattr(options, name) is not None}
    return sizes._replace(**given)


def run_chains(
    kernel: bnp.BHMCGibbs,
    X: np.ndarray,
    sizes: Sizes,
    seed: int,
    path: Path,
    starts: Sequence[Mapping[str, np.ndarray]] | None = None,
) -> tuple[bnp.HierarchyDraws, dict[str, np.ndarray]]:
    """Run chains, which are stored at the path meanwhile, from the given values of sites if there are some.

    Returns the draws, those of the warm-up included, with their log joints and the numbers of moves accepted so far.
    """
    mcmc = MCMC(
        kernel,
        num_warmup=0,  # nothing is adapted: the warm-up is the first part of the trace
        num_samples=sizes.warmup + sizes.draws,
        thinning=sizes.thinning,
        num_chains=sizes.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    # one program for all chains, where `MCMC` compiles one per chain; short chunks, since those that lack room are repeated
    every = sizes.thinning * max(1, 24 // sizes.thinning)
    first = None if starts is None else {name: np.stack([start[name] for start in starts]) for name in starts[0]}
    run = run_stored(path, mcmc, every, seed, X, first)
    fields = {name: np.asarray(values) for name, values in run.get_extra_fields(group_by_chain=True).items()}
    return bnp.hierarchy_draws(run, X), fields


def sample(
    model: Callable[..., None],
    X: np.ndarray,
    sizes: Sizes,
    seed: int,
    path: Path,
    mixing: str = "exact",
    all_moves: bool = False,
) -> Run:
    """Run chains from overdispersed starts; by default without the moves that the paper does not have."""
    moves = {} if all_moves else PAPERS_MOVES
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mixing=", UserWarning)  # stated in the reports
        kernel = bnp.BHMCGibbs(model, mixing=mixing, **moves)
    whole, fields = run_chains(kernel, X, sizes, seed, path)
    trace = np.asarray(fields["log_joint"], dtype=np.float64)
    first = sizes.warmup // sizes.thinning
    draws = replace(whole, samples={name: values[:, first:] for name, values in whole.samples.items()})
    return Run(draws, draws.summaries(), trace)


def capacity(run: Run) -> str:
    """How many nodes and components were used, and how often there was no room for more, over all sweeps."""
    hits = run.draws.sample_stats["capacity_hits"][:, -1]
    mass = run.draws.sample_stats["truncated_probability"][:, -1]
    nodes, components = run.draws.samples[run.draws.sites.mixing].shape[-2:]
    most_nodes, most_components = (int(run.summaries[name].max()) for name in ("n_nodes", "n_components"))
    return (
        f"capacity: at most {most_nodes} nodes, with room for {nodes}, and {most_components} of {components} components used; "
        f"capacity hits {int(hits.sum())}, truncated probability {mass.max():.1e}"
    )


def convergence(run: Run) -> pd.DataFrame:
    """R-hat and effective sample sizes of the label-invariant quantities and the hyperparameters."""
    sites = run.draws.sites
    apart = (sites.paths, sites.labels, sites.mixing, sites.parameters)
    values = {name: run.summaries[name] for name in SHOWN}
    values |= {name: draws for name, draws in run.draws.samples.items() if name not in apart and draws.ndim == 2}
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that never move have no R-hat
        table = chain_diagnostics(values)
    table.insert(0, "mean", [np.mean(values[name]) for name in table.index])
    table.insert(1, "sd", [np.std(values[name]) for name in table.index])
    return table


def written(table: pd.DataFrame, places: int = 3) -> str:
    """A table as text, indented."""
    text = table.to_string(float_format=lambda value: f"{value:.{places}f}")
    return "\n".join("  " + line.rstrip() for line in text.split("\n"))


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean and the half-width of its 95% interval by Student's t; the half-width of a single value is infinite."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2:
        return float(values.mean()), float("inf")
    return float(values.mean()), float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Difference of the means of independent chains (chain, draw), its standard error, and the half-width of its 95% interval.

    The interval is Welch's.
    """
    a, b = one.mean(1), other.mean(1)
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)]) if min(len(a), len(b)) > 1 else np.array([np.inf] * 2)
    gap, error = float(a.mean() - b.mean()), float(np.sqrt(parts.sum()))
    if not 0.0 < error < np.inf:
        return gap, error, error
    freedom = parts.sum() ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    return gap, error, float(student.ppf(0.975, freedom) * error)


def outcome(gap: float, half: float, least: float = 0.0) -> str:
    """Whether an interval lies above `least`."""
    if not np.isfinite(half) or abs(gap - least) <= half:
        return "not decided"
    return "reproduces" if gap > least else "DOES NOT REPRODUCE"


def better(report: Report, claim: str, gaps: Sequence[float] | np.ndarray) -> None:
    """Report a verdict on the claim that the mean of the gaps, one per seed, is positive."""
    mean, half = interval(gaps)
    width = f"± {half:.3f}" if np.isfinite(half) else "(one seed: no interval)"
    report(f"- {claim}: {outcome(mean, half)}; gap {mean:+.3f} {width} ({len(gaps)} seeds)")


def counts_of(tree: bnp.Hierarchy) -> list[int]:
    """Number of clusters on every level."""
    return [len(np.unique(tree.paths[:, level])) for level in range(tree.depth)]


def ward(X: np.ndarray) -> bnp.Dendrogram:
    """The tree of Ward's method."""
    return bnp.Dendrogram.from_linkage(scipy.cluster.hierarchy.linkage(X, "ward"))


def divided(X: np.ndarray, counts: Sequence[int], seed: int) -> bnp.Hierarchy:
    """Bisecting k-means: split the cluster with the largest sum of squares until each level has its number of clusters."""
    labels, rng = np.zeros(len(X), dtype=np.int64), np.random.default_rng(seed)
    spread, paths, first = [float(((X - X.mean(0)) ** 2).sum())], [], 1
    for count in counts:
        while len(spread) < count and max(spread) > 0.0:
            largest = int(np.argmax(spread))
            items = np.flatnonzero(labels == largest)
            split = KMeans(2, n_init=3, random_state=int(rng.integers(2**31))).fit_predict(X[items])
            labels[items[split == 1]] = len(spread)
            spread.append(0.0)
            for cluster in (largest, len(spread) - 1):
                rows = X[labels == cluster]
                spread[cluster] = float(((rows - rows.mean(0)) ** 2).sum()) if len(rows) > 1 else 0.0
        paths.append(first + labels.copy())
        first += len(spread)
    return bnp.Hierarchy(np.column_stack(paths))


def nested(X: np.ndarray, counts: Sequence[int], seed: int) -> bnp.Hierarchy:
    """Recursive k-means with one branching factor, chosen to give about as many leaves."""
    branching = max(2, round(counts[-1] ** (1 / len(counts))))
    return bnp.recursive_kmeans(X, len(counts), branching, seed)


def shuffled(tree: bnp.Hierarchy, seed: int) -> bnp.Hierarchy:
    """The same tree with the items in random order, for the score that its numbers of clusters alone give."""
    return bnp.Hierarchy(tree.paths[np.random.default_rng(seed).permutation(tree.n_items)])


def score_table(scores: dict[str, list[pd.DataFrame]], counts: dict[str, list[list[int]]]) -> str:
    """Clusters and mean scores ± the half-width of a 95% interval over seeds, level by level."""
    width = max(map(len, scores))
    lines = [f"{'level':<7}{'method':<{width}}{'clusters':>10}" + "".join(f"{measure:>16}" for measure in MEASURES)]
    for level in next(iter(scores.values()))[0].index:
        for name, tables in scores.items():
            numbers = np.mean([each[min(level, len(each)) - 1] for each in counts[name]])
            cells = []
            for measure in MEASURES:
                mean, half = interval([table.loc[level, measure] for table in tables])
                cells.append(f"{mean:.3f}" + (f" ± {half:.3f}" if np.isfinite(half) else ""))
            lines.append(f"{level:<7}{name:<{width}}{numbers:>10.1f}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join("  " + line for line in lines)
