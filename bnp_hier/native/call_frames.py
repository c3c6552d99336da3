"""The function that XLA calls: it translates a call frame into calls of a kernel, one for each entry of a batch.

The layout of a frame is that of the structs in ``xla/ffi/api/c_api.h``, a stable binary interface, in words of eight bytes. A
frame has its extension in word 1, the interface in word 2, the arguments from word 5 and the results from word 10; word 2 of
either is their number, and word 4 points to the pointers to the buffers. A buffer has its type in word 2, its data in word 3,
its rank in word 4, and points to its dimensions in word 5.
"""

from __future__ import annotations

import numpy as np

from bnp_hier.native.memory import call_kernel, compiled, copy, float32s, floats, int32s, words
from bnp_hier.native.registry import KERNEL_ADDRESSES

__all__ = ["answered_metadata", "custom_call"]

METADATA = 1
"""Type of the extension by which XLA asks for the metadata of a function."""

S32, S64, U32, F32, F64 = 4, 5, 8, 11, 12
"""Types of buffers. U32 stands for float64 numbers, each as two words (see `bridge.exact`)."""

_read_address = KERNEL_ADDRESSES.read


@compiled
def _locate(buffer, rank, batch, levels, index):
    """Number of elements of an entry of a buffer, and of those before it; each dimension of a batch is 1 or that of `batch`."""
    head = words(buffer, 6)
    dims, total = words(head[5], head[4]), words(words(batch, 6)[5], levels)
    size, position = 1, 0
    for axis in range(head[4] - rank, head[4]):
        size *= dims[axis]
    step = size
    for axis in range(levels - 1, -1, -1):
        if dims[axis] > 1:
            position += index % total[axis] * step
        index //= total[axis]
        step *= dims[axis]
    return size, position


@compiled
def _element(buffer, position):
    """Address of an element, and the type of the buffer."""
    head = words(buffer, 6)
    kind = head[2] & 0xFFFFFFFF
    return head[3] + position * (8 if kind == F64 or kind == S64 else 4), kind


@compiled
def _widen(address, kind, size, space):
    """Copy single-precision numbers to words of eight bytes."""
    if kind == F32:
        copy(float32s(address, size), floats(space, size))
    else:
        copy(int32s(address, size), words(space, size))


@compiled
def _narrow(space, size, address, kind):
    """Copy words of eight bytes to single-precision numbers."""
    if kind == F32:
        copy(floats(space, size), float32s(address, size))
    else:
        copy(words(space, size), int32s(address, size))


@compiled
def answered_metadata(frame):
    """Whether XLA asks only for the metadata of the function, which are then written."""
    head = words(frame, 15)
    if head[1] == 0:
        return False
    extension = words(head[1], 4)
    if extension[1] & 0xFFFFFFFF == METADATA:
        # the version of the interface is word 4 of the interface itself, and word 3 of the metadata
        words(extension[3], 4)[3] = words(head[2], 5)[4]
        int32s(extension[3] + 32, 1)[0] = 0  # no traits
    return True


def custom_call(frame):
    """Call the kernel whose number is the first entry of the first argument; the other entries are the ranks of all buffers."""
    if answered_metadata(frame):
        return 0
    head = words(frame, 15)
    given, made = head[7] - 1, head[12]
    arguments, results = words(head[9], given + 1), words(head[14], made)
    plan = int32s(words(arguments[0], 6)[3], 1 + given + made)
    levels = words(results[0], 6)[4] - plan[1 + given]
    entries, dims = 1, words(words(results[0], 6)[5], levels)
    for axis in range(levels):
        entries *= dims[axis]
    # a table of addresses and sizes, and space for buffers of other types
    table, room = np.empty(2 * (given + made), np.int64), 0
    for k in range(given + made):
        buffer = arguments[k + 1] if k < given else results[k - given]
        size, _ = _locate(buffer, plan[1 + k], results[0], levels, 0)
        kind = _element(buffer, 0)[1]
        table[2 * k + 1] = size // 2 if kind == U32 else size
        room += size if kind == F32 or kind == S32 else 0
    space = np.empty(room)
    for index in range(entries):
        used = space.ctypes.data
        for k in range(given + made):
            buffer = arguments[k + 1] if k < given else results[k - given]
            size, position = _locate(buffer, plan[1 + k], results[0], levels, index)
            address, kind = _element(buffer, position)
            table[2 * k] = address
            if kind == F32 or kind == S32:
                table[2 * k] = used
                used += 8 * size
                if k < given:
                    _widen(address, kind, size, table[2 * k])
        call_kernel(_read_address(plan[0]), table.ctypes.data)
        for k in range(given, given + made):
            size, position = _locate(results[k - given], plan[1 + k], results[0], levels, index)
            address, kind = _element(results[k - given], position)
            if kind == F32 or kind == S32:
                _narrow(table[2 * k], size, address, kind)
    return 0
