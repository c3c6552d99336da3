"""Errors from inside XLA programs, without a Python callback: programs that contain one are not kept on disk by JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bnp_hier.native.bridge import register
from bnp_hier.native.call_frames import answered_metadata
from bnp_hier.native.memory import bytes_at, hold, int32s, words

__all__ = ["FINE", "STOP", "stop_call", "stop_where"]

FINE = -1
"""Code of an entry that is as it should be."""

FAILED_PRECONDITION = 9
"""Code of XLA for programs that cannot go on in this state."""

PLACE = 1
"""Byte in a message that stands for the number of the row."""


STOP = "bnp_hier_stop"
"""Name of `stop_call` in XLA programs."""


@intrinsic
def _create_error(typing_context: Any, function: Any, arguments: Any) -> Any:
    """Call XLA's function that creates an error, at an address, and return the address of the error."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        return builder.call(builder.inttoptr(args[0], ir.FunctionType(word, [word]).as_pointer()), args[1:])

    return types.intp(types.intp, types.intp), codegen


def stop_call(frame):
    """Return an error if an entry of the first argument is not `FINE`; the second argument has the messages, one after another.

    An entry ≥ 0 is the number of a row, and the first message tells it; −2, −3, … stand for the other messages.
    """
    if answered_metadata(frame):
        return 0
    head = words(frame, 15)
    arguments, result = words(head[9], 2), words(words(head[14], 1)[0], 6)
    buffer, text = words(arguments[0], 6), words(arguments[1], 6)
    size = 1
    for length in words(buffer[5], buffer[4]):
        size *= length
    codes, out = int32s(buffer[3], size), int32s(result[3], size)
    bad = FINE
    for i in range(size):
        out[i] = codes[i]
        if bad == FINE:
            bad = codes[i]
    if bad == FINE:
        return 0
    given = bytes_at(text[3], words(text[5], text[4])[-1])
    message, start, length = np.zeros(len(given) + 24, np.uint8), 0, 0
    for _ in range(-bad - 1 if bad < 0 else 0):
        while given[start] != 0:
            start += 1
        start += 1
    while given[start] != 0:
        if given[start] == PLACE:
            scale = 1
            while bad // scale >= 10:
                scale *= 10
            while scale > 0:
                message[length] = 48 + bad // scale % 10
                length, scale = length + 1, scale // 10
        else:
            message[length] = given[start]
            length += 1
        start += 1
    request = np.zeros(4, np.int64)
    request[0], request[2], request[3] = 32, message.ctypes.data, FAILED_PRECONDITION
    error = _create_error(words(head[2], 7)[6], request.ctypes.data)  # which copies the message
    hold(message)
    hold(request)
    return error


def stop_where(codes: Int[Array, "..."], messages: tuple[str, ...]) -> Int[Array, "..."]:
    """Return the codes, but stop the XLA program with a `JaxRuntimeError` if one of them is not `FINE`.

    The program must use what is returned.

    Parameters
    ----------
    codes
        `FINE`, or the number of a row, or −2, −3, … for the second, third, … message.
    messages
        What the error says. In the first message, the number of the row is inserted at ``{}``.
    """
    text = "".join(message.replace("{}", chr(PLACE)) + "\0" for message in messages).encode()
    shape = jax.ShapeDtypeStruct(codes.shape, np.int32)
    return jax.ffi.ffi_call(register(STOP, stop_call), shape, vmap_method="broadcast_all")(
        codes.astype(np.int32), np.frombuffer(text, np.uint8)
    )
