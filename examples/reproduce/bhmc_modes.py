"""Huang et al. (2021): do chains of many sweeps from different starts agree, and if they do not, where are they caught?

Four chains start from different trees: one path, a draw from the prior, Ward's tree and the true classes, where each cluster or
class is a leaf with a component of its own. The first table has R-hat and the log joints by the number of sweeps. The second
table says where each chain ended, and how far the ends are apart. Then every chain starts again from the end of the next one,
with its own hyperparameters. If it stays near that end, the trees are modes, and the chains are caught in them; if it goes
back, the hyperparameters keep them apart.

All moves of `BHMCGibbs` are used, also those that the paper does not have. The integrated log joint has the proportions and
the parameters of components integrated out (see `bhmc_truth`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bhmc_common as shared
import jax
import numpy as np
import pandas as pd
from bhmc_text import DATA
from bhmc_truth import Table, integrated, log_stirling, read, start_of
from common import Report
from stored_chains import StoredChains

import bnp_hier as bnp
from bnp_hier.distributions import NestedChineseRestaurantProcess
from bnp_hier.models import bhmc, bhmc_paper
from bnp_hier.posterior.convergence import chain_diagnostics
from bnp_hier.posterior.point_estimates import expected_losses

SETS = ("fashion", DATA[0])
STARTS = ("one path", "prior", "Ward", "classes")
SMALL, SMALL_ITEMS = shared.Sizes(chains=len(STARTS), warmup=0, draws=80, thinning=2), 150
FULL = {
    ("fashion", "paper"): shared.Sizes(chains=len(STARTS), warmup=0, draws=10000, thinning=50),
    ("fashion", "learned"): shared.Sizes(chains=len(STARTS), warmup=0, draws=1000, thinning=5),
    (DATA[0], "paper"): shared.Sizes(chains=len(STARTS), warmup=0, draws=240, thinning=2),
}
"""Sweeps by data set and hyperparameters."""

ATTEMPTS = 20
"""Attempts per sweep to split components, to merge them, or to divide two of them anew."""

WINDOWS = 4
"""The last of these parts of a run has the second half of the sweeps, the one before it the second half of the rest, ..."""

PLACES = 12
"""Draws in each window for which the proportions are integrated out."""


class Chains:
    """One chain from each given state, run one after the other with all moves.

    - **draws** - the draws.
    - **summaries** - label-invariant quantities, (chain, draw).
    - **accepted** - accepted moves of components, nodes and subtrees over all sweeps, (chain, 3).
    """

    def __init__(
        self,
        model: Any,
        X: np.ndarray,
        starts: Sequence[Mapping[str, np.ndarray]],
        sizes: shared.Sizes,
        seed: int,
        path: Path,
    ) -> None:
        kernel = bnp.BHMCGibbs(model, split_merge=ATTEMPTS)
        self.draws, fields = shared.run_chains(kernel, X, sizes, seed, path, starts)
        self.summaries, self.accepted = self.draws.summaries(), fields["accepted"][:, -1]

    def end(self, chain: int, tree: int) -> dict[str, np.ndarray]:
        """A state with the hyperparameters of one chain, and the last tree and labels of another."""
        sites = self.draws.sites
        apart = (sites.mixing, sites.parameters)
        state = {name: values[chain, -1] for name, values in self.draws.samples.items() if name not in apart}
        paths = self.draws.paths[tree, -1]
        state[sites.paths] = np.unique(paths, return_inverse=True)[1].reshape(paths.shape) + 1
        state[sites.labels] = self.draws.labels[tree, -1]
        return state


def from_prior(items: int, depth: int, components: int, seed: int) -> dict[str, np.ndarray]:
    """Paths from a nested Chinese restaurant process with concentration 1, and a random component for every leaf."""
    paths = np.asarray(NestedChineseRestaurantProcess(1.0, items, depth).sample(jax.random.key(seed)))
    leaves = np.unique(paths[:, -1], return_inverse=True)[1]
    labels = np.random.default_rng(seed).integers(components, size=leaves.max() + 1)[leaves]
    return {"paths": paths, "labels": labels}


def windows(draws: int) -> list[slice]:
    """Parts of a run, each as long as all before it together."""
    ends = [draws >> place for place in reversed(range(WINDOWS))]
    return [slice(end // 2, end) for end in ends]


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Variation of information between two partitions (nats)."""
    return float(expected_losses(one[None], other[None], "vi")[0])


def log_joints(chains: Chains, chain: int, part: slice, stirling: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Log joints of some draws of a part, with the proportions and parameters integrated out."""
    places = np.unique(np.linspace(part.start, part.stop - 1, PLACES).astype(int))
    return np.array([integrated(chains.draws, chain, int(draw), stirling, rng) for draw in places])


def convergence(report: Report, chains: Chains, joints: Sequence[np.ndarray], sizes: shared.Sizes) -> None:
    """R-hat by the number of sweeps, and the mean integrated log joint of every chain."""
    rows = {}
    for place, part in enumerate(windows(chains.draws.shape[1])):
        with np.errstate(divide="ignore", invalid="ignore"):  # chains that never move have no R-hat
            table = chain_diagnostics({name: chains.summaries[name][:, part] for name in shared.SHOWN})
        sweeps = f"{part.start * sizes.thinning:,} to {part.stop * sizes.thinning:,}"
        rows[sweeps] = table["rhat"].to_dict() | {
            f"from {name}": joints[place][chain].mean() for chain, name in enumerate(STARTS)
        }
    report("  R-hat of the four chains, and their mean integrated log joint, by sweeps")
    report(shared.written(pd.DataFrame(rows), 2))


def ends(report: Report, chains: Chains, table: Table, last: np.ndarray) -> None:
    """Where the chains are in the second half of the run, and how far apart."""
    part, draws = windows(chains.draws.shape[1])[-1], chains.draws
    rows: dict[str, dict[str, float]] = {}
    for chain, name in enumerate(STARTS):
        tree, early = draws[chain, -1], draws[chain, part.start]
        rows[name] = {
            "integrated": last[chain].mean(),
            "sd": last[chain].std(),
            **{key: chains.summaries[key][chain, part].mean() for key in ("n_nodes", "n_components", "lca_depth")},
            "purity": tree.scores(table.paths)["purity"].mean(),
            "level 1, moved": apart(early.paths[:, 0], tree.paths[:, 0]),
            **{f"to {other}": apart(draws.paths[place, -1, :, 0], tree.paths[:, 0]) for place, other in enumerate(STARTS)},
            "components, moved": apart(early.labels, tree.labels),
            **{f"to {other} ": apart(draws.labels[place, -1], tree.labels) for place, other in enumerate(STARTS)},
        }
    report("  second half of the sweeps; moved, to: variation of information (nats) between its first and its last draw, and")
    report("  between the last draws of two chains, of the clusters of level 1 and of the components")
    report(shared.written(pd.DataFrame(rows), 2))


def again(report: Report, first: Chains, second: Chains, last: np.ndarray, joints: np.ndarray) -> None:
    """What becomes of a chain that starts at the end of the next one with its own hyperparameters."""
    rows: dict[str, dict[str, float]] = {}
    stays = 0
    for chain, name in enumerate(STARTS):
        other = (chain + 1) % len(STARTS)
        final = second.draws.labels[chain, -1]
        own, theirs = (apart(first.draws.labels[place, -1], final) for place in (chain, other))
        stays += theirs < own
        rows[f"{name} at {STARTS[other]}"] = {
            "its own before": last[chain].mean(),
            "the other's": last[other].mean(),
            "after": joints[chain].mean(),
            "to its own": own,
            "to the other's": theirs,
        }
    report(
        "  every chain again, from the end of the next one: integrated log joint, and variation of information of components"
    )
    report(shared.written(pd.DataFrame(rows).T, 2))
    report(f"  {stays} of {len(STARTS)} chains stay closer to the end at which they start than to their own")


def one_model(report: Report, model: Any, table: Table, options: argparse.Namespace, sizes: shared.Sizes, path: Path) -> None:
    """All tables for one data set and model, whose chains are stored at the path meanwhile, and beside it."""
    stirling, rng = log_stirling(len(table.X)), np.random.default_rng(options.seed)
    depth, seed = model.keywords["depth"], options.seed
    starts = [
        from_prior(len(table.X), depth, options.components, seed) if name == "prior" else start_of(name, table, depth)
        for name in STARTS
    ]
    first = Chains(model, table.X, starts, sizes, seed, path)
    parts = windows(first.draws.shape[1])
    joints = [np.stack([log_joints(first, chain, part, stirling, rng) for chain in range(len(STARTS))]) for part in parts]
    last = joints[-1]
    convergence(report, first, joints, sizes)
    of_components, of_nodes, of_subtrees = first.accepted.mean(0) / sizes.draws
    report(
        f"  accepted per sweep: {of_components:.4f} splits, merges and new divisions of components "
        f"({of_components / ATTEMPTS:.5f} of the attempts), {of_nodes:.2f} of nodes, and {of_subtrees:.2f} moves of subtrees"
    )
    ends(report, first, table, last)
    highest, spread = last.mean(1).max(), last.std(1).max()
    caught = [name for name, values in zip(STARTS, last, strict=True) if values.mean() < highest - 3 * spread]
    report(
        f"  from the best chain's mean: {', '.join(f'{value - highest:.0f}' for value in last.mean(1))}; largest sd in a chain "
        f"{spread:.0f}; caught (lower by over 3 sd): {', '.join(caught) or 'none'}"
    )
    states = [first.end(chain, (chain + 1) % len(STARTS)) for chain in range(len(STARTS))]
    short = sizes._replace(draws=max(sizes.draws // 10, 4 * sizes.thinning))
    second = Chains(model, table.X, states, short, seed + 1, path.with_stem(f"{path.stem}_again"))
    part = windows(second.draws.shape[1])[-1]
    after = np.stack([log_joints(second, chain, part, stirling, rng) for chain in range(len(STARTS))])
    again(report, first, second, last, after)
    hits = sum(int(chains.draws.sample_stats["capacity_hits"][:, -1].sum()) for chains in (first, second))
    report(f"  capacity hits: {hits}\n")


def one_set(name: str, options: argparse.Namespace, chains: StoredChains) -> None:
    """The report on one data set."""
    images = name == "fashion"
    report = Report(options.out, f"bhmc_modes_{name}")
    report("BHMC: chains from one path, the prior, Ward's tree and the true classes; do they agree?")
    report(f"K {options.components}; seed {options.seed}; {'large size' if options.full else 'small size'};")
    report(f"  all moves of BHMCGibbs, with {ATTEMPTS} attempts per sweep to split, merge or divide anew components")
    report("integrated: log p(X, labels, tables, paths | hyperparameters), proportions and parameters integrated out\n")
    items = options.items or ((1000 if images else 2303) if options.full else SMALL_ITEMS)
    table = read(name, items, 190 if options.full else 30, options.seed)
    depth = options.depth or ((5 if images else 7) if options.full else 3)
    report(f"{name}: {table.X.shape[0]} rows, {table.X.shape[1]} columns, L {depth}")
    room = {"depth": depth, "max_components": options.components}
    models = {"paper": partial(bhmc_paper, settings="fashion" if images else "texts", **room)}
    if images:  # normal components with 190 by 190 covariance matrices are too slow
        models["learned"] = partial(bhmc, **room)
    for title in (title for title in models if title in (options.settings or models)):
        sizes = shared.sizes_of(options, SMALL, FULL[name, title])
        report(f"  hyperparameters: {title}; {sizes}")
        one_model(report, models[title], table, options, sizes, chains.path(f"{name}_{title}"))
    report.save()


def main() -> None:
    parser = shared.own_arguments(__doc__)
    parser.add_argument("--data", choices=SETS, action="append", help="data set; fashion by default, both with --full")
    parser.add_argument("--components", type=int, default=50, help="components K")
    parser.add_argument("--depth", type=int, help="levels L; 3, or with --full the paper's 5 for images and 7 for texts")
    parser.add_argument("--settings", choices=("paper", "learned"), action="append", help="hyperparameters; both by default")
    options = parser.parse_args()
    with StoredChains(options, __file__) as chains:
        for name in options.data or (SETS if options.full else SETS[:1]):
            one_set(name, options, chains)


if __name__ == "__main__":
    main()
