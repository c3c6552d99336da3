"""Kernels that come with the package are those of the sources, and are used only if they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bnp_hier.native import bridge, shipped
from bnp_hier.native.names import FAMILIES, KERNELS, OPERATIONS, SWITCH
from bnp_hier.native.shipped import ABOUT, archive_path, is_shipped, prepare_shipped, shipped_names, versions

HERE = pytest.mark.skipif(not archive_path().exists(), reason="no kernels are shipped for this kind of machine")
FIT = """
import sys, warnings
import numpy as np
import bnp_hier as bnp
from bnp_hier.native import bridge
X = np.random.default_rng(0).normal(size=(60, 3)) + 4.0 * (np.arange(60)[:, None] % 3)
labels = bnp.MAPDP().fit(X).labels_
tree = bnp.BHC().fit(X)
print("".join(map(str, labels)), repr(tree.log_evidence_bound_), len(bridge._compiled), bridge.cache_folder())
"""


def fitted(folder: Path, **variables: str) -> tuple[str, float, int, Path]:
    """Labels, bound, number of functions that Numba has compiled, and the folder of the compiled code."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder), "XDG_CACHE_HOME": str(folder)} | variables
    done = subprocess.run([sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True)
    labels, bound, compiled, where = done.stdout.split()
    return labels, float(bound), int(compiled), Path(where)


@HERE
def test_the_archive_is_that_of_these_sources() -> None:
    """If it is not, ``python -m bnp_hier.native.shipping`` makes it again; until then, kernels are compiled from source."""
    with zipfile.ZipFile(archive_path()) as archive:
        about = json.loads(archive.read(ABOUT))
    assert about["sources"] == versions()["sources"]


@HERE
@pytest.mark.skipif(not is_shipped("descent.descend"), reason="the archive is that of other versions")
def test_every_function_is_shipped() -> None:
    assert all(shipped_names(kernel) for kernel in KERNELS)
    assert all(is_shipped(f"{family}.{operation}") for family in FAMILIES for operation in OPERATIONS)
    assert shipped_names("poisson") == [f"poisson.{operation}" for operation in reversed(OPERATIONS)]
    assert is_shipped("call_frames.custom_call") and is_shipped("stopping.stop_call")
    assert len(prepare_shipped("descent.descend", None)) > 10_000


@HERE
@pytest.mark.skipif(not is_shipped("descent.descend"), reason="the archive is that of other versions")
@pytest.mark.slow
def test_same_results_as_from_source(tmp_path: Path) -> None:
    *found, compiled, folder = fitted(tmp_path / "shipped")
    assert compiled == 0 and any(folder.glob("*.o")) and not any(folder.glob("**/*.nbi"))
    *expected, compiled, folder = fitted(tmp_path / "compiled", **{SWITCH: "compile"})
    assert compiled > 0 and not any(folder.glob("*.o")) and any(folder.glob("**/*.nbi"))
    assert found[0] == expected[0] and found[1] == pytest.approx(expected[1], rel=1e-12)


def test_archives_of_other_versions_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And one line says why kernels are compiled, until some are kept."""
    path, kept = tmp_path / "archive.zip", tmp_path / "kept"
    monkeypatch.setattr(shipped, "archive_path", lambda: path)
    monkeypatch.setattr(bridge, "cache_folder", lambda: kept)
    for content in ("", "{}", json.dumps({**versions(), "numba": "0.1", "symbols": {"a.b": "c"}})):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(ABOUT, content)
        shipped._symbols.cache_clear()
        assert not is_shipped("a.b")
    said = capsys.readouterr().err.splitlines()[-1]
    assert "once" in said and "for Numba 0.1, and this is" in said and " s of CPU time" in said
    kept.mkdir()
    (kept / "kernel.nbi").touch()
    shipped._symbols.cache_clear()
    assert not is_shipped("a.b") and capsys.readouterr().err == ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(ABOUT, json.dumps({**versions(), "symbols": {"a.b": "c"}}))
    shipped._symbols.cache_clear()
    assert is_shipped("a.b")
    monkeypatch.setenv(SWITCH, "compile")
    shipped._symbols.cache_clear()
    assert not is_shipped("a.b")
    monkeypatch.delenv(SWITCH)
    path.write_bytes(b"no archive")
    shipped._symbols.cache_clear()
    assert not is_shipped("a.b")
    path.unlink()
    shipped._symbols.cache_clear()
    assert not is_shipped("a.b")
    shipped._symbols.cache_clear()
