"""Learned hyperparameters: where estimators start, how they alternate fits with gradient steps, and what they warn of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Int

from bnp_hier.deterministic.hard_assignment.free_energies import log_joint_objective
from bnp_hier.deterministic.hard_assignment.splits import seeded, spaces_of
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Objective, Problem
from bnp_hier.partitions.search import anneal, descend
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.labels import canonical_labels

__all__ = ["alternate", "learn", "starting_hyperparameters", "warn_of_edges", "warn_of_one_cluster"]

_F = TypeVar("_F")

LEAST_RISE = 1e-2
"""Increase of the objective (nats) below which the hyperparameters count as converged."""

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

FAR = 1e-6
"""Prior probability of a tail in which a learned value counts as being at the edge: almost five standard deviations."""

FEWEST = 20
"""Rows below which a single cluster is no surprise."""


def alternate(
    problem: Problem, fit: _F, refit: Callable[[MixtureValues, _F], _F], objective: Objective[_F], max_rounds: int
) -> tuple[_F, list[float]]:
    """Alternate gradient steps on the hyperparameters with new fits as long as objective + log prior increases.

    Parameters
    ----------
    problem
        The problem; on return it has the hyperparameters of the returned fit.
    fit
        The first fit, at the problem's current hyperparameters.
    refit
        Computes a new fit from hyperparameter values and the previous fit.
    objective
        The objective.
    max_rounds
        Maximum number of rounds after the first fit; 0 leaves the hyperparameters unchanged.

    Returns
    -------
    fit, trace
        The fit of the best round, and objective + log prior of the first fit and of every accepted round; the trace never
        decreases.
    """
    trace = [objective.value(fit)] if max_rounds else []
    deadline = current_deadline()
    for _ in range(max_rounds):
        if deadline.is_past():
            break
        before = problem.unconstrained
        objective.ascend(fit)
        proposal = refit(problem.values, fit)
        gain = objective.value(proposal) - trace[-1]
        if not gain > 0:
            problem.unconstrained = before
            break
        fit = proposal
        trace.append(trace[-1] + gain)
        if gain < LEAST_RISE:
            break
    return fit, trace


def learn(
    problem: Problem,
    fit: Callable[[MixtureValues], _F],
    refit: Callable[[MixtureValues, _F], _F],
    objective: Objective[_F],
    max_rounds: int,
    starts: Iterable[dict[str, Any]],
) -> tuple[_F, list[float]]:
    """Fit at several hyperparameters, and alternate as `alternate` does from the best of them.

    Parameters
    ----------
    problem, refit, objective, max_rounds
        As for `alternate`.
    fit
        Computes a fit from hyperparameter values.
    starts
        Unconstrained hyperparameters to start from; not needed if there are no rounds.

    Returns
    -------
    fit, trace
        As from `alternate`. The last value of the trace is at least that of the fit at every start.
    """
    if not max_rounds:
        return fit(problem.values), []
    best: tuple[float, dict[str, Any], _F] | None = None
    deadline = current_deadline()
    for start in starts:
        if best is not None and deadline.is_past():
            break
        problem.unconstrained = start
        found = fit(problem.values)
        reached = objective.value(found)
        if best is None or reached > best[0] or np.isnan(best[0]):
            best = reached, start, found
    assert best is not None
    _, problem.unconstrained, found = best
    return alternate(problem, found, refit, objective, max_rounds)


class _Labels(NamedTuple):
    labels: Int[np.ndarray, " n"]


class _Start(NamedTuple):
    """Hyperparameters, the labels of the rows to which they were fitted, and log joint + log prior of both (nats)."""

    log_joint: float
    hyperparameters: dict[str, Any]
    labels: Int[np.ndarray, " n"]


class _StartSearch:
    """Searches of partitions and hyperparameters for some rows; the problem keeps the last hyperparameters."""

    def __init__(self, problem: Problem, X: np.ndarray, objective: Objective[Any], rng: np.random.Generator):
        self.problem, self.X, self.objective, self.rng = problem, X, objective, rng
        self.rng_of_moves = rng.spawn(1)[0]
        self.limit = min(len(X), problem.sites.max_clusters or len(X))

    def partition(self, start: dict[str, Any], last: np.ndarray | None = None) -> Int[np.ndarray, " n"]:
        """Find a partition by single-row moves from one cluster after the other, and by annealed sweeps from there."""
        self.problem.unconstrained = start
        n = len(self.X)
        orders = np.stack([self.rng.permutation(n) for _ in range(ORDERS)])
        starts = np.full((ORDERS, n), -1)
        if last is not None:
            starts[0] = last
        values = self.problem.values._replace(X=self.X)
        reached = descend(values, orders, starts, self.limit, 30, merge=True)
        best = reached.best
        if current_deadline().is_past():
            return best
        # single-row moves seldom lead from clusters of one shape to those of another
        temperatures = np.linspace(HOT, COLD, SWEEPS, axis=1)
        most = min(self.limit, 1 << int(best.max() + 4).bit_length())  # when hot, rows would open clusters without end
        heated = anneal(values, np.stack([best] * len(HOT)), temperatures, self.rng.random((len(HOT), SWEEPS, 2, n)), most)
        cooled = descend(values, orders[: len(HOT)], heated, self.limit, 30, merge=True)
        return max((reached, cooled), key=lambda each: each.log_joint.max()).best

    def move(self, start: dict[str, Any], labels: np.ndarray) -> Int[np.ndarray, " n"]:
        """Improve a partition by single-row moves and merges."""
        self.problem.unconstrained = start
        order = self.rng_of_moves.permutation(len(self.X))
        return descend(self.problem.values._replace(X=self.X), order[None], labels[None], self.limit, 30, merge=True).best

    def climb(self, start: dict[str, Any], labels: np.ndarray) -> _Start:
        """Fit the hyperparameters to a partition by gradient steps."""
        self.problem.unconstrained = start
        self.objective.ascend(_Labels(labels))
        return _Start(self.objective.value(_Labels(labels)), self.problem.unconstrained, labels)


def _ranked(starts: Iterable[_Start]) -> list[_Start]:
    """Sort from the highest log joint to the lowest, without those that have none."""
    return sorted((each for each in starts if np.isfinite(each.log_joint)), key=lambda each: -each.log_joint)


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
    medians, *declared = begun = [problem.prior.start, *problem.prior.starts]
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
    deadline = current_deadline()
    search = _StartSearch(problem, X, log_joint_objective(problem, "dp", X if sampled else None), rng)
    points = spaces_of(values.component, X)[-1]  # in the scales of the prior
    numbers = [k for k in SEEDINGS if 4 * k <= len(X) and k <= search.limit]
    seedings = [canonical_labels(seeded(points, k, search.rng_of_moves)) for k in numbers]
    # all partitions first: their numbers of clusters determine the shapes for which the objective is compiled
    first = [(medians, search.partition(medians))]
    first += [(start, search.partition(start)) for start in declared if not deadline.is_past()]
    first.append((medians, np.zeros(len(X), int)))  # one cluster is seldom reached from many
    if given is not None:
        first += [(start, given) for start in (begun[0], begun[-1])]
    problem.most_clusters = max(labels.max() + 1 for labels in [*seedings, *(labels for _, labels in first)])
    reached = [search.climb(*first[0])]
    reached = _ranked([*reached, *(search.climb(*start) for start in first[1:] if not deadline.is_past())])
    again: list[_Start] = []
    seeds: list[_Start] = []
    if not deadline.is_past():
        again = [search.climb(start, search.partition(start, labels)) for _, start, labels in reached[:KEPT]]
    if not deadline.is_past():
        fitted = [search.climb(medians, labels) for labels in seedings]
        seeds = _ranked([search.climb(start, search.move(start, labels)) for _, start, labels in fitted])
    if seeds and (not reached or seeds[0].log_joint > reached[0].log_joint):
        _, start, labels = seeds[0]
        again.append(search.climb(start, search.move(start, labels)))
    problem.unconstrained = before
    best = _ranked([*reached, *seeds, *again])
    if not best:
        return begun, None
    return [best[0].hyperparameters], None if sampled else best[0].labels


def warn_of_edges(problem: Problem) -> None:
    """Warn if learned values lie far in a tail of a prior, where the prior contradicts the data or holds them back.

    Bounded hyperparameters, such as shares, may lie at a bound; priors without a distribution function are left out.
    """
    for name, tail in problem.prior.tails(problem.hyperparameters).items():
        far = np.flatnonzero(np.atleast_1d(tail) < FAR)
        if len(far):
            value = np.atleast_1d(np.asarray(problem.hyperparameters[name])).ravel()
            where = f" (entries {', '.join(map(str, far[:5]))}{', ...' if len(far) > 5 else ''})" if value.size > 1 else ""
            shown = ", ".join(f"{value[k]:.3g}" for k in far[:5])
            warnings.warn(
                f"the learned {name}{where} is {shown}, at the edge of its prior: check the scale of the data, or give this "
                "hyperparameter a wider prior",
                RuntimeWarning,
                stacklevel=4,
            )


def warn_of_one_cluster(rows: int) -> None:
    """Warn that all rows are in one cluster: clusters may overlap too much, or the model be the wrong one to see them."""
    if rows < FEWEST:
        return
    warnings.warn(
        f"all {rows} rows are in one cluster: no more probable partition was found at the learned hyperparameters. Clusters "
        "that overlap or have the same shape may show under another covariance structure (bnp_hier.recommend compares some) or "
        "in the posterior (bnp_hier.PartitionGibbs)",
        UserWarning,
        stacklevel=4,
    )
