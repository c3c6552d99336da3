"""Compiled programs that are shared by functions with the same operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from threading import RLock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

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


class _Program:
    """A program that has not been compiled yet; equal to others with the same text."""

    def __init__(self, lowered: Any, small: bool) -> None:
        self.lowered, self.text, self.small = lowered, lowered.as_text(), small

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self.text == other.text


@lru_cache(maxsize=KEPT)
def _executable(program: _Program) -> Any:
    return compiled_quickly(program.lowered, small=program.small)


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

    # arguments that are not used are kept: programs with the same text must take the same arguments
    leaves = _leaves(arguments)
    small = sum(map(np.size, [*constants, *leaves])) <= SMALL if few_calls is None else few_calls
    program = _Program(jax.jit(run, keep_unused=True).lower(constants, leaves), small)
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
