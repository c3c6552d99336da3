"""Huang et al. (2021), Figure 6: agreement of hierarchies of texts with true ones, level by level.

The paper's 2,303 Amazon texts are not available. We use three substitutes with true hierarchies: titles of fashion products
(also 2,303, by coincidence), messages from 20 newsgroups, and Flipkart products. Word counts are weighted by TF-IDF and reduced
to principal components. The priors are the paper's, and the hyperparameters are drawn from their conditionals throughout (the
paper: by Metropolis-Hastings, during the warm-up only). PERCH and PYDT are not run; Ward's method is, as in the paper.

With the paper's 190 columns and seven levels, a sweep takes about a second for 300 texts, and a run on all of them hours. Our
large size is 1,000 texts, 30 columns and five levels; the options set other sizes. Each data set has its own report.

Purity and NMI increase with the number of clusters, so every competing method except recursive k-means is cut to the numbers of
clusters in the tree of the hierarchical mixture.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import bhmc_common as shared
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from common import Report, load
from sklearn.feature_extraction.text import TfidfTransformer

import bnp_hier as bnp
from bnp_hier.models import bhmc, dpm

DATA = ("fashion_products_2303", "newsgroups20_hier", "flipkart_products_1050")
BASES = {"paper": "N(0, I), the paper's", "matched": "N(0, v I), v the mean variance of the columns: not the paper's"}
EXACT, PAPER = "BHMC", "BHMC paper"
BINARY = ("Ward", "BHC", "divided k-means")

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


def spherical(X: np.ndarray, prior_variance: float) -> bnp.NormalKnownCovariance:
    """Components with means N(0, v I), v = `prior_variance`, and one shared variance, uniform from 0 to 0.1."""
    d = X.shape[1]
    sigma2 = numpyro.sample("sigma2", dist.Uniform(0.0, 0.1))
    return bnp.NormalKnownCovariance(np.zeros(d), prior_variance * np.eye(d), sigma2 * jnp.eye(d))


def trees_of(
    exact: shared.Run, paper: shared.Run, X: np.ndarray, prior_variance: float, seed: int
) -> tuple[list[dict[str, bnp.Hierarchy]], dict[str, bnp.Dendrogram]]:
    """The tree of each method for every chain, and the binary trees (BHC at the posterior means of the hyperparameters)."""
    d, sigma2 = X.shape[1], float(exact.draws.samples["sigma2"].mean())
    component = bnp.NormalKnownCovariance(np.zeros(d), prior_variance * np.eye(d), sigma2 * np.eye(d))
    model = partial(dpm, component=component, concentration=float(exact.draws.samples["gamma0"].mean()))
    fit = bnp.BHC(model, refine=None, progress_bar=False).fit(X)
    binary = {"Ward": shared.ward(X), "BHC": fit.dendrogram_}
    found = []
    for chain in range(exact.draws.shape[0]):
        tree = exact.draws[exact.best(chain)]
        counts = shared.counts_of(tree)
        trees = {EXACT: tree, PAPER: paper.draws[paper.best(chain)]}
        trees |= {name: dendrogram.to_hierarchy(counts) for name, dendrogram in binary.items()}
        trees["divided k-means"] = shared.divided(X, counts, seed + chain)
        trees["recursive k-means"] = shared.nested(X, counts, seed + chain)
        trees["BHMC shuffled"] = shared.shuffled(tree, seed + chain)
        found.append(trees)
    return found, binary


def verdicts(report: Report, scores: dict[str, list[pd.DataFrame]]) -> None:
    """Report verdicts on the paper's claims; a gap compares one chain with its competitors at the same numbers of clusters."""

    def gaps(measure: str, rival: str, levels: slice) -> np.ndarray:
        pairs = zip(scores[EXACT], scores[rival], strict=True)
        return np.array([(mine[measure].iloc[levels] - theirs[measure].iloc[levels]).mean() for mine, theirs in pairs])

    lower = slice(len(scores[EXACT][0]) // 2, None)
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
        if name != "BHMC shuffled"
    }
    most = max(largest.values())
    report(
        f"- ARI of all methods close to 0 on all levels (below 0.05): {'reproduces' if most < 0.05 else 'DOES NOT REPRODUCE'}; "
        "largest " + ", ".join(f"{name} {value:.3f}" for name, value in largest.items())
    )


def one_set(name: str, options: argparse.Namespace, sizes: shared.Sizes) -> None:
    """Run and report everything on one data set."""
    base = "" if options.base == "paper" else f"_{options.base}"
    report = Report(options.out, f"bhmc_text_{name}{base}")
    report("BHMC Figure 6: scores by level on a substitute for the paper's Amazon texts, which are not available")
    report("alpha ~ Gamma(3, 1), gamma0 ~ Gamma(3.5, 1), gamma ~ Uniform(0, 1.5), sigma^2 ~ Uniform(0, 0.1);")
    report("H = " + BASES[options.base])
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
    model = partial(
        bhmc,
        depth=options.depth or (FULL_DEPTH if options.full else SMALL_DEPTH),
        component=partial(spherical, prior_variance=prior_variance),
        concentration=dist.Gamma(3.0, 1.0),
        root_concentration=dist.Gamma(3.5, 1.0),
        mixing_concentration=dist.Uniform(0.0, 1.5),
        max_components=options.components or (50 if options.full else 20),
        max_nodes=options.nodes,
    )
    report(f"{name}: {X.shape[0]} texts, {X.shape[1]} columns (the threshold of Gavish & Donoho would keep {threshold}), with")
    report(f"  variances {X.var(0)[0]:.4f} to {X.var(0)[-1]:.4f}; true clusters per level {shared.counts_of(truth)}")
    runs = {}
    for title, mixing in ((EXACT, "exact"), (PAPER, "paper")):
        runs[title] = run = shared.sample(model, X, sizes, options.seed, mixing)
        report(f'{title} (mixing="{mixing}")')
        report(shared.written(shared.convergence(run), 4))
        report("  " + shared.capacity(run))
    trees, binary = trees_of(runs[EXACT], runs[PAPER], X, prior_variance, options.seed)
    scores: dict[str, list[pd.DataFrame]] = {}
    numbers: dict[str, list[list[int]]] = {}
    for each in trees:
        for method, tree in each.items():
            scores.setdefault(method, []).append(tree.scores(paths))
            numbers.setdefault(method, []).append(shared.counts_of(tree))
    report(shared.score_table(scores, numbers))
    top = truth.labels_at(1)
    purities = ", ".join(f"{method} {dendrogram.purity(top):.3f}" for method, dendrogram in binary.items())
    report(f"  dendrogram purity for the true level 1: {purities}")
    verdicts(report, scores)
    shown = {method: tables for method, tables in scores.items() if method != "BHMC shuffled"}
    bnp.plots.level_scores(shown).savefig(report.out / f"bhmc_figure6_{name}{base}.png", dpi=100)
    report.save()


def main() -> None:
    parser = shared.own_arguments(__doc__)
    parser.add_argument("--data", choices=DATA, action="append", help="data set; fashion products by default, all with --full")
    parser.add_argument("--columns", type=int, help="principal components; 20, or 30 with --full")
    parser.add_argument("--depth", type=int, help="levels L; 3, or 5 with --full")
    parser.add_argument("--components", type=int, help="components K; 20, or 50 with --full")
    parser.add_argument("--nodes", type=int, help="limit on the nodes of the tree; none by default")
    parser.add_argument("--base", choices=BASES, default="paper", help="H: N(0, I), or with the mean variance of the columns")
    options = parser.parse_args()
    sizes = shared.sizes_of(options, SMALL, FULL)
    for name in options.data or (DATA if options.full else DATA[:1]):
        one_set(name, options, sizes)


if __name__ == "__main__":
    main()
