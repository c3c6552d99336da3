"""Runs of programs in processes of their own, as a user starts them, and their times."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["COMMAND", "Run", "run"]

COMMAND = ("-c", "from bnp_hier.cli import main; main()")
"""Words after the interpreter that run `bnp-hier`, wherever its script is."""

UNSET = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "PYTHONDONTWRITEBYTECODE")
"""Settings of these tests that a user does not have: an installed package has its bytecode."""


class Run(NamedTuple):
    """A process that has ended.

    - **seconds** - how long it took.
    - **processor** - seconds of all its threads, which depend less on what else the machine does.
    - **output** - what it has printed.
    """

    seconds: float
    processor: float
    output: str


def run(
    *words: str,
    cache: Path | None = None,
    folder: Path | None = None,
    before: Sequence[str] = (sys.executable,),
    **variables: str,
) -> Run:
    """Run a program.

    Parameters
    ----------
    words
        Its arguments.
    cache
        Folder for compiled kernels and programs; None for the user's own.
    folder
        Where it runs.
    before
        The interpreter, and what runs it.
    variables
        Further environment variables.
    """
    environment = {name: value for name, value in os.environ.items() if name not in UNSET} | variables
    if cache is not None:
        environment |= {"XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": str(cache)}
    used, started = _used(), time.perf_counter()
    done = subprocess.run([*before, *words], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(time.perf_counter() - started, _used() - used, done.stdout)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
