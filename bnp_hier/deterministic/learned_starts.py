"""Hyperparameters from which estimators start: fitted to hard partitions of a sample of the rows, from several starts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from bnp_hier.deterministic.hard_assignment.free_energies import log_joint_objective
from bnp_hier.deterministic.hard_assignment.splits import seeded, spaces_of
from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.search import anneal, descend
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.labels import canonical_labels

__all__ = ["starting_hyperparameters"]

MOST_ROWS = 2000
"""Default size of the sample of the rows."""

ORDERS = 2
"""Number of orders of the rows in which partitions are built at each of the starts."""

HOT, COLD = (3.0, 8.0), 0.5
"""Temperatures of the first sweep of each annealed run, and of the last sweeps."""

SWEEPS = 25
"""Number of sweeps of an annealed run."""

KEPT = 2
"""Number of the best starts that get a second partition."""


SEEDINGS = (8, 32)
"""Numbers of clusters of k-means++ seedings, which have more clusters, and narrower ones, than the other starts lead to."""


class _Labels(NamedTuple):
    labels: Int[np.ndarray, " n"]


def starting_hyperparameters(
    problem: Problem, rng: np.random.Generator, given: Int[np.ndarray, " n"] | None = None, most_rows: int = MOST_ROWS
) -> tuple[list[dict[str, Any]], Int[np.ndarray, " n"] | None]:
    """Return the unconstrained hyperparameters from which an estimator starts: those with the highest log joint found.

    At the prior medians and at each of the values that the sites declare (`Hyperprior.starts`), a partition of at most
    `most_rows` random rows is found by single-row moves and annealed Gibbs sweeps, and followed by gradient steps on the log
    joint + log prior. The partition with one cluster is one more start. The two best are moved and fitted once more. Further
    starts are k-means++ seedings, which are fitted as they are, moved without annealed sweeps, and fitted again; the best of
    them once more if no other start was better. If the family has no single-row moves, the result is the medians and the
    declared values. The problem is left as it was.

    Parameters
    ----------
    problem
        The problem, with at least one hyperparameter.
    rng
        Generator for the sample and the orders of its rows.
    given
        Labels of all rows; the hyperparameters fitted to them, from the medians and from the last declared values, are further
        starts.
    most_rows
        Size of the sample, for data with more rows.

    Returns
    -------
    starts, labels
        The hyperparameters, and the labels for which they were found; None if these are of a sample only.
    """
    before, values = problem.unconstrained, problem.values
    begun = [problem.prior.start, *problem.prior.starts]
    X = np.asarray(values.X)
    try:
        jax.eval_shape(values.component.cache, values.component.empty())
    except (ValueError, TypeError, NotImplementedError):  # single rows have no density
        return begun, None
    sampled = len(X) > most_rows
    if sampled:
        if values.component.anchor() is None:  # the objective needs all rows
            return begun, None
        some = np.sort(rng.choice(len(X), most_rows, replace=False))
        X, given = X[some], None if given is None else canonical_labels(given[some])
    objective = log_joint_objective(problem, "dp", X if sampled else None)
    limit = min(len(X), problem.sites.max_clusters or len(X))

    def partition(start: dict[str, Any], last: np.ndarray | None = None) -> np.ndarray:
        problem.unconstrained = start
        orders = np.stack([rng.permutation(len(X)) for _ in range(ORDERS)])
        starts = np.full((ORDERS, len(X)), -1)
        if last is not None:
            starts[0] = last
        values = problem.values._replace(X=X)
        found = descend(values, orders, starts, limit, 30, merge=True)
        best = found.best
        if current_deadline().is_past():
            return best
        # single-row moves seldom lead from clusters of one shape to those of another
        temperatures = np.linspace(HOT, COLD, SWEEPS, axis=1)
        most = min(limit, 1 << int(best.max() + 4).bit_length())  # when hot, rows would open clusters without end
        heated = anneal(values, np.stack([best] * len(HOT)), temperatures, rng.random((len(HOT), SWEEPS, 2, len(X))), most)
        cooled = descend(values, orders[: len(HOT)], heated, limit, 30, merge=True)
        return max((found, cooled), key=lambda each: each.log_joint.max()).best

    def climbed(start: dict[str, Any], labels: np.ndarray) -> tuple[float, dict[str, Any], np.ndarray]:
        problem.unconstrained = start
        objective.ascend(_Labels(labels))
        return objective.value(_Labels(labels)), problem.unconstrained, labels

    def best(reached: list[tuple[float, dict[str, Any], np.ndarray]]) -> list[tuple[float, dict[str, Any], np.ndarray]]:
        return sorted((each for each in reached if np.isfinite(each[0])), key=lambda each: -each[0])

    def moved(start: dict[str, Any], labels: np.ndarray) -> np.ndarray:
        problem.unconstrained = start
        order = own.permutation(len(X))
        return descend(problem.values._replace(X=X), order[None], labels[None], limit, 30, merge=True).best

    own, points = rng.spawn(1)[0], spaces_of(values.component, X)[-1]  # in the scales of the prior
    seeds = [canonical_labels(seeded(points, k, own)) for k in SEEDINGS if 4 * k <= len(X) and k <= limit]
    # all partitions first: their numbers of clusters determine the shapes for which the objective is compiled
    first = [(begun[0], partition(begun[0]))]
    first += [(start, partition(start)) for start in begun[1:] if not current_deadline().is_past()]
    first.append((problem.prior.start, np.zeros(len(X), int)))  # one cluster is seldom reached from many
    if given is not None:
        first += [(start, given) for start in (begun[0], begun[-1])]
    problem.most_clusters = max(labels.max() + 1 for labels in [*seeds, *(labels for _, labels in first)])
    deadline = current_deadline()
    reached = [climbed(*first[0])]
    reached = best([*reached, *(climbed(start, labels) for start, labels in first[1:] if not deadline.is_past())])
    again, many = [], []
    if not deadline.is_past():
        again = [climbed(start, partition(start, labels)) for _, start, labels in reached[:KEPT]]
    if not deadline.is_past():
        many = [climbed(problem.prior.start, labels) for labels in seeds]
        many = best([climbed(start, moved(start, labels)) for _, start, labels in many])
    if many and (not reached or many[0][0] > reached[0][0]):
        again.append(climbed(many[0][1], moved(*many[0][1:])))
    problem.unconstrained = before
    found = best([*reached, *many, *again])
    if not found:
        return begun, None
    _, start, labels = found[0]
    return [start], None if sampled else labels
