"""Lists of names set in lines of text: as many names as fit, and the number left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

__all__ = ["Line", "Word", "join", "text_width", "wrap"]


class Word(NamedTuple):
    """A name, and the class that it is marked with; −1 for none."""

    text: str
    code: int = -1


Line = list[Word]


def text_width(size: float) -> Callable[[str], float]:
    """Return a function that measures the width of a text in the default font; the size and the width are in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size)

    @cache
    def width(text: str) -> float:
        # 2% more, because rendering moves letters to whole pixels
        return 1.02 * float(text_to_path.get_text_width_height_descent(text, font, False)[0])

    return width


def join(line: Sequence[Word], is_last: bool) -> str:
    """Join a line of names to one text, with a comma after every name but the last of the last line."""
    return ", ".join(word.text for word in line).replace(":, ", ": ") + ("" if is_last else ",")


def wrap(
    words: Sequence[Word],
    width: Callable[[Word], float],
    room: float,
    most: int,
    count: str,
    start: str = "",
) -> list[Line]:
    """Set words in lines, with "+ k more" in place of those that do not fit.

    Parameters
    ----------
    words
        The words.
    width
        Function that returns the width of a word, including the space after it.
    room
        Width of a line.
    most
        Maximum number of lines, at least one.
    count
        Text to write if not even one word fits, such as "12 items".
    start
        Text to write before the words.
    """
    first = [Word(f"{start}:")] if start else []
    none = [[Word(start or count)]]
    return _fill(words, width, room, most, first, False) or _fill(words, width, room, most, first, True) or none


def _fill(
    words: Sequence[Word], width: Callable[[Word], float], room: float, most: int, first: Line, can_stop: bool
) -> list[Line]:
    """Lines that begin with `first`; empty if not all words fit, or, with `can_stop`, if not even one word fits."""

    def fits(used: float, place: int, n_lines: int) -> bool:
        left = len(words) - place - 1
        reserve = width(_more(left)) if can_stop and left and n_lines == most else 0.0
        return used + width(words[place]) + reserve <= room

    lines, used = [list(first)], sum(map(width, first))
    for place, word in enumerate(words):
        if not fits(used, place, len(lines)) and lines[-1] and len(lines) < most:
            lines.append([])
            used = 0.0
        if not fits(used, place, len(lines)):
            if not can_stop or place == 0:
                return []
            lines[-1].append(_more(len(words) - place))
            return lines
        lines[-1].append(word)
        used += width(word)
    return lines


def _more(count: int) -> Word:
    return Word(f"+ {count:,} more")
