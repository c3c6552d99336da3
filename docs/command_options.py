"""Tables of options in ``commands.md``, read from the commands; ``python docs/command_options.py`` updates the page."""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the checkout's package, installed or not

from typer.main import get_command  # noqa: E402

from bnp_hier.cli import app  # noqa: E402

PAGE = ROOT / "docs" / "commands.md"
START, END = "<!-- options of {} -->", "<!-- end of the options -->"
VALUES = {str: "text", int: "whole number", float: "number", Path: "path", bool: "–"}


def commands() -> dict[str, Any]:
    """Name -> command, beginning with `bnp-hier` itself."""
    group = get_command(app)
    return {"bnp-hier": group, **group.commands}


def table(command: Any) -> str:
    """Markdown table of the arguments and options of a command."""
    rows = ["| option | value | default | meaning |", "|---|---|---|---|"]
    hints = typing.get_type_hints(command.callback)
    for parameter in command.params:
        cells = [_names(parameter), _value(hints[parameter.name]), _default(parameter), _text(parameter.help)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def with_tables(page: str) -> str:
    """The page with the current table of every command between its marks.

    Raises
    ------
    ValueError
        If a command has no marks, or there are marks of an unknown command.
    """
    expected = commands()
    found = re.findall(START.format(r"([\w-]+)"), page)
    if sorted(found) != sorted(expected):
        raise ValueError(f"{PAGE.name} has tables of options for {found}, expected one for each of {list(expected)}")
    for name, command in expected.items():
        start = START.format(name)
        replacement = f"{start}\n\n{table(command)}\n\n{END}"
        page = re.sub(f"{re.escape(start)}.*?{re.escape(END)}", lambda _, new=replacement: new, page, flags=re.DOTALL)
    return page


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _names(parameter: Any) -> str:
    if _is_argument(parameter):
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _value(hint: Any) -> str:
    kinds = list(_types(hint))
    return VALUES[kinds[-1]] + (", repeatable" if list in kinds else "")


def _types(hint: Any) -> Iterator[type]:
    """The types of a parameter, without None; those of a list's elements follow it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        yield list
        yield from _types(arguments[0])
    elif origin in (typing.Union, types.UnionType):
        for part in arguments:
            if part is not types.NoneType:
                yield from _types(part)
    else:
        yield hint


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return _text(parameter.show_default)
    if isinstance(parameter.default, bool):
        names = parameter.opts if parameter.default else parameter.secondary_opts
        return f"`{names[0]}`" if names else "off"
    return "–" if parameter.default is None else f"`{parameter.default}`"


def _text(words: str) -> str:
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]+", r"`\g<0>`", words.replace("|", r"\|"))


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
