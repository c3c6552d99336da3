"""Text output of names and long lists."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

__all__ = ["conjoined", "counted", "did_you_mean", "in_words", "listed", "printable", "rough_time", "some_of"]

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that control a terminal, change the direction of text or are not allowed in XML."""


def printable(text: object, *, one_line: bool = False) -> str:
    """Escape control characters and others that must not appear in a page or figure by their code points.

    Parameters
    ----------
    text
        The text, or an object that is converted with `str`.
    one_line
        Whether line feeds and tabs are also escaped.
    """
    shown = _UNPRINTABLE.sub(_escaped, str(text))
    return re.sub("[\n\t]", _escaped, shown) if one_line else shown


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def listed(words: Iterable[object], most: int) -> str:
    """List the first `most` words separated by commas, followed by the total number if there are more."""
    every = [str(word) for word in words]
    more = f", ... ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def counted(number: int, noun: str) -> str:
    """A number with a noun, which gets an s unless there is one of it."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """Start of an error message: the closest known names."""
    close = difflib.get_close_matches(name, list(known), n=most, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}? The" if close else "the"


def conjoined(words: Sequence[object]) -> str:
    """Join words as a sentence does: "a", "a and b", "a, b and c"."""
    every = [str(word) for word in words]
    return "".join(every) if len(every) < 2 else f"{', '.join(every[:-1])} and {every[-1]}"


def some_of(words: Sequence[object], most: int) -> str:
    """Join at most `most` words, or the first ones and the number of the others: "a, b and 5 more"."""
    every = list(words)
    return conjoined(every if len(every) <= most else [*every[: most - 1], f"{len(every) - most + 1} more"])


def rough_time(seconds: float) -> str:
    """A time in whole seconds, minutes or hours."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def in_words(number: int) -> str:
    """Write out whole numbers from zero to twelve; larger ones stay digits."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else str(number)


_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
