"""Recommend a likelihood, its prior and the methods that fit the time budget, for a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.advice.column_kinds import ColumnKind, in_brackets, infer_column_kinds, names_of_columns
from bnp_hier.advice.covariance_structures import Choice, Structure, best_component
from bnp_hier.advice.default_models import mixture
from bnp_hier.advice.model_checks import warnings_about
from bnp_hier.advice.preparation import prepared
from bnp_hier.components import Component, LearnedPrior
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.tabular import RawTable, Roles, is_frame, rows_like
from bnp_hier.inspection.trace import Model
from bnp_hier.methods import Method, Outcome, RunOptions, Size, lengthened, partition_methods, run_methods, shortened
from bnp_hier.partitions.engine import has_kernels
from bnp_hier.partitions.row_features import feature_map
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.jax_settings import standard_settings
from bnp_hier.utils.options import SEED, PositiveNumber, check_options
from bnp_hier.utils.wording import rough_time

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Advice", "Recommendation", "default_budget", "plan_methods", "recommend", "recommend_for", "size_of"]

SHARE_OF_CHAINS = 0.75
"""Share of the time budget that MCMC may use."""

MOST_COLUMNS = 20
"""Largest number of columns that are all printed."""

LEAST_SWEEPS = 600
"""Minimum number of sweeps, over all chains, that is worth running."""


class Advice(NamedTuple):
    """Advice on one method.

    - **name**, **title** - short name and title of the method.
    - **chosen** - whether to run it.
    - **seconds** - expected time on two cores, including compilation; only the order of magnitude is reliable.
    - **reason** - why to run it or not.
    - **options** - how to run it.
    """

    name: str
    title: str
    chosen: bool
    seconds: float
    reason: str
    options: RunOptions


@dataclass(frozen=True)
class Recommendation:
    """Recommended component and methods for a table, with the reasons; prints as text.

    Parameters
    ----------
    family, family_reason
        Likelihood of one cluster, named as for `bnp-hier --family`, and the reason for choosing it.
    component
        The likelihood, with the priors on its hyperparameters that its `from_data` derives from the data.
    model
        Dirichlet-process mixture of the component, with concentration ~ Gamma(2, 20).
    columns
        Kind of each column.
    choice
        The family, and the covariance structures that were compared to choose it, the best first.
    methods
        Advice on every method, in order of priority.
    warnings
        Choices that look wrong, each with a suggestion.
    data
        The prepared data, whose notes say what was left out or converted; None if X was an array of numbers.
    """

    family: str
    family_reason: str
    component: Component | LearnedPrior
    model: Model
    columns: tuple[ColumnKind, ...]
    choice: Choice
    methods: tuple[Advice, ...]
    warnings: tuple[str, ...]
    data: Dataset | None = None

    @property
    def structures(self) -> tuple[Structure, ...]:
        """Covariance structures that were compared, the best first."""
        return self.choice.structures

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the methods to run."""
        return tuple(advice.name for advice in self.methods if advice.chosen)

    @property
    def seconds(self) -> float:
        """Expected time of the chosen methods together, in seconds."""
        return sum(advice.seconds for advice in self.methods if advice.chosen)

    def table(self) -> pd.DataFrame:
        """DataFrame with one row per method: title, whether to run it, expected minutes, reason."""
        import pandas as pd

        rows = [(a.name, a.title, a.chosen, a.seconds / 60, a.reason) for a in self.methods]
        return pd.DataFrame(rows, columns=["method", "title", "run", "minutes", "reason"]).set_index("method")

    def fit(self, X: ArrayLike | pd.DataFrame) -> Outcome:
        """Run the chosen methods; `bnp_hier.compare(outcome.fits, X)` then compares them.

        Columns of a DataFrame are converted as those of the recommendation were. After Ctrl-C, the results of finished methods
        and the MCMC draws collected so far are kept.
        """
        rows = as_matrix(X) if self.data is None else rows_like(self.data, X)
        return run_methods(self.chosen, self.model, rows, {advice.name: advice.options for advice in self.methods})

    def __str__(self) -> str:
        family = self.component.family if isinstance(self.component, LearnedPrior) else type(self.component)
        lines = [f"{family.__name__} (--family {self.family}): {self.family_reason}.", "", *self._columns_in_words(), ""]
        if self.structures:
            lines += ["covariance                 score  log joint  leave one out  clusters"]
            lines += [
                f"{s.covariance:<22} {s.score:>9.1f} {s.log_joint:>10.1f} {s.leave_one_out:>14.1f} {s.clusters:>9}"
                for s in self.structures
            ]
            lines += [f"{covariance}: not compared, {reason}" for covariance, reason in self.choice.left_out.items()] + [""]
        lines += [f"{note}." for note in (() if self.data is None else self.data.notes)]
        for advice in self.methods:
            mark = "run " if advice.chosen else "skip"
            lines.append(f"{mark} {advice.title:<20} {rough_time(advice.seconds):>9}  {advice.reason}")
        lines += ["", *(f"warning: {warning}." for warning in self.warnings)]
        return "\n".join(lines).rstrip()

    def _columns_in_words(self) -> list[str]:
        """What the columns are taken for; of many, only those for which there is an alternative."""
        shown = self.columns if len(self.columns) <= MOST_COLUMNS else [kind for kind in self.columns if kind.alternative]
        lines = [f"{kind.name}: {kind.kind}, {kind.reason}{in_brackets(kind)}" for kind in shown[:MOST_COLUMNS]]
        left = len(self.columns) - len(lines)
        return lines + ([f"and {left} further columns"] if left else [])


@standard_settings()
def recommend(
    X: ArrayLike | Dataset,
    *,
    family: str = "auto",
    feature_names: Sequence[str] | None = None,
    kinds: Mapping[Any, str] | None = None,
    budget: float | None = None,
    random_state: int = 0,
    progress_bar: bool = True,
) -> Recommendation:
    """Recommend a component with its default prior and the methods that fit the time budget, and warn about dubious choices.

    The component is inferred from the columns (bits, counts, continuous numbers, missing values). For several continuous
    columns, up to 100, MAP-DP is fitted to at most 1,000 rows with full, diagonal, spherical and (for up to 12 columns) shared
    covariance matrices, and those with the largest log joint, less a cost for their hyperparameters, are chosen. Methods are
    chosen in order of priority as long as they fit the remaining time; none is run.

    Parameters
    ----------
    X
        Data, (n, d); NaN is a missing value. A pandas or polars DataFrame is prepared as by `bnp_hier.cluster`: columns that
        cannot or should not shape clusters are left out, and codes become categories. An array and a `Dataset` are used as they
        are.
    family
        Likelihood of one cluster: "auto" for the one that suits the columns, or "normal" (any covariance), "diagonal",
        "known", "spherical", "bernoulli", "multinomial", "poisson" or "mixed".
    feature_names
        Names of the columns.
    kinds
        What to take columns for, instead of what their values suggest: name -> "continuous", "count" or "binary" or, of a
        DataFrame, any kind as in `bnp_hier.datasets.from_frame`.
    budget
        Time budget for all methods together, in seconds on two cores; of the expected times, only the order of magnitude is
        reliable. Chains end before it is spent if they have converged. By default, from 115 s for few rows to 360 s for 10,000
        rows or more.
    random_state, progress_bar
        Seed of the methods, and whether they show progress bars, when run by `Recommendation.fit`.

    Returns
    -------
    recommendation
        `Recommendation`, which prints as text; its `fit` runs the chosen methods.

    Raises
    ------
    ValueError
        If X is not a table of numbers or does not fit the family, or an option is invalid.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> advice = bnp.recommend(bnp.datasets.load("iris").X)
    >>> advice.family, advice.chosen[:3]
    ('normal', ('map-dp', 'bhc', 'gibbs'))
    """
    check_options(
        "recommend",
        {
            "family": [str],
            "feature_names": [None, "array-like"],
            "kinds": [None, Mapping],
            "budget": [None, PositiveNumber()],
            "random_state": SEED,
        },
        {
            "family": family,
            "feature_names": feature_names,
            "kinds": kinds,
            "budget": budget,
            "random_state": random_state,
        },
    )
    options = RunOptions(random_state=random_state, progress_bar=progress_bar, first_check=RunOptions.samples // 2)
    data = None
    if is_frame(X) and feature_names is None:
        data, kinds = prepared(RawTable.of_frame(X, "X"), Roles(kinds=kinds or {})).data, None
        assert data is not None  # or there was an error
        X = data
    if isinstance(X, Dataset):
        given = X.column_kinds | dict(kinds or {})
        table = _NamedColumns(
            as_matrix(X.X, min_rows=2), names_of_columns(X.X, feature_names or X.feature_names), X.categories, given
        )
    else:
        table = _NamedColumns(as_matrix(X, min_rows=2), names_of_columns(X, feature_names), (), kinds)
    return replace(_recommendation(table, family, budget, options), data=data)


def recommend_for(
    data: Dataset, family: str, budget: float | None, options: RunOptions, concentration: float | None = None
) -> Recommendation:
    """`recommend` for a `Dataset`, with the longest chains wanted and, unless it is None, the concentration of the mixture."""
    table = _NamedColumns(as_matrix(data.X, min_rows=2), data.feature_names, data.categories, data.column_kinds)
    return _recommendation(table, family, budget, options, concentration)


class _NamedColumns(NamedTuple):
    """The data and what is known about the columns."""

    X: Float[np.ndarray, "n d"]
    names: tuple[str, ...]
    categories: tuple[tuple[int, ...], ...]
    kinds: Mapping[Any, str] | None


def _recommendation(
    table: _NamedColumns, family: str, budget: float | None, options: RunOptions, concentration: float | None = None
) -> Recommendation:
    if budget is not None and not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, but it is {budget!r}")
    X, names, categories, kinds = table
    choice = best_component(X, family, names, categories, options.random_state, kinds, concentration)
    chosen = choice.family
    model = mixture(chosen.prior, concentration)
    options = replace(options, labels=choice.labels)
    return Recommendation(
        family=chosen.name,
        family_reason=chosen.reason,
        component=chosen.prior,
        model=model,
        columns=infer_column_kinds(X, names, categories, kinds),
        choice=choice,
        methods=plan_methods(size_of(chosen.component, X), budget or default_budget(len(X)), options),
        warnings=warnings_about(model, X, names, kinds, default_prior=True),
    )


def default_budget(rows: int) -> float:
    """Default time budget for all methods together: from 115 s for few rows to 360 s for 10,000 rows or more."""
    return 115.0 + 245.0 * min(1.0, rows / 10_000)


def size_of(component: Component, X: np.ndarray) -> Size:
    """Size of the problem: the number of rows, of distinct sufficient statistics per row, and whether native kernels run."""
    incomplete = int(component.incomplete_cells(X).any(axis=1).sum())
    return Size(len(X), feature_map(component).width, has_kernels(component), incomplete)


def plan_methods(size: Size, budget: float, options: RunOptions) -> tuple[Advice, ...]:
    """Decide which methods to run within the time budget, in order of priority.

    Parameters
    ----------
    size
        Size of the problem.
    budget
        Time budget in seconds.
    options
        Options with the longest chains wanted; the chains are shortened if the budget requires it.
    """
    plan, left = [], budget
    ordered = sorted(partition_methods().values(), key=lambda method: method.worth)  # stable: the first of equals is preferred
    obstacles = {method.name: method.obstacle(size) for method in ordered}
    chains = [method for method in ordered if method.is_chain and not obstacles[method.name]]
    for method in ordered:
        if method in chains[1:]:
            continue
        if obstacles[method.name]:
            plan.append(
                Advice(method.name, method.title, False, method.seconds(size, options), obstacles[method.name], options)
            )
            continue
        advice = _chains(chains, size, budget, left, options) if method.is_chain else [_once(method, size, left, options)]
        plan += advice
        left -= sum(one.seconds for one in advice if one.chosen)
    return tuple(plan)


def _once(method: Method, size: Size, left: float, options: RunOptions) -> Advice:
    """Advice on a method whose run time cannot be adjusted."""
    seconds = method.seconds(size, options)
    if seconds > left:
        return Advice(method.name, method.title, False, seconds, f"no time left in the budget; {method.gives}", options)
    return Advice(method.name, method.title, True, seconds, method.gives, options)


def _chains(chains: Sequence[Method], size: Size, budget: float, left: float, options: RunOptions) -> list[Advice]:
    """Advice on all kernels: run the one with the most sweeps in the available time, unless they are too few."""
    time_for_chains = min(left, SHARE_OF_CHAINS * budget)
    affordable = {method.name: _affordable(method, size, time_for_chains, options) for method in chains}
    method, *others = sorted(chains, key=lambda method: -affordable[method.name])
    name, enough = method.name, min(LEAST_SWEEPS, options.sweeps)
    taken = shortened(options, max(affordable[name], enough))
    seconds = method.seconds(size, taken)
    if affordable[name] < enough:
        reason = f"{taken.sweeps} sweeps, the minimum worth running, exceed the budget; {method.gives}"
        taken = replace(taken, first_check=None)
        advice = Advice(name, method.title, False, seconds, reason, taken)
    else:
        cut = "" if taken == options else f"; shortened to {taken.chains} chains of {taken.samples} draws to fit the budget"
        limited = lengthened(replace(taken, time_limit=taken.time_limit or time_for_chains))
        advice = Advice(name, method.title, True, seconds, method.gives + cut, limited)
    because = f"{method.title} draws from the same posterior and suits a table of this size better"
    skipped = [Advice(other.name, other.title, False, other.seconds(size, taken), because, taken) for other in others]
    return [advice, *skipped]


def _affordable(method: Method, size: Size, seconds: float, options: RunOptions) -> int:
    """Number of sweeps that fit in the time, at most the number requested."""
    few = shortened(options, 0)
    least = method.seconds(size, few)
    a_sweep = (method.seconds(size, options) - least) / max(options.sweeps - few.sweeps, 1)
    more = (seconds - least) / a_sweep if a_sweep > 0 else np.inf
    return int(min(options.sweeps, few.sweeps + more))
