"""Names and long lists in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["conjoined", "in_words", "listed", "printable"]

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that steer a terminal, turn the direction of text around, or are in no XML."""


def printable(text: object, *, one_line: bool = False) -> str:
    """A text in which control characters, and others that no page or figure may hold, are written by their number.

    Parameters
    ----------
    text
        The text, or what has one.
    one_line
        Whether line feeds and tabs are written so, too.
    """
    shown = _UNPRINTABLE.sub(_escaped, str(text))
    return re.sub("[\n\t]", _escaped, shown) if one_line else shown


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def listed(words: Iterable[object], most: int) -> str:
    """The first of them, comma-separated, and how many there are in all if that is more."""
    every = [str(word) for word in words]
    more = f", ... ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def conjoined(words: Sequence[object]) -> str:
    """Join words as a sentence does: "a", "a and b", "a, b and c"."""
    every = [str(word) for word in words]
    return "".join(every) if len(every) < 2 else f"{', '.join(every[:-1])} and {every[-1]}"


def in_words(number: int) -> str:
    """Write out whole numbers from zero to twelve; larger ones stay digits."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else str(number)


_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
