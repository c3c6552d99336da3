"""Handling of Ctrl-C, for the whole package."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["INTERRUPTED", "end_quietly", "finishing", "interruptible", "interrupted"]

INTERRUPTED = 130
"""Exit code of a command stopped by Ctrl-C."""

AGAIN = 1.0
"""Seconds after which a `KeyboardInterrupt` that was lost is raised again."""

SOON = 0.05
"""The same where it is known to be lost: long enough for Python to leave the hook that says so, which must not be stopped."""


class _Watch:
    """Signal handler that raises `KeyboardInterrupt` on Ctrl-C, and again until it reaches the end of an `interruptible` block.

    Python raises it only once, and it is lost if that happens inside a callback: errors in callbacks of the garbage collector
    are only printed, and those in callbacks of a compiled program are turned into runtime errors.
    """

    def __init__(self) -> None:
        self.seen = False  # whether Ctrl-C was ever pressed in this process
        self._pending = False
        self._echo = False
        self._timer: threading.Timer | None = None
        self._hook: Callable[[Any], Any] = sys.unraisablehook

    def handle(self, number: int, frame: FrameType | None) -> None:
        echo, self._echo = self._echo, False
        if echo and not self._pending:
            return  # the interrupt has arrived in the meantime
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
        """Replace `sys.unraisablehook`, which is called for errors in callbacks of the garbage collector and the like."""
        if self._pending and issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._raise_again(SOON)
        else:
            self._hook(unraisable)

    def filter(self, record: logging.LogRecord) -> bool:
        """Suppress what JAX logs about a callback that was interrupted by Ctrl-C."""
        return not self._pending

    def arrived(self) -> bool:
        """Mark a pending interrupt as arrived, and return whether there was one."""
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


def end_quietly() -> None:
    """Let Ctrl-C end the program in one line until `interruptible`, if it is the command `bnp-hier`."""
    is_command = Path(sys.argv[0]).stem == "bnp-hier" or any(
        word == "-m" and module in ("bnp_hier", "bnp_hier.cli") for word, module in pairwise(sys.orig_argv)
    )
    if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def interrupted() -> bool:
    """Whether Ctrl-C has interrupted anything in this process."""
    return _WATCH.seen


@contextmanager
def interruptible() -> Iterator[None]:
    """Ensure that Ctrl-C raises a `KeyboardInterrupt` that leaves the block, even where Python's own would be lost.

    Blocks may be nested; only leaving the innermost block is guaranteed. The context manager has no effect outside the main
    thread, which alone receives signals, or if SIGINT is ignored or has another handler.
    """
    own = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end)
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
    """Ignore the first Ctrl-C while results are being written; the next one interrupts as usual.

    Without it, an impatient user would lose the results of methods that have finished. It has no effect outside the main
    thread.

    Parameters
    ----------
    tell
        Called on the first Ctrl-C.
    """
    before = signal.getsignal(signal.SIGINT)
    # background jobs of a shell may ignore SIGINT; None is a handler that Python did not install and cannot restore
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
