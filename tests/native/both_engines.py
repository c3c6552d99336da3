"""The same function by kernels and by XLA programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bnp_hier.native.availability import xla_programs
from tests.native.random_problems import Problem, random_problem

PROBLEMS = 15
"""Per family and size: 315 in all."""


def both(function: Callable[..., Any], *arguments: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """All results of a function for lists of arguments, by kernels and by XLA programs."""

    def run() -> list[np.ndarray]:
        program = jax.jit(function)
        return [np.asarray(leaf) for given in zip(*arguments, strict=True) for leaf in jax.tree.leaves(program(*given))]

    kernels = run()
    with xla_programs():
        return kernels, run()


def same(kernels: list[np.ndarray], programs: list[np.ndarray]) -> None:
    for place, (one, other) in enumerate(zip(kernels, programs, strict=True)):
        if np.issubdtype(one.dtype, np.integer):
            np.testing.assert_array_equal(one, other, err_msg=str(place))
        else:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=str(place))


def problems_of(family: str, n: int, d: int, draws: int) -> list[Problem]:
    return [random_problem(family, (seed, n, d, len(family)), n, d, draws) for seed in range(PROBLEMS)]


def arguments_of(problems: list[Problem]) -> list[list[Any]]:
    return [list(field) for field in zip(*problems, strict=True)]
