"""Checks of the files that a command is to write, before it does any work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["FIGURES", "check_outputs"]

FIGURES = (".png", ".svg", ".pdf")
"""Suffixes of figures."""


def check_outputs(inputs: Mapping[str, str | Path], outputs: Mapping[str, Path | Iterable[Path] | None]) -> None:
    """Refuse to write over what a command reads, or where no file can be.

    Parameters
    ----------
    inputs
        What each is, such as "the data" -> file, or name of a data set.
    outputs
        Option -> file or files, if it is given.

    Raises
    ------
    ValueError
        If a file to write is an input, under whatever name, or another file to write; or it is a folder, or lies in a file.
    PermissionError
        If its folder may not be written to.
    """
    taken = {Path(path): what for what, path in inputs.items() if Path(path).exists()}
    for option, given in outputs.items():
        for path in [given] if isinstance(given, Path) else given or []:
            for other, what in taken.items():
                if _same(path, other):
                    raise ValueError(f"{option} {path} is {what} as well, which would be lost; give it another name")
            _check_place(option, path)
            taken[path] = f"a file that {option} writes"


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)  # hard links too
    except OSError:  # one of them is not there yet
        return os.path.realpath(one) == os.path.realpath(other)


def _check_place(option: str, path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder, expected the name of a file")
    folder = Path(os.path.realpath(path)).parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise ValueError(f"{option} {path} cannot be written: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{option} {path} cannot be written: the folder {folder} may not be written to")
