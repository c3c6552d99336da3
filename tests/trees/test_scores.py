"""Scores of clusterings, against their definitions item by item."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from bnp_hier.trees.scores import f_measure, purity

TRUTH = np.array(["a", "a", "a", "b", "b", "c", "c", "c"])
LABELS = np.array([0, 0, 1, 1, 1, 2, 2, 0])


def test_purity_counts_the_commonest_class():
    assert purity(TRUTH, LABELS) == pytest.approx(6 / 8)  # two of {a, a, c}, two of {a, b, b}, both of {c, c}
    assert purity(TRUTH, np.arange(8)) == 1.0
    assert purity(TRUTH, np.zeros(8)) == 3 / 8


def test_f_measure_takes_the_best_cluster_of_every_class():
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth, labels = rng.integers(0, 4, 30), rng.integers(0, 6, 30)
        expected = sum(
            (truth == c).mean() * max(f1_score(truth == c, labels == k) for k in np.unique(labels)) for c in np.unique(truth)
        )
        assert f_measure(truth, labels) == pytest.approx(expected)
    assert f_measure(TRUTH, TRUTH) == 1.0


@pytest.mark.parametrize("score", [purity, f_measure])
@pytest.mark.parametrize("labels", [[0, 1], [[0], [1], [1]], []])
def test_bad_input(score, labels):
    with pytest.raises(ValueError, match="expected one class and one cluster per item"):
        score([0, 1, 1] if labels else [], labels)
