"""Data of any kind as a `Dataset`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bnp_hier.advice.preparation import prepared
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.tables_in_memory import is_frame
from bnp_hier.datasets.tabular import Table, as_labels
from bnp_hier.utils.arrays import as_matrix

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["dataset_of", "index_of"]

NAME = "X"
"""Name of data that have none, in messages and reports."""


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
        data = _prepared(X, columns, items, drop, kinds)
        data = dataclasses.replace(data, description="")
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


def _prepared(
    X: Any,
    truth: Hashable | Collection[Hashable] | None,
    items: Hashable | None,
    drop: Hashable | Collection[Hashable],
    kinds: Mapping[Any, str] | None,
) -> Dataset:
    found = prepared(Table.of_frame(_frame(X), NAME), truth, items, drop, kinds).data
    assert found is not None  # or there was an error
    return found


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
