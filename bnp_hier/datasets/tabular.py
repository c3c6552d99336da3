"""Readers of CSV, Parquet and NumPy files and of DataFrames, whose error messages give the location of what they found."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Shaped

from bnp_hier.datasets.conversions import (
    MOST_GRADES,
    converted,
    features_of,
    order_of,
    owners,
    resolved_kind,
    steps_of_grades,
)
from bnp_hier.datasets.dataset import RENAME, Dataset, combined_labels
from bnp_hier.datasets.recognition import DATE, ordered_scale, uninformative_numbers, useless_numbers
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
from bnp_hier.datasets.written_numbers import Written, read_new_numbers, read_numbers
from bnp_hier.utils.wording import did_you_mean, listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Table",
    "UnusableColumn",
    "UsablePart",
    "as_labels",
    "columns_of_frame",
    "from_frame",
    "read_columns",
    "read_table",
    "read_usable_part",
]

_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npy", ".npz")
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_MISSING = frozenset({"", "na", "nan", "null", "n/a", "#n/a", "<na>", "nat", "?"})

MOST_LEVELS = 30
"""Largest number of distinct texts in a column that is treated as categorical."""

INDEX = "index"
"""Name of a first column without a name."""

FEW_LEVELS = 10
"""Largest number of categories of a column that is said to be categorical, although each has one or two rows."""


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
    """
    return Table.read(path, header).dataset(truth, items, drop, kinds or {})


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
    return Table.of_frame(frame, name).dataset(truth, items, drop, kinds or {})


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


class UsablePart(NamedTuple):
    """What can be used of a file.

    - **data** - the usable columns; None if there are none.
    - **unusable** - the others.
    - **rows** - number of rows.
    """

    data: Dataset | None
    unusable: tuple[UnusableColumn, ...]
    rows: int


def read_usable_part(
    path: str | Path,
    truth: Hashable | Collection[Hashable] | None = None,
    *,
    items: Hashable | None = None,
    drop: Hashable | Collection[Hashable] = (),
    kinds: Mapping[Any, str] | None = None,
    header: bool | None = None,
) -> UsablePart:
    """Read a file as :func:`read_table` does, but leave out columns for which that raises an error, and say why.

    They are columns of text that are not categories, and columns of numbers without a value or with a single one. If there are
    any, columns that only tell rows apart are left out as well.

    Raises
    ------
    FileNotFoundError, ImportError, ValueError
        As in :func:`read_table`, except for what the columns contain.
    """
    table, requested = Table.read(path, header), kinds or {}
    unusable = table.unusable(truth, items, drop, requested)
    names = [column.name for column in unusable]
    try:
        left = {name: kind for name, kind in requested.items() if on_one_line(name) not in names}
        data = table.dataset(truth, items, [*table.named(drop), *names], left)
    except NoColumnsError:
        if not unusable:
            raise
        data = None
    return UsablePart(data, unusable, len(table.frame))


def columns_of_frame(frame: Any, fitted: Dataset) -> Float[np.ndarray, "m d"]:
    """The features of a fitted `Dataset` from a DataFrame of new rows, whose other columns are ignored.

    Raises
    ------
    TypeError, ValueError
        As in :func:`from_frame` and :func:`read_columns`.
    """
    return Table.of_frame(frame, "new rows").selected(fitted)


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
    """
    table = Table.read(path, header, with_index=True)
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


class NoColumnsError(ValueError):
    """No column is left to find clusters with."""


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
class Table:
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
    _written: dict[str, Written] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, path: str | Path, header: bool | None = None, *, with_index: bool = False) -> Table:
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
    def of_frame(cls, frame: Any, name: str) -> Table:
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

    def dataset(
        self,
        truth: Hashable | Collection[Hashable] | None,
        items: Hashable | None,
        drop: Hashable | Collection[Hashable],
        kinds: Mapping[Any, str],
    ) -> Dataset:
        """Convert the columns; see :func:`read_table` for the parameters and the errors that may be raised."""
        chosen = self._chosen(truth, items, drop, kinds)
        truths = {name: as_labels(self.complete(name)) for name in chosen.truth}
        self.check_numbers(chosen.numbers)
        X, names = self.features(chosen.features, chosen.levels, chosen.kinds)
        named, apart = chosen.items, (*chosen.truth, chosen.items)
        scales = [name for name, kind in chosen.kinds.items() if (scale := order_of(kind)) and all(map(is_number, scale))]
        written = {name: self.written(name) for name in (*chosen.numbers, *scales)}
        return Dataset(
            name=self.name.split(".")[0],
            X=X,
            y=combined_labels(truths) if truths else None,
            feature_names=names,
            item_names=None if named is None else self.names(named),
            description=f"{len(self.frame)} rows and {len(chosen.features)} columns read from {self.name}.",
            levels=chosen.levels,
            kinds=chosen.kinds,
            sources={
                name: self.plain(name, as_texts=name in chosen.levels and not order_of(chosen.kinds.get(name, "")))
                for name in chosen.kinds | chosen.levels
            },
            others={name: self.plain(name, as_texts=self._is_unordered(name)) for name in chosen.dropped if name not in apart},
            units={name: column.unit for name, column in written.items() if column.unit},
            separators={name: column.separator for name, column in written.items() if column.separator},
            items=named,
            notes=(*self.notes, *_notes(written), *self._notes_on_categories(chosen)),
            truths=truths if len(truths) > 1 else {},
        )

    def unusable(
        self,
        truth: Hashable | Collection[Hashable] | None,
        items: Hashable | None,
        drop: Hashable | Collection[Hashable],
        kinds: Mapping[Any, str],
    ) -> tuple[UnusableColumn, ...]:
        """Columns that have to be left out; see :func:`read_usable_part`."""
        numbers = self._chosen(truth, items, drop, kinds).numbers
        text, useless = self._sorted_out(numbers)
        if not text and not any(uninformative_numbers(self.written(name).values) for name in useless):
            return ()
        reasons = {name: self._text_in_words(name) for name in text} | useless
        missing = {name: self.missing_share(name) for name in reasons}
        named = {name: name in text and self._names_rows(name) for name in reasons}
        return tuple(UnusableColumn(name, reasons[name], missing[name], named[name]) for name in numbers if name in reasons)

    def is_refused(self, name: str) -> bool:
        """Whether a column cannot be read although most cells seem to be numbers, so that leaving it out would lose values."""
        written = self.written(name)
        if self._holds_dates(name) or not written.is_text.any():
            return False
        numbers = (~np.isnan(written.values)).sum() > 0.5 * (~_missing(self.column(name))).sum()
        return bool(numbers) or (written.obstacle is not None and written.obstacle.is_certain)

    def is_mixed(self, name: str) -> bool:
        """Whether a column has up to ten different cells, among them texts and numbers, as those of codes."""
        written, values = self.written(name), self.number_of_values(name)
        few = 2 <= values <= FEW_LEVELS and 5 * values <= len(written.values) and not self._holds_dates(name)
        return few and bool(written.is_text.any()) and written.obstacle is None

    def missing_share(self, name: str) -> float:
        """Share of missing values of a column."""
        return float(_missing(self.column(name)).mean())

    def number_of_values(self, name: str) -> int:
        """Number of different values of a column."""
        return len(_different(self.column(name)))

    def _chosen(
        self,
        truth: Hashable | Collection[Hashable] | None,
        items: Hashable | None,
        drop: Hashable | Collection[Hashable],
        kinds: Mapping[Any, str],
    ) -> _Chosen:
        truth = ("y" if "y" in self.beside else ()) if truth is None else truth
        known = list(dict.fromkeys(self.named(truth)))
        items = None if items is None else str(self.column(items).name)
        dropped = self.named(drop)
        apart = [*known, *(() if items is None else (items,)), *dropped]
        features = [name for name in self.frame.columns if name not in apart]
        if not features:
            besides = f" left besides {_listed(apart)}" if apart else ""
            raise NoColumnsError(f"{self.name}: no columns{besides}; expected at least one column of numbers")
        resolved = self.kinds_of({name: "ordered" for name in features if _is_scale(self.column(name))} | dict(kinds), features)
        levels = {name: values for name in features if (values := self.levels_of(name, resolved.get(name)))}
        return _Chosen(known, items, features, dropped, resolved, levels, [name for name in features if name not in levels])

    def names(self, items: Hashable) -> tuple[str, ...]:
        """The names of the rows, from a column."""
        return tuple(map(str, self.column(items)))

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

    def place(self, row: int) -> str:
        """The location in the file of a row (counted from 0)."""
        return f"data row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def column(self, name: Hashable) -> pd.Series:
        """Return a column by name; raise a ValueError that lists the columns if it does not exist."""
        if str(name) in self.beside:
            return self.beside[str(name)]
        name = on_one_line(name)
        if name not in self.frame.columns:
            known = [*self.frame.columns, *self.beside]
            raise ValueError(
                f"{self.name}: there is no column {name!r}; {did_you_mean(name, known, 1)} columns are {_listed(known)}"
            )
        return self.frame[name]

    def named(self, words: Hashable | Collection[Hashable]) -> list[str]:
        """Resolve one or several column names, or texts that list them, separated by commas; all columns must exist."""
        several: Collection[Hashable] = [cast(Hashable, words)]
        if isinstance(words, Collection) and not isinstance(words, str | bytes) and not self.has(str(words)):
            several = words
        parts = (
            [part.strip() for part in word.split(",")] if isinstance(word, str) and not self.has(word) else [word]
            for word in several
        )
        return [str(self.column(name).name) for names in parts for name in names if name != ""]

    def complete(self, name: str) -> pd.Series:
        """Return a column of labels by name; raise a ValueError that names the first row without a label."""
        column = self.column(name)
        missing = _missing(column)
        if missing.any():
            raise ValueError(
                f"{self.name}, {self.place(int(missing.argmax()))}, column {name!r}: the label is missing "
                f"(as in {missing.sum()} of {len(column)} rows); expected a label in every row"
            )
        return column

    def written(self, name: str) -> Written:
        """A column as numbers, with what is written beside them; texts of dates are not numbers."""
        import pandas as pd

        if name not in self._written:
            column = self.column(name)
            if pd.api.types.is_numeric_dtype(column):
                values = column.to_numpy(dtype=np.float64, na_value=np.nan)
                self._written[name] = Written(values, np.zeros(len(column), dtype=bool))
            else:
                missing = _missing(column)
                dates = self._holds_dates(name)
                self._written[name] = read_numbers([str(cell).strip() for cell in column], missing, plain=dates)
        return self._written[name]

    def _written_as(self, name: str, unit: str, separator: str) -> Written:
        """A column of new rows as numbers, with the unit and the separators of the fit."""
        import pandas as pd

        column = self.column(name)
        is_typed = pd.api.types.is_numeric_dtype(column)
        if is_typed and unit != "%":
            return self.written(name)
        texts = _texts(column) if is_typed else [str(cell).strip() for cell in column]
        written = read_new_numbers(texts, _missing(column), unit, "" if is_typed else separator)
        return written._replace(values=self.written(name).values) if is_typed else written

    def numbers(self, name: str, kind: str | None = None) -> Float[np.ndarray, " n"]:
        """Return a column as float64, converted as its kind requires; raise a ValueError if it contains text."""
        column, written = self.column(name), self.written(name)
        if written.is_text.any():  # in new rows; those of the fit have been checked
            if written.obstacle is None:
                row = int(written.is_text.argmax())
                what = f"the text {str(column.iloc[row])!r}"
                expected = "expected a number as in the data of the fit, or an empty cell if the value is missing"
            else:
                row, what, expected, _ = written.obstacle
            raise ValueError(f"{self.name}, {self.place(row)}, column {name!r}: found {what}, {expected}")
        values, wrong, expected = converted(kind, written.values)
        if wrong is not None:
            raise ValueError(
                f"{self.name}, {self.place(wrong)}, column {name!r}: found {values[wrong]:g}, expected {expected}, "
                f"because the column is taken as {kind}"
            )
        return values

    def check_numbers(self, names: Iterable[str]) -> None:
        """Raise a ValueError if any of the named columns contains text; it also mentions other columns of no use."""
        text, useless = self._sorted_out(names)
        if text:
            raise ValueError(self._refers_to_text(text, useless))

    def _sorted_out(self, names: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        """Columns that contain text -> a row where they do; and columns of numbers that are of no use -> why."""
        text: dict[str, int] = {}
        useless: dict[str, str] = {}
        for name in names:
            written = self.written(name)
            if written.is_text.any():
                text[name] = int(written.is_text.argmax()) if written.obstacle is None else written.obstacle.row
            elif reason := useless_numbers(name, written.values):
                useless[name] = reason
        return text, useless

    def kinds_of(self, kinds: Mapping[Any, str], features: Iterable[str]) -> dict[str, str]:
        """Check kinds and complete them; raise a ValueError if a column or kind does not exist, or they do not match."""
        resolved, features = {}, set(features)
        for label, kind in kinds.items():
            column = self.column(label)
            name = str(column.name)
            if name not in features:
                raise ValueError(f"{self.name}: column {name!r} has a kind, {kind!r}, but is not used to find clusters")
            written = self.written(name)
            obstacle = written.obstacle
            if obstacle is not None and kind not in ("category", "ordered") and not order_of(kind):
                raise ValueError(
                    f"{self.name}, {self.place(obstacle.row)}, column {name!r}: found {obstacle.reason}: {obstacle.advice}"
                )
            cells = None if written.is_text.any() else written.values[~np.isnan(written.values)]
            try:
                resolved[name] = resolved_kind(name, kind, cells, _scale(column))
            except ValueError as error:
                raise ValueError(f"{self.name}, {error}") from None
        return resolved

    def levels_of(self, name: str, kind: str | None) -> tuple[str, ...]:
        """The distinct values of a column that is treated as categorical, or its grades; empty for any other column."""
        if kind is None:
            return self._levels(name)
        column, scale = self.column(name), order_of(kind)
        if kind != "category" and not scale:
            return ()
        levels = tuple(_sorted_texts(column))
        cells = int((~_missing(column)).sum())
        if len(levels) < 2:
            raise ValueError(
                f"{self.name}, column {name!r}: found {len(levels)} distinct value(s), expected several categories"
            )
        if len(levels) > _most_levels(cells):
            advice = "leave out --kinds or kinds= to take it for numbers" if not self.written(name).is_text.any() else "drop it"
            raise ValueError(
                f"{self.name}, column {name!r}: found {len(levels)} distinct values in {cells} cells, such as "
                f"{levels[0]!r} and {levels[1]!r}, expected categories of at least two rows on average: a category of its own "
                f"for almost every row says nothing about clusters; group the values, or {advice}"
            )
        return scale or levels

    def _levels(self, name: str) -> tuple[str, ...]:
        """The distinct texts of a column that is treated as categorical by itself; empty for any other column."""
        import pandas as pd

        column = self.column(name)
        if _is_category(column):
            return tuple(_sorted_texts(column))
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            return ()
        written, missing = self.written(name), _missing(column)
        is_text = written.is_text
        if self._holds_dates(name) or not is_text.any() or (is_text | missing).sum() < len(column):
            return ()
        if written.obstacle is not None and written.obstacle.is_certain:
            return ()
        levels = _sorted_texts(column)
        return tuple(levels) if 2 <= len(levels) <= min(MOST_LEVELS, is_text.sum() // 2) else ()

    def _notes_on_categories(self, chosen: _Chosen) -> Iterator[str]:
        """Columns that are categories by themselves, although their cells look like numbers; and the other way round."""
        import pandas as pd

        for name in (name for name in chosen.features if name not in chosen.kinds):
            column, obstacle = self.column(name), self.written(name).obstacle
            is_category = isinstance(column.dtype, pd.CategoricalDtype)
            if name in chosen.levels and obstacle is not None and not is_category:
                yield f"{name!r} is taken as a category because of {obstacle.reason}"
            if name in chosen.numbers and is_category and len(_different(column)) > 2:
                yield f"{name!r} is read as numbers, because almost every row would be a category of its own"

    def plain(self, name: str, as_texts: bool = False) -> Shaped[np.ndarray, " n"]:
        """A column as float64, or as texts that are empty where missing."""
        column, written = self.column(name), self.written(name)
        return np.where(_missing(column), "", _texts(column)) if as_texts or written.is_text.any() else written.values

    def _is_unordered(self, name: str) -> bool:
        """Whether the values of a column are categories by its type, which says nothing about their order."""
        return _is_category(self.column(name)) and not _ordered_texts(self.column(name))

    def _text_in_words(self, name: str) -> str:
        """Why a column of text cannot be used, in a clause."""
        written, cells = self.written(name), self.column(name)
        if self._holds_dates(name):
            return "dates or times"
        if written.obstacle is not None:
            return f"{written.obstacle.reason}; {written.obstacle.advice}"
        if self._names_rows(name):
            return "a different text in almost every row, perhaps the names of the rows"
        first = str(cells.iloc[int(written.is_text.argmax())])
        if len(_different(cells)) == 1:
            return f"{first!r} in every row"
        if (~np.isnan(written.values)).any():
            return f"text beside numbers, such as {first!r}"
        return f"{len(_different(cells))} different texts, such as {first!r}"

    def _refers_to_text(self, rows: Mapping[str, int], useless: Mapping[str, str]) -> str:
        """Error message about columns of text: location of the first text, and advice depending on the apparent content.

        Columns of numbers that are of no use, and the reasons, are added, so that all can be left out at once.
        """
        names = [name for name in rows if self.written(name).obstacle is None and self._names_rows(name)]
        dates = [name for name in rows if name not in names and self._holds_dates(name)]
        obstacles = {name: why for name in rows if (why := self.written(name).obstacle)}
        rest = [name for name in rows if name not in (*names, *dates, *obstacles)]
        same = [name for name in rest if len(_different(self.column(name))) == 1]
        rest = [name for name in rest if name not in same]
        first, row = next(iter(rows.items()))
        problem = f"{self.name}, {self.place(row)}, column {first!r}: found the text {str(self.frame[first].iloc[row])!r}"
        parts = []
        if names:
            hint = f"(items={names[0]!r} or --items {shlex.quote(names[0])})"
            parts.append(
                f"{_listed(names)}: a different text in almost every row; if it names the rows, declare it {hint}; otherwise "
                "drop it"
            )
        if dates:
            few = next(filter(self._has_few_values, dates), None)
            other = f", or take them as categories (--kinds {shlex.quote(f'{few}=category')})" if few else ""
            parts.append(
                f"{_listed(dates)}: dates or times; drop them or replace them by numbers, such as days since a start date"
                f"{other}"
            )
        for name, (_, reason, advice, is_certain) in obstacles.items():
            as_category = not is_certain and self._has_few_values(name)
            other = f", or take its texts as categories (--kinds {shlex.quote(f'{name}=category')})" if as_category else ""
            parts.append(f"{name!r}: {reason}; {advice}{other}")
        if rest:
            few = next(filter(self._has_few_values, rest), None)
            option = shlex.quote(f"{few}=category")
            as_such = f"if its values are categories, take it as such (--kinds {option}); " if few else ""
            parts.append(
                f"{_listed(rest)}: if the column contains the true labels, declare it with truth= or --truth; if it names the "
                f"rows, with items= or --items; {as_such}otherwise drop it"
            )
        if reasons := {name: self._text_in_words(name) for name in same} | dict(useless):
            parts.append("; ".join(f"{name!r}: {reason}" for name, reason in reasons.items()))
        drop = ",".join([*rows, *useless])
        return f"{problem}, expected a number. {'. '.join(parts)} (to drop all: --drop {shlex.quote(drop)})"

    def _has_few_values(self, name: str) -> bool:
        column = self.column(name)
        return len(_different(column)) <= _most_levels(int((~_missing(column)).sum()))

    def _names_rows(self, name: str) -> bool:
        cells = self.column(name)
        every = len(cells) > 2 and len(_different(cells)) > 0.9 * len(cells) and bool(self.written(name).is_text.all())
        return every and not self._holds_dates(name)

    def _holds_dates(self, name: str) -> bool:
        import pandas as pd

        cells = self.column(name)
        if cells.dtype.kind in "mM" or isinstance(cells.dtype, pd.PeriodDtype):
            return True
        present = cells[~_missing(cells)][:20]
        return len(present) > 0 and all(isinstance(cell, _TIMES) or DATE.match(str(cell).strip()) for cell in present)

    def features(
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
                values.append(self.numbers(name, kinds.get(name)))
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
                self._written[name] = self._written_as(name, fitted.units.get(name, ""), fitted.separators.get(name, ""))
        X, names = self.features(needed, levels, fitted.kinds)
        features = dict(zip(names, X.T, strict=True))
        for name in in_steps:
            features |= steps_of_grades(name, scales[name], features)
        return np.column_stack([features[name] for name in fitted.feature_names])

    def _indicators(self, name: str, levels: tuple[str, ...], kind: str | None) -> list[Float[np.ndarray, " n"]]:
        """Indicators of the levels, 0 where the value is missing; of two levels, only the second, NaN where it is missing."""
        column = self.column(name)
        texts, missing = _texts(column), _missing(column)
        cells = self._grades(name, levels) if order_of(kind or "") else np.array(texts)
        unknown = ~missing & ~np.isin(cells, levels)
        if unknown.any():
            row = int(unknown.argmax())
            raise ValueError(
                f"{self.name}, {self.place(row)}, column {name!r}: found {texts[row]!r}, "
                f"expected one of {_listed(levels)}, or an empty cell if the value is missing"
            )
        indicators = [((cells == level) & ~missing).astype(float) for level in levels]
        return [np.where(missing, np.nan, indicators[1])] if len(levels) == 2 else indicators

    def _grades(self, name: str, scale: tuple[str, ...]) -> Shaped[np.ndarray, " n"]:
        """The cells as grades of a scale: numbers without what stands beside them if the grades are numbers."""
        values, cells = self.written(name).values, np.array(_texts(self.column(name)))
        if not all(map(is_number, scale)):
            return cells
        return np.where(np.isin(cells, scale) | np.isnan(values), cells, [f"{value:.15g}" for value in values])


def _most_levels(cells: int) -> int:
    """Largest number of categories of so many cells."""
    return max(FEW_LEVELS, cells // 2)


def _texts(column: pd.Series | pd.Index) -> list[str]:
    """The cells as texts; whole numbers without decimals."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):  # whose whole numbers become floats where one is missing
        texts = np.array([*_texts(column.dtype.categories), "nan"])
        return [str(text) for text in texts[pd.Categorical(column).codes]]
    if pd.api.types.is_integer_dtype(column):  # all digits, which identifiers may have more of than a float
        return [str(cell) for cell in column]
    if pd.api.types.is_numeric_dtype(column):
        return [f"{value:.15g}" for value in column.to_numpy(dtype=np.float64, na_value=np.nan)]
    return [str(cell).strip() for cell in column]


def _different(column: pd.Series) -> set[str]:
    """The distinct values of a column as texts; cells of a Parquet file or a DataFrame may be lists, which have no hash."""
    return {text for text, absent in zip(_texts(column), _missing(column), strict=True) if not absent}


def _sorted_texts(column: pd.Series) -> list[str]:
    """The distinct values of a column as texts, numbers in their order, and those of an ordered type in that of the type."""
    distinct = _different(column)
    if grades := _ordered_texts(column):
        return [grade for grade in grades if grade in distinct]
    return sorted(distinct, key=lambda text: (float(text), text) if all(map(is_number, distinct)) else text)


def _scale(column: pd.Series) -> tuple[str, ...]:
    """The values of a column from low to high if its type or the values tell their order."""
    return _ordered_texts(column) or ordered_scale(_sorted_texts(column))


def _ordered_texts(column: pd.Series) -> tuple[str, ...]:
    """All values of an ordered categorical type as texts, from low to high; empty for any other type."""
    import pandas as pd

    if not isinstance(column.dtype, pd.CategoricalDtype) or not column.dtype.ordered:
        return ()
    return tuple(dict.fromkeys(text for text in _texts(column.dtype.categories) if text.casefold() not in _MISSING))


def _is_category(column: pd.Series) -> bool:
    """Whether a column has a categorical type, and several values that repeat; truth values are 0 and 1."""
    import pandas as pd

    if not isinstance(column.dtype, pd.CategoricalDtype):
        return False
    of_truth = {str(value).casefold() for value in column.dtype.categories} <= {"true", "false"}
    cells = int((~_missing(column)).sum())
    return not of_truth and 2 <= len(_different(column)) <= min(cells - 1, _most_levels(cells))


def _is_scale(column: pd.Series) -> bool:
    """Whether a column is a category of an ordered type, whose grades can be written with < between them."""
    grades = _ordered_texts(column)
    return _is_category(column) and 0 < len(grades) <= MOST_GRADES and not any("<" in grade for grade in grades)


def _cells(column: pd.Series) -> list[str]:
    return [str(value).strip().casefold() for value in column]


def _missing(column: pd.Series) -> Bool[np.ndarray, " n"]:
    return column.isna().to_numpy() | np.array([cell in _MISSING for cell in _cells(column)])


def _listed(names: Iterable[str]) -> str:
    return listed(map(repr, names), 30)
