"""Huang et al. (2021), Figures 3 and 4: five chains on the animals, the reported tree, and the update of the proportions.

The paper's settings: 33 animals by 102 binary features, seven principal components (not scaled), α = 0.4, γ0 = 1, γ = 0.5,
σ² = 1, L = 4, H = N(0, I). It does not say which animals belong to its five groups; the groups below are our choice, with
herbivores in a broad and in a narrow sense. Beside the paper's settings, the defaults of `bhmc` are run, which learn the
hyperparameters, and the groups are looked for in the trees of Ward's method, BHC and PERCH.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import bhmc_common as shared
import numpy as np
from common import Report, load
from perch import perch
from stored_chains import StoredChains

import bnp_hier as bnp
from bnp_hier.models import bhmc, bhmc_paper, dpm

GROUPS = {
    "insects": ("Ant", "Bee", "Butterfly", "Cockroach"),
    "aggressive mammals": ("Cat", "Dog", "Lion", "Tiger", "Wolf"),
    "herbivores": ("Camel", "Chimp", "Cow", "Deer", "Elephant", "Giraffe", "Gorilla", "Horse", "Mouse", "Rhino", "Squirrel"),
    "herbivores, hoofed and elephant only": ("Camel", "Cow", "Deer", "Elephant", "Giraffe", "Horse", "Rhino"),
    "water animals": ("Dolphin", "Salmon", "Seal", "Trout", "Whale"),
    "birds": ("Chicken", "Eagle", "Finch", "Ostrich", "Penguin", "Robin"),
}

APPEARS = 0.8
"""A group counts as present if its F1 score with its best clade is at least this."""

SMALL = shared.Sizes(chains=5, warmup=50, draws=200, thinning=2)
FULL = shared.Sizes(chains=5, warmup=500, draws=5000, thinning=5)

MODEL = partial(bhmc_paper, settings="animals", max_components=20)
LEARNED = partial(bhmc, depth=4)


def best_clade(paths: np.ndarray, group: np.ndarray) -> tuple[float, int]:
    """Largest F1 score of a group with the items under a node below the root, and that node."""
    sizes = np.bincount(paths.ravel())
    inside = np.bincount(paths[group].ravel(), minlength=len(sizes))
    scores = 2.0 * inside / (sizes + len(group))
    return float(scores.max()), int(scores.argmax())


def best_subtree(tree: bnp.Dendrogram, group: np.ndarray) -> float:
    """Largest F1 score of a group with the items under a node below the root of a binary tree."""
    counted = np.concatenate([[0], np.isin(tree.leaf_order(), group).cumsum()])
    first, sizes = tree.first_positions()[:-1], tree.sizes[:-1]
    return float((2.0 * (counted[first + sizes] - counted[first]) / (sizes + len(group))).max())


def settles(trace: np.ndarray, later: np.ndarray, thinning: int) -> list[int]:
    """Sweeps until each chain first enters the central 90% of the later draws of all chains; 0 if it never does."""
    low, high = np.quantile(later, (0.05, 0.95))
    inside = (trace >= low) & (trace <= high)
    return [int(row.argmax() + 1) * thinning if row.any() else 0 for row in inside]


def members_of(names: Sequence[str]) -> dict[str, np.ndarray]:
    """The items of each group."""
    return {group: np.array([names.index(name) for name in animals]) for group, animals in GROUPS.items()}


def figure3(report: Report, run: shared.Run, thinning: int) -> None:
    """Report whether the chains agree."""
    report("Figure 3: log p(X, labels, paths | proportions, parameters), as in the paper, and other label-invariant quantities")
    table = shared.convergence(run)
    report(shared.written(table))
    joint = run.summaries["log_joint"]
    low, high = np.quantile(joint, (0.05, 0.95), axis=1)
    report("  log joint of each chain: mean (5% to 95%)")
    for mean, lower, upper in zip(joint.mean(1), low, high, strict=True):
        report(f"    {mean:.1f} ({lower:.1f} to {upper:.1f})")
    first = settles(run.trace, joint, thinning)
    report("  " + shared.capacity(run))
    rhat = float(table.loc["log_joint", "rhat"])
    overlap = low.max() < high.min()
    result = "reproduces" if overlap and rhat < 1.01 else "not decided" if overlap and rhat < 1.1 else "DOES NOT REPRODUCE"
    report(
        f"- {len(joint)} runs reach the same level: {result}; R-hat {rhat:.3f}, the chains' central 90% ranges "
        f"{'all overlap' if overlap else 'do not all overlap'}"
    )
    report(
        f"- they reach it quickly: {'reproduces' if 0 < min(first) and max(first) <= 100 else 'DOES NOT REPRODUCE'}; each "
        f"first enters the central 90% of the later draws after {', '.join(map(str, first))} sweeps "
        "(up to 100 counts as quickly)"
    )
    moving = run.summaries["n_nodes"].std(1).min()
    report(
        f"- the chains keep moving: {'reproduces' if moving > 0 else 'DOES NOT REPRODUCE'}; smallest standard deviation of "
        f"the number of nodes within a chain {moving:.2f}\n"
    )
    shown = {"log joint from the first kept sweep on": run.trace, "components": run.summaries["n_components"]}
    bnp.plots.traces(shown).savefig(report.out / "bhmc_figure3.png", dpi=100)


def figure4(report: Report, run: shared.Run, names: Sequence[str], seed: int) -> None:
    """Report and draw two trees, and locate the paper's groups in them."""
    trees = {
        "greatest complete-data likelihood (the paper's)": (run.best(), "bhmc_figure4"),
        "least expected variation of information, summed over levels": (run.draws.medoid(), "bhmc_figure4_central"),
    }
    members = members_of(names)
    everywhere = run.draws.paths.reshape(-1, *run.draws.paths.shape[2:])
    shares = {
        group: np.mean([best_clade(paths, items)[0] >= APPEARS for paths in everywhere]) for group, items in members.items()
    }
    report("Figure 4")
    for title, (draw, file) in trees.items():
        tree = run.draws[draw]
        support = run.draws.support(tree)
        joint = run.summaries["log_joint"][draw]
        report(f"tree with the {title}: log joint {joint:.1f}, clusters per level {shared.counts_of(tree)}")
        report("  " + tree.to_newick(names))
        bnp.plots.hierarchy(tree, names=names, support=support).figure.savefig(report.out / f"{file}.png", dpi=100)
        rng = np.random.default_rng(seed)
        for group, items in members.items():
            score, node = best_clade(tree.paths, items)
            chance = np.mean([best_clade(tree.paths, rng.permutation(len(names))[: len(items)])[0] for _ in range(200)])
            report(
                f"- {group} are a clade (F1 >= {APPEARS}): {'reproduces' if score >= APPEARS else 'DOES NOT REPRODUCE'}; best "
                f"F1 {score:.2f} (random animals {chance:.2f}) at level {tree.levels[node]}, support of that clade "
                f"{support[node]:.2f}; present in {shares[group]:.0%} of the draws"
            )
            report("    " + ", ".join(names[item] for item in tree.items(node)))
        report("")


def others(report: Report, X: np.ndarray, paper: shared.Run, learned: shared.Run, names: Sequence[str], seed: int) -> None:
    """Report the chains with learned hyperparameters, and how well each method's tree has the groups as clades."""
    report("Learned hyperparameters, the defaults of bhmc (not the paper's): convergence")
    report(shared.written(shared.convergence(learned)))
    report("  " + shared.capacity(learned))
    trees = [run.draws[run.best()] for run in (paper, learned)]
    report(f"  clusters per level of its tree with the greatest complete-data likelihood {shared.counts_of(trees[1])}")
    report("  " + trees[1].to_newick(names))
    support = learned.draws.support(trees[1])
    figure = bnp.plots.hierarchy(trees[1], names=names, support=support).figure
    figure.savefig(report.out / "bhmc_figure4_learned.png", dpi=100)
    component = bnp.NormalKnownCovariance(np.zeros(X.shape[1]), np.eye(X.shape[1]), np.eye(X.shape[1]))
    fit = bnp.BHC(partial(dpm, component=component, concentration=1.0), refine=None, progress_bar=False).fit(X)
    binary = {"Ward": shared.ward(X), "BHC": fit.dendrogram_, "PERCH": perch(X, seed)}
    report("\nbest F1 of each group with a clade; BHMC: of the tree with the greatest complete-data likelihood")
    report("  the binary trees have a clade for every merge, BHMC's one for every cluster at its four levels")
    heads = ("BHMC", "BHMC learned", *binary)
    report("  " + f"{'group':<38}" + "".join(f"{head:>14}" for head in heads))
    means = []
    for group, items in members_of(names).items():
        scores = [best_clade(tree.paths, items)[0] for tree in trees]
        scores += [best_subtree(dendrogram, items) for dendrogram in binary.values()]
        report("  " + f"{group:<38}" + "".join(f"{score:>14.2f}" for score in scores))
        means.append(scores)
    report("  " + f"{'mean':<38}" + "".join(f"{score:>14.2f}" for score in np.mean(means, 0)) + "\n")


def papers_draw(report: Report, exact: shared.Run, paper: shared.Run) -> None:
    """Report what the paper's update of the proportions changes."""
    report(
        'The update of the proportions by the paper\'s Eqs. 3-4 (mixing="paper"), which does not leave the posterior invariant,'
    )
    report("compared with the exact one: means over chains, difference ± standard error over chains (95% interval)")
    for name in ("n_nodes", "n_leaves", "n_components", "entropy", "largest_branch", "log_joint"):
        gap, error, half = shared.difference(paper.summaries[name], exact.summaries[name])
        means = paper.summaries[name].mean(), exact.summaries[name].mean()
        differs = "differs" if abs(gap) > half else "not decided"
        report(
            f"  {name:<15} paper {means[0]:9.3f}  exact {means[1]:9.3f}  difference {gap:+8.3f} ± {error:.3f} "
            f"({gap - half:+.3f} to {gap + half:+.3f}): {differs}"
        )
    rhat = shared.convergence(paper).loc["log_joint", "rhat"]
    report(f"  R-hat of the log joint with the paper's update: {rhat:.3f}; {shared.capacity(paper)}")


def main() -> None:
    options = shared.own_arguments(__doc__, items=False).parse_args()
    sizes = shared.sizes_of(options, SMALL, FULL)
    report = Report(options.out, "bhmc_animals")
    data = load("animals33")
    X = bnp.datasets.principal_components(data.X, 7)
    report("BHMC Figures 3 and 4: animals (33 x 102) on 7 principal components, centred and not scaled")
    report(f"alpha 0.4, gamma0 1, gamma 0.5, sigma^2 1, L 4, H = N(0, I); {sizes};")
    report(f"  seed {options.seed}; {'paper sizes' if options.full else 'small sizes'}")
    report("path Gibbs from overdispersed starts (the paper: Metropolis-Hastings updates of paths, starts not given)\n")
    with StoredChains(options, __file__) as chains:
        exact = shared.sample(MODEL, X, sizes, options.seed, chains.path("exact"))
        learned = shared.sample(LEARNED, X, sizes, options.seed, chains.path("learned"), all_moves=True)
        paper = shared.sample(MODEL, X, sizes, options.seed + 1, chains.path("paper"), mixing="paper")
        figure3(report, exact, sizes.thinning)
        names = list(data.item_names or ())
        figure4(report, exact, names, options.seed)
        others(report, X, exact, learned, names, options.seed)
        papers_draw(report, exact, paper)
        report.save()


if __name__ == "__main__":
    main()
