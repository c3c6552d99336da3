"""Long lists in words."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["listed"]


def listed(words: Iterable[object], most: int) -> str:
    """The first of them, comma-separated, and how many there are in all if that is more."""
    every = [str(word) for word in words]
    more = f", ... ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(every[:most]) + more
