"""A kernel that returns its arguments."""

from __future__ import annotations

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import copy, integers, numbers

__all__ = ["ECHO"]


def return_arguments(table):
    """Arguments: a number, a vector and a matrix of floats, and a vector of integers. Results: the same."""
    copy(numbers(table, 0), numbers(table, 4))
    copy(numbers(table, 1), numbers(table, 5))
    copy(numbers(table, 2), numbers(table, 6))
    copy(integers(table, 3), integers(table, 7))


ECHO = Kernel(return_arguments, 0, 1, 2, 1, 0, 1, 2, 1)
