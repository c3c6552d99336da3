"""Evidence bound of a fixed tree as a function of the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.deterministic.agglomeration.tree_evidence import (
    evidence_of,
    node_weights,
    padded_tree,
    statistics_of_nodes,
    tree_bound,
)
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Objective, Problem, by_gradient
from bnp_hier.partitions.capacities import in_steps, more_slots

__all__ = ["bound_of", "tree_objective"]

STEPS = 10
"""Maximum number of expectation-maximisation steps for a tree."""

LEAST_GAIN = 0.05
"""Gain of a step (nats) below which no further one is made."""

LEAST_WEIGHT = 1e-10
"""Probability of being a cluster from which a node is counted."""


def bound_of(values: MixtureValues, children: Int[np.ndarray, "m 2"]) -> float:
    """Bound of a fixed tree at the hyperparameters in `values` (nats)."""
    return evidence_of(values.component, np.asarray(values.X), float(values.concentration), children).bound


def tree_objective(problem: Problem) -> Objective[Int[np.ndarray, "m 2"]]:
    """Bound + log prior of a tree, as its children.

    If the family's statistics can be converted between hyperparameters, the ascent is by expectation-maximisation: the bound
    is the log of a sum over the partitions that are consistent with the tree, and their posterior expectation of the log joint
    needs only the statistics of the nodes that may be clusters. No step lowers the bound, and each costs much less than a
    derivative of the bound, which passes through all nodes one after another.
    """
    anchor = problem.values.component.anchor()
    if anchor is None:
        return by_gradient(problem, _bound_at, padded_tree)
    anchor = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), anchor)
    expected = _expected_log_joint(jax.tree.structure((anchor, anchor.empty())))

    def value(children: Int[np.ndarray, "m 2"]) -> float:
        return bound_of(problem.values, children) + float(problem.prior.log_prob(problem.hyperparameters))

    def arrays(children: Int[np.ndarray, "m 2"]) -> tuple[Any, ...]:
        values = problem.values
        X = np.asarray(values.X)
        evidence = evidence_of(values.component, X, float(values.concentration), children)
        weights = node_weights(evidence.log_odds, children)
        nodes = np.flatnonzero(weights > LEAST_WEIGHT)
        problem.most_clusters = max(problem.most_clusters, len(nodes))
        extra = in_steps(problem.most_clusters) - len(nodes)
        stats = more_slots(statistics_of_nodes(anchor, X, children, nodes), extra)
        return (np.pad(weights[nodes], (0, extra)), np.array(float(len(X))), *jax.tree.leaves((anchor, stats)))

    def ascend(children: Int[np.ndarray, "m 2"]) -> None:
        reached = value(children)
        for _ in range(STEPS):
            before = problem.unconstrained
            problem.climb(expected, *arrays(children))
            gain = value(children) - reached
            if not gain > 0:  # nodes of negligible weight were left out
                problem.unconstrained = before
                break
            reached += gain
            if gain < LEAST_GAIN:
                break

    return Objective(value, ascend)


@lru_cache(maxsize=64)
def _expected_log_joint(structure: Any) -> Callable[..., Float[Array, ""]]:
    """Expected complete log joint under node weights ω (EM lower bound), up to a constant.

    Σ_k ω_k (log α + log p(D_k)) + lgamma(α) − lgamma(n + α). Cached per family to avoid recompilation.
    """

    def objective(values: MixtureValues, weights: Float[Array, " k"], n: Float[Array, ""], *leaves: Array) -> Float[Array, ""]:
        source, stats = jax.tree.unflatten(structure, leaves)
        alpha = jnp.asarray(values.concentration)
        marginals = values.component.log_marginal_of_restated(stats, source)
        return (weights * (jnp.log(alpha) + marginals)).sum() - log_gamma_ratio(alpha, n)

    return objective


def _bound_at(values: MixtureValues, children: Int[Array, "m 2"], items: Int[Array, ""]) -> Float[Array, ""]:
    """Bound of a padded tree, with derivatives in the hyperparameters."""
    return tree_bound(values.component, values.X, values.concentration, children, items)
