"""Reading NumPy's files, whose errors are many."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

__all__ = ["read_arrays"]

_ERRORS = (OSError, EOFError, MemoryError, NotImplementedError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)
"""What `numpy.load` and `zipfile` raise beside ValueError, KeyError and the like."""


def read_arrays(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> dict[str, Shaped[np.ndarray, "..."]]:
    """The arrays of an .npz file by name, or that of an .npy file under the name "X"; pickled objects are not read.

    Parameters
    ----------
    path
        The file.
    names
        Of the arrays of an .npz file that are wanted, all of them if not given.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no such file, or is damaged: also where an array claims more memory than there is.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no such file")
    if not Path(path).is_file():  # to read from a pipe might take for ever
        raise ValueError(f"found a {'folder' if Path(path).is_dir() else 'pipe or a device'}, expected a file")
    try:
        with open(path, "rb") as file:  # opened here: NumPy leaves a file open that it cannot read
            if zipfile.is_zipfile(file):
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    return {name: arrays[name] for name in (arrays.files if names is None else names)}
        # a map is not longer than its file, whatever the header claims
        return {"X": np.array(np.lib.format.open_memmap(path, mode="r"))}
    except (*_ERRORS, KeyError, TypeError, AttributeError, SyntaxError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
