"""Gains of the parts of a table: they add up to the joint's, and agree with a sum over clusters."""

from __future__ import annotations

import numpy as np
import pytest

import bnp_hier as bnp
from tests.oracles.problems import random_problem


def problem_of(family: str) -> tuple[bnp.Component, np.ndarray]:
    if family != "product":
        problem = random_problem(family, 12, 2)
        return problem.component, problem.X
    parts = [random_problem(name, 12, 2) for name in ("niw", "bernoulli", "poisson")]
    columns = [[0, 1], [2, 3, 4, 5], [6, 7]]
    return bnp.ProductComponent([part.component for part in parts], columns), np.hstack([part.X for part in parts])


@pytest.mark.parametrize("family", ["nig", "niw", "poisson", "product"])
def test_gains_are_sums_over_clusters(family: str) -> None:
    component, table = problem_of(family)
    labels = np.array([5, 5, 0, 0, 0, 2, 2, 5, 0, 2, 2, 5])  # any integers
    gains = bnp.part_gains(component, table, labels)
    parts = component.parts_and_columns()
    assert [(gain.family, gain.columns) for gain in gains] == [(type(part).__name__, columns) for part, columns in parts]
    for gain, (part, columns) in zip(gains, parts, strict=True):
        X = table[:, list(columns)]
        clusters = sum(part.log_evidence(X[labels == k]) for k in np.unique(labels))
        assert gain.gain == pytest.approx(clusters - part.log_evidence(X), abs=1e-8) and not gain.approximate


def test_gains_are_those_of_the_parts_alone_where_values_are_missing() -> None:
    component, table = problem_of("product")
    labels = np.arange(12) % 2
    table[0, 0] = table[1, :2] = table[2, 3] = table[3, 7] = np.nan
    for gain, (part, columns) in zip(bnp.part_gains(component, table, labels), component.parts_and_columns(), strict=True):
        (alone,) = bnp.part_gains(part, table[:, list(columns)], labels)
        assert gain.gain == pytest.approx(alone.gain, abs=1e-8) and np.isfinite(gain.gain)
        assert gain.approximate == (gain.family == "NormalInverseWishart")  # the others leave cells out exactly


def test_one_cluster_gains_nothing_and_labels_must_fit() -> None:
    component, X = problem_of("product")
    assert all(abs(part.gain) < 1e-9 for part in bnp.part_gains(component, X, np.full(12, 3)))
    with pytest.raises(ValueError, match="one label for each of the 12 rows"):
        bnp.part_gains(component, X, np.zeros(11, int))
