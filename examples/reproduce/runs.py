"""Runs of all scripts, each in a process of its own; what is finished is recorded and not run again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from resuming import progress, unfinished, version
from tqdm import tqdm

FOLDER = Path(__file__).resolve().parent
STATE, LOGS = "runs.json", "logs"
MOST_HOURS = 10
"""That all scripts together may take at the papers' sizes, on two cores."""

STOPPED = "stopped"
"""Exit status of a run that was stopped, or is running."""

INTERVAL = 0.2
"""Seconds between two looks at the process that is running."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""For linear algebra, unless the caller's environment says otherwise: matrices are small, and two threads were slower than one.

XLA and native kernels have their own threads, which these variables leave alone.
"""


class Script(NamedTuple):
    """A script, what it reproduces, and its options: beside ``--full`` at the paper's sizes, and at the smallest sizes."""

    name: str
    reproduces: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.py"

    def words(self, full: bool) -> list[str]:
        """Options on the command line."""
        return ["--full", *self.full] if full else [*self.quick]


FEW = ("--warmup", "8", "--draws", "16", "--thinning", "4", "--chains", "2", "--nodes", "64")

SCRIPTS = (
    Script("bhc_table1", "Heller & Ghahramani, Table 1"),
    Script("bhc_figure4", "Heller & Ghahramani, Figure 4"),
    Script("bhc_figures", "Heller & Ghahramani, Figures 5 to 8", quick=("--figures", "8")),
    Script("trees_figure2", "Xu et al., Figure 2"),
    Script("trees_figures5_6", "Xu et al., Figures 5 and 6"),
    Script("trees_figure7", "Xu et al., Figure 7"),
    Script("trees_figure8", "Xu et al., Figure 8"),
    Script("me_table1", "Kurihara & Welling, Table 1", quick=("--tau", "2")),
    Script("me_table2", "Kurihara & Welling, Table 2", quick=("--data", "newsgroups")),
    Script("me_figures3_4", "Kurihara & Welling, Figures 3 and 4", quick=("--figures", "3")),
    Script("me_figure5", "Kurihara & Welling, Figure 5", quick=("--repetitions", "2")),
    Script("map_dp_table1", "Raykov et al., Table 1", quick=("--samples", "2")),
    Script("map_dp_figure1", "Raykov et al., Figure 1", quick=("--samples", "2")),
    Script("bhmc_animals", "Huang et al., Figures 3 and 4", quick=("--warmup", "20", "--draws", "40", "--chains", "3")),
    Script("bhmc_fashion", "Huang et al., Figure 5", quick=("--items", "50", "--depth", "3", "--components", "20", *FEW)),
    Script(
        "bhmc_text",
        "Huang et al., Figure 6",
        full=("--base", "matched"),
        quick=("--items", "40", "--columns", "8", "--components", "10", *FEW),
    ),
    Script(
        "bhmc_truth",
        "ours, beside Huang et al., Figure 5",
        full=("--warmup", "60", "--draws", "60", "--thinning", "4", "--components", "40"),
        quick=("--items", "50", "--components", "20", "--nodes", "64", "--warmup", "6", "--draws", "6"),
    ),
    Script("bhmc_modes", "ours, beside Huang et al., Figure 5", quick=("--items", "40", "--components", "10", "--draws", "16")),
)


class Record(NamedTuple):
    """What is known of a run.

    - **words**, **version** - options, and hash of the script's sources.
    - **seconds** - wall time, that of earlier tries included as far as their cells or chains were used.
    - **status** - exit status, or `STOPPED`.
    - **outputs** - names of the files that it wrote.
    """

    words: list[str]
    version: str
    seconds: float
    status: int | str
    outputs: list[str]


def read_state(out: Path) -> dict[str, Record]:
    """Records of earlier runs by name of the script; those of an unreadable file count as none."""
    try:
        return {name: Record(**fields) for name, fields in json.loads((out / STATE).read_text(encoding="utf-8")).items()}
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return {}


def write_state(out: Path, state: dict[str, Record]) -> None:
    """Replace the file at once, so that it is whole whenever the run is stopped."""
    lines = [f"  {json.dumps(name)}: {json.dumps(record._asdict())}" for name, record in sorted(state.items())]
    temporary = out / f"{STATE}.new"
    temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    temporary.replace(out / STATE)


def finished(record: Record | None, words: list[str], sources: str, out: Path) -> bool:
    """Whether the run need not be repeated: same options, same sources, and all of its files are there."""
    return (
        record is not None
        and record.status == 0
        and (record.words, record.version) == (words, sources)
        and all((out / name).exists() for name in record.outputs)
    )


@contextmanager
def _process(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output goes to the log; it is ended when the block is left early."""
    found = os.pathsep.join(filter(None, [str(FOLDER.parents[1]), os.environ.get("PYTHONPATH")]))
    environment = ONE_THREAD | os.environ | {"PYTHONPATH": found}
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(script: Script, full: bool, out: Path, state: dict[str, Record], bar: tqdm) -> Record:
    """Run a script to its end, and keep its record up to date meanwhile."""
    words, sources, before = script.words(full), version(script.path), state.get(script.name)
    goes_on = before and unfinished(out, script.name) and (before.words, before.version) == (words, sources)
    earlier = before.seconds if before and goes_on else 0.0
    began, started, saved = time.time(), time.monotonic(), -60.0
    command = [sys.executable, str(script.path), "--out", str(out), *words]
    bar.set_description(script.name)
    shown = ""
    with _process(command, out / LOGS / f"{script.name}.log") as process:
        while True:
            status = process.poll()
            seconds = time.monotonic() - started
            if status is not None or seconds > saved + 10:
                written = [path.name for path in out.iterdir() if path.is_file() and path.stat().st_mtime >= began - 0.01]
                outputs = sorted(name for name in written if not name.startswith(STATE))
                state[script.name] = Record(
                    words, sources, round(earlier + seconds, 1), STOPPED if status is None else status, outputs
                )
                write_state(out, state)
                saved = seconds
            if status is not None:
                return state[script.name]
            now = progress(out, script.name)
            bar.set_postfix_str(now, refresh=now != shown or sys.stderr.isatty())
            shown = now
            time.sleep(INTERVAL)


def run_all(scripts: Iterable[Script], full: bool, out: Path, again: bool) -> list[str]:
    """Run all scripts that are not finished; a message for each that failed."""
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    state, failures, chosen = read_state(out), [], list(scripts)
    with tqdm(total=len(chosen), unit="script", dynamic_ncols=True) as bar:
        for script in chosen:
            known = state.get(script.name)
            if not again and finished(known, script.words(full), version(script.path), out):
                tqdm.write(f"{script.name}: finished earlier")
            else:
                if again:
                    for path in unfinished(out, script.name):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                record = run(script, full, out, state, bar)
                log = out / LOGS / f"{script.name}.log"
                if record.status:
                    last = (log.read_text(encoding="utf-8", errors="replace").split("\n") or [""])[-2:][0].strip()
                    failures.append(f"{script.name}: exit status {record.status}; {log}: {last}")
                tqdm.write(failures[-1] if record.status else f"{script.name}: {record.seconds:.0f} s")
            bar.update()
    return failures


def minutes(out: Path) -> dict[str, float]:
    """Measured minutes of the runs at the papers' sizes that have ended well."""
    state = read_state(out)
    known = {name: record for name, record in state.items() if record.status == 0 and "--full" in record.words}
    return {script.name: known[script.name].seconds / 60 for script in SCRIPTS if script.name in known}


def total(measured: dict[str, float]) -> str:
    """How long everything takes, and how much of it has been measured."""
    hours = sum(measured.values()) / 60
    which = f"{len(measured)} of the" if len(measured) < len(SCRIPTS) else "all"
    counted = f"{which} {len(SCRIPTS)} scripts, measured on two cores"
    return f"{hours:.1f} hours for {counted}; all of them may take {MOST_HOURS} hours at most"


def listing(out: Path) -> str:
    """Scripts, what they reproduce, and how long they take."""
    measured = minutes(out)
    lines = [
        f"{script.name:<18}{script.reproduces:<42}"
        + (f"{measured[script.name]:>8.1f} min" if script.name in measured else f"{'not measured':>12}")
        for script in SCRIPTS
    ]
    return "\n".join([*lines, f"At the papers' sizes: {total(measured)}"])
