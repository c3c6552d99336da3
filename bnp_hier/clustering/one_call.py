"""Clustering of a table by one call."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from sklearn.utils._param_validation import Interval
from tqdm import tqdm

from bnp_hier.advice.preparation import prepared
from bnp_hier.clustering.plans import ClusteringOptions, ClusteringPlan
from bnp_hier.clustering.results import ClusteringResult
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.tabular import RawTable, Roles, as_labels, is_frame
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.interruption import finishing
from bnp_hier.utils.jax_settings import standard_settings
from bnp_hier.utils.options import SEED, PositiveNumber, check_options

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cluster"]


OPTIONS: dict[str, Any] = {
    "budget": [None, PositiveNumber()],
    "family": [str],
    "methods": [None, str, Collection],
    "truth": "no_validation",
    "items": [None, Hashable],
    "drop": [None, Hashable, Collection],
    "kinds": [None, Mapping],
    "held_out": [Interval(Real, 0, 1, closed="left")],
    "drop_rows": [str],
    "random_state": SEED,
}
"""Options of `cluster` and their constraints."""


NAME = "X"
"""Name of data that have none, in messages and reports."""


@standard_settings()
@blas_on_one_core()
def cluster(
    X: ArrayLike | Dataset | Any,
    *,
    budget: float | None = None,
    family: str = "auto",
    methods: str | Sequence[str] | None = None,
    truth: str | Sequence[str] | ArrayLike | None = None,
    items: Hashable | None = None,
    drop: Hashable | Collection[Hashable] | None = (),
    kinds: Mapping[Any, str] | None = None,
    held_out: float = 0.0,
    drop_rows: str = "empty",
    random_state: int = 0,
    progress_bar: bool = True,
) -> ClusteringResult:
    """Cluster a table with several methods and return the clusters, how certain they are, and what distinguishes them.

    Columns that cannot or should not shape clusters are left out: dates, identifiers, free text, known classes, constant ones,
    and those that follow from others. The likelihood of a cluster is inferred from the rest, its hyperparameters have weakly
    informative priors and are learned, and the number of clusters is inferred. `bnp-hier compare` makes the same result from
    a file.

    Parameters
    ----------
    X
        Data, (n, d), with NaN for missing values; a pandas or polars DataFrame, in which booleans are read as 0 and 1, and
        codes and texts with few distinct values as categories, and whose index names the rows; or a
        `bnp_hier.datasets.Dataset`, which is used as it is.
    budget
        Time budget in seconds for the whole call on two cores; it determines which methods run. Chains end when they have
        converged (R-hat at most 1.01 and effective sample sizes of at least 400), or early enough for what remains to be done
        within the budget, to about a tenth. The call takes longer if the other methods, the warm-up of the chains and the
        compilation of programs, which takes about half a minute of processor time, leave no time. By default, from 115 s for
        few rows to 360 s for 10,000 rows or more; small tables take less.
    family
        Likelihood of one cluster, as in `bnp_hier.recommend`.
    methods
        Names of the methods to run, such as "map-dp" or ["bhc", "gibbs"]; by default, those that fit the time budget, as
        `bnp_hier.recommend` chooses them.
    truth
        Known classes, which are hidden from all methods: the name of a column of a DataFrame, a list of several, whose
        combinations count as well, or one class per row, (n,).
    items
        Column of a DataFrame with the names of the rows, instead of its index.
    drop
        Column or columns of a DataFrame to leave out; the result describes how they are associated with the clusters.
    kinds
        What to take columns for, as in `bnp_hier.datasets.from_frame`: name -> "count", "category", "log", ....
    held_out
        Share of the rows to hold out from all methods for scoring their predictions; the result is about the others.
    drop_rows
        Which rows to leave out: "empty", those without any value, or "missing", all in which a value is missing. They get the
        label −1.
    random_state
        Random seed.
    progress_bar
        Whether to show progress bars and which methods have finished, on standard error.

    Returns
    -------
    result
        `ClusteringResult`: prints a summary, and has `labels_`, `probabilities`, `to_frame()`, `plot()`, `report(path)` and
        `to_arviz()`, among others.

    Raises
    ------
    TypeError
        If X is not an array, a DataFrame or a `Dataset`.
    ValueError
        If the data or an option are invalid, or every method fails.
    KeyboardInterrupt
        After Ctrl-C, if no method has finished; otherwise, the results of those that have are returned.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> iris = bnp.datasets.load("iris")
    >>> result = bnp.cluster(iris, methods="map-dp", progress_bar=False)
    >>> result.n_clusters_, result.table["ARI"].round(1).to_dict()
    (3, {'MAP-DP': 0.9})
    """
    given = {
        "budget": budget,
        "family": family,
        "methods": methods,
        "truth": truth,
        "items": items,
        "drop": drop,
        "kinds": kinds,
        "held_out": held_out,
        "drop_rows": drop_rows,
        "random_state": random_state,
    }
    check_options("cluster", OPTIONS, given)
    data = dataset_of(X, truth, items, () if drop is None else drop, kinds)
    asked = ClusteringOptions(
        family=family,
        methods=_names(methods),
        budget=budget,
        held_out=held_out,
        drop_rows=drop_rows,
        random_state=random_state,
        progress_bar=progress_bar,
    )

    def say(text: str) -> None:
        if progress_bar:
            tqdm.write(text, file=sys.stderr)

    n, d = len(data.X), len(data.source_columns)
    say(f"{n} rows, {d} columns: choosing a likelihood (the first call on a machine compiles kernels before)")
    plan = ClusteringPlan.of(data, asked)
    again = partial(_call, _without_defaults(given), plan.budget, is_frame(X))
    for note in plan.data.notes:
        say(note)
    say(f"likelihood {plan.advice.family}; methods {', '.join(plan.methods)}")
    outcome = plan.run(ended=lambda method, seconds: say(f"{method.title} done in {seconds:.1f} s"))
    index = index_of(X) if items is None else None
    result = ClusteringResult(plan, outcome, None if index is None else index[plan.rows], again)
    twice = "finishing the comparison first; interrupt again to stop immediately and lose it"
    with finishing(lambda: print(twice, file=sys.stderr)):
        result.clusters, result.headline  # noqa: B018 - computed once, so that the result answers at once
    return result


def _without_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """The options without those that are left at their defaults, except for the seed."""
    defaults = {"family": "auto", "held_out": 0.0, "drop_rows": "empty"}
    return {
        name: value
        for name, value in options.items()
        if value is not None and not (isinstance(value, Collection) and len(value) == 0)
        if name not in defaults or value != defaults[name]
    }


def _names(methods: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of methods; None for "auto"."""
    if methods is None or methods == "auto":
        return None
    return tuple(dict.fromkeys([methods] if isinstance(methods, str) else methods))


def _call(
    options: dict[str, Any],
    spent: float,
    has_columns: bool,
    *,
    kinds: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    family: str | None = None,
    times: int = 1,
) -> str:
    """The call that makes a result again, or changes it; empty if `cluster` cannot make the changes for these data.

    Arrays appear by the name of their argument. The options are those given, with the time budget that was spent; columns can
    be taken otherwise or left out only if they have names.
    """
    changed: dict[str, Any] = {} if family is None else {"family": family}
    if has_columns and kinds:
        changed["kinds"] = {**options.get("kinds", {}), **kinds}
    if has_columns and drop:
        before = options.get("drop", [])
        several = isinstance(before, list | tuple | set | frozenset)
        changed["drop"] = [*(before if several else [before]), *drop]
    if times > 1:
        changed["budget"] = round(times * spent)
    if not changed and (kinds or drop):
        return ""
    every = options | changed
    given = {name: every[name] for name in OPTIONS if name in every}
    words = [f"{name}={name if hasattr(value, '__array__') else repr(value)}" for name, value in given.items()]
    return f"bnp_hier.cluster({', '.join(['X', *words])})"


def dataset_of(
    X: Any,
    truth: Any = None,
    items: Hashable | None = None,
    drop: Hashable | Collection[Hashable] = (),
    kinds: Mapping[Any, str] | None = None,
) -> Dataset:
    """Prepare an array or a DataFrame, or return a `Dataset`; the index of a DataFrame names the rows unless it only counts.

    Parameters
    ----------
    X
        The data.
    truth
        Column or columns of a DataFrame with known classes, or one class per row, (n,).
    items, drop, kinds
        As in `bnp_hier.datasets.from_frame`; the columns of an array are named x0, x1, ....

    Raises
    ------
    TypeError, ValueError
        If X is not a table, or as in `bnp_hier.datasets.from_frame`.
    """
    columns = truth if _names_columns(truth, X) else None
    rows = len(X.X) if isinstance(X, Dataset) else len(X) if is_frame(X) else 2
    if rows < 2:
        raise ValueError(f"X has {rows} row{'s' * (rows == 0)}; clustering needs at least 2")
    if isinstance(X, Dataset):
        if columns is not None or items is not None or drop != () or kinds:
            raise ValueError("items, drop, kinds and names of columns as truth apply to DataFrames; X is a Dataset already")
        data = X
    else:
        found = prepared(RawTable.of_frame(_frame(X), NAME), Roles(columns, items, drop, kinds or {})).data
        assert found is not None  # or there was an error
        data = dataclasses.replace(found, description="")
        index = index_of(X)
        if index is not None and items is None:
            named = None if index.name is None else str(index.name)
            data = dataclasses.replace(data, item_names=tuple(map(_name, index)), items=named)
    return data if truth is None or columns is not None else dataclasses.replace(data, y=_classes(truth, len(data.X)))


def _names_columns(truth: Any, X: Any) -> bool:
    """Whether known classes are given by the names of columns; a list of one text per row is one of classes."""
    if isinstance(truth, str):
        return True
    if isinstance(truth, int):
        return is_frame(X) and truth in X.columns
    if not isinstance(truth, list | tuple) or not is_frame(X):
        return False
    if all(isinstance(name, str) for name in truth):
        return len(truth) != len(X) or set(truth) <= set(X.columns)
    return len(truth) != len(X) and all(isinstance(name, Hashable) and name in X.columns for name in truth)


def index_of(X: Any) -> pd.Index | None:
    """The index of a pandas DataFrame, unless it only counts the rows."""
    import pandas as pd

    return X.index if isinstance(X, pd.DataFrame) and not _counts(X.index) else None


def _frame(X: Any) -> Any:
    """A DataFrame as it is; an array as a DataFrame."""
    import pandas as pd

    if is_frame(X):
        return X
    cells = as_matrix(X, min_rows=2)
    return pd.DataFrame(cells, columns=[f"x{j}" for j in range(cells.shape[1])])


def _counts(index: pd.Index) -> bool:
    import pandas as pd

    return isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1 and index.name is None


def _name(entry: Any) -> str:
    """The name of a row; those of a hierarchical index are joined."""
    return " / ".join(map(str, entry)) if isinstance(entry, tuple) else str(entry)


def _classes(truth: Any, n: int) -> np.ndarray:
    """One class per row."""
    import pandas as pd

    values = truth.to_numpy() if hasattr(truth, "to_numpy") else truth
    shape = np.shape(values)
    if shape != (n,):
        raise ValueError(f"truth must have one class per row, shape ({n},), but it has shape {shape}")
    column = pd.Series(np.asarray(values))
    if column.isna().any():
        raise ValueError(
            f"truth must have one class per row, but that of row {int(column.isna().to_numpy().argmax())} is missing"
        )
    return as_labels(column)
