"""Fits and hyperparameters found by turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.capacities import in_steps

__all__ = ["LEAST_RISE", "alternate", "labels_and_slots"]

LEAST_RISE = 1e-3
"""Rise in nats under which hyperparameters count as settled."""


_F = TypeVar("_F")


def alternate(
    problem: Problem,
    fit: _F,
    refit: Callable[[MixtureValues, _F], _F],
    objective: Callable[..., Float[Array, ""]],
    arrays: Callable[[_F], tuple[Array, ...]],
    max_rounds: int,
) -> tuple[_F, list[float]]:
    """Gradient steps on the hyperparameters and new fits by turns, as long as objective + log prior rises.

    Parameters
    ----------
    problem
        Left at the hyperparameters of the result.
    fit
        The first fit, at the problem's hyperparameters.
    refit
        A new fit at hyperparameter values, from the one before.
    objective
        Of values and the arrays of a fit (nats).
    arrays
        What the objective needs of a fit: what stays while the hyperparameters move.
    max_rounds
        Most rounds after the first fit; 0 leaves the hyperparameters as they are.

    Returns
    -------
    fit, trace
        Of the best round; and objective + log prior of every round that was kept, the first fit's before them. It never falls.
    """

    def reached(fit: _F) -> float:
        return float(objective(problem.values, *arrays(fit)) + problem.prior.log_prob(problem.hyperparameters))

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
    """A fit with labels."""

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """(n,) clusters, from 0."""


def labels_and_slots(fit: Labelled) -> tuple[Array, Array]:
    """The arrays of a hard partition: its labels, and one entry for each slot for a cluster."""
    return jnp.asarray(fit.labels), jnp.zeros(in_steps(int(fit.labels.max()) + 1))
