"""Arrays that are distributed over devices or processes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from jaxtyping import Array

from bnp_hier.utils.arrays import is_elsewhere, is_traced

__all__ = [
    "any_sharded",
    "has_explicit_axes",
    "is_sharded",
    "is_spread",
    "replicated",
    "stays_on_device",
    "without_explicit_axes",
]

LARGE = 1 << 22
"""Number of values from which a JAX array stays on its device: it is neither copied nor compiled into programs."""


def is_spread(value: Any) -> bool:
    """Whether an array is distributed over devices, in which case its values are not inspected.

    A table whose rows are sharded over a mesh of one device counts too, so that programs are the same on any number of devices.
    """
    if not isinstance(value, jax.Array) or is_traced(value):
        return False
    return is_sharded(value) or len(value.sharding.device_set) > 1


def is_sharded(value: Array) -> bool:
    """Whether the rows of an array are distributed, be it over a mesh of one device."""
    sharding = value.sharding
    by_rows = isinstance(sharding, NamedSharding) and tuple(sharding.spec[:1]) not in ((), (None,))
    return by_rows or not value.is_fully_replicated


def any_sharded(tree: Any) -> bool:
    """Whether the rows of any array in a tree are distributed."""
    return any(isinstance(leaf, jax.Array) and is_sharded(leaf) for leaf in jax.tree.leaves(tree))


def stays_on_device(value: Any) -> bool:
    """Whether an array is distributed or large and on a device, so that it must be an argument of programs."""
    if not isinstance(value, jax.Array) or is_traced(value):
        return False
    return is_sharded(value) or value.size >= LARGE


def has_explicit_axes(value: Any) -> bool:
    """Whether an array is on a mesh whose axes programs must follow in every operation, as those of `jax.make_mesh`."""
    if not isinstance(value, jax.Array) or is_traced(value) or not isinstance(value.sharding, NamedSharding):
        return False
    return any(kind != AxisType.Auto for kind in value.sharding.mesh.axis_types)


def without_explicit_axes(array: Array) -> Array:
    """The same array on the same devices, over a mesh whose axes the compiler handles by itself.

    Raises
    ------
    ValueError
        If it is not distributed along its first dimension only.
    """
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding):
        return array
    spec = tuple(sharding.spec)
    if any(part is not None for part in spec[1:]):
        raise ValueError(
            f"an argument of shape {array.shape} is distributed by {sharding.spec}; expected rows distributed along the first "
            "dimension only, PartitionSpec('rows')"
        )
    if not has_explicit_axes(array):
        return array
    mesh = sharding.mesh
    plain = Mesh(np.asarray(mesh.devices), mesh.axis_names)
    shards = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, NamedSharding(plain, PartitionSpec(*spec)), shards)


def replicated(array: ArrayLike) -> np.ndarray:
    """The values of an array on all devices, as NumPy; every process must call this."""
    if not is_elsewhere(array):
        return np.asarray(array)
    assert isinstance(array, jax.Array)
    sharding = array.sharding
    assert isinstance(sharding, NamedSharding)
    return np.asarray(jax.jit(lambda x: x, out_shardings=NamedSharding(sharding.mesh, PartitionSpec()))(array))
