"""Which clusters count as large, and what is said about unequal sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnp_hier.reports.cluster_sizes import large_clusters, sizes_in_words


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([50, 45, 55], ""),
        ([150], ""),
        ([1], ""),
        ([90, 1, 69, 2, 62, 1, 59, 2], "the four largest hold 98% of the rows, and four have at most two rows"),
        ([900, 20, 20, 20, 20, 20], "the largest holds 90% of the rows"),
        ([1000, 1, 1], "the largest holds more than 99% of the rows, and two have a single row each"),
        ([30, 20, 2], "the two largest hold 96% of the rows, and one has two rows"),
        ([30, 20, 2, 2], "the two largest hold 93% of the rows, and two have two rows each"),
        ([9, 8, 1], "the two largest hold 94% of the rows, and one has a single row"),
        ([40, 10], ""),
        ([4, 2], "one has two rows"),
        ([1, 1, 1], "all have a single row each"),
    ],
)
def test_sizes_in_words(sizes: list[int], words: str) -> None:
    assert sizes_in_words(sizes) == words


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40))
def test_large_clusters_hold_half_of_the_rows_and_are_the_largest(sizes: list[int]) -> None:
    counts = np.array(sizes)
    large = large_clusters(counts)
    assert 2 * counts[large].sum() >= counts.sum()
    assert large.all() or counts[large].min() > counts[~large].max()
    np.testing.assert_array_equal(large_clusters(3 * counts), large)  # the unit does not matter
