"""The evidence by a particle filter over partitions."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int
from tqdm import tqdm

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.partitions.seating import Prior, draw_index
from bnp_hier.partitions.split_merge import split_or_merge
from bnp_hier.utils.options import WholeNumber, check_options
from bnp_hier.utils.randomness import random_key

__all__ = ["LARGEST_SPREAD", "SMCEstimate", "smc"]

LARGEST_SPREAD = 1.5
"""Nats by which the estimates of different orders may differ before the filter counts as failed."""

ROUGH_BELOW = 10
"""Orders below which the verdict calls the standard error rough."""

FIRST_CAPACITY = 16
"""Cluster slots tried first; doubled until no particle lacks one."""

RESAMPLE_BELOW = 0.5
"""Share of the particles below which their effective sample size makes them resampled."""

MOVES = 5
"""Split-merge moves in each round of rejuvenation."""


class SMCEstimate(NamedTuple):
    """Estimate of the log evidence.

    - **value** - log of the mean, over orders, of the unbiased estimates of p(X) (nats).
    - **standard_error** - of `value`, by the delta method from the variation between orders (nats).
    - **orders** - log estimate of each random order of the rows (nats).
    - **spread** - largest minus smallest of `orders` (nats).
    - **failed** - whether the spread is too large for the value to be trusted.
    - **verdict** - the same in words.
    """

    value: float
    standard_error: float
    orders: Float[np.ndarray, " orders"]
    spread: float
    failed: bool
    verdict: str


def smc(
    model: Model,
    X: ArrayLike,
    key: int | Array = 0,
    *,
    num_particles: int = 1000,
    num_orders: int = 4,
    rejuvenation: int = 30,
    progress_bar: bool = True,
) -> SMCEstimate:
    """Log evidence log p(X) of a mixture by a particle filter; hyperparameters with priors sit at their medians.

    Parameters
    ----------
    model
        NumPyro model with one partition site (Dirichlet process or Pitman-Yor) and one observed `ConjugateMixture` on it.
    X
        Data, (n, d).
    key
        JAX key or whole number.
    num_particles
        Partitions carried along.
    num_orders
        Random orders of the rows, at least 2, each with a filter of its own.
    rejuvenation
        Rounds of moves in each filter, spread evenly over the rows; a round is five merge-split moves and one Gibbs sweep
        over the rows seen so far. 0 is quicker and much more variable.
    progress_bar
        Whether to show a progress bar over the orders.

    Returns
    -------
    estimate
        Value and standard error first (nats); in float64.

    Raises
    ------
    ValueError, TypeError
        If an option, the model or the data are unfit.

    Notes
    -----
    Rows enter one at a time. Each particle's weight is multiplied by the row's predictive density under its partition, and
    the row's label is drawn from prior × predictive (the sequential imputation of MacEachern, Clyde & Liu 1999; for
    mixtures, Fearnhead 2004). When the effective sample size of the weights falls below half the particles these are
    resampled, systematically, before the label is drawn. On a fixed schedule the particles are moved by kernels that keep
    the posterior of the rows seen so far (Gilks & Berzuini 2001). Neither biases the estimate of p(X), whatever the number
    of particles; its logarithm errs on the low side. Moving particles only when they were resampled would bias it, because
    the kernels keep the posterior, not the particles that happen to call for resampling.

    A run in which some particle lacks a free slot is repeated with twice the slots and the same random numbers, up to the
    number of rows or to the `max_clusters` that the model declares: the result is that of unlimited slots.

    The filter fails silently on hard data, all orders being too low by similar amounts; compare with `tree_bound`, as
    `table` does.
    """
    check_options(
        "smc",
        {
            "num_particles": [WholeNumber()],
            "num_orders": [WholeNumber(2)],
            "rejuvenation": [WholeNumber(0)],
            "progress_bar": ["boolean"],
        },
        locals(),
    )
    with jax.enable_x64(True):
        problem = Problem(model, X, min_rows=1)
        values = problem.values
        prior = Prior(jnp.asarray(values.concentration, float), jnp.asarray(values.discount, float))
        n = problem.X.shape[0]
        limit = min(n, problem.sites.max_clusters or n)
        slots = min(FIRST_CAPACITY, limit)
        rounds = jnp.asarray(_schedule(n, rejuvenation))
        keys = jax.random.split(random_key(key), num_orders)
        orders = []
        for key_order in tqdm(keys, desc="SMC", unit="order", disable=not progress_bar, leave=False):
            while True:
                log_evidence, full = _filter(
                    values.component,
                    values.X,
                    prior,
                    key_order,
                    rounds,
                    slots < limit,
                    RESAMPLE_BELOW,
                    num_particles,
                    slots,
                )
                if slots == limit or not bool(full):
                    break
                slots = min(2 * slots, limit)
            orders.append(float(log_evidence))
    if np.isnan(orders).any():
        raise ValueError(
            f"the estimate from order {int(np.isnan(orders).argmax())} of the rows is NaN: {type(values.component).__name__} "
            "gives some rows no log density given others"
        )
    return _combine(np.array(orders))


def _schedule(n: int, rejuvenation: int) -> Int[np.ndarray, " n"]:
    """Rounds of moves after each row: fixed beforehand, and none after the last row, where they are of no use."""
    rounds = np.zeros(n, dtype=np.int64)
    if n > 2:
        seen = 2 + ((n - 2) * (np.arange(rejuvenation) + 0.5) / max(rejuvenation, 1)).astype(int)
        np.add.at(rounds, seen - 1, 1)
    return rounds


def _combine(orders: Float[np.ndarray, " orders"]) -> SMCEstimate:
    """Average of unbiased estimates of p(X), given their logarithms."""
    peak, spread = orders.max(), float(np.ptp(orders))
    ratios = np.exp(orders - peak)
    mean, error = ratios.mean(), ratios.std(ddof=1) / np.sqrt(len(orders))
    failed = not spread <= LARGEST_SPREAD  # also when it is not a number
    if failed:
        verdict = (
            f"failed: the orders of the rows differ by {spread:.1f} nats, more than {LARGEST_SPREAD}; raise num_particles or "
            "rejuvenation"
        )
    else:
        verdict = f"{len(orders)} orders of the rows agree within {spread:.2g} nats"
        if len(orders) < ROUGH_BELOW:
            verdict += "; the standard error from so few orders is rough"
    return SMCEstimate(float(peak + np.log(mean)), float(error / mean), orders, spread, failed, verdict)


class _Particle(NamedTuple):
    """A partition of the rows seen so far, in K slots; clusters fill the first that is free.

    - **labels** - (n,) slots, −1 for rows not yet seen; rows in the order of the visit.
    - **counts** - (K,) cluster sizes.
    - **caches** - the component's cache of each cluster.
    """

    labels: Int[Array, "*particles n"]
    counts: Float[Array, "*particles k"]
    caches: Statistics


def _take(tree: Any, index: Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _put(tree: Any, index: Array, value: Any) -> Any:
    return jax.tree.map(lambda leaf, new: leaf.at[index].set(new), tree, value)


def _choices(
    component: Component, prior: Prior, particle: _Particle, row: Statistics
) -> tuple[Float[Array, " k"], Float[Array, ""], Bool[Array, ""]]:
    """Seating weight × predictive of a row at each slot, over exp(peak); the peak (nats); and whether no slot is free.

    The seating weights lack their denominator, α + (number of rows seated).
    """
    counts = particle.counts
    occupied = counts > 0
    clusters = occupied.sum(dtype=counts.dtype)
    opens = (jnp.arange(counts.shape[0]) == jnp.argmin(occupied)) & ~occupied
    # with nothing seated yet the only choice is a new cluster, whatever the concentration
    opening = jnp.where(clusters > 0, prior.concentration + clusters * jnp.asarray(prior.discount), 1.0)
    predictive = component.cached_log_predictive(particle.caches, row)
    predictive = jnp.where(occupied | opens, predictive, -jnp.inf)
    peak = predictive.max()
    weights = jnp.where(occupied, counts - prior.discount, opening) * jnp.exp(predictive - peak)
    return weights, peak, occupied.all()


def _seat(component: Component, particle: _Particle, row: Statistics, item: Array, slot: Array) -> _Particle:
    """The particle after a row has joined the cluster of a slot."""
    labels, counts, caches = particle
    grown = component.update_cache(_take(caches, slot), row, 1.0)
    return _Particle(labels.at[item].set(slot), counts.at[slot].add(1.0), _put(caches, slot, grown))


def _move(
    component: Component, prior: Prior, particle: _Particle, row: Statistics, item: Array, uniform: Float[Array, ""]
) -> tuple[_Particle, Bool[Array, ""]]:
    """Gibbs step of one seated row; also whether it found no free slot."""
    labels, counts, caches = particle
    slot = labels[item]
    left = counts[slot] - 1.0
    remaining = component.update_cache(_take(caches, slot), row, -1.0)
    # an emptied slot is exactly empty again, without rounding errors
    remaining = jax.tree.map(lambda leaf, zero: jnp.where(left > 0, leaf, zero), remaining, component.cache(component.empty()))
    without = _Particle(labels, counts.at[slot].set(left), _put(caches, slot, remaining))
    weights, _, full = _choices(component, prior, without, row)
    return _seat(component, without, row, item, draw_index(weights, uniform)), full


def _rejuvenate(
    component: Component, prior: Prior, rows: Statistics, particles: _Particle, seated: Array, key: Array
) -> tuple[_Particle, Bool[Array, ""]]:
    """Split-merge moves and a sweep over the seated rows, for every particle; also whether any found no free slot."""
    num_particles, slots = particles.counts.shape
    n = particles.labels.shape[1]
    key_moves, key_sweep = jax.random.split(key)

    def split_merge(labels: Array, key_move: Array) -> tuple[Array, Array]:
        keys = jax.random.split(key_move, num_particles)
        moved, _, refused = jax.vmap(lambda z, k: split_or_merge(component, rows, z, prior, k, slots, seated))(labels, keys)
        return moved, (refused > 0).any()

    def visit(item: Array, carry: tuple[_Particle, Array]) -> tuple[_Particle, Array]:
        particles, full = carry
        move = partial(_move, component, prior)
        particles, hits = jax.vmap(move, (0, None, None, 0))(particles, _take(rows, item), item, uniforms[:, item])
        return particles, full | hits.any()

    labels, refused = jax.lax.scan(split_merge, particles.labels, jax.random.split(key_moves, MOVES))
    # items that lost their cluster to a NaN make the particle's weight NaN
    undefined = ((labels < 0) & (jnp.arange(n) < seated)[None]).any(1)
    counts = jax.vmap(lambda z: jax.ops.segment_sum(jnp.ones(n), z, slots))(labels)
    # from the statistics: rounding errors of earlier updates do not add up
    caches = jax.vmap(lambda z: component.cache(cluster_statistics(rows, z, slots)))(labels)
    caches = jax.tree.map(
        lambda leaf: jnp.where(undefined.reshape(-1, *[1] * (leaf.ndim - 1)), jnp.nan, leaf).astype(leaf.dtype), caches
    )
    uniforms = jax.random.uniform(key_sweep, (num_particles, n))
    return jax.lax.fori_loop(0, seated, visit, (_Particle(labels, counts, caches), refused.any()))


def _systematic(log_weights: Float[Array, " particles"], uniform: Float[Array, ""]) -> Int[Array, " particles"]:
    """Indices of a systematic resample: every particle is expected in proportion to its weight."""
    size = log_weights.shape[0]
    upto = jnp.cumsum(jax.nn.softmax(log_weights))
    points = (jnp.arange(size).astype(uniform.dtype) + uniform) / size
    return jnp.minimum(jnp.searchsorted(upto, points), size - 1)


@partial(jax.jit, static_argnames=("num_particles", "slots"))
def _filter(
    component: Component,
    X: Float[Array, "n d"],
    prior: Prior,
    key: Array,
    rounds: Int[Array, " n"],
    may_grow: ArrayLike,
    threshold: ArrayLike,
    num_particles: int,
    slots: int,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Log estimate of p(X) from one random order of the rows (nats); and whether a slot was lacking, so that it is void.

    `rounds` of moves follow each row; `threshold` is the share of the particles below which their effective size makes them
    resampled.

    The random numbers used do not depend on the number of slots: more of them change a run only where it lacked one.
    """
    n = X.shape[0]
    key_order, key_labels, key_resample, key_moves = jax.random.split(key, 4)
    rows = _take(component.suff_stats(X), jax.random.permutation(key_order, n))

    def resample(t: Array, particles: _Particle, weights: Array, log_weights: Array) -> tuple[_Particle, Array]:
        chosen = _systematic(log_weights, jax.random.uniform(jax.random.fold_in(key_resample, t)))
        return _take(particles, chosen), weights[chosen]

    def rejuvenate(t: Array, particles: _Particle) -> tuple[_Particle, Array]:
        def one(r: Array, carry: tuple[_Particle, Array]) -> tuple[_Particle, Array]:
            key_round = jax.random.fold_in(jax.random.fold_in(key_moves, t), r)
            particles, full = _rejuvenate(component, prior, rows, carry[0], t + 1, key_round)
            return particles, carry[1] | full

        return jax.lax.fori_loop(0, rounds[t], one, (particles, jnp.bool_(False)))

    def step(state: Any) -> Any:
        t, particles, log_weights, log_evidence, _ = state
        row = _take(rows, t)
        weights, peak, full = jax.vmap(lambda particle: _choices(component, prior, particle, row))(particles)
        log_weights = log_weights + peak + jnp.log(weights.sum(1))
        total = logsumexp(log_weights)
        poor = 2 * total - logsumexp(2 * log_weights) < jnp.log(num_particles * threshold)
        particles, weights = jax.lax.cond(
            poor, lambda: resample(t, particles, weights, log_weights), lambda: (particles, weights)
        )
        log_evidence = log_evidence + jnp.where(poor, total - jnp.log(num_particles), 0.0)
        log_weights = jnp.where(poor, 0.0, log_weights)
        uniforms = jax.random.uniform(jax.random.fold_in(key_labels, t), (num_particles,))
        slot = jax.vmap(draw_index)(weights, uniforms)
        particles = jax.vmap(lambda particle, s: _seat(component, particle, row, t, s))(particles, slot)
        particles, hit = rejuvenate(t, particles)
        return t + 1, particles, log_weights, log_evidence, full.any() | hit

    caches = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (num_particles, slots, *leaf.shape)), component.cache(component.empty())
    )
    particles = _Particle(jnp.full((num_particles, n), -1), jnp.zeros((num_particles, slots)), caches)
    state = (jnp.asarray(0), particles, jnp.zeros(num_particles), jnp.zeros(()), jnp.bool_(False))
    # a run that is to be repeated with more slots stops at once
    *_, log_weights, log_evidence, full = jax.lax.while_loop(lambda s: (s[0] < n) & ~(s[-1] & may_grow), step, state)
    seating = jnp.log(prior.concentration + jnp.arange(1, n).astype(float)).sum()
    return log_evidence + logsumexp(log_weights) - jnp.log(num_particles) - seating, full
