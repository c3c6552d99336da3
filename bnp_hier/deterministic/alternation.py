"""Alternation between fits at fixed hyperparameters and gradient steps on the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.capacities import in_steps
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.padding import padded

__all__ = ["LEAST_RISE", "Labelled", "Objective", "alternate", "by_gradient", "labels_and_slots", "learn"]

LEAST_RISE = 1e-2
"""Increase of the objective (nats) below which the hyperparameters count as converged."""


_F = TypeVar("_F")


@dataclass(frozen=True)
class Objective(Generic[_F]):
    """What a fit at fixed hyperparameters maximises, as a function of the hyperparameters.

    - **value** - objective + log prior of a fit at the problem's current hyperparameters (nats).
    - **ascend** - changes the problem's hyperparameters such that this value does not decrease.
    """

    value: Callable[[_F], float]
    ascend: Callable[[_F], object]


def by_gradient(
    problem: Problem, objective: Callable[..., Float[Array, ""]], arrays: Callable[[_F], tuple[ArrayLike, ...]]
) -> Objective[_F]:
    """Objective that is differentiable in the hyperparameters; see `Problem.climb`.

    Parameters
    ----------
    problem
        The problem.
    objective
        Computes the objective (nats) from the model's values, whose rows are padded, and the arrays of a fit.
    arrays
        Extracts the arrays of a fit that the objective needs, padded like the rows; they are held fixed during the gradient
        steps.
    """
    return Objective(
        lambda fit: problem.value(objective, *arrays(fit)),
        lambda fit: problem.climb(objective, *arrays(fit)),
    )


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


@runtime_checkable
class Labelled(Protocol):
    """A fit that has labels."""

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """(n,) cluster labels, from 0."""


def labels_and_slots(fit: Labelled) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " slots"]]:
    """Return the labels of a hard partition, and an array with one entry per cluster slot.

    The labels of padding rows are the number of slots, so that sums by label leave them out.
    """
    slots = in_steps(int(fit.labels.max()) + 1)
    return np.asarray(padded(fit.labels, slots)), np.zeros(slots)
