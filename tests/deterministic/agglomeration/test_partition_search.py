"""The search for good hard partitions: exact on small problems, and crossing takes the better half of each parent."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.partition_search import Effort, _cross, search_partitions
from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.joint_density import log_joint
from tests.oracles.partitions import all_partitions
from tests.parameters import few

SHORT = Effort(sweeps=20, generations=4, idle=1)


def _joint(component: Component, X: np.ndarray, concentration: float, labels: np.ndarray) -> float:
    prior = Prior(jax.numpy.asarray(concentration))
    return float(log_joint(component, component.suff_stats(X), jax.numpy.asarray(labels), prior, len(X)))


@pytest.mark.parametrize("family", few(["bits", "normal"]))
def test_finds_the_most_probable_of_all_partitions(family: str) -> None:
    """Seven items, 877 partitions: the first of the result is the best of all, and every log joint is right."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(7, 2)) if family == "normal" else rng.integers(0, 2, (7, 5)).astype(float)
    component = (bnp.NormalInverseWishart if family == "normal" else bnp.BetaBernoulli).from_data(X, learn=False)
    with jax.enable_x64(True):
        partitions = np.array(list(all_partitions(7)))
        prior = Prior(jax.numpy.asarray(1.0))
        all_joints = jax.vmap(lambda row: log_joint(component, component.suff_stats(X), row, prior, 7))(partitions)
        every = dict(zip(map(tuple, partitions.tolist()), np.asarray(all_joints).tolist(), strict=True))
        labels, joints = search_partitions(component, X, 1.0, np.zeros((1, 7), int), np.random.default_rng(0), SHORT)
    assert len(every) == 877
    assert joints[0] == pytest.approx(max(every.values()), abs=1e-9)
    assert (np.diff(joints) <= 0).all() and len(np.unique(labels, axis=0)) == len(labels)
    assert joints == pytest.approx([every[tuple(row)] for row in labels.tolist()], abs=1e-9)


def test_crossing_takes_the_better_half_of_each_parent() -> None:
    """Each parent splits one pair of clusters rightly and joins the other; the offspring splits both."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 15)
    X = np.array([[0.0, 0.0], [0.0, 6.0], [30.0, 0.0], [30.0, 6.0]])[truth] + rng.normal(size=(60, 2))
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    one, other = np.array([0, 1, 2, 2])[truth], np.array([0, 0, 1, 2])[truth]
    with jax.enable_x64(True):
        child = _cross(component, X, 1.0, one, other)
        joints = [_joint(component, X, 1.0, labels) for labels in (one, other, child)]
    assert adjusted_rand_score(truth, child) == 1.0
    assert joints[2] > max(joints[:2])


def test_items_together_in_both_parents_stay_together() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 2))
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    with jax.enable_x64(True):
        for _ in range(5):
            one, other = rng.integers(0, 5, (2, 40))
            child = _cross(component, X, 1.0, one, other)
            for cluster in np.unique(one * 5 + other):
                assert len(np.unique(child[one * 5 + other == cluster])) == 1


@pytest.mark.slow
def test_never_below_a_start_and_the_same_for_one_key() -> None:
    rng = np.random.default_rng(2)
    X = 4.0 * rng.normal(size=(6, 2))[rng.integers(0, 6, 80)] + rng.normal(size=(80, 2))
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    starts = rng.integers(0, 7, (3, 80))
    with jax.enable_x64(True):
        (labels, joints), (again, _) = (
            search_partitions(component, X, 1.0, starts, np.random.default_rng(5), SHORT) for _ in range(2)
        )
        assert joints[0] >= max(_joint(component, X, 1.0, row) for row in starts)
    assert (labels == again).all()
