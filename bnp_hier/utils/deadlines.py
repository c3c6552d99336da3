"""The time at which searches have to end with what they have found."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Deadline", "current_deadline", "end_by"]


class Deadline:
    """A value of `time.perf_counter` after which searches end, and whether any of them has been cut short.

    Parameters
    ----------
    at
        The value; infinite for no limit.
    """

    def __init__(self, at: float) -> None:
        self.at = at
        self.has_cut = False

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.at < math.inf

    def is_past(self) -> bool:
        """Whether the time is up; a search asks before it goes on, and is cut short if it is."""
        self.has_cut = self.has_cut or time.perf_counter() > self.at
        return self.has_cut


_CURRENT: ContextVar[Deadline] = ContextVar("deadline", default=Deadline(math.inf))  # noqa: B039 - nothing changes this one


def current_deadline() -> Deadline:
    """The deadline of the block that is running; threads do not inherit it."""
    return _CURRENT.get()


@contextmanager
def end_by(at: float) -> Iterator[Deadline]:
    """Let searches within the block end at a value of `time.perf_counter`, or at the deadline of an outer block if earlier."""
    deadline = Deadline(min(at, _CURRENT.get().at))
    token = _CURRENT.set(deadline)
    try:
        yield deadline
    finally:
        _CURRENT.reset(token)
