"""What options may be, declared as scikit-learn declares it, for estimators and kernels alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import jax
import numpy as np
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

__all__ = ["PositiveNumber", "RANDOM_STATE", "WholeNumber", "check_options", "require_count"]


class WholeNumber(Interval):
    """Whole numbers from `least` on; True and False are none."""

    def __init__(self, least: int = 1) -> None:
        super().__init__(Integral, least, None, closed="left")

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether the value is one."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)

    def __str__(self) -> str:
        return f"a whole number of at least {self.left}"


class PositiveNumber(Interval):
    """Finite numbers above 0; True is none."""

    def __init__(self) -> None:
        super().__init__(Real, 0, None, closed="neither")

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether the value is one."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)

    def __str__(self) -> str:
        return "a finite number above 0"


RANDOM_STATE: list[Any] = [Interval(Integral, -(2**63), 2**63 - 1, closed="both"), jax.Array]
"""Whole numbers of 64 bits, and JAX keys."""


def check_options(caller: str, constraints: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> None:
    """Check options of a function or class that is no estimator.

    Raises
    ------
    ValueError
        If one does not satisfy its constraints (a `TypeError` as well); the message names the option, what it may be, and what
        it is.
    """
    validate_parameter_constraints(dict(constraints), dict(options), caller_name=caller)


def require_count(name: str, value: Any, minimum: int = 1) -> None:
    """Check that an option is a whole number of at least `minimum`.

    Raises
    ------
    ValueError
        If it is not; the message names the option.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, but it is {value!r}")
