"""Lists in words."""

from __future__ import annotations

import pytest

from bnp_hier.utils.wording import listed, some_of


@pytest.mark.parametrize(("most", "words"), [(1, "1, ... (3 in all)"), (2, "1, 2, ... (3 in all)"), (3, "1, 2, 3")])
def test_listed(most: int, words: str) -> None:
    assert listed((number for number in (1, 2, 3)), most) == words


@pytest.mark.parametrize(
    ("most", "words"), [(4, "a, b, c and d"), (3, "a, b and 2 more"), (2, "a and 3 more"), (1, "4 more"), (9, "a, b, c and d")]
)
def test_some_of(most: int, words: str) -> None:
    assert some_of("abcd", most) == words
