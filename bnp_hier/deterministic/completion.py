"""Fits to tables with missing values: alternation between fits to completed tables and imputation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.capacities import in_steps
from bnp_hier.partitions.imputation import Imputation, better_labels, expected_log_joint, impute
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.padding import padded

__all__ = ["LEAST_RISE", "first_imputation", "refined_imputation", "settled_imputation"]

ROUNDS = 5
"""Maximum number of rounds of imputation and gradient steps between two fits."""

MOVED_ROUNDS = 2
"""The same while rows still move to other clusters."""

LEAST_RISE = 0.01
"""Rise of the bound (nats) at which they stop."""


def first_imputation(problem: Problem) -> Imputation:
    """Imputation with all rows in one cluster, at the current hyperparameters."""
    return impute(problem.values, problem.X, np.zeros(len(problem.X), int))


def refined_imputation(problem: Problem, labels: Int[np.ndarray, " n"], learn: bool) -> tuple[Imputation, Imputation]:
    """Impute the missing values given the labels of a fit, and move incomplete rows to better clusters.

    Parameters
    ----------
    problem
        The problem; it is completed by the cells found, and its hyperparameters are moved if they are learned.
    labels
        Labels of the fit.
    learn
        Whether the hyperparameters are learned.

    Returns
    -------
    own, best
        Imputations given the labels of the fit, and given the better labels.
    """
    own = best = settled_imputation(problem, labels, learn)
    for _ in range(ROUNDS):
        if current_deadline().is_past():
            break
        before = problem.unconstrained, dict(problem.cells)
        moved = better_labels(problem.values, problem.X, best)
        if np.array_equal(moved, best.labels):
            break
        found = settled_imputation(problem, moved, learn, best, MOVED_ROUNDS)
        if not found.log_joint > best.log_joint + LEAST_RISE:
            problem.unconstrained = before[0]
            problem.complete(before[1][str(problem.sites.missing)])
            break
        best = found
    if best is not own:  # at the same hyperparameters
        own = impute(problem.values, problem.X, labels, own)
    return own, best


def settled_imputation(
    problem: Problem,
    labels: Int[np.ndarray, " n"],
    learn: bool,
    start: Imputation | None = None,
    rounds: int = ROUNDS,
) -> Imputation:
    """Alternate imputation given the labels and, if they are learned, gradient steps on the problem's hyperparameters."""
    found = impute(problem.values, problem.X, labels, start)
    problem.complete(found.cells)
    if not learn:
        return found
    value = found.log_joint + _log_prior(problem)
    for _ in range(rounds):
        if current_deadline().is_past():
            break
        before = problem.unconstrained
        slots = in_steps(max(problem.most_clusters, int(labels.max()) + 1))
        rows = found.rows
        fixed = (
            np.asarray(padded(np.asarray(problem.values.X))),
            np.asarray(padded(labels, slots)),
            np.zeros(slots),
            np.asarray(padded(found.covariances, 0.0)),
            np.asarray(padded(labels[rows], slots)),
        )
        problem.climb(expected_log_joint, *fixed, own_rows=True)
        again = impute(problem.values, problem.X, labels, found)
        reached = again.log_joint + _log_prior(problem)
        if not reached > value:
            problem.unconstrained = before
            break
        rise, value, found = reached - value, reached, again
        problem.complete(found.cells)
        if rise < LEAST_RISE:
            break
    return found


def _log_prior(problem: Problem) -> float:
    return float(problem.prior.log_prob(problem.hyperparameters))
