"""Evidence estimate by a particle filter over partitions (sequential Monte Carlo)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.seating import Prior, draw_index
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.partitions.engine import has_kernels, kernel_arguments, settings
from bnp_hier.partitions.seats import Seating, Seats
from bnp_hier.partitions.split_merge import draws_per_move, split_or_merge
from bnp_hier.utils.arrays import take
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.options import WholeNumber, check_options
from bnp_hier.utils.progress_bars import ProgressBar
from bnp_hier.utils.randomness import random_key

__all__ = ["LARGEST_SPREAD", "SMCEstimate", "smc"]

LARGEST_SPREAD = 1.5
"""Difference (nats) between the estimates from different orders above which the filter counts as failed."""

ROUGH_BELOW = 10
"""Number of orders below which the verdict calls the standard error rough."""

FIRST_CAPACITY = 16
"""Initial number of cluster slots; doubled until they suffice for all particles."""

RESAMPLE_BELOW = 0.5
"""The particles are resampled when their effective sample size falls below this proportion of their number."""

MOVES = 5
"""Number of split-merge moves per round of rejuvenation."""


class SMCEstimate(NamedTuple):
    """Estimate of the log evidence.

    - **value** - log of the mean, over orders, of the unbiased estimates of p(X) (nats).
    - **standard_error** - standard error of `value` (nats), by the delta method from the variation between orders.
    - **orders** - log estimate for each random order of the rows (nats).
    - **spread** - largest minus smallest value in `orders` (nats).
    - **failed** - whether the spread is too large for a reliable value.
    - **verdict** - assessment in words.
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
    """Estimate the log evidence log p(X) by a particle filter, with hyperparameters fixed at their prior medians.

    Parameters
    ----------
    model
        NumPyro model with one partition site (Dirichlet process or Pitman-Yor) and one observed `ConjugateMixture` on it.
    X
        Data, (n, d).
    key
        JAX key or integer seed.
    num_particles
        Number of particles, each of which is a partition.
    num_orders
        Number of random row orders, at least 2; a separate filter is run for each.
    rejuvenation
        Number of rounds of moves in each filter, spread evenly over the rows; a round consists of five split-merge moves and
        one Gibbs sweep over the rows seen so far. With 0, the filter is faster but its estimates vary much more.
    progress_bar
        Whether to show a progress bar over the orders.

    Returns
    -------
    estimate
        `SMCEstimate`, whose first two fields are the value and its standard error (nats); computed in float64.

    Raises
    ------
    ValueError, TypeError
        If an option, the model or the data are invalid.

    Notes
    -----
    Rows are added one at a time. Each particle's weight is multiplied by the row's predictive density under its partition, and
    the row's label is drawn from prior × predictive (sequential imputation, MacEachern, Clyde & Liu 1999; for mixtures,
    Fearnhead 2004). When the effective sample size falls below half the number of particles, the particles are resampled
    systematically before the label is drawn. On a fixed schedule, the particles are moved by kernels that leave the posterior
    of the rows seen so far invariant (Gilks & Berzuini 2001). Neither step biases the estimate of p(X), whatever the number of
    particles; its logarithm tends to be too low. Moving particles only after resampling would introduce a bias, because the
    kernels leave the posterior invariant but not the distribution of particles conditional on being resampled.

    A run in which a particle has no free slot is repeated with twice the slots and the same random numbers, up to the number of
    rows or the model's `max_clusters`; the result is therefore the same as with unlimited slots.

    On difficult data the filter can fail silently, with the estimates from all orders too low by similar amounts. Compare them
    with `tree_bound`, as `table` does.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> X = [[0.0], [0.2], [0.1], [6.0], [6.1]]
    >>> estimate = bnp.evidence.smc(model, X, num_particles=100, rejuvenation=2, progress_bar=False)
    >>> round(estimate.value, 1), estimate.failed
    (-13.2, False)
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
    with double_precision():
        problem = Problem(model, X, min_rows=1)
        values = problem.values
        prior = Prior(jnp.asarray(values.concentration, float), jnp.asarray(values.discount, float))
        n = problem.X.shape[0]
        limit = min(n, problem.sites.max_clusters or n)
        slots = min(FIRST_CAPACITY, limit)
        rounds = _schedule(n, rejuvenation)
        keys = jax.random.split(random_key(key), num_orders)
        orders = []
        for key_order in ProgressBar(keys, desc="SMC", unit="order", disable=not progress_bar, leave=False):
            if has_kernels(values.component):
                orders.append(_filter_natively(values.component, problem.X, prior, key_order, rounds, num_particles, limit))
                continue
            while True:
                schedule = _Schedule(jnp.asarray(rounds), RESAMPLE_BELOW, slots < limit)
                log_evidence, full = _filter(values.component, values.X, prior, key_order, schedule, num_particles, slots)
                if slots == limit or not bool(full):
                    break
                slots = min(2 * slots, limit)
            orders.append(float(log_evidence))
    if np.isnan(orders).any():
        raise ValueError(
            f"the estimate from row order {int(np.isnan(orders).argmax())} is NaN: the predictive density of "
            f"{type(values.component).__name__} is NaN for some rows given others"
        )
    return _combine(np.array(orders))


def _schedule(n: int, rejuvenation: int) -> Int[np.ndarray, " n"]:
    """Number of rounds of moves after each row, fixed in advance; none after the last row, where they have no effect."""
    rounds = np.zeros(n, dtype=np.int64)
    if n > 2:
        seen = 2 + ((n - 2) * (np.arange(rejuvenation) + 0.5) / max(rejuvenation, 1)).astype(int)
        np.add.at(rounds, seen - 1, 1)
    return rounds


def _combine(orders: Float[np.ndarray, " orders"]) -> SMCEstimate:
    """Average unbiased estimates of p(X), given their logarithms."""
    peak, spread = orders.max(), float(np.ptp(orders))
    ratios = np.exp(orders - peak)
    mean, error = ratios.mean(), ratios.std(ddof=1) / np.sqrt(len(orders))
    failed = not spread <= LARGEST_SPREAD  # also if the spread is NaN
    if failed:
        verdict = (
            f"failed: the estimates from different row orders differ by {spread:.1f} nats, more than {LARGEST_SPREAD}; "
            "increase num_particles or rejuvenation"
        )
    else:
        verdict = f"{len(orders)} row orders agree within {spread:.2g} nats"
        if len(orders) < ROUGH_BELOW:
            verdict += "; the standard error from so few orders is rough"
    return SMCEstimate(float(peak + np.log(mean)), float(error / mean), orders, spread, failed, verdict)


class _Particle(NamedTuple):
    """A partition of the rows seen so far; a new cluster uses the first free slot.

    - **labels** - (n,) slot of each row, −1 for rows not seen yet; rows are in the order of the filter.
    - **seats** - the clusters.
    """

    labels: Int[Array, "*particles n"]
    seats: Seats


def _choices(seating: Seating, seats: Seats, row: Statistics) -> tuple[Float[Array, " k"], Float[Array, ""], Bool[Array, ""]]:
    """Weights of a row for each slot as in `Seating.log_weights`, divided by exp(peak); the peak; whether no slot is free."""
    logs, full = seating.log_weights(seats, row)
    peak = logs.max()
    return jnp.exp(logs - peak), peak, full


def _seat(seating: Seating, particle: _Particle, item: Array, slot: Array) -> _Particle:
    """Add a row to the cluster in a slot."""
    return _Particle(particle.labels.at[item].set(slot), seating.join(particle.seats, seating.row(item), slot))


def _move(seating: Seating, particle: _Particle, item: Array, uniform: Float[Array, ""]) -> tuple[_Particle, Bool[Array, ""]]:
    """Make a Gibbs step for one seated row; also return whether it found no free slot."""
    row = seating.row(item)
    without = seating.leave(particle.seats, row, particle.labels[item])
    weights, _, full = _choices(seating, without, row)
    return _seat(seating, particle._replace(seats=without), item, draw_index(weights, uniform)), full


def _rejuvenate(seating: Seating, particles: _Particle, seated: Array, key: Array) -> tuple[_Particle, Bool[Array, ""]]:
    """Make split-merge moves and a sweep over the seated rows for all particles; also return whether any lacked a slot."""
    num_particles, slots = particles.seats.counts.shape
    n = particles.labels.shape[1]
    key_moves, key_sweep = jax.random.split(key)

    def split_merge(labels: Array, key_move: Array) -> tuple[Array, Array]:
        draws = jax.random.uniform(key_move, (num_particles, draws_per_move(n)))
        moved, _, refused = jax.vmap(lambda z, u: split_or_merge(seating, z, u, slots, seated))(labels, draws)
        return moved, (refused > 0).any()

    def visit(item: Array, carry: tuple[_Particle, Array]) -> tuple[_Particle, Array]:
        particles, full = carry
        particles, hits = jax.vmap(lambda particle, u: _move(seating, particle, item, u))(particles, uniforms[:, item])
        return particles, full | hits.any()

    labels, refused = jax.lax.scan(split_merge, particles.labels, jax.random.split(key_moves, MOVES))
    # if a NaN leaves a row without a cluster, the particle's weight becomes NaN
    undefined = ((labels < 0) & (jnp.arange(n) < seated)[None]).any(1)
    seats = jax.vmap(lambda z: seating.seats(z, slots))(labels)
    seats = seats._replace(caches=jnp.where(undefined[:, None, None], jnp.nan, seats.caches))
    uniforms = jax.random.uniform(key_sweep, (num_particles, n))
    return jax.lax.fori_loop(0, seated, visit, (_Particle(labels, seats), refused.any()))


def _systematic(log_weights: Float[Array, " particles"], uniform: Float[Array, ""]) -> Int[Array, " particles"]:
    """Indices of a systematic resample: the expected number of copies of a particle is proportional to its weight."""
    size = log_weights.shape[0]
    upto = jnp.cumsum(jax.nn.softmax(log_weights))
    points = (jnp.arange(size).astype(uniform.dtype) + uniform) / size
    return jnp.minimum(jnp.searchsorted(upto, points), size - 1)


class _Schedule(NamedTuple):
    """Controls when particles are moved and resampled, and whether a run may end early.

    - **rounds** - (n,) number of rounds of moves after each row.
    - **threshold** - proportion of the number of particles below which the effective sample size triggers resampling.
    - **may_grow** - whether a run that lacks a slot will be repeated with more slots, so that it can stop at once.
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
    """Log estimate of p(X) from one random row order (nats), and whether a slot was lacking, which makes it invalid.

    The random numbers do not depend on the number of slots: additional slots change a run only if it lacked one.
    """
    n = X.shape[0]
    key_order, key_labels, key_resample, key_moves = jax.random.split(key, 4)
    seating = Seating(component, X[jax.random.permutation(key_order, n)], prior)

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
        # p(x_t | earlier rows, partition), up to the denominator of the seating probabilities
        log_weights = log_weights + peak + jnp.log(weights.sum(1))
        total = logsumexp(log_weights)
        poor = 2 * total - logsumexp(2 * log_weights) < jnp.log(num_particles * schedule.threshold)
        particles, weights = jax.lax.cond(
            poor, lambda: resample(t, particles, weights, log_weights), lambda: (particles, weights)
        )
        # the mean weight becomes a factor of the estimate; afterwards all weights are 1
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


@partial(jax.jit, static_argnames="shape")
def _uniforms(key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
    return jax.random.uniform(key, shape)


def _filter_natively(
    component: Component,
    X: Float[np.ndarray, "n d"],
    prior: Prior,
    key: Array,
    rounds: Int[np.ndarray, " n"],
    num_particles: int,
    limit: int,
) -> float:
    """Log estimate of p(X) from one random row order (nats), NaN if a density is not finite.

    The same as `_filter` with enough slots, with the same random numbers: the kernels add the rows between two rounds of moves,
    and make the moves.
    """
    from bnp_hier.native.particles import EXTEND, MOVE_PARTICLES, SWEEP_PARTICLES

    n = len(X)
    key_order, key_labels, key_resample, key_moves = jax.random.split(key, 4)
    given = kernel_arguments(component, X[np.asarray(jax.random.permutation(key_order, n))])
    three, two = settings(prior, n, limit, RESAMPLE_BELOW), settings(prior, n, limit)
    labels, log_weights, log_evidence = np.full((num_particles, n), -1), np.zeros(num_particles), 0.0
    state, seen = np.zeros(2, np.int64), 0
    for last in [*np.flatnonzero(rounds), n - 1]:
        rows = range(seen, last + 1)
        keys = [(jax.random.fold_in(key_labels, t), jax.random.fold_in(key_resample, t)) for t in rows]
        uniforms = np.array([_uniforms(one, (num_particles,)) for one, _ in keys]).reshape(len(rows), num_particles)
        spins, rise = np.array([_uniforms(other, ()) for _, other in keys]), np.empty(())
        before, weights = labels.copy(), log_weights.copy()
        bounds = np.array([limit, seen, last + 1], np.int64)
        EXTEND(*given, before, weights, three, bounds, uniforms, spins, labels, log_weights, rise, state)
        log_evidence, seen = log_evidence + float(rise), last + 1
        for r in range(rounds[last] if not state[1] else 0):
            key_round = jax.random.fold_in(jax.random.fold_in(key_moves, last), r)
            key_splits, key_sweep = jax.random.split(key_round)
            bounds = np.array([limit, seen], np.int64)
            for key_move in jax.random.split(key_splits, MOVES):
                draws = np.asarray(_uniforms(key_move, (num_particles, draws_per_move(n))))
                MOVE_PARTICLES(*given, labels.copy(), draws, two, bounds, labels, state)
            if not state[1]:
                draws = np.asarray(_uniforms(key_sweep, (num_particles, n)))
                SWEEP_PARTICLES(*given, labels.copy(), draws, two, bounds, labels, state)
        if state[1]:
            return float("nan")
    seating_total = np.log(np.asarray(prior.concentration) + np.arange(1, n)).sum()
    return float(log_evidence + np.logaddexp.reduce(log_weights) - np.log(num_particles) - seating_total)
