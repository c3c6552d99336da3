"""One column of a table as it was read, before it is converted: its texts, its numbers, and what it seems to contain."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Shaped

from bnp_hier.datasets.conversions import MOST_GRADES
from bnp_hier.datasets.recognition import DATE, ordered_scale
from bnp_hier.datasets.table_files import is_number
from bnp_hier.datasets.written_numbers import Written, read_new_numbers, read_numbers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_LEVELS", "RawColumn"]

_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_MISSING = frozenset({"", "na", "nan", "null", "n/a", "#n/a", "<na>", "nat", "?"})

MOST_LEVELS = 30
"""Largest number of distinct texts in a column that is treated as categorical."""

FEW_LEVELS = 10
"""Largest number of categories of a column that is said to be categorical, although each has one or two rows."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """The cells of a column: strings if the file is CSV, typed otherwise.

    Parameters
    ----------
    cells
        The cells, with the name of the column.
    given
        The cells as numbers, if it has been said how to read them.
    """

    cells: pd.Series
    given: Written | None = None

    @property
    def name(self) -> str:
        """Name of the column."""
        return str(self.cells.name)

    @cached_property
    def missing(self) -> Bool[np.ndarray, " n"]:
        """Which cells are missing values."""
        return self.cells.isna().to_numpy() | np.array([str(cell).strip().casefold() in _MISSING for cell in self.cells])

    @property
    def present(self) -> int:
        """Number of cells that are not missing."""
        return int((~self.missing).sum())

    @cached_property
    def texts(self) -> list[str]:
        """The cells as texts; whole numbers without decimals."""
        return _texts(self.cells)

    @cached_property
    def distinct(self) -> set[str]:
        """The distinct values as texts; cells of a Parquet file or a DataFrame may be lists, which have no hash."""
        return {text for text, absent in zip(self.texts, self.missing, strict=True) if not absent}

    @property
    def is_numeric(self) -> bool:
        """Whether the column has a type of numbers."""
        import pandas as pd

        return pd.api.types.is_numeric_dtype(self.cells)

    @property
    def has_categorical_type(self) -> bool:
        """Whether the column has a categorical type."""
        import pandas as pd

        return isinstance(self.cells.dtype, pd.CategoricalDtype)

    # ---- numbers ----------------------------------------------------------------------------------------------------------

    @cached_property
    def written(self) -> Written:
        """The cells as numbers, with what is written beside them; texts of dates are not numbers."""
        if self.given is not None:
            return self.given
        if self.is_numeric:
            values = self.cells.to_numpy(dtype=np.float64, na_value=np.nan)
            return Written(values, np.zeros(len(values), dtype=bool))
        return read_numbers([str(cell).strip() for cell in self.cells], self.missing, plain=self.holds_dates)

    def read_as(self, unit: str, separator: str) -> RawColumn:
        """A column of new rows, whose numbers have the unit and the separators of the fit."""
        if self.is_numeric and unit != "%":
            return self
        texts = self.texts if self.is_numeric else [str(cell).strip() for cell in self.cells]
        written = read_new_numbers(texts, self.missing, unit, "" if self.is_numeric else separator)
        return replace(self, given=written._replace(values=self.written.values) if self.is_numeric else written)

    @property
    def has_text(self) -> bool:
        """Whether there are cells that are neither numbers nor missing."""
        return bool(self.written.is_text.any())

    @property
    def row_of_text(self) -> int:
        """A row that shows that the column contains text."""
        return int(self.written.is_text.argmax()) if self.written.obstacle is None else self.written.obstacle.row

    def plain(self, *, as_texts: bool = False) -> Shaped[np.ndarray, " n"]:
        """The column as float64, or as texts that are empty where missing."""
        return np.where(self.missing, "", self.texts) if as_texts or self.has_text else self.written.values

    # ---- categories -------------------------------------------------------------------------------------------------------

    @property
    def grades_of_type(self) -> tuple[str, ...]:
        """All values of an ordered categorical type as texts, from low to high; empty for any other type."""
        if not self.has_categorical_type or not self.cells.dtype.ordered:
            return ()
        return tuple(dict.fromkeys(text for text in _texts(self.cells.dtype.categories) if text.casefold() not in _MISSING))

    @property
    def sorted_texts(self) -> list[str]:
        """The distinct values as texts, numbers in their order, and those of an ordered type in that of the type."""
        if grades := self.grades_of_type:
            return [grade for grade in grades if grade in self.distinct]
        return sorted(self.distinct, key=lambda text: (float(text), text) if all(map(is_number, self.distinct)) else text)

    @property
    def scale(self) -> tuple[str, ...]:
        """The values from low to high if the type or the values tell their order."""
        return self.grades_of_type or ordered_scale(self.sorted_texts)

    @property
    def most_levels(self) -> int:
        """Largest number of categories that the column may have."""
        return max(FEW_LEVELS, self.present // 2)

    @property
    def has_few_values(self) -> bool:
        """Whether the values may be categories."""
        return len(self.distinct) <= self.most_levels

    @cached_property
    def is_category(self) -> bool:
        """Whether the column has a categorical type, and several values that repeat; truth values are 0 and 1."""
        if not self.has_categorical_type:
            return False
        of_truth = {str(value).casefold() for value in self.cells.dtype.categories} <= {"true", "false"}
        return not of_truth and 2 <= len(self.distinct) <= min(self.present - 1, self.most_levels)

    @property
    def is_unordered(self) -> bool:
        """Whether the values are categories by the type of the column, which says nothing about their order."""
        return self.is_category and not self.grades_of_type

    @property
    def is_scale(self) -> bool:
        """Whether the column is a category of an ordered type, whose grades can be written with < between them."""
        grades = self.grades_of_type
        return self.is_category and 0 < len(grades) <= MOST_GRADES and not any("<" in grade for grade in grades)

    @property
    def levels(self) -> tuple[str, ...]:
        """The distinct texts if the column is treated as categorical by itself; empty for any other column."""
        if self.is_category:
            return tuple(self.sorted_texts)
        if self.is_numeric or self.holds_dates or not self.has_text:
            return ()
        is_text, obstacle = self.written.is_text, self.written.obstacle
        if not (is_text | self.missing).all() or (obstacle is not None and obstacle.is_certain):
            return ()
        return tuple(self.sorted_texts) if 2 <= len(self.distinct) <= min(MOST_LEVELS, is_text.sum() // 2) else ()

    def as_grades(self, scale: tuple[str, ...]) -> Shaped[np.ndarray, " n"]:
        """The cells as grades of a scale: numbers without what stands beside them if the grades are numbers."""
        values, cells = self.written.values, np.array(self.texts)
        if not all(map(is_number, scale)):
            return cells
        return np.where(np.isin(cells, scale) | np.isnan(values), cells, [f"{value:.15g}" for value in values])

    # ---- what it seems to contain -----------------------------------------------------------------------------------------

    @cached_property
    def holds_dates(self) -> bool:
        """Whether the column contains dates or times."""
        import pandas as pd

        if self.cells.dtype.kind in "mM" or isinstance(self.cells.dtype, pd.PeriodDtype):
            return True
        present = self.cells[~self.missing][:20]
        return len(present) > 0 and all(isinstance(cell, _TIMES) or DATE.match(str(cell).strip()) for cell in present)

    @property
    def names_rows(self) -> bool:
        """Whether there is a different text in almost every row."""
        n = len(self.cells)
        every = n > 2 and len(self.distinct) > 0.9 * n and bool(self.written.is_text.all())
        return every and not self.holds_dates

    @property
    def is_refused(self) -> bool:
        """Whether the column cannot be read although most cells seem to be numbers: leaving it out would lose values."""
        if self.holds_dates or not self.has_text:
            return False
        mostly = (~np.isnan(self.written.values)).sum() > 0.5 * self.present
        return bool(mostly) or (self.written.obstacle is not None and self.written.obstacle.is_certain)

    @property
    def is_mixed(self) -> bool:
        """Whether the column has up to ten different cells, among them texts and numbers, as those of codes."""
        values = len(self.distinct)
        few = 2 <= values <= FEW_LEVELS and 5 * values <= len(self.cells) and not self.holds_dates
        return few and self.has_text and self.written.obstacle is None

    @property
    def content(self) -> str:
        """What a column with text contains: "dates", numbers with an "obstacle", "names" of rows, the "same" text or "text"."""
        if self.holds_dates:
            return "dates"
        if self.written.obstacle is not None:
            return "obstacle"
        return "names" if self.names_rows else "same" if len(self.distinct) == 1 else "text"

    @property
    def in_words(self) -> str:
        """Why a column with text cannot be used, in a clause."""
        first, content, obstacle = str(self.cells.iloc[self.row_of_text]), self.content, self.written.obstacle
        if content == "text" and not np.isnan(self.written.values).all():
            return f"text beside numbers, such as {first!r}"
        return {
            "dates": "dates or times",
            "obstacle": "" if obstacle is None else f"{obstacle.reason}; {obstacle.advice}",
            "names": "a different text in almost every row, perhaps the names of the rows",
            "same": f"{first!r} in every row",
            "text": f"{len(self.distinct)} different texts, such as {first!r}",
        }[content]


def _texts(cells: pd.Series | pd.Index) -> list[str]:
    import pandas as pd

    if isinstance(cells.dtype, pd.CategoricalDtype):  # whose whole numbers become floats where one is missing
        texts = np.array([*_texts(cells.dtype.categories), "nan"])
        return [str(text) for text in texts[pd.Categorical(cells).codes]]
    if pd.api.types.is_integer_dtype(cells):  # all digits, which identifiers may have more of than a float
        return [str(cell) for cell in cells]
    if pd.api.types.is_numeric_dtype(cells):
        return [f"{value:.15g}" for value in cells.to_numpy(dtype=np.float64, na_value=np.nan)]
    return [str(cell).strip() for cell in cells]
