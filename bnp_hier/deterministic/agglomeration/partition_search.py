"""Search for good hard partitions near given ones by single-row moves, annealed Gibbs runs and crossover."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import cluster_leaves
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.partitions.search import Descent, anneal, descend
from bnp_hier.trees import Dendrogram

__all__ = ["Effort", "search_partitions"]

RUNS = 8
"""Number of annealed Gibbs runs, and of crossovers per generation."""

HOT, COLD = (1.5, 4.0), 0.3
"""Initial temperatures of the annealed runs, used in turn, and their final temperature; 1 is the posterior itself."""

ANNEALED = 2
"""Maximum number of partitions from which annealed runs start."""

POPULATION = 16
"""Maximum number of partitions in the population."""

MOST_SWEEPS = 100
"""Maximum number of sweeps per descent."""

LEAST_GAIN = 1e-6
"""Gain in nats below which a generation counts as idle."""


class Effort(NamedTuple):
    """Length of the search.

    - **sweeps** - number of sweeps per annealed run.
    - **generations** - maximum number of generations of crossover.
    - **idle** - number of generations without improvement after which crossover stops.
    """

    sweeps: int
    generations: int
    idle: int


class _Population(NamedTuple):
    """Distinct partitions in decreasing order of probability, and their log p(X, partition)."""

    labels: Int[np.ndarray, "r n"]
    log_joint: Float[np.ndarray, " r"]

    def joined(self, other: Descent) -> _Population:
        """Merge two populations and keep the most probable partitions."""
        labels, first = np.unique(np.concatenate([self.labels, other.labels]), axis=0, return_index=True)
        log_joint = np.concatenate([self.log_joint, other.log_joint])[first]
        order = np.argsort(-log_joint, kind="stable")[:POPULATION]
        return _Population(labels[order], log_joint[order])


def _cross(
    component: Component, X: np.ndarray, concentration: float, one: Int[np.ndarray, " n"], other: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Cross two partitions: rows that share a cluster in both stay together, and these blocks are merged greedily.

    Different annealed runs recover different clusters correctly. Greedy merges of their common blocks combine the better
    parts of both, which single-row moves cannot do because the partitions in between are tens of nats less probable.
    """
    _, pieces = np.unique(one * (other.max() + 1) + other, return_inverse=True)
    merges, log_odds, _ = agglomerate(component, cluster_leaves(X, pieces), concentration)
    return Dendrogram(merges, log_odds).cut()[pieces]


def search_partitions(
    component: Component,
    X: Float[np.ndarray, "n d"],
    concentration: float,
    starts: Int[np.ndarray, "r n"],
    rng: np.random.Generator,
    effort: Effort,
) -> tuple[Int[np.ndarray, "p n"], Float[np.ndarray, " p"]]:
    """Find the most probable partitions by a memetic search. Call in float64.

    The search makes a descent from every start, then annealed Gibbs runs from the best two results, each followed by a
    descent, and then generations in which random pairs of the best partitions are crossed and the offspring is improved by
    descents.

    Parameters
    ----------
    component, X, concentration
        Component, data (n, d), and α of the Dirichlet process.
    starts
        (r, n) partitions, labelled from 0.
    rng
        Random number generator.
    effort
        Length of the search.

    Returns
    -------
    labels, log_joint
        At most 16 distinct partitions in decreasing order of probability, labelled in order of appearance, and their
        log p(X, partition) (nats).
    """
    values, n = MixtureValues(Prior(concentration), component, X), len(X)

    def repaired(labels: np.ndarray) -> Descent:
        order = np.broadcast_to(np.arange(n), labels.shape)
        descent = descend(values, order, labels, n, MOST_SWEEPS)
        if np.isnan(descent.log_joint).any():
            raise ValueError(
                f"log p(X, partition) is NaN: the log marginal likelihood of {type(component).__name__} is NaN for a cluster"
            )
        return descent

    empty = _Population(np.empty((0, n), int), np.empty(0))
    found = empty.joined(repaired(starts))
    best = np.resize(found.labels[:ANNEALED], (RUNS, n))
    temperatures = np.linspace(np.resize(HOT, RUNS), COLD, effort.sweeps, axis=1)
    draws = rng.random((RUNS, effort.sweeps, 2, n))
    # at high temperatures, rows would open clusters without end
    limit = min(n, 1 << int(best.max() + 4).bit_length())
    found = found.joined(repaired(anneal(values, best, temperatures, draws, limit)))

    idle = 0
    for _ in range(effort.generations):
        first, second = np.tril_indices(len(found.labels), -1)
        if len(first) == 0 or idle == effort.idle:
            break
        pairs = rng.permutation(len(first))[:RUNS]
        offspring = [_cross(component, X, concentration, *found.labels[[first[i], second[i]]]) for i in pairs]
        before = found.log_joint[0]
        found = found.joined(repaired(np.resize(np.stack(offspring), (RUNS, n))))
        idle = 0 if found.log_joint[0] > before + LEAST_GAIN else idle + 1
    return found.labels, found.log_joint
