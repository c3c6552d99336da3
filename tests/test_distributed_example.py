"""The example over several processes: the same draws in one, two and four, and after a process has died."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.parameters import few
from tests.processes import flags, free_address

pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[1]
# the sampling lasts some seconds, because SIGTERM takes about one to stop all processes
STEPS = {"--warmup": "10", "--samples": "60", "--checkpoint-every": "10", "--max-clusters": "8"}
FILES = 4


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with different numbers of rows, of five groups."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    means = 5.0 * rng.normal(size=(5, 2))
    for number in range(FILES):
        size = 280 + 10 * number
        table = means[rng.integers(0, 5, size)] + rng.normal(size=(size, 2))
        pd.DataFrame(table, columns=["a", "b"]).to_parquet(folder / f"part-{number}.parquet")
    return folder


def _start(rows: Path, results: Path, processes: int) -> list[subprocess.Popen]:
    """Start the example; each process has one thread for its computations."""
    command = [sys.executable, str(ROOT / "examples/distributed/sample.py"), str(rows), str(results)]
    command += [word for option in STEPS.items() for word in option]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags(1)}
    if processes == 1:
        joined = [[]]
    else:
        address = free_address()
        joined = [
            ["--coordinator", address, "--processes", str(processes), "--process", str(number)] for number in range(processes)
        ]
    return [
        subprocess.Popen([*command, *own], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for own in joined
    ]


def _ended(processes: list[subprocess.Popen]) -> list[tuple[int, str]]:
    """Exit status and output of each process."""
    found = []
    for process in processes:
        try:
            printed = process.communicate(timeout=600)
        finally:
            process.kill()
        found.append((process.returncode, "".join(printed)))
    return found


def _results(folder: Path) -> tuple[dict, list[list[int]]]:
    labels = [pd.read_parquet(folder / f"labels-part-{number}.parquet")["cluster"].tolist() for number in range(FILES)]
    return json.loads((folder / "summary.json").read_text()), labels


@pytest.fixture(scope="module")
def alone(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, list[list[int]]]:
    """Results of one process."""
    folder = tmp_path_factory.mktemp("alone")
    ((status, text),) = _ended(_start(rows, folder, 1))
    assert status == 0, text
    summary, labels = _results(folder)
    assert summary["rows"] == sum(map(len, labels)) == 1180 and max(map(max, labels)) >= 4
    return summary, labels


@pytest.mark.parametrize("processes", few([4, 2], plain=0, slow=0))
def test_same_draws_in_several_processes(rows: Path, alone, processes: int, tmp_path: Path) -> None:
    for status, text in _ended(_start(rows, tmp_path, processes)):
        assert status == 0, text
    assert _results(tmp_path) == alone
    # the last checkpoint: what all share, and a part of each
    assert len(list(tmp_path.glob(f"run.npz.*-of-{processes}"))) == len(list(tmp_path.glob("run.npz.*"))) == processes


@pytest.mark.parametrize(("signal_number", "victim"), few([(signal.SIGKILL, 1), (signal.SIGTERM, 0)], plain=0))
def test_a_process_that_dies_ends_the_others_and_the_job_goes_on(
    rows: Path, alone, signal_number: signal.Signals, victim: int, tmp_path: Path
) -> None:
    started = _start(rows, tmp_path, 2)
    deadline = time.monotonic() + 500
    while not (tmp_path / "run.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    started[victim].send_signal(signal_number)
    (status, text) = _ended(started)[1 - victim]
    assert status != 0, text
    if signal_number == signal.SIGTERM:  # JAX passes it on, and all stop after the same step
        assert "this job was asked to end (SIGTERM) after step" in text, text
    else:  # of the package, or of JAX if it notices first
        assert "another process of this job has ended" in text or "another task died" in text, text
    again = _ended(_start(rows, tmp_path, 2))
    assert [status for status, _ in again] == [0, 0], again
    assert re.search("going on from step [1-6]0", again[0][1]), again
    assert _results(tmp_path) == alone
