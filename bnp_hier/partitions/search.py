"""Searches for a probable partition: descents by moves of single rows, merges of two clusters, and annealed Gibbs sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.distributions.seating import GibbsTypePrior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.native.cores import on_cores
from bnp_hier.partitions.capacities import default_capacity, in_steps, with_enough_slots
from bnp_hier.partitions.cluster_unions import merge_by_joint
from bnp_hier.partitions.clusters import joint_and_statistics
from bnp_hier.partitions.engine import has_kernels, kernel, kernel_arguments, settings
from bnp_hier.partitions.joint_density import log_joint
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
    n, deadline, moves = len(values.X), current_deadline(), _moves(values, limit)
    per_call = 1 if deadline.is_limited else max(1, VISITS_PER_CALL // n)

    def swept(labels: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, list[float], bool]:
        trace, ended = [np.nan], False
        # the first sweep seats all rows
        while not ended and len(trace) <= max_iter and (len(trace) == 1 or not deadline.is_past()):
            labels, reached, ended = moves.sweeps(labels, order, trace[-1], min(per_call, max_iter + 1 - len(trace)))
            check_seated(values.component, labels)
            trace.extend(reached)
        return labels, trace[1:], ended

    def one(run: int) -> tuple[np.ndarray, list[float], bool]:
        order = _whole(orders[run])
        labels, trace, converged = swept(_whole(starts[run]), order)
        # every round reduces the number of clusters or increases the log joint; the cap prevents endless rounds caused by
        # rounding errors
        for _ in range(n if merge else 0):
            if deadline.is_past():
                break
            merged, changed = moves.merge(labels)
            check_seated(values.component, merged)
            if not changed:
                break
            labels, more, converged = swept(merged, order)
            trace += more
        return labels, trace, converged

    labels, traces, converged = zip(*moves.apply(one, range(len(starts)), 5 * starts.size), strict=True)
    joints = np.array([trace[-1] for trace in traces])
    return Descent(np.stack(labels), joints, [np.array(trace) for trace in traces], np.array(converged))


def merge_clusters(values: MixtureValues, labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Merge the two clusters whose union increases the log joint most, as long as any does; call in float64.

    Raises
    ------
    ValueError
        If a density is not finite; the message names a row.
    """
    moves = _moves(values, len(labels))
    for _ in range(int(labels.max())):
        merged, changed = moves.merge(labels)
        check_seated(values.component, merged)
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
    moves, found, deadline = _moves(values, limit), _whole(starts).copy(), current_deadline()
    sweeps = temperatures.shape[1]
    per_call = 1 if deadline.is_limited else max(1, sweeps)

    def one(run: int) -> None:
        for at in range(0, sweeps, per_call):
            if deadline.is_past():
                break
            some = slice(at, at + per_call)
            found[run] = moves.annealed(found[run], _real(draws[run, some]), _real(temperatures[run, some]))
            check_seated(values.component, found[run])

    moves.apply(one, range(len(starts)), draws.size)
    return found


def _whole(values: Any) -> Int[np.ndarray, "..."]:
    return np.ascontiguousarray(values, dtype=np.int64)


def _real(values: Any) -> Float[np.ndarray, "..."]:
    return np.ascontiguousarray(values, dtype=np.float64)


class _Moves(NamedTuple):
    """Moves of a search in one of the two engines.

    - **sweeps** - from labels, an order, the log joint (NaN if unknown) and a number, the labels after at most so many sweeps,
      the log joint after each, and whether the last one brought no gain.
    - **merge** - from labels, those after the best merge of two clusters, and whether there was one.
    - **annealed** - from labels, uniform draws and temperatures, the labels after Gibbs sweeps.
    - **apply** - applies a function to items, given the work in visits of rows.
    """

    sweeps: Callable[[np.ndarray, np.ndarray, float, int], tuple[np.ndarray, Iterable[float], bool]]
    merge: Callable[[np.ndarray], tuple[np.ndarray, bool]]
    annealed: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    apply: Callable[[Callable[[int], Any], Sequence[int], int], list[Any]]


def _moves(values: MixtureValues, limit: int) -> _Moves:
    return (_native_moves if has_kernels(values.component) else _xla_moves)(values, limit)


def _native_moves(values: MixtureValues, limit: int) -> _Moves:
    given, n = kernel_arguments(values.component, values.X), len(values.X)
    prior = settings(values.prior, n, n)

    def sweeps(labels: np.ndarray, order: np.ndarray, reached: float, most: int) -> tuple[np.ndarray, np.ndarray, bool]:
        found, trace, state = np.empty(len(labels), np.int64), np.empty(most), np.zeros(3, np.int64)
        with_joint = prior.copy()
        with_joint[2] = reached
        kernel("descent.DESCEND")(*given, labels, order, with_joint, _whole(limit), found, trace, state)
        return found, trace[: state[0]], bool(state[1])

    def merge(labels: np.ndarray) -> tuple[np.ndarray, bool]:
        merged, state = np.empty(len(labels), np.int64), np.zeros(2, np.int64)
        kernel("descent.MERGE_PAIR")(*given, _whole(labels), prior, merged, state)
        return merged, bool(state[0])

    def annealed(labels: np.ndarray, draws: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
        found = np.empty(len(labels), np.int64)
        kernel("descent.ANNEAL")(*given, labels, draws, temperatures, prior, _whole(limit), found)
        return found

    return _Moves(sweeps, merge, annealed, on_cores)


def _xla_moves(values: MixtureValues, limit: int) -> _Moves:
    component, prior = values.component, values.prior
    data, slots = jnp.asarray(values.X), min(default_capacity(len(values.X)), limit)

    def sweeps(labels: np.ndarray, order: np.ndarray, reached: float, most: int) -> tuple[np.ndarray, list[float], bool]:
        nonlocal slots
        slots = min(max(slots, in_steps(int(labels.max()) + 2)), limit)
        slots, (found, joint, moved) = with_enough_slots(
            lambda slots: _sweep_once((component, data, prior), order, labels, slots), slots, limit
        )
        # rows that fit two clusters equally well could move back and forth forever; `not <=` goes on after NaN
        return np.asarray(found), [float(joint)], not moved or float(joint) <= reached

    def merge(labels: np.ndarray) -> tuple[np.ndarray, bool]:
        used, own = np.unique(labels, return_inverse=True)
        _, stats = joint_and_statistics(component, np.asarray(values.X), own, prior)
        names, *_ = merge_by_joint(component, stats, np.bincount(own).astype(float), prior, merges=1)
        kept = used[np.unique(names, return_index=True)[1]]
        return kept[names[own]], len(kept) < len(used)

    def annealed(labels: np.ndarray, draws: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
        for (order, uniforms), temperature in zip(draws, temperatures, strict=True):
            labels = _gibbs_sweep((component, data, prior), labels, np.argsort(order), uniforms, temperature, limit)
        return np.asarray(labels)

    return _Moves(sweeps, merge, annealed, lambda function, items, work: list(map(function, items)))


@partial(jax.jit, static_argnames="slots")
def _sweep_once(
    problem: tuple[Component, Float[Array, "n d"], GibbsTypePrior],
    order: Int[Array, " m"],
    labels: Int[Array, " n"],
    slots: int,
) -> tuple[Int[Array, " n"], Float[Array, ""], Bool[Array, ""], Int[Array, ""]]:
    """Labels in order of appearance, log joint, whether a row moved, and how often no slot was free."""
    seating = Seating(*problem)
    new, refused = sweep(seating, labels, order, None, slots)
    joint = log_joint(seating.component, seating.rows, new, seating.prior, slots)
    return first_come_labels(new, slots), joint, (new != labels).any(), refused


@partial(jax.jit, static_argnames="slots")
def _gibbs_sweep(
    problem: tuple[Component, Float[Array, "n d"], GibbsTypePrior],
    labels: Int[Array, " n"],
    order: Int[Array, " n"],
    uniforms: Float[Array, " n"],
    temperature: Float[Array, ""],
    slots: int,
) -> Int[Array, " n"]:
    return sweep(Seating(*problem), labels, order, uniforms, slots, temperature)[0]
