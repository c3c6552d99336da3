"""Rows that are distributed over devices or processes, or large and on a device, as arguments of a model.

A compiled program cannot contain an array that is partly on devices of other processes or larger than 2 GB, but `MCMC` compiles
a model's arguments into its programs by default. Kernels therefore keep such arrays in their states and use these in place of
the arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Int

from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.compilation_cache import compile_anew_over_processes
from bnp_hier.utils.sharded_arrays import has_explicit_axes, is_spread, replicated, stays_on_device, without_explicit_axes

__all__ = ["SpreadArguments", "check_same_everywhere", "check_spread", "filled", "gathered_labels", "spread_arguments"]


class SpreadArguments(NamedTuple):
    """The arguments of a model, and those that stay on their devices.

    - **args**, **kwargs** - all arguments; distributed arrays are free of explicit shardings, which programs would have to
      follow in every operation.
    - **places** - where the distributed arrays are.
    - **arrays** - the distributed arrays.
    - **there** - which rows of these arrays are rows of the table, distributed too; None if all are. The others, which had no
      value, have those of a row of the table, and kernels give them the label −1.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    places: tuple[str, ...]
    arrays: tuple[Array, ...]
    there: Bool[Array, " n"] | None


def spread_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> SpreadArguments:
    """Find the arrays that stay on their devices among the arguments of a model.

    If one is on the CPUs of several processes, the programs of this process are no longer kept in a compilation cache.

    Raises
    ------
    ValueError
        If one is not distributed along its first dimension only, or different rows of the arrays are without values.
    """
    places, arrays, theres = [], [], []

    def one(path: Any, leaf: Any) -> Any:
        if not stays_on_device(leaf) and not has_explicit_axes(leaf):
            return leaf
        compile_anew_over_processes(leaf)
        places.append(jax.tree_util.keystr(path))
        array, there = _without_empty_rows(without_explicit_axes(leaf))
        arrays.append(array)
        theres.append(there)
        return array

    args, own = jax.tree_util.tree_map_with_path(one, (args, dict(kwargs or {})))
    padded = [there for there in theres if there is not None]
    if any(not bool(jax.jit(jnp.array_equal)(there, padded[0])) for there in padded[1:]):
        raise ValueError(f"the arguments {', '.join(places)} have rows without values at different places; expected the same")
    return SpreadArguments(args, own, tuple(places), tuple(arrays), padded[0] if padded else None)


def _without_empty_rows(array: Array) -> tuple[Array, Bool[Array, " n"] | None]:
    """Replace rows without any value by the first row of the table; also return which rows have values, None if all have."""
    if array.ndim != 2 or not jnp.issubdtype(array.dtype, jnp.floating) or not isinstance(array.sharding, NamedSharding):
        return array, None
    there = _rows_with_values(array)
    return (array, None) if bool(_all(there)) else (_filled_up(array, there), there)


@jax.jit
def _rows_with_values(X: Array) -> Bool[Array, " n"]:
    return ~jnp.isnan(X).all(axis=1)


@jax.jit
def _filled_up(X: Array, there: Bool[Array, " n"]) -> Array:
    return jnp.where(there[:, None], X, X[jnp.argmax(there)])


_all, _first_false = jax.jit(jnp.all), jax.jit(jnp.argmin)


@partial(jax.jit, static_argnames="allow_missing")
def _finite_rows(X: Array, allow_missing: bool) -> Bool[Array, " n"]:
    return (jnp.isfinite(X) | allow_missing & jnp.isnan(X)).reshape(len(X), -1).all(axis=1)


def filled(
    args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, places: tuple[str, ...], arrays: tuple[Any, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put the sharded arrays back into the model's arguments."""
    at = dict(zip(places, arrays, strict=True))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: at.get(jax.tree_util.keystr(path), leaf), (args, dict(kwargs or {}))
    )


def gathered_labels(labels: Array | np.ndarray) -> Int[np.ndarray, "... n"]:
    """Labels of one or several draws on all devices, without those of rows that are not there; every process must call this."""
    labels = replicated(labels)
    there = labels.reshape(-1, labels.shape[-1])[0] >= 0
    return labels if there.all() else labels[..., there]


def check_spread(X: Array, allow_missing: bool = False) -> None:
    """Check by reduction that all values of a distributed table are finite, or NaN if missing values are allowed.

    Raises
    ------
    ValueError
        If one is not; the message names its row, and the process that has it.
    """
    finite = _finite_rows(X, allow_missing)
    if bool(_all(finite)):
        return
    row = int(_first_false(finite))
    places: Any = X.sharding.devices_indices_map(X.shape)
    owner = next(device.process_index for device, index in places.items() if _contains(index[0], row))
    where = f"row {row}, which process {owner} has" if jax.process_count() > 1 else f"row {row}"
    raise ValueError(f"X has NaN or infinite values, first in {where}; expected finite numbers")


def _contains(rows: slice, row: int) -> bool:
    return (rows.start or 0) <= row and (rows.stop is None or row < rows.stop)


def check_same_everywhere(tree: Any, what: str) -> None:
    """Check that all processes have the same numbers.

    Raises
    ------
    ValueError
        If they differ.
    """
    if jax.process_count() == 1 or is_traced(tree):
        return
    from jax.experimental.multihost_utils import process_allgather

    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        if not is_spread(leaf):
            digest.update(np.asarray(leaf, dtype=np.float64).tobytes())
    found = np.asarray(process_allgather(np.frombuffer(digest.digest()[:4], dtype=np.uint32)))
    if len(np.unique(found)) > 1:
        different = np.flatnonzero(found.ravel() != found.ravel()[0]).tolist()
        raise ValueError(
            f"{what} of process 0 differs from that of process {', '.join(map(str, different))}: derive it from all rows, not "
            "from those of each process, with bnp_hier.distributed.from_data"
        )
