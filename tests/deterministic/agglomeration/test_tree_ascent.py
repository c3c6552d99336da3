"""Ascent of a tree's evidence bound in the hyperparameters by expectation-maximisation, against the bound itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree
from bnp_hier.deterministic.agglomeration.tree_ascent import _bound_at, tree_objective
from bnp_hier.deterministic.agglomeration.tree_evidence import padded_tree
from bnp_hier.inspection.problem import Problem
from tests.parameters import few

X = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0.0, 0.0], [4.0, 2.0]], 20, 0)
COUNTS = np.random.default_rng(1).poisson(np.repeat([[1.0, 6.0], [5.0, 2.0]], 15, 0))
CASES: dict[str, tuple[Any, np.ndarray]] = {
    "normal": (bnp.NormalInverseWishart.from_data(X), X),
    "independent": (bnp.NormalInverseGamma.from_data(X), X),
    "known": (bnp.NormalKnownCovariance.from_data(X), X),
    "counts": (bnp.GammaPoisson.from_data(COUNTS), COUNTS),
}


@pytest.mark.parametrize("case", few(CASES, 2, 2))
def test_expected_log_joint_has_the_gradient_of_the_bound(case: str, x64: None) -> None:
    """Where the weights of the nodes were computed, the two gradients are equal (Fisher's identity)."""
    component, rows = CASES[case]
    problem = Problem(partial(bnp.models.dpm, component=component, concentration=dist.Gamma(2.0, 1.0)), rows)
    children, _ = greedy_tree(problem.values.component, rows, 1.0)
    gradients = {}

    def gradient(name: str, objective: Any, fixed: tuple[Any, ...]) -> None:
        flat, _ = ravel_pytree(problem.unconstrained)
        gradients[name] = np.asarray(problem._value_and_gradient(objective, *fixed)(flat, *fixed)[1])

    gradient("bound", _bound_at, padded_tree(children))
    problem.climb = lambda objective, *fixed, **_: gradient("expected", objective, fixed)  # type: ignore[method-assign, assignment]
    tree_objective(problem).ascend(children)
    np.testing.assert_allclose(gradients["expected"], gradients["bound"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", ["normal", "counts"])
def test_ascents_reach_the_maximum_of_the_bound(case: str, x64: None) -> None:
    component, rows = CASES[case]
    problem = Problem(partial(bnp.models.dpm, component=component, concentration=dist.Gamma(2.0, 1.0)), rows)
    children, _ = greedy_tree(problem.values.component, rows, 1.0)
    start, objective = problem.unconstrained, tree_objective(problem)
    assert objective.value(children) == pytest.approx(problem.value(_bound_at, *padded_tree(children)))
    trace = [objective.value(children)]
    for _ in range(20):
        objective.ascend(children)
        trace.append(objective.value(children))
    assert (np.diff(trace) >= 0).all()
    by_steps, problem.unconstrained = problem.unconstrained, start
    best = problem.climb(_bound_at, *padded_tree(children), max_iter=500)
    assert trace[-1] == pytest.approx(best, abs=0.05)
    jax.tree.map(np.shape, by_steps)
