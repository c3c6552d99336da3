"""What the commands print, and how."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bnp_hier.datasets import Dataset
from bnp_hier.methods import partition_methods
from bnp_hier.utils.wording import counted, printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "INCOMPLETE",
    "MOST_LISTED",
    "NAME",
    "announced_finishing",
    "err",
    "method_names",
    "out",
    "print_json",
    "print_table",
    "print_warnings",
    "program",
    "size_in_words",
]


class _Plain(Console):
    """A console that prints text as it is: names may contain Rich markup or control characters of the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **options)


out, err = _Plain(), _Plain(stderr=True)

INCOMPLETE = 3
"""Exit code of a command that finished, although part of the requested result is missing."""

NAME = "bnp-hier"
"""Name of the program."""

MOST_LISTED = 6
"""Maximum number of columns that are listed by name."""


def size_in_words(data: Dataset) -> str:
    """The numbers of rows and of columns, as they were read."""
    return f"{counted(len(data.X), 'row')}, {counted(len(data.source_columns), 'column')}"


def program() -> str:
    """The name of this program for a shell: the path by which it was called if it is not found by its name."""
    called = sys.argv[0]
    return called if Path(called).name == NAME and shutil.which(NAME) is None else NAME


def method_names(words: Sequence[str]) -> list[str] | None:
    """Split comma-separated lists of methods; None for "auto" alone. An unknown method raises ValueError."""
    chosen = [part.strip() for word in words for part in word.split(",") if part.strip()]
    if chosen == ["auto"]:
        return None
    if not chosen or any(name not in partition_methods() for name in chosen):
        raise ValueError(f"--methods must be auto or some of {', '.join(partition_methods())}, but it is {','.join(words)!r}")
    return list(dict.fromkeys(chosen))


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each warning on a separate line to standard error."""
    for warning in warnings:
        err.print(Text.assemble(("warning:", "bold yellow"), f" {printable(warning)}"), soft_wrap=True)


def announced_finishing(what: str) -> None:
    """Answer a first Ctrl-C that arrives while results are being written."""
    err.print(f"finishing {what} first; press Ctrl-C again to stop immediately and lose it")


def print_table(table: pd.DataFrame, title: str, caption: str = "", *, transpose: bool = False) -> None:
    """Print a DataFrame as a table; its columns become rows if `transpose`."""
    view = Table(title=printable(title), caption=printable(caption) or None)
    rows = table.T if transpose else table
    view.add_column(printable(table.index.name or ""), style="bold")
    for name in rows.columns:
        numeric = all(isinstance(value, int | float | np.number) or value is None for value in rows[name])
        view.add_column(printable(name).replace("_", " "), justify="right" if numeric or transpose else "left")
    for name, values in zip(rows.index, rows.to_numpy(dtype=object), strict=True):
        view.add_row(printable(name).replace("_", " ") if transpose else printable(name), *map(_cell, values))
    out.print(view)


def _cell(value: Any) -> str:
    if value is None or value != value:  # NaN
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if not isinstance(value, int | float | np.number):
        return printable(value)
    number = float(value)
    return str(int(number)) if number.is_integer() else f"{number:.3f}" if abs(number) < 10 else f"{number:.1f}"


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object in ASCII to standard output; numbers that are not finite become null."""
    out.print(json.dumps(_plain(content), allow_nan=False), soft_wrap=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
