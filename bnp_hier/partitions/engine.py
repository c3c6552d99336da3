"""Choice between native kernels and XLA programs, and calls of the kernels: the only place that knows when which runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int

from bnp_hier.components import Component
from bnp_hier.distributions.seating import GibbsTypePrior
from bnp_hier.native.availability import ffi_available, kernels_run
from bnp_hier.native.names import FAMILIES
from bnp_hier.utils.arrays import in_floats, is_traced

__all__ = ["call_kernel", "has_calls", "has_kernels", "kernel", "kernel_arguments", "key_words", "settings"]


def has_kernels(component: Component) -> bool:
    """Whether native kernels run for this component: on the CPU, for families that describe themselves to them."""
    return kernels_run() and component.native() is not None


def has_calls(component: Component | None = None) -> bool:
    """Whether they also run inside XLA programs, for this component or for what needs none."""
    return ffi_available() and (component is None or has_kernels(component))


def kernel(name: str) -> Any:
    """Return a kernel by module and name, such as "sweeps.SWEEP"; Numba need not be there unless kernels run."""
    module, _, constant = name.rpartition(".")
    return getattr(import_module(f"bnp_hier.native.{module}"), constant)


def call_kernel(name: str, results: Sequence[tuple[tuple[int, ...], Any]], *arguments: ArrayLike) -> list[Array]:
    """Run a kernel inside an XLA program; `results` are the shapes and types of its results."""
    return kernel(name).ffi_call([jax.ShapeDtypeStruct(shape, jnp.result_type(kind)) for shape, kind in results], *arguments)


def kernel_arguments(component: Component, X: ArrayLike) -> tuple[Any, Any, Any, Any]:
    """Return the first arguments of kernels: families, columns and hyperparameters of the component, and the rows.

    Concrete values are passed in double precision, whatever the precision of JAX.
    """
    from bnp_hier.native.bridge import exact, load_family

    parts = component.native()
    assert parts is not None
    for part in parts:
        load_family(FAMILIES.index(part.family))
    flat = [jnp.ravel(value) if is_traced(value) else np.ravel(value) for part in parts for value in part.constants]
    sizes = [sum(np.size(value) for value in part.constants) for part in parts]
    families = [(FAMILIES.index(part.family), len(part.columns), size) for part, size in zip(parts, sizes, strict=True)]
    columns = [column for part in parts for column in part.columns]
    if is_traced(flat):
        constants: ArrayLike = jnp.concatenate([jnp.asarray(value, jnp.result_type(float)) for value in flat])
    else:
        constants = exact(np.concatenate(flat))
    rows = jnp.asarray(X, jnp.result_type(float)) if isinstance(X, jax.core.Tracer) else exact(X)
    return np.ravel(families), np.array(columns), constants, rows


def key_words(keys: Array) -> Int[Array, " w"]:
    """Return random keys, one or several, as an argument of kernels: two words for each."""
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        keys = jax.random.wrap_key_data(keys)
    if jax.random.key_impl(keys) != "threefry2x32":
        words = jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys.reshape(-1))
    else:
        words = jax.random.key_data(keys)
    return jax.lax.bitcast_convert_type(words, jnp.int32).ravel()


def settings(prior: GibbsTypePrior, n: int, slots: int, number: ArrayLike = 0.0) -> Any:
    """Return a partition prior as an argument of kernels: σ, log V(n, 1), a further number, and log weights of new clusters.

    Parameters
    ----------
    prior
        Partition prior.
    n
        Number of items.
    slots
        Number of clusters among the other items up to which weights are needed.
    number
        What else a kernel needs.
    """
    whole, opens = prior.log_whole(n), prior.log_open(np.arange(1.0, slots + 1.0))
    if not is_traced(prior, number):
        return np.concatenate([[prior.discount, whole, number], opens]).astype(np.float64)
    return jnp.concatenate([in_floats(prior.discount, whole, number), jnp.asarray(opens, jnp.result_type(float))])
