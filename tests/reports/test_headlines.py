"""The headline says what the methods found together, and no more than the chains can tell."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bnp_hier.reports.headlines import Relation, headline, relation

THREE = np.repeat([0, 1, 2], [50, 40, 30])
TWO = np.repeat([0, 1, 1], [50, 40, 30])
SPLIT = np.repeat([0, 1, 2, 3], [20, 30, 40, 30])
OTHER = np.arange(120) % 3


def test_relations() -> None:
    assert relation(THREE, 2 - THREE).kind == "same"
    assert relation(THREE, TWO) == Relation("merges", ((1, 2),))
    assert relation(TWO, THREE) == Relation("splits", ((1,),))
    assert relation(THREE, SPLIT) == Relation("splits", ((0,),))
    assert relation(THREE, OTHER).kind == "differs"
    assert relation(THREE, np.zeros(120, dtype=int)) == Relation("merges", ((0, 1, 2),))
    moved = THREE.copy()
    moved[:2] = 1
    assert relation(THREE, moved).kind == "nearly the same"
    assert relation(np.repeat([0, 1, 2, 3], 30), np.repeat([0, 0, 1, 1], 30)) == Relation("merges", ((0, 1), (2, 3)))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30), st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_a_merger_of_clusters_is_called_one(labels: list[int], into: list[int]) -> None:
    _, reference = np.unique(labels, return_inverse=True)
    found = relation(reference, np.array(into)[reference])
    assert found.kind in {"same", "nearly the same", "merges"}
    for group in found.clusters:
        assert len({into[k] for k in group}) == 1


SEVEN = np.repeat(np.arange(7), [50, 40, 30, 2, 1, 1, 1])


def test_a_headline_begins_with_the_clusters_that_matter() -> None:
    line = headline("Gibbs", {"Gibbs": SEVEN, "BHC": SEVEN}, np.array([3] * 90 + [4] * 10))
    assert line == (
        "Three clusters hold 96% of the rows (90% credible: 3 to 4 of at least 2%). The partition has four more, of at most "
        "two rows each. BHC finds the same clusters."
    )
    line = headline("Gibbs", {"Gibbs": THREE, "BHC": TWO, "MAP-DP": TWO}, np.full(100, 3))
    assert line == "Three clusters hold all rows (probability 100% of 3 of at least 2%). BHC and MAP-DP merge clusters 1 and 2."
    line = headline("Gibbs", {"Gibbs": THREE, "BHC": THREE, "MAP-DP": THREE}, np.full(100, 3))
    assert line.endswith("All methods agree.")
    line = headline("Gibbs", {"Gibbs": TWO, "BHC": TWO, "MAP-DP": SPLIT, "Variational": OTHER}, np.full(100, 2))
    assert "BHC finds the same clusters." in line and "MAP-DP splits clusters 0 and 1." in line
    assert "Variational finds a different partition, of three." in line


def test_no_number_comes_first_that_is_less_probable_than_all_others() -> None:
    line = headline("Gibbs", {"Gibbs": THREE}, np.array([2] * 30 + [3] * 40 + [4] * 30))
    assert line.startswith(
        "Between two and four clusters of at least 2% (90% credible). In the partition nearest to all draws, "
    )


def test_a_number_other_than_that_of_the_partition_shown_is_said_after_it() -> None:
    line = headline("Gibbs", {"Gibbs": THREE}, np.array([2] * 80 + [3] * 20))
    assert line == (
        "Three clusters hold all rows, in the partition nearest to all draws; two of at least 2% are more probable (80%; 90% "
        "credible: 2 to 3)."
    )


@given(st.lists(st.integers(1, 6), min_size=1, max_size=60))
def test_groups_are_shown_only_if_the_draws_exclude_a_single_cluster(numbers: list[int]) -> None:
    line = headline("Gibbs", {"Gibbs": THREE}, np.array(numbers))
    assert line.startswith("The data do not show groups") == (np.mean(np.array(numbers) == 1) >= 0.05)


def test_small_tables_have_clusters_of_two_rows() -> None:
    labels = np.repeat([0, 1, 2, 3], [10, 10, 2, 1])
    line = headline("Gibbs", {"Gibbs": labels}, np.full(10, 3))
    assert line.startswith(
        "Three clusters hold 96% of the rows (probability 100% of 3 of at least two rows). The partition has "
    )
    assert line.endswith("one more, of a single row.")


def test_headline_of_chains_that_disagree_claims_no_probability() -> None:
    line = headline("BHC", {"BHC": THREE, "Gibbs": TWO}, disagreeing="Gibbs")
    assert line == (
        "Unsettled: the chains of Gibbs do not agree, and supply no probabilities; run them longer. Three clusters hold all "
        "rows, in the most probable partition found, that of BHC. Gibbs merges clusters 1 and 2."
    )


def test_headline_without_chains() -> None:
    assert headline("BHC", {"BHC": TWO, "MAP-DP": TWO}) == (
        "Two clusters hold all rows, by every method. Run gibbs to see how probable this number is."
    )
    assert headline("BHC", {"BHC": np.zeros(9, int)}) == "One cluster, by BHC. Run gibbs to see how probable this number is."
    line = headline("BHC", {"BHC": SEVEN, "MAP-DP": np.minimum(SEVEN, 2)})
    assert line.startswith(
        "Three clusters hold 96% of the rows, in the most probable partition found, that of BHC. The partition"
    )
    assert headline("BHC", {"BHC": np.arange(200) // 2}).startswith("100 clusters, none of which holds at least 2%, by BHC.")
