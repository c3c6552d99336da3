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
PROBABILITIES = np.array([0.0, 0.0, 0.25, 0.6, 0.11, 0.04])


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


def test_headline_of_chains_and_fast_methods() -> None:
    line = headline("Gibbs", {"Gibbs": THREE, "BHC": TWO, "MAP-DP": TWO}, PROBABILITIES)
    assert line == "Three clusters (probability 60%; two 25%, four 11%). BHC and MAP-DP merge clusters 1 and 2."
    line = headline("Gibbs", {"Gibbs": THREE, "BHC": THREE, "MAP-DP": THREE}, PROBABILITIES)
    assert line.endswith("All methods agree.")
    line = headline("Gibbs", {"Gibbs": TWO, "BHC": TWO, "MAP-DP": SPLIT, "Variational": OTHER}, PROBABILITIES)
    assert "The partition nearest to all draws has two." in line
    assert "BHC finds the same clusters." in line and "MAP-DP splits clusters 0 and 1." in line
    assert "Variational finds a different partition, of three." in line


UNEQUAL = np.repeat(np.arange(7), [50, 40, 30, 2, 1, 1, 1])


def test_headline_of_unequal_clusters_says_what_the_large_ones_hold() -> None:
    words = "; the three largest hold 96% of the rows, and four have at most two rows. "
    line = headline("Gibbs", {"Gibbs": UNEQUAL, "BHC": UNEQUAL}, np.array([0.0] * 7 + [0.6, 0.4]))
    assert line == f"Seven clusters (probability 60%; eight 40%){words}BHC finds the same clusters."
    line = headline("Gibbs", {"Gibbs": UNEQUAL, "BHC": UNEQUAL}, np.array([0.0] * 8 + [0.9, 0.1]))
    assert line.startswith(f"Eight clusters (probability 90%; nine 10%). The partition nearest to all draws has seven{words}")
    line = headline("Gibbs", {"Gibbs": UNEQUAL, "BHC": UNEQUAL}, PROBABILITIES, converged=False)
    assert f"run them longer. The partition nearest to all draws has seven clusters{words}BHC finds" in line
    assert headline("BHC", {"BHC": UNEQUAL}).startswith(f"Seven clusters, by BHC{words}Run gibbs")
    assert headline("BHC", {"BHC": UNEQUAL, "MAP-DP": UNEQUAL}).startswith(f"Seven clusters, by every method{words}Run gibbs")
    line = headline("BHC", {"BHC": UNEQUAL, "MAP-DP": np.minimum(UNEQUAL, 2)})
    assert line.startswith(f"Seven clusters in the most probable partition found, that of BHC{words}MAP-DP")


def test_headline_of_chains_that_disagree_claims_no_probability() -> None:
    line = headline("Gibbs", {"Gibbs": THREE, "BHC": TWO}, PROBABILITIES, converged=False)
    assert line.startswith("Unsettled: the chains of Gibbs do not agree on the number of clusters (between 2 and 5)")
    assert "%" not in line


def test_headline_of_one_cluster() -> None:
    one = np.zeros(5, dtype=int)
    line = headline("Gibbs", {"Gibbs": one}, np.array([0.0, 0.97, 0.03]))
    assert line == "One cluster (probability 97%). Under this model the data show no groups."


def test_headline_without_chains() -> None:
    assert headline("BHC", {"BHC": TWO, "MAP-DP": TWO}).startswith("Two clusters, by every method. Run gibbs")
    assert headline("BHC", {"BHC": TWO}).startswith("Two clusters, by BHC.")
    line = headline("BHC", {"BHC": THREE, "MAP-DP": TWO})
    assert line.startswith("Three clusters in the most probable partition found, that of BHC. MAP-DP merges clusters 1 and 2.")
