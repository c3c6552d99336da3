"""Contexts that change a setting of the whole process while any thread is within."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, _GeneratorContextManager, contextmanager
from functools import wraps

__all__ = ["reference_counted"]


def reference_counted(context: Callable[[], AbstractContextManager[object]]) -> Callable[[], _GeneratorContextManager[None]]:
    """Reference-counted context: the first thread to enter applies it, the last to leave restores it.

    If each thread restored what it had found, the last one would leave what another had set.
    """
    lock, opened = threading.Lock(), ExitStack()
    within = 0

    @wraps(context)
    @contextmanager
    def common() -> Iterator[None]:
        nonlocal within
        with lock:
            if within == 0:
                opened.enter_context(context())
            within += 1
        try:
            yield
        finally:
            with lock:
                within -= 1
                if within == 0:
                    opened.close()

    return common
