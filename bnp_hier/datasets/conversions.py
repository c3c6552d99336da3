"""What a column of a table is taken for, and how its cells become numbers: categories, ordered scales, logarithms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bnp_hier.utils.wording import did_you_mean

__all__ = [
    "KINDS",
    "converted",
    "features_of",
    "modelled_kinds",
    "order_of",
    "owners",
    "parse_kinds",
    "resolved_kind",
    "steps_of_grades",
]

KINDS = {
    "continuous": "numbers, modelled as normal",
    "count": "whole numbers from 0, modelled as Poisson",
    "binary": "0 and 1, modelled as Bernoulli",
    "category": "one of several values, modelled as categorical",
    "ordered": "grades from low to high (or write the scale, low<medium<high), modelled as categorical",
    "log": "logarithms of positive numbers, modelled as normal",
    "log1p": "logarithms of 1 plus numbers from 0, modelled as normal",
    "logit": "log odds of proportions or percentages, modelled as normal",
}
"""What a column can be taken for -> what that means."""

MOST_GRADES = 30
"""Largest number of grades of a scale that is not written out."""


class _Transform(NamedTuple):
    """A function of numbers, the numbers that it allows, and what they are in words."""

    function: Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]
    allows: Callable[[Float[np.ndarray, " n"]], Bool[np.ndarray, " n"]]
    domain: str


_TRANSFORMS = {
    "log": _Transform(np.log, lambda x: x > 0, "a number above 0"),
    "log1p": _Transform(np.log1p, lambda x: x >= 0, "a number from 0"),
    "logit": _Transform(
        lambda x: np.log(x) - np.log1p(-x), lambda x: (x > 0) & (x < 1), "a proportion strictly between 0 and 1"
    ),
    "logit%": _Transform(
        lambda x: np.log(x) - np.log(100 - x), lambda x: (x > 0) & (x < 100), "a percentage strictly between 0 and 100"
    ),
}

_NUMBERS = {
    "count": _Transform(np.array, lambda x: (x >= 0) & (x == np.round(x)), "a count, a whole number from 0"),
    "binary": _Transform(np.array, lambda x: np.isin(x, (0.0, 1.0)), "0 or 1"),
}


def parse_kinds(words: Iterable[str]) -> dict[str, str]:
    """Read the kinds of columns, as in ``a=count,b=category`` or ``size=small<medium<large``.

    Words are divided at commas; a piece without "=" belongs to the name in the next piece.

    Raises
    ------
    ValueError
        If a part has no "=", or nothing on one of its sides.
    """
    found = {}
    for word in words:
        pending: list[str] = []
        for piece in word.split(","):
            pending.append(piece)
            if "=" not in piece:
                continue
            name, _, kind = ",".join(pending).rpartition("=")
            found[name.strip()] = kind.strip()
            pending = []
        if pending or not all(found) or not all(found.values()):
            raise ValueError(f"--kinds {word!r}: expected column=kind, as in a=count,b=category")
    return found


def resolved_kind(name: str, kind: str, cells: Float[np.ndarray, " m"] | None, scale: Sequence[str]) -> str:
    """Check a kind and complete it: "ordered" becomes its scale, and "logit" of percentages "logit%".

    Parameters
    ----------
    name, kind
        Name of the column and the requested kind.
    cells
        The values that are not missing; None if the column contains text.
    scale
        The texts from low to high if they are recognised.

    Raises
    ------
    TypeError, ValueError
        If the kind is not a text, does not exist, or does not suit the column.
    """
    if not isinstance(kind, str):
        raise TypeError(
            f"column {name!r}: found the kind {kind!r}, expected one of the texts {', '.join(KINDS)}, or an ordered scale"
        )
    if "<" in kind:
        grades = [part.strip() for part in kind.split("<")]
        if len(set(grades)) < len(grades) or not all(grades):
            raise ValueError(f"column {name!r}: the scale {kind!r} has an empty or repeated grade")
        return "<".join(grades)
    if kind not in KINDS and kind != "logit%":
        raise ValueError(
            f"column {name!r}: there is no kind {kind!r}; {did_you_mean(kind, KINDS)} kinds are {', '.join(KINDS)}, "
            "or an ordered scale such as low<medium<high"
        )
    if cells is None:
        if kind == "ordered":
            if scale:
                return _joined(name, scale)
            raise ValueError(f"column {name!r}: the order of its texts is unknown; write it as {name}=low<medium<high")
        if kind != "category":
            raise ValueError(f"column {name!r} contains text, so it cannot be taken as {kind}: expected category or ordered")
    elif kind == "logit" and len(cells) and cells.max() > 1:
        return "logit%"
    elif kind == "ordered":
        return _joined(name, scale or _grades(name, cells))
    return kind


def _joined(name: str, scale: Sequence[str]) -> str:
    """A scale as a kind, in which < stands between the grades."""
    if len(scale) > MOST_GRADES:
        raise ValueError(
            f"column {name!r} cannot be taken as ordered: found {len(scale)} grades, expected at most {MOST_GRADES}; take "
            "numbers as continuous, and group texts"
        )
    wrong = next((grade for grade in scale if "<" in grade), None)
    if wrong is not None:
        raise ValueError(
            f"column {name!r}: found the grade {wrong!r}, expected grades without '<', which separates them: rename it in the "
            "data"
        )
    return "<".join(scale)


def _grades(name: str, cells: Float[np.ndarray, " m"]) -> list[str]:
    """All whole numbers from the smallest to the largest one, whether they occur or not."""
    if not len(cells) or (cells != np.round(cells)).any() or not 0 < np.ptp(cells) < MOST_GRADES:
        raise ValueError(
            f"column {name!r} cannot be taken as ordered: expected different whole numbers, less than {MOST_GRADES} apart; "
            "take other numbers as continuous"
        )
    return [f"{grade:d}" for grade in range(int(cells.min()), int(cells.max()) + 1)]


def order_of(kind: str) -> tuple[str, ...]:
    """The texts of an ordered scale, from low to high; nothing for other kinds."""
    return tuple(kind.split("<")) if "<" in kind else ()


def converted(kind: str | None, values: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], int | None, str]:
    """Apply the conversion of a kind to numbers.

    Returns
    -------
    values, wrong, expected
        The converted values; the first row that the kind does not allow, None if there is none; and what it does allow.
    """
    transform = (_TRANSFORMS | _NUMBERS).get(kind or "")
    if transform is None:
        return values, None, ""
    with np.errstate(invalid="ignore"):
        wrong = ~np.isnan(values) & ~transform.allows(values)
    if wrong.any():
        return values, int(wrong.argmax()), transform.domain
    return transform.function(values), None, ""


def steps_of_grades(
    name: str, scale: Sequence[str], features: Mapping[str, Float[np.ndarray, " n"]]
) -> dict[str, Float[np.ndarray, " n"]]:
    """Convert the indicators of an ordered column to its features in version 0.1.0, for fits that it has saved."""
    grades = np.column_stack([features[one] for one in features_of(name, None, scale)])
    if len(scale) == 2:
        return {name: grades[:, 0]}
    ranks = np.arange(len(scale))
    return {f"{name} (steps up)": grades @ ranks, f"{name} (steps down)": grades @ ranks[::-1]}


def features_of(name: str, kind: str | None, levels: Sequence[str]) -> list[str]:
    """Names of the columns of numbers that a column becomes.

    A category or an ordered scale becomes indicators, "column=value"; of two levels, the indicator of the second. Transformed
    numbers are named "log(column)", and so on.
    """
    if levels:
        return [f"{name}={level}" for level in (levels[1:] if len(levels) == 2 else levels)]
    if kind in _TRANSFORMS:
        return [f"{kind.removesuffix('%')}({name})"]
    return [name]


def owners(kinds: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Feature -> the column that it was converted from, of the columns whose kind was given and of categories."""
    return {
        one: name
        for name in {**dict.fromkeys(kinds), **levels}
        for one in features_of(name, kinds.get(name), levels.get(name, ()))
    }


def modelled_kinds(kinds: Mapping[str, str]) -> dict[str, str]:
    """Feature -> kind of its numbers, "continuous", "count" or "binary", for the columns with a requested kind."""
    return {
        features_of(name, kind, ())[0]: kind if kind in _NUMBERS else "continuous"
        for name, kind in kinds.items()
        if kind != "category" and not order_of(kind)
    }
