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
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.partitions.seating import Prior, draw_index
from bnp_hier.partitions.seats import Seating, Seats
from bnp_hier.partitions.split_merge import split_or_merge
from bnp_hier.utils.arrays import take
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
                schedule = _Schedule(rounds, RESAMPLE_BELOW, slots < limit)
                log_evidence, full = _filter(values.component, values.X, prior, key_order, schedule, num_particles, slots)
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
    """A partition of the rows seen so far; clusters fill the first slot that is free.

    - **labels** - (n,) slots, −1 for rows not yet seen; rows in the order of the visit.
    - **seats** - the clusters.
    """

    labels: Int[Array, "*particles n"]
    seats: Seats


def _choices(seating: Seating, seats: Seats, row: Statistics) -> tuple[Float[Array, " k"], Float[Array, ""], Bool[Array, ""]]:
    """Weights of a row at each slot over exp(peak), as `Seating.log_weights`; the peak (nats); whether no slot is free."""
    logs, full = seating.log_weights(seats, row)
    peak = logs.max()
    return jnp.exp(logs - peak), peak, full


def _seat(seating: Seating, particle: _Particle, item: Array, slot: Array) -> _Particle:
    """The particle after a row has joined the cluster of a slot."""
    return _Particle(particle.labels.at[item].set(slot), seating.join(particle.seats, seating.row(item), slot))


def _move(seating: Seating, particle: _Particle, item: Array, uniform: Float[Array, ""]) -> tuple[_Particle, Bool[Array, ""]]:
    """Gibbs step of one seated row; also whether it found no free slot."""
    row = seating.row(item)
    without = seating.leave(particle.seats, row, particle.labels[item])
    weights, _, full = _choices(seating, without, row)
    return _seat(seating, particle._replace(seats=without), item, draw_index(weights, uniform)), full


def _rejuvenate(seating: Seating, particles: _Particle, seated: Array, key: Array) -> tuple[_Particle, Bool[Array, ""]]:
    """Split-merge moves and a sweep over the seated rows, for every particle; also whether any found no free slot."""
    num_particles, slots = particles.seats.counts.shape
    n = particles.labels.shape[1]
    key_moves, key_sweep = jax.random.split(key)

    def split_merge(labels: Array, key_move: Array) -> tuple[Array, Array]:
        keys = jax.random.split(key_move, num_particles)
        moved, _, refused = jax.vmap(lambda z, k: split_or_merge(seating, z, k, slots, seated))(labels, keys)
        return moved, (refused > 0).any()

    def visit(item: Array, carry: tuple[_Particle, Array]) -> tuple[_Particle, Array]:
        particles, full = carry
        particles, hits = jax.vmap(lambda particle, u: _move(seating, particle, item, u))(particles, uniforms[:, item])
        return particles, full | hits.any()

    labels, refused = jax.lax.scan(split_merge, particles.labels, jax.random.split(key_moves, MOVES))
    # items that lost their cluster to a NaN make the particle's weight NaN
    undefined = ((labels < 0) & (jnp.arange(n) < seated)[None]).any(1)
    seats = jax.vmap(lambda z: seating.seats(z, slots))(labels)
    seats = seats._replace(caches=jnp.where(undefined[:, None, None], jnp.nan, seats.caches))
    uniforms = jax.random.uniform(key_sweep, (num_particles, n))
    return jax.lax.fori_loop(0, seated, visit, (_Particle(labels, seats), refused.any()))


def _systematic(log_weights: Float[Array, " particles"], uniform: Float[Array, ""]) -> Int[Array, " particles"]:
    """Indices of a systematic resample: every particle is expected in proportion to its weight."""
    size = log_weights.shape[0]
    upto = jnp.cumsum(jax.nn.softmax(log_weights))
    points = (jnp.arange(size).astype(uniform.dtype) + uniform) / size
    return jnp.minimum(jnp.searchsorted(upto, points), size - 1)


class _Schedule(NamedTuple):
    """When particles are moved and resampled, and when a run ends early.

    - **rounds** - (n,) rounds of moves after each row.
    - **threshold** - share of the particles below which their effective sample size makes them resampled.
    - **may_grow** - whether a run that lacks a slot is to be repeated with more, so that it stops at once.
    """

    rounds: Int[ArrayLike, " n"]
    threshold: ArrayLike
    may_grow: ArrayLike


@partial(jax.jit, static_argnames=("num_particles", "slots"))
def _filter(
    component: Component,
    X: Float[Array, "n d"],
    prior: Prior,
    key: Array,
    schedule: _Schedule,
    num_particles: int,
    slots: int,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Log estimate of p(X) from one random order of the rows (nats); and whether a slot was lacking, so that it is void.

    The random numbers used do not depend on the number of slots: more of them change a run only where it lacked one.
    """
    n = X.shape[0]
    key_order, key_labels, key_resample, key_moves = jax.random.split(key, 4)
    seating = Seating(component, take(component.suff_stats(X), jax.random.permutation(key_order, n)), prior)

    def resample(t: Array, particles: _Particle, weights: Array, log_weights: Array) -> tuple[_Particle, Array]:
        chosen = _systematic(log_weights, jax.random.uniform(jax.random.fold_in(key_resample, t)))
        return take(particles, chosen), weights[chosen]

    def rejuvenate(t: Array, particles: _Particle) -> tuple[_Particle, Array]:
        def one(r: Array, carry: tuple[_Particle, Array]) -> tuple[_Particle, Array]:
            key_round = jax.random.fold_in(jax.random.fold_in(key_moves, t), r)
            particles, full = _rejuvenate(seating, carry[0], t + 1, key_round)
            return particles, carry[1] | full

        return jax.lax.fori_loop(0, jnp.asarray(schedule.rounds)[t], one, (particles, jnp.bool_(False)))

    def step(state: Any) -> Any:
        t, particles, log_weights, log_evidence, _ = state
        row = seating.row(t)
        weights, peak, full = jax.vmap(lambda seats: _choices(seating, seats, row))(particles.seats)
        # p(x_t | earlier rows, partition), but for the denominator of the seating probabilities
        log_weights = log_weights + peak + jnp.log(weights.sum(1))
        total = logsumexp(log_weights)
        poor = 2 * total - logsumexp(2 * log_weights) < jnp.log(num_particles * schedule.threshold)
        particles, weights = jax.lax.cond(
            poor, lambda: resample(t, particles, weights, log_weights), lambda: (particles, weights)
        )
        # the mean weight is a factor of the estimate; afterwards all weights are 1
        log_evidence = log_evidence + jnp.where(poor, total - jnp.log(num_particles), 0.0)
        log_weights = jnp.where(poor, 0.0, log_weights)
        uniforms = jax.random.uniform(jax.random.fold_in(key_labels, t), (num_particles,))
        slot = jax.vmap(draw_index)(weights, uniforms)
        particles = jax.vmap(lambda particle, s: _seat(seating, particle, t, s))(particles, slot)
        particles, hit = rejuvenate(t, particles)
        return t + 1, particles, log_weights, log_evidence, full.any() | hit

    unseated = jnp.full((num_particles, n), -1)
    particles = _Particle(unseated, jax.vmap(lambda z: seating.seats(z, slots))(unseated))
    state = (jnp.asarray(0), particles, jnp.zeros(num_particles), jnp.zeros(()), jnp.bool_(False))
    *_, log_weights, log_evidence, full = jax.lax.while_loop(
        lambda state: (state[0] < n) & ~(state[-1] & schedule.may_grow), step, state
    )
    seating_total = jnp.log(prior.concentration + jnp.arange(1, n).astype(float)).sum()
    return log_evidence + logsumexp(log_weights) - jnp.log(num_particles) - seating_total, full
