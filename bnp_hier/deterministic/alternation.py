"""Alternation between fits at fixed hyperparameters and gradient steps on the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.capacities import in_steps
from bnp_hier.utils.padding import padded

__all__ = ["LEAST_RISE", "alternate", "labels_and_slots"]

LEAST_RISE = 1e-3
"""Increase of the objective (nats) below which the hyperparameters count as converged."""


_F = TypeVar("_F")


def alternate(
    problem: Problem,
    fit: _F,
    refit: Callable[[MixtureValues, _F], _F],
    objective: Callable[..., Float[Array, ""]],
    arrays: Callable[[_F], tuple[ArrayLike, ...]],
    max_rounds: int,
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
        Computes the objective (nats) from the model's values, whose rows are padded, and the arrays of a fit.
    arrays
        Extracts the arrays of a fit that the objective needs, padded like the rows; they are held fixed during the gradient
        steps.
    max_rounds
        Maximum number of rounds after the first fit; 0 leaves the hyperparameters unchanged.

    Returns
    -------
    fit, trace
        The fit of the best round, and objective + log prior of the first fit and of every accepted round; the trace never
        decreases.
    """

    def reached(fit: _F) -> float:
        return problem.value(objective, *arrays(fit))

    trace = [reached(fit)] if max_rounds else []
    for _ in range(max_rounds):
        before = problem.unconstrained
        problem.climb(objective, *arrays(fit))
        proposal = refit(problem.values, fit)
        gain = reached(proposal) - trace[-1]
        if not gain > 0:
            problem.unconstrained = before
            break
        fit = proposal
        trace.append(trace[-1] + gain)
        if gain < LEAST_RISE:
            break
    return fit, trace


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
