"""Views of memory in compiled code, and calls by address."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import llvmlite.binding as llvm
import numba as nb
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

__all__ = [
    "Addresses",
    "by_address",
    "bytes_at",
    "call_kernel",
    "compiled",
    "copy",
    "float32s",
    "floats",
    "hold",
    "immortal",
    "int32s",
    "integers",
    "numbers",
    "separate",
    "words",
]

separate = partial(nb.njit, error_model="numpy")
"""Decorator of a function that kernels call; division by zero yields NaN or infinity instead of an exception."""

compiled = partial(separate, inline="always")
"""The same for a function that becomes part of its callers: compiling many functions that call one another takes longer."""


def _view(element: Any) -> Any:
    """Create a function of an address and a size that returns a vector in this memory."""
    vector = types.Array(element, 1, "C")

    @intrinsic
    def view(typing_context: Any, address: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = make_array(vector)(context, builder)
            width = context.get_abi_sizeof(context.get_data_type(element))
            pointer = builder.inttoptr(args[0], context.get_data_type(element).as_pointer())
            step = context.get_constant(types.intp, width)
            populate_array(array, data=pointer, shape=[args[1]], strides=[step], itemsize=step, meminfo=None)
            return array._getvalue()

        return vector(types.intp, types.intp), codegen

    return view


floats, words = _view(types.float64), _view(types.int64)
float32s, int32s = _view(types.float32), _view(types.int32)
bytes_at = _view(types.uint8)


@compiled
def copy(values, out):
    """Copy the values of a vector; Numba would take seconds to compile an assignment to a slice."""
    for i in range(len(values)):
        out[i] = values[i]


@intrinsic
def hold(typing_context: Any, array: Any) -> Any:
    """Keep an array until here.

    Numba frees an array after its last use, even if its address is still used: a function that takes the address of an array
    that it has made must hold it at the end.
    """
    return types.void(array), lambda context, builder, signature, args: context.get_dummy_value()


def by_address(arguments: tuple[Any, ...]) -> Any:
    """Type and code of a call of a function without a result whose address is the first argument; for use in intrinsics."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in signature.args[1:]]
        function = ir.FunctionType(ir.VoidType(), kinds).as_pointer()
        builder.call(builder.inttoptr(args[0], function), args[1:])
        return context.get_dummy_value()

    return types.void(types.intp, *arguments), codegen


def immortal(thing: Any) -> Any:
    """Never free an object, not even when the process ends: an XLA program that still runs may use it until the very end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


class Addresses:
    """A table of addresses that compiled code finds by the name of a symbol.

    Addresses differ between processes and compiled code is kept on disk, so that it must not contain them.

    Parameters
    ----------
    name
        Name of the symbol.
    size
        Number of entries.
    """

    def __init__(self, name: str, size: int) -> None:
        self._table = immortal((ctypes.c_int64 * size)())
        llvm.add_symbol(name, ctypes.addressof(self._table))
        self.read = _reader(name, size)

    def __setitem__(self, place: int, address: int) -> None:
        self._table[place] = address

    def __getitem__(self, place: int) -> int:
        return self._table[place]


def _reader(name: str, size: int) -> Any:
    @intrinsic
    def read(typing_context: Any, place: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(64)
            table = builder.module.globals.get(name)
            if table is None:
                table = ir.GlobalVariable(builder.module, ir.ArrayType(word, size), name)
                table.linkage = "external"
            return builder.load(builder.gep(table, [ir.Constant(word, 0), args[0]]))

        return types.intp(types.intp), codegen

    return read


@compiled
def numbers(table, place):
    """An argument or result of a kernel, as floats."""
    entry = words(table + 16 * place, 2)
    return floats(entry[0], entry[1])


@compiled
def integers(table, place):
    """An argument or result of a kernel, as integers."""
    entry = words(table + 16 * place, 2)
    return words(entry[0], entry[1])


@intrinsic
def call_kernel(typing_context, address, table):
    """Call a kernel by its address with the address of its table of arguments."""
    return by_address((types.intp,))
