"""Compiled XLA programs are kept for later processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import bnp_hier as bnp
from bnp_hier.utils import compilation_cache

PROGRAM = """
import sys
import jax
import bnp_hier as bnp
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
jax.jit(lambda x: x + 1)(1.0)  # JAX has decided by then that there is no cache
print(bnp.enable_compilation_cache())
jax.jit(lambda x: jax.numpy.linalg.inv(x) + 2)(jax.numpy.eye(3))
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


def test_later_processes_find_the_programs(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path)}
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
        folder, hits = done.stdout.split()
        assert Path(folder) == tmp_path / "bnp_hier" / "programs"
        found.append(int(hits))
    assert found[0] == 0 < found[1]


def test_folder_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.config, "update", lambda *_: pytest.fail("options were set"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        bnp.enable_compilation_cache(tmp_path / "file")
    monkeypatch.setattr(compilation_cache.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="not writable"):
        bnp.enable_compilation_cache(tmp_path / "folder")
