"""What a stranger waits for in the first hour: the installation, the first fit and figure, a pipeline, a comparison.

Nothing is compiled before any of them. Limits are for an idle machine with two cores; processor seconds are printed beside the
times. Run with ``-m benchmark -n 0 -s``; the installation needs the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.fresh_processes import COMMAND, Run, run

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """
import sys
import numpy as np
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
import bnp_hier as bnp
X = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1)
print(cross_val_score(make_pipeline(StandardScaler(), bnp.MAPDP()), X, cv=3))
"""
CLUSTER = """
import bnp_hier as bnp
print(bnp.cluster(bnp.datasets.load("iris"), progress_bar=False).n_clusters_)
"""


def check(what: str, done: Run, limit: float) -> None:
    """Print times; fail if it took longer than the limit.

    While other programs take the cores, it fails only if it uses so many processor seconds that it would on an idle machine.
    """
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    print(
        f"\n{what}: {done.seconds:.1f} s (at most {limit:g}), {done.processor:.1f} processor seconds; load {load:.1f}", end=""
    )
    if load > cores and limit < done.seconds and done.processor <= cores * limit:
        print(": the machine is too busy to tell", end="")
        return
    assert done.seconds <= limit


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file of 800 × 10 numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 10)) + 4.0 * rng.normal(size=(5, 10))[rng.integers(0, 5, 800)]
    names = ",".join(f"x{k}" for k in range(10))
    np.savetxt(tmp_path / "table.csv", X, delimiter=",", header=names, comments="")
    return tmp_path / "table.csv"


def test_first_fit_of_iris(tmp_path: Path) -> None:
    run("-c", "import bnp_hier.cli")  # writes the bytecode
    tried = [run(*COMMAND, "fit", "iris", cache=tmp_path / str(turn), folder=tmp_path) for turn in range(3)]
    check("bnp-hier fit iris", min(tried), 5)
    assert "3 clusters" in tried[0].output


def test_cross_validation(tmp_path: Path, table: Path) -> None:
    check("three-fold cross-validation of a pipeline, 800 × 10", run("-c", PIPELINE, str(table), cache=tmp_path / "cache"), 60)


def test_cluster(tmp_path: Path) -> None:
    check("bnp_hier.cluster(iris)", run("-c", CLUSTER, cache=tmp_path / "cache"), 60)


@pytest.mark.parametrize("data", ["iris", "table"])
def test_compare_for_two_minutes(data: str, tmp_path: Path, table: Path) -> None:
    words = ("compare", str(table) if data == "table" else data, "--minutes", "2", "--no-progress", "--out", "report")
    done = run(*COMMAND, *words, cache=tmp_path / "cache", folder=tmp_path)
    print(f"\nmethods: {', '.join(re.findall(r'│ ([A-Z][A-Za-z -]*?) +│', done.output))}", end="")
    check(f"bnp-hier compare {'of 800 × 10 numbers' if data == 'table' else data} --minutes 2", done, 140)
    assert (tmp_path / "report" / "report.html").exists()


@pytest.fixture(params=["3.11", "3.13"])
def interpreter(request: pytest.FixtureRequest) -> str:
    """An interpreter of this version, outside any environment."""
    version = request.param
    own = getattr(sys, "_base_executable", sys.executable)
    found = own if sys.version.startswith(f"{version}.") else shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], check=False).returncode:
        pytest.skip(f"there is no Python {version}")
    return found


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can read."""
    folder = Path(tempfile.mkdtemp(prefix="bnp-hier-first-hour-"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
    shutil.rmtree(folder)


def test_installation_and_first_figure(interpreter: str, open_folder: Path) -> None:
    """Install into a fresh environment, and draw; then fit with a package whose folder cannot be written to."""
    source, bin_folder, cache = open_folder / "source", open_folder / "env" / "bin", open_folder / "cache"
    skipped = shutil.ignore_patterns(".git", "build", "*.egg-info", "__pycache__", "output", ".*cache", "shared")
    shutil.copytree(ROOT, source, ignore=skipped)
    python, home = str(bin_folder / "python"), open_folder / "home"
    own: dict[str, Any] = {"before": (python,), "folder": open_folder, "PYTHONPATH": ""}
    environment = run("-m", "venv", str(open_folder / "env"), before=(interpreter,))
    installation = run("-m", "pip", "install", "--quiet", str(source), **own)
    figure = run(*COMMAND, "tree", "iris", "--out", "tree.svg", "--no-progress", cache=cache, **own)
    assert (open_folder / "tree.svg").stat().st_size > 10_000
    name = run("--version", before=(python,)).output.strip()
    print(f"\n{name}: environment {environment.seconds:.0f} s, installation {installation.seconds:.0f} s", end="")
    print(f", first figure {figure.seconds:.1f} s")
    parts = environment, installation, figure
    whole = Run(sum(part.seconds for part in parts), sum(part.processor for part in parts), "")
    check(f"from the environment to the first figure, {name}", whole, 120)
    check(f"bnp-hier fit iris, {name}", run(*COMMAND, "fit", "iris", cache=open_folder / "another", **own), 5)

    home.mkdir()
    home.chmod(0o777)
    user: dict[str, Any] = {**own, "before": _without_rights(python, open_folder / "env"), "folder": home}
    fitted = run(*COMMAND, "fit", "iris", HOME=str(home), XDG_CACHE_HOME="", **user)
    assert any((home / ".cache" / "bnp_hier").glob("kernels-*/*")) and "3 clusters" in fitted.output
    check(f"bnp-hier fit iris, {name}, with a package that cannot be written to", fitted, 5)


def _without_rights(python: str, environment: Path) -> tuple[str, ...]:
    """Make the environment one that cannot be written to; return the words that run its interpreter.

    The superuser may write anywhere, and runs it as another user or, if the interpreter is out of reach for that one, with a
    file in the way of the folder for kernels.
    """
    if os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "a-w", str(environment)], check=True)
        return (python,)
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python)
    if shutil.which("setpriv") and subprocess.run([*other, "-c", ""], check=False, capture_output=True).returncode == 0:
        return other
    for folder in environment.glob("lib/python*/site-packages/bnp_hier/native"):
        shutil.rmtree(folder / "__pycache__")
        (folder / "__pycache__").touch()
    return (python,)
