"""Contexts that all threads have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bnp_hier.utils.common_contexts import reference_counted


def test_the_last_restores_what_the_first_has_found() -> None:
    """In the order in which two threads may enter and leave."""
    setting = ["of the user"]

    @reference_counted
    @contextmanager
    def changed() -> Iterator[None]:
        before = setting[0]
        setting[0] = "changed"
        yield
        setting[0] = before

    for _ in range(2):
        first, second = changed(), changed()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert setting == ["changed"]
        second.__exit__(None, None, None)
        assert setting == ["of the user"]


def test_errors_of_the_context_and_within_leave_it() -> None:
    entered: list[bool] = []

    @reference_counted
    @contextmanager
    def failing() -> Iterator[None]:
        entered.append(True)
        if len(entered) == 1:
            raise OSError("cannot be set")
        yield
        entered.clear()

    with pytest.raises(OSError, match="cannot be set"), failing():
        pass
    with pytest.raises(KeyError), failing():
        raise KeyError
    assert entered == []
