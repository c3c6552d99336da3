"""A reader of NumPy files that reports their many possible errors uniformly."""

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
"""Errors that `numpy.load` and `zipfile` may raise besides ValueError, KeyError and the like."""


def read_arrays(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Read the arrays of an .npz file by name, or the array of an .npy file as "X"; pickled objects are not read.

    Parameters
    ----------
    path
        The file.
    names
        Names of the arrays of an .npz file to read; by default, all.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If it is not a NumPy file or is damaged, for example if an array claims more memory than is available.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no such file")
    if not Path(path).is_file():  # reading from a pipe might block forever
        raise ValueError(f"found a {'folder' if Path(path).is_dir() else 'pipe or a device'}, expected a file")
    try:
        with open(path, "rb") as file:  # opened here, because NumPy does not close a file that it cannot read
            if zipfile.is_zipfile(file):
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    found = {name: arrays[name] for name in (arrays.files if names is None else names)}
                    if not arrays.files:
                        raise ValueError("it contains no arrays")
                for name, array in found.items():
                    if not isinstance(array, np.ndarray):  # NumPy returns the bytes of a member without an array's first bytes
                        raise ValueError(f"its member {name} is not an array")
                return found
        # a memory map cannot be longer than its file, whatever the header claims
        return {"X": np.array(np.lib.format.open_memmap(path, mode="r"))}
    except (*_ERRORS, KeyError, TypeError, AttributeError, SyntaxError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
