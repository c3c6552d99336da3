"""Conversion of tables to float64 matrices, and small helpers for arrays and pytrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.utils.forked_processes import refuse_forked_process
from bnp_hier.utils.input_cells import real_cells

__all__ = [
    "as_matrix",
    "as_rows",
    "first_cell",
    "in_floats",
    "is_elsewhere",
    "is_traced",
    "own_arrays",
    "pack",
    "split_arrays",
    "take",
]


_Tree = TypeVar("_Tree")


def is_traced(*values: Any) -> bool:
    """Whether any array in the values is a JAX tracer, whose numbers cannot be read."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def is_elsewhere(value: Any) -> bool:
    """Whether an array is partly on devices of other processes, so that its numbers cannot be read here."""
    return (
        isinstance(value, jax.Array) and not is_traced(value) and not (value.is_fully_addressable or value.is_fully_replicated)
    )


def as_matrix(X: Any, *, name: str = "X", min_rows: int = 1) -> np.ndarray:
    """Copy the data to a float64 NumPy matrix, with NaN for missing or masked values.

    Raises
    ------
    ValueError
        If the data are not a two-dimensional table of numbers with at least `min_rows` rows and one column, or are partly on
        another process's devices.
    TypeError
        If the data contain complex numbers, dates, times or durations, or are traced by a transformation of JAX.
    RuntimeError
        In a process that was forked after JAX had run in its parent.
    """
    refuse_forked_process()
    if is_traced(X):
        raise TypeError(
            f"{name} is traced by jax.jit, vmap, grad or another transformation, inside which its numbers cannot be read; call "
            "this function on one table at a time, outside (log_marginal and suff_stats of components can be transformed)"
        )
    if is_elsewhere(X):
        raise ValueError(
            f"{name} is distributed over several processes, and this one has only {len(X.addressable_shards)} of its "
            f"{len(X.global_shards)} shards, so its values cannot be read here; pass the whole table to every process, or "
            "compute what is needed from rows that all processes have (a prior: bnp_hier.distributed.from_data)"
        )
    cells = real_cells(X, name)
    try:
        # a copy, for the reason given in `own_arrays`
        if hasattr(cells, "iloc"):  # pandas, whose missing values need not be floats
            matrix = cells.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        else:
            matrix = np.array(cells, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a table of numbers, shape (n, d); {error}") from error
    if matrix.ndim != 2:
        hint = f"; use np.reshape({name}, (-1, 1)) for one column" if matrix.ndim == 1 else ""
        raise ValueError(f"{name} must have two dimensions, shape (n, d), but it has shape {matrix.shape}{hint}")
    if matrix.shape[1] == 0 or matrix.shape[0] == 0:
        raise ValueError(f"{name} is empty: it has shape {matrix.shape}, expected at least one row and one column")
    if matrix.shape[0] < min_rows:
        rows = "row" if matrix.shape[0] == 1 else "rows"
        raise ValueError(f"{name} has {matrix.shape[0]} {rows}; clustering needs at least {min_rows}")
    return matrix


def as_rows(X: Any, *, name: str = "X") -> np.ndarray:
    """Like `as_matrix`, but matrices in single precision are returned as they are, without a copy."""
    plain = isinstance(X, np.ndarray) and not isinstance(X, np.ma.MaskedArray)
    if plain and X.dtype == np.float32 and X.ndim == 2 and X.size:
        return np.asarray(X)
    return as_matrix(X, name=name)


def own_arrays(tree: _Tree) -> _Tree:
    """Return the tree with copies of its NumPy arrays.

    JAX caches NumPy arrays that are constants of a live program by identity: if that program is in single precision, a
    double-precision program with the same array would get the rounded numbers.
    """
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def first_cell(where: np.ndarray) -> str:
    """Location of the first true entry of a boolean matrix, as ``row 3, column 1`` (counted from 0)."""
    row, column = np.argwhere(where)[0]
    return f"row {row}, column {column}"


def in_floats(*values: ArrayLike) -> Float[Array, " values"]:
    """Combine numbers in a vector of the default floating-point type."""
    return jnp.stack([jnp.asarray(value, jnp.result_type(float)) for value in values])


def take(tree: _Tree, index: Array | np.ndarray) -> _Tree:
    """Select entries of every leaf along its first axis."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def pack(tree: Any, batch: int) -> Float[Array, "... p"]:
    """Flatten all leaves after their `batch` leading dimensions and concatenate them, in the order of `ravel_pytree`."""
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([leaf.reshape(*leaf.shape[:batch], -1) for leaf in leaves], axis=-1)


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
