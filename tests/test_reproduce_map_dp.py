"""The reproductions of Raykov, Boukouvalas & Little (2014) run at small sizes, and their full output is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reproductions import FOLDER, assert_picture, run

METHODS = ("Gibbs-MAP", "MAP-DP", "MAP-DP K=1", "MAP-DP x10", "DP-means", "VB greedy", "VB random")


def _row(written: str, name: str) -> list[float]:
    """Numbers of one row of a table, those in brackets left out."""
    line = next(line for line in written.splitlines() if re.match(re.escape(name) + r" +-?\d", line))
    return [float(cell) for cell in re.sub(r"\([^)]*\)", "", line.removeprefix(name)).split() if cell != "-"]


@pytest.mark.slow
def test_table_and_figure(tmp_path: Path) -> None:
    written = run(tmp_path, "map_dp_table1", "--samples", "2")
    assert "2 CRP samples of 100 rows" in written
    for name in METHODS:
        agreement, *_, joint = _row(written, name)
        assert 0.0 <= agreement <= 1.0
        if name == "MAP-DP x10":
            best = joint
            assert best > 0.0  # more probable than the truth
    assert all(_row(written, name)[-1] <= best + 0.1 for name in METHODS)
    assert "MAP-DP has higher NMI than DP-means: " in written and "MAP-DP needs the fewest iterations: " in written
    assert_picture(tmp_path / "map_dp_table1.png")

    # the figure reads the sizes that the table wrote
    before = (tmp_path / "map_dp_sizes.csv").stat().st_mtime_ns
    written = run(tmp_path, "map_dp_figure1", "--samples", "2")
    assert (tmp_path / "map_dp_sizes.csv").stat().st_mtime_ns == before
    for name in ("actual", *METHODS):
        shares = _row(written, name)[:6]
        assert 0.0 < shares[0] <= 1.0 and shares == sorted(shares, reverse=True)
    assert "DP-means makes the largest cluster too small (share): " in written
    assert_picture(tmp_path / "map_dp_figure1.png")


@pytest.mark.slow
def test_figure_of_the_full_experiment(tmp_path: Path) -> None:
    name = "map_dp_sizes.csv"
    (tmp_path / name).write_bytes((FOLDER / "output" / name).read_bytes())
    written = run(tmp_path, "map_dp_figure1", "--full")
    assert written == (FOLDER / "output" / "map_dp_figure1.txt").read_text(encoding="utf-8")
    assert_picture(tmp_path / "map_dp_figure1.png")


def test_full_output_is_there() -> None:
    for name in ("map_dp_table1.txt", "map_dp_table1.png", "map_dp_figure1.txt", "map_dp_figure1.png", "map_dp_sizes.csv"):
        assert 0 < (FOLDER / "output" / name).stat().st_size < 300_000
