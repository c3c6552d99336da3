"""The layers of the package: what may import what, and how long a file, a function and a list of arguments may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bnp_hier

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(bnp_hier.__file__).parent
AT_THE_TOP = {
    "__init__",
    "__main__",
    "arviz_bridge",
    "capabilities",
    "cli",
    "comparison",
    "distributed",
    "methods",
    "model_comparison",
}

OF_USERS = {("evidence_table", "table"), ("one_call", "cluster")}
"""Functions whose arguments are all options of a user's."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for folder in (PACKAGE, ROOT / "models"):
        for path in sorted(folder.rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_layers_hold() -> None:
    """The contracts of pyproject.toml: a layer imports only from itself and from the layers below it."""
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout


def test_few_modules_are_loose() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == AT_THE_TOP


def test_no_private_name_is_imported() -> None:
    private = [
        f"{path.name}:{node.lineno}: {name.name}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bnp_hier")
        for name in node.names
        if name.name.startswith("_") or "._" in (node.module or "")
    ]
    assert not private


def test_no_module_has_the_name_of_what_it_defines() -> None:
    """`import package.name as x` would otherwise give one or the other."""
    same = [
        str(path)
        for path, tree in modules()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == path.stem
    ]
    assert not same


def test_functions_fit_on_a_page() -> None:
    """A screen is the aim; none is longer than 90 lines, its docstring not counted."""
    long = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                documented = ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
                lines = (node.end_lineno or 0) - node.body[int(documented)].lineno + 1
                long += [f"{path.name}: {node.name}, {lines} lines"] if lines > 90 else []
    assert not long


def test_functions_take_seven_arguments_at_most() -> None:
    """More only where each is an option of a user's (commands, models, estimators, kernels, the table of evidences, the one
    call), or where compiled code calls by address (native families).
    """
    many = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and path.parent.name not in ("commands", "models", "families"):
                names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                of_users = node.name == "__init__" or (path.stem, node.name) in OF_USERS
                own = names[1:] if names[:1] in (["self"], ["cls"]) else names
                many += [f"{path.name}: {node.name}, {len(own)}"] if len(own) > 7 and not of_users else []
    assert not many
