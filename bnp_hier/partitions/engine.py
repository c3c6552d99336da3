"""Choice between native kernels and XLA programs: the only place that knows when which of the two runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.components import Component
from bnp_hier.native.availability import ffi_available, kernels_run
from bnp_hier.native.names import FAMILIES
from bnp_hier.partitions.seating import Prior
from bnp_hier.utils.arrays import is_traced

__all__ = ["has_calls", "has_kernels", "kernel_arguments", "key_words", "settings"]


def has_kernels(component: Component) -> bool:
    """Whether native kernels run for this component: on the CPU, for families that describe themselves to them."""
    return kernels_run() and component.native() is not None


def has_calls(component: Component) -> bool:
    """Whether they also run for it inside XLA programs."""
    return has_kernels(component) and ffi_available()


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


def settings(prior: Prior, *more: float) -> Float[np.ndarray, " s"]:
    """Return the parameters of a partition prior, and further numbers, as an argument of kernels."""
    return np.array([prior.concentration, prior.discount, *more], dtype=np.float64)
