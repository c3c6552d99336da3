"""What distinguishes clusters: extremes, places between others, and the most similar cluster; with the rows' own means."""

from __future__ import annotations

import numpy as np
import pandas as pd

import bnp_hier as bnp
from bnp_hier.posterior.cluster_profiles import ClusterProfiles, column_of, describe_columns
from bnp_hier.reports.distinguishing_features import UNREMARKABLE, distinctions, features_in_words

RNG = np.random.default_rng(0)


def profiles(labels: np.ndarray, not_used: tuple[str, ...] = (), **columns: object) -> ClusterProfiles:
    """Of one partition."""
    frame = pd.DataFrame(columns)
    rows = RNG.normal(size=(len(labels), 1))
    found = [column_of(name, frame[name], name not in not_used) for name in frame]
    return describe_columns(bnp.MAPDP(n_init=1).fit(rows), rows, labels, found, 0.95, 1)


def around(centres: list[float], labels: np.ndarray, sd: float = 0.1) -> np.ndarray:
    """Values whose means in the clusters are exactly these."""
    noise = np.tile([-sd, sd], len(labels) // 2)
    return np.array(centres)[labels] + noise


def test_a_cluster_in_the_middle_lies_between_its_neighbours() -> None:
    labels = np.repeat([0, 1, 2], 20)
    low, middle, high = distinctions(profiles(labels, x=around([0.0, 5.0, 10.0], labels)))
    assert [one.in_words() for one in low] == ["low x: 0.00 (all rows 5.00)"]
    assert [one.in_brief() for one in high] == ["x 10.00 (all rows 5.00)"]
    assert [one.in_words() for one in middle] == ["intermediate x: 5.00 (between 0.00 in cluster 0 and 10.00 in cluster 2)"]


def test_the_fewer_clusters_are_in_the_same_place_the_better() -> None:
    """Cluster 1 is alone in the middle of b, and with cluster 2 in the middle of a; outliers are no neighbours."""
    labels = np.repeat([0, 1, 2, 3, 4], [20, 20, 20, 20, 2])
    a, b = around([0.0, 5.0, 5.01, 10.0, 5.5], labels), around([0.0, 5.0, 10.0, 10.0, 5.5], labels)
    c = around([0.0, 0.0, 0.0, 0.0, 900.0], labels)
    found = distinctions(profiles(labels, a=a, b=b, c=c))
    assert [one.column for one in found[1]] == ["b", "a"] and {one.direction for one in found[1]} == {"intermediate"}
    assert "cluster 4" not in " ".join(features_in_words(profiles(labels, a=a, b=b, c=c)))
    assert found[4][0].in_words().startswith("very high c: 900 (all rows ")


def test_a_small_difference_from_all_rows_gives_way_to_the_neighbours() -> None:
    """The mean of all rows is 7 (standard deviation about 4), so that cluster 1 is low by half a standard deviation."""
    labels = np.repeat([0, 1, 2], [20, 20, 60])
    (_, middle, _) = distinctions(profiles(labels, x=around([0.0, 5.0, 10.0], labels)))
    assert [one.in_words() for one in middle] == ["intermediate x: 5.00 (between 0.00 in cluster 0 and 10.00 in cluster 2)"]
    (_, middle, _) = distinctions(profiles(labels, x=around([0.0, 1.0, 10.0], labels)))
    assert [one.in_words() for one in middle] == ["low x: 1.00 (all rows 6.20)"]


def test_clusters_that_overlap_are_compared_with_the_most_similar_one() -> None:
    """Their means are less than 0.3 standard deviations from that of all rows, and no cluster is on the other side."""
    labels = np.repeat([0, 1], 20)
    found = profiles(labels, x=around([0.0, 0.5], labels, 1.0), y=around([0.0, 0.0], labels, 1.0))
    words = features_in_words(found)
    assert words[0] == "lower x: 0.00 (0.50 in cluster 1, the most similar one)"
    assert words[1] == "higher x: 0.50 (0.00 in cluster 0, the most similar one)"
    assert features_in_words(found, brief=True)[0] == "x 0.00 (0.50 in cluster 1, the most similar one)"


def test_clusters_without_differences_and_single_clusters() -> None:
    labels = np.repeat([0, 1], 20)
    assert features_in_words(profiles(labels, x=around([0.0, 0.0], labels))) == [UNREMARKABLE] * 2
    assert features_in_words(profiles(np.zeros(40, dtype=int), x=around([0.0, 0.0], labels))) == [""]
    constant = profiles(labels, x=np.full(40, 3.0), y=np.where(labels == 1, 2.0, 1.0))
    assert [one.column for one in distinctions(constant)[0]] == ["y"]


def test_shares_dates_missing_values_and_columns_that_were_not_used() -> None:
    labels = np.repeat([0, 1, 2], 20)
    site = np.where(np.tile(np.arange(20), 3) < np.array([0, 10, 20])[labels], "sun", "shade")
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(around([0.0, 50.0, 100.0], labels), unit="D")
    gaps = pd.Series(around([0.0, 5.0, 10.0], labels)).where(labels != 1)  # none in the middle
    (_, middle, high) = distinctions(profiles(labels, ("day",), site=site, day=day, gaps=gaps), most=5)
    assert [one.in_words() for one in middle] == [
        "intermediate site = shade: 50% (between 0% in cluster 2 and 100% in cluster 0)"
    ]
    assert {one.column for one in high} == {"site = shade", "gaps"}
    (_, middle, _) = distinctions(profiles(labels, day=day))
    assert middle[0].in_words() == "intermediate day: 2024-02-20 (between 2024-01-01 in cluster 0 and 2024-04-10 in cluster 2)"


def test_words_are_about_the_rows_and_not_about_the_draws() -> None:
    labels = np.repeat([0, 1], 20)
    found = profiles(labels, x=around([0.0, 8.0], labels))
    elsewhere = found.profiles.assign(low=98.0, high=100.0)
    assert features_in_words(found._replace(profiles=elsewhere)) == features_in_words(found)
