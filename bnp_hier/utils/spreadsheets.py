"""Tables as CSV text that spreadsheets read as it is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["csv_text"]

_FORMULA = re.compile(r"[=+\-@\t\n]")
_NUMBER = re.compile(r"[+\-]?(\d+\.?\d*|\.\d+)([eE][+\-]?\d+)?")


def csv_text(table: pd.DataFrame, *, index: bool = True, digits: int = 8) -> str:
    """A DataFrame as CSV text, in which no text or name is a formula for a spreadsheet.

    A text that begins like a formula, with one of ``= + - @`` or a tab or line break, gets an apostrophe before it, unless it
    is a number.

    Parameters
    ----------
    table
        The table.
    index
        Whether its index becomes the first columns.
    digits
        Number of significant digits of numbers that are not whole.
    """
    import pandas as pd

    names = [*((name or "") for name in table.index.names if index), *table.columns]
    parts = [table.index.to_frame(index=False), table.reset_index(drop=True)] if index else [table]
    flat = pd.concat(parts, axis=1).set_axis([_cell(str(name), digits) for name in names], axis=1)
    for place, (_, column) in enumerate(flat.items()):
        if not pd.api.types.is_numeric_dtype(column):
            flat.isetitem(place, column.astype(object).map(lambda cell: _cell(cell, digits)))
    return flat.to_csv(index=False, float_format=f"%.{digits}g")


def _cell(cell: object, digits: int) -> object:
    if isinstance(cell, float):
        return cell if cell != cell else f"{cell:.{digits}g}"
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r\n", "\n").replace("\r", "\n")  # carriage returns are not quoted, and would begin a new row
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
