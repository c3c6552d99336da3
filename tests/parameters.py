"""Parameters of tests of which the plain run takes a few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["few"]


def few(values: Iterable[Any], plain: int = 1) -> list[Any]:
    """All values, the first of them for the plain run, the others marked slow; a tuple stands for several parameters."""
    values = list(values)
    return values[:plain] + [
        pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.slow) for value in values[plain:]
    ]
