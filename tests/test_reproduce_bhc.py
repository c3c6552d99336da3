"""The reproductions of Heller & Ghahramani (2005) run at small sizes, and their full output is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "reproduce"


def _run(tmp_path: Path, script: str, *words: str) -> str:
    command = [sys.executable, str(FOLDER / f"{script}.py"), "--out", str(tmp_path), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / f"{script}.txt").read_text(encoding="utf-8")
    assert done.stdout.startswith(written)
    return written


def _assert_picture(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_table1(tmp_path: Path) -> None:
    written = _run(tmp_path, "bhc_table1")
    assert "3digits: BHC purest of BHC, single, complete, average: " in written
    row = next(line for line in written.splitlines() if line.startswith("3digits"))
    means = [float(cell.split("±")[0]) for cell in row.removeprefix("3digits").replace(" ± ", "±").split()]
    assert len(means) == 7 and all(0.3 <= mean <= 1.0 for mean in means)
    _assert_picture(tmp_path / "bhc_table1.png")


def test_figure4(tmp_path: Path) -> None:
    written = _run(tmp_path, "bhc_figure4")
    assert "10 settings" in written and "paper 0.888; strongly correlated: " in written
    _assert_picture(tmp_path / "bhc_figure4.png")


@pytest.mark.slow
def test_figure8(tmp_path: Path) -> None:
    written = _run(tmp_path, "bhc_figures", "--figures", "8")
    assert "average linkage merges across them: reproduces" in written
    _assert_picture(tmp_path / "bhc_figure8.png")


@pytest.mark.slow
def test_figures_5_and_7(tmp_path: Path) -> None:
    written = _run(tmp_path, "bhc_figures", "--figures", "5")
    assert written.count("Claim: ") == 3 and "60 documents" in written
    _assert_picture(tmp_path / "bhc_figure5.png")
    _assert_picture(tmp_path / "bhc_figure7.png")


def test_full_output_is_there() -> None:
    names = [
        "bhc_table1.txt",
        "bhc_table1.png",
        "bhc_figure4.txt",
        "bhc_figures.txt",
        *(f"bhc_figure{k}.png" for k in (4, 5, 7, 8)),
    ]
    for name in names:
        assert 0 < (FOLDER / "output" / name).stat().st_size < 300_000
