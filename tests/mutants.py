"""Change one operator, comparison or index of the package at a time and run the tests that should notice.

`python -m tests.mutants --count 150 --workers 2` prints every change that no test noticed and the share that was caught. For
each change it runs the plain tests of the same part of the package that mention the changed module or a name it exports, the
module's own file first, and stops at the first failure. The sample is the same for the same seed and code; `--only kernels`
restricts it.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import typer

ROOT = Path(__file__).parents[1]
PARTS = ("components", "deterministic", "distributions", "evidence", "kernels", "partitions", "posterior", "trees", "utils")
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
}
LONGEST = 600
"""Seconds after which the tests of a change are stopped; it counts as caught, like an endless loop that a person would see."""


class Mutant(NamedTuple):
    """A replacement of the characters from `start` to `end` of a file."""

    path: Path
    start: int
    end: int
    text: str
    line: int

    def apply(self, source: str) -> str:
        """Return the changed source."""
        return source[: self.start] + self.text + source[self.end :]


def mutants_of(path: Path) -> list[Mutant]:
    """List the possible changes of a file: the code of its functions, without annotations, messages and defaults."""
    source = path.read_text()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    encoded = source.encode()

    def place(line: int, column: int) -> int:
        return len(encoded[: starts[line - 1] + column].decode())

    def between(left: ast.expr, right: ast.expr, text: str) -> Mutant:
        """Replace the operator between two operands; brackets around them stay."""
        start, end = place(left.end_lineno or 0, left.end_col_offset or 0), place(right.lineno, right.col_offset)
        gap = source[start:end]
        operator = gap.strip(" ()\n\\")
        at = start + gap.index(operator)
        return Mutant(path, at, at + len(operator), text, right.lineno)

    found: list[Mutant] = []
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        waiting: list[ast.AST] = list(function.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.Raise, ast.FunctionDef, ast.JoinedStr, ast.Assert)):
                continue  # inner functions are visited on their own
            waiting.extend(child for name, value in ast.iter_fields(node) if name != "annotation" for child in _nodes(value))
            if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
                found.append(between(node.left, node.right, ARITHMETIC[type(node.op)]))
            elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
                found.append(between(node.left, node.comparators[0], COMPARISONS[type(node.ops[0])]))
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in (0, 1):
                start, end = (
                    place(node.slice.lineno, node.slice.col_offset),
                    place(node.slice.lineno, node.slice.end_col_offset or 0),
                )
                found.append(Mutant(path, start, end, str(1 - node.slice.value), node.lineno))
    return sorted(set(found), key=lambda mutant: mutant.start)


def _nodes(value: object) -> list[ast.AST]:
    if isinstance(value, ast.AST):
        return [value]
    return [each for each in value if isinstance(each, ast.AST)] if isinstance(value, list) else []


def tests_of(path: Path) -> list[str]:
    """Test files of the module's part that mention the module or what it exports, its own first."""
    part, stem = path.relative_to(ROOT / "bnp_hier").parts[0], path.stem
    exported = [
        element.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for element in getattr(node.value, "elts", [])
    ]
    files = sorted((ROOT / "tests" / part).rglob("test_*.py"))
    mentions = [file for file in files if any(name in file.read_text() for name in (stem, *exported))]
    chosen = sorted(mentions or files, key=lambda file: file.stem != f"test_{stem}")
    return [str(file.relative_to(ROOT)) for file in chosen]


def survives(mutant: Mutant, copy: Path) -> bool:
    """Run the tests of a change in a copy of the repository; true if all of them pass."""
    relative = mutant.path.relative_to(ROOT)
    source = mutant.path.read_text()
    (copy / relative).write_text(mutant.apply(source))
    plain = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    settings = os.environ | {"PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(copy / "numba")}
    try:
        ran = subprocess.run([*plain, *tests_of(mutant.path)], cwd=copy, env=settings, capture_output=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return False
    finally:
        (copy / relative).write_text(source)
    return ran.returncode == 0


def main(count: int = 150, seed: int = 0, workers: int = 2, only: str = "") -> None:
    """Try random changes of the package."""
    parts = [only] if only else PARTS
    files = sorted(file for part in parts for file in (ROOT / "bnp_hier" / part).rglob("*.py"))
    possible = [mutant for file in files for mutant in mutants_of(file)]
    sample = random.Random(seed).sample(possible, min(count, len(possible)))
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for number in range(workers):
            copy = Path(folder) / str(number)
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".mypy_cache", ".ruff_cache"))
            copies.put(copy)

        def attempt(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                alive = survives(mutant, copy)
            finally:
                copies.put(copy)
            if alive:
                old = mutant.path.read_text()[mutant.start : mutant.end]
                print(f"survived: {mutant.path.relative_to(ROOT)}:{mutant.line}: {old} -> {mutant.text}", flush=True)
            return alive

        alive = list(pool.map(attempt, sample))
    print(f"{len(sample) - sum(alive)} of {len(sample)} changes were caught ({len(possible)} are possible)")


if __name__ == "__main__":
    typer.run(main)
