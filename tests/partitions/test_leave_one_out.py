"""Leave-one-out densities against taking every row out in turn."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.partitions.leave_one_out import densities_without_rows, joint_and_densities, leave_one_out_densities
from tests.oracles.problems import FAMILIES, random_problem
from tests.parameters import few


@pytest.mark.parametrize("discount", [0.0, 0.4])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_taking_rows_out(family: str, discount: float, x64: None) -> None:
    """Singletons, an empty slot, and ties included."""
    for seed in range(4):
        problem = random_problem(family, 8, seed)
        labels = np.random.default_rng(seed).integers(0, 4, 8)
        labels[0] = 4  # alone
        found = leave_one_out_densities(
            problem.component, jnp.asarray(problem.X), jnp.asarray(labels), Prior(problem.alpha, discount), 6
        )
        for i in range(8):
            rest = [j for j in range(8) if j != i]
            clusters = [[j for j in rest if labels[j] == k] for k in set(labels[rest])]
            terms = [np.log(len(c) - discount) + problem.log_predictive(c, problem.X[i]) for c in clusters]
            terms.append(np.log(problem.alpha + len(clusters) * discount) + problem.log_predictive([], problem.X[i]))
            assert found[i] == pytest.approx(np.logaddexp.reduce(terms) - np.log(7 + problem.alpha), abs=1e-8)


@pytest.mark.parametrize("discount", [0.0, 0.4])
@pytest.mark.parametrize("most", few([np.inf, 3.0]))
def test_a_new_row_beside_rows_that_are_all_alone(most: float, discount: float, engine: str, x64: None) -> None:
    """It opens a cluster of its own, unless the model allows no more."""
    problem = random_problem("nig", 4, 0)
    X, new = problem.X[:3], problem.X[3:]
    values = MixtureValues(Prior(jnp.asarray(problem.alpha), jnp.asarray(discount)), problem.component, jnp.asarray(X))
    found = joint_and_densities(values, jnp.arange(3), 8, most, jnp.asarray(new)).new
    terms = [np.log(1 - discount) + problem.log_predictive([i], new[0]) for i in range(3)]
    if most > 3:
        terms.append(np.log(problem.alpha + 3 * discount) + problem.log_predictive([], new[0]))
    total = 3 + problem.alpha if most > 3 else 3 * (1 - discount)
    assert found[0] == pytest.approx(np.logaddexp.reduce(terms) - np.log(total), abs=1e-9)


@pytest.mark.parametrize(("discount", "most"), few([(0.4, np.inf), (0.0, np.inf), (0.4, 3)], slow=2))
@pytest.mark.parametrize("family", FAMILIES)
def test_new_rows_without_each_row(family: str, discount: float, most: float, x64: None) -> None:
    """Those of the partition of the others, a singleton included; `left_out` and `new` are those of `joint_and_densities`."""
    problem = random_problem(family, 9, 1)
    X, new, labels = jnp.asarray(problem.X[:7]), jnp.asarray(problem.X[7:]), np.array([0, 0, 1, 0, 2, 1, 0])
    values = MixtureValues(Prior(jnp.asarray(problem.alpha), jnp.asarray(discount)), problem.component, X)
    found = densities_without_rows(values, jnp.asarray(labels), 8, most, jnp.arange(7), new, incomplete=False)
    whole = joint_and_densities(values, jnp.asarray(labels), 8, most, new)
    np.testing.assert_allclose(found.of_rows, whole.left_out, atol=1e-8)
    np.testing.assert_allclose(found.given_all, whole.new, atol=1e-8)
    for i in range(7):
        rest = np.arange(7) != i
        others = joint_and_densities(values._replace(X=X[rest]), jnp.asarray(labels[rest]), 8, most, new).new
        np.testing.assert_allclose(np.log(found.of_new[i]) + found.reference, others, atol=1e-8)


def test_new_rows_with_missing_values(x64: None) -> None:
    """Of dependent columns: those of a component of the other columns alone."""
    X, labels = np.random.default_rng(0).normal(size=(8, 3)), jnp.array([0, 0, 1, 0, 2, 1])
    absent = jnp.array([False, True, False])
    found = []
    for columns in ([0, 1, 2], [0, 2]):
        scale = np.diag([1.0, 2.0, 3.0])[np.ix_(columns, columns)]
        component = bnp.NormalInverseWishart(np.zeros(len(columns)), 0.5, 3.0 + len(columns), scale)
        values = MixtureValues(Prior(jnp.asarray(1.3), jnp.asarray(0.0)), component, jnp.asarray(X[:6, columns]))
        new = jnp.where(absent[np.array(columns)], jnp.nan, X[6:, columns])
        found.append(densities_without_rows(values, labels, 8, np.inf, jnp.arange(6), new, incomplete=len(columns) == 3))
    for name in ("of_rows", "given_all"):
        np.testing.assert_allclose(*(getattr(each, name) for each in found), atol=1e-8)
    np.testing.assert_allclose(*(np.log(each.of_new) + each.reference for each in found), atol=1e-8)
