"""Lists in words."""

from __future__ import annotations

import pytest

from bnp_hier.utils.wording import listed


@pytest.mark.parametrize(("most", "words"), [(1, "1, ... (3 in all)"), (2, "1, 2, ... (3 in all)"), (3, "1, 2, 3")])
def test_listed(most: int, words: str) -> None:
    assert listed((number for number in (1, 2, 3)), most) == words
