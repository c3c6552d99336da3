"""Huang et al. (2021), Figure 5: hierarchies of fashion images, and their agreement with the ten classes level by level.

The paper's settings: 100 images of each class, 22 principal components, α = 0.5, γ0 = 1.5, γ = 2, σ² = 1, L = 5, H = N(0, I).
It does not say how pixels are scaled, and mentions a second set of hyperparameters that it does not give. Two scalings are run:
"unit", pixels from 0 to 1, which leaves a mean variance of 2.5 in the 22 columns of all images where the model expects 2; and
"standardised", every pixel with variance 1 before the principal components. Beside the paper's settings, the pixels from 0 to 1
are clustered with the defaults of `bhmc`, which learn the hyperparameters. The paper judges the tree by eye; the scores and the
competing methods are ours.
"""

from __future__ import annotations

from functools import partial

import bhmc_common as shared
import numpy as np
import pandas as pd
from common import Report, load, per_class
from image_tree import montage
from perch import perch
from stored_chains import StoredChains

import bnp_hier as bnp
from bnp_hier.models import bhmc, bhmc_paper, dpm

COLUMNS = 22
COMPONENT = bnp.NormalKnownCovariance(np.zeros(COLUMNS), np.eye(COLUMNS), np.eye(COLUMNS))
RUNS = {
    "unit": ("unit", "paper", "bhmc_figure5"),
    "standardised": ("standardised", "paper", "bhmc_figure5_standardised"),
    "learned": ("unit", "learned", "bhmc_figure5_learned"),
}
"""Scaling, settings and file of the figure of each run."""

RIVALS = ("Ward", "BHC", "PERCH", "divided k-means")
"""Competing methods that are cut to as many clusters per level as the hierarchical mixture has."""

SMALL, SMALL_ITEMS = shared.Sizes(chains=2, warmup=40, draws=60, thinning=4), 200
FULL, FULL_ITEMS = shared.Sizes(chains=4, warmup=500, draws=5000, thinning=25), 1000


def scaled(pixels: np.ndarray, scaling: str) -> np.ndarray:
    """Principal components of the images."""
    X = pixels / 255.0
    if scaling == "standardised":
        spread = X.std(0)
        X = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
    return bnp.datasets.principal_components(X, COLUMNS)


def compare(report: Report, run: shared.Run, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, list[pd.DataFrame]]:
    """Scores of every method at every level, one table per chain."""
    truth = [[int(label)] for label in y]
    trees = {"Ward": shared.ward(X)}
    fit = bnp.BHC(partial(dpm, component=COMPONENT, concentration=1.5), refine=None, progress_bar=False).fit(X)
    trees |= {"BHC": fit.dendrogram_, "PERCH": perch(X, seed)}
    scores: dict[str, list[pd.DataFrame]] = {}
    numbers: dict[str, list[list[int]]] = {}
    for chain in range(run.draws.shape[0]):
        tree = run.draws[run.best(chain)]
        counts = shared.counts_of(tree)
        found = {"BHMC": tree} | {name: dendrogram.to_hierarchy(counts) for name, dendrogram in trees.items()}
        found["divided k-means"] = shared.divided(X, counts, seed + chain)
        found["recursive k-means"] = shared.nested(X, counts, seed + chain)
        found["BHMC shuffled"] = shared.shuffled(tree, seed + chain)
        for name, each in found.items():
            scores.setdefault(name, []).append(each.scores(truth))
            numbers.setdefault(name, []).append(shared.counts_of(each))
    report(shared.score_table(scores, numbers))
    report("  dendrogram purity: " + ", ".join(f"{name} {dendrogram.purity(y):.3f}" for name, dendrogram in trees.items()))
    report(f"  BHC's own number of clusters: {fit.n_clusters_}")
    return scores


def verdicts(report: Report, run: shared.Run, scores: dict[str, list[pd.DataFrame]]) -> None:
    """Report verdicts on what the paper says about its tree, and on the tree against the competing methods."""
    purity = np.array([table["purity"] for table in scores["BHMC"]])
    by_chance = np.array([table["purity"] for table in scores["BHMC shuffled"]])
    mean = [shared.interval(column) for column in purity.T]
    high = [value >= 0.7 for value, _ in mean]
    result = "reproduces" if all(high) else "DOES NOT REPRODUCE" if not any(high) else "not decided"
    report(
        f"- high purity per level (0.7 or more, our reading): {result}; "
        + ", ".join(f"{value:.3f}" for value, _ in mean)
        + " on levels 1, 2, ...; items in random order "
        + ", ".join(f"{value:.3f}" for value in by_chance.mean(0))
    )
    shares = run.summaries["largest_branch"]
    tops = np.array([len(np.unique(paths[:, 0])) for paths in run.draws.paths.reshape(-1, *run.draws.paths.shape[2:])])
    even = 1.0 / np.maximum(tops, 1)
    report(
        "- the rich get richer (the root's largest child has over twice an even share): "
        + ("reproduces" if shares.mean() > 2.0 * even.mean() else "DOES NOT REPRODUCE")
        + f"; {shares.mean():.2f} of the items, {tops.mean():.1f} children, even share {even.mean():.2f}"
    )
    for measure in ("purity", "NMI"):
        mine = np.array([table[measure].mean() for table in scores["BHMC"]])
        for name in RIVALS:
            theirs = np.array([table[measure].mean() for table in scores[name]])
            shared.better(report, f"ours, not the paper's: mean {measure} over levels above that of {name}", mine - theirs)


def main() -> None:
    parser = shared.own_arguments(__doc__)
    parser.add_argument("--depth", type=int, default=5, help="levels L")
    parser.add_argument("--components", type=int, default=50, help="components K")
    parser.add_argument("--nodes", type=int, help="limit on the nodes of the tree; none by default")
    parser.add_argument("--run", choices=RUNS, action="append", help="run; the first by default, all with --full")
    options = parser.parse_args()
    sizes = shared.sizes_of(options, SMALL, FULL)
    report = Report(options.out, "bhmc_fashion")
    data = load("fashion_mnist_1000")
    items = options.items or (FULL_ITEMS if options.full else SMALL_ITEMS)
    classes = len(np.unique(data.y))
    rows = np.sort(per_class(data.y, items // classes, np.random.default_rng(options.seed)))
    pixels, y = data.X[rows], data.y[rows]
    sizes_of_model = {"depth": options.depth, "max_components": options.components, "max_nodes": options.nodes}
    models = {
        "paper": partial(bhmc_paper, settings="fashion", **sizes_of_model),
        "learned": partial(bhmc, **sizes_of_model),
    }
    report(
        "BHMC Figure 5: fashion images on 22 principal components; "
        "tree with the greatest complete-data likelihood of each chain"
    )
    limit = f"at most {options.nodes}" if options.nodes else "any number of"
    report(f"{len(rows)} images, {classes} classes; L {options.depth}, K {options.components}, {limit} nodes; {sizes};")
    size = "as many images as the paper" + ("" if sizes.draws >= FULL.draws else ", fewer sweeps")
    report(f"seed {options.seed}; {size if options.full else 'small sizes'}; our sample is not the paper's")
    report("settings paper: alpha 0.5, gamma0 1.5, gamma 2, sigma^2 1, H = N(0, I); learned: the defaults of bhmc")
    report("clusters: mean number at the level; ±: 95% interval over chains; Ward, BHC and divided k-means are cut to the")
    report(
        "  numbers of clusters of BHMC's tree; BHMC shuffled: its tree with the items in random order; "
        "the same classes at all levels\n"
    )
    with StoredChains(options, __file__) as chains:
        for name in options.run or (RUNS if options.full else list(RUNS)[:1]):
            scaling, settings, file = RUNS[name]
            X = scaled(pixels, scaling)
            variance = X.var(0)
            report(f'scaling "{scaling}", settings "{settings}":')
            report(f"  variance of the columns {variance[0]:.1f} to {variance[-1]:.2f}, mean {variance.mean():.2f}")
            path = chains.path(name)
            run = shared.sample(models[settings], X, sizes, options.seed, path, all_moves=settings == "learned")
            report(shared.written(shared.convergence(run)))
            report("  " + shared.capacity(run))
            scores = compare(report, run, X, y, options.seed)
            verdicts(report, run, scores)
            report("")
            figure = montage(run.draws[run.best()], pixels.reshape(-1, 28, 28) / 255.0, X=X)
            figure.savefig(report.out / f"{file}.png", dpi=100)
        report.save()


if __name__ == "__main__":
    main()
