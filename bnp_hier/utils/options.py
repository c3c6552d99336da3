"""Validation of options, declared as in scikit-learn, for estimators and kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import jax
import numpy as np
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

__all__ = ["PositiveNumber", "RANDOM_STATE", "SEED", "WholeNumber", "check_options", "require_count"]


class WholeNumber(Interval):
    """Whole numbers of at least `least` and, unless it is None, at most `most`, excluding True and False."""

    def __init__(self, least: int = 1, most: int | None = None) -> None:
        super().__init__(Integral, least, most, closed="left" if most is None else "both")

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether the value satisfies the constraint."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)

    def __str__(self) -> str:
        return (
            f"a whole number of at least {self.left}"
            if self.right is None
            else f"a whole number from {self.left} to {self.right}"
        )


class PositiveNumber(Interval):
    """Finite numbers above 0, excluding True."""

    def __init__(self) -> None:
        super().__init__(Real, 0, None, closed="neither")

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether the value satisfies the constraint."""
        return not isinstance(val, bool | np.bool_) and super().is_satisfied_by(val)

    def __str__(self) -> str:
        return "a finite number above 0"


RANDOM_STATE: list[Any] = [Interval(Integral, -(2**63), 2**63 - 1, closed="both"), jax.Array]
"""64-bit integers and JAX random keys."""

SEED = [WholeNumber(0, 2**63 - 1)]
"""Seeds of functions that also use NumPy, which takes no negative ones."""


def check_options(caller: str, constraints: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> None:
    """Check options of a function or of a class that is not an estimator.

    Raises
    ------
    ValueError
        If an option does not satisfy its constraints (the error is a `TypeError` as well); the message names the option, the
        allowed values and the value found.
    """
    validate_parameter_constraints(dict(constraints), dict(options), caller_name=caller)


def require_count(name: str, value: Any, minimum: int = 1) -> None:
    """Check that an option is a whole number of at least `minimum`.

    Raises
    ------
    ValueError
        If it is not; the message names the option and its value.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, but it is {value!r}")
