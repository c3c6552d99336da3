"""Partitions and hyperparameters found by turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.partitions.capacities import in_steps

__all__ = ["LEAST_RISE", "alternate"]

LEAST_RISE = 1e-3
"""Rise in nats under which hyperparameters count as settled."""


@runtime_checkable
class _Labelled(Protocol):
    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """(n,) clusters, from 0."""


_R = TypeVar("_R", bound=_Labelled)


def alternate(
    problem: Problem,
    find: Callable[[MixtureValues, Int[np.ndarray, " n"] | None], _R],
    objective: Callable[[MixtureValues, Int[Array, " n"], Float[Array, " slots"]], Float[Array, ""]],
    max_rounds: int,
) -> _R:
    """Partitions and gradient steps on the hyperparameters by turns, as long as objective + log prior rises.

    Parameters
    ----------
    problem
        Left at the hyperparameters of the result.
    find
        Gives a fit at hyperparameter values; also takes the labels found before, None at first.
    objective
        Of values, labels and an array as long as there are slots for clusters (nats).
    max_rounds
        Most rounds after the first fit; 0 leaves the hyperparameters as they are.

    Returns
    -------
    fit
        Of the best round.
    """
    best = find(problem.values, None)

    def fixed(fit: _R) -> tuple[Array, Array]:
        return jnp.asarray(fit.labels), jnp.zeros(in_steps(int(fit.labels.max()) + 1))

    def value(fit: _R) -> float:
        at = objective(problem.values, *fixed(fit))
        return float(at + problem.prior.log_prob(problem.hyperparameters))

    reached = value(best) if max_rounds else -np.inf
    for _ in range(max_rounds):
        before = problem.unconstrained
        problem.climb(objective, *fixed(best))
        proposal = find(problem.values, best.labels)
        gain = value(proposal) - reached
        if not gain > 0:
            problem.unconstrained = before
            break
        best, reached = proposal, reached + gain
        if gain < LEAST_RISE:
            break
    return best
