"""What the constants of the searches buy: annealed sweeps, temperatures and starts, each changed alone.

Two searches run at every setting: that for the start of learned hyperparameters (all estimators, module
``deterministic.learned_hyperparameters``), and that for partitions near a tree (``BHC(refine="full")``, module
``deterministic.agglomeration.partition_search``), on tables that ship and on generated ones. The score is how many nats the log
joint lies below the best that any setting reached on the same table; times are CPU seconds of a second search, which compiles
nothing, relative to those of the present setting. Run ``python -m examples.benchmarks.search_constants``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bnp_hier as bnp
from bnp_hier.deterministic import learned_hyperparameters as starts
from bnp_hier.deterministic.agglomeration import partition_search as search
from bnp_hier.deterministic.hard_assignment.free_energies import log_joint_objective
from bnp_hier.inspection.problem import Problem

Settings = dict[str, dict[str, Any]]

LEARNED: Settings = {
    "present": {},
    "no annealed runs": {"SWEEPS": 1},
    "10 sweeps": {"SWEEPS": 10},
    "60 sweeps": {"SWEEPS": 60},
    "from 1.5 and 4": {"HOT": (1.5, 4.0)},
    "from 10 and 30": {"HOT": (10.0, 30.0)},
    "from 3": {"HOT": (3.0,)},
    "no second partition": {"KEPT": 0},
    "second partitions of 4": {"KEPT": 4},
    "no seedings": {"SEEDINGS": ()},
    "1 order of rows": {"ORDERS": 1},
}
FULL, HALF, TWICE = search.Effort(200, 40, 4), search.Effort(80, 40, 4), search.Effort(500, 40, 4)
REFINED: Settings = {
    "present": {},
    "80 sweeps": {"effort": HALF},
    "500 sweeps": {"effort": TWICE},
    "8 generations": {"effort": search.Effort(200, 8, 4)},
    "stop after 1 idle generation": {"effort": search.Effort(200, 40, 1)},
    "from 1.1 and 1.5": {"HOT": (1.1, 1.5)},
    "from 4 and 10": {"HOT": (4.0, 10.0)},
    "4 runs": {"RUNS": 4},
    "16 runs": {"RUNS": 16},
    "anneal the best only": {"ANNEALED": 1},
}


def tables() -> dict[str, np.ndarray]:
    """Shipped tables of numbers, and mixtures of normals that overlap."""
    shipped = {name: bnp.datasets.load(name).X for name in ("iris", "wine", "glass", "yeast_cellcycle_384")}
    for seed, (n, d, k, distance) in enumerate([(100, 2, 4, 2.0), (300, 4, 6, 2.0), (500, 8, 8, 1.5), (400, 2, 12, 4.0)]):
        rng = np.random.default_rng(seed)
        centres, labels = distance * rng.normal(size=(k, d)), rng.integers(k, size=n)
        shipped[f"{n} x {d}, {k} clusters"] = centres[labels] + rng.normal(size=(n, d)) * rng.uniform(0.3, 1.5, (k, 1))[labels]
    return shipped


@contextmanager
def changed(module: Any, values: dict[str, Any]) -> Iterator[None]:
    """Set the constants of a module for a while."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


class Labels(NamedTuple):
    """A fit as the objective takes it."""

    labels: Any


def learned(X: np.ndarray, values: dict[str, Any]) -> float:
    """Log joint + log prior of the hyperparameters from which an estimator starts."""
    problem = Problem(partial(bnp.models.dpm, component=bnp.NormalInverseWishart.from_data(X)), X)
    with changed(starts, values):
        (problem.unconstrained,), labels = starts.starting_hyperparameters(problem, np.random.default_rng(0))
    return log_joint_objective(problem, "dp").value(Labels(labels))


def refined(X: np.ndarray, values: dict[str, Any]) -> float:
    """Log joint of the best partition near a tree, at fixed hyperparameters."""
    component = bnp.NormalInverseWishart.from_data(X)
    values = dict(values)
    effort = values.pop("effort", FULL)
    with changed(search, values):
        first = bnp.BHC(partial(bnp.models.dpm, component=component, concentration=1.0), optimize=False).fit(X)
        found = search.search_partitions(component, X, 1.0, first.labels_[None], np.random.default_rng(0), effort)
    return float(found[1].max())


def table_of(name: str, fit: Callable[[np.ndarray, dict[str, Any]], float], settings: Settings) -> str:
    """Run a search at every setting, and format how far each falls short."""
    reached = {each: np.empty((len(settings), 2)) for each in tables()}
    for each, X in tables().items():
        fit(X, {})
        for row, values in enumerate(settings.values()):
            fit(X, values)  # compiles what this setting needs
            begun = time.process_time()
            score = fit(X, values)
            reached[each][row] = score, time.process_time() - begun
        print(each, reached[each].round(2).tolist(), flush=True)
    lines = [f"| {name} | CPU | worst | {' | '.join(reached)} |", "| --- " * (3 + len(reached)) + "|"]
    short = {each: values[:, 0].max() - values[:, 0] for each, values in reached.items()}
    for row, setting in enumerate(settings):
        cost = np.exp(np.mean([np.log(values[row, 1] / values[0, 1]) for values in reached.values()]))
        cells = [short[each][row] for each in reached]
        lines.append(f"| {setting} | {cost:.2f} | {max(cells):.1f} | {' | '.join(f'{cell:.1f}' for cell in cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)  # the searches are called without their estimators
    parts = [table_of("learned hyperparameters", learned, LEARNED), table_of("near a tree", refined, REFINED)]
    assert __doc__ is not None
    heading = "# Constants of the searches\n\nMade by `python -m examples.benchmarks.search_constants`.\n\n"
    told = "Nats below the best of all settings on the same table; CPU is relative to the present setting.\n\n"
    Path(__file__).with_suffix(".md").write_text(heading + told + "\n\n".join(parts) + "\n")
