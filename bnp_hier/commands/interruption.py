"""Ctrl-C while what has been computed is written down."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bnp_hier.commands.console import err

__all__ = ["finishing"]


@contextmanager
def finishing(what: str) -> Iterator[None]:
    """Let one Ctrl-C pass, telling that `what` is being finished; the next one stops as always.

    Without it, an impatient user would lose the routes that have come to their end. Signals reach the main thread alone:
    elsewhere it does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    # a background job of a shell may have been told to ignore it; None is a handler that is not Python's to give back
    if before in (signal.SIG_IGN, None) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        err.print(f"finishing {what} with what is there; Ctrl-C once more stops at once, and loses it", highlight=False)

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
