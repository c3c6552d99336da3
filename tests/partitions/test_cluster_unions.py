"""Merges of clusters by their statistics, against all partitions that one merge leads to."""

from __future__ import annotations

from itertools import combinations

import jax
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.cluster_unions import merge_by_joint
from bnp_hier.partitions.clusters import joint_and_statistics, joint_of_clusters
from bnp_hier.utils.labels import canonical_labels


def greedy(component: bnp.Component, X: np.ndarray, labels: np.ndarray, prior: Prior, limit: float) -> np.ndarray:
    """Merge the pair that leads to the highest log joint, computed from the rows."""
    labels = labels.copy()
    while len(used := np.unique(labels)) > 1:
        merged = [np.where(labels == other, one, labels) for one, other in combinations(used.tolist(), 2)]
        joints = [joint_and_statistics(component, X, canonical_labels(option), prior)[0] for option in merged]
        now = joint_and_statistics(component, X, canonical_labels(labels), prior)[0]
        if not max(joints) > now + 1e-9 and len(used) <= limit:
            break
        labels = merged[int(np.argmax(joints))]
    return labels


@pytest.mark.parametrize(
    ("family", "discount", "limit"),
    [("normal", 0.0, np.inf), ("normal", 0.4, np.inf), ("normal", 0.0, 2), ("counts", 0.0, np.inf)],
)
def test_equals_greedy_merges_of_the_rows(family: str, discount: float, limit: float) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        labels = np.concatenate([np.arange(7), rng.integers(0, 7, 60)])
        if family == "normal":
            X = 20.0 * np.eye(3, 2)[labels % 3] + rng.normal(size=(67, 2))
            component: bnp.Component = bnp.NormalInverseWishart(np.zeros(2), np.asarray(0.1), np.asarray(4.0), np.eye(2))
        else:
            X = rng.poisson(np.array([1.0, 4.0, 20.0])[labels % 3, None] * np.ones(2)).astype(float)
            component = bnp.GammaPoisson(shape=np.ones(2), rate=np.full(2, 0.1))
        prior = Prior(0.7, discount)
        with jax.enable_x64(True):
            _, stats = joint_and_statistics(component, X, labels, prior)
            names, merged, counts = merge_by_joint(component, stats, np.bincount(labels).astype(float), prior, limit)
            expected = greedy(component, X, labels, prior, limit)
            assert (canonical_labels(names[labels]) == canonical_labels(expected)).all() and counts.sum() == 67
            assert (np.diff(np.unique(names, return_index=True)[1]) > 0).all() and 1 < len(counts) < 7
            exact, sums = joint_and_statistics(component, X, names[labels], prior)
            assert joint_of_clusters(component, merged, counts, prior) == pytest.approx(exact, rel=1e-12)
            for one, other in zip(jax.tree.leaves(merged), jax.tree.leaves(sums), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9)
