"""The reproductions of Xu, Heller & Ghahramani (2009) run at quick sizes; their full outputs are in the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "reproduce"
LARGEST = 300_000
OUTCOME = re.compile(r": (reproduces|partly|does not reproduce|not decided); .")


def _run(script: str, out: Path) -> str:
    words = [sys.executable, str(FOLDER / f"{script}.py"), "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=out, check=False)
    assert done.returncode == 0, done.stderr
    text = (out / f"{script}.txt").read_text(encoding="utf-8")
    assert text.splitlines() == [line.rstrip() for line in done.stdout.splitlines()[:-1]]
    assert (out / f"{script}.png").read_bytes().startswith(b"\x89PNG")
    claims = [line for line in text.splitlines() if line.startswith("- ") and "not in the paper" not in line]
    assert len(claims) >= 3 and all(OUTCOME.search(line) for line in claims)
    return text


def _holds(text: str, claim: str) -> bool:
    (line,) = (line for line in text.splitlines() if line.startswith(f"- {claim}"))
    return ": reproduces; " in line


@pytest.mark.slow
def test_figure2(tmp_path: Path) -> None:
    text = _run("trees_figure2", tmp_path)
    assert _holds(text, "the tree has the three clusters") and _holds(text, "the alternatives tighten the bound")


@pytest.mark.exhaustive
def test_figures5_6(tmp_path: Path) -> None:
    text = _run("trees_figures5_6", tmp_path)
    assert _holds(text, "the BHC bound is never above the exact evidence")


@pytest.mark.slow
def test_figure7(tmp_path: Path) -> None:
    text = _run("trees_figure7", tmp_path)
    assert _holds(text, "for 3 rows the alternatives give the exact evidence")
    assert _holds(text, "synthetic: the bound with alternatives is closer")
    assert "bhc <= intervals: holds" in text


@pytest.mark.slow
def test_figure8(tmp_path: Path) -> None:
    assert "k-means clusters" in _run("trees_figure8", tmp_path)


@pytest.mark.parametrize("script", ["trees_figure2", "trees_figures5_6", "trees_figure7", "trees_figure8"])
def test_full_outputs_are_kept(script: str) -> None:
    text, picture = (FOLDER / "output" / f"{script}{ending}" for ending in (".txt", ".png"))
    assert "sizes: full" in text.read_text(encoding="utf-8")
    assert text.stat().st_size < LARGEST and picture.stat().st_size < LARGEST
