"""Fits of shards merged by their statistics, and trees of clusters, against the same from all rows."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import cluster_leaves
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm, pitman_yor_mixture
from bnp_hier.partitions.clusters import joint_and_statistics
from tests.parameters import few

COMPONENT = bnp.NormalInverseWishart(np.zeros(2), np.asarray(0.1), np.asarray(4.0), np.eye(2))
MODEL = partial(dpm, component=COMPONENT, concentration=1.0)


def table(n: int = 400) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = 11.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [0, 2]])
    return centers[rng.integers(0, 6, n)] + rng.normal(size=(n, 2))


@pytest.mark.parametrize("kind", few([bnp.MAPDP, bnp.BayesianKMeans]))
def test_two_halves_are_the_whole(kind: Any) -> None:
    X = table()
    whole, halves = kind(MODEL).fit(X), [kind(MODEL).fit(X[:170]), kind(MODEL).fit(X[170:])]
    merged = bnp.merge_fits(halves)
    assert merged.log_joint_ == pytest.approx(whole.log_joint_, rel=1e-9) and merged.n_seen_ == 400
    assert (merged.labels_ == whole.labels_).all() and (merged.counts_ == whole.counts_).all() and merged.n_clusters_ >= 4
    assert type(merged) is kind and (merged.predict(X) == whole.predict(X)).all()
    more = table(450)[400:]
    assert merged.partial_fit(more).n_seen_ == 450 and len(merged.labels_) == 50


def test_labels_only_of_all_rows() -> None:
    X = table()
    first = bnp.MAPDP(MODEL).fit(X[:100]).partial_fit(X[100:200])
    merged = bnp.merge_fits([first, bnp.MAPDP(MODEL).fit(X[200:])])
    assert merged.n_seen_ == 400 and not hasattr(merged, "labels_")
    again = bnp.merge_fits([pickle.loads(pickle.dumps(merged))])
    assert (again.counts_ == merged.counts_).all() and again.log_joint_ == merged.log_joint_


def test_log_joint_is_that_of_the_labels() -> None:
    """Overlapping clusters, in shards so small that they see different clusters."""
    rng = np.random.default_rng(1)
    X = 3.0 * rng.normal(size=(6, 2))[rng.integers(0, 6, 240)] + rng.normal(size=(240, 2))
    model = partial(pitman_yor_mixture, component=COMPONENT, concentration=1.0, discount=0.2)
    fits = [bnp.MAPDP(model, n_init=2).fit(shard) for shard in np.array_split(X, 6)]
    merged = bnp.merge_fits(fits)
    assert merged.n_clusters_ < sum(fit.n_clusters_ for fit in fits)
    with jax.enable_x64(True):
        joint, _ = joint_and_statistics(COMPONENT, X, merged.labels_, Prior(1.0, 0.2))
    assert merged.log_joint_ == pytest.approx(joint, rel=1e-12)
    assert (merged.counts_ == np.bincount(merged.labels_)).all()


def test_what_differs_is_named() -> None:
    X = table(60)
    fit = bnp.MAPDP(MODEL).fit(X)
    other = bnp.NormalInverseWishart(np.zeros(2), np.asarray(0.2), np.asarray(4.0), np.eye(2))
    known = bnp.NormalKnownCovariance(mean=np.zeros(2), prior_covariance=9 * np.eye(2), covariance=np.eye(2))
    for model, message in [
        (partial(dpm, component=other, concentration=1.0), "fits 0 and 1 differ in the component's kappa: 0.1 and 0.2"),
        (partial(dpm, component=known, concentration=1.0), "the component: NormalInverseWishart and NormalKnownCovariance"),
        (partial(dpm, component=COMPONENT, concentration=2.0), "the concentration: 1.0 and 2.0"),
        (partial(pitman_yor_mixture, component=COMPONENT, concentration=1.0, discount=0.2), "the discount: 0.0 and 0.2"),
    ]:
        with pytest.raises(ValueError, match=message):
            bnp.merge_fits([fit, bnp.MAPDP(model, n_init=1).fit(X)])
    with pytest.raises(ValueError, match="fits is empty"):
        bnp.merge_fits([])
    with pytest.raises(TypeError, match="fit 1 is a BHC; expected BayesianKMeans or MAPDP"):
        bnp.merge_fits([fit, bnp.BHC(MODEL)])  # type: ignore[list-item]
    with pytest.raises(NotFittedError):
        bnp.merge_fits([fit, bnp.MAPDP(MODEL)])


def test_trees_of_clusters_equal_those_of_their_rows() -> None:
    rng = np.random.default_rng(2)
    X = 15.0 * rng.normal(size=(9, 2))[rng.integers(0, 9, 300)] + rng.normal(size=(300, 2))
    fit = bnp.MAPDP(MODEL, n_init=2).fit(X)
    tree = bnp.tree_of_clusters(fit)
    with jax.enable_x64(True):
        children, log_odds, _ = agglomerate(COMPONENT, cluster_leaves(X, fit.labels_), 1.0)
    assert (tree.dendrogram.children == children).all() and (tree.counts == fit.counts_).all() and len(children) >= 4
    np.testing.assert_allclose(tree.dendrogram.log_odds, log_odds, rtol=1e-9, atol=1e-9)
    assert fit.log_joint_ < tree.log_evidence_bound < fit.log_joint_ + 10.0


def test_a_tree_of_single_rows_is_that_of_bhc() -> None:
    """Its bound, too: every row is a cluster."""
    X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    model = partial(dpm, component=component, concentration=1.0)
    bhc = bnp.BHC(model, refine=None).fit(X)
    fit = bnp.MAPDP(model).fit(X)
    with jax.enable_x64(True):
        _, fit.statistics_ = joint_and_statistics(component, X, np.arange(5), Prior(1.0))
    fit.counts_ = np.ones(5, int)
    tree = bnp.tree_of_clusters(fit)
    assert (tree.dendrogram.children == bhc.dendrogram_.children).all()
    assert tree.log_evidence_bound == pytest.approx(bhc.log_evidence_bound_, abs=1e-9)


def test_trees_that_cannot_be_made() -> None:
    X = table(40)
    with pytest.raises(NotFittedError):
        bnp.tree_of_clusters(bnp.MAPDP(MODEL))
    model = partial(pitman_yor_mixture, component=COMPONENT, concentration=1.0, discount=0.2)
    with pytest.raises(ValueError, match="the fit has discount 0.2"):
        bnp.tree_of_clusters(bnp.MAPDP(model, n_init=1).fit(X))
    with pytest.raises(TypeError, match="but BHC needs a table here: pass an array of the rows, or use an estimator"):
        bnp.BHC(MODEL).fit(lambda: [X])  # type: ignore[arg-type]
    one = bnp.tree_of_clusters(bnp.MAPDP(MODEL, n_init=1).fit(X[:3] * 1e-3))
    assert one.dendrogram.n_items == 1 and one.counts.tolist() == [3]
