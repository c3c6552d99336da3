"""The plain NumPy programs of exact BHC and Bayes k-means BHC give what the package gives."""

from __future__ import annotations

import sys
from functools import partial

import jax
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.models import dpm
from bnp_hier.partitions.search import descend, merge_clusters
from bnp_hier.utils.labels import canonical_labels
from tests.reproductions import FOLDER

sys.path.insert(0, str(FOLDER))

import dense_bhc as dense  # noqa: E402

ALPHA = 0.7


def rows(seed: int, n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 3.0 * rng.normal(size=(4, 3))[rng.integers(4, size=n)] + rng.normal(size=(n, 3))


def prior(X: np.ndarray) -> bnp.NormalInverseWishart:
    return bnp.NormalInverseWishart.from_data(X, learn=False)


@pytest.mark.parametrize("batched", [False, True])
def test_the_exact_tree_is_the_package_s(batched: bool) -> None:
    X = rows(0)
    fit = bnp.BHC(partial(dpm, component=prior(X), concentration=ALPHA), refine=None, progress_bar=False).fit(X)
    weight = dense.Weight(prior(X), ALPHA, batched)
    tree = dense.exact_tree(dense.of_rows(X), weight)
    np.testing.assert_array_equal(np.sort(tree.children, axis=1), np.sort(fit.dendrogram_.children, axis=1))
    np.testing.assert_allclose(dense.log_evidence_bound(tree, ALPHA, len(X)), fit.log_evidence_bound_, rtol=1e-9)
    n = len(X)
    assert weight.evaluations == n + n * (n - 1) // 2 + (n - 1) * (n - 2) // 2


@pytest.mark.parametrize("seed", range(3))
def test_bayes_k_means_assigns_and_merges_as_the_package_does(seed: int) -> None:
    X, order = rows(seed), np.random.default_rng(seed).permutation(40)
    labels = dense.bayes_kmeans(X, dense.Weight(prior(X), ALPHA, True), order)
    with jax.enable_x64(True):
        values = MixtureValues(Prior(ALPHA), prior(X), X)
        start = np.full(len(X), -1)
        start[order[:6]] = np.arange(6)
        assigned = descend(values, order[6:][None], start[None], len(X), 1).labels[0]
        np.testing.assert_array_equal(canonical_labels(labels), canonical_labels(merge_clusters(values, assigned)))


def test_the_tree_of_clusters_bounds_the_evidence_from_below_the_exact_tree_s_partitions() -> None:
    X = rows(1, 8)
    model = partial(dpm, component=prior(X), concentration=ALPHA)
    weight = dense.Weight(prior(X), ALPHA, True)
    labels = dense.bayes_kmeans(X, weight, np.arange(8))
    assert labels.max() >= 1
    tree = dense.exact_tree(dense.clusters_of(X, labels), weight)
    assert dense.log_evidence_bound(tree, ALPHA, 8) < bnp.evidence.exact(model, X)
