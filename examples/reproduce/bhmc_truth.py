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
from functools import partial
from typing import Any, NamedTuple

import bhmc_common as shared
import numpy as np
import pandas as pd
from bhmc_fashion import scaled
from bhmc_text import DATA, texts
from common import Report, load, per_class
from scipy.special import gammaln
from stored_chains import StoredChains

import bnp_hier as bnp
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.nested_chinese_restaurant import log_tree_prior, read_tree
from bnp_hier.inspection.nested import read_tree_values
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


def log_stirling(largest: int) -> np.ndarray:
    """Logs of the unsigned Stirling numbers of the first kind: seatings of n customers at t tables."""
    table = np.full((largest + 1, largest + 1), -np.inf)
    table[0, 0] = 0.0
    for n in range(1, largest + 1):
        table[n, 1 : n + 1] = table[n - 1, :n]
        if n > 1:
            table[n, 1:n] = np.logaddexp(table[n, 1:n], np.log(n - 1.0) + table[n - 1, 1:n])
    return table


def integrated(draws: bnp.HierarchyDraws, chain: int, draw: int, stirling: np.ndarray, rng: np.random.Generator) -> float:
    """Log p(X, labels, tables, paths | hyperparameters) of a draw, with its proportions and parameters integrated out.

    Numbers of tables are drawn given the proportions: t of n customers with a parent's share a/γ, each opening one with
    probability a/(a + the number before it).
    """
    sites = draws.sites
    z = {name: values[chain, draw] for name, values in draws.samples.items()}
    values = read_tree_values(draws.model, sites, z, (draws.X,))
    paths, labels, mixing = z[sites.paths], z[sites.labels], np.asarray(z[sites.mixing], dtype=np.float64)
    alpha, gamma0, gamma = (
        float(value) for value in (values.concentration, values.root_concentration, values.mixing_concentration)
    )
    statistics = cluster_statistics(values.component.suff_stats(values.X), labels, sites.components)
    total = float(np.asarray(values.component.log_marginal(statistics), dtype=np.float64)[np.unique(labels)].sum())
    total += float(log_tree_prior(read_tree(paths, sites.max_nodes), alpha, sites.depth))
    customers = np.zeros((sites.max_nodes, sites.components), dtype=np.int64)
    np.add.at(customers, (paths[:, -1], labels), 1)
    for level in reversed(range(sites.depth)):
        parents = paths[:, level - 1] if level else np.zeros(len(paths), dtype=np.int64)
        for node, first in zip(*np.unique(paths[:, level], return_index=True), strict=True):
            counts, parent = customers[node], int(parents[first])
            total += gammaln(gamma) - gammaln(gamma + counts.sum())
            for k in np.flatnonzero(counts):
                a = gamma * max(mixing[parent, k], 1e-300)
                tables = 1 + int((rng.random(counts[k] - 1) * (a + np.arange(1, counts[k])) < a).sum())
                total += stirling[counts[k], tables] + tables * np.log(gamma)
                customers[parent, k] += tables
    share = gamma0 / sites.components
    total += gammaln(gamma0) - gammaln(gamma0 + customers[0].sum())
    return total + float((gammaln(share + customers[0]) - gammaln(share)).sum())


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


def one_set(report: Report, name: str, options: argparse.Namespace, sizes: shared.Sizes, chains: StoredChains) -> None:
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
    rng, stirling = np.random.default_rng(options.seed), log_stirling(n)
    for title, model in models.items():
        rows, lines = {}, []
        starts = [start_of(kind, table, options.depth) for kind in STARTS]
        each = sizes._replace(chains=len(starts))
        path = chains.path(f"{name}_{'learned' if title == 'learned' else 'paper'}")
        draws, fields = shared.run_chains(bnp.BHMCGibbs(model), table.X, each, options.seed, path, starts)
        joints = fields["log_joint"].astype(np.float64)
        for place, kind in enumerate(STARTS):
            tree = draws[place, kept + int(joints[place, kept:].argmax())]
            rows[kind] = row_of(tree, joints[place], table, kept, early)
            rows[kind]["integrated"] = np.mean(
                [integrated(draws, place, draw, stirling, rng) for draw in range(kept, draws.shape[1])]
            )
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
        best, most, truth = written["late mean"].idxmax(), written["integrated"].idxmax(), written.loc["classes"]
        report(f"  highest late mean: from {best}; highest integrated: from {most}")
        left = truth["late mean"] - truth["early max"]
        report(f"  the chain from the classes moves by {left:+.0f} nats from its early maximum")
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
    parser.add_argument("--nodes", type=int, help="limit on the nodes of the tree; none by default")
    options = parser.parse_args()
    sizes = shared.sizes_of(options, SMALL, FULL)
    report = Report(options.out, "bhmc_truth")
    report("BHMC: log joints of chains that start at the true classes, at Ward's tree with as many leaves, and at one path")
    report(
        f"L {options.depth}, K {options.components}, {options.nodes or 'any number of'} nodes; {sizes}; seed {options.seed};"
    )
    report(f"  {'large size' if options.full else 'small size'}")
    report("early max: over the first 20 sweeps, a local optimum near the start; late: after the warm-up")
    report("level 1, leaves: numbers of clusters in the tree with the greatest log joint after the warm-up")
    report("integrated: the late mean of log p(X, labels, tables, paths | hyperparameters), with proportions and parameters")
    report("  integrated out; the log joint, by which the paper chooses its tree, takes them as given")
    report("K: components in use; K purity, K F: of the partition of the items by component, means over the true levels")
    report("purity, F: of this tree, means over its levels, beside those of Ward's tree cut to as many clusters\n")
    with StoredChains(options, __file__) as chains:
        for name in options.data or (SETS if options.full else SETS[:1]):
            one_set(report, name, options, sizes, chains)
        report.save()


if __name__ == "__main__":
    main()
