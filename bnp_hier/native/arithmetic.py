"""Arithmetic that LLVM vectorises: loads and stores without Python's negative indices, logarithms, and largest values."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing import signature as typing_signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

__all__ = ["LANES", "all_equal", "everywhere", "get", "larger", "largest", "load", "load_integer", "log", "put", "store"]

LOG_2 = "0.693147180559945309417232121458176568"

TERMS = 11
"""Terms of the series of the inverse hyperbolic tangent; the next one is below 1e-18 of the first where it is used."""


@intrinsic
def load(typing_context, address, index):
    """Return the number with an index, not negative, in the memory at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        return builder.load(builder.gep(pointer, [args[1]]))

    return types.float64(types.intp, types.intp), codegen


@intrinsic
def load_integer(typing_context, address, index):
    """Return the 64-bit integer with an index, not negative, in the memory at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(pointer, [args[1]]))

    return types.int64(types.intp, types.intp), codegen


@intrinsic
def store(typing_context, address, index, value):
    """Write the number with an index, not negative, in the memory at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
        builder.store(args[2], builder.gep(pointer, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float64), codegen


class Lanes(types.Type):
    """Eight numbers in the registers of the processor, with arithmetic lane by lane.

    LLVM does not vectorise short loops whose addresses it cannot tell apart.
    """

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = Lanes()

LANES = 8
"""Number of numbers in `Lanes`."""

CONTRACT = ("contract",)
"""Permission to fuse a product with a sum."""


def _log(builder: Any, given: Any) -> Any:
    """Code of `log` for a number or a vector of numbers."""
    size = given.type.count if isinstance(given.type, ir.VectorType) else 0
    word = ir.VectorType(ir.IntType(64), size) if size else ir.IntType(64)

    def constant(kind: Any, value: Any) -> Any:
        return ir.Constant(kind, [value] * size if size else value)

    def number(value: float) -> Any:
        return constant(given.type, value)

    def bits(value: int) -> Any:
        return constant(word, value)

    tiny = builder.fcmp_ordered("<", given, number(np.finfo(float).tiny))
    x = builder.select(tiny, builder.fmul(given, number(2.0**54)), given)
    root = int(np.array(math.sqrt(0.5)).view(np.int64))
    shifted = builder.sub(builder.bitcast(x, word), bits(root))
    m = builder.bitcast(builder.add(builder.and_(shifted, bits((1 << 52) - 1)), bits(root)), given.type)
    # k + 1023 as the last bits of a large float, since few processors convert vectors of 64-bit integers
    exponent = builder.lshr(builder.add(shifted, bits(1023 << 52)), bits(52))
    large = builder.bitcast(builder.or_(exponent, bits(0x4330000000000000)), given.type)
    k = builder.fsub(large, builder.select(tiny, number(2.0**52 + 1023 + 54), number(2.0**52 + 1023)))
    s = builder.fdiv(builder.fsub(m, number(1.0)), builder.fadd(m, number(1.0)))
    square = builder.fmul(s, s)

    def polynomial(terms: range) -> Any:
        """Terms of the series, an equal number of powers apart, divided by the first power."""
        found = number(2.0 / (2 * terms[-1] + 1))
        for term in reversed(terms[:-1]):
            found = builder.fadd(builder.fmul(found, fourth, flags=CONTRACT), number(2.0 / (2 * term + 1)), flags=CONTRACT)
        return found

    fourth = builder.fmul(square, square)
    odd, even = polynomial(range(1, TERMS, 2)), polynomial(range(2, TERMS, 2))  # side by side, which takes less time
    series = builder.fadd(builder.fmul(even, square, flags=CONTRACT), odd, flags=CONTRACT)
    rest = builder.fmul(builder.fmul(series, square), s)
    high = float(np.float32(math.log(2.0)))  # log 2 in two parts, so that k times the first is exact
    low = float(Fraction(LOG_2) - Fraction(high))
    value = builder.fadd(builder.fmul(k, number(low)), rest)
    value = builder.fadd(builder.fadd(value, builder.fmul(number(2.0), s)), builder.fmul(k, number(high)))
    # 0, infinity, negative numbers and NaN
    value = builder.select(builder.fcmp_ordered("==", given, number(math.inf)), number(math.inf), value)
    value = builder.select(builder.fcmp_ordered("==", given, number(0.0)), number(-math.inf), value)
    return builder.select(builder.fcmp_ordered(">=", given, number(0.0)), value, number(math.nan))


@intrinsic
def log(typing_context, x):
    """Natural logarithm, correct to about one unit in the last place; unlike a call of the C library, it is vectorised.

    x = 2^k m with m between √½ and √2, and log m = 2 artanh((m − 1)/(m + 1)) by its series. Also of `Lanes`.
    """
    kind = x if x == lanes else types.float64
    return kind(kind), lambda context, builder, signature, args: _log(builder, args[0])


_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


@intrinsic
def get(typing_context, address, index):
    """Return the eight numbers from the one with an index on, in the memory at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.gep(builder.inttoptr(args[0], ir.DoubleType().as_pointer()), [args[1]])
        return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=8)

    return lanes(types.intp, types.intp), codegen


@intrinsic
def put(typing_context, address, index, value):
    """Write eight numbers from the one with an index on, in the memory at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.gep(builder.inttoptr(args[0], ir.DoubleType().as_pointer()), [args[1]])
        builder.store(args[2], builder.bitcast(pointer, _VECTOR.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, lanes), codegen


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)


@intrinsic
def everywhere(typing_context, value):
    """Return a number in every lane."""
    return lanes(types.float64), lambda context, builder, signature, args: _splat(builder, args[0])


@intrinsic
def all_equal(typing_context, vector, value):
    """Whether every lane has the given value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        same = builder.fcmp_ordered("==", args[0], _splat(builder, args[1]))
        byte = ir.IntType(LANES)
        return builder.icmp_unsigned("==", builder.bitcast(same, byte), ir.Constant(byte, 2**LANES - 1))

    return types.boolean(lanes, types.float64), codegen


@intrinsic
def larger(typing_context, one, other):
    """Larger number of two, lane by lane; neither is NaN."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return lanes(lanes, lanes), codegen


def _define(symbol: Any, instruction: str) -> None:
    template = type(f"_{instruction}", (ConcreteTemplate,), {"cases": [typing_signature(lanes, lanes, lanes)]})
    infer_global(symbol)(template)

    @lower_builtin(symbol, lanes, lanes)
    def _(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args, flags=CONTRACT)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_symbol, _instruction)


@nb.njit
def largest(address, first, last):
    """Largest of the numbers with the indices from `first` to before `last`, none of which is NaN; −inf if there are none."""
    found, index, parts = -np.inf, first, np.empty(LANES)
    if last - first >= 4 * LANES:
        one = two = three = four = everywhere(-np.inf)
        while index + 4 * LANES <= last:  # side by side, which takes less time
            one, two = larger(one, get(address, index)), larger(two, get(address, index + LANES))
            three = larger(three, get(address, index + 2 * LANES))
            four = larger(four, get(address, index + 3 * LANES))
            index += 4 * LANES
        put(parts.ctypes.data, 0, larger(larger(one, two), larger(three, four)))
        for value in parts:
            found = max(found, value)
    for rest in range(index, last):
        found = max(found, load(address, rest))
    return found
