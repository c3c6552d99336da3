"""What kernels report from inside compiled programs: a capacity that has been reached, and undefined numbers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.kernels.base import PartitionKernel
from bnp_hier.partitions.engine import has_calls

__all__ = [
    "counted_hits",
    "report_capacity",
    "stop_if_undefined",
    "undefined_in_one_line",
    "wait_for_reports",
]

FINE = -1
"""Code of a step without undefined numbers."""

ROW = "row {} fits no cluster: under the component, the log density of the row, or of a cluster that contains it, is not finite"
"""Message for a row whose conditional is not a distribution."""

JOINT = "the log joint of the state is {value}"
"""Message for a state without a finite density."""

SINGLE = "; if the densities are finite in double precision, call numpyro.enable_x64() first"
"""Further advice in single precision, in which covariance matrices of many columns may not be positive definite."""


def counted_hits(
    kernel: PartitionKernel, capacity: str | None, state: Any, labels: Array, refused: Array, probability: Array | None = None
) -> tuple[Int[Array, " n"], Int[Array, ""], Float[Array, ""]]:
    """Count how often the capacity was reached in a step, and warn at the first time, also in a compiled program.

    Parameters
    ----------
    kernel, capacity
        The kernel, and its capacity in words; None if it cannot be reached.
    state, labels
        The state before the step, and the labels after it. The caller must use those that are returned, to which the warning
        is tied.
    refused, probability
        Number of times that the capacity was reached in the step, and its truncated probability, without which the mean over
        the steps is 0.

    Returns
    -------
    labels, hits, mass
        The labels, the number of hits so far, and the mean truncated probability.
    """
    hits, mass = state.capacity_hits + refused.astype(state.capacity_hits.dtype), jnp.zeros(())
    if probability is not None:
        before = state.truncated_probability
        mass = (before + (probability - before) / (state.i + 1).astype(before.dtype)).astype(before.dtype)
    if capacity is None:
        return labels, hits, mass
    action: Callable[[Array], Array | None] = partial(jax.debug.callback, partial(report_capacity, kernel, capacity))
    if has_calls():
        from bnp_hier.native.warning import PLACE, warn

        action = partial(warn, _capacity_reached(kernel, capacity, PLACE if probability is not None else None))
    number = jnp.asarray(jnp.nan) if probability is None else mass
    warned = _do_where((hits > 0) & (state.capacity_hits == 0), action, number)
    return labels + warned.astype(labels.dtype), hits, mass


def report_capacity(kernel: PartitionKernel, capacity: str, truncated_probability: ArrayLike) -> None:
    """Warn that the capacity was reached, outside any compiled program; a probability of NaN is unknown."""
    mass = float(np.asarray(truncated_probability))
    warnings.warn(_capacity_reached(kernel, capacity, None if np.isnan(mass) else f"{mass:.1e}"), RuntimeWarning, stacklevel=2)


def stop_if_undefined(kernel: str, log_joint: Array, labels: Int[Array, " n"] | None = None) -> Array:
    """Return the log joint, but stop the run if a step led to undefined numbers, also from inside a compiled program.

    That is, if the log joint is NaN or inf, or an item has label −1 (see `sweep`): further draws would be meaningless. JAX
    turns the error into a `JaxRuntimeError`. The caller must use what is returned.
    """
    item = jnp.asarray(-1) if labels is None else jnp.where(labels.min() < 0, labels.argmin(), -1)
    texts = ROW, *(JOINT.format(value=value) + SINGLE * (log_joint.dtype == np.float32) for value in ("NaN", "inf"))
    # the number of a row, or -2 or -3 for the second or third text
    codes = jnp.where(item >= 0, item, jnp.where(log_joint < jnp.inf, FINE, jnp.where(jnp.isnan(log_joint), -2, -3)))
    if has_calls():
        from bnp_hier.native.stopping import stop_where

        error = f"{FloatingPointError.__name__}: {kernel}: "
        return jnp.where(stop_where(codes, tuple(error + text for text in texts)) == FINE, log_joint, jnp.nan)
    _do_where(codes != FINE, partial(jax.debug.callback, partial(_stop, kernel, texts)), codes)
    return log_joint


@contextmanager
def undefined_in_one_line() -> Iterator[None]:
    """Raise the error of `stop_if_undefined` in its original form, without the text that JAX adds.

    Raises
    ------
    FloatingPointError
        If a step has led to undefined numbers.
    """

    def of_others(record: logging.LogRecord) -> bool:
        return "debug.callback failed" not in record.getMessage()

    logger = logging.getLogger("jax._src.debugging")  # it prints the traceback of the callback
    logger.addFilter(of_others)
    try:
        yield
        jax.effects_barrier()  # callbacks are asynchronous
    except jax.errors.JaxRuntimeError as error:
        _, found, words = str(error).rpartition(f"{FloatingPointError.__name__}: ")
        if not found:
            raise
        raise FloatingPointError(words.strip()) from None
    finally:
        logger.removeFilter(of_others)


def wait_for_reports(results: Any) -> None:
    """Wait for the results of compiled programs, and for what these have to report: JAX runs them in the background."""
    jax.block_until_ready(results)
    jax.effects_barrier()


def _do_where(condition: Bool[Array, ""], action: Callable[[Array], Array | None], number: Array) -> Int[Array, ""]:
    """Trace an action on a number, which calls the host, so that it takes place only if a condition holds.

    The result is 0. The caller must use it if the action returns something.

    Under `vmap`, both branches of a conditional run for every chain, and a host call at every step costs more than the step
    itself. The action therefore takes place once, for the first chain that meets the condition, if there is one.
    """

    @jax.custom_batching.custom_vmap
    def look(condition: Array, number: Array) -> Array:
        def act() -> Array:
            done = action(number)
            return jnp.zeros((), np.int32) if done is None else done

        return jax.lax.cond(condition, act, lambda: jnp.zeros((), np.int32))

    @look.def_vmap
    def look_at_all(size: int, batched: Sequence[bool], condition: Array, number: Array) -> tuple[Array, bool]:
        conditions = jnp.broadcast_to(condition, (size,))
        first = conditions.argmax()
        return look(conditions.any(), jnp.broadcast_to(number, (size,))[first]), False

    return look(condition, number)


def _stop(kernel: str, texts: tuple[str, ...], code: Array) -> None:
    raise FloatingPointError(f"{kernel}: " + (texts[0].format(int(code)) if code >= 0 else texts[-int(code) - 1]))


def _capacity_reached(kernel: PartitionKernel, capacity: str, mass: str | None) -> str:
    truncated = "" if mass is None else f" (mean truncated probability so far: {mass})"
    return (
        f"{type(kernel).__name__} reached its capacity of {capacity}: the draws are from the posterior restricted to at most "
        f"{capacity}{truncated}; {kernel.capacity_advice}"
    )
