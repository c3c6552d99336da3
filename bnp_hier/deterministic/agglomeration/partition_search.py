"""Search for good hard partitions near given ones by single-row moves, annealed Gibbs runs and crossover."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate, cluster_leaves
from bnp_hier.partitions.joint_density import log_joint
from bnp_hier.partitions.seating import Prior
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import check_seated, sweep
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.labels import first_come_labels

__all__ = ["Descent", "Effort", "descend", "search_partitions"]

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


class Descent(NamedTuple):
    """Result of descents from several partitions.

    - **labels** - (r, n) partitions, labelled in order of appearance.
    - **log_joint** - (r,) log p(X, partition).
    - **trace** - (r, max_iter) log joint after each sweep, NaN after the last.
    - **sweeps** - (r,) number of sweeps until one brought no gain, or max_iter.
    - **converged** - (r,) whether the last sweep moved no row, or moved rows only between equally good clusters.
    - **refused** - (r,) how often a row needed a new cluster but no slot was free.
    """

    labels: Int[Array, "r n"]
    log_joint: Float[Array, " r"]
    trace: Float[Array, "r sweeps"]
    sweeps: Int[Array, " r"]
    converged: Array
    refused: Int[Array, " r"]


@partial(jax.jit, static_argnames=("slots", "max_iter"))
def descend(
    component: Component,
    X: Float[Array, "n d"],
    prior: Prior,
    orders: Int[Array, "r n"],
    starts: Int[Array, "r n"],
    slots: int,
    max_iter: int,
) -> Descent:
    """Improve partitions by sweeps of single-row moves in fixed orders until a sweep brings no gain.

    The log joint never decreases. In `starts`, a label of −1 marks a row that is not assigned yet; all labels are below
    `slots`.
    """
    rows = component.suff_stats(X)
    seating = Seating(component, rows, prior)

    def one(order: Int[Array, " n"], start: Int[Array, " n"]) -> Descent:
        def goes_on(state: Any) -> Array:
            _, _, gained, sweeps, _ = state
            return gained & (sweeps < max_iter)

        def step(state: Any) -> Any:
            labels, trace, _, sweeps, refused = state
            new, hits = sweep(seating, labels, order, None, slots)
            reached = log_joint(component, rows, new, prior, slots)
            # rows that fit two clusters equally well could move back and forth forever; `not <=` continues after NaN, so that
            # the check of the labels finds it
            gained = (new != labels).any() & ((sweeps == 0) | ~(reached <= trace[sweeps - 1]))
            return new, trace.at[sweeps].set(reached), gained, sweeps + 1, refused + hits

        trace = jnp.full(max_iter, jnp.nan)
        state = (start, trace, jnp.bool_(True), jnp.int64(0), jnp.int32(0))
        labels, trace, gained, sweeps, refused = jax.lax.while_loop(goes_on, step, state)
        labels = first_come_labels(labels, slots)
        return Descent(labels, log_joint(component, rows, labels, prior, slots), trace, sweeps, ~gained, refused)

    return jax.vmap(one)(orders, starts)


@partial(jax.jit, static_argnames=("slots", "sweeps"))
def _anneal(
    component: Component,
    X: Float[Array, "n d"],
    prior: Prior,
    starts: Int[Array, "r n"],
    key: Array,
    slots: int,
    sweeps: int,
) -> Int[Array, "r n"]:
    """Run Gibbs sweeps from each partition at decreasing temperatures."""
    seating, n = Seating(component, component.suff_stats(X), prior), X.shape[0]
    temperatures = jnp.linspace(jnp.resize(jnp.asarray(HOT), starts.shape[:1]), COLD, sweeps, axis=1)

    def one(labels: Array, temperatures: Array, key: Array) -> Array:
        def step(labels: Array, turn: tuple[Array, Array]) -> tuple[Array, None]:
            key, temperature = turn
            draws = jax.random.uniform(key, (2, n))
            new, _ = sweep(seating, labels, jnp.argsort(draws[0]), draws[1], slots, temperature)
            return new, None

        return jax.lax.scan(step, labels, (jax.random.split(key, sweeps), temperatures))[0]

    return jax.vmap(one)(starts, temperatures, jax.random.split(key, starts.shape[0]))


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


def _slots(labels: np.ndarray) -> int:
    """Number of slots for the clusters of the partitions and a few more; a power of two, so that few programs are compiled."""
    return min(labels.shape[1], 1 << int(labels.max() + 4).bit_length())


def _cross(
    component: Component, X: np.ndarray, concentration: float, one: Int[np.ndarray, " n"], other: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Cross two partitions: rows that share a cluster in both stay together, and these blocks are merged greedily.

    Different annealed runs recover different clusters correctly. Greedy merges of their common blocks combine the better
    parts of both, which single-row moves cannot do because the partitions in between are tens of nats less probable.
    """
    _, pieces = np.unique(one * (other.max() + 1) + other, return_inverse=True)
    merges, log_odds, _ = agglomerate(component, cluster_leaves(component, X, pieces), concentration)
    return Dendrogram(merges, log_odds).cut()[pieces]


def search_partitions(
    component: Component,
    X: Float[np.ndarray, "n d"],
    concentration: float,
    starts: Int[np.ndarray, "r n"],
    key: Array,
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
    key
        JAX key.
    effort
        Length of the search.

    Returns
    -------
    labels, log_joint
        At most 16 distinct partitions in decreasing order of probability, labelled in order of appearance, and their
        log p(X, partition) (nats).
    """
    data, prior = jnp.asarray(X), Prior(jnp.asarray(concentration, float), jnp.zeros(()))
    n = len(X)

    def repaired(labels: np.ndarray, slots: int) -> Descent:
        order = np.broadcast_to(np.arange(n), labels.shape)
        check_seated(component, labels)
        descent = descend(component, data, prior, jnp.asarray(order), jnp.asarray(labels), slots, MOST_SWEEPS)
        check_seated(component, np.asarray(descent.labels))
        if np.isnan(descent.log_joint).any():
            raise ValueError(
                f"log p(X, partition) is NaN: the log marginal likelihood of {type(component).__name__} is NaN for a cluster"
            )
        return descent

    empty = _Population(np.empty((0, n), int), np.empty(0))
    found = empty.joined(repaired(starts, _slots(starts)))
    key_anneal, key_cross = jax.random.split(key)
    best = np.resize(found.labels[:ANNEALED], (RUNS, n))
    slots = _slots(best)
    annealed = _anneal(component, data, prior, jnp.asarray(best), key_anneal, slots, effort.sweeps)
    found = found.joined(repaired(np.asarray(annealed), slots))

    idle = 0
    draws = np.asarray(jax.random.uniform(key_cross, (effort.generations, POPULATION**2)))
    for draw in draws:
        first, second = np.tril_indices(len(found.labels), -1)
        if len(first) == 0 or idle == effort.idle:
            break
        pairs = np.argsort(draw[: len(first)])[:RUNS]
        offspring = [_cross(component, X, concentration, *found.labels[[first[i], second[i]]]) for i in pairs]
        labels = np.resize(np.stack(offspring), (RUNS, n))
        before = found.log_joint[0]
        found = found.joined(repaired(labels, _slots(labels)))
        idle = 0 if found.log_joint[0] > before + LEAST_GAIN else idle + 1
    return found.labels, found.log_joint
