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
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        err.print(f"finishing {what} with what is there; Ctrl-C once more stops at once, and loses it", highlight=False)

    # a background job of a shell may have been told to ignore it
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
