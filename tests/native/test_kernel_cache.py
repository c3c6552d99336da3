"""Kernels are compiled once per machine, wherever their code can be kept, and not before they are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bnp_hier
from bnp_hier.native.cores import core_count
from bnp_hier.native.names import SWITCH

PACKAGE = Path(bnp_hier.__file__).parent
LOAD = """
from bnp_hier.native import bridge
bridge.load_family(bridge.FAMILIES.index("bernoulli"))
print(bridge.cache_folder(), len(bridge._compiled), sum(function.cache_hits for function in bridge._compiled))
"""


def _started(folder: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {"PYTHONPATH": str(PACKAGE.parent), SWITCH: "compile"} | environment | variables
    return subprocess.Popen([sys.executable, "-c", LOAD], env=environment, cwd=folder, stdout=subprocess.PIPE, text=True)


def _finished(process: subprocess.Popen[str]) -> tuple[str, int, int]:
    """Folder of the compiled code, and how many functions were needed and found there."""
    written, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    folder, needed, found = written.split()
    return folder, int(needed), int(found)


@pytest.mark.slow
def test_processes_compile_once_between_them(tmp_path: Path) -> None:
    started = [_started(tmp_path, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    folders, needed, found = zip(*map(_finished, started), strict=True)
    assert set(needed) == {10} and sum(found) == 20
    assert {Path(folder).parent for folder in folders} == {tmp_path}


@pytest.mark.slow
def test_folder_of_the_package_need_not_be_writable(tmp_path: Path) -> None:
    site, cache = tmp_path / "site", tmp_path / "cache"
    shutil.copytree(PACKAGE, site / "bnp_hier", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "bnp_hier" / "native" / "__pycache__").touch()  # no folder can be created there, not even by root
    folder, needed, found = _finished(_started(tmp_path, PYTHONPATH=str(site), XDG_CACHE_HOME=str(cache)))
    assert Path(folder).parent == cache / "bnp_hier" and (needed, found) == (10, 0)
    (tmp_path / "file").touch()
    folder, needed, found = _finished(_started(tmp_path, PYTHONPATH=str(site), XDG_CACHE_HOME=str(tmp_path / "file")))
    assert folder == "None" and (needed, found) == (10, 0)


@pytest.mark.slow
def test_first_fit_where_the_package_cannot_be_written_to(tmp_path: Path) -> None:
    """A whole command: nothing is written beside the package, and what is compiled is found again."""
    site, home = tmp_path / "site", tmp_path / "home"
    shutil.copytree(PACKAGE, site / "bnp_hier", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    before = sorted(site.rglob("*"))
    folders = [site, *(path for path in before if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        if os.access(site, os.W_OK):  # as for the superuser
            (site / "bnp_hier" / "native").chmod(0o755)
            (site / "bnp_hier" / "native" / "__pycache__").touch()  # no folder can be created there
            before = sorted(site.rglob("*"))
        environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
        environment |= {"PYTHONPATH": str(site), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", "from bnp_hier.cli import main; main()", "fit", "iris"]
        kept = []
        for _ in range(2):
            done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
            assert done.returncode == 0 and "3 clusters" in done.stdout, done.stderr
            assert sorted(site.rglob("*")) == before
            files = (home / ".cache" / "bnp_hier").glob("kernels-*/**/*.[no]*")
            kept.append({path: path.stat().st_mtime_ns for path in files})
        assert kept[0] and kept[0] == kept[1]
    finally:
        for folder in folders:
            folder.chmod(0o755)


ENDS_EARLY = """
import jax
import numpy as np
import bnp_hier as bnp
from functools import partial
from numpyro.infer import MCMC
from bnp_hier.models import dpm
X = np.random.default_rng(0).normal(size=(200, 2))
kernel = bnp.PartitionGibbs(partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0))
mcmc = MCMC(kernel, num_warmup=0, num_samples=3000, num_chains=2, chain_method=jax.vmap, progress_bar=False)
mcmc.run(jax.random.key(0), X)
print(mcmc.get_samples()["z"].is_ready())
"""


@pytest.mark.slow
def test_process_may_end_while_kernels_run() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_EARLY], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False" and done.returncode == 0, done.stderr


def test_import_does_not_load_the_compiler() -> None:
    program = "import sys, bnp_hier; print(sorted({'numba', 'llvmlite'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.skipif(core_count() < 2, reason="kernels are compiled ahead on a core of their own")
def test_kernels_are_compiled_in_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that are missing, and nothing once they are on disk."""
    from bnp_hier.native import warming_up

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # of the other process
    monkeypatch.setenv(SWITCH, "compile")
    monkeypatch.setattr(warming_up, "shipped_names", lambda _: [])
    folder = tmp_path / _finished(_started(tmp_path, NUMBA_CACHE_DIR=str(tmp_path)))[0]
    monkeypatch.setattr(warming_up, "cache_folder", lambda: folder)
    process = warming_up.start_compiling(("bernoulli", "known", "tree_masses"))
    assert process is not None and "['known', 'tree_masses']" in process.args[-1] and process.wait(300) == 0
    assert any(folder.glob("**/trees.tree_masses-*.nbi")) and any(folder.glob("**/known.lengths-*.nbi"))
    assert warming_up.start_compiling(("bernoulli", "known", "tree_masses")) is None


@pytest.mark.slow
def test_all_kernels_are_compiled_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    from bnp_hier.commands.preparation import warm_up
    from bnp_hier.native.names import FAMILIES, KERNELS, OPERATIONS
    from bnp_hier.native.registry import KERNEL_ADDRESSES, OPERATION_ADDRESSES

    warm_up(progress=False)
    assert f"{len(KERNELS)} native kernels are ready" in capsys.readouterr().out
    assert all(KERNEL_ADDRESSES[place] for place in range(len(KERNELS)))
    assert all(OPERATION_ADDRESSES[place] for place in range(len(FAMILIES) * len(OPERATIONS)))
