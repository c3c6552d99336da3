"""Readers of CSV, Parquet and NumPy files and of DataFrames, whose error messages give the location of what they found."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Shaped

from bnp_hier.datasets.conversions import (
    converted,
    features_of,
    order_of,
    owners,
    resolved_kind,
    steps_of_grades,
)
from bnp_hier.datasets.dataset import RENAME, Dataset, combined_labels
from bnp_hier.datasets.raw_columns import MOST_LEVELS, RawColumn
from bnp_hier.datasets.recognition import uninformative_numbers, useless_numbers
from bnp_hier.datasets.table_files import (
    PYARROW,
    as_text,
    decoded,
    is_number,
    on_one_line,
    read_arrays,
    read_csv,
    read_parquet,
)
from bnp_hier.datasets.written_numbers import Written
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.wording import did_you_mean, listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RawTable",
    "Roles",
    "UnusableColumn",
    "as_labels",
    "columns_of_frame",
    "from_frame",
    "is_frame",
    "read_columns",
    "read_table",
    "rows_like",
]


_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npy", ".npz")

INDEX = "index"
"""Name of a first column without a name."""


def read_table(
    path: str | Path,
    truth: Hashable | Collection[Hashable] | None = None,
    *,
    items: Hashable | None = None,
    drop: Hashable | Collection[Hashable] = (),
    kinds: Mapping[Any, str] | None = None,
    header: bool | None = None,
) -> Dataset:
    """Read a table of numbers from a CSV (``.csv``, ``.csv.gz``), Parquet (``.parquet``) or NumPy (``.npy``, ``.npz``) file.

    A CSV file is UTF-8 text with commas, optional double quotes and a header row; blank lines are skipped. Semicolons, tabs or
    vertical bars may stand between fields instead, and numbers may then have decimal commas. White space in the names of
    columns becomes single spaces, in messages and results; a column is found by either spelling. Empty cells and the spellings
    NA, N/A, #N/A, NaN, NaT, null and ?, in upper or lower case, are missing values (NaN), True and False are read as 1 and 0,
    and infinite values are kept. The same unit beside every number of a column (``10.6 kg``, ``45%``, ``$3``) is removed and
    kept in ``units``. Thousands may be separated by commas, spaces or apostrophes if they are in all numbers of the column, or
    by points if there are millions (``separators``), and negative amounts may be in parentheses; in other files, a decimal
    comma is an error, unless three digits follow in all numbers that have one, which cannot be told from thousands. The
    ``notes`` say how such columns were read. A column of text with 2 to 30 distinct values, none of them a number, that occur
    at least twice on average is converted to indicators, as described under ``levels`` of `Dataset`; so is one of numbers in
    different units, such as "500 mg" and "1 g", with a note.
    Parquet requires pyarrow (``pip install 'bnp-hier[parquet]'``); an index stored in the file is ignored, and texts of a
    categorical type, which the file keeps, are read as by :func:`from_frame`. An ``.npy`` file
    contains one table (n, d), whose columns are named x0, x1, .... An ``.npz`` file contains the table as ``X`` or as its
    only two-dimensional array, optionally the names of the columns as ``feature_names``, and any number of arrays (n,) that
    can be selected with `truth` and `items`; the default `truth` is ``y``, if present. Pickled objects are not read.

    Parameters
    ----------
    path
        The file; its suffix determines the format.
    truth
        Name of the column of true labels (any type), which becomes ``y``: int64 if all labels are whole numbers, otherwise
        text. Of several columns, given as a list or separated by commas, the combinations become ``y``, and each is in
        ``truths``.
    items
        Name of the column of row names, which becomes ``item_names``.
    drop
        Names of columns to leave out; a string that is not itself a column name may list several, separated by commas. Their
        values are kept in ``others``.
    kinds
        Name of a column -> what to take it for: "continuous", "count", "binary", "category" (converted to indicators),
        "ordered" or a scale such as "low<medium<high" (likewise, the grades from low to high; "ordered" takes all whole numbers
        from the smallest to the largest, at most 30), "log", "log1p" or "logit" (converted by this function, the last one for
        proportions or percentages; the names become "log(column)", and so on).
    header
        Whether the first row of a CSV file contains the names of the columns. If False, they are named x0, x1, .... If None,
        the first row is the header, but a row that is more likely data raises an error: one of numbers, or of numbers and
        texts that occur again in their columns. Must be None for other files.

    Returns
    -------
    Dataset
        ``X`` (n, d) float64 with all remaining columns in file order and ``y`` (n,) or None; its name is that of the file.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ImportError
        If the file is Parquet and pyarrow is not installed.
    ValueError
        If the suffix is unknown; the first row of a CSV file is more likely data and `header` is None, or `header` is given
        for another file; the file is empty, not readable in its format, or without data rows; the number of fields in a CSV row
        differs from the header; column names are empty, repeated or equal to the name of an indicator; a named column does not
        exist; a label is missing; a column contains
        both text and numbers, different units in numbers that are not repeated, separators that are ambiguous, or too many
        distinct texts for a category; a kind does not exist or does not suit a column; or no column is left. Messages refer to
        rows of CSV files by line and to rows of other files by number, starting at 1.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bnp_hier.datasets import read_table
    >>> path = Path(tempfile.mkdtemp()) / "pets.csv"
    >>> with path.open("w") as file:
    ...     print("name,kind,weight", "Tom,cat,4.1", "Rex,dog,24.0", sep=chr(10), file=file)
    >>> data = read_table(path, truth="kind", items="name")
    >>> data.X.tolist(), data.y.tolist(), data.item_names
    ([[4.1], [24.0]], ['cat', 'dog'], ('Tom', 'Rex'))
    """
    return RawTable.read(path, header).dataset(Roles(truth, items, drop, kinds or {}))


def from_frame(
    frame: Any,
    truth: Hashable | Collection[Hashable] | None = None,
    *,
    items: Hashable | None = None,
    drop: Hashable | Collection[Hashable] = (),
    kinds: Mapping[Any, str] | None = None,
    name: str = "frame",
) -> Dataset:
    """Convert a pandas or polars DataFrame to a `Dataset`, as :func:`read_table` does with a file.

    Columns of text become indicators if they have few distinct values; missing values become NaN. A column of a categorical
    type is a category, even of numbers, and one of an ordered type is a scale of all grades of the type in their order, unless
    almost every row has a value of its own; the kind "continuous" takes their numbers.

    Parameters
    ----------
    frame
        The DataFrame; its index is ignored.
    truth, items, drop, kinds
        As in :func:`read_table`.
    name
        Name of the data set.

    Raises
    ------
    TypeError
        If it is not a DataFrame.
    ValueError
        As in :func:`read_table`.

    Examples
    --------
    >>> import pandas as pd
    >>> from bnp_hier.datasets import from_frame
    >>> frame = pd.DataFrame({"income": [10.0, 1000.0, 50.0, 80.0], "size": ["small", "large", "medium", "small"]})
    >>> from_frame(frame, kinds={"income": "log", "size": "small<medium<large"}).X.round(1)
    array([[2.3, 1. , 0. , 0. ],
           [6.9, 0. , 0. , 1. ],
           [3.9, 0. , 1. , 0. ],
           [4.4, 1. , 0. , 0. ]])
    """
    return RawTable.of_frame(frame, name).dataset(Roles(truth, items, drop, kinds or {}))


class Roles(NamedTuple):
    """What columns of a table are used for; see :func:`read_table`."""

    truth: Hashable | Collection[Hashable] | None = None
    items: Hashable | None = None
    drop: Hashable | Collection[Hashable] = ()
    kinds: Mapping[Any, str] = {}


class UnusableColumn(NamedTuple):
    """A column that has to be left out.

    - **name** - its name.
    - **reason** - why, in a clause.
    - **missing** - share of missing values.
    - **names_rows** - whether it seems to contain the names of the rows.
    """

    name: str
    reason: str
    missing: float
    names_rows: bool


def columns_of_frame(frame: Any, fitted: Dataset) -> Float[np.ndarray, "m d"]:
    """The features of a fitted `Dataset` from a DataFrame of new rows, whose other columns are ignored.

    Raises
    ------
    TypeError, ValueError
        As in :func:`from_frame` and :func:`read_columns`.
    """
    return RawTable.of_frame(frame, "new rows").selected(fitted)


def _notes(columns: Mapping[str, Written]) -> Iterator[str]:
    """How numbers were read that are written with something beside them."""
    units = [f"{name!r} ({written.unit})" for name, written in columns.items() if written.unit]
    if units:
        yield f"numbers are read without their units: {listed(units, MOST_LEVELS)}"
    enclosed = [f"{name!r} (such as {written.enclosed!r})" for name, written in columns.items() if written.enclosed]
    if enclosed:
        yield f"parentheses are read as minus signs: {listed(enclosed, MOST_LEVELS)}"
    grouped = [f"{name!r} (such as {written.grouped!r})" for name, written in columns.items() if written.grouped]
    if grouped:
        yield f"thousands separators are removed: {listed(grouped, MOST_LEVELS)}"


def read_columns(
    path: str | Path,
    fitted: Dataset,
    *,
    items: Hashable | None = None,
    header: bool | None = None,
) -> tuple[Float[np.ndarray, "n d"], tuple[str, ...] | None]:
    """Read the columns of a fitted `Dataset` from a file of new rows, in its order and converted in the same way.

    Numbers may be written with the unit and the thousands separators of the fitted column, or without them.

    Parameters
    ----------
    path
        As in :func:`read_table`.
    fitted
        The data of the fit; its ``feature_names``, ``levels``, ``kinds``, ``units`` and ``separators`` are used.
    items
        Name of the column of row names; by default that of the fit, if the file has it.
    header
        As in :func:`read_table`.

    Returns
    -------
    X, item_names
        The columns, (n, d), and n names; None if there is no column of names.

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in :func:`read_table`, and if a categorical column contains a value that is not among its levels, a column one
        that its kind does not allow, or numbers have another unit or other separators. Columns that the fit does not have may
        contain anything.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from bnp_hier.datasets import from_frame, read_columns
    >>> path = Path(tempfile.mkdtemp()) / "new.csv"
    >>> with path.open("w") as file:
    ...     print("height,colour,weight", "33,black,4.5", sep=chr(10), file=file)
    >>> fitted = from_frame(pd.DataFrame({"weight": [4.1, 24.0], "height": [31, 60]}))
    >>> X, item_names = read_columns(path, fitted)
    >>> X
    array([[ 4.5, 33. ]])
    """
    table = RawTable.read(path, header, with_index=True)
    X = table.selected(fitted)
    if items is None and fitted.items is not None and table.has(fitted.items):
        items = fitted.items
    return X, None if items is None else table.names(items)


def as_labels(values: Iterable[object]) -> Shaped[np.ndarray, " n"]:
    """Convert labels to an array, (n,), of int64 if all are whole numbers or are written as such, otherwise of text."""
    text = [f"{value:.0f}" if _is_whole(value) else str(as_text(value)).strip() for value in values]
    try:
        numbers = np.array([int(label) for label in text], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(text, dtype=np.str_)
    # int() also accepts 01 and 1_0, which are names rather than numbers
    return numbers if list(map(str, numbers)) == text else np.array(text, dtype=np.str_)


def _is_whole(value: object) -> bool:
    return isinstance(value, float | np.floating) and float(value).is_integer()


class _Chosen(NamedTuple):
    """What the columns of a table are used for.

    - **truth** - the columns of labels.
    - **items** - the column of names, if any.
    - **features** - the columns to find clusters with; **numbers** are those that are numbers.
    - **dropped** - columns to leave out.
    - **kinds**, **levels** - as in a `Dataset`.
    """

    truth: list[str]
    items: str | None
    features: list[str]
    dropped: list[str]
    kinds: dict[str, str]
    levels: dict[str, tuple[str, ...]]
    numbers: list[str]


@dataclasses.dataclass(frozen=True, eq=False)
class RawTable:
    """The raw table in a file, before its cells are converted to numbers.

    Parameters
    ----------
    name
        File name for error messages.
    frame
        The cells: strings if the file is CSV, typed columns otherwise.
    lines
        The line on which each row ends in a CSV file; None for other files.
    beside
        Name -> column stored separately from the table in an ``.npz`` file, such as labels or names of rows.
    notes
        How a file was read, where that is not evident.
    """

    name: str
    frame: pd.DataFrame
    lines: list[int] | None
    beside: dict[str, pd.Series] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    index: str | None = None
    """Name given to a first column that has none, as in a table saved with the names of its rows."""
    _columns: dict[str, RawColumn] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, path: str | Path, header: bool | None = None, *, with_index: bool = False) -> RawTable:
        """Read a file; see :func:`read_table` for the errors that may be raised.

        Parameters
        ----------
        path, header
            As in :func:`read_table`.
        with_index
            Whether to name a first column that has no name, instead of raising an error.
        """
        path = Path(path)
        suffix = next((suffix for suffix in _SUFFIXES if path.name.lower().endswith(suffix)), None)
        if suffix is None:
            raise ValueError(f"{path}: found a file name ending in {path.suffix!r}, expected {', '.join(_SUFFIXES)}")
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file")
        if not path.is_file():
            raise ValueError(f"{path}: found a {'folder' if path.is_dir() else 'pipe or a device'}, expected a file")
        if header is not None and not suffix.startswith(".csv"):
            raise ValueError(f"{path.name}: only CSV files have a header row, so header= and --no-header do not apply")
        if suffix in (".npy", ".npz"):
            table = cls(path.name, *read_arrays(path))
        else:
            table = cls(path.name, *(read_parquet(path) if suffix == ".parquet" else read_csv(path, header)))
        names = list(table.frame.columns)
        if with_index and names[:1] == [""] and INDEX not in names:
            table = dataclasses.replace(table, frame=table.frame.set_axis([INDEX, *names[1:]], axis=1), index=INDEX)
        table.check()
        return table

    @classmethod
    def of_frame(cls, frame: Any, name: str) -> RawTable:
        """Take the columns of a pandas or polars DataFrame; see :func:`from_frame` for the errors that may be raised."""
        import pandas as pd

        try:
            pandas_frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
        except ImportError as error:
            raise ImportError(f"{name}: converting a polars DataFrame needs pyarrow: {PYARROW}") from error
        if not isinstance(pandas_frame, pd.DataFrame):
            raise TypeError(f"expected a pandas or polars DataFrame, but got {type(frame).__name__}")
        table = cls(name, decoded(pandas_frame.reset_index(drop=True)), None)
        table.check()
        return table

    def dataset(self, roles: Roles) -> Dataset:
        """Convert the columns; see :func:`read_table` for the parameters and the errors that may be raised."""
        chosen = self._chosen(roles)
        truths = {name: self._labels(name) for name in chosen.truth}
        self._check_numbers(chosen.numbers)
        X, names = self._features(chosen.features, chosen.levels, chosen.kinds)
        named, apart = chosen.items, (*chosen.truth, chosen.items)
        scales = {name for name, kind in chosen.kinds.items() if order_of(kind)}
        numeric = [name for name in scales if all(map(is_number, order_of(chosen.kinds[name])))]
        written = {name: self.column(name).written for name in (*chosen.numbers, *numeric)}
        sources = {name: self.column(name) for name in chosen.kinds | chosen.levels}
        others = {name: self.column(name) for name in chosen.dropped if name not in apart}
        return Dataset(
            name=self.name.split(".")[0],
            X=X,
            y=combined_labels(truths) if truths else None,
            feature_names=names,
            item_names=None if named is None else self.names(named),
            description=f"{len(self.frame)} rows and {len(chosen.features)} columns read from {self.name}.",
            levels=chosen.levels,
            kinds=chosen.kinds,
            sources={name: each.plain(as_texts=name in chosen.levels and name not in scales) for name, each in sources.items()},
            others={name: each.plain(as_texts=each.is_unordered) for name, each in others.items()},
            units={name: column.unit for name, column in written.items() if column.unit},
            separators={name: column.separator for name, column in written.items() if column.separator},
            items=named,
            notes=(*self.notes, *_notes(written), *self._notes_on_categories(chosen)),
            truths=truths if len(truths) > 1 else {},
        )

    def unusable(self, roles: Roles) -> tuple[UnusableColumn, ...]:
        """Columns of text that are not categories, and columns of numbers without a value or with a single one.

        If there are any, columns that only tell rows apart are unusable as well.
        """
        columns = [self.column(name) for name in self._chosen(roles).numbers]
        text, useless = _sorted_out(columns)
        if not text and not any(uninformative_numbers(self.column(name).written.values) for name in useless):
            return ()
        reasons = {column.name: column.in_words for column in text} | useless
        return tuple(
            UnusableColumn(each.name, reasons[each.name], float(each.missing.mean()), each in text and each.names_rows)
            for each in columns
            if each.name in reasons
        )

    def _chosen(self, roles: Roles) -> _Chosen:
        truth = ("y" if "y" in self.beside else ()) if roles.truth is None else roles.truth
        known = list(dict.fromkeys(self.named(truth)))
        items = None if roles.items is None else self.column(roles.items).name
        dropped = self.named(roles.drop)
        apart = [*known, *(() if items is None else (items,)), *dropped]
        features = [name for name in self.frame.columns if name not in apart]
        if not features:
            besides = f" left besides {_listed(apart)}" if apart else ""
            raise ValueError(f"{self.name}: no columns{besides}; expected at least one column of numbers")
        resolved = self._kinds_of(
            {name: "ordered" for name in features if self.column(name).is_scale} | dict(roles.kinds), features
        )
        levels = {name: values for name in features if (values := self._levels_of(name, resolved.get(name)))}
        return _Chosen(known, items, features, dropped, resolved, levels, [name for name in features if name not in levels])

    def names(self, items: Hashable) -> tuple[str, ...]:
        """The names of the rows, from a column."""
        return tuple(map(str, self.column(items).cells))

    def has(self, name: Hashable) -> bool:
        """Whether there is a column of that name."""
        return on_one_line(name) in self.frame.columns or str(name) in self.beside

    def check(self) -> None:
        """Check names, types and the number of rows; see :func:`read_table` for the errors that may be raised."""
        names = self.frame.columns
        for position, name in enumerate(names, start=1):
            if not name:
                raise ValueError(
                    f"{self.name}: column {position} has no name; expected a name for every column "
                    "(a table saved with its row index has such a column: save it without the index)"
                )
        if names.has_duplicates:
            repeated = names[names.duplicated()].unique()
            raise ValueError(f"{self.name}: found repeated column names {_listed(repeated)}; expected distinct names")
        twice = [name for name in self.beside if name in names]
        if twice:
            raise ValueError(
                f"{self.name}: found {twice[0]!r} both among the feature_names and as an array; expected distinct names"
            )
        complex_columns = [name for name in names if self.frame[name].dtype.kind == "c"]
        if complex_columns:
            raise ValueError(
                f"{self.name}, column {complex_columns[0]!r}: found complex numbers, expected real numbers: store real and "
                "imaginary parts as two columns"
            )
        if len(self.frame) == 0:
            raise ValueError(f"{self.name}: found column names but no data rows; expected at least one row")

    def _error(self, name: str, row: int, found: str) -> ValueError:
        """An error about a cell; the row is counted from 0."""
        place = f"data row {row + 1}" if self.lines is None else f"line {self.lines[row]}"
        return ValueError(f"{self.name}, {place}, column {name!r}: {found}")

    def column(self, name: Hashable) -> RawColumn:
        """Return a column by name; raise a ValueError that lists the columns if it does not exist."""
        key = str(name) if str(name) in self.beside else on_one_line(name)
        if key not in self._columns:
            if key not in self.beside and key not in self.frame.columns:
                known = [*self.frame.columns, *self.beside]
                raise ValueError(
                    f"{self.name}: there is no column {key!r}; {did_you_mean(key, known, 1)} columns are {_listed(known)}"
                )
            self._columns[key] = RawColumn(self.beside[key] if key in self.beside else self.frame[key])
        return self._columns[key]

    def named(self, words: Hashable | Collection[Hashable]) -> list[str]:
        """Resolve one or several column names, or texts that list them, separated by commas; all columns must exist."""
        several: Collection[Hashable] = [cast(Hashable, words)]
        if isinstance(words, Collection) and not isinstance(words, str | bytes) and not self.has(str(words)):
            several = words
        parts = (
            [part.strip() for part in word.split(",")] if isinstance(word, str) and not self.has(word) else [word]
            for word in several
        )
        return [self.column(name).name for names in parts for name in names if name != ""]

    def _labels(self, name: str) -> Shaped[np.ndarray, " n"]:
        """A column of labels; raise a ValueError that names the first row without a label."""
        column = self.column(name)
        if column.missing.any():
            found = f"the label is missing (as in {column.missing.sum()} of {len(column.cells)} rows)"
            raise self._error(name, int(column.missing.argmax()), f"{found}; expected a label in every row")
        return as_labels(column.cells)

    def _numbers(self, name: str, kind: str | None = None) -> Float[np.ndarray, " n"]:
        """Return a column as float64, converted as its kind requires; raise a ValueError if it contains text."""
        column = self.column(name)
        if column.has_text:  # in new rows; those of the fit have been checked
            row, obstacle = column.row_of_text, column.written.obstacle
            what = f"the text {str(column.cells.iloc[row])!r}"
            expected = "expected a number as in the data of the fit, or an empty cell if the value is missing"
            if obstacle is not None:
                what, expected = obstacle.reason, obstacle.advice
            raise self._error(name, row, f"found {what}, {expected}")
        values, wrong, expected = converted(kind, column.written.values)
        if wrong is not None:
            found = f"found {values[wrong]:g}, expected {expected}, because the column is taken as {kind}"
            raise self._error(name, wrong, found)
        return values

    def _check_numbers(self, names: Iterable[str]) -> None:
        """Raise a ValueError if any of the named columns contains text; it also mentions other columns of no use."""
        text, useless = _sorted_out(map(self.column, names))
        if text:
            first = text[0]
            found = f"found the text {str(first.cells.iloc[first.row_of_text])!r}, expected a number. {_advice(text, useless)}"
            raise self._error(first.name, first.row_of_text, found)

    def _kinds_of(self, kinds: Mapping[Any, str], features: Iterable[str]) -> dict[str, str]:
        """Check kinds and complete them; raise a ValueError if a column or kind does not exist, or they do not match."""
        resolved, features = {}, set(features)
        for label, kind in kinds.items():
            column = self.column(label)
            name, written = column.name, column.written
            if name not in features:
                raise ValueError(f"{self.name}: column {name!r} has a kind, {kind!r}, but is not used to find clusters")
            if (obstacle := written.obstacle) is not None and kind not in ("category", "ordered") and not order_of(kind):
                raise self._error(name, obstacle.row, f"found {obstacle.reason}: {obstacle.advice}")
            cells = None if column.has_text else written.values[~np.isnan(written.values)]
            try:
                resolved[name] = resolved_kind(name, kind, cells, column.scale)
            except ValueError as error:
                raise ValueError(f"{self.name}, {error}") from None
        return resolved

    def _levels_of(self, name: str, kind: str | None) -> tuple[str, ...]:
        """The distinct values of a column that is treated as categorical, or its grades; empty for any other column."""
        column = self.column(name)
        if kind is None:
            return column.levels
        if kind != "category" and not order_of(kind):
            return ()
        levels = tuple(column.sorted_texts)
        if len(levels) < 2:
            raise ValueError(
                f"{self.name}, column {name!r}: found {len(levels)} distinct value(s), expected several categories"
            )
        if len(levels) > column.most_levels:
            advice = "drop it" if column.has_text else "leave out --kinds or kinds= to take it for numbers"
            raise ValueError(
                f"{self.name}, column {name!r}: found {len(levels)} distinct values in {column.present} cells, such as "
                f"{levels[0]!r} and {levels[1]!r}, expected categories of at least two rows on average: a category of its own "
                f"for almost every row says nothing about clusters; group the values, or {advice}"
            )
        return order_of(kind) or levels

    def _notes_on_categories(self, chosen: _Chosen) -> Iterator[str]:
        """Columns that are categories by themselves, although their cells look like numbers; and the other way round."""
        for name in (name for name in chosen.features if name not in chosen.kinds):
            column, obstacle = self.column(name), self.column(name).written.obstacle
            if name in chosen.levels and obstacle is not None and not column.has_categorical_type:
                yield f"{name!r} is taken as a category because of {obstacle.reason}"
            if name in chosen.numbers and column.has_categorical_type and len(column.distinct) > 2:
                yield f"{name!r} is read as numbers, because almost every row would be a category of its own"

    def _features(
        self, names: Iterable[str], levels: Mapping[str, tuple[str, ...]], kinds: Mapping[Any, str]
    ) -> tuple[Float[np.ndarray, "n d"], tuple[str, ...]]:
        """Return the named columns as float64, converted to indicators or as their kinds require, and all names."""
        names = list(names)
        values, feature_names = [], []
        for name in names:
            feature_names += features_of(name, kinds.get(name), levels.get(name, ()))
            if name in levels:
                values += self._indicators(name, levels[name], kinds.get(name))
            else:
                values.append(self._numbers(name, kinds.get(name)))
        twice = next((name for name, times in Counter(feature_names).items() if times > 1), None)
        if twice is not None:
            both = [name for name in names if twice in features_of(name, kinds.get(name), levels.get(name, ()))]
            raise ValueError(
                f"{self.name}: the columns {_listed(both)} both produce a column named {twice!r}, as categories are "
                f"converted to indicators named column=value, and log to log(column); {RENAME}"
            )
        return np.column_stack(values), tuple(feature_names)

    def selected(self, fitted: Dataset) -> Float[np.ndarray, "n d"]:
        """Return the features of a fitted `Dataset` in its order; see :func:`read_columns`."""
        scales = {name: scale for name, kind in fitted.kinds.items() if (scale := order_of(kind))}
        levels, in_steps = scales | dict(fitted.levels), scales.keys() - fitted.levels.keys()
        steps = {f"{name} (steps {way})": name for name in in_steps for way in ("up", "down")}
        owner = owners(fitted.kinds, levels) | steps
        needed = dict.fromkeys(owner.get(name, name) for name in fitted.feature_names)
        for name in needed:
            if name not in levels or name in scales:
                unit, separator = fitted.units.get(name, ""), fitted.separators.get(name, "")
                self._columns[self.column(name).name] = self.column(name).read_as(unit, separator)
        X, names = self._features(needed, levels, fitted.kinds)
        features = dict(zip(names, X.T, strict=True))
        for name in in_steps:
            features |= steps_of_grades(name, scales[name], features)
        return np.column_stack([features[name] for name in fitted.feature_names])

    def _indicators(self, name: str, levels: tuple[str, ...], kind: str | None) -> list[Float[np.ndarray, " n"]]:
        """Indicators of the levels, 0 where the value is missing; of two levels, only the second, NaN where it is missing."""
        column = self.column(name)
        cells, missing = column.as_grades(levels) if order_of(kind or "") else np.array(column.texts), column.missing
        unknown = ~missing & ~np.isin(cells, levels)
        if unknown.any():
            row = int(unknown.argmax())
            expected = f"expected one of {_listed(levels)}, or an empty cell if the value is missing"
            raise self._error(name, row, f"found {column.texts[row]!r}, {expected}")
        indicators = [((cells == level) & ~missing).astype(float) for level in levels]
        return [np.where(missing, np.nan, indicators[1])] if len(levels) == 2 else indicators


def _sorted_out(columns: Iterable[RawColumn]) -> tuple[list[RawColumn], dict[str, str]]:
    """Columns that contain text; and columns of numbers that are of no use -> why."""
    text: list[RawColumn] = []
    useless: dict[str, str] = {}
    for column in columns:
        if column.has_text:
            text.append(column)
        elif reason := useless_numbers(column.name, column.written.values):
            useless[column.name] = reason
    return text, useless


def _advice(text: Sequence[RawColumn], useless: Mapping[str, str]) -> str:
    """Advice about columns of text, depending on what they seem to contain.

    Columns of numbers that are of no use, and the reasons, are added, so that all can be left out at once.
    """
    by_content: dict[str, list[RawColumn]] = {}
    for column in text:
        by_content.setdefault(column.content, []).append(column)

    def as_category(columns: Iterable[RawColumn], sentence: str) -> str:
        """The sentence with the option that takes the first column that has few values as a category; empty without any."""
        few = next((column.name for column in columns if column.has_few_values), None)
        return "" if few is None else sentence.format(f"--kinds {shlex.quote(f'{few}=category')}")

    parts = []
    if names := by_content.get("names"):
        first = names[0].name
        parts.append(
            f"{_listed_columns(names)}: a different text in almost every row; if it names the rows, declare it "
            f"(items={first!r} or --items {shlex.quote(first)}); otherwise drop it"
        )
    if dates := by_content.get("dates"):
        other = as_category(dates, ", or take them as categories ({})")
        parts.append(
            f"{_listed_columns(dates)}: dates or times; drop them or replace them by numbers, such as days since a start date"
            f"{other}"
        )
    for column in by_content.get("obstacle", ()):
        certain = column.written.obstacle is not None and column.written.obstacle.is_certain
        other = "" if certain else as_category([column], ", or take its texts as categories ({})")
        parts.append(f"{column.name!r}: {column.in_words}{other}")
    if rest := by_content.get("text"):
        as_such = as_category(rest, "if its values are categories, take it as such ({}); ")
        parts.append(
            f"{_listed_columns(rest)}: if the column contains the true labels, declare it with truth= or --truth; if it names "
            f"the rows, with items= or --items; {as_such}otherwise drop it"
        )
    if reasons := {column.name: column.in_words for column in by_content.get("same", ())} | dict(useless):
        parts.append("; ".join(f"{name!r}: {reason}" for name, reason in reasons.items()))
    drop = ",".join([*(column.name for column in text), *useless])
    return f"{'. '.join(parts)} (to drop all: --drop {shlex.quote(drop)})"


def _listed_columns(columns: Iterable[RawColumn]) -> str:
    return _listed(column.name for column in columns)


def _listed(names: Iterable[str]) -> str:
    return listed(map(repr, names), 30)


def is_frame(X: Any) -> bool:
    """Whether the data are a pandas or polars DataFrame."""
    # asked last, because a lazy table would compute them
    return (hasattr(X, "iloc") or hasattr(X, "to_pandas")) and hasattr(X, "columns")


def rows_like(fitted: Dataset, X: Any, *, what: str = "new rows") -> Float[np.ndarray, "m d"]:
    """Rows with the columns of the fitted data: those of a DataFrame are found by name, and converted.

    Parameters
    ----------
    fitted
        The fitted data.
    X
        A DataFrame; or an array, (m, d), if an array was fitted, with the same columns, or no column was converted.
    what
        What the rows are, for messages.

    Raises
    ------
    TypeError, ValueError
        If a column is missing, a value does not suit it, or an array has converted columns or another number of columns.
    """
    if is_frame(X):
        return columns_of_frame(X, fitted)
    converted, known = [*fitted.levels, *fitted.kinds], {*fitted.source_columns, *fitted.others}
    if converted or fitted.others:
        import pandas as pd

        rows = as_matrix(X, name="X")
        numbered = [f"x{j}" for j in range(rows.shape[1])]  # as those of the array that was fitted
        if known == set(numbered):
            return columns_of_frame(pd.DataFrame(rows, columns=numbered), fitted)
    if converted:
        raise TypeError(
            f"{what} must be a DataFrame, because the column {converted[0]!r} of the data was converted, but they are "
            f"of the type {type(X).__name__}"
        )
    rows = as_matrix(X, name="X")
    if rows.shape[1] != fitted.X.shape[1]:
        raise ValueError(f"X has {rows.shape[1]} columns, but {fitted.X.shape[1]} were fitted")
    return rows
