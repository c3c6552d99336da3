"""Searches for a probable partition: descents by moves of single rows, merges of two clusters, and annealed Gibbs sweeps."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.native.cores import on_cores
from bnp_hier.partitions.capacities import default_capacity, in_steps
from bnp_hier.partitions.engine import has_kernels, kernel_arguments, settings
from bnp_hier.partitions.joint_density import log_joint
from bnp_hier.partitions.merging import merge_best_pair
from bnp_hier.partitions.seating import Prior
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import check_seated, sweep
from bnp_hier.utils.deadlines import current_deadline
from bnp_hier.utils.labels import first_come_labels

__all__ = ["Descent", "anneal", "descend", "merge_clusters"]

VISITS_PER_CALL = 4_000_000
"""Visits of rows in one call of a kernel, which Ctrl-C does not interrupt."""


class Descent(NamedTuple):
    """Result of descents from several partitions.

    - **labels** - (r, n) partitions, labelled in order of appearance.
    - **log_joint** - (r,) log p(X, partition) (nats).
    - **traces** - log joint after each sweep, for every descent.
    - **converged** - (r,) whether the last sweep moved no row, or moved rows only between equally good clusters.
    """

    labels: Int[np.ndarray, "r n"]
    log_joint: Float[np.ndarray, " r"]
    traces: list[Float[np.ndarray, " sweeps"]]
    converged: Bool[np.ndarray, " r"]

    @property
    def best(self) -> Int[np.ndarray, " n"]:
        """The most probable partition."""
        return self.labels[int(self.log_joint.argmax())]


def descend(
    values: MixtureValues,
    orders: Int[np.ndarray, "r m"],
    starts: Int[np.ndarray, "r n"],
    limit: int,
    max_iter: int,
    *,
    merge: bool = False,
) -> Descent:
    """Improve partitions by sweeps of single-row moves in fixed orders until a sweep brings no gain; call in float64.

    The log joint never decreases. When the time is up (`current_deadline`), descents end after the current sweep, or after the
    first one if they start from rows without clusters.

    Parameters
    ----------
    values
        Partition prior, component and rows (n, d).
    orders
        (r, m) order of the rows in every descent; the others keep their labels.
    starts
        (r, n) initial labels, −1 for a row that is not assigned yet.
    limit
        Maximum number of clusters.
    max_iter
        Maximum number of sweeps between merges.
    merge
        Whether a descent that has come to an end goes on after a merge of the two clusters whose union increases the log joint
        most, as long as there are such clusters.

    Raises
    ------
    ValueError
        If a density is not finite; the message names a row.
    """
    if has_kernels(values.component):
        return _descend_natively(values, orders, starts, limit, max_iter, merge)
    component, prior = values.component, Prior(values.concentration, values.discount)
    # slots are added until there is a free one for every row that opens a new cluster
    slots = min(max(default_capacity(len(values.X)), 2 * int(starts.max()) + 2), limit)
    data, paths = jnp.asarray(values.X), jnp.asarray(orders)
    while True:
        result = _sweeps(component, data, prior, paths, jnp.asarray(starts), slots, max_iter)
        if slots == limit or not np.asarray(result.refused).any():
            break
        slots = min(2 * slots, limit)
    check_seated(component, np.asarray(result.labels))
    traces = [[trace] for trace in _traces(result)]
    # every round reduces the number of clusters or increases the log joint; the cap prevents endless rounds caused by rounding
    # errors
    deadline = current_deadline()
    for _ in range(len(data) if merge else 0):
        if deadline.is_past():
            break
        merged, changed = _merge(component, data, prior, result.labels, slots)
        check_seated(component, np.asarray(merged))
        if not np.asarray(changed).any():
            break
        result = _sweeps(component, data, prior, paths, merged, slots, max_iter)
        check_seated(component, np.asarray(result.labels))
        for run in np.flatnonzero(changed):
            traces[run].append(_traces(result)[run])
    whole = [np.concatenate(parts) for parts in traces]
    return Descent(np.asarray(result.labels), np.asarray(result.log_joint), whole, np.asarray(result.converged))


def merge_clusters(values: MixtureValues, labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Merge the two clusters whose union increases the log joint most, as long as any does; call in float64.

    Raises
    ------
    ValueError
        If a density is not finite; the message names a row.
    """
    component, prior = values.component, Prior(values.concentration, values.discount)
    given = kernel_arguments(component, values.X) if has_kernels(component) else None
    data, slots = jnp.asarray(values.X), in_steps(int(labels.max()) + 1)
    for _ in range(int(labels.max())):
        if given is None:
            merged, changed = (np.asarray(value)[0] for value in _merge(component, data, prior, labels[None], slots))
        else:
            merged, changed = _merge_natively(given, labels, prior)
        check_seated(component, merged)
        if not changed:
            break
        labels = merged
    return labels


def anneal(
    values: MixtureValues,
    starts: Int[np.ndarray, "r n"],
    temperatures: Float[np.ndarray, "r sweeps"],
    draws: Float[np.ndarray, "r sweeps two n"],
    limit: int,
) -> Int[np.ndarray, "r n"]:
    """Run Gibbs sweeps from each partition at given temperatures; call in float64.

    Parameters
    ----------
    values
        Partition prior, component and rows (n, d).
    starts
        (r, n) initial labels.
    temperatures
        Temperature of every sweep; conditionals are raised to the power 1/temperature.
    draws
        Uniform draws for the order of the rows and for the rows, in every sweep.
    limit
        Maximum number of clusters.

    Raises
    ------
    ValueError
        If a density is not finite; the message names a row.
    """
    component, prior = values.component, Prior(values.concentration, values.discount)
    if has_kernels(component):
        from bnp_hier.native.descent import ANNEAL

        given, found, deadline = kernel_arguments(component, values.X), _whole(starts).copy(), current_deadline()
        numbers, sweeps = settings(prior), temperatures.shape[1]
        per_call = 1 if deadline.is_limited else max(1, sweeps)

        def one(run: int) -> None:
            for at in range(0, sweeps, per_call):
                if deadline.is_past():
                    break
                some = slice(at, at + per_call)
                before = found[run].copy()
                ANNEAL(
                    *given, before, _real(draws[run, some]), _real(temperatures[run, some]), numbers, _whole(limit), found[run]
                )

        on_cores(one, range(len(starts)), draws.size)
        check_seated(component, found)
        return found
    annealed = np.asarray(_annealed(component, jnp.asarray(values.X), prior, starts, temperatures, draws, limit))
    check_seated(component, annealed)
    return annealed


def _whole(values: Any) -> Int[np.ndarray, "..."]:
    return np.ascontiguousarray(values, dtype=np.int64)


def _real(values: Any) -> Float[np.ndarray, "..."]:
    return np.ascontiguousarray(values, dtype=np.float64)


def _merge_natively(given: Any, labels: Int[np.ndarray, " n"], prior: Prior) -> tuple[Int[np.ndarray, " n"], bool]:
    from bnp_hier.native.descent import MERGE_PAIR

    merged, state = np.empty(len(labels), np.int64), np.zeros(2, np.int64)
    MERGE_PAIR(*given, _whole(labels), settings(prior), merged, state)
    return merged, bool(state[0])


def _descend_natively(
    values: MixtureValues,
    orders: Int[np.ndarray, "r m"],
    starts: Int[np.ndarray, "r n"],
    limit: int,
    max_iter: int,
    merge: bool,
) -> Descent:
    from bnp_hier.native.descent import DESCEND

    component, prior, n = values.component, Prior(values.concentration, values.discount), len(values.X)
    given = kernel_arguments(component, values.X)
    deadline = current_deadline()
    per_call = 1 if deadline.is_limited else max(1, VISITS_PER_CALL // n)

    def swept(labels: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        parts, reached, ended = [np.empty(0)], np.nan, False
        for sweeps in [per_call] * (max_iter // per_call) + [max_iter % per_call]:
            # the first sweep seats all rows
            if sweeps and not ended and (len(parts) == 1 or not deadline.is_past()):
                found, trace, state = np.empty(n, np.int64), np.empty(sweeps), np.zeros(3, np.int64)
                DESCEND(*given, labels, order, settings(prior, reached), _whole(limit), found, trace, state)
                check_seated(component, found)
                labels, ended = found, bool(state[1])
                parts.append(trace[: state[0]])
                reached = parts[-1][-1]
        return labels, np.concatenate(parts), ended

    def one(run: int) -> tuple[np.ndarray, np.ndarray, bool]:
        order = _whole(orders[run])
        labels, trace, converged = swept(_whole(starts[run]), order)
        for _ in range(n if merge else 0):  # for the reason given above
            if deadline.is_past():
                break
            merged, changed = _merge_natively(given, labels, prior)
            check_seated(component, merged)
            if not changed:
                break
            labels, more, converged = swept(merged, order)
            trace = np.concatenate([trace, more])
        return labels, trace, converged

    found = on_cores(one, range(len(starts)), 5 * starts.size)
    labels, traces, converged = zip(*found, strict=True)
    joints = np.array([trace[-1] for trace in traces])
    return Descent(np.stack(labels), joints, list(traces), np.array(converged))


class _Sweeps(NamedTuple):
    """Result of descents by an XLA program: see `Descent`.

    - **trace** - (r, max_iter) log joint after each sweep, NaN after the last.
    - **sweeps** - (r,) number of sweeps.
    - **refused** - (r,) how often a row needed a new cluster but no slot was free.
    """

    labels: Int[Array, "r n"]
    log_joint: Float[Array, " r"]
    trace: Float[Array, "r sweeps"]
    sweeps: Int[Array, " r"]
    converged: Array
    refused: Int[Array, " r"]


def _traces(result: _Sweeps) -> list[Float[np.ndarray, " _"]]:
    return [np.asarray(row)[: int(m)] for row, m in zip(result.trace, result.sweeps, strict=True)]


@partial(jax.jit, static_argnames=("slots", "max_iter"))
def _sweeps(
    component: Component,
    X: Float[Array, "n d"],
    prior: Prior,
    orders: Int[Array, "r m"],
    starts: Int[Array, "r n"],
    slots: int,
    max_iter: int,
) -> _Sweeps:
    seating = Seating(component, X, prior)

    def one(order: Int[Array, " m"], start: Int[Array, " n"]) -> _Sweeps:
        def goes_on(state: Any) -> Array:
            _, _, gained, sweeps, _ = state
            return gained & (sweeps < max_iter)

        def step(state: Any) -> Any:
            labels, trace, _, sweeps, refused = state
            new, hits = sweep(seating, labels, order, None, slots)
            reached = log_joint(component, seating.rows, new, prior, slots)
            # rows that fit two clusters equally well could move back and forth forever; `not <=` continues after NaN, so that
            # the check of the labels finds it
            gained = (new != labels).any() & ((sweeps == 0) | ~(reached <= trace[sweeps - 1]))
            return new, trace.at[sweeps].set(reached), gained, sweeps + 1, refused + hits

        trace = jnp.full(max_iter, jnp.nan)
        state = (start, trace, jnp.bool_(True), jnp.int64(0), jnp.int32(0))
        labels, trace, gained, sweeps, refused = jax.lax.while_loop(goes_on, step, state)
        labels = first_come_labels(labels, slots)
        return _Sweeps(labels, log_joint(component, seating.rows, labels, prior, slots), trace, sweeps, ~gained, refused)

    return jax.vmap(one)(orders, starts)


@partial(jax.jit, static_argnames="slots")
def _merge(
    component: Component, X: Float[Array, "n d"], prior: Prior, starts: Int[Array, "r n"], slots: int
) -> tuple[Int[Array, "r n"], Array]:
    """Make one merge in each partition if any increases the log joint; also return which partitions changed."""
    rows = component.suff_stats(X)
    return jax.vmap(lambda labels: merge_best_pair(component, rows, labels, prior, slots))(starts)


@partial(jax.jit, static_argnames="slots")
def _annealed(
    component: Component,
    X: Float[Array, "n d"],
    prior: Prior,
    starts: Int[Array, "r n"],
    temperatures: Float[Array, "r sweeps"],
    draws: Float[Array, "r sweeps two n"],
    slots: int,
) -> Int[Array, "r n"]:
    seating = Seating(component, X, prior)

    def one(labels: Array, temperatures: Array, draws: Array) -> Array:
        def step(labels: Array, turn: tuple[Array, Array]) -> tuple[Array, None]:
            temperature, (order, uniforms) = turn
            return sweep(seating, labels, jnp.argsort(order), uniforms, slots, temperature)[0], None

        return jax.lax.scan(step, labels, (temperatures, draws))[0]

    return jax.vmap(one)(starts, temperatures, draws)
