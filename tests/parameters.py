"""Parameters of tests of which the plain run takes a few, the slow run some more, and the exhaustive one all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["few"]


def few(values: Iterable[Any], plain: int = 1, slow: int = 1) -> list[Any]:
    """The first values for the plain run, the next so many marked slow, the others exhaustive; a tuple stands for several."""
    marks = (pytest.mark.slow, pytest.mark.exhaustive)
    return [
        value
        if place < plain
        else pytest.param(*(value if type(value) is tuple else (value,)), marks=marks[place >= plain + slow])
        for place, value in enumerate(values)
    ]
