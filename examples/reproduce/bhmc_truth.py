"""Huang et al. (2021): do trees of the true classes have a higher posterior density than those that the chains find?

Chains start from three trees: the true one (every class is a leaf with a component of its own), Ward's, cut to as many
leaves, and a single path. If the chain from the truth leaves it for trees of a higher log joint, the model prefers others; if
it stays at a higher log joint than the chains from elsewhere, those are caught. Two settings are run: those of the paper, and
the defaults of `bhmc`, which learn the hyperparameters.

The second table asks what the tree says about the components. The rows enter the posterior through the components alone:
given the items' components, tree and rows are independent, and the components are exchangeable. So the components of one
branch are no closer than any others. The table compares the mean distance between the centres of components in one child of
the root with that after random exchanges of the components.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import bhmc_common as shared
import jax
import numpy as np
import pandas as pd
from bhmc_fashion import scaled
from bhmc_text import DATA, texts
from common import Report, load, per_class
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.models import bhmc, bhmc_paper

SETS = ("fashion", *DATA)
STARTS = ("classes", "Ward", "one path")
SMALL, SMALL_ITEMS = shared.Sizes(chains=1, warmup=30, draws=30, thinning=2), 150
FULL, FULL_ITEMS = shared.Sizes(chains=1, warmup=300, draws=300, thinning=10), 1000
EXCHANGES = 200
"""Random exchanges of the components in the second table."""


class Table(NamedTuple):
    """Rows (n, d), true paths of the rows, and the finest true class of each."""

    X: np.ndarray
    paths: list[Any]
    classes: np.ndarray


def read(name: str, items: int, columns: int, seed: int) -> Table:
    """Principal components of the images or texts."""
    if name == "fashion":
        data = load("fashion_mnist_1000")
        number = len(np.unique(data.y))
        rows = np.sort(per_class(data.y, items // number, np.random.default_rng(seed)))
        X, paths = scaled(data.X[rows], "unit"), [[int(label)] for label in data.y[rows]]
    else:
        X, paths, _ = texts(name, items, columns, seed)
    # with hundreds of classes at the finest level, those of the last level with at most 40
    truth = bnp.Hierarchy.from_names(paths)
    counts = shared.counts_of(truth)
    level = max([level for level, count in enumerate(counts, 1) if count <= 40], default=1)
    return Table(X, paths, np.unique(truth.labels_at(level), return_inverse=True)[1])


def start_of(kind: str, table: Table, depth: int) -> dict[str, np.ndarray]:
    """Paths and labels of the first state: every leaf is a child of the root with a path of its own below."""
    labels = {
        "classes": table.classes,
        "Ward": shared.ward(table.X).to_hierarchy([len(np.unique(table.classes))]).labels_at(1),
        "one path": np.zeros(len(table.X), dtype=np.int64),
    }[kind]
    return {"paths": labels[:, None] * depth + np.arange(1, depth + 1), "labels": labels}


def chains(
    model: Callable[..., None], X: np.ndarray, starts: Sequence[Mapping[str, np.ndarray]], sizes: shared.Sizes, seed: int
) -> tuple[bnp.HierarchyDraws, np.ndarray]:
    """Draws of one chain from each of the given trees, and their log joints."""
    sweeps = sizes.warmup + sizes.draws
    mcmc = MCMC(
        bnp.BHMCGibbs(model),
        num_warmup=0,
        num_samples=sweeps,
        thinning=sizes.thinning,
        num_chains=len(starts),
        chain_method="sequential",
        progress_bar=False,
    )
    run = bnp.ResumableRun(mcmc, sweeps)
    first = {name: np.stack([start[name] for start in starts]) for name in starts[0]}
    run.run(jax.random.key(seed), X, init_params=first, extra_fields=("log_joint",))
    joint = np.asarray(run.get_extra_fields(group_by_chain=True)["log_joint"], dtype=np.float64)
    return bnp.hierarchy_draws(run, X), joint


def closeness(tree: bnp.Hierarchy, X: np.ndarray, rng: np.random.Generator) -> tuple[float, float, float]:
    """Mean distance between centres of components in one child of the root, and its mean and sd over random exchanges.

    A component counts for the child of the root that has most of its items; NaN if no two share one.
    """
    names = np.unique(tree.labels)
    centres = np.stack([X[tree.labels == name].mean(0) for name in names])
    branch = np.array([np.bincount(tree.paths[tree.labels == name, 0]).argmax() for name in names])
    distances = np.sqrt(((centres[:, None] - centres) ** 2).sum(-1))
    pairs = np.triu(branch[:, None] == branch, 1)
    if not pairs.any():
        return float("nan"), float("nan"), float("nan")
    orders = [rng.permutation(len(names)) for _ in range(EXCHANGES)]
    values = [distances[np.ix_(order, order)][pairs].mean() for order in orders]
    return float(distances[pairs].mean()), float(np.mean(values)), float(np.std(values))


def row_of(tree: bnp.Hierarchy, joint: np.ndarray, table: Table, kept: int, early: int) -> dict[str, float]:
    """One line of the first table, for the tree with the greatest log joint after the warm-up."""
    late = joint[kept:]
    counts = shared.counts_of(tree)
    scores = tree.scores(table.paths)
    theirs = shared.ward(table.X).to_hierarchy(counts).scores(table.paths)
    parts = bnp.Hierarchy(np.unique(tree.labels, return_inverse=True)[1][:, None] + 1)
    by_component = parts.scores(table.paths)
    return {
        "early max": joint[:early].max(),
        "late max": late.max(),
        "late mean": late.mean(),
        "K": len(np.unique(tree.labels)),
        "K purity": by_component["purity"].mean(),
        "K F": by_component["F-measure"].mean(),
        "level 1": counts[0],
        "leaves": counts[-1],
        "purity": scores["purity"].mean(),
        "Ward's": theirs["purity"].mean(),
        "F": scores["F-measure"].mean(),
        "Ward's F": theirs["F-measure"].mean(),
    }


def one_set(report: Report, name: str, options: argparse.Namespace, sizes: shared.Sizes) -> None:
    """Both tables for one data set."""
    items = options.items or (FULL_ITEMS if options.full else SMALL_ITEMS)
    table = read(name, items, options.columns, options.seed)
    n, d = table.X.shape
    capacity = {"max_components": options.components, "max_nodes": options.nodes}
    published = "fashion" if name == "fashion" else "texts"
    models = {
        f"the paper's ({published})": partial(bhmc_paper, settings=published, depth=options.depth, **capacity),
        "learned": partial(bhmc, depth=options.depth, **capacity),
    }
    report(f"{name}: {n} rows, {d} columns, {len(np.unique(table.classes))} classes")
    kept, early = sizes.warmup // sizes.thinning, max(20 // sizes.thinning, 1)
    rng = np.random.default_rng(options.seed)
    for title, model in models.items():
        rows, lines = {}, []
        starts = [start_of(kind, table, options.depth) for kind in STARTS]
        draws, joints = chains(model, table.X, starts, sizes, options.seed)
        for place, kind in enumerate(STARTS):
            tree = draws[place, kept + int(joints[place, kept:].argmax())]
            rows[kind] = row_of(tree, joints[place], table, kept, early)
            here = np.array([closeness(draws[place, draw], table.X, rng) for draw in range(kept, draws.shape[1])])
            here = here[~np.isnan(here[:, 0])]
            if len(here):
                found, exchanged, spread = here.mean(0)
                lines.append(f"    {kind:<9}{found:10.3f}   exchanged {exchanged:10.3f} ± {spread:.3f}")
            else:
                lines.append(f"    {kind:<9}no two components share a child of the root")
        written = pd.DataFrame(rows).T
        report(f"  settings: {title}")
        hits = int(draws.sample_stats["capacity_hits"][:, -1].sum())
        report(shared.written(written, 2))
        best, truth = written["late mean"].idxmax(), written.loc["classes"]
        left = truth["late mean"] - truth["early max"]
        report(f"  highest late mean: from {best}; the chain from the classes moves by {left:+.0f} nats from its early maximum")
        report(f"  capacity hits: {hits}")
        report("  mean distance between the centres of two components in one child of the root")
        report("\n".join(lines))
    report("")


def main() -> None:
    parser = shared.own_arguments(__doc__)
    parser.add_argument("--data", choices=SETS, action="append", help="data set; fashion by default, all with --full")
    parser.add_argument("--columns", type=int, default=30, help="principal components of texts")
    parser.add_argument("--depth", type=int, default=3, help="levels L")
    parser.add_argument("--components", type=int, default=50, help="components K")
    parser.add_argument("--nodes", type=int, default=512, help="capacity of the tree")
    options = parser.parse_args()
    sizes = shared.sizes_of(options, SMALL, FULL)
    report = Report(options.out, "bhmc_truth")
    report("BHMC: log joints of chains that start at the true classes, at Ward's tree with as many leaves, and at one path")
    report(f"L {options.depth}, K {options.components}, {options.nodes} nodes; {sizes}; seed {options.seed};")
    report(f"  {'large size' if options.full else 'small size'}")
    report("early max: over the first 20 sweeps, a local optimum near the start; late: after the warm-up")
    report("level 1, leaves: numbers of clusters in the tree with the greatest log joint after the warm-up")
    report("K: components in use; K purity, K F: of the partition of the items by component, means over the true levels")
    report("purity, F: of this tree, means over its levels, beside those of Ward's tree cut to as many clusters\n")
    for name in options.data or (SETS if options.full else SETS[:1]):
        one_set(report, name, options, sizes)
    report.save()


if __name__ == "__main__":
    main()
