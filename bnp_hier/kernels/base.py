"""Common parts of the partition kernels: the interface to NumPyro, label-invariant summaries, and capacity warnings."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity, is_prng_key

from bnp_hier.inspection.trace import Model

__all__ = [
    "PartitionKernel",
    "check_whole_labels",
    "split_arrays",
    "stop_if_undefined",
    "undefined_in_one_line",
    "warn_of_capacity",
    "count_refused",
]


class PartitionKernel(MCMCKernel):
    """Kernel of a model's partition site, alone under `MCMC` or as a block of `numpyro.infer.Gibbs`.

    A subclass implements `init`, which sets `_sites` and `_sample_fn`, and `_sample_one`, one step of one chain. Its state is a
    `NamedTuple` with at least `z`, `log_joint`, `n_clusters`, `capacity_hits` and `rng_key`.
    """

    sample_field = "z"

    constructor_options: dict[str, Any]
    """The arguments of the constructor, except the model."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Record the arguments as given, so that a saved run can report them; copies and pickles are made without arguments."""
        self = super().__new__(cls)
        given = inspect.signature(cls.__init__).bind_partial(self, *args, **kwargs)
        given.apply_defaults()
        self.constructor_options = {name: value for name, value in list(given.arguments.items())[1:] if name != "model"}
        return self

    def __init__(self, model: Model, max_clusters: int | None = None) -> None:
        self._model = model
        self._max_clusters = max_clusters
        # static metadata resolved at `init`
        self._sites: Any = None
        self._sample_fn: Callable[..., Any] | None = None

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields collected by `MCMC`: the labels."""
        return ("z",)

    def get_diagnostics_str(self, state: Any) -> str:
        """Describe the current state: clusters, log joint and, if any, capacity hits with the truncated probability."""
        hits = int(state.capacity_hits)
        text = f"{int(state.n_clusters)} clusters, log joint {float(state.log_joint):.1f}"
        mass = (
            f", truncated probability {float(state.truncated_probability):.1e}"
            if hasattr(state, "truncated_probability")
            else ""
        )
        return text + (f", {hits} capacity hits{mass}" if hits else "")

    @property
    def capacity_advice(self) -> str:
        """What to raise if the capacity is reached: `max_clusters` of the kernel or of the model, whichever is smaller."""
        assert self._sites is not None, "`init` must be called first"
        own, model = self._max_clusters, self._sites.max_clusters
        places = []
        if model is None or own is not None and own <= model:
            places.append(f"{type(self).__name__}(..., max_clusters=...)")
        if model is not None and (own is None or model <= own):
            places.append(f'max_clusters of the site "{self._sites.partition}"')
        return f"raise {' and '.join(places)}"

    def sample(self, state: Any, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Any:
        """Advance every chain in the state by one step."""
        step = self._sample_one
        if is_prng_key(state.rng_key):
            return step(state, model_args, model_kwargs)
        return jax.vmap(lambda one: step(one, model_args, model_kwargs))(state)

    @abstractmethod
    def _sample_one(self, state: Any, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Any:
        """Advance one chain by one step."""

    def refresh(self, state: Any, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Any:
        """Identity: the state has no cached values to recompute."""
        return state

    def wrap_model(self, wrapper: Callable[[Model], Model]) -> Self:
        """Return a copy of the kernel for the wrapped model."""
        kernel = copy.copy(self)
        kernel._model, kernel._sites, kernel._sample_fn = wrapper(self._model), None, None
        return kernel

    def get_constrain_fn(self, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Callable[[Any], Any]:
        """Identity: labels are already constrained."""
        return identity

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Callable[[Any], Any]:
        """Identity."""
        return identity

    def _refuse_other_sites(self, partition: str, others: Sequence[str]) -> None:
        """Raise `ValueError` if the model has latent sites that no block owns."""
        if others:
            kernel = type(self).__name__
            raise ValueError(
                f"{kernel} samples only the partition, but the model has the latent sites {list(others)}: "
                f'use Gibbs([({kernel}(model), ["{partition}"]), (NUTS(model), None)])'
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None}


def split_arrays(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any], Any]:
    """Split a pytree into its arrays, a function that puts arrays back, and the static part that a program depends on."""
    leaves, structure = jax.tree.flatten(tree)
    is_array = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
    arrays = [leaf for leaf, array in zip(leaves, is_array, strict=True) if array]
    others = [None if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]

    def fill(arrays: list[Any]) -> Any:
        rest = iter(arrays)
        return jax.tree.unflatten(
            structure, [next(rest) if array else other for other, array in zip(others, is_array, strict=True)]
        )

    return arrays, fill, (structure, others)


def check_whole_labels(labels: np.ndarray, size: int, below: int) -> None:
    """Check the initial labels of one or several chains.

    Raises
    ------
    ValueError
        If they are not `size` whole numbers in 0, ..., `below` − 1.
    """
    if labels.shape[-1:] != (size,) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"initial labels must be {size} whole numbers, but they have shape {labels.shape} and type {labels.dtype}"
        )
    if labels.min() < 0 or labels.max() >= below:
        raise ValueError(f"initial labels must lie in 0, ..., {below - 1}, but they span {labels.min()} to {labels.max()}")


def count_refused(
    kernel: PartitionKernel, capacity: str, state: Any, refused: Array, probability: Array | None = None
) -> tuple[Array, Array]:
    """Update the capacity statistics of a state after one more step, and warn at the first hit.

    Parameters
    ----------
    kernel, capacity
        The kernel, and its capacity in words.
    state
        State before the step, with `capacity_hits` and, if `probability` is given, `truncated_probability` and `i`.
    refused
        Number of times that the capacity was reached in the step.
    probability
        Truncated probability of the step.

    Returns
    -------
    hits, mean
        Number of hits so far, and the mean truncated probability over all steps (0 if `probability` is None).
    """
    hits = state.capacity_hits + refused.astype(state.capacity_hits.dtype)
    if probability is None:
        warn_of_capacity(kernel, capacity, state.capacity_hits, hits)
        return hits, jnp.zeros(())
    before = state.truncated_probability
    mean = (before + (probability - before) / (state.i + 1).astype(before.dtype)).astype(before.dtype)
    warn_of_capacity(kernel, capacity, state.capacity_hits, hits, mean)
    return hits, mean


def warn_of_capacity(
    kernel: PartitionKernel, capacity: str, before: Array, now: Array, truncated_probability: Array | None = None
) -> None:
    """Warn at the first capacity hit, also from inside a compiled program."""
    arguments = () if truncated_probability is None else (truncated_probability,)
    warn = partial(_warn, kernel=type(kernel).__name__, capacity=capacity, advice=kernel.capacity_advice)
    _tell_where((now > 0) & (before == 0), warn, *arguments)


def stop_if_undefined(kernel: str, log_joint: Array, labels: Int[Array, " n"] | None = None) -> None:
    """Stop the run if a step led to undefined numbers, also from inside a compiled program.

    That is, if the log joint is NaN or inf, or an item has label −1 (see `sweep`): further draws would be meaningless. JAX
    turns the error into a `JaxRuntimeError`.
    """
    item = jnp.asarray(-1) if labels is None else jnp.where(labels.min() < 0, labels.argmin(), -1)
    defined = log_joint < jnp.inf
    _tell_where((item >= 0) | ~defined, partial(_stop, kernel=kernel), item, log_joint)


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


def _tell_where(condition: Bool[Array, ""], tell: Callable[..., None], *arguments: Array) -> None:
    """Call a host function with the arguments if a condition holds.

    Under `vmap`, both branches of a conditional run for every chain, and a host call at every step costs more than the step
    itself. The function is therefore called once, for the first chain that meets the condition, if there is one.
    """

    @jax.custom_batching.custom_vmap
    def look(condition: Array, *arguments: ArrayLike) -> Array:
        jax.lax.cond(condition, lambda: jax.debug.callback(tell, *arguments), lambda: None)
        return jnp.zeros(())

    @look.def_vmap
    def look_at_all(size: int, batched: Sequence[bool], condition: Array, *arguments: ArrayLike) -> tuple[Array, bool]:
        every = [
            jnp.asarray(x) if has_axis else jnp.broadcast_to(x, (size, *jnp.shape(x)))  # constants arrive as Python numbers
            for x, has_axis in zip((condition, *arguments), batched, strict=True)
        ]
        first = every[0].argmax()
        return look(every[0].any(), *(x[first] for x in every[1:])), False

    look(condition, *map(jnp.asarray, arguments))


def _stop(item: Array, log_joint: Array, *, kernel: str) -> None:
    if item >= 0:
        raise FloatingPointError(
            f"{kernel}: row {int(item)} fits no cluster: under the component, the log density of the row, or of a cluster that "
            "contains it, is not finite"
        )
    raise FloatingPointError(f"{kernel}: the log joint of the state is {float(log_joint)}")


def _warn(mass: Array | None = None, *, kernel: str, capacity: str, advice: str) -> None:
    truncated = "" if mass is None else f" (mean truncated probability so far: {float(mass):.1e})"
    warnings.warn(
        f"{kernel} reached its capacity of {capacity}: the draws are from the posterior restricted to at most {capacity}"
        f"{truncated}; {advice}",
        RuntimeWarning,
        stacklevel=2,
    )
