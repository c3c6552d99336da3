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
from jaxtyping import Array, Bool, Int

from bnp_hier.kernels.base import PartitionKernel
from bnp_hier.native.availability import ffi_available

__all__ = [
    "capacity_statistics",
    "capacity_warning",
    "report_capacity",
    "stop_if_undefined",
    "undefined_in_one_line",
    "wait_for_reports",
    "with_effect",
]

ROW = "row {} fits no cluster: under the component, the log density of the row, or of a cluster that contains it, is not finite"
"""Message for a row whose conditional is not a distribution."""

JOINT = "the log joint of the state is {value}"
"""Message for a state without a finite density."""

SINGLE = "; if the densities are finite in double precision, call numpyro.enable_x64() first"
"""Further advice in single precision, in which covariance matrices of many columns may not be positive definite."""


def capacity_statistics(state: Any, refused: Array, probability: Array | None = None) -> tuple[Array, Array]:
    """Number of capacity hits so far, and the mean truncated probability over all steps, after one more step.

    `state` is that before the step, `refused` the number of times that the capacity was reached in it, and `probability` its
    truncated probability, without which the mean is 0.
    """
    hits = state.capacity_hits + refused.astype(state.capacity_hits.dtype)
    if probability is None:
        return hits, jnp.zeros(())
    before = state.truncated_probability
    return hits, (before + (probability - before) / (state.i + 1).astype(before.dtype)).astype(before.dtype)


def capacity_warning(
    kernel: PartitionKernel, capacity: str, state: Any, hits: Array, probability: Array | None = None
) -> Int[Array, ""]:
    """Side effect, to be tied to a value by `with_effect`: the warning at the first hit, also in a compiled program.

    The arguments are the kernel, its capacity in words, its state before the step, and the statistics after the step.
    """
    known = () if probability is None else (probability,)
    action: Callable[..., Array | None] = partial(jax.debug.callback, partial(_warn, kernel, capacity))
    if ffi_available():
        from bnp_hier.native.warning import PLACE, warn

        action = partial(warn, _capacity_reached(kernel, capacity, PLACE if known else None))
    return _do_where((hits > 0) & (state.capacity_hits == 0), action, *known)


def with_effect(value: Array, effect: Int[Array, ""]) -> Array:
    """Tie a side effect to a value, so that XLA keeps it."""
    return value + effect.astype(value.dtype)


def report_capacity(kernel: PartitionKernel, capacity: str, truncated_probability: ArrayLike | None = None) -> None:
    """Warn that the capacity was reached, from outside any compiled program."""
    _warn(kernel, capacity, truncated_probability)


def stop_if_undefined(kernel: str, log_joint: Array, labels: Int[Array, " n"] | None = None) -> Array:
    """Return the log joint, but stop the run if a step led to undefined numbers, also from inside a compiled program.

    That is, if the log joint is NaN or inf, or an item has label −1 (see `sweep`): further draws would be meaningless. JAX
    turns the error into a `JaxRuntimeError`. The caller must use what is returned.
    """
    item = jnp.asarray(-1) if labels is None else jnp.where(labels.min() < 0, labels.argmin(), -1)
    defined = log_joint < jnp.inf
    if ffi_available():
        from bnp_hier.native.stopping import FINE, stop_where

        texts = (ROW, *(_undefined_joint(value, log_joint) for value in ("NaN", "inf")))
        error = f"{FloatingPointError.__name__}: {kernel}: "
        codes = jnp.where(item >= 0, item, jnp.where(defined, FINE, jnp.where(jnp.isnan(log_joint), -2, -3)))
        return jnp.where(stop_where(codes, tuple(error + text for text in texts)) == FINE, log_joint, jnp.nan)
    _do_where((item >= 0) | ~defined, partial(jax.debug.callback, partial(_stop, kernel=kernel)), item, log_joint)
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


def _do_where(condition: Bool[Array, ""], action: Callable[..., Array | None], *arguments: Array) -> Int[Array, ""]:
    """Trace an action, which calls the host with the arguments, so that it takes place only if a condition holds.

    The result is 0. The caller must use it if the action returns something.

    Under `vmap`, both branches of a conditional run for every chain, and a host call at every step costs more than the step
    itself. The action therefore takes place once, for the first chain that meets the condition, if there is one.
    """

    @jax.custom_batching.custom_vmap
    def look(condition: Array, *arguments: ArrayLike) -> Array:
        def act() -> Array:
            done = action(*arguments)
            return jnp.zeros((), np.int32) if done is None else done

        return jax.lax.cond(condition, act, lambda: jnp.zeros((), np.int32))

    @look.def_vmap
    def look_at_all(size: int, batched: Sequence[bool], condition: Array, *arguments: ArrayLike) -> tuple[Array, bool]:
        every = [
            jnp.asarray(x) if has_axis else jnp.broadcast_to(x, (size, *jnp.shape(x)))  # constants arrive as Python numbers
            for x, has_axis in zip((condition, *arguments), batched, strict=True)
        ]
        first = every[0].argmax()
        return look(every[0].any(), *(x[first] for x in every[1:])), False

    return look(condition, *map(jnp.asarray, arguments))


def _stop(item: Array, log_joint: Array, *, kernel: str) -> None:
    words = ROW.format(int(item)) if item >= 0 else _undefined_joint("NaN" if np.isnan(log_joint) else "inf", log_joint)
    raise FloatingPointError(f"{kernel}: {words}")


def _undefined_joint(value: str, log_joint: Array) -> str:
    return JOINT.format(value=value) + SINGLE * (log_joint.dtype == np.float32)


def _warn(kernel: PartitionKernel, capacity: str, mass: ArrayLike | None = None) -> None:
    number = None if mass is None else f"{float(np.asarray(mass)):.1e}"
    warnings.warn(_capacity_reached(kernel, capacity, number), RuntimeWarning, stacklevel=2)


def _capacity_reached(kernel: PartitionKernel, capacity: str, mass: str | None) -> str:
    truncated = "" if mass is None else f" (mean truncated probability so far: {mass})"
    return (
        f"{type(kernel).__name__} reached its capacity of {capacity}: the draws are from the posterior restricted to at most "
        f"{capacity}{truncated}; {kernel.capacity_advice}"
    )
