"""Read numbers that are written in cells of text, with units, signs of percent or currency, and thousands separators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["Obstacle", "Written", "read_new_numbers", "read_numbers", "with_decimal_points"]

MOST_UNITS = 5
"""Largest number of endings of numbers in a column that are called different units; more are text of another kind."""

LONGEST_UNIT = 20
"""Largest number of characters of a unit."""

JUDGED = 20
"""Number of cells from which it is judged whether a column is of text or of numbers with something beside them."""

DISTINCT = 0.9
"""Share of different numbers above which groups of digits may be identifiers."""

ALIKE = "write all numbers with decimal points and without thousands separators"
"""Advice about separators."""

_BOOLEANS = {"true": "1", "false": "0"}

_CURRENCY = "$¢-¥֏৳฿៛\u20a0-\u20c0"

_CODES = (
    "AED|ARS|AUD|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KES|KRW|MAD|MXN|MYR|NGN|NOK|NZD|PEN|"
    "PHP|PKR|PLN|RON|RSD|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR|Rs\\.?|Fr\\.|kr\\.?|zł"
)
"""Currencies that are written in letters before an amount."""

_MAGNITUDES = frozenset({"", "k", "K", "M", "mn", "mio", "Mio", "bn", "B"})
"""Letters for thousands, millions and so on, and nothing."""

_SPACES = "\u0020\u00a0\u2009\u202f"

_WRITTEN = re.compile(
    rf"(?P<sign>[+\-\u2212]?)(?P<before>(?:{_CODES}|[A-Z]{{0,3}}[{_CURRENCY}]|[~≈])?)[{_SPACES}]?(?P<sign_within>[+\-\u2212]?)"
    rf"(?P<number>(?:\d[\d.,'’{_SPACES}]*|\.\d+)(?:(?<=[\d.])[eE][+\-]?\d+)?)(?<![{_SPACES}])(?P<dash>[.,][-–—])?[{_SPACES}]?"
    rf"(?P<after>(?:[^\W\d_]|[%‰°″\"{_CURRENCY}])(?:[^,;:\s]| (?!\d)){{0,{LONGEST_UNIT - 1}}})?"
)
"""A number and what stands beside it; whether its separators make sense is judged by `_of_separators`."""

_PLAIN = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+\-]?\d+)?")

_DECIMAL_COMMA = re.compile(rf"\d[\d.'’{_SPACES}]*,\d+")

_POINTS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")
"""Points between thousands, or the point of a decimal number if there is one."""

_GROUPED = re.compile(rf"[1-9]\d{{0,2}}(?P<separator>[,'’{_SPACES}])\d{{3}}(?:(?P=separator)\d{{3}})*(?:\.\d*)?")


class Obstacle(NamedTuple):
    """Why cells that look like numbers cannot be read as such.

    - **row** - a row where that shows.
    - **reason** - what was found, in a clause.
    - **advice** - how to go on, in a clause.
    - **is_certain** - whether the cells are numbers for sure; otherwise they may be names of categories, such as "2nd".
    """

    row: int
    reason: str
    advice: str
    is_certain: bool


class Written(NamedTuple):
    """A column of text as numbers.

    - **values** - (n,) the numbers; NaN where the cell is missing or is not a number.
    - **is_text** - (n,) cells that are neither numbers nor missing.
    - **unit** - what stands beside every number, such as "kg", "%" or "$"; empty if nothing does.
    - **grouped** - the first cell with thousands separators; empty if there is none.
    - **separator** - the separator of thousands: ",", "'", " " or "."; empty if there is none.
    - **obstacle** - why cells that look like numbers are not read; None if they are read, or if it is plain text.
    - **enclosed** - the first negative number that is written in parentheses; empty if there is none.
    """

    values: Float[np.ndarray, " n"]
    is_text: Bool[np.ndarray, " n"]
    unit: str = ""
    grouped: str = ""
    separator: str = ""
    obstacle: Obstacle | None = None
    enclosed: str = ""


class _Parts(NamedTuple):
    """A cell: its row, its text, sign and digits of its number, its unit, and the separator of its thousands.

    The separator is empty in plain numbers, and None if there are others than between thousands.
    """

    row: int
    text: str
    sign: str
    number: str
    unit: str
    separator: str | None


def read_numbers(texts: Sequence[str], missing: Bool[np.ndarray, " n"], *, plain: bool = False) -> Written:
    """Read the cells of a column as numbers if all of them are written in the same way.

    True and False are 1 and 0. The same unit may stand beside all numbers (after them, or a currency sign before them), and
    thousands may be separated by commas, spaces or apostrophes in all numbers from 1,000 on, or by points if some are millions.
    A decimal comma is not read, but if three digits follow in all numbers that have one, it cannot be told from a separator of
    thousands, and is taken for one. Numbers in parentheses among others are negative, and "1500,-" is 1500.

    Parameters
    ----------
    texts
        The cells, without space around them.
    missing
        (n,) which of them are missing values.
    plain
        Whether only plain numbers are read.
    """
    values, is_text = _plain_numbers(texts, missing)
    if plain or not is_text.any():
        return Written(values, is_text)
    parts = _parts(texts, np.flatnonzero(~missing))
    if parts is None or isinstance(parts, Obstacle):
        return Written(values, is_text, obstacle=parts)
    if any(part.separator == "." for part in parts):
        parts = [_between_points(part) for part in parts]
    obstacle = _of_units(parts) or _of_separators(parts) or _of_parentheses(parts)
    if obstacle or any(part.separator is None for part in parts) or len({part.unit for part in parts}) > 1:
        return Written(values, is_text, obstacle=obstacle)
    for part in parts:
        values[part.row] = _value(part)
    grouped, separator = next(((part.text, _kind_of_separator(part)) for part in parts if part.separator), ("", ""))
    enclosed = next((part.text for part in parts if part.text.startswith("(")), "")
    return Written(values, np.zeros_like(is_text), parts[0].unit, grouped, separator, enclosed=enclosed)


def read_new_numbers(texts: Sequence[str], missing: Bool[np.ndarray, " n"], unit: str, separator: str) -> Written:
    """Read cells of new rows as the numbers of a column that has been read before, each cell by itself.

    Parameters
    ----------
    texts, missing
        As in :func:`read_numbers`.
    unit, separator
        Those of the column; both may be left out in the cells. There are no others: "1,250" may have a decimal comma.
    """
    values, is_text = _plain_numbers(texts, missing)
    obstacle = None
    for row in np.flatnonzero(~missing if separator or unit == "%" else is_text).tolist():
        part = _part(row, texts[row])
        if part is None:
            continue
        if separator == ".":
            part = _between_points(part)
        elif separator and _POINTS.fullmatch(part.number):  # a decimal number, or thousands in another notation
            part = part._replace(separator=None)
        is_share = part.unit == "" and unit == "%" and 0 < abs(values[row]) <= 1
        is_alike = part.separator is not None and _kind_of_separator(part) in ("", separator)
        if is_alike and part.unit in ("", unit) and not is_share:
            values[row], is_text[row] = _value(part), False
            continue
        if is_share:
            expected, advice = "numbers in '%'", "multiply proportions by 100, or write the sign of percent"
        elif part.unit not in ("", unit):
            expected = f"numbers in {unit!r}" if unit else "numbers without a unit"
            advice = "convert them, and leave out the unit or write the same"
        else:
            expected = f"numbers with {separator!r} between thousands" if separator else "numbers without thousands separators"
            advice = "write them without separators, and with decimal points"
            if _POINTS.fullmatch(part.number):
                advice = "leave out a point between thousands, or write another number of decimals"
        found = f"expected {expected} as in the data of the fit; {advice}"
        is_text[row] = True
        obstacle = obstacle or Obstacle(row, repr(texts[row]), found, True)
    return Written(values, is_text, unit, "", separator, obstacle)


def with_decimal_points(text: str) -> str | None:
    """A number with a decimal comma, and points between thousands, with the two exchanged; None for other texts."""
    exchanged = text.translate(str.maketrans(",.", ".,"))
    part = _part(0, exchanged)
    return None if part is None or part.separator is None else exchanged


def _plain_numbers(
    texts: Sequence[str], missing: Bool[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The cells that are numbers with nothing beside them, NaN elsewhere; and the cells that are neither those nor missing."""
    import pandas as pd

    cells = pd.Series([_BOOLEANS.get(text.casefold(), text) for text in texts], dtype=object)
    values = pd.to_numeric(cells.mask(missing), errors="coerce").to_numpy(dtype=np.float64, copy=True)
    is_text = np.isnan(values) & ~missing
    for row in np.flatnonzero(is_text).tolist():
        if _PLAIN.fullmatch(
            texts[row], int(texts[row].startswith(("+", "-")))
        ):  # beyond the range of floats, which pandas need not read
            values[row], is_text[row] = float(texts[row]), False
    return values, is_text


def _value(part: _Parts) -> float:
    return float(part.sign + (part.number.replace(part.separator, "") if part.separator else part.number))


def _kind_of_separator(part: _Parts) -> str:
    """The separator of thousands; spaces of all widths are one, and straight and curly apostrophes."""
    found = part.separator or ""
    return " " if found and found in _SPACES else found.replace("’", "'")


def _part(row: int, text: str) -> _Parts | None:
    """The number and unit of a cell; None if it is text."""
    is_enclosed = text.startswith("(") and text.endswith(")")
    match = _WRITTEN.fullmatch(text[1:-1].strip() if is_enclosed else text)
    if match is None or bool(match["sign"]) + bool(match["sign_within"]) + is_enclosed > 1:
        return None
    sign = "-" if is_enclosed else (match["sign"] or match["sign_within"]).replace("\u2212", "-")
    unit, number, separator = match["before"] + (match["after"] or ""), match["number"], _separator(match["number"])
    if match["dash"] and match["dash"][0] in number:  # of one and the same mark, only the last may be decimal
        separator = None
    elif match["dash"] and match["dash"][0] == "," and "." in number:
        separator = "." if _POINTS.fullmatch(number) else None
    return _Parts(row, text, sign, number, unit, separator)


def _between_points(part: _Parts) -> _Parts:
    """A number in a column with points between thousands."""
    if part.separator == "" and "." in part.number:
        return part._replace(separator="." if _POINTS.fullmatch(part.number) else None)
    return part


def _separator(number: str) -> str | None:
    if _PLAIN.fullmatch(number):
        return ""
    if number.count(".") > 1 and _POINTS.fullmatch(number):
        return "."
    match = _GROUPED.fullmatch(number)
    return None if match is None else match["separator"]


def _parts(texts: Sequence[str], rows: np.ndarray) -> list[_Parts] | Obstacle | None:
    """The numbers and units of all cells; nothing if it is a column of text; an obstacle if few cells are without a number."""
    found: list[_Parts] = []
    others: list[int] = []
    for place, row in enumerate(rows.tolist(), start=1):
        part = _part(row, texts[row])
        if part is not None:
            found.append(part)
            continue
        others.append(row)
        if 2 * len(others) >= min(len(rows), max(JUDGED, place)):
            return None
    if not others:
        return found
    if found[0].unit == "" or len({part.unit for part in found}) > 1:
        return None
    reason = f"the text {texts[others[0]]!r} among numbers such as {found[0].text!r}"
    return Obstacle(others[0], reason, "correct it, or leave the cell empty if the value is missing", False)


def _of_units(parts: Sequence[_Parts]) -> Obstacle | None:
    """Different units, or numbers with and without one; of very many, it is text of another kind."""
    times = Counter(part.unit for part in parts)
    is_certain = len(times) > 1 and all(map(_is_amount, times))
    if not 1 < len(times) <= MOST_UNITS or not (is_certain or len(times) <= len(parts) // 2):
        return None
    first = {part.unit: part for part in reversed(parts)}
    ordered = sorted(times, key=lambda unit: (-times[unit], first[unit].row))
    found = ", ".join(
        f"{times[unit]} {f'in {unit!r}' if unit else 'without a unit'} (such as {first[unit].text!r})" for unit in ordered
    )
    reason = f"numbers with different units: {found}"
    return Obstacle(first[ordered[1]].row, reason, "convert all of them to the same unit", is_certain)


def _is_amount(unit: str) -> bool:
    """Whether a unit can only be that of an amount: of money, or of thousands or millions; or there is none."""
    return unit in _MAGNITUDES or re.search(rf"[{_CURRENCY}]|^(?:{_CODES})", unit) is not None


def _of_parentheses(parts: Sequence[_Parts]) -> Obstacle | None:
    """Parentheses around all numbers, which may be no minus signs."""
    if not all(part.text.startswith("(") for part in parts):
        return None
    reason = f"parentheses around all numbers, such as {parts[0].text!r}, which may be no minus signs"
    return Obstacle(parts[0].row, reason, "write the numbers without them, or with minus signs", True)


def _of_separators(parts: Sequence[_Parts]) -> Obstacle | None:
    """Decimal commas, thousands that are not separated in the same way in all numbers, or digits that only look like such."""
    grouped = [part for part in parts if part.separator]
    wrong = [part for part in parts if part.separator is None]
    comma = next((part for part in wrong if _DECIMAL_COMMA.fullmatch(part.number)), None)
    if comma is not None:
        other = f", although {grouped[0].text!r} seems to have a thousands separator" if grouped else ""
        return Obstacle(comma.row, f"{comma.text!r}, which seems to have a decimal comma{other}", ALIKE, True)
    if not grouped:
        return None
    one = grouped[0]
    unlike = [part for part in grouped if part.separator != one.separator]
    unlike += [*wrong, *(part for part in parts if re.match(r"\d{4}", part.number))]
    if unlike:
        reason = f"{unlike[0].text!r}, whose thousands separators differ from those of {one.text!r}"
        return Obstacle(unlike[0].row, reason, ALIKE, True)
    return _of_groups(parts)


def _of_groups(parts: Sequence[_Parts]) -> Obstacle | None:
    """Groups of digits with spaces that are not evidently thousands: telephone numbers, postcodes, identifiers.

    They have no units, and either some start with a plus sign and none with a minus, or almost all are different whole numbers
    with the same number of groups. Other spaces than that of a keyboard are typeset, as they are in amounts.
    """
    if any(part.unit or part.sign == "-" for part in parts):
        return None
    called = next((part for part in parts if part.separator == " " and part.sign == "+"), None)
    groups = {part.number.count(" ") for part in parts}
    alike = (
        len(parts) > 2
        and len(groups) == 1
        and all(part.separator == " " and part.number.replace(" ", "").isdigit() for part in parts)
    )
    if called is None and not (alike and len({part.number for part in parts}) > DISTINCT * len(parts)):
        return None
    one = called or parts[0]
    reason = f"groups of digits such as {one.text!r}, which may be identifiers or telephone numbers"
    return Obstacle(one.row, reason, "drop them, or write them without spaces if they are amounts", False)
