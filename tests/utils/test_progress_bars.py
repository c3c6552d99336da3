"""Progress bars write nothing where lines cannot be redrawn."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

import bnp_hier
from bnp_hier.utils.progress_bars import ProgressBar


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("file", "writes"), [(io.StringIO(), False), (_Terminal(), True)])
def test_only_terminals_get_bars(file: io.StringIO, writes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert list(ProgressBar(range(3), desc="steps")) == [0, 1, 2]
    assert bool(file.getvalue()) == writes
    size = len(file.getvalue())
    assert list(ProgressBar(range(3), disable=True)) == [0, 1, 2] and len(file.getvalue()) == size


def test_bars_are_of_this_class() -> None:
    folder = Path(bnp_hier.__file__).parent
    bars = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py") if re.search(r"\btqdm\(", path.read_text())}
    assert bars == {"native/warming_up.py"}  # which `warm_up` tells whether there can be one
