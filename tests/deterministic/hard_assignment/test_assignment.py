"""Hard assignment passes: dense against a plain loop, and the kd-tree against dense."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma

import bnp_hier as bnp
from bnp_hier.components import Component
from bnp_hier.deterministic.hard_assignment import assignment
from bnp_hier.deterministic.hard_assignment.assignment import DenseAssigner, Scores, assign
from bnp_hier.deterministic.hard_assignment.kd_tree import LEAF_SIZE, KDTreeAssigner
from bnp_hier.partitions.row_features import feature_map
from tests.components.test_expected_log_likelihood import FAMILIES, QUADRATIC, of_rows
from tests.parameters import few

K = 6


def scores_of(component: Component, X: np.ndarray, labels: np.ndarray) -> Scores:
    """Scores from the clusters of a partition; a slot without rows takes none."""
    rows = component.suff_stats(X)
    stats = jax.tree.map(lambda leaf: jax.ops.segment_sum(leaf, jnp.asarray(labels), K), rows)
    counts = np.bincount(labels, minlength=K)
    weight = np.where(counts > 0, digamma(np.maximum(counts, 1)), -np.inf)
    return Scores(component.expected_natural_parameters(stats), jnp.asarray(weight))


def by_hand(component: Component, X: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(n, k) scores, one cluster at a time."""
    columns = []
    for k in range(K):
        stats = jax.tree.map(lambda leaf, k=k: leaf[labels == k].sum(0), component.suff_stats(X))
        weight = digamma((labels == k).sum()) if (labels == k).any() else -np.inf
        columns.append(of_rows(component, stats, X) + weight)
    return np.stack(columns, axis=1)


def same(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), one, other)


@pytest.mark.parametrize("kept", few([True, False]))
@pytest.mark.parametrize("name", few(FAMILIES, 2))
def test_dense_pass_equals_a_loop(name: str, kept: bool, x64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 5 rows, the last one not full; features kept, or made anew for every 10 rows."""
    monkeypatch.setattr(assignment, "BLOCK", 5)
    if not kept:
        monkeypatch.setattr(assignment, "KEPT_NUMBERS", 0)
        monkeypatch.setattr(assignment, "CHUNK", 10)
    component, X = FAMILIES[name]
    start = np.arange(len(X)) % 4
    scores = scores_of(component, X, start)
    dense = DenseAssigner(component, X)
    stats, counts = dense(scores)
    labels = dense.labels(scores)
    assert (labels == by_hand(component, X, start).argmax(1)).all()
    assert (counts == np.bincount(labels, minlength=K)).all()
    for k in range(K):
        mine = jax.tree.map(lambda leaf, k=k: leaf[k], stats)
        same(mine, jax.tree.map(lambda leaf, k=k: leaf[labels == k].sum(0), component.suff_stats(X)))


@pytest.mark.parametrize("name", few(FAMILIES, 3))
def test_assign_is_pure_and_in_double_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of 20 rows, the last one not full: a loop's results, as NumPy arrays, while JAX is in single precision."""
    monkeypatch.setattr(assignment, "BLOCK", 5)
    monkeypatch.setattr(assignment, "CHUNK", 20)
    component, X = FAMILIES[name]
    component, X = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), component), np.asarray(X, float)
    start = np.arange(len(X)) % 4
    with jax.enable_x64(True):
        scores = jax.tree.map(np.asarray, scores_of(component, X, start))
        expected = by_hand(component, X, start).argmax(1)
    for rows in (X, X[:7], X[:1]):
        labels, stats, counts = assign(component, rows, scores)
        assert (labels == expected[: len(rows)]).all() and (counts == np.bincount(labels, minlength=K)).all()
        for leaf in jax.tree.leaves((stats, counts)):
            assert type(leaf) is np.ndarray and leaf.dtype == np.float64
        with jax.enable_x64(True):
            for k in range(K):
                mine = jax.tree.map(lambda leaf, k=k: leaf[k], stats)
                theirs = jax.tree.map(lambda leaf, own=labels == k: leaf[own].sum(0), component.suff_stats(rows))
                same(mine, theirs)


def test_assign_sums_rows_of_single_precision_in_double() -> None:
    rng = np.random.default_rng(0)
    X = (100.0 + rng.normal(size=(3000, 2))).astype(np.float32)
    component = bnp.NormalInverseWishart(np.full(2, 100.0), 0.1, 4.0, np.eye(2))
    with jax.enable_x64(True):
        scores = jax.tree.map(np.asarray, scores_of(component, X.astype(float), np.arange(3000) % 4))
    single, double = (assign(component, rows, scores) for rows in (X, X.astype(float)))
    jax.tree.map(np.testing.assert_array_equal, single, double)


def test_assign_compiles_once_for_any_number_of_rows() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 3))
    component = bnp.NormalInverseWishart(np.zeros(3), 0.1, 5.0, np.eye(3))
    with jax.enable_x64(True):
        scores = jax.tree.map(np.asarray, scores_of(component, X, np.arange(3000) % 4))
    assign(component, X, scores)
    before = assignment._assign_piece._cache_size()
    for n in (1, 1023, 1025, 2999):
        assign(component, X[:n], scores)
    assert assignment._assign_piece._cache_size() == before


def test_missing_cells(x64: None) -> None:
    component, X = FAMILIES["nig"]
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    start = np.arange(len(X)) % 3
    dense = DenseAssigner(component, X)
    assert (dense.labels(scores_of(component, X, start)) == by_hand(component, X, start).argmax(1)).all()
    with pytest.raises(ValueError, match=r"missing value \(NaN\) at row \d+, column \d+; a kd-tree needs complete rows"):
        KDTreeAssigner(component, X)


def test_features_leave_out_what_is_there_twice() -> None:
    assert feature_map(bnp.NormalInverseWishart(np.zeros(5), 1.0, 7.0, np.eye(5))).width == 1 + 5 + 15
    assert feature_map(bnp.BetaBernoulli(np.ones(4), np.ones(4))).width == 8
    assert feature_map(bnp.NormalInverseGamma(np.zeros(3), 1.0, 2.0, 1.0)).width == 9


def random_rows(d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of four clusters, overlapping for even seeds, some rows many times, and in one seed of five a constant column."""
    rng = np.random.default_rng([d, seed])
    n = 20 * LEAF_SIZE
    labels = rng.integers(0, 4, n)
    X = rng.normal(scale=(1.5, 12.0)[seed % 2], size=(4, d))[labels] + rng.normal(size=(n, d)) * rng.uniform(0.2, 2.0, d)
    X[: n // 10] = X[0]
    if seed % 5 == 4 and d > 1:
        X[:, -1] = 1.0
    return X, labels


@pytest.mark.parametrize("d", [2, *(pytest.param(d, marks=pytest.mark.slow) for d in (1, 3, 5, 8))])
def test_kd_tree_gives_the_labels_of_dense(d: int, x64: None) -> None:
    """Ten problems for each d: the same labels, and the same statistics to rounding."""
    for seed in range(10):
        X, labels = random_rows(d, seed)
        component = bnp.NormalInverseWishart(X.mean(0), 0.1, d + 2.0, np.eye(d))
        scores = scores_of(component, X, labels)
        dense, tree = DenseAssigner(component, X), KDTreeAssigner(component, X)
        assert (dense.labels(scores) == tree.labels(scores)).all()
        same(dense(scores), tree(scores))
        assert 0 < tree.visited_nodes <= 2 * len(X) / LEAF_SIZE * 2
        if d == 2 and seed % 2:
            assert tree.touched_rows < len(X) / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in QUADRATIC if name != "niw"])
def test_kd_tree_of_every_family(name: str, x64: None) -> None:
    component, rows = FAMILIES[name]
    rng = np.random.default_rng(0)
    X = rows[rng.integers(0, len(rows), 1000)]
    if name in ("nig", "known"):
        X = X + 0.1 * rng.normal(size=X.shape)
    labels = rng.integers(0, 4, len(rows))[rng.integers(0, len(rows), 1000)]
    scores = scores_of(component, X, labels)
    dense, tree = DenseAssigner(component, X), KDTreeAssigner(component, X)
    assert (dense.labels(scores) == tree.labels(scores)).all()
    same(dense(scores), tree(scores))


def test_few_rows_at_once_give_the_same_pass(x64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many columns, features are computed for few rows at once, by both ways."""
    X, labels = random_rows(3, 0)
    component = bnp.NormalInverseWishart(X.mean(0), 0.1, 5.0, np.eye(3))
    scores = scores_of(component, X, labels)
    whole = DenseAssigner(component, X)(scores)
    monkeypatch.setattr(assignment, "BLOCK", 64)
    monkeypatch.setattr(assignment, "KEPT_NUMBERS", 2000)
    width = feature_map(component).width
    assert assignment.rows_at_once(width) == 64 * (2000 // (64 * width)) < len(X)
    assert assignment.rows_at_once(10**6) == 64
    for assigner in (DenseAssigner(component, X), KDTreeAssigner(component, X)):
        same(assigner(scores), whole)


def test_two_equal_clusters_and_few_rows(x64: None) -> None:
    """Ties go to the first cluster in both; a tree of one box works."""
    component, X = FAMILIES["niw"]
    scores = scores_of(component, X, np.arange(len(X)) % 2)
    twice = jax.tree.map(lambda leaf: leaf[jnp.array([0, 0, 1, 1, 4, 5])], scores)
    dense, tree = DenseAssigner(component, X), KDTreeAssigner(component, X)
    labels = dense.labels(twice)
    assert set(labels) <= {0, 2}
    assert (labels == tree.labels(twice)).all()
    same(dense(twice), tree(twice))


def test_a_family_without_coordinates(x64: None) -> None:
    component, X = FAMILIES["user"]
    with pytest.raises(NotImplementedError, match="does not implement coordinates"):
        KDTreeAssigner(component, X)
