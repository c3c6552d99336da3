"""Sentences on clusters and known classes, against tables whose answer is evident."""

from __future__ import annotations

import numpy as np
import pytest

from bnp_hier.reports.known_classes import classes_verdict, clusters_in_classes


def rows(table: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Clusters and classes of rows, from the number of rows of each cluster (columns) in each class (lines: a, b, ...)."""
    counts = np.array(table)
    of, labels = (np.repeat(place.ravel(), counts.ravel()) for place in np.indices(counts.shape))
    return labels, np.array(list("abcdef"))[of]


@pytest.mark.parametrize(
    ("table", "clause"),
    [
        ([[50, 0, 0], [0, 30, 20]], "every cluster lies within one class; class 'b' is cut into 2 clusters"),
        (
            [[50, 30, 20, 0], [5, 0, 0, 60]],
            "every cluster lies within one class but for 5 rows of 'b'; class 'a' is cut into 3 clusters",
        ),
        ([[90, 1], [2, 90]], "every cluster lies within one class but for 3 rows, 2 of 'b' and 1 of 'a'"),
        (
            [[20, 20, 0, 0], [0, 0, 20, 20]],
            "every cluster lies within one class; class 'a' is cut into 2 clusters and class 'b' is cut into 2 clusters",
        ),
        (
            [[40, 0], [0, 40], [1, 39]],
            "every class lies within one cluster but for 1 row of 'c'; cluster 1 joins the classes 'b' and 'c'",
        ),
        ([[20, 20], [20, 20]], ""),
        ([[80, 7], [0, 13]], ""),  # seven of a hundred rows beyond
        ([[40], [40]], ""),  # one cluster, in which every class lies
    ],
)
def test_where_clusters_lie(table: list[list[int]], clause: str) -> None:
    assert clusters_in_classes(*rows(table)) == clause


def test_numbers_as_classes() -> None:
    labels, classes = rows([[50, 0, 0], [0, 30, 20]])
    assert clusters_in_classes(labels, (classes == "b") + 3).endswith("class '4' is cut into 2 clusters")


def test_several_columns_of_classes() -> None:
    labels, kind = rows([[50, 0, 0], [0, 30, 20]])
    place = np.array(["x", "y"])[np.arange(100) % 2]
    both = np.char.add(kind, place)
    (line,) = classes_verdict("BHC", labels, kind, {}, {"ARI": 0.8})
    assert line == (
        "The clusters of BHC beside the known classes: adjusted Rand index 0.80; every cluster lies within one class; class "
        "'b' is cut into 2 clusters."
    )
    scores = {"ARI": 0.4, "ARI kind": 0.8, "ARI place": 0.0}
    first, second, last = classes_verdict("BHC", labels, both, {"kind": kind, "place": place}, scores)
    assert first == line.replace("the known classes", "the classes 'kind'")
    assert second == "The clusters of BHC beside the classes 'place': adjusted Rand index 0.00."
    assert last.startswith("The clusters of BHC beside the combinations of 'kind' and 'place': adjusted Rand index 0.40")
