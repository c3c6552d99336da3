"""Leave-one-out densities against taking every row out in turn."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from bnp_hier.partitions.leave_one_out import leave_one_out_densities
from bnp_hier.partitions.seating import Prior
from tests.oracles.problems import FAMILIES, random_problem


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
