"""The notebooks run at reduced sizes, and the executed copies beside them match their sources.

To execute one again, silencing two warnings of tqdm and JAX that do not concern the reader::

    export PYTHONWARNINGS="ignore:IProgress not found,ignore:Some donated buffers"
    jupytext --to ipynb --execute examples/notebooks/NAME.py
"""

from __future__ import annotations

import ast
import base64
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "examples" / "notebooks").glob("*.py"))
NAMES = [source.stem for source in SOURCES]
LATER = ["a_million_points", "mixed_and_missing", "mixture_of_regressions"]
"""Notebooks that run with the exhaustive tests alone: guides on the same subjects run with the slow ones."""

# reduced values of names in the cell tagged "parameters"; every notebook needs at least one
SMALL: dict[str, dict[str, Any]] = {
    "how_many_clusters": {
        "num_warmup": 20,
        "num_samples": 30,
        "num_chains": 2,
        "n_rows": 40,
        "n_few": 6,
        "num_particles": 20,
        "normal_rows": (20, 40),
    },
    "which_clustering": {"num_warmup": 20, "num_samples": 30, "num_chains": 2, "n_rows": 60},
    "your_own_model": {"num_warmup": 20, "num_samples": 30, "num_chains": 2, "n_rows": 30},
    "a_million_points": {
        "n_rows": 4000,
        "n_held_out": 200,
        "n_tree_rows": 500,
        "num_warmup": 5,
        "num_samples": 10,
    },
    "mixed_and_missing": {
        "n_rows": 60,
        "n_held_out": 30,
        "num_warmup": 10,
        "num_samples": 10,
        "num_chains": 2,
        "num_draws": 10,
    },
    "mixture_of_regressions": {"num_warmup": 20, "num_samples": 30, "num_chains": 2, "n_rows": 40},
    "without_tuning": {"budget": 5, "methods": "map-dp", "names": ("iris", "newsgroups_words"), "most_groups": 4, "n_rows": 80},
    "tree_with_uncertainty": {"num_warmup": 10, "num_samples": 20, "num_chains": 2, "num_partitions": 100},
}
# a slash at the start of a word and another one later in it, but not after "<" as in closing HTML tags
ABSOLUTE_PATH = re.compile(r"(?<![\w.<>/:)\]-])/[A-Za-z][\w.-]*/[\w.-]+|\b[A-Z]:\\\w")


def _source(name: str) -> nbformat.NotebookNode:
    return jupytext.read(ROOT / "examples" / "notebooks" / f"{name}.py")


def _executed(name: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "examples" / "notebooks" / f"{name}.ipynb", as_version=4)


def _code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _parameters(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    return cell


def _texts(notebook: nbformat.NotebookNode) -> list[str]:
    """All text outputs."""
    texts = []
    for cell in _code(notebook):
        for output in cell.outputs:
            texts.append(output.get("text", ""))
            texts += [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return texts


def test_there_are_notebooks() -> None:
    assert len(NAMES) == len(SMALL) == 8
    # no executed copy is left without its source
    assert [path.stem for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_has_reduced_sizes(name: str) -> None:
    assert SMALL.get(name), f"add reduced parameters of {name} to SMALL"
    names = {
        target.id
        for statement in ast.parse(_parameters(_source(name)).source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    assert set(SMALL[name]) <= names


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in LATER)) for name in NAMES])
def test_runs_at_reduced_size(name: str, tmp_path: Path) -> None:
    notebook = _source(name)
    parameters = _parameters(notebook)
    parameters.source += "".join(f"\n{key} = {value!r}" for key, value in SMALL[name].items())
    script = tmp_path / f"{name}.py"
    script.write_text(jupytext.writes(notebook, "py:percent"), encoding="utf-8")  # magics become comments
    # such short chains warn that they have not mixed, and the Agg backend that it cannot show figures
    words = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_shows_no_workarounds_and_ends_with_conclusions(name: str) -> None:
    notebook = _source(name)
    assert not [
        cell.source for cell in _code(notebook) if re.search(r"switch_backend|filterwarnings|simplefilter", cell.source)
    ]
    assert notebook.cells[-1].source.startswith("## What to conclude, and what not\n")


@pytest.mark.parametrize("name", NAMES)
def test_executed_notebook_matches_its_source(name: str) -> None:
    source, executed = _source(name), _executed(name)
    assert [(cell.cell_type, cell.source) for cell in executed.cells] == [
        (cell.cell_type, cell.source) for cell in source.cells
    ]
    assert executed.metadata.kernelspec.name == source.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize("name", NAMES)
def test_executed_notebook_ran_cleanly(name: str) -> None:
    executed = _executed(name)
    assert [cell.execution_count for cell in _code(executed)] == list(range(1, 1 + len(_code(executed))))
    outputs = [output for cell in _code(executed) for output in cell.outputs]
    assert outputs and all(output.output_type != "error" for output in outputs)
    # warnings go to stderr, with the machine's paths
    assert all(output.get("name") != "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


def _dots_per_inch(image: str) -> float:
    """Of a PNG image in base 64, by the chunk in which Matplotlib writes it (per metre)."""
    data = base64.b64decode(image)
    at = data.index(b"pHYs") + 4
    return struct.unpack(">I", data[at : at + 4])[0] * 0.0254


@pytest.mark.parametrize("name", NAMES)
def test_figures_have_the_resolution_of_the_folder(name: str) -> None:
    """`matplotlibrc`, which Matplotlib reads where a notebook runs, sets it for all of them."""
    (dpi,) = re.findall(r"^figure\.dpi: (\d+)$", (ROOT / "examples" / "notebooks" / "matplotlibrc").read_text(), re.MULTILINE)
    assert dpi == "120" and not any("dpi" in cell.source for cell in _code(_source(name)))
    outputs = [output for cell in _code(_executed(name)) for output in cell.outputs]
    images = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert {round(_dots_per_inch(image)) for image in images} == {120}


@pytest.mark.parametrize("name", NAMES)
def test_executed_notebook_names_no_path_and_is_small(name: str) -> None:
    for text in _texts(_executed(name)):
        assert not (found := ABSOLUTE_PATH.search(text)), found.group()
    assert (ROOT / "examples" / "notebooks" / f"{name}.ipynb").stat().st_size < 1_000_000


@pytest.mark.parametrize("text", ["see /home/me/file.py:3", '"/tmp/ipykernel_1/2.py"', "C:\\Users\\me", "in /opt/x"])
def test_absolute_paths_are_recognised(text: str) -> None:
    assert ABSOLUTE_PATH.search(text)


@pytest.mark.parametrize("text", ["<td>1</td>\n</tr></tbody>", "1/2/3", "clusters/rows", "od280/od315_of/x", "a / b / c"])
def test_other_slashes_are_no_paths(text: str) -> None:
    assert not ABSOLUTE_PATH.search(text)


def test_documentation_has_every_notebook() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    for name in sorted({*NAMES, *SMALL}):
        assert f"(../examples/notebooks/{name}.ipynb)" in page and f"\nnotebooks/{name}\n" in page
