"""Tables of the names on the pages in ``api/``, read from the package; ``python docs/api_tables.py`` updates the pages.

In the repository, a page shows the tables; the build (``conf.py``) adds full descriptions, from the comments after them.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the checkout's package, installed or not

PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
BLOCK = re.compile(r"<!-- names -->\n.*?<!-- in the build:\n\n(?P<built>.*?)\n-->\n", flags=re.DOTALL)
IN_THE_BUILD = re.compile(r"<!-- in the build:\n\n(.*?)\n-->\n", flags=re.DOTALL)
DIRECTIVE = re.compile(r"^\.\. auto(?:class|function|module):: (?P<name>[\w.]+)$(?P<options>(?:\n   :.*)*)", flags=re.MULTILINE)
LONGEST = 160
"""Signatures with more characters name their first arguments only."""


def with_tables(page: str) -> str:
    """The page with the current table before each comment that names objects.

    Raises
    ------
    ValueError
        If objects are named outside of such comments, or a comment after a table names none.
    """
    if stray := DIRECTIVE.search(IN_THE_BUILD.sub("", page)):
        raise ValueError(f"{stray['name']} is not in a comment that begins with 'in the build:'")
    if empty := [block["built"] for block in BLOCK.finditer(page) if not DIRECTIVE.search(block["built"])]:
        raise ValueError(f"no objects are named in {empty[0]!r}")
    return BLOCK.sub(
        lambda block: f"<!-- names -->\n\n{table(block['built'])}\n\n<!-- in the build:\n\n{block['built']}\n-->\n", page
    )


def as_built(page: str, home: str) -> str:
    """The page as the build reads it: with the contents of the comments, and sources where they are on the web."""
    page = BLOCK.sub(lambda block: block[0] if ".. automodule::" not in block["built"] else f"{block['built']}\n", page)
    page = IN_THE_BUILD.sub(r"\1\n", page)
    return re.sub(r"\]\((?:\.\./)+(?=(?:bnp_hier|models)/)", f"]({home}/blob/main/", page)


def table(directives: str) -> str:
    """The text of a module, and a Markdown table of the other objects that the directives name."""
    parts, rows = [], []
    for name, members in _named(directives):
        value = _found(name)
        if inspect.ismodule(value):
            parts.append(_plain(inspect.getdoc(value) or ""))
            rows += [_row(f"{name}.{member}", getattr(value, member), None) for member in members or ()]
        else:
            rows.append(_row(name, value, members))
    if rows:
        parts.append("\n".join(["| name | what it is or does |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _named(directives: str) -> Iterator[tuple[str, list[str] | None]]:
    """Names of objects, and the members that a directive lists."""
    for directive in DIRECTIVE.finditer(directives):
        listed = re.search(r":members: (.+)", directive["options"])
        yield directive["name"], re.split(r",\s*", listed[1]) if listed else None


def _found(name: str) -> Any:
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        if hasattr(value, parts[-1]) or size == len(parts):
            return functools.reduce(getattr, parts[size:], value)
        break
    raise ValueError(f"there is no {name}")


def _row(name: str, value: Any, members: list[str] | None) -> str:
    source = Path(sys.modules[value.__module__].__file__ or "").resolve().relative_to(ROOT).as_posix()
    meaning = _first_sentence(inspect.getdoc(value) or "")
    if inspect.isclass(value) and (methods := members or _methods(value)):
        meaning += f" Methods and properties: {', '.join(f'`{method}`' for method in methods)}."
    call = f"{name.removeprefix('bnp_hier.')}{_signature(value)}".replace("|", r"\|")
    return f"| `{call}` | {meaning} [Source](../../{source}) |"


def _methods(kind: type) -> list[str]:
    """Public methods and properties that no base class has, in the order of the source."""
    own = [name for name, value in vars(kind).items() if not name.startswith(("_", "set_")) and _is_method(value)]
    return [name for name in own if not any(name in vars(base) for base in kind.__mro__[1:])]


def _is_method(value: Any) -> bool:
    if str(getattr(value, "__doc__", None) or "Alias for field number").startswith("Alias for field number"):
        return False
    return callable(value) or isinstance(value, (property, classmethod, staticmethod, functools.cached_property))


def _signature(value: Any) -> str:
    """Arguments and defaults, as in the source, without types."""
    if inspect.isclass(value) and getattr(value, "_is_protocol", False):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    written, words, starred = _defaults(value), list[str](), False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        word = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name
        if parameter.default is not parameter.empty:
            word += f"={written.get(parameter.name) or _shown(parameter.default)}"
        words.append(word)
    full = f"({', '.join(words)})"
    if len(full) <= LONGEST:
        return full
    while len(", ".join(words)) > LONGEST - 7:
        words.pop()
    return f"({', '.join(words)}, ...)"


def _defaults(value: Any) -> dict[str, str]:
    """Default values as the source writes them."""
    function = value.__dict__.get("__init__") if inspect.isclass(value) else value
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body  # type: ignore[arg-type]
    except (TypeError, OSError, SyntaxError, ValueError):
        return {}
    if not isinstance(tree, ast.FunctionDef):
        return {}
    positional = [*tree.args.posonlyargs, *tree.args.args]
    pairs = [*zip(positional[len(positional) - len(tree.args.defaults) :], tree.args.defaults, strict=True)]
    pairs += [(name, default) for name, default in zip(tree.args.kwonlyargs, tree.args.kw_defaults, strict=True) if default]
    return {name.arg: ast.unparse(default).replace("'", '"') for name, default in pairs}


def _shown(default: Any) -> str:
    text = repr(default).replace("'", '"')
    return "..." if text.startswith("<") else text


def _first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.split("\n\n")[0].split())
    ended = re.match(r"(.+?[.:])(?=\s+[A-Z`(]|$)(?<!et al\.)", paragraph)
    sentence = (ended[1] if ended else paragraph).rstrip(":.") + "."
    return _plain(sentence).replace("|", r"\|")


def _plain(text: str) -> str:
    """Markdown of what docstrings write in reStructuredText."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
