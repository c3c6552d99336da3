"""Plain-language readings say what the numbers say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.posterior.item_uncertainty import row_probabilities
from bnp_hier.reports.row_certainty import RowCertainty
from bnp_hier.reports.verdicts import (
    agreement,
    association,
    best_partition,
    clusters_verdict,
    columns_in_words,
    disagreement,
    dispersion_verdict,
    held_out_verdict,
    parts_verdict,
    tree_verdict,
)


def table(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(columns, index=["Gibbs", "BHC", "MAP-DP"])


def test_best_partition() -> None:
    (line,) = best_partition(table(log_posterior=[-101.0, -100.0, -300.0], clusters=[3, 4, 5]))
    assert line.startswith("BHC found the most probable single partition: 4 clusters, log posterior -100.0 nats")
    assert "about as probable (odds below 3 to 1): Gibbs" in line and "less probable: MAP-DP (200 nats lower)" in line
    (line,) = best_partition(table(log_posterior=[-105.0, -100.0, -100.0], clusters=[3, 4, 4]))
    assert "equally probable: MAP-DP; less probable: Gibbs (5.0 nats lower, odds of 148 to 1)" in line
    assert list(best_partition(table(log_posterior=[np.nan] * 3, clusters=[1, 1, 1]))) == []


def test_agreement() -> None:
    alike = table(**{"NMI Gibbs": [1.0, 0.95, 0.5], "NMI BHC": [0.95, 1.0, 0.7], "NMI MAP-DP": [0.5, 0.7, 1.0]})
    (line,) = agreement(alike)
    assert "disagree" in line and "Gibbs and MAP-DP" in line and "0.50" in line
    (line, truth) = agreement(alike.clip(lower=0.92).assign(ARI=[0.1, 0.9, 0.3], NMI=[0.2, 0.8, 0.4]))
    assert "agree:" in line and truth.startswith("BHC recovers the known classes best") and "0.90" in truth


def test_which_of_different_partitions_to_believe() -> None:
    """The sampler, unless its chains have not converged or its own draws contradict the partition of a search."""
    nmi = {"NMI Gibbs": [1.0, 0.6, 1.0], "NMI BHC": [0.6, 1.0, 0.6], "NMI MAP-DP": [1.0, 0.6, 1.0]}
    spread = np.array(
        [[0, 0, 1, 1, 2], [0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [2, 2, 1, 1, 0]] * 5
    )  # the first and the last are the same
    found = table(log_posterior=[-100.0, -90.0, -100.0], **nmi)

    def line(joints: list[float], draws: np.ndarray, settled: bool = True) -> list[str]:
        one = found.assign(log_posterior=joints)
        return list(disagreement(one, "Gibbs", ["BHC", "MAP-DP"], spread[0], draws, settled))

    (rare,) = line([-100.0, -90.0, -100.0], spread[1:3])
    assert rare.startswith("Gibbs differs from BHC. Believe Gibbs:") and "has 50.0% of its 2 draws" in rare
    (missed,) = line([-100.0, -90.0, -100.0], spread)
    assert "Believe BHC: its partition is 10.0 nats more probable than that of Gibbs, which has 50.0% of the draws" in missed
    (possible,) = line([-100.0, -98.0, -100.0], spread)
    assert "Believe Gibbs" in possible
    (unsettled,) = line([-100.0, -90.0, -100.0], spread, settled=False)
    assert "Believe neither yet: the chains of Gibbs have not converged" in unsettled
    close = found.assign(**{"NMI Gibbs": [1.0, 0.85, 1.0], "NMI BHC": [0.85, 1.0, 0.85]})
    assert list(disagreement(close.assign(log_posterior=-100.0), "Gibbs", ["BHC", "MAP-DP"], spread[0], spread, True)) == []
    assert list(disagreement(close, "Gibbs", ["BHC", "MAP-DP"], spread[0], spread, True)) != []  # 10 nats


def test_same_partitions_and_classes() -> None:
    same = table(
        log_posterior=[-100.0, -100.5, -100.2], clusters=[3, 3, 3], **{f"NMI {name}": [1.0] * 3 for name in table().index}
    )
    assert list(best_partition(same)) == ["All methods found the same partition: 3 clusters."]
    assert list(agreement(same)) == []
    (line,) = agreement(same.assign(ARI=[-0.01, 0.02, 0.0], NMI=[0.0, 0.01, 0.0]))
    assert (
        line
        == "No method recovers the known classes: the adjusted Rand index is at most 0.02 (1 for a perfect match, 0 by chance)."
    )
    (line,) = agreement(same.assign(ARI=[1.0, 0.9, 1.0], NMI=[1.0, 0.9, 1.0]))
    assert line == "The known classes are recovered exactly by Gibbs and MAP-DP."


def test_classes_that_are_not_recovered_may_be_associated() -> None:
    """A weak association has an adjusted Rand index near 0, and a chi-squared test that sees it: the sentence follows both."""
    rng = np.random.default_rng(0)
    clusters = rng.integers(2, size=(2, 5, 400))
    clusters[:] = clusters[0, 0]
    clusters[..., :40] = rng.integers(2, size=(2, 5, 40))
    weak = np.where(rng.random(400) < 0.6, clusters[0, 0], 1 - clusters[0, 0])
    found = association(clusters, np.array(["no", "yes"])[weak])
    assert found.p_value < 0.005 and adjusted_rand_score(weak, clusters[0, 0]) < 0.05
    assert 0.1 < found.low < found.value < found.high < 0.3
    scores = table(ARI=[0.03, 0.02, 0.0], NMI=[0.02, 0.01, 0.0])
    none = association(rng.integers(2, size=(1, 5, 400)), weak)
    *_, line = agreement(scores, {"BHC": none, "Gibbs": found})
    assert "No method recovers the known classes" in line and "the clusters of Gibbs are weakly associated with them" in line
    assert f"V {found.value:.2f} (95% of its draws between {found.low:.2f} and {found.high:.2f})" in line
    *_, line = agreement(scores, {"BHC": none})
    assert "the clusters show no association with the classes beyond chance" in line


def test_association_against_known_values() -> None:
    """At independence the mean of V² without correction is (r − 1)(k − 1)/(n − 1) / (min − 1); the correction takes it off.

    500 tables of 100 rows, 4 classes and 5 clusters: the corrected V is 0 in about half of them, the plain one never.
    """
    rng = np.random.default_rng(1)
    values = [association(rng.integers(5, size=(1, 1, 100)), rng.integers(4, size=100)).value for _ in range(500)]
    assert np.median(values) < 0.05 and np.mean(np.array(values) == 0) > 0.4
    same = np.repeat([0, 1, 2], 20)
    assert association(same[None, None], same).value == pytest.approx(1.0)
    assert association(same[None, None], np.zeros(60)) == (0.0, 0.0, 0.0, 1.0)
    counts = np.array([[30, 10], [15, 45]])  # by hand: chi² = 24.242, V² = (.24242 − 1/99)/(2 − 1/99 − 1)
    rows, columns = np.repeat([0, 0, 1, 1], counts.ravel()), np.repeat([0, 1, 0, 1], counts.ravel())
    assert association(columns[None, None], rows).value == pytest.approx(np.sqrt((0.242424 - 1 / 99) / (1 - 1 / 99)), rel=1e-5)


def test_held_out() -> None:
    """A method that is a little worse on every row is not close, however much the rows differ."""
    assert list(held_out_verdict(table(clusters=[1, 1, 1]))) == []
    scores = table(held_out=[-2.05, -2.0, -3.0], held_out_se=[0.5, 0.5, 0.5])
    (line,) = held_out_verdict(scores.assign(held_out_diff=[-0.05, 0.0, -1.0], held_out_dse=[0.03, 0.0, 0.1]))
    assert "within two standard errors of the paired difference: Gibbs (0.050 ± 0.030 lower)." in line
    (line,) = held_out_verdict(scores.assign(held_out_diff=[-0.05, 0.0, -1.0], held_out_dse=[0.0006, 0.0, 0.1]))
    assert line == "BHC predicts the held-out rows best, with a mean log density of -2.000 nats per row."
    alone = held_out_verdict(scores.assign(held_out_diff=[-0.05, 0.0, -1.0], held_out_dse=np.nan))
    assert "within" not in next(alone)


def test_clusters() -> None:
    sure = np.tile([0, 0, 1, 1], (1, 40, 1))
    number, rows = clusters_verdict("Gibbs", sure, RowCertainty.of(row_probabilities(sure, sure[0, 0]), sure[0, 0]))
    assert number == "Gibbs: the most probable number of clusters is 2 (probability 100%)."
    assert rows.startswith("Gibbs: every row's cluster is certain (certain: the row belongs to its cluster with")
    mixed = np.concatenate([sure, np.tile([0, 0, 1, 2], (1, 60, 1))], axis=1)
    number, rows = clusters_verdict("Gibbs", mixed, RowCertainty.of(row_probabilities(mixed, sure[0, 0]), sure[0, 0]))
    assert number == "Gibbs: the most probable number of clusters is 3 (probability 60%; 95% of the draws have 2 to 3)."
    assert rows.startswith("Gibbs: the clusters of 2 of 4 rows are certain, and 2 are in doubt (")


def test_rows_of_clusters_that_are_merged_in_some_draws() -> None:
    """In a third of the draws, two clusters of two rows are one: a random member is in either with probability one half."""
    draws = np.concatenate([np.tile([0, 0, 1, 1, 2], (1, 20, 1)), np.tile([0, 0, 0, 0, 1], (1, 10, 1))], axis=1)
    certainty = RowCertainty.of(row_probabilities(draws, draws[0, 0]), draws[0, 0])
    np.testing.assert_allclose(certainty.own, [5 / 6] * 4 + [1.0])
    np.testing.assert_allclose(certainty.other, [1 / 6] * 4 + [0.0], atol=1e-12)
    assert certainty.alternative.tolist() == [1, 1, 0, 0, -1]
    assert certainty.certain.tolist() == [False] * 4 + [True] and not certainty.torn.any()
    _, rows = clusters_verdict("Gibbs", draws, certainty)
    assert "1 of 5 rows are certain, and 4 are in doubt (" in rows
    half = np.concatenate([draws, np.tile([0, 0, 0, 0, 1], (1, 70, 1))], axis=1)  # in 8 of 10 draws
    certainty = RowCertainty.of(row_probabilities(half, draws[0, 0]), draws[0, 0])
    _, rows = clusters_verdict("Gibbs", half, certainty)
    assert "for 4 of them another cluster is at least half as probable" in rows  # .4 beside .6
    table = certainty.most_uncertain(["a", "b", "c", "d", "e"], np.array(["x"] * 5), most=3)
    assert table.index.tolist() == ["a", "b", "c"] and table["known class"].tolist() == ["x"] * 3
    assert table.loc["a"].tolist() == ["x", 0, pytest.approx(0.6), 1, pytest.approx(0.4)]


def test_trees() -> None:
    draws = np.array([[0, 0, 1]] * 50 + [[0, 1, 2]] * 50)
    (line,) = tree_verdict("BHC", {0.1: 2, 0.5: 2, 0.9: 3}, draws)
    assert (
        "at merge probabilities from 0.1 to 0.9 gives 2 to 3 clusters; 95% of the partitions drawn from it have 2 to 3." in line
    )


def test_parts() -> None:
    names = ["age", "income", "site", "site", "site"]
    normal, bits = bnp.PartGain("NormalInverseGamma", (0, 1), 75.0), bnp.PartGain("DirichletMultinomial", (2, 3, 4), 25.0)
    (line,) = parts_verdict("BHC", [bits, normal], names)
    assert line.endswith("relative to one cluster: 'age' and 'income': 75% (75 nats); 'site': 25% (25 nats).")
    (line,) = parts_verdict("BHC", [bits._replace(gain=-3.0), normal], names)
    assert "'site': 0% (-3 nats). Columns other than 'age' and 'income' hardly influence the clusters." in line
    (line,) = parts_verdict("BHC", [bits, normal._replace(approximate=True)], names)
    assert "75% (75 nats, a difference of two lower bounds); 'site': 25% (25 nats)." in line
    assert not list(parts_verdict("BHC", [normal], names))
    assert not list(parts_verdict("BHC", [normal._replace(gain=0.0), bits._replace(gain=-1.0)], names))


def test_of_many_columns_of_a_part_a_few_are_named() -> None:
    names = [f"c{j}" for j in range(9)]
    assert columns_in_words(names, range(4)) == "'c0', 'c1', 'c2' and 'c3'"
    assert columns_in_words(names, range(8)) == "'c0', 'c1', 'c2' and 5 more"
    gains = [bnp.PartGain("GammaPoisson", (j,), 10.0 - j) for j in range(9)]
    (line,) = parts_verdict("BHC", gains, names)
    assert "'c5': 9% (5 nats); ... (9 in all)." in line and "'c6'" not in line


def test_dispersion() -> None:
    (line,) = dispersion_verdict("BHC", {"goals": 3.25, "cards": 1.1, "saves": float("nan")})
    assert "counts 'goals' vary more within the clusters of BHC" in line and "up to 3.2 times" in line
    assert not list(dispersion_verdict("BHC", {"goals": 1.2}))
