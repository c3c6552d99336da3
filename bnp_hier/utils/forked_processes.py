"""Computations in a process that was forked after JAX had run, which would wait for ever for threads that are not there."""

from __future__ import annotations

import os
import sys

__all__ = ["refuse_forked_process"]


class _State:
    stuck = False


def _note_fork() -> None:
    bridge = sys.modules.get("jax._src.xla_bridge")
    # before its first computation JAX has no threads, and children of such a process may start their own
    started = getattr(bridge, "backends_are_initialized", lambda: bridge is not None)
    _State.stuck = _State.stuck or bool(started())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def refuse_forked_process() -> None:
    """Raise `RuntimeError` in a process that was forked after JAX had run in its parent.

    XLA's threads are not copied by a fork, and whatever waits for one of them hangs.
    """
    if _State.stuck:
        raise RuntimeError(
            f"process {os.getpid()} was forked after JAX had run in its parent, whose threads it lacks: computations would "
            'hang here. Start processes with multiprocessing.get_context("spawn") (for pools: get_context("spawn").Pool, or '
            'ProcessPoolExecutor(mp_context=get_context("spawn"))), or use threads'
        )
