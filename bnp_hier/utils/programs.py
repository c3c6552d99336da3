"""Compiled programs that are shared by functions with the same operations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from threading import RLock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from bnp_hier.utils.compilation_cache import keep_programs
from bnp_hier.utils.forked_processes import refuse_forked_process
from bnp_hier.utils.quick_compilation import compiled_quickly

__all__ = ["compiled"]

KEPT = 64
"""Maximum number of programs kept."""

SMALL = 20_000
"""Number of entries of all arguments up to which compiling takes longer than the calls."""

COMPILING = RLock()
"""Held while a program is compiled: of several threads that need it, one compiles, and the others wait."""


DERIVATIVES = {"jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "fwd", "bwd"}
"""Parameters of operations that say how to differentiate them; programs are compiled after that."""


class _Program:
    """A program that has not been compiled yet; equal to others with the same operations."""

    def __init__(self, operations: Jaxpr, small: bool, lower: Callable[[], Any]) -> None:
        self.form, self.small, self.lower = (_form(operations), small), small, lower
        self.hash = hash(self.form)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self.form == other.form


@lru_cache(maxsize=KEPT)
def _executable(program: _Program) -> Any:
    return compiled_quickly(program.lower(), small=program.small)


def _form(operations: Jaxpr) -> Hashable:
    """Operations with variables by number: equal forms are compiled to the same program."""
    numbers: dict[Any, int] = {}

    def defined(variables: Iterable[Any]) -> tuple[Hashable, ...]:
        return tuple((numbers.setdefault(variable, len(numbers)), variable.aval) for variable in variables)

    def used(variables: Iterable[Any]) -> tuple[Hashable, ...]:
        return tuple(_value(each.val) if isinstance(each, Literal) else numbers[each] for each in variables)

    inputs = defined(operations.constvars), defined(operations.invars)
    steps = [
        (step.primitive, used(step.invars), _values(step.params), defined(step.outvars), step.ctx)  #
        for step in operations.eqns
    ]
    return inputs, tuple(steps), used(operations.outvars)


def _values(parameters: dict[str, Any]) -> tuple[Hashable, ...]:
    return tuple((name, _value(value)) for name, value in sorted(parameters.items()) if name not in DERIVATIVES)


def _value(value: Any) -> Hashable:
    """A parameter or constant as a hashable object that distinguishes 0, 0.0, -0.0 and False."""
    if isinstance(value, ClosedJaxpr):
        return _form(value.jaxpr), _value(value.consts)
    if isinstance(value, Jaxpr):
        return _form(value)
    if isinstance(value, (tuple, list)):
        return type(value), *map(_value, value)
    if isinstance(value, dict):
        return _values(value)
    if isinstance(value, (bool, int, float, complex, np.generic, np.ndarray, jax.Array)) and not _is_typed_key(value):
        array = np.asarray(value)
        return type(value), array.dtype, array.shape, array.tobytes()
    return value if isinstance(value, Hashable) else object()  # never equal to another one


def compiled(function: Callable[..., Any], *arguments: Any, few_calls: bool | None = None) -> Callable[..., Any]:
    """Compile a function for arguments of these shapes, unless a function with the same operations has been compiled before.

    `jax.jit` compiles every function anew, even if it differs from another only in the arrays that it refers to, such as the
    data set of a model. Here, these arrays become arguments of the program.

    Parameters
    ----------
    function
        What is compiled.
    *arguments
        Arguments of the shapes and types of later ones.
    few_calls
        Whether compiling takes longer than all calls, so that machine code need not be optimised; by default, decided by the
        number of entries of the arguments.
    """
    refuse_forked_process()
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    operations, constants, structure = traced.jaxpr, traced.consts, jax.tree.structure(shapes)

    def run(constants: list[Any], leaves: list[Any]) -> list[Any]:
        return jaxpr_as_fun(ClosedJaxpr(operations, constants))(*leaves)

    leaves = _leaves(arguments)
    small = sum(map(np.size, [*constants, *leaves])) <= SMALL if few_calls is None else few_calls
    # arguments that are not used are kept: equal programs must take the same arguments
    program = _Program(operations, small, lambda: jax.jit(run, keep_unused=True).lower(constants, leaves))
    keep_programs()
    with COMPILING:
        executable = _executable(program)

    def call(*arguments: Any) -> Any:
        return jax.tree.unflatten(structure, executable(constants, _leaves(arguments)))

    return call


def _leaves(arguments: tuple[Any, ...]) -> list[Any]:
    return [leaf if _is_typed_key(leaf) else np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]


def _is_typed_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
