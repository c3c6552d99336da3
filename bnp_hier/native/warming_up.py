"""Compile kernels ahead of the first use."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module

from tqdm import tqdm

import bnp_hier.native
from bnp_hier.native.availability import ffi_available, kernels_run
from bnp_hier.native.bridge import Kernel, cache_folder, load_family, register
from bnp_hier.native.cores import core_count
from bnp_hier.native.names import FAMILIES, OPERATIONS
from bnp_hier.native.shipped import prepare_shipped, shipped_names
from bnp_hier.native.stopping import STOP, stop_call

__all__ = ["compile_kernels", "kernels", "start_compiling"]


_started: list[subprocess.Popen[bytes]] = []  # references, because a process should not be collected while it runs


def kernels() -> Iterator[Kernel]:
    """Yield all kernels of the package."""
    for module in pkgutil.iter_modules(bnp_hier.native.__path__):
        for value in vars(import_module(f"bnp_hier.native.{module.name}")).values():
            if isinstance(value, Kernel):
                yield value


def compile_kernels(progress_bar: bool = True, names: Sequence[str] | None = None) -> int:
    """Compile kernels and families that are not on disk yet, and load the others.

    Parameters
    ----------
    progress_bar
        Whether to show a progress bar.
    names
        Kernels and families to compile, by the names in `native.names`, in this order; by default, all families and kernels.

    Returns
    -------
    count
        Number of all kernels; 0 if they cannot run here.
    """
    if not (ffi_available() if names is None else kernels_run()):
        return 0
    every = {kernel.name: kernel.load for kernel in kernels()}
    steps = {family: partial(load_family, number) for number, family in enumerate(FAMILIES)} | every
    for name in tqdm(steps if names is None else names, desc="kernels", disable=not progress_bar, leave=False):
        steps[name]()
    if names is None:
        register(STOP, stop_call)
    return len(every)


def start_compiling(names: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """Compile kernels and families in another process if they are not on disk yet and there is a core for it.

    Calls that need one of them wait until it is compiled. If the process fails, they compile it themselves. Of those that come
    with the package, another thread makes the machine code.

    Parameters
    ----------
    names
        As for `compile_kernels`.

    Returns
    -------
    process
        The process; None if there is none.
    """
    folder = cache_folder()
    if not folder or core_count() < 2 or not kernels_run():
        return None
    shipped = [each for name in names for each in shipped_names(name)]
    if shipped:
        threading.Thread(target=lambda: [prepare_shipped(each, folder) for each in shipped], daemon=True).start()
    missing = [name for name in names if not shipped_names(name) and not any(folder.glob(f"**/{_last(name)}-*.nbi"))]
    if not missing:
        return None
    code = f"from bnp_hier.native.warming_up import compile_kernels; compile_kernels(False, {missing!r})"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, "-c", code], stdin=quiet, stdout=quiet, stderr=quiet)
    _started.append(process)
    return process


def _last(name: str) -> str:
    """Beginning of the name of the file of a kernel, or of the operation of a family that is compiled last."""
    return f"{name}.{OPERATIONS[0]}" if name in FAMILIES else f"*.{name}"
