"""Arguments of a model with several data arguments: which of them have one entry per row, and how to take some of the rows."""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.utils.arrays import as_matrix, own_arrays

__all__ = ["Data", "ModelArguments", "as_arguments", "as_table"]


class ModelArguments:
    """Arguments of a model that has several, such as covariates and responses.

    Functions that read a fit, such as `loo` and `compare`, take them in place of the table X that other models are fitted to.
    Arguments with one entry per row are recognised by their length: folds, new rows and replicated data take the same rows of
    all of them.

    Parameters
    ----------
    *args
        Positional arguments of the model.
    rows
        Positions or names of the arguments with one entry per row; by default the arrays whose first dimension has the most
        common length. Needed if other arrays happen to have that length, or most arrays have another.
    **kwargs
        Keyword arguments of the model.

    Raises
    ------
    ValueError
        If no argument, or no single length, can be recognised as that of the rows, or `rows` names an argument that does not
        exist, is not an array, or has another length.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> data = bnp.ModelArguments(np.zeros((5, 2)), np.arange(5.0), 3.0)
    >>> len(data), data.row_arguments
    (5, (0, 1))
    >>> data.take([1, 4]).args[1]
    array([1., 4.])
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    row_arguments: tuple[int | str, ...]
    _names: tuple[str, ...]

    def __init__(self, *args: Any, rows: Sequence[int | str] | None = None, **kwargs: Any) -> None:
        self.args = tuple(map(_plain, args))
        self.kwargs = {name: _plain(value) for name, value in kwargs.items()}
        self._names = tuple(f"argument {index}" for index in range(len(args)))
        arrays = {name: np.shape(value) for name, value in self._named().items() if np.ndim(value) > 0}
        if rows is None:
            self.row_arguments = _of_common_length(arrays)
        else:
            for name in rows:
                if name not in arrays:
                    words = ", ".join(map(repr, arrays)) or "none"
                    raise ValueError(f"rows contains {name!r}, which is not an array argument; the array arguments are {words}")
            lengths = {name: arrays[name][0] for name in rows}
            if not lengths or len(set(lengths.values())) > 1:
                words = ", ".join(f"{name!r}: {length}" for name, length in lengths.items()) or "none"
                raise ValueError(f"the arguments in rows must have the same number of rows, but they have {words}")
            self.row_arguments = tuple(rows)

    def __len__(self) -> int:
        """Number of rows."""
        return int(np.shape(self._named()[self.row_arguments[0]])[0])

    def _named(self) -> dict[int | str, Any]:
        values: dict[int | str, Any] = dict(enumerate(self.args))
        values.update(self.kwargs)
        return values

    def _name(self, argument: int | str) -> str:
        return self._names[argument] if isinstance(argument, int) else argument

    def named_by(self, model: Callable[..., Any]) -> ModelArguments:
        """The same arguments, with the names that the model gives to positional ones; they appear in messages and tables."""
        renamed = self._with({})
        try:
            words = inspect.signature(model).parameters.values()
        except (TypeError, ValueError):
            return renamed
        names = [word.name for word in words if word.kind in (word.POSITIONAL_ONLY, word.POSITIONAL_OR_KEYWORD)]
        if len(names) >= len(self.args):
            renamed._names = tuple(names[: len(self.args)])
        return renamed

    def take(self, which: ArrayLike | slice) -> ModelArguments:
        """Return the arguments with some of the rows."""
        index = which if isinstance(which, slice) else np.asarray(which)
        return self._with({name: value[index] for name, value in self._named().items() if name in self.row_arguments})

    def _with(self, values: dict[int | str, Any]) -> ModelArguments:
        copied: ModelArguments = object.__new__(ModelArguments)
        # copies, since the model may have been run on the arrays themselves: see `own_arrays`
        copied.args = own_arrays(tuple(values.get(index, value) for index, value in enumerate(self.args)))
        copied.kwargs = own_arrays({name: values.get(name, value) for name, value in self.kwargs.items()})
        copied.row_arguments, copied._names = self.row_arguments, self._names
        return copied

    @property
    def is_table(self) -> bool:
        """Whether the only argument is a table, (n, d)."""
        return len(self.args) == 1 and not self.kwargs and np.ndim(self.args[0]) == 2

    @property
    def columns(self) -> dict[str, Float[np.ndarray, " n"]]:
        """The columns of all arguments with one entry per row, by names such as x0, x1 (of a table), or y, u[0], u[1]."""
        columns: dict[str, np.ndarray] = {}
        for name in self.row_arguments:
            values = np.asarray(self._named()[name])
            flat = values.reshape(len(values), -1)
            word = "x" if self.is_table else self._name(name)
            for j, column in enumerate(flat.T):
                one = f"{word}{j}" if self.is_table else word if flat.shape[1] == 1 else f"{word}[{j}]"
                columns[one] = np.asarray(column, dtype=np.float64)
        return columns

    def new_rows(self, X: Data) -> ModelArguments:
        """Check new rows: arguments like these, with any number of rows.

        Raises
        ------
        ValueError
            If the number of arguments or columns differs, or rows of several arguments were expected and a table is given.
        """
        new = as_arguments(X)
        if len(new.args) != len(self.args) or set(new.kwargs) != set(self.kwargs):
            raise ValueError(
                f"the model was fitted to {self._described()}, but the new rows have {len(new.args) + len(new.kwargs)}: "
                "pass bnp_hier.ModelArguments with the same arguments"
            )
        new = new._with({})
        new.row_arguments, new._names = self.row_arguments, self._names
        for name in self.row_arguments:
            fitted, shape = np.shape(self._named()[name])[1:], np.shape(new._named()[name])[1:]
            if fitted != shape:
                if self.is_table:
                    columns = np.shape(new.args[0])[1] if np.ndim(new.args[0]) == 2 else 1
                    raise ValueError(f"X has {columns} columns, but the model was fitted to {fitted[0]} columns")
                raise ValueError(
                    f"the rows of {self._name(name)!r} have shape {shape}, but those of the fit have shape {fitted}"
                )
        return new

    def _described(self) -> str:
        names = [*self._names, *self.kwargs]
        return f"{len(names)} argument{'s' * (len(names) != 1)} ({', '.join(names)})"

    def first_missing(self) -> str:
        """Where the first missing value of an argument with one entry per row is; empty if none is missing."""
        for name in self.row_arguments:
            values = np.asarray(self._named()[name])
            if values.dtype.kind == "f" and np.isnan(values).any():
                row, *rest = np.argwhere(np.isnan(values))[0]
                column = f", column {', '.join(map(str, rest))}" if rest else ""
                return f"{self._name(name)!r} is missing at row {row}{column}"
        return ""

    def advice_on_missing(self) -> str:
        """Where the first missing value is, and what to do; empty if none is missing."""
        where = self.first_missing()
        return (
            f"{where}: covariates and responses must not be missing here; leave out such rows, or impute them" if where else ""
        )

    @property
    def shapes(self) -> str:
        """Shapes of the arguments with one entry per row, in words."""
        return ", ".join(f"shape {np.shape(self._named()[name])}" for name in self.row_arguments)

    def digest(self) -> str:
        """A digest of all arguments that are arrays or numbers."""
        digest = hashlib.sha256()
        for name, value in self._named().items():
            for leaf in jax.tree.leaves(value):
                array = np.asarray(leaf)
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.tobytes() if array.dtype != object else repr(leaf).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        shapes = [f"{np.shape(value)}" if np.ndim(value) else type(value).__name__ for value in self.args]
        shapes += [f"{name}={np.shape(value)}" if np.ndim(value) else name for name, value in self.kwargs.items()]
        return f"ModelArguments({', '.join(shapes)}: {len(self)} rows)"


Data: TypeAlias = ArrayLike | ModelArguments
"""A table, or all arguments of a model with several."""


def as_arguments(X: Data) -> ModelArguments:
    """The arguments of a model: those given, or a table as the only one.

    Raises
    ------
    ValueError, TypeError
        If X is neither arguments nor a table of numbers.
    """
    return X if isinstance(X, ModelArguments) else ModelArguments(as_matrix(X), rows=(0,))


def as_table(X: Data) -> Float[np.ndarray, "n d"]:
    """The table that is the only argument.

    Raises
    ------
    ValueError
        If there are several arguments.
    """
    data = as_arguments(X)
    if not data.is_table:
        raise ValueError(f"expected a table, since estimators are fitted to tables, but got {data!r}")
    return np.asarray(data.args[0])


def _plain(value: Any) -> Any:
    """Arrays, DataFrames and lists of numbers as NumPy arrays, with floating-point numbers in double precision."""
    if np.ndim(value) == 0 and not hasattr(value, "__array__"):
        return value
    array = np.asarray(value)
    if array.dtype == object and hasattr(value, "to_numpy"):
        array = np.asarray(value.to_numpy(dtype=np.float64))
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _of_common_length(arrays: dict[int | str, tuple[int, ...]]) -> tuple[int | str, ...]:
    lengths = Counter(shape[0] for shape in arrays.values())
    if not lengths:
        raise ValueError("none of the arguments is an array, so there are no rows; expected the arguments of the model")
    (length, times), *others = lengths.most_common()
    if others and others[0][1] == times:
        words = ", ".join(f"{name!r}: {shape[0]}" for name, shape in arrays.items())
        raise ValueError(f"the arguments have different lengths ({words}): say which have one entry per row by rows=")
    return tuple(name for name, shape in arrays.items() if shape[0] == length)
