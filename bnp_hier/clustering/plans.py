"""The plan of a clustering: the rows to fit, the likelihood, and the methods that fit the time budget."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.advice.covariance_structures import Structure
from bnp_hier.advice.default_models import described
from bnp_hier.advice.preparation import empty_rows, incomplete_rows
from bnp_hier.advice.recommendation import Recommendation, default_budget, recommend_for
from bnp_hier.datasets import Dataset
from bnp_hier.methods import METHODS, Method, Outcome, RunOptions, partition_methods, run_methods
from bnp_hier.posterior.convergence import LARGEST_RHAT, LEAST_ESS
from bnp_hier.utils.deadlines import end_by
from bnp_hier.utils.wording import listed

__all__ = ["ClusteringOptions", "ClusteringPlan", "compile_ahead"]

DROPPED_ROWS = ("empty", "missing")
"""Rows that can be left out."""

AFTERWARDS = 10.0
"""Least time (s) for what follows the methods: point estimates, the table, and profiles of the clusters.

It takes about as long as the plan, because both mostly compile programs, and a tenth of the time budget is kept besides.
"""

SHARE_OF_PLAN = 0.5
"""Share of the time budget after which the search for a likelihood ends."""

LEAST_SEARCH = 10.0
"""Time (s) that searches may take even if the budget is shorter: for a small table, they need less."""

AHEAD = {
    "map-dp": ("normal", "descend", "merge_pair", "anneal", "joint", "known", "diagonal"),
    "bhc": ("marginals_of", "predictives", "agglomerate", "tree_masses", "node_statistics"),
    "gibbs": ("step_of_gibbs", "row_densities", "summaries_of", "joint"),
}
"""Native kernels and families that methods need, but not at once, and that take long to compile."""


@dataclass(frozen=True)
class ClusteringOptions:
    """Options of a clustering.

    Parameters
    ----------
    family
        Likelihood of one cluster, as in `bnp_hier.recommend`.
    methods
        Names of the methods to run; None for those that fit the time budget.
    budget
        Time budget (s) for all that is done, from the choice of the likelihood to the summary; None for that of `recommend`.
    concentration
        Concentration of the Dirichlet process; None for a Gamma(2, 20) prior.
    held_out
        Share of the rows to hold out from all methods for scoring their predictions.
    drop_rows
        Which rows to leave out: "empty", those without any value, or "missing", those in which a value is missing.
    random_state
        Random seed.
    chains, warmup, samples
        Number of chains, and lengths that are kept whatever the budget; None for chains that end when they have converged or
        the budget is spent.
    progress_bar
        Whether to show progress bars.
    """

    family: str = "auto"
    methods: Sequence[str] | None = None
    budget: float | None = None
    concentration: float | None = None
    held_out: float = 0.0
    drop_rows: str = "empty"
    random_state: int = 0
    chains: int = RunOptions.chains
    warmup: int | None = None
    samples: int | None = None
    progress_bar: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.held_out < 1.0:
            raise ValueError(f"held_out must be at least 0 and less than 1, but it is {self.held_out!r}")
        if self.drop_rows not in DROPPED_ROWS:
            raise ValueError(f"drop_rows must be one of {', '.join(DROPPED_ROWS)}, but it is {self.drop_rows!r}")
        if self.methods is not None:
            unknown = [name for name in self.methods if name not in partition_methods()]
            if unknown or not self.methods:
                known = ", ".join(partition_methods())
                raise ValueError(f"methods must be some of {known}, but it is {list(self.methods)!r}")

    @property
    def longest(self) -> RunOptions:
        """The longest chains wanted."""
        warmup = RunOptions.warmup if self.warmup is None else self.warmup
        samples = self.samples or RunOptions.samples
        check = RunOptions.samples // 2 if self.warmup is None and self.samples is None else None
        return RunOptions(self.chains, warmup, samples, None, self.random_state, self.progress_bar, first_check=check)


@dataclass(frozen=True, eq=False)
class ClusteringPlan:
    """What to run on a data set, decided before anything is run.

    Parameters
    ----------
    data
        The rows to fit.
    fitted_rows
        (n,) their places among all rows.
    held_out
        The rows that are held out; None if there are none.
    left_out
        Places of the rows that are left out because values are missing.
    row_names
        Names of the fitted rows and of those left out, in the order of the data; None if the rows have no names.
    advice
        The likelihood and the methods, as recommended.
    methods
        Names of the methods to run.
    run_options
        How to run each method, by name.
    asked
        The options that the plan was made for.
    spent
        Time that the plan took (s), of the budget.
    """

    data: Dataset
    fitted_rows: Int[np.ndarray, " n"]
    held_out: Float[np.ndarray, "m d"] | None
    left_out: Int[np.ndarray, " r"]
    row_names: tuple[str, ...] | None
    advice: Recommendation
    methods: tuple[str, ...]
    run_options: dict[str, RunOptions]
    asked: ClusteringOptions
    spent: float = 0.0

    @classmethod
    def of(cls, whole: Dataset, asked: ClusteringOptions) -> ClusteringPlan:
        """Choose the likelihood and the methods.

        Raises
        ------
        ValueError
            If the data or the options are invalid.
        """
        begun = time.perf_counter()
        if asked.samples is not None:
            asked.longest.check_memory(len(whole.X))
        compile_ahead(asked.methods)
        lacking = empty_rows(whole) if asked.drop_rows == "empty" else incomplete_rows(whole)
        there, left_out = np.flatnonzero(~lacking), np.flatnonzero(lacking)
        if len(there) < 2:
            raise ValueError(f"{len(left_out)} of {len(whole.X)} rows have missing values; clustering needs at least 2 others")
        kept, rest = (there[some] for some in _split(len(there), asked.held_out, asked.random_state))
        data = whole if len(kept) == len(whole.X) else whole.rows(kept)
        if len(left_out):
            what = "have no value" if asked.drop_rows == "empty" else "lack a value"
            note = f"{len(left_out)} of {len(whole.X)} rows {what} and are left out: {listed(left_out, 5)} (from 0)"
            data = replace(data, notes=(*data.notes, note))
        # without a budget, results do not depend on how fast the machine is
        end = math.inf if asked.budget is None else begun + max(SHARE_OF_PLAN * asked.budget, LEAST_SEARCH)
        with end_by(end):
            advice = recommend_for(data, asked.family, asked.budget, asked.longest, asked.concentration)
        options = {each.name: each.options for each in advice.methods}
        if asked.warmup is not None or asked.samples is not None:  # as requested, even if they exceed the budget
            options = dict.fromkeys(options, replace(asked.longest, labels=advice.choice.labels))
        methods = advice.chosen if asked.methods is None else tuple(asked.methods)
        if all(METHODS[name].is_chain for name in methods):  # no other method learns where they start
            start = advice.choice.hyperparameters
            options = {name: replace(each, hyperparameters=start) for name, each in options.items()}
        held_out, names = whole.X[rest] if len(rest) else None, whole.item_names
        if names is not None:
            names = tuple(names[place] for place in np.sort(np.concatenate([kept, left_out])))
        spent = time.perf_counter() - begun
        return cls(data, kept, held_out, left_out, names, advice, methods, options, asked, spent)

    @property
    def rows(self) -> Int[np.ndarray, " m"]:
        """Places of the fitted rows and of those left out, among all rows."""
        return np.sort(np.concatenate([self.fitted_rows, self.left_out]))

    @property
    def budget(self) -> float:
        """Time budget (s)."""
        return self.asked.budget or default_budget(len(self.data.X))

    def run(
        self, begun: Callable[[Method], None] | None = None, ended: Callable[[Method, float], None] | None = None
    ) -> Outcome:
        """Run the methods, with callbacks as in `run_methods`.

        After Ctrl-C, the results of finished methods and the draws collected so far are kept.

        Raises
        ------
        KeyboardInterrupt, ValueError
            If there is no result, because of Ctrl-C or because all methods failed.
        """
        left = math.inf if self.asked.budget is None else max(self.budget - self.spent, LEAST_SEARCH)
        with warnings.catch_warnings(), end_by(time.perf_counter() + left):
            for known in ("the learned ", "all "):  # on priors that the user has not chosen, and what the headline says
                warnings.filterwarnings("ignore", f"{known}.*(at the edge of its prior|rows are in one cluster)")
            until = time.perf_counter() + 0.9 * self.budget - self.spent - max(AFTERWARDS, self.spent)
            outcome = run_methods(
                self.methods, self.advice.model, self.data.X, self.run_options, begun=begun, ended=ended, until=until
            )
        if not outcome.fits:
            if outcome.interrupted:
                raise KeyboardInterrupt
            raise ValueError("; ".join(map(self._with_column, outcome.problems)))
        return outcome

    def _with_column(self, problem: str) -> str:
        """A problem; if it is a row that fits no cluster, with its most unusual value and what to do about it."""
        found = re.search(r"row (\d+) fits no cluster", problem)
        if found is None:
            return problem
        X = self.data.X
        middle, width = np.nanmedian(X, axis=0), np.nanstd(X, axis=0)
        row = X[int(found.group(1))]
        j = int(np.nanargmax(np.abs(row - middle) / np.where(width > 0, width, 1.0)))
        name = next(name for name, places in self.data.source_columns.items() if j in places)
        return (
            f"{problem}; its most unusual value is {row[j]:g} in column {name!r}: correct it, leave out the column "
            f"(drop=[{name!r}] or --drop), or take it as another kind (kinds= or --kinds)"
        )

    @property
    def facts(self) -> dict[str, str]:
        """Name -> value: the settings of the run, for a report."""
        n, d, asked, advice = len(self.data.X), len(self.data.source_columns), self.asked, self.advice
        held = "" if self.held_out is None else f", {len(self.held_out)} rows held out"
        skipped = [] if asked.methods is not None else [each for each in advice.methods if not each.chosen]
        structures = {"covariance matrices": "; ".join(map(_scored, advice.structures))} if advice.structures else {}
        return {
            "data": "; ".join([f"{self.data.name}, {n} rows × {d} columns{held}", *self.data.notes]),
            "family": f"{advice.family}: {advice.family_reason}",
            **structures,
            "model": described(advice.component, asked.concentration),
            "chains": self._lengths(),
            "seed": str(asked.random_state),
            "not run": "; ".join(f"{each.title} ({each.reason.split(';')[0]})" for each in skipped) or "–",
        }

    def _lengths(self) -> str:
        """The chains' lengths in words."""
        of = [self.run_options[name] for name in self.methods if METHODS[name].is_chain]
        return ", ".join(map(_length, of)) or "none"


def _length(options: RunOptions) -> str:
    kept = "" if options.thinning == 1 else f", of which one in {options.thinning} is kept"
    if options.first_check is None:
        return f"{options.chains} chains of {options.warmup} warm-up and {options.samples} kept sweeps"
    return (
        f"{options.chains} chains of {options.warmup} warm-up sweeps and at most {options.samples} further ones{kept}, until "
        f"R\u2011hat is at most {LARGEST_RHAT} and effective sample sizes at least {LEAST_ESS:.0f}, or the time is spent"
    )


def _scored(structure: Structure) -> str:
    return (
        f"{structure.covariance}: score {structure.score:.1f}, leave-one-out {structure.leave_one_out:.1f} nats, "
        f"{structure.clusters} clusters"
    )


def _split(n: int, share: float, seed: int) -> tuple[Int[np.ndarray, " kept"], Int[np.ndarray, " rest"]]:
    """Rows to fit and rows to hold out."""
    if share == 0:
        return np.arange(n), np.arange(0)
    m = round(share * n)
    if m == 0:
        least = f"expected 0 or at least {1 / n:.2g}"
        raise ValueError(f"held_out= or --held-out {share:g} of {n} rows is less than one row; {least}")
    if n - m < 2:
        raise ValueError(
            f"held_out= or --held-out {share:g} holds out {m} of {n} rows and leaves {n - m} for the methods, "
            "which need at least 2"
        )
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[m:]), order[:m]


def compile_ahead(methods: Sequence[str] | None) -> None:
    """Start to compile the kernels of methods on another core, the first time that they are needed on this machine."""
    with suppress(ImportError):  # without Numba, there are no kernels
        from bnp_hier.native.warming_up import start_compiling

        # covariance structures are compared by MAP-DP, whatever the methods
        start_compiling(
            [name for method, names in AHEAD.items() if method in ("map-dp", *(methods or AHEAD)) for name in names]
        )
