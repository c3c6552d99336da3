"""Recognise what a column of a table is from its name and values: identifiers, dates, ordered scales, percentages."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

__all__ = [
    "DATE",
    "DATE_WITHOUT_YEAR",
    "MOST_CLASSES",
    "share_scale",
    "identifier",
    "is_code",
    "is_size",
    "known_classes",
    "ordered_scale",
    "uninformative_numbers",
    "useless_numbers",
    "with_month_first",
    "written_date",
]

_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"

_MONTH_ALONE = (
    r"(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)\.?"
)
"""Months of dates without a year, where other words that start like a month, such as "5 marks", may be units."""

_WITHOUT_YEAR = rf"(-?\d+ days?,? [+-]?)?\d{{1,2}}:\d{{2}}(:\d{{2}}(\.\d+)?)?$|\d{{1,2}}\.?[ .-]?{_MONTH_ALONE}$"

DATE = re.compile(
    r"\d{4}-\d{1,2}(-\d{1,2})?([T ].*)?$|\d{4}-?Q[1-4]$"
    r"|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}([, ].*)?$"
    r"|\d{4}/\d{1,2}/\d{1,2}( .*)?$"
    rf"|\d{{1,2}}\.?[ -]{_MONTH}[ -]\d{{2,4}}$|{_MONTH} \d{{1,2}},? \d{{2,4}}$|{_MONTH} \d{{4}}$"
    rf"|{_WITHOUT_YEAR}",
    re.IGNORECASE,
)
"""Common notations of dates and times in tables."""

DATE_WITHOUT_YEAR = re.compile(_WITHOUT_YEAR, re.IGNORECASE)
"""Those of times of the day, and of days of any year."""

_DAY_AND_MONTH = re.compile(r"^(\d{1,2})([./-])(\d{1,2})(?=[./-]\d)")

_IDENTIFIER = re.compile(r"(?:^|[_ .-])(?:id|ids|nr|no|uid|uuid|guid|index|idx|key|row|serial|phone)(?:$|[_ .-])")
"""Words in the names of columns that tell rows apart; a name such as "customerId" is split into words first."""

_CODE = re.compile(
    r"(?:^|[_ .-])(?:code|zip|zipcode|zip code|postcode|postal code|postal|plz|area code|type|category|class)(?:$|[_ .-])"
)
"""Words in the names of columns whose numbers are names of something."""

_CLASSES = re.compile(r"(?:^|[_ .-])(?:class|classes|label|labels|target|cluster|clusters|truth|ground truth)(?:$|[_ .-])")
"""Words in the names of columns that contain known classes."""

MOST_CLASSES = 30
"""Largest number of different values of a column of known classes."""

_SIZE = re.compile(
    r"(?:^|[_ .-])(?:length|width|height|depth|thickness|diameter|weight|mass|bmi|pressure|glucose|insulin|area|volume)"
    r"(?:$|[_ .-])"
)
"""Words in the names of columns of sizes, which cannot be 0."""

_YEAR = re.compile(r"(?:^|[_ .-])(?:year|yr)(?:$|[_ .-])")

FEW_YEARS = 10
"""Largest number of different years that are dates; more are numbers."""

DISTINCT = 0.9
"""Share of different values from which whole numbers may tell rows apart."""

FEWEST_NUMBERED = 8
"""Number of rows from which consecutive whole numbers are taken for row numbers."""

_SCALES = tuple(
    tuple(scale.split(" < "))
    for scale in (
        "xxs < xs < s < m < l < xl < xxl < xxxl",
        "extra small < small < medium < large < extra large",
        "tiny < small < medium < big < large < huge",
        "none < very low < low < medium < high < very high",
        "low < moderate < high",
        "none < mild < moderate < severe < very severe",
        "none < slight < moderate < strong < very strong",
        "never < almost never < rarely < seldom < sometimes < often < usually < very often < almost always < always",
        "very bad < bad < neutral < good < very good",
        "very poor < poor < fair < average < good < very good < excellent",
        "strongly disagree < disagree < somewhat disagree < neither agree nor disagree < neutral < somewhat agree < agree"
        " < strongly agree",
        "strongly disagree < disagree < slightly disagree < neutral < slightly agree < agree < strongly agree",
        "strongly disagree < disagree < undecided < agree < strongly agree",
        "very dissatisfied < dissatisfied < neutral < satisfied < very satisfied",
        "not at all < a little < somewhat < quite a bit < very much < extremely",
        "very unlikely < unlikely < neutral < likely < very likely",
        "beginner < intermediate < advanced < expert",
        "junior < mid < senior",
        "bronze < silver < gold < platinum",
        "first < second < third < fourth < fifth",
        "monday < tuesday < wednesday < thursday < friday < saturday < sunday",
        "mon < tue < wed < thu < fri < sat < sun",
        "january < february < march < april < may < june < july < august < september < october < november < december",
        "jan < feb < mar < apr < may < jun < jul < aug < sep < oct < nov < dec",
    )
)
"""Scales that are common in tables, from low to high."""


def uninformative_numbers(values: Float[np.ndarray, " n"]) -> str:
    """Reason why a numeric column cannot be modelled (no values, or a constant other than 0 and 1), or ''."""
    cells = values[~np.isnan(values)]
    if not len(cells):
        return "all values are missing"
    return f"{cells[0]:g} in every row" if (cells == cells[0]).all() and cells[0] not in (0.0, 1.0) else ""


def useless_numbers(name: str, values: Float[np.ndarray, " n"]) -> str:
    """Reason to drop a numeric column (constant, identifier, date), or ''."""
    if why := uninformative_numbers(values):
        return why
    cells = values[~np.isnan(values)]
    reason = identifier(name, cells)
    return f"an identifier ({reason})" if reason else written_date(name, cells)


def identifier(name: str, cells: Float[np.ndarray, " m"]) -> str:
    """Reason to take a numeric column for an identifier of rows, judged by its values and name, or ''.

    Values must be whole numbers of which at least nine in ten are different; the values of codes, such as postal codes, may be
    repeated if there are too many for categories.
    """
    if len(cells) < 3 or (cells != np.round(cells)).any():
        return ""
    low, high, different = cells.min(), cells.max(), len(np.unique(cells))
    named = f"whole numbers from {low:.16g} to {high:.16g}, and named {name!r}"
    if different < DISTINCT * len(cells):
        many = different > MOST_CLASSES or 2 * different > len(cells)
        return f"{different} different {named}" if many and is_code(name) and low >= 0 else ""
    if different == len(cells) and high - low == len(cells) - 1 and len(cells) >= FEWEST_NUMBERED:
        if (np.diff(cells) == 1).all():
            return f"{low:.16g}, {low + 1:.16g}, ..., {high:.16g}: increases by one in every row"
        return f"every whole number from {low:.16g} to {high:.16g} once"
    return f"different {named}" if _IDENTIFIER.search(_words(name)) or (is_code(name) and low >= 0) else ""


def is_code(name: str) -> bool:
    """Whether the name of a column says that its numbers are names of something, such as postal codes."""
    return bool(_CODE.search(_words(name)))


def is_size(name: str) -> bool:
    """Whether the name of a column says that it contains sizes, such as lengths, which cannot be 0."""
    return bool(_SIZE.search(_words(name)))


def known_classes(name: str, values: int, rows: int) -> str:
    """Reason to take a column for known classes, judged by its name and number of distinct values, or ''."""
    if not _CLASSES.search(_words(name)) or not 2 <= values <= min(MOST_CLASSES, rows // 3):
        return ""
    return f"{values} known classes, to judge by its name"


def written_date(name: str, cells: Float[np.ndarray, " m"]) -> str:
    """Range of dates of a column of whole numbers that are all dates such as 20240131, or few years; else ''."""
    if not len(cells) or (cells != np.round(cells)).any() or cells.min() < 1000:
        return ""
    if cells.max() <= 2100:
        few = _YEAR.search(_words(name)) and len(np.unique(cells)) <= FEW_YEARS
        return f"years from {cells.min():.0f} to {cells.max():.0f}" if few and cells.min() >= 1700 else ""
    if cells.min() < 19000101 or cells.max() > 21001231:
        return ""
    month, day = cells // 100 % 100, cells % 100
    if ((month < 1) | (month > 12) | (day < 1) | (day > 31)).any():
        return ""
    return f"dates from {cells.min():.0f} to {cells.max():.0f}"


def with_month_first(texts: Sequence[str]) -> list[str]:
    """Dates with the numbers of day and month in this order: 31.1.2024 becomes 1.31.2024.

    All have the same order: the day is first if a first number is too large for a month or, if no number tells, in dates with
    dots.
    """
    found = [match for match in map(_DAY_AND_MONTH.match, texts) if match is not None]
    told = any(int(match[3]) > 12 for match in found)
    if any(int(match[1]) > 12 for match in found) or (not told and any(match[2] == "." for match in found)):
        return [_DAY_AND_MONTH.sub(r"\3\2\1", text) for text in texts]
    return list(texts)


def share_scale(name: str, cells: Float[np.ndarray, " m"]) -> float | None:
    """100 for percentages, 1 for proportions, judged by name and range; else None."""
    if not len(cells) or cells.min() < 0 or not re.search(r"%|percent|\bpct\b|proportion|\bshare\b|\bfraction\b", _words(name)):
        return None
    return 1.0 if cells.max() <= 1 else 100.0 if cells.max() <= 100 else None


def ordered_scale(levels: Sequence[str]) -> tuple[str, ...]:
    """The distinct texts of a column from low to high if they are at least three of a common scale; else nothing.

    Texts that start with their number, such as "1 - low", are such a scale too.
    """
    if len(levels) < 3:
        return ()
    words = {level.strip().casefold().replace("-", " ").replace("_", " "): level for level in levels}
    for scale in _SCALES:
        if len(words) == len(levels) and set(words) <= set(scale):
            return tuple(words[word] for word in scale if word in words)
    numbers = [re.match(r"(\d+)\s*[-–—:.)=]?\s*\D", level) for level in levels]
    ranks = [int(found.group(1)) if found else -1 for found in numbers]
    if min(ranks) >= 0 and sorted(ranks) == list(range(min(ranks), min(ranks) + len(ranks))):
        return tuple(level for _, level in sorted(zip(ranks, levels, strict=True)))
    return ()


def _words(name: str) -> str:
    """A name in lower case, with words separated: "customerId" becomes "customer id"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).casefold().replace("_", " ")
