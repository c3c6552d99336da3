"""Randomized and Bayes k-means trees: whole, seeded, with valid bounds, and good on separated clusters."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.bayes_kmeans_tree import bayes_kmeans
from bnp_hier.deterministic.agglomeration.randomized_bhc import halves_of
from bnp_hier.models import dpm
from tests.oracles.problems import log_marginal, random_problem
from tests.parameters import few

METHODS = ("randomized", "bayes_kmeans")


def separated(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    return 8.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[labels] + rng.normal(size=(n, 2)), labels


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_separated_clusters_are_found(method: str) -> None:
    X, labels = separated(700)
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    fit = bnp.BHC(model, method=method, random_state=1).fit(X)
    exact = bnp.BHC(model).fit(X)
    assert adjusted_rand_score(labels, fit.labels_) > 0.95
    # never above the best tree by more than chance, and not far below: both hold the same four clusters
    assert exact.log_evidence_bound_ - 15 < fit.log_evidence_bound_ < exact.log_evidence_bound_ + 1.0
    assert fit.log_evidence_bound_ >= fit.log_joint_ - 1e-9 and len(fit.objective_trace_) == 1
    again = bnp.BHC(model, method=method, random_state=1).fit(X)
    other = bnp.BHC(model, method=method, random_state=2).fit(X)
    assert (again.dendrogram_.children == fit.dendrogram_.children).all()
    if method == "randomized":  # k-means may well find the same clusters from other seeds
        assert not (other.dendrogram_.children == fit.dendrogram_.children).all()
    np.testing.assert_allclose(fit.score_samples(X[:50]), exact.score_samples(X[:50]), atol=0.3)
    assert fit.node_weights_ @ fit.dendrogram_.sizes == pytest.approx(700, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", few(["niw", "bernoulli", "poisson"]))
def test_bounds_are_valid_for_every_family(method: str, family: str) -> None:
    for seed in range(3):
        problem = random_problem(family, 9, seed)
        fit = bnp.BHC(problem.model, method=method, random_state=seed).fit(problem.X)
        assert fit.log_joint_ <= fit.log_evidence_bound_ + 1e-9
        assert fit.log_evidence_bound_ <= bnp.evidence.exact(problem.model, problem.X) + 1e-9


def test_small_sets_get_the_exact_tree() -> None:
    problem = random_problem("niw", 60, 0)
    exact, randomized = (bnp.BHC(problem.model, method=m, refine=None).fit(problem.X) for m in ("exact", "randomized"))
    assert randomized.log_evidence_bound_ == pytest.approx(exact.log_evidence_bound_, abs=1e-9)


@pytest.mark.slow
def test_one_cluster_is_halved() -> None:
    """A subset that is one cluster says nothing about branches: halves keep the tree shallow."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2)) * [5.0, 1.0]
    component = bnp.NormalInverseWishart(np.zeros(2), 0.01, 4.0, np.diag([25.0, 1.0]))
    fit = bnp.BHC(partial(dpm, component=component, concentration=0.1), method="randomized").fit(X)
    assert fit.n_clusters_ == 1
    left, right = fit.dendrogram_.children[-1]
    assert fit.dendrogram_.sizes[left] == fit.dendrogram_.sizes[right] == 450
    lower, upper = halves_of(X)
    first, second = sorted((X[lower, 0], X[upper, 0]), key=np.mean)  # the axis may point either way
    assert len(lower) == 450 and first.max() - second.min() < 0.5


@pytest.mark.slow
def test_missing_cells_and_equal_rows() -> None:
    X = np.repeat([[0.0, 0.0], [np.nan, 9.0]], 150, axis=0)
    model = partial(dpm, component=bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0), concentration=1.0)
    for method in METHODS:
        fit = bnp.BHC(model, method=method).fit(X)
        assert adjusted_rand_score(np.repeat([0, 1], 150), fit.labels_) == 1.0


def test_bayes_kmeans_partition_cannot_be_improved_by_a_merge(x64: None) -> None:
    X, _ = separated(300, 4)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    labels = bayes_kmeans(component, X, 1.0, np.random.default_rng(0))

    def joint(z: np.ndarray) -> float:
        sizes = np.bincount(z)
        sizes = sizes[sizes > 0]
        prior = float(sum(np.log(np.arange(1, size)).sum() for size in sizes))
        return prior + sum(log_marginal(component, X[z == k]) for k in np.unique(z))

    k = labels.max() + 1
    assert 4 <= k <= 12
    for a in range(k):
        for b in range(a + 1, k):
            assert joint(np.where(labels == b, a, labels)) <= joint(labels) + 1e-6


def test_options() -> None:
    problem = random_problem("niw", 9, 0)
    with pytest.raises(ValueError, match='refine="full" needs method="exact"'):
        bnp.BHC(problem.model, method="randomized", refine="full").fit(problem.X)


@pytest.mark.parametrize("method", METHODS)
def test_two_rows(method: str) -> None:
    problem = random_problem("nig", 5, 0)
    fit = bnp.BHC(problem.model, method=method).fit(problem.X[:2])
    assert fit.log_evidence_bound_ == pytest.approx(bnp.evidence.exact(problem.model, problem.X[:2]), abs=1e-10)
