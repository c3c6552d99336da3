"""Running the scripts of `examples/reproduce` in tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "reproduce"


def run(out: Path, script: str, *words: str, report: str | None = None) -> str:
    """What a script writes into its text file, by default of its own name, once it has printed the same."""
    command = [sys.executable, str(FOLDER / f"{script}.py"), "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    written = (out / f"{report or script}.txt").read_text(encoding="utf-8")
    assert done.stdout.startswith(written)
    return written


def assert_picture(path: Path) -> None:
    """The file is a PNG."""
    assert path.read_bytes().startswith(b"\x89PNG")
