"""Ctrl-C: the one place where its signal is handled."""

from __future__ import annotations

import _thread
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["finishing", "interruptible", "interrupted"]

AGAIN = 1.0
"""Seconds after which a `KeyboardInterrupt` that has arrived nowhere is raised once more."""


class _Watch:
    """Raises `KeyboardInterrupt` on Ctrl-C, and again until it has arrived at the end of an `interruptible` block.

    Raised once, as Python does, it is lost where it happens to be raised inside a callback: of the garbage collector, whose
    errors Python writes down and forgets, or of a compiled program, which makes a runtime error of it.
    """

    def __init__(self) -> None:
        self.seen = False  # at any time of this process
        self._pending = False
        self._echo = False
        self._timer: threading.Timer | None = None
        self._hook: Callable[[Any], Any] = sys.unraisablehook

    def handle(self, number: int, frame: FrameType | None) -> None:
        echo, self._echo = self._echo, False
        if echo and not self._pending:
            return  # it has arrived in the meantime
        self.seen = self._pending = True
        self._raise_again(AGAIN)
        raise KeyboardInterrupt

    def _raise_again(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._send)
        self._timer.daemon = True
        self._timer.start()

    def _send(self) -> None:
        if self._pending:
            self._echo = True
            _thread.interrupt_main(signal.SIGINT)

    def unraisable(self, unraisable: Any) -> None:
        """Instead of Python's hook, of errors in callbacks of the garbage collector and the like."""
        if self._pending and issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._raise_again(0.01)
        else:
            self._hook(unraisable)

    def filter(self, record: logging.LogRecord) -> bool:
        """Leave out what JAX logs of a callback that Ctrl-C has ended."""
        return not self._pending

    def arrived(self) -> bool:
        """Whether one was on its way, which has now arrived."""
        pending, self._pending = self._pending, False
        if self._timer is not None:
            self._timer.cancel()
        return pending

    def install(self) -> None:
        signal.signal(signal.SIGINT, self.handle)
        self._hook, sys.unraisablehook = sys.unraisablehook, self.unraisable
        logging.getLogger("jax._src.debugging").addFilter(self)

    def remove(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = self._hook
        logging.getLogger("jax._src.debugging").removeFilter(self)


_WATCH = _Watch()


def interrupted() -> bool:
    """Whether Ctrl-C has stopped anything in this process."""
    return _WATCH.seen


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it, Ctrl-C raises a `KeyboardInterrupt` that leaves the block, also where Python's own would be lost.

    Blocks may be nested: it is the innermost that it leaves for certain. Signals reach the main thread alone, and one that is
    ignored, or handled by others, stays so: there it does nothing.
    """
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not (own or _is_watched()):
        yield
        return
    if own:
        _WATCH.install()
    try:
        try:
            yield
        finally:
            pending = _WATCH.arrived()
        if pending:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if pending:
            raise KeyboardInterrupt from error
        raise
    finally:
        if own:
            _WATCH.remove()


def _is_watched() -> bool:
    return getattr(signal.getsignal(signal.SIGINT), "__self__", None) is _WATCH


@contextmanager
def finishing(tell: Callable[[], None]) -> Iterator[None]:
    """Let one Ctrl-C pass, while what has been computed is written down; the next one stops as always.

    Without it, an impatient user would lose the methods that have come to their end. Where signals do not reach, it does
    nothing.

    Parameters
    ----------
    tell
        Called at the first.
    """
    before = signal.getsignal(signal.SIGINT)
    # a background job of a shell may have been told to ignore it; None is a handler that is not Python's to give back
    if before in (signal.SIG_IGN, None) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        tell()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
