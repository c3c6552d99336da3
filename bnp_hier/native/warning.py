"""Warnings from inside XLA programs that JAX keeps on disk, as it does not keep programs with a Python callback of its own.

XLA calls a Python function by its address, which every process registers under the same name. The layout of the frame of a call
is described in `call_frames`; it is read by Python here, since nothing in this module is compiled.
"""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int
from numpy.typing import NDArray

from bnp_hier.native.bridge import register_address
from bnp_hier.native.call_frames import METADATA
from bnp_hier.native.stopping import FAILED_PRECONDITION

__all__ = ["PLACE", "WARN", "warn"]

PLACE = "\1"
"""Character that stands for the number in a text."""

WARN = "bnp_hier_warn"
"""Name of the function in XLA programs."""


def _words(address: int, size: int) -> NDArray[np.int64]:
    """View the memory at an address."""
    return np.ctypeslib.as_array((ctypes.c_int64 * size).from_address(address))


def _error(interface: int, message: str) -> int:
    """Have XLA create an error, which ends the program, and return its address."""
    text = ctypes.create_string_buffer(message.encode())
    request = (ctypes.c_int64 * 4)(32, 0, ctypes.addressof(text), FAILED_PRECONDITION)
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(int(_words(interface, 7)[6]))
    return create(ctypes.addressof(request)) or 0  # it copies the message


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def _warn_call(frame: int) -> int:
    """Warn with the text that is the first argument, in which the second, a number, is inserted; the result is 0."""
    head = _words(frame, 15)
    if head[1]:  # XLA asks for the metadata of the function
        extension = _words(int(head[1]), 4)
        if extension[1] & 0xFFFFFFFF == METADATA:
            _words(int(extension[3]), 4)[3] = _words(int(head[2]), 5)[4]
            ctypes.c_int32.from_address(int(extension[3]) + 32).value = 0
        return 0
    text, number = (_words(int(address), 6) for address in _words(int(head[9]), 2))
    template = ctypes.string_at(int(text[3]), int(_words(int(text[5]), 1)[0])).decode()
    try:
        value = ctypes.c_float.from_address(int(number[3])).value
        ctypes.c_int32.from_address(int(_words(int(_words(int(head[14]), 1)[0]), 6)[3])).value = 0
        warnings.warn(template.replace(PLACE, f"{value:.1e}"), RuntimeWarning, stacklevel=2)
    except Exception as error:  # warnings may be errors, which must not be raised into XLA
        return _error(int(head[2]), f"{type(error).__name__}: {error}")
    return 0


def warn(text: str, number: ArrayLike = 0.0) -> Int[Array, ""]:
    """Issue a `RuntimeWarning` when a compiled program comes to this point.

    Parameters
    ----------
    text
        The message, in which `PLACE` stands for the number.
    number
        A number, which is inserted with two digits.

    Returns
    -------
    nothing
        Zero, which the program must use: XLA removes calls whose result is not used, and does not divide programs among
        devices that have calls marked as necessary in spite of that.
    """
    address: Any = ctypes.cast(_warn_call, ctypes.c_void_p).value
    target = register_address(WARN, lambda: address)
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((), np.int32))
    return call(np.frombuffer(text.encode(), np.uint8), jnp.asarray(number, np.float32))
