"""Kernels: compiled functions that are called on NumPy arrays, or from inside XLA programs, without a Python callback.

A kernel is a function of the address of a table with the address and the size of each of its arguments and results, all of them
vectors of float64 or int64 numbers. So it serves all shapes with one compilation, which Numba keeps on disk.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
from filelock import FileLock
from jax.typing import ArrayLike
from jaxtyping import Array
from numba import types
from numba.core import config as numba_config

from bnp_hier.native.call_frames import custom_call
from bnp_hier.native.memory import immortal
from bnp_hier.native.names import FAMILIES, KERNELS, OPERATIONS
from bnp_hier.native.registry import KERNEL_ADDRESSES, OPERATION_ADDRESSES
from bnp_hier.native.shipped import digest_of_sources, is_shipped, shipped_address

__all__ = ["Kernel", "cache_folder", "exact", "load_family", "name_of", "register", "register_address"]

LOCK = threading.RLock()
"""Held while anything is compiled or loaded."""

config: Any = numba_config  # whose attributes are set when it is imported


@cache
def cache_folder() -> Path | None:
    """Folder of the compiled kernels: in Numba's own cache, next to this file, or in the user's cache; None if none is
    writable.

    Kernels compiled from other sources have other folders.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bnp_hier"
    places = [Path(config.CACHE_DIR)] if config.CACHE_DIR else [Path(__file__).parent / "__pycache__", home]
    for place in places:
        folder = place / f"kernels-{digest_of_sources()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


@contextmanager
def _own_cache() -> Iterator[bool]:
    """Let Numba use `cache_folder` for what is compiled meanwhile; yields whether there is one."""
    folder, before = cache_folder(), config.CACHE_DIR
    config.CACHE_DIR = str(folder or before)
    try:
        yield folder is not None
    finally:
        config.CACHE_DIR = before


_compiled: list[Any] = []  # all functions that have been compiled or loaded
_registered: set[str] = set()  # names that XLA knows; it refuses the second of two threads


def name_of(function: Callable[..., Any]) -> str:
    """Name of a kernel, or of an operation of a family, by module and function."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def _address(function: Callable[..., Any], signature: Any) -> int:
    """Load a function that comes with the package or has been compiled before, or compile it; return the address of its code.

    Of several processes that need it, one compiles, and the others wait.
    """
    folder, name = cache_folder(), name_of(function)
    if is_shipped(name):
        return shipped_address(name, folder)
    with FileLock(folder / f"{name}.lock") if folder else nullcontext(), _own_cache() as kept:
        _compiled.append(immortal(numba.cfunc(signature, cache=kept, error_model="numpy")(function)))
    return _compiled[-1].address


def load_family(family: int) -> None:
    """Compile the operations of a family, or load them from disk, unless that has been done."""
    from importlib import import_module

    from bnp_hier.native.families.operations import ARGUMENTS

    with LOCK:
        first = family * len(OPERATIONS)
        if OPERATION_ADDRESSES[first]:
            return
        module = import_module(f"bnp_hier.native.families.{FAMILIES[family]}")
        for place, name in reversed(list(enumerate(OPERATIONS))):
            OPERATION_ADDRESSES[first + place] = _address(getattr(module, name), types.void(*ARGUMENTS[name]))


def register(name: str, function: Callable[[int], int]) -> str:
    """Register a function of the address of a call frame with XLA, unless that has been done, and return its name."""
    return register_address(name, lambda: _address(function, types.intp(types.intp)))


def register_address(name: str, address: Callable[[], int]) -> str:
    """Register machine code with XLA, whose address is asked for unless that has been done, and return its name."""
    with LOCK:
        if name in _registered:
            return name
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        jax.ffi.register_ffi_target(name, capsule(address(), None, None), platform="cpu", api_version=1)
        _registered.add(name)
    return name


class Kernel:
    """A compiled function of the address of its table of arguments and results.

    Parameters
    ----------
    function
        The Python function, whose name is in `registry.KERNELS`.
    ranks
        Number of dimensions of each argument and then of each result, without those of a batch.
    """

    def __init__(self, function: Callable[[int], None], *ranks: int) -> None:
        self.name = function.__name__
        self.function, self._ranks = function, ranks
        self._number = KERNELS.index(self.name)

    def load(self) -> int:
        """Compile the kernel, or load it from disk, unless that has been done; return the address of its machine code."""
        with LOCK:
            if not KERNEL_ADDRESSES[self._number]:
                KERNEL_ADDRESSES[self._number] = _address(self.function, types.void(types.intp))
        return KERNEL_ADDRESSES[self._number]

    def __call__(self, *arrays: np.ndarray) -> None:
        """Run the kernel on arguments followed by results: contiguous NumPy arrays of float64 or int64 numbers.

        It writes to the results. Other Python threads go on meanwhile. `exact` gives such arguments in any precision of JAX.
        """
        arrays = tuple(array.view(np.float64) if array.dtype == np.uint32 else array for array in arrays)
        for array in arrays:
            if array.dtype not in (np.float64, np.int64) or not array.flags.c_contiguous:
                raise ValueError(f"kernels need contiguous arrays of float64 or int64, but got {array.dtype}, {array.strides}")
        table = np.array([(array.ctypes.data, array.size) for array in arrays], dtype=np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_ssize_t)(self.load())(table.ctypes.data)

    def ffi_call(self, results: Sequence[jax.ShapeDtypeStruct], *arguments: ArrayLike) -> list[Array]:
        """Run the kernel inside an XLA program for the CPU; under `jax.vmap`, it runs once for each entry of the batch."""
        self.load()
        plan = np.array([self._number, *self._ranks], dtype=np.int32)
        target = register("bnp_hier", custom_call)
        return list(jax.ffi.ffi_call(target, list(results), vmap_method="expand_dims")(plan, *arguments))


def exact(values: ArrayLike) -> ArrayLike:
    """Return numbers in a form in which all digits of float64 reach a kernel, whatever the precision of JAX.

    In single precision, they travel as pairs of 32-bit words. Traced values are returned as they are.
    """
    if isinstance(values, jax.core.Tracer):
        return values
    array = np.ascontiguousarray(values, dtype=np.float64)
    return array if jnp.result_type(float) == np.float64 else array.view(np.uint32)
