"""Tables with dependent and other columns, complete or not: kernels and XLA programs give the same densities."""

from __future__ import annotations

import numpy as np

from bnp_hier.distributions.seating import Prior
from bnp_hier.native.availability import xla_programs
from bnp_hier.partitions.clusters import joint_and_statistics, log_predictives
from bnp_hier.partitions.engine import has_kernels
from tests.native.both_engines import same
from tests.native.random_problems import random_problem


def test_densities_of_mixed_rows(x64: None) -> None:
    problem = random_problem("mixed", 0, 30, 8, 1)
    component, X, dependent = problem.component, problem.X, list(problem.component.dependent_columns)
    assert has_kernels(component) and 0 < len(dependent) < 8 and np.isnan(X).any()
    new = X.copy()
    new[0, dependent[0]] = new[1, dependent] = np.nan

    def found() -> list[np.ndarray]:
        joint, stats = joint_and_statistics(component, X, problem.labels, Prior(problem.concentration, problem.discount))
        return [np.asarray(joint), *(log_predictives(component, stats, rows, len(X)) for rows in (X, new))]

    kernels = found()
    with xla_programs():
        same(kernels, found())
    assert np.isfinite(kernels[2]).all()
