"""The options that several commands share, and what those that belong together do."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from bnp_hier import datasets
from bnp_hier.advice.column_kinds import Family, component_for
from bnp_hier.advice.default_models import hierarchical_mixture, mixture
from bnp_hier.advice.model_checks import check_model
from bnp_hier.advice.preparation import UsablePart, prepared
from bnp_hier.commands.console import MOST_LISTED, err, print_warnings, size_in_words
from bnp_hier.components import FAMILIES, Component, LearnedPrior
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.conversions import KINDS, parse_kinds
from bnp_hier.datasets.tabular import RawTable, Roles
from bnp_hier.inspection.trace import Model
from bnp_hier.methods import Method, RunOptions
from bnp_hier.utils.wording import listed

__all__ = [
    "ChainOptions",
    "Chains",
    "Header",
    "Json",
    "Minutes",
    "MixtureOptions",
    "Progress",
    "Seed",
    "TableOptions",
    "check_positive",
    "is_file",
    "with_options",
]


def _checked_seed(seed: int) -> int:
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed must be a whole number from 0 to {2**63 - 1}, but it is {seed}")
    return seed


Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first row of a CSV file contains the column names; if not, the columns are named x0, x1, ....",
        show_default="--header; an error if the first row is more likely data",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Time budget in minutes, from the choice of the likelihood to the results; it determines which methods run.",
        show_default="2 to 6, depending on the number of rows",
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.", callback=_checked_seed)]
Chains = Annotated[int, typer.Option(help="Number of MCMC chains.")]
Progress = Annotated[bool, typer.Option(help="Show progress bars.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, to standard output.")]


@dataclass(frozen=True)
class TableOptions:
    """A table, what its columns are used for, and its likelihood."""

    data: Annotated[str, typer.Argument(help="Name of a data set (iris, wine, ...), or a CSV, Parquet, NPY or NPZ file.")]
    truth: Annotated[
        list[str] | None,
        typer.Option(help="Columns with known classes, which are hidden from all methods, comma-separated; may be repeated."),
    ] = None
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out, comma-separated; may be repeated.")] = None
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What to take columns for, as in a=count,b=category: {', '.join(KINDS)}, or an ordered scale such as "
            "size=small<medium<large; may be repeated. `bnp-hier recommend` says what columns are taken for by default."
        ),
    ] = None
    items: Annotated[str | None, typer.Option(help="Column with the names of the rows.")] = None
    header: Header = None
    family: Annotated[
        str, typer.Option(help=f"Likelihood of one cluster: auto (inferred from the columns), or one of {', '.join(FAMILIES)}.")
    ] = "auto"

    @property
    def given_kinds(self) -> dict[str, str]:
        """Column -> its kind."""
        return parse_kinds(self.kinds or ())

    def read(self) -> Dataset:
        """Read a file if `data` exists or has a suffix; otherwise load the data set of that name."""
        table = self.read_usable(refuse=True).data
        assert table is not None  # or there was an error
        of_text = {name: levels for name, levels in table.levels.items() if name not in self.given_kinds}
        if of_text and is_file(self.data):
            held = listed((f"{name!r} ({len(levels)})" for name, levels in of_text.items()), MOST_LISTED)
            example = shlex.quote(next(iter(of_text)))
            known = f"; if one of them contains known classes, use --truth, for example --truth {example}"
            what = "text columns are treated as categories (number of categories in parentheses)"
            err.print(f"{what}: {held}{'' if self.truth else known}", soft_wrap=True)
        return table

    def read_usable(self, *, refuse: bool = False) -> UsablePart:
        """Read what can be used, and why the rest cannot, for commands that show what each column is taken for.

        If `refuse`, some columns that cannot be used are an error; see `prepared`.
        """
        kinds = self.given_kinds
        if is_file(self.data):
            table = RawTable.read(self.data, self.header, with_index=True)
            part = prepared(table, Roles(self.truth or None, self.items, self.drop or (), kinds), refuse=refuse)
            for note in () if part.data is None else part.data.notes:
                err.print(note)
            return part
        if self.truth or self.items is not None or self.drop or self.kinds:
            raise ValueError(
                "--truth, --items, --drop and --kinds apply only to files; a named data set has its own classes and row names"
            )
        if self.header is not None:
            raise ValueError("--header and --no-header apply only to files; a named data set has its own column names")
        known = datasets.load(self.data)
        return UsablePart(known, (), len(known.X))

    def choose_component(self, data: Dataset, concentration: float | None) -> tuple[Family, tuple[str, ...]]:
        """The prior of a cluster, after which it is printed and the model checked; and the warnings."""
        chosen = component_for(data.X, self.family, data.feature_names, data.categories, data.column_kinds)
        err.print(f"{data.name}: {size_in_words(data)}, family {chosen.name} ({chosen.reason})")
        warnings = check_model(mixture(chosen.prior, concentration), data.X, data.feature_names, kinds=data.column_kinds)
        print_warnings(warnings)
        return chosen, warnings

    def command_line(self, command: str, words: Mapping[str, object], **changed: Sequence[str] | None) -> str:
        """Words of a command line for this table, after the name of the program; options without a value are left out.

        The columns of --truth, --drop and --kinds may be `changed`.
        """
        repeated = {"truth": self.truth, "drop": self.drop, "kinds": self.kinds} | changed
        words = {"--items": self.items} | dict(words)
        again = [word for flag, value in words.items() if value is not None for word in (flag, str(value))]
        again += [word for name, values in repeated.items() for value in values or [] for word in (f"--{name}", value)]
        return shlex.join([command, self.data, *again, *self.header_words])

    @property
    def header_words(self) -> list[str]:
        """--header or --no-header, if it was given."""
        return [] if self.header is None else ["--header" if self.header else "--no-header"]


@dataclass(frozen=True)
class MixtureOptions:
    """The prior of a mixture."""

    concentration: Annotated[
        float | None,
        typer.Option(
            help="Concentration of the Dirichlet process; for bhmc, of the nested Chinese restaurant process.",
            show_default="a Gamma(2, 20) prior; Gamma(1, 10) for bhmc",
        ),
    ] = None
    depth: Annotated[int, typer.Option(help="Number of levels of the tree below the root (bhmc only).")] = 3

    def __post_init__(self) -> None:
        check_positive(concentration=self.concentration, depth=self.depth)

    def model(self, prior: Component | LearnedPrior, method: Method) -> Model:
        """The mixture that a method fits."""
        if method.hierarchical:
            return hierarchical_mixture(prior, self.concentration, self.depth)
        return mixture(prior, self.concentration)


@dataclass(frozen=True)
class ChainOptions:
    """How long chains are, and their random seed."""

    seed: Seed = 0
    chains: Chains = 4
    warmup: Annotated[int | None, typer.Option(help="Warm-up sweeps per chain.", show_default="500")] = None
    samples: Annotated[int | None, typer.Option(help="Sweeps kept per chain.", show_default="1000")] = None
    progress: Progress = True

    def __post_init__(self) -> None:
        check_positive(chains=self.chains, warmup=self.warmup, samples=self.samples)

    def of_run(self) -> RunOptions:
        """The same for `run_methods`."""
        warmup, samples = self.warmup or 500, self.samples or 1000
        return RunOptions(self.chains, warmup, samples, random_state=self.seed, progress_bar=self.progress)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are groups of options, such as `TableOptions`, become one parameter for each option."""
    hints, parameters = get_type_hints(command, include_extras=True), []
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    def add(name: str, annotation: Any, default: Any) -> None:
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default))

    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            add(name, hints[name], parameter.default)
            continue
        of_fields = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            given = field.default is not MISSING
            add(field.name, of_fields[field.name], field.default if given else inspect.Parameter.empty)

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    return expanded


def is_file(data: str) -> bool:
    """Whether an argument means a file, and not a named data set, whose name a folder or a file without a suffix may share."""
    return bool(Path(data).suffix) or (Path(data).exists() and data not in datasets.names())


def check_positive(**values: float | None) -> None:
    """Raise ValueError for the first option that is given and not positive."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"--{name} must be positive, but it is {value}")
