"""Huang et al. (2021), Figure 6: agreement of hierarchies of texts with true ones, level by level.

The paper's 2,303 Amazon texts are not available. We use three substitutes with true hierarchies: titles of fashion products
(also 2,303, by coincidence), messages from 20 newsgroups, and Flipkart products. Word counts are weighted by TF-IDF and reduced
to principal components. The priors are the paper's, and the hyperparameters are drawn from their conditionals throughout (the
paper: by Metropolis-Hastings, during the warm-up only). Beside these, the defaults of `bhmc` are run, which learn the
hyperparameters; where there are more than 100 columns, these are independent within clusters. Ward's method and PERCH are run,
as in the paper. PYDT is not: the paper shows its scores in a figure only, and says that those of `bhmc` are clearly better in
purity and NMI and, on the lower levels, better in the F-measure.

Our large size is 1,000 texts, 30 columns and five levels, and not the paper's 2,303, 190 and seven, with 500 + 2,500 sweeps;
the options set other sizes, and choose some of the runs. Each data set and each choice has its own report. One run of titles
at the paper's size takes an hour and a half on two cores; started again, it goes on where it was stopped:

    python examples/reproduce/bhmc_text.py --full --base matched --data fashion_products_2303 --run exact --items 2303 \\
        --columns 190 --depth 7 --warmup 500 --draws 2500 --thinning 20

Purity and NMI increase with the number of clusters, so every competing method except recursive k-means is cut to the numbers of
clusters in the tree of the hierarchical mixture.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import bhmc_common as shared
import numpy as np
import pandas as pd
from common import Report, load
from perch import perch
from sklearn.feature_extraction.text import TfidfTransformer
from stored_chains import StoredChains

import bnp_hier as bnp
from bnp_hier.advice.column_kinds import component_for
from bnp_hier.advice.covariance_structures import MOST_COMPARED
from bnp_hier.models import bhmc, bhmc_paper, dpm

DATA = ("fashion_products_2303", "newsgroups20_hier", "flipkart_products_1050")
BASES = {"paper": "N(0, I), the paper's", "matched": "N(0, v I), v the mean variance of the columns: not the paper's"}
EXACT, PAPER, LEARNED, SHUFFLED = "BHMC", "BHMC paper", "BHMC learned", "BHMC shuffled"
RUNS = {"exact": EXACT, "paper": PAPER, "learned": LEARNED}
BINARY = ("Ward", "BHC", "PERCH", "divided k-means")

SMALL, SMALL_ITEMS, SMALL_COLUMNS, SMALL_DEPTH = shared.Sizes(chains=2, warmup=40, draws=80, thinning=4), 150, 20, 3
FULL, FULL_ITEMS, FULL_COLUMNS, FULL_DEPTH = shared.Sizes(chains=4, warmup=200, draws=800, thinning=10), 1000, 30, 5


class Texts(NamedTuple):
    """Rows (n, d), true paths, and the number of columns that the Gavish-Donoho threshold would keep."""

    X: np.ndarray
    paths: list[Sequence[Any]]
    threshold: int


def texts(name: str, items: int | None, columns: int, seed: int) -> Texts:
    """Load a data set: random rows with at least one word, TF-IDF weights of unit length, then principal components."""
    data = load(name)
    assert data.paths is not None
    rows = np.flatnonzero(data.X.sum(1) > 0)
    if items is not None:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:items])
    weights = TfidfTransformer().fit_transform(data.X[rows]).toarray()
    threshold = bnp.datasets.principal_components(weights).shape[1]
    kept = min(columns, len(rows) - 1, weights.shape[1])
    return Texts(bnp.datasets.principal_components(weights, kept), [data.paths[row] for row in rows], threshold)


def binary_trees(run: shared.Run, X: np.ndarray, prior_variance: float, seed: int) -> dict[str, bnp.Dendrogram]:
    """Trees that are cut to any numbers of clusters.

    BHC has the posterior means of the hyperparameters; beside a run without them, it learns its own, for independent columns.
    """
    d = X.shape[1]
    if "sigma2" in run.draws.samples:
        sigma2, gamma0 = (float(run.draws.samples[name].mean()) for name in ("sigma2", "gamma0"))
        component = bnp.NormalKnownCovariance(np.zeros(d), prior_variance * np.eye(d), sigma2 * np.eye(d))
        bhc = bnp.BHC(partial(dpm, component=component, concentration=gamma0), refine=None, progress_bar=False)
    else:
        bhc = bnp.BHC(partial(dpm, component=component_for(X, "diagonal").prior), refine=None, progress_bar=False)
    return {"Ward": shared.ward(X), "BHC": bhc.fit(X).dendrogram_, "PERCH": perch(X, seed)}


def trees_of(
    runs: dict[str, shared.Run], binary: dict[str, bnp.Dendrogram], X: np.ndarray, seed: int
) -> list[dict[str, bnp.Hierarchy]]:
    """The tree of each method for every chain; the numbers of clusters are those of the first run."""
    first, *others = runs
    found = []
    for chain in range(runs[first].draws.shape[0]):
        tree = runs[first].draws[runs[first].best(chain)]
        counts = shared.counts_of(tree)
        trees = {first: tree} | {name: runs[name].draws[runs[name].best(chain)] for name in others}
        trees |= {name: dendrogram.to_hierarchy(counts) for name, dendrogram in binary.items()}
        trees["divided k-means"] = shared.divided(X, counts, seed + chain)
        trees["recursive k-means"] = shared.nested(X, counts, seed + chain)
        trees[SHUFFLED] = shared.shuffled(tree, seed + chain)
        found.append(trees)
    return found


def verdicts(report: Report, scores: dict[str, list[pd.DataFrame]]) -> None:
    """Report verdicts on the paper's claims about the first method.

    A gap compares one chain with its competitors at the same numbers of clusters.
    """
    mine = next(iter(scores))

    def gaps(measure: str, rival: str, levels: slice) -> np.ndarray:
        pairs = zip(scores[mine], scores[rival], strict=True)
        return np.array([(own[measure].iloc[levels] - theirs[measure].iloc[levels]).mean() for own, theirs in pairs])

    lower = slice(len(scores[mine][0]) // 2, None)
    for rival in (*BINARY, "recursive k-means"):
        for measure in ("purity", "NMI"):
            shared.better(
                report, f"{measure} clearly better than that of {rival}, mean over levels", gaps(measure, rival, slice(None))
            )
        shared.better(
            report,
            f"F-measure better than that of {rival}, mean over the lower half of the levels",
            gaps("F-measure", rival, lower),
        )
    largest = {
        name: max(abs(np.mean([table["ARI"].iloc[level] for table in tables])) for level in range(len(tables[0])))
        for name, tables in scores.items()
        if name != SHUFFLED
    }
    most = max(largest.values())
    report(
        f"- ARI of all methods close to 0 on all levels (below 0.05): {'reproduces' if most < 0.05 else 'DOES NOT REPRODUCE'}; "
        "largest " + ", ".join(f"{name} {value:.3f}" for name, value in largest.items())
    )


def one_set(name: str, options: argparse.Namespace, sizes: shared.Sizes, chains: StoredChains) -> None:
    """Run and report everything on one data set."""
    base = "" if options.base == "paper" else f"_{options.base}"
    chosen = [title for run, title in RUNS.items() if run in (options.run or RUNS)]
    file = "_".join([f"{name}{base}", *(["only", *(run for run in RUNS if run in options.run)] if options.run else [])])
    report = Report(options.out, f"bhmc_text_{file}")
    report("BHMC Figure 6: scores by level on a substitute for the paper's Amazon texts, which are not available")
    report("paper: alpha ~ Gamma(3, 1), gamma0 ~ Gamma(3.5, 1), gamma ~ Uniform(0, 1.5), sigma^2 ~ Uniform(0, 0.1);")
    report(f"  H = {BASES[options.base]}; learned: the defaults of bhmc")
    report(f"{sizes}; seed {options.seed}; {'large size' if options.full else 'small size'}, not the paper's")
    report(
        "BHMC: tree with the greatest complete-data likelihood of each chain; "
        "level 1: the root's children (the paper: the root)"
    )
    report("clusters: mean number at the level; ±: 95% interval over chains; Ward, BHC and divided k-means are cut to the")
    report("  numbers of clusters of BHMC's tree; BHMC shuffled: its tree with the items in random order\n")
    items = options.items or (FULL_ITEMS if options.full else SMALL_ITEMS)
    columns = options.columns or (FULL_COLUMNS if options.full else SMALL_COLUMNS)
    X, paths, threshold = texts(name, items, columns, options.seed)
    truth = bnp.Hierarchy.from_names(paths)
    prior_variance = 1.0 if options.base == "paper" else float(X.var(0).mean())
    capacity = {
        "depth": options.depth or (FULL_DEPTH if options.full else SMALL_DEPTH),
        "max_components": options.components or (50 if options.full else 20),
        "max_nodes": options.nodes,
    }
    model = partial(bhmc_paper, settings="texts", prior_variance=prior_variance, **capacity)
    report(f"{name}: {X.shape[0]} texts, {X.shape[1]} columns (the threshold of Gavish & Donoho would keep {threshold}), with")
    report(f"  variances {X.var(0)[0]:.4f} to {X.var(0)[-1]:.4f}; true clusters per level {shared.counts_of(truth)}")
    runs = {}
    for title in chosen:
        mixing, own = "paper" if title == PAPER else "exact", model
        if title == LEARNED:
            own = partial(bhmc, **capacity)
            if X.shape[1] > MOST_COMPARED:
                own = partial(own, component=component_for(X, "diagonal").prior)
                report(
                    f"learned: independent columns in clusters, as `recommend` advises for more than {MOST_COMPARED} columns"
                )
        path = chains.path(f"{name}_{title.replace(' ', '_')}")
        runs[title] = run = shared.sample(own, X, sizes, options.seed, path, mixing, title == LEARNED)
        report(f'{title} (mixing="{mixing}")')
        report(shared.written(shared.convergence(run), 4))
        report("  " + shared.capacity(run))
    binary = binary_trees(runs[chosen[0]], X, prior_variance, options.seed)
    printed = {title: run for title, run in runs.items() if title != LEARNED}
    learned = {title: run for title, run in runs.items() if title == LEARNED}
    for mine in filter(None, (printed, learned)):
        scores: dict[str, list[pd.DataFrame]] = {}
        numbers: dict[str, list[list[int]]] = {}
        for each in trees_of(mine, binary, X, options.seed):
            for method, tree in each.items():
                scores.setdefault(method, []).append(tree.scores(paths))
                numbers.setdefault(method, []).append(shared.counts_of(tree))
        report(f"\n{'the settings of the paper' if mine is printed else 'learned hyperparameters'}")
        report(shared.score_table(scores, numbers))
        verdicts(report, scores)
        shown = {method: tables for method, tables in scores.items() if method != SHUFFLED}
        suffix = "_learned" if mine is learned and len(chosen) > 1 else ""
        bnp.plots.level_scores(shown).savefig(report.out / f"bhmc_figure6_{file}{suffix}.png", dpi=100)
    purities = ", ".join(f"{method} {dendrogram.purity(truth.labels_at(1)):.3f}" for method, dendrogram in binary.items())
    report(f"  dendrogram purity for the true level 1: {purities}")
    report.save()


def main() -> None:
    parser = shared.own_arguments(__doc__)
    parser.add_argument("--data", choices=DATA, action="append", help="data set; fashion products by default, all with --full")
    parser.add_argument("--run", choices=RUNS, action="append", help="run; all by default")
    parser.add_argument("--columns", type=int, help="principal components; 20, or 30 with --full")
    parser.add_argument("--depth", type=int, help="levels L; 3, or 5 with --full")
    parser.add_argument("--components", type=int, help="components K; 20, or 50 with --full")
    parser.add_argument("--nodes", type=int, help="limit on the nodes of the tree; none by default")
    parser.add_argument("--base", choices=BASES, default="paper", help="H: N(0, I), or with the mean variance of the columns")
    options = parser.parse_args()
    sizes = shared.sizes_of(options, SMALL, FULL)
    with StoredChains(options, __file__) as chains:
        for name in options.data or (DATA if options.full else DATA[:1]):
            one_set(name, options, sizes, chains)


if __name__ == "__main__":
    main()
