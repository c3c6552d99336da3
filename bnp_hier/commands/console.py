"""Shared by the commands: printing, reading data, and common options."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bnp_hier import datasets
from bnp_hier.advice.preparation import prepared
from bnp_hier.components import FAMILIES
from bnp_hier.datasets import Dataset, tabular
from bnp_hier.datasets.conversions import KINDS, parse_kinds
from bnp_hier.datasets.tabular import UsablePart
from bnp_hier.methods import partition_methods
from bnp_hier.utils.wording import listed, printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "INCOMPLETE",
    "Chains",
    "Concentration",
    "Data",
    "Drop",
    "Family",
    "FixedSamples",
    "FixedWarmup",
    "Header",
    "Items",
    "Kinds",
    "Json",
    "Minutes",
    "MixtureConcentration",
    "Progress",
    "Samples",
    "Seed",
    "Truth",
    "Warmup",
    "check_positive",
    "err",
    "is_file",
    "out",
    "print_json",
    "print_table",
    "print_warnings",
    "read_data",
    "method_names",
    "announced_finishing",
    "command_line",
    "counted",
    "NAME",
    "print_notes",
    "program",
    "read_usable",
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

Data = Annotated[str, typer.Argument(help="Name of a data set (iris, wine, ...), or a CSV, Parquet, NPY or NPZ file.")]
Truth = Annotated[
    list[str] | None,
    typer.Option(help="Columns with known classes, which are hidden from all methods, comma-separated; may be repeated."),
]
Drop = Annotated[list[str] | None, typer.Option(help="Columns to leave out, comma-separated; may be repeated.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        help=f"What to take columns for, as in a=count,b=category: {', '.join(KINDS)}, or an ordered scale such as "
        "size=small<medium<large; may be repeated. `bnp-hier recommend` says what columns are taken for by default."
    ),
]
Items = Annotated[str | None, typer.Option(help="Column with the names of the rows.")]
Family = Annotated[
    str, typer.Option(help=f"Likelihood of one cluster: auto (inferred from the columns), or one of {', '.join(FAMILIES)}.")
]
Concentration = Annotated[
    float | None, typer.Option(help="Concentration of the Dirichlet process.", show_default="a Gamma(2, 20) prior")
]
MixtureConcentration = Annotated[
    float | None,
    typer.Option(
        help="Concentration of the Dirichlet process; for bhmc, of the nested Chinese restaurant process.",
        show_default="a Gamma(2, 20) prior; Gamma(1, 10) for bhmc",
    ),
]
Depth = Annotated[int, typer.Option(help="Number of levels of the tree below the root (bhmc only).")]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first row of a CSV file contains the column names; if not, the columns are named x0, x1, ....",
        show_default="--header; an error if the first row is more likely data",
    ),
]


def _checked_seed(seed: int) -> int:
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed must be a whole number from 0 to {2**63 - 1}, but it is {seed}")
    return seed


Seed = Annotated[int, typer.Option(help="Random seed.", callback=_checked_seed)]
Chains = Annotated[int, typer.Option(help="Number of MCMC chains.")]
Warmup = Annotated[
    int | None,
    typer.Option(help="Warm-up sweeps per chain.", show_default="500, or fewer if the time budget requires it"),
]
Samples = Annotated[
    int | None,
    typer.Option(help="Sweeps kept per chain.", show_default="until the chains have converged or the time budget is spent"),
]
FixedWarmup = Annotated[int | None, typer.Option(help="Warm-up sweeps per chain.", show_default="500")]
FixedSamples = Annotated[int | None, typer.Option(help="Sweeps kept per chain.", show_default="1000")]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Time budget in minutes, from the choice of the likelihood to the results; it determines which methods run.",
        show_default="2 to 6, depending on the number of rows",
    ),
]
Progress = Annotated[bool, typer.Option(help="Show progress bars.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, to standard output.")]


def is_file(data: str) -> bool:
    """Whether an argument means a file, and not a named data set, whose name a folder or a file without a suffix may share."""
    return bool(Path(data).suffix) or (Path(data).exists() and data not in datasets.names())


def read_data(
    data: str,
    truth: Sequence[str] | None = None,
    items: str | None = None,
    drop: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    header: bool | None = None,
) -> Dataset:
    """Read a file if `data` exists or has a suffix; otherwise load the data set of that name."""
    given = parse_kinds(kinds or ())
    if not is_file(data):
        return _named(data, truth, items, drop, kinds, header)
    table = prepared(tabular.Table.read(data, header, with_index=True), truth or None, items, drop or (), given).data
    assert table is not None  # or there was an error
    print_notes(table)
    of_text = {name: levels for name, levels in table.levels.items() if name not in given}
    if of_text:
        held = listed((f"{name!r} ({len(levels)})" for name, levels in of_text.items()), MOST_LISTED)
        known = f"; if one of them contains known classes, use --truth, for example --truth {shlex.quote(next(iter(of_text)))}"
        err.print(
            f"text columns are treated as categories (number of categories in parentheses): {held}{'' if truth else known}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return table


def read_usable(
    data: str,
    truth: Sequence[str] | None = None,
    items: str | None = None,
    drop: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    header: bool | None = None,
) -> UsablePart:
    """Read what can be used, and say why the rest cannot, for commands that show what each column is taken for."""
    if not is_file(data):
        known = _named(data, truth, items, drop, kinds, header)
        return UsablePart(known, (), len(known.X))
    given = parse_kinds(kinds or ())
    part = prepared(tabular.Table.read(data, header, with_index=True), truth or None, items, drop or (), given, refuse=False)
    if part.data is not None:
        print_notes(part.data)
    return part


def _named(
    data: str,
    truth: Sequence[str] | None,
    items: str | None,
    drop: Sequence[str] | None,
    kinds: Sequence[str] | None,
    header: bool | None,
) -> Dataset:
    if truth or items is not None or drop or kinds:
        raise ValueError(
            "--truth, --items, --drop and --kinds apply only to files; a named data set has its own classes and row names"
        )
    if header is not None:
        raise ValueError("--header and --no-header apply only to files; a named data set has its own column names")
    return datasets.load(data)


def print_notes(data: Dataset) -> None:
    """Print how columns were read, where that is not evident, to standard error."""
    for note in data.notes:
        err.print(note, highlight=False)


def size_in_words(data: Dataset) -> str:
    """The numbers of rows and of columns, as they were read."""
    return f"{counted(len(data.X), 'row')}, {counted(len(data.source_columns), 'column')}"


def counted(number: int, noun: str) -> str:
    """A number with a noun, which gets an s unless there is one of it."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def program() -> str:
    """The name of this program for a shell: the path by which it was called if it is not found by its name."""
    called = sys.argv[0]
    return called if Path(called).name == NAME and shutil.which(NAME) is None else NAME


def command_line(
    command: str, data: str, words: Mapping[str, object], repeated: Mapping[str, Sequence[str] | None], header: bool | None
) -> str:
    """Words of a command line, after the name of the program; options without a value are left out."""
    again = [word for flag, value in words.items() if value is not None for word in (flag, str(value))]
    again += [word for flag, values in repeated.items() for value in values or [] for word in (flag, value)]
    again += [] if header is None else ["--header" if header else "--no-header"]
    return shlex.join([command, data, *again])


def method_names(words: Sequence[str]) -> list[str] | None:
    """Split comma-separated lists of methods; None for "auto" alone. An unknown method raises ValueError."""
    chosen = [part.strip() for word in words for part in word.split(",") if part.strip()]
    if chosen == ["auto"]:
        return None
    if not chosen or any(name not in partition_methods() for name in chosen):
        raise ValueError(f"--methods must be auto or some of {', '.join(partition_methods())}, but it is {','.join(words)!r}")
    return list(dict.fromkeys(chosen))


def check_positive(**values: float | None) -> None:
    """Raise ValueError for the first option that is given and not positive."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"--{name} must be positive, but it is {value}")


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each warning on a separate line to standard error."""
    for warning in warnings:
        err.print(Text.assemble(("warning:", "bold yellow"), f" {printable(warning)}"), soft_wrap=True)


def announced_finishing(what: str) -> None:
    """Answer a first Ctrl-C that arrives while results are being written."""
    err.print(f"finishing {what} first; press Ctrl-C again to stop immediately and lose it", highlight=False)


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
    out.print(json.dumps(_plain(content), allow_nan=False), soft_wrap=True, highlight=False, markup=False)


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
