"""Cells of the reproductions are stored when they are finished, and a run that was stopped goes on with the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reproductions import FOLDER

sys.path.insert(0, str(FOLDER))

from resuming import Cells, sources, stored_lines, version  # noqa: E402

CALLS: list[Any] = []


def drawn(seed: int, n: int) -> dict[str, Any]:
    """As a script's cell: arrays and NumPy's numbers."""
    CALLS.append((seed, n))
    if n == 0:
        raise KeyboardInterrupt
    rows = np.random.default_rng(seed).normal(size=n)
    return {"rows": rows, "most": rows.max(), "count": np.int64(n), "pair": (1, 2.5), "none": float("nan")}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("value = 1\n", encoding="utf-8")
    (tmp_path / "other.py").write_text("value = 2\n", encoding="utf-8")
    path = tmp_path / "script.py"
    path.write_text("import numpy\nfrom helper import value\n", encoding="utf-8")
    CALLS.clear()
    return path


def test_a_run_that_was_stopped_goes_on(script: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Cells(tmp_path, "set", str(script), 3) as cells:
        first = [cells(drawn, seed, 4) for seed in (0, 1)]
        cells(drawn, 2, 0)
    assert CALLS == [(0, 4), (1, 4), (2, 0)]
    path = tmp_path / "cells" / "set.jsonl"
    assert len(stored_lines(path)) == 3 and stored_lines(path)[0]["total"] == 3
    CALLS.clear()
    with Cells(tmp_path, "set", str(script), 3) as cells:
        second = [cells(drawn, seed, 4) for seed in (0, 1)]
        cells(drawn, 2, 5)
    assert CALLS == [(2, 5)] and not path.exists() and not path.parent.exists()
    # to the last bit, whether stored or run
    assert repr(first) == repr(second) and first[0]["rows"] == np.random.default_rng(0).normal(size=4).tolist()
    assert first[0]["pair"] == [1, 2.5] and np.isnan(first[0]["none"])


def test_every_argument_is_part_of_the_key(script: Path, tmp_path: Path) -> None:
    with Cells(tmp_path, "set", str(script), 4) as cells:
        assert len(cells(drawn, 0, 4)["rows"]) == 4 and len(cells(drawn, 0, 3)["rows"]) == 3
        assert cells(np.add, 1, 2) == 3 and cells(np.multiply, 1, 2) == 2


def test_a_line_that_was_cut_off_is_run_again(script: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Cells(tmp_path, "set", str(script), 3) as cells:
        cells(drawn, 0, 4), cells(drawn, 1, 4), cells(drawn, 2, 0)
    path = tmp_path / "cells" / "set.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-7], encoding="utf-8")
    CALLS.clear()
    with pytest.raises(KeyboardInterrupt), Cells(tmp_path, "set", str(script), 3) as cells:
        cells(drawn, 0, 4), cells(drawn, 1, 4), cells(drawn, 2, 0)
    assert CALLS == [(1, 4), (2, 0)]
    assert all(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def test_cells_of_other_sources_are_not_used(script: Path, tmp_path: Path) -> None:
    def stopped() -> None:
        CALLS.clear()
        with pytest.raises(KeyboardInterrupt), Cells(tmp_path, "set", str(script), 2) as cells:
            cells(drawn, 0, 4), cells(drawn, 2, 0)

    stopped()
    (tmp_path / "other.py").write_text("value = 3\n", encoding="utf-8")  # the script does not import it
    script.write_text("# a comment\n" + script.read_text(encoding="utf-8"), encoding="utf-8")
    stopped()
    assert CALLS == [(2, 0)]
    (tmp_path / "helper.py").write_text("value = 4\n", encoding="utf-8")
    stopped()
    assert CALLS == [(0, 4), (2, 0)]


MODULES = {
    "script": "import helper\nfrom other import total\n\nprint(helper.mean([1]), total)\n",
    "helper": "from other import LEVEL, half\n\n\ndef mean(x):\n    return half(x)\n\n\ndef unused():\n    return 1\n",
    "other": "LEVEL = 1\nSHARE: float = 0.5\n\n\ndef half(x):\n    return SHARE\n\n\ntotal = 3\n",
}


@pytest.mark.parametrize(
    ("module", "old", "new", "changed"),
    [
        ("script", "[1]", "[2]", True),
        ("helper", "return half", "return 2 * half", True),
        ("helper", "return 1", "return 2", False),
        ("helper", "def unused", "# comment\n\n\ndef unused", False),
        ("other", "total = 3", "total = 4", True),
        ("other", "return SHARE", "return 2 * SHARE", True),
        ("other", "0.5", "0.6", True),
        ("other", "LEVEL = 1", "LEVEL = 2", True),  # imported by name
        ("other", "total = 3", "total = 3\nprint(total)", True),  # a statement that may do something
        ("other", "total = 3", "total = 3\nlevel = 4", False),
        ("other", "total = 3", "total = 3\n'a text'", False),
    ],
)
def test_what_changes_the_version(module: str, old: str, new: str, changed: bool, tmp_path: Path) -> None:
    """Whatever the script uses, directly or through the modules beside it."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    before = version(tmp_path / "script.py")
    assert old in MODULES[module]
    (tmp_path / f"{module}.py").write_text(MODULES[module].replace(old, new), encoding="utf-8")
    assert (version(tmp_path / "script.py") != before) == changed


def test_results_that_json_cannot_hold_are_refused(script: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="got Path|got PosixPath"), Cells(tmp_path, "set", str(script), 1) as cells:
        cells(Path, ".")


def test_sources_of_the_scripts() -> None:
    names = {path.name for path in sources(FOLDER / "map_dp_figure1.py")}
    assert names == {"map_dp_figure1.py", "map_dp_table1.py", "common.py", "resuming.py"}
    assert version(FOLDER / "map_dp_figure1.py") != version(FOLDER / "map_dp_table1.py")


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """By a signal that cannot be caught."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(FOLDER)!r})
from resuming import Cells

def square(number):
    if number == 2 and not Path("again").exists():
        Path("again").touch()
        os.kill(os.getpid(), 9)
    print(number, flush=True)
    return number**2

with Cells(Path("."), "squares", __file__, 4) as cells:
    total = sum(cells(square, number) for number in range(4))
print("total", total)
""",
        encoding="utf-8",
    )
    run = [subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True) for _ in range(2)]
    assert run[0].returncode == -9 and run[0].stdout == "0\n1\n"
    assert run[1].returncode == 0 and run[1].stdout == "2\n3\ntotal 14\n"
