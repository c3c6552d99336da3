"""Rows that are distributed over devices or processes, as arguments of a model.

A compiled program cannot contain an array that is partly on devices of other processes, but `MCMC` compiles a model's arguments
into its programs by default. Kernels therefore keep such arrays in their states and use these in place of the arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from bnp_hier.utils.arrays import is_elsewhere, is_traced

__all__ = ["SpreadArguments", "check_same_everywhere", "check_spread", "filled", "is_spread", "replicated", "spread_arguments"]


class SpreadArguments(NamedTuple):
    """The arguments of a model, and those that are distributed.

    - **args**, **kwargs** - all arguments; distributed arrays are free of explicit shardings, which programs would have to
      follow in every operation.
    - **places** - where the distributed arrays are.
    - **arrays** - the distributed arrays.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    places: tuple[str, ...]
    arrays: tuple[Array, ...]


def is_spread(value: Any) -> bool:
    """Whether an array is distributed over several devices, in which case its values are not inspected."""
    return isinstance(value, jax.Array) and not is_traced(value) and len(value.sharding.device_set) > 1


def spread_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> SpreadArguments:
    """Find the distributed arrays among the arguments of a model.

    Raises
    ------
    ValueError
        If one is not distributed along its first dimension only.
    """
    places, arrays = [], []

    def one(path: Any, leaf: Any) -> Any:
        if not (is_spread(leaf) and not leaf.is_fully_replicated) and not _has_explicit_axes(leaf):
            return leaf
        places.append(jax.tree_util.keystr(path))
        arrays.append(_without_explicit_axes(leaf))
        return arrays[-1]

    args, own = jax.tree_util.tree_map_with_path(one, (args, dict(kwargs or {})))
    return SpreadArguments(args, own, tuple(places), tuple(arrays))


def filled(
    args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, places: tuple[str, ...], arrays: tuple[Array, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with distributed arrays at their places."""
    at = dict(zip(places, arrays, strict=True))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: at.get(jax.tree_util.keystr(path), leaf), (args, dict(kwargs or {}))
    )


def _has_explicit_axes(value: Any) -> bool:
    """Whether an array is on a mesh whose axes programs must follow in every operation, as those of `jax.make_mesh`."""
    if not isinstance(value, jax.Array) or is_traced(value) or not isinstance(value.sharding, NamedSharding):
        return False
    return any(kind != AxisType.Auto for kind in value.sharding.mesh.axis_types)


def _without_explicit_axes(array: Array) -> Array:
    """The same array on the same devices, over a mesh whose axes the compiler handles by itself."""
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding):
        return array
    spec = tuple(sharding.spec)
    if any(part is not None for part in spec[1:]):
        raise ValueError(
            f"an argument of shape {array.shape} is distributed by {sharding.spec}; expected rows distributed along the first "
            "dimension only, PartitionSpec('rows')"
        )
    if not _has_explicit_axes(array):
        return array
    mesh = sharding.mesh
    plain = Mesh(np.asarray(mesh.devices), mesh.axis_names)
    shards = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, NamedSharding(plain, PartitionSpec(*spec)), shards)


def replicated(array: Array | np.ndarray) -> np.ndarray:
    """The values of an array on all devices, as NumPy; every process must call this."""
    if not is_elsewhere(array):
        return np.asarray(array)
    assert isinstance(array, jax.Array)
    sharding = array.sharding
    assert isinstance(sharding, NamedSharding)
    return np.asarray(jax.jit(lambda x: x, out_shardings=NamedSharding(sharding.mesh, PartitionSpec()))(array))


def check_spread(X: Array) -> None:
    """Check by reduction that all values of a distributed table are finite.

    Raises
    ------
    ValueError
        If one is not; the message names its row, and the process that has it.
    """
    finite = jax.jit(lambda X: jnp.isfinite(X).reshape(len(X), -1).all(axis=1))(X)
    if bool(jax.jit(jnp.all)(finite)):
        return
    row = int(jax.jit(jnp.argmin)(finite))
    places: Any = X.sharding.devices_indices_map(X.shape)
    owner = next(device.process_index for device, index in places.items() if _contains(index[0], row))
    raise ValueError(f"X has NaN or infinite values, first in row {row}, which process {owner} has; expected finite numbers")


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
