"""The reproductions of Raykov, Boukouvalas & Little (2014) run at small sizes, and their full output is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "reproduce"
METHODS = ("Gibbs-MAP", "MAP-DP", "MAP-DP K=1", "MAP-DP x10", "DP-means", "VB greedy", "VB random")


def _run(out: Path, script: str, *words: str) -> str:
    command = [sys.executable, str(FOLDER / f"{script}.py"), "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    written = (out / f"{script}.txt").read_text(encoding="utf-8")
    assert done.stdout.startswith(written)
    return written


def _row(written: str, name: str) -> list[float]:
    """Numbers of one row of a table, those in brackets left out."""
    line = next(line for line in written.splitlines() if re.match(re.escape(name) + r" +-?\d", line))
    return [float(cell) for cell in re.sub(r"\([^)]*\)", "", line.removeprefix(name)).split() if cell != "-"]


def _assert_picture(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_table_and_figure(tmp_path: Path) -> None:
    written = _run(tmp_path, "map_dp_table1", "--samples", "2")
    assert "2 CRP samples of 100 rows" in written
    for name in METHODS:
        agreement, *_, joint = _row(written, name)
        assert 0.0 <= agreement <= 1.0
        if name == "MAP-DP x10":
            best = joint
            assert best > 0.0  # more probable than the truth
    assert all(_row(written, name)[-1] <= best + 0.1 for name in METHODS)
    assert "MAP-DP has higher NMI than DP-means: " in written and "MAP-DP needs the fewest iterations: " in written
    _assert_picture(tmp_path / "map_dp_table1.png")

    # the figure reads the sizes that the table wrote
    before = (tmp_path / "map_dp_sizes.csv").stat().st_mtime_ns
    written = _run(tmp_path, "map_dp_figure1", "--samples", "2")
    assert (tmp_path / "map_dp_sizes.csv").stat().st_mtime_ns == before
    for name in ("actual", *METHODS):
        shares = _row(written, name)[:6]
        assert 0.0 < shares[0] <= 1.0 and shares == sorted(shares, reverse=True)
    assert "DP-means makes the largest cluster too small (share): " in written
    _assert_picture(tmp_path / "map_dp_figure1.png")


def test_figure_of_the_full_experiment(tmp_path: Path) -> None:
    name = "map_dp_sizes.csv"
    (tmp_path / name).write_bytes((FOLDER / "output" / name).read_bytes())
    written = _run(tmp_path, "map_dp_figure1", "--full")
    assert written == (FOLDER / "output" / "map_dp_figure1.txt").read_text(encoding="utf-8")
    _assert_picture(tmp_path / "map_dp_figure1.png")


def test_full_output_is_there() -> None:
    for name in ("map_dp_table1.txt", "map_dp_table1.png", "map_dp_figure1.txt", "map_dp_figure1.png", "map_dp_sizes.csv"):
        assert 0 < (FOLDER / "output" / name).stat().st_size < 300_000
