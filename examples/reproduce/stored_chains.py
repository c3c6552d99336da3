"""Long chains are stored while they run, so that a script that was stopped goes on where it was."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
from numpyro.infer import MCMC
from resuming import PROGRESS, version

import bnp_hier as bnp

LOOK, SAVE = 10.0, 600.0
"""Seconds after which the progress of chains is noted, and after which they are stored."""


class StoredChains:
    """The folder of a script's chains, which exists until the script has ended.

    ``chains.path(name)`` is the file for the chains of that name, which the next run with the same options and sources
    continues. The folder is ``out/cells/NAME-HASH``, with a hash of the options: two runs with different options do not
    disturb each other. It is left when the run is stopped, and removed at the end of the `with` block.
    """

    def __init__(self, options: argparse.Namespace, script: str) -> None:
        given = sorted((name, str(value)) for name, value in vars(options).items() if name != "out")
        hashed = hashlib.sha256(json.dumps(given).encode()).hexdigest()[:8]
        self.folder = options.out / "cells" / f"{Path(script).stem}-{hashed}"
        self.version = version(Path(script))

    def __enter__(self) -> StoredChains:
        head = self.folder / "version"
        if self.folder.exists() and not (head.exists() and head.read_text(encoding="utf-8") == self.version):
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        head.write_text(self.version, encoding="utf-8")
        return self

    def path(self, name: str) -> Path:
        """File of the chains of a name, which is unique in the script."""
        return self.folder / f"{name}.npz"

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            shutil.rmtree(self.folder)
            with suppress(OSError):  # other scripts may have files there
                self.folder.parent.rmdir()


def run_stored(
    path: Path, mcmc: MCMC, checkpoint_every: int, seed: int, X: np.ndarray, starts: Mapping[str, np.ndarray] | None
) -> bnp.ResumableRun:
    """Run chains to their end, from a file if an earlier run has left one; log joints and accepted moves are collected."""
    run, saved = None, time.monotonic()
    if path.exists():
        try:
            run = bnp.ResumableRun.load(path, mcmc, X, checkpoint_every=checkpoint_every)
            print(f"{path}: {run.steps} sweeps from a run that was stopped", file=sys.stderr)
        except ValueError as error:  # of another version of the package
            print(f"these chains begin anew: {error}", file=sys.stderr)
    if run is None:
        run = bnp.ResumableRun(mcmc, checkpoint_every, time_limit=LOOK)
        run.run(jax.random.key(seed), X, init_params=starts, extra_fields=("log_joint", "accepted"))
    run.path, run.time_limit = None, LOOK  # chains are stored now and then, since all draws are written each time
    while True:
        _note_progress(path, run.steps, mcmc.num_samples)
        if run.finished or time.monotonic() > saved + SAVE:
            run.save(path)
            saved = time.monotonic()
        if run.finished:
            return run
        run.resume(X)


def _note_progress(path: Path, done: int, total: int) -> None:
    """For the command that runs all scripts."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"chains": path.stem, "done": done, "total": total}), encoding="utf-8")
    temporary.replace(path.with_name(PROGRESS))
