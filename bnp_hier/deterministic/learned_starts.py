"""Hyperparameters from which estimators start: fitted to hard partitions of a sample of the rows, from several starts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from bnp_hier.deterministic.alternation import labels_and_slots
from bnp_hier.deterministic.hard_assignment.free_energies import LOG_JOINTS, log_joint_of_sums
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.search import descend
from bnp_hier.utils.labels import canonical_labels

__all__ = ["learned_start"]

MOST_ROWS = 2000
"""Size of the sample of the rows."""

ORDERS = 3
"""Number of orders of the rows in which partitions are built at each of the starts."""

ROUNDS = 2
"""Number of partitions, each followed by gradient steps, from each of the starts."""

STEPS = 50
"""Maximum number of gradient steps for each partition."""


class _Labels(NamedTuple):
    labels: Int[np.ndarray, " n"]


def learned_start(
    problem: Problem, rng: np.random.Generator, given: Int[np.ndarray, " n"] | None = None
) -> list[dict[str, Any]]:
    """Return the unconstrained hyperparameters with the highest log joint found, or nothing if the family has no MAP-DP.

    From the prior medians and from each of the values that the sites declare, partitions of at most 2,000 random rows are
    found by single-row moves, in turn with gradient steps on the log joint + log prior. The problem is left as it was.

    Parameters
    ----------
    problem
        The problem, with at least one hyperparameter.
    rng
        Generator for the sample and the orders of its rows.
    given
        Labels of all rows; the hyperparameters fitted to them are one more start.
    """
    before, values = problem.unconstrained, problem.values
    X = np.asarray(values.X)
    sums = log_joint_of_sums(values, "dp")
    if len(X) > MOST_ROWS and sums is None:
        return []
    try:
        jax.eval_shape(values.component.cache, values.component.empty())
    except (ValueError, TypeError, NotImplementedError):  # single rows have no density
        return []
    if len(X) > MOST_ROWS:
        some = np.sort(rng.choice(len(X), MOST_ROWS, replace=False))
        X, given = X[some], None if given is None else canonical_labels(given[some])
        sums = log_joint_of_sums(values._replace(X=X), "dp")
    objective, arrays = (LOG_JOINTS["dp"], labels_and_slots) if sums is None else sums
    limit = min(len(X), problem.sites.max_clusters or len(X))

    def partition(values: MixtureValues, last: np.ndarray | None) -> np.ndarray:
        orders = np.stack([rng.permutation(len(X)) for _ in range(ORDERS)])
        starts = np.full((ORDERS, len(X)), -1)
        if last is not None:
            starts[0] = last
        found = descend(values._replace(X=X), orders, starts, limit, 30, merge=True)
        return found.labels[int(found.log_joint.argmax())]

    reached = []
    begun = [(start, None) for start in (problem.prior.start, *problem.prior.starts)]
    for start, labels in begun if given is None else [(problem.prior.start, given), *begun]:
        problem.unconstrained, value = start, -np.inf
        if labels is not None:
            problem.climb(objective, *arrays(_Labels(labels)), max_iter=STEPS)
        for _ in range(ROUNDS):
            labels = partition(problem.values, labels)
            value = problem.climb(objective, *arrays(_Labels(labels)), max_iter=STEPS)
        reached.append((value, problem.unconstrained))
    problem.unconstrained = before
    return [max((each for each in reached if np.isfinite(each[0])), key=lambda each: each[0], default=(0.0, before))[1]]
