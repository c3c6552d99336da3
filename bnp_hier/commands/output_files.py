"""Checks of the output files of a command, made before it does any work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["FIGURES", "check_outputs"]

FIGURES = (".png", ".svg", ".pdf")
"""Suffixes of figure files."""


def check_outputs(inputs: Mapping[str, str | Path], outputs: Mapping[str, Path | Iterable[Path] | None]) -> None:
    """Reject output files that would overwrite an input, or that cannot be written.

    Parameters
    ----------
    inputs
        Description, such as "the data" -> file, or name of a data set.
    outputs
        Option -> its file or files; None if the option is not given.

    Raises
    ------
    ValueError
        If an output is the same file as an input (links are followed) or as another output, if it is a folder, or if part of
        its path is a file.
    PermissionError
        If its folder is not writable.
    """
    taken = {Path(path): what for what, path in inputs.items() if Path(path).exists()}
    for option, given in outputs.items():
        for path in [given] if isinstance(given, Path) else given or []:
            for other, what in taken.items():
                if _same(path, other):
                    raise ValueError(f"{option} {path} is also {what}, which would be overwritten; choose another file name")
            _check_place(option, path)
            taken[path] = f"the output of {option}"


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)  # hard links too
    except OSError:  # one of them does not exist yet
        return os.path.realpath(one) == os.path.realpath(other)


def _check_place(option: str, path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder, expected a file name")
    folder = Path(os.path.realpath(path)).parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise ValueError(f"{option} {path} cannot be written: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{option} {path} cannot be written: the folder {folder} is not writable")
