"""Keep compiled XLA programs between processes."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from bnp_hier.utils.arrays import is_elsewhere

__all__ = ["compile_anew_over_processes", "enable_compilation_cache", "keep_programs"]

MOST_BYTES = 2 << 30
"""Size beyond which the default folder is halved."""


def enable_compilation_cache(path: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled XLA programs in a folder, so that later processes do not compile them again.

    A NumPyro sampler spends most of the time of a short run on compilation: with the cache, the second process that runs the
    same model on data of the same shape starts sampling within seconds. Kernels, estimators and commands of this package call
    it by themselves, unless ``JAX_ENABLE_COMPILATION_CACHE=0`` or the user has chosen a folder; call it once, before the first
    run, for another folder. Native kernels have a cache of their own and do not need this one.

    Parameters
    ----------
    path
        The folder; it is created if it is missing. By default, the one that the environment variable
        ``JAX_COMPILATION_CACHE_DIR`` names, or ``bnp_hier/programs`` in the user's cache folder (``XDG_CACHE_HOME``, by default
        ``~/.cache``).

    Returns
    -------
    folder
        Where programs are kept.

    Raises
    ------
    OSError
        If the folder cannot be created or written to.

    Notes
    -----
    It sets the options ``jax_compilation_cache_dir`` and ``jax_persistent_cache_min_compile_time_secs`` of JAX for this
    process; the latter to 0, because a run has a hundred small programs. The environment variable of that name has precedence.
    If the default folder has more than 2 GB when a process first uses it by itself, programs that were used least recently are
    deleted; deleting it is safe at any time. Kernels that get rows on the CPUs of several processes turn the cache off
    (``jax_enable_compilation_cache``), because such processes may wait for each other for ever with programs from it.

    Examples
    --------
    >>> import tempfile
    >>> import bnp_hier as bnp
    >>> folder = bnp.enable_compilation_cache(tempfile.mkdtemp())  # usually without an argument
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(path or os.environ.get("JAX_COMPILATION_CACHE_DIR") or home / "bnp_hier" / "programs").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"compiled programs cannot be kept in {folder}, which is not writable")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()  # JAX decides once, at the first compilation, whether there is a cache
    return folder


def _option(name: str) -> Any:
    return getattr(jax.config, f"jax_{name}")


def keep_programs() -> None:
    """Call `enable_compilation_cache`, unless the user has chosen a folder or none, or rows may be spread over processes.

    Without it, NumPyro compiles a chain anew for every `MCMC` object and run. It stays on in this process, for the user's own
    programs, too; ``JAX_ENABLE_COMPILATION_CACHE=0`` keeps it off.
    """
    chosen = _option("compilation_cache_dir") is not None or not _option("enable_compilation_cache")
    if chosen or jax.distributed.is_initialized():
        return
    with suppress(OSError):
        _forget_oldest(enable_compilation_cache())


def _forget_oldest(folder: Path) -> None:
    """Delete the programs that were used least recently from a folder that has become too large; others may do so, too."""
    with os.scandir(folder) as entries:
        files = [(max(stat.st_atime, stat.st_mtime), stat.st_size, entry.path) for entry in entries if (stat := entry.stat())]
    size = sum(each[1] for each in files)
    if size <= MOST_BYTES:
        return
    for _, freed, path in sorted(files):
        Path(path).unlink(missing_ok=True)
        size -= freed
        if size <= MOST_BYTES / 2:
            return


def compile_anew_over_processes(array: Any) -> None:
    """Turn JAX's compilation cache off in this process if an array is on the CPUs of several processes.

    When XLA loads a program for CPUs, it forgets in which order collectives of a loop and of what surrounds the loop run: one
    process may then wait in one of them for a process that waits in another. The wait was seen with JAX 0.10; its cause is
    inferred from XLA's source, where the loader gives every loop body a communicator of its own.
    """
    if not (is_elsewhere(array) and _option("enable_compilation_cache")):
        return
    if any(device.platform != "cpu" for device in array.sharding.device_set):
        return
    folder = _option("compilation_cache_dir")
    if folder is not None and jax.process_index() == 0:
        warnings.warn(
            f"the compilation cache {folder} is turned off, because the rows are on the CPUs of several processes, which may "
            "wait for each other for ever with programs from it; JAX_ENABLE_COMPILATION_CACHE=0 turns it off without a warning",
            stacklevel=2,
        )
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
