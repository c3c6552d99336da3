"""Finished parts of a run are stored, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

PROGRESS = "progress.json"
"""File in the folder of a script's chains: which are running, and how many sweeps are done."""


def sources(script: Path) -> list[Path]:
    """The script and the modules beside it that it imports, directly or through one another."""
    found, waiting = set[Path](), [script.resolve()]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            waiting += [path.with_name(f"{name}.py") for name in names]
    return sorted(found)


def version(script: Path) -> str:
    """A hash of the script and of what it uses of the modules beside it; comments and layout do not count.

    What a module defines is used if its name occurs in the script or in something that is used, in whatever sense.
    """
    script = script.resolve()
    kept = list(ast.parse(script.read_text(encoding="utf-8")).body)
    others = [path for path in sources(script) if path != script]
    waiting = [node for path in others for node in ast.parse(path.read_text(encoding="utf-8")).body if not _is_text(node)]
    used = {name for node in kept for name in _names(node)}
    while True:
        found = [node for node in waiting if not _defined(node) or _defined(node) & used]
        if not found:
            break
        waiting = [node for node in waiting if node not in found]
        used |= {name for node in found for name in _names(node)}
        kept += found
    # in an order that does not depend on who uses what first
    text = "\n".join(sorted(map(ast.dump, kept)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _defined(node: ast.stmt) -> set[str]:
    """Names that a statement of a module defines; statements without any are always used."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return set()


def _names(node: ast.AST) -> Iterator[str]:
    """All names and attributes that occur in a statement, and the names that it imports."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.alias):
            yield part.name.rpartition(".")[2]


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as those of JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"results of cells must be numbers, strings, lists, dicts or arrays; got {type(value).__name__}")


class Cells:
    """Results of the cells of an experiment, each stored as soon as it is finished.

    ``cells(function, *arguments)`` returns ``function(*arguments)``, as lists, dicts, numbers and strings: tuples and arrays
    become lists, whether the cell has just been run or was stored. The function's name and all of its arguments are the key
    of a cell, so everything that a result depends on must be among the arguments, such as seeds and numbers of sweeps.

    The file ``out/cells/NAME.jsonl`` starts with the total number of cells, for progress bars, and then has one cell a line.
    It is left when the run is stopped, is read by the next run with the same sources, and is removed when all is done, at
    the end of the `with` block.
    """

    def __init__(self, out: Path, name: str, script: str, total: int) -> None:
        self.path = out / "cells" / f"{name}.jsonl"
        self.head = {"version": version(Path(script)), "total": total}
        self.stored = dict[str, Any]()
        self.bar = tqdm(total=total, desc=name)

    def __enter__(self) -> Cells:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = stored_lines(self.path)
        if lines and lines[0]["version"] == self.head["version"]:
            self.stored = {line["key"]: line["result"] for line in lines[1:]}
            print(f"{self.path}: {len(self.stored)} cells from a run that was stopped", file=sys.stderr)
        # written anew, without a line that was cut off
        written = [self.head, *({"key": key, "result": result} for key, result in self.stored.items())]
        temporary = self.path.with_suffix(".new")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in written), encoding="utf-8")
        temporary.replace(self.path)
        return self

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        key = json.dumps([function.__name__, *arguments], default=_plain)
        if key not in self.stored:
            line = json.dumps({"key": key, "result": function(*arguments)}, default=_plain)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            self.stored[key] = json.loads(line)["result"]
        self.bar.update()
        return self.stored[key]

    def __exit__(self, kind: type | None, *_: object) -> None:
        self.bar.close()
        if kind is None:
            self.path.unlink(missing_ok=True)  # another run of the same script may have ended first
            with suppress(OSError):  # other experiments may have cells there
                self.path.parent.rmdir()


def stored_lines(path: Path) -> list[dict[str, Any]]:
    """The head and the finished cells; a last line that was cut off is left out."""
    found = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return found


def unfinished(out: Path, name: str) -> list[Path]:
    """Files of cells and folders of chains that a script of that name, whose runs were stopped, would go on with."""
    return sorted([*(out / "cells").glob(f"{name}*.jsonl"), *(out / "cells").glob(f"{name}-*/")])


def progress(out: Path, name: str) -> str:
    """Cells that are finished, of all cells, and sweeps of the chains that are running."""
    shown = []
    for path in unfinished(out, name):
        with suppress(FileNotFoundError):  # the script may end, and remove them, at any time
            if path.suffix == ".jsonl":
                if lines := stored_lines(path):
                    shown.append(f"{len(lines) - 1}/{lines[0]['total']} cells")
            else:
                chains = json.loads((path / PROGRESS).read_text(encoding="utf-8"))
                shown.append(f"{chains['chains']} {chains['done']}/{chains['total']} sweeps")
    return ", ".join(shown)
