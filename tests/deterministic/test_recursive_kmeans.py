"""k-means within k-means."""

import numpy as np
import pytest

from bnp_hier import recursive_kmeans


def test_nested_groups_are_found() -> None:
    top = np.repeat([0, 1], 18)
    low = np.tile(np.repeat([0, 1, 2], 6), 2)
    X = np.random.default_rng(0).normal(np.column_stack([40.0 * top, 5.0 * low]), 0.2)
    two = recursive_kmeans(X, 1, 2)
    np.testing.assert_array_equal(two.labels_at(1), top)
    tree = recursive_kmeans(X, 2, 3, random_state=1)
    assert tree.depth == 2 and len(np.unique(tree.labels_at(1))) == 3 and len(np.unique(tree.labels_at(2))) == 9


def test_fewer_distinct_rows_than_branches() -> None:
    tree = recursive_kmeans(np.array([[0.0], [0.0], [1.0]]), 3, 2)
    np.testing.assert_array_equal(tree.labels_at(3), [0, 0, 1])
    assert recursive_kmeans(np.ones((1, 2)), 2, 4).n_nodes == 3


@pytest.mark.parametrize(("depth", "branching", "name"), [(0, 2, "depth"), (2, 0, "branching"), (1.5, 2, "depth")])
def test_bad_sizes(depth: float, branching: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
        recursive_kmeans(np.zeros((3, 1)), depth, branching)


def test_bad_rows() -> None:
    X = np.arange(6.0).reshape(3, 2)
    with pytest.raises(ValueError, match="X has a missing value at row 1, column 0; k-means needs complete rows"):
        recursive_kmeans(np.where(X == 2, np.nan, X), 2, 2)
    with pytest.raises(ValueError, match="X has an infinite value at row 2, column 1"):
        recursive_kmeans(np.where(X == 5, np.inf, X), 2, 2)
