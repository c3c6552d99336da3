"""`python -m examples.reproduce` runs all scripts, goes on after a stop, and names those that fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.reproductions import FOLDER

sys.path.insert(0, str(FOLDER))

import runs  # noqa: E402

ROOT = FOLDER.parents[1]
TRIED = ("trees_figure2",)
"""Scripts that the slow tests run, which have tests of the other scripts beside this; the exhaustive ones run all."""

DATA = ("bhmc_fashion", "bhmc_text", "bhmc_truth", "bhmc_modes")
"""Scripts whose smallest run needs the larger data sets."""

SCRIPT = f"""
import argparse, os, sys, time
from pathlib import Path
sys.path.insert(0, {str(FOLDER)!r})
from resuming import Cells

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path)
parser.add_argument("--full", action="store_true")
options = parser.parse_args()
name = Path(__file__).stem

def square(number):
    while number == 2 and name == "long" and not Path(__file__).with_name("go").exists():
        time.sleep(0.05)
    with Path(__file__).with_name("calls").open("a") as file:
        file.write(f"{{name}}{{number}} ")
    return number**2

if name == "failing" and not Path(__file__).with_name("go").exists():
    print("some output")
    raise SystemExit("this script needs a larger data set")
with Cells(options.out, name, __file__, 3) as cells:
    total = sum(cells(square, number) for number in range(3))
(options.out / f"{{name}}.txt").write_text(f"{{total}} {{options.full}}")
"""

DRIVER = f"""
import runpy, sys
from pathlib import Path
sys.path.insert(0, {str(FOLDER)!r})
import runs
runs.FOLDER = Path(sys.argv[1])
runs.SCRIPTS = tuple(runs.Script(name, "nothing") for name in sys.argv[2].split())
sys.argv[1:] = sys.argv[3:]
runpy.run_path({str(FOLDER / "__main__.py")!r}, run_name="__main__")
"""


class Bench:
    """A folder of small scripts, and the command that runs them."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder, self.out, self.names = folder / "scripts", folder / "out", names
        self.folder.mkdir()
        for name in names:
            (self.folder / f"{name}.py").write_text(SCRIPT, encoding="utf-8")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", DRIVER, str(self.folder), " ".join(self.names), "--out", str(self.out)]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.command, *words], capture_output=True, text=True, timeout=120, check=False)

    def calls(self) -> list[str]:
        """Cells that have been run since the last call."""
        path = self.folder / "calls"
        found = path.read_text(encoding="utf-8").split() if path.exists() else []
        path.unlink(missing_ok=True)
        return found


def test_a_script_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "first", "failing", "third")
    done = bench.run("all", "--full")
    assert done.returncode == 1 and "2 of 3 scripts finished" in done.stdout
    log = bench.out / "logs" / "failing.log"
    assert f"failing: exit status 1; {log}: this script needs a larger data set" in done.stderr
    assert "some output" in log.read_text(encoding="utf-8")
    assert (bench.out / "third.txt").read_text(encoding="utf-8") == "5 True"
    assert bench.calls() == ["first0", "first1", "first2", "third0", "third1", "third2"]
    # and is the only one that is run when the command is started again
    (bench.folder / "go").touch()
    done = bench.run("all", "--full")
    assert done.returncode == 0 and "3 of 3 scripts finished" in done.stdout
    assert bench.calls() == ["failing0", "failing1", "failing2"]


def test_what_makes_a_finished_script_run_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "first", "second")
    bench.run("all", "--full")
    bench.calls()
    bench.run("all", "--full")
    assert bench.calls() == []
    (bench.out / "first.txt").unlink()  # its output is missing
    bench.run("all", "--full")
    assert set(bench.calls()) == {"first0", "first1", "first2"}
    (bench.folder / "second.py").write_text(SCRIPT + "print(1)\n", encoding="utf-8")  # its sources have changed
    bench.run("all", "--full")
    assert set(bench.calls()) == {"second0", "second1", "second2"}
    bench.run("first", "--quick")  # other options
    assert set(bench.calls()) == {"first0", "first1", "first2"}
    assert (bench.out / "first.txt").read_text(encoding="utf-8") == "5 False"
    bench.run("second", "--full", "--again")
    assert set(bench.calls()) == {"second0", "second1", "second2"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_run_that_was_stopped_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    bench = Bench(tmp_path, "first", "long", "last")
    process = subprocess.Popen(
        [*bench.command, "all", "--full"], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    path, deadline = bench.folder / "calls", time.monotonic() + 60
    while not (path.exists() and "long1" in path.read_text(encoding="utf-8")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
    _, problem = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert process.returncode == 130 and "the same command goes on" in problem
    assert runs.read_state(bench.out)["long"].status == runs.STOPPED
    assert bench.calls() == ["first0", "first1", "first2", "long0", "long1"]
    (bench.folder / "go").touch()
    time.sleep(0.3)
    assert bench.calls() == []  # its process has ended, too
    done = bench.run("all", "--full")
    assert done.returncode == 0 and bench.calls() == ["long2", "last0", "last1", "last2"]
    state = runs.read_state(bench.out)
    assert [state[name].status for name in bench.names] == [0, 0, 0] and state["long"].outputs == ["long.txt"]
    assert (bench.out / "long.txt").read_text(encoding="utf-8") == "5 True"


def test_a_state_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    for text in ("", "{", '{"name": {"words": []}}'):
        (tmp_path / runs.STATE).write_text(text, encoding="utf-8")
        assert runs.read_state(tmp_path) == {}
    state = {"name": runs.Record(["--full"], "0", 1.5, 0, [])}
    runs.write_state(tmp_path, state)
    assert runs.read_state(tmp_path) == state


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.reproduce", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def test_listing() -> None:
    done = _command("--list")
    assert done.returncode == 0
    for script, line in zip(runs.SCRIPTS, done.stdout.splitlines()[:-1], strict=True):
        assert line.startswith(f"{script.name} ") and script.reproduces in line
        assert re.search(r" (\d+\.\d min|not measured)$", line)
    assert "10 hours at most" in done.stdout.splitlines()[-1]
    by_path = subprocess.run(
        [sys.executable, str(FOLDER / "__main__.py"), "--list"], capture_output=True, text=True, check=True
    )
    assert by_path.stdout == done.stdout


def test_times_at_the_sizes_of_the_papers(tmp_path: Path) -> None:
    """The measured ones stay within the hours that are stated; small and failed runs do not count."""
    assert sum(runs.minutes(FOLDER / "output").values()) <= 60 * runs.MOST_HOURS
    one, two, three = (script.name for script in runs.SCRIPTS[:3])
    records = {one: runs.Record(["--full"], "", 90.0, 0, []), two: runs.Record([], "", 30.0, 0, [])}
    runs.write_state(tmp_path, records | {three: runs.Record(["--full"], "", 60.0, runs.STOPPED, [])})
    assert runs.minutes(tmp_path) == {one: 1.5}
    assert runs.listing(tmp_path).count("not measured") == len(runs.SCRIPTS) - 1


@pytest.mark.parametrize("words", [["all"], ["--full"], ["no_such", "--quick"], ["all", "--quick", "--full"]])
def test_wrong_options_are_refused(words: list[str]) -> None:
    done = _command(*words)
    assert done.returncode == 2 and "error: " in done.stderr


def test_every_script_is_known() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.py") if "parse_args()" in path.read_text(encoding="utf-8")}
    assert scripts - {"__main__"} == {script.name for script in runs.SCRIPTS}


@pytest.mark.parametrize(
    "name",
    [
        # each script has tests of its own, which run it at small sizes, too
        pytest.param(
            script.name,
            marks=[
                pytest.mark.slow if script.name in TRIED else pytest.mark.exhaustive,
                *[pytest.mark.data] * (script.name in DATA),
            ],
        )
        for script in runs.SCRIPTS
    ],
)
def test_quick_run(name: str, tmp_path: Path) -> None:
    """Of each script, skipped when it is started again."""
    done = _command(name, "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    record = runs.read_state(tmp_path)[name]
    assert record.status == 0 and any(output.endswith(".txt") for output in record.outputs)
    assert f"{name}: finished earlier" in _command(name, "--quick", "--out", str(tmp_path)).stdout
    assert not (tmp_path / "cells").exists()
