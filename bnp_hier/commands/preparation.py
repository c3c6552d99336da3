"""`bnp-hier warm-up`: compile the native kernels ahead of the first use."""

from __future__ import annotations

import time

from bnp_hier.commands.console import out, print_json
from bnp_hier.commands.options import Json, Progress
from bnp_hier.utils.progress_bars import can_redraw

__all__ = ["warm_up"]


def warm_up(progress: Progress = True, as_json: Json = False) -> None:
    """Compile the native kernels ahead of the first use, once per machine and version.

    Otherwise each of them is compiled when it is first needed.
    """
    try:
        from bnp_hier.native.bridge import cache_folder
        from bnp_hier.native.names import KERNELS
        from bnp_hier.native.warming_up import compile_kernels, start_compiling
    except ImportError as error:
        raise ImportError(f"there are no native kernels without Numba ({error}); XLA programs run instead") from error
    started = time.monotonic()
    other = start_compiling(KERNELS[::-1])  # on another core, from the other end
    count = compile_kernels(progress_bar=progress and can_redraw())
    if other is not None:
        other.wait()
    if count == 0:
        raise ValueError("native kernels do not run here: they are switched off, or JAX computes on an accelerator")
    folder, seconds = cache_folder(), time.monotonic() - started
    if as_json:
        print_json({"kernels": count, "seconds": seconds, "folder": None if folder is None else str(folder)})
        return
    where = f"kept in {folder}" if folder else "lost when a process ends, since no folder for them is writable"
    out.print(f"{count} native kernels are ready after {seconds:.0f} s; they are {where}", soft_wrap=True)
