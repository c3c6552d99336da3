"""What each process keeps and saves of a run whose rows are distributed over processes.

Labels stay in the process that has the rows; everything else is the same everywhere. A run is saved as one file with what all
processes share, written by process 0, and one file of each process with its part. The shared file is replaced last, so that a
process that dies while the others save leaves complete files of an earlier step.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bnp_hier.kernels.spread_rows import SpreadArguments
from bnp_hier.runs.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from bnp_hier.utils.arrays import is_elsewhere
from bnp_hier.utils.sharded_arrays import is_sharded, is_spread, replicated

__all__ = [
    "Part",
    "agreed",
    "as_parts",
    "as_whole",
    "asked_to_end",
    "other_process_named",
    "placed_like",
    "placed_on",
    "read_distributed",
    "shard_fingerprint",
    "write_distributed",
]

_ASKED = itertools.count(1)
"""Number of times that processes were asked to agree on an end, as JAX requires."""

LOST = ("Gloo", "gloo", "onnection", "coordination", "heartbeat", "NCCL", "peer")
"""Words in JAX's errors about a process that is not there any more."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Part:
    """The values of an array that is distributed along its last dimension which are on this process's devices, as NumPy."""

    values: Any


def as_parts(tree: Any) -> Any:
    """Replace arrays that are distributed along their last dimension by this process's parts, and others by NumPy arrays."""
    return jax.tree.map(_as_part, tree)


def _as_part(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    if not is_elsewhere(leaf):
        return np.asarray(leaf)
    spec = tuple(leaf.sharding.spec) if isinstance(leaf.sharding, NamedSharding) else ()
    if len(spec) != leaf.ndim or spec[-1] is None or any(each is not None for each in spec[:-1]):
        return replicated(leaf)
    shards = {shard.index[-1].start or 0: shard.data for shard in leaf.addressable_shards}
    return Part(np.concatenate([np.asarray(shards[start]) for start in sorted(shards)], axis=-1))


def as_whole(tree: Any, mesh: Mesh | None) -> Any:
    """Replace parts by arrays that are distributed over the mesh."""

    def whole(leaf: Any) -> Any:
        if not isinstance(leaf, Part):
            return leaf
        assert mesh is not None
        spec = PartitionSpec(*[None] * (leaf.values.ndim - 1), mesh.axis_names[0])
        return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), leaf.values)

    return jax.tree.map(whole, tree, is_leaf=lambda leaf: isinstance(leaf, Part))


def _split(tree: Any) -> tuple[Any, Any]:
    """The tree with None for this process's parts, and the one with None for everything else."""
    is_part = lambda leaf: isinstance(leaf, Part)  # noqa: E731
    tree = jax.tree.map(lambda leaf: leaf if is_part(leaf) else _as_part(leaf), tree, is_leaf=is_part)
    shared = jax.tree.map(lambda leaf: None if is_part(leaf) else leaf, tree, is_leaf=is_part)
    return shared, jax.tree.map(lambda leaf: leaf.values if is_part(leaf) else None, tree, is_leaf=is_part)


def placed_on(state: Any, mesh: Mesh | None) -> Any:
    """The state of a kernel with everything that is not distributed on all devices, as after a step.

    Otherwise, programs would be compiled again for the second chunk.
    """
    if mesh is None:
        return state
    everywhere = jax.jit(lambda leaf: leaf, out_shardings=NamedSharding(mesh, PartitionSpec()))
    return jax.tree.map(lambda leaf: leaf if is_sharded(leaf) else everywhere(leaf), state)


def placed_like(tree: Any, template: Any) -> Any:
    """The leaves of a tree where those of the template are."""

    def placed(leaf: Any, old: Any) -> Any:
        if not is_spread(old) or is_elsewhere(leaf):
            return leaf
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            numbers = jax.random.key_data(old)
            return jax.random.wrap_key_data(placed(jax.random.key_data(leaf), numbers), impl=jax.random.key_impl(leaf))
        values = np.asarray(leaf)
        return jax.make_array_from_callback(values.shape, old.sharding, lambda index: values[index])

    return jax.tree.map(placed, tree, template)


def shard_fingerprint(spread: SpreadArguments) -> str:
    """SHA-256 hash of the rows on this process's devices and of their places in the tables."""
    digest = hashlib.sha256()
    for place, array in zip(spread.places, spread.arrays, strict=True):
        for shard in sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0):
            digest.update(f"{place} {array.dtype} {array.shape} {shard.index}\n".encode() + np.asarray(shard.data).tobytes())
    return digest.hexdigest()


def _part_path(path: str | os.PathLike[str], steps: int) -> Path:
    """File of this process's part of a run after some steps."""
    path = Path(path)
    return path.with_name(f"{path.name}.{jax.process_index()}-of-{jax.process_count()}.step-{steps}")


def _discard_older(path: str | os.PathLike[str], steps: int) -> None:
    """Remove this process's files of other steps."""
    current = _part_path(path, steps)
    for file in current.parent.glob(f"{Path(path).name}.{jax.process_index()}-of-{jax.process_count()}.step-*"):
        if file != current:
            file.unlink()


def _wait_for_all(what: str) -> None:
    """Wait until all processes have come here."""
    if jax.process_count() > 1:
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices(what)


def agreed(condition: Callable[[], bool]) -> bool:
    """What process 0 finds: clocks and files of processes may differ, but all of them must go on in the same way."""
    if jax.process_count() == 1:
        return condition()
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return bool(broadcast_one_to_all(np.asarray(condition() if jax.process_index() == 0 else False)))


def asked_to_end() -> bool:
    """Whether any process has received SIGTERM, which JAX passes on, so that all of them can stop after the same step."""
    if jax.process_count() == 1:
        return False
    from jax.experimental.multihost_utils import reached_preemption_sync_point

    try:
        return bool(reached_preemption_sync_point(next(_ASKED)))
    except RuntimeError:  # the service is switched off
        return False


@contextmanager
def other_process_named(resumed_by: str) -> Iterator[None]:
    """Say plainly that another process has ended, where JAX reports a broken connection.

    Raises
    ------
    RuntimeError
        If the connection to another process is lost.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if jax.process_count() == 1 or not any(sign in text for sign in LOST):
            raise
        raise RuntimeError(
            f"another process of this job has ended, so that process {jax.process_index()} cannot go on either; start all of "
            f"the {jax.process_count()} processes again: {resumed_by} ({text.splitlines()[0]})"
        ) from error


def write_distributed(path: str | os.PathLike[str], header: Mapping[str, Any], trees: Mapping[str, Any]) -> None:
    """Write the shared file and this process's part; every process must call this, with the same header and shared arrays.

    Parameters
    ----------
    path, header, trees
        As for `write_checkpoint`. The fingerprint of the data is that of this process's rows and is written to its part.
    """
    split = {name: _split(tree) for name, tree in trees.items()}
    shared, own = ({name: each[which] for name, each in split.items()} for which in range(2))
    steps = header["steps"]
    write_checkpoint(_part_path(path, steps), {"data": header["data"], "steps": steps}, own)
    _wait_for_all("parts written")
    if jax.process_index() == 0:
        write_checkpoint(path, {**header, "processes": jax.process_count()}, shared)
    _wait_for_all("run written")
    _discard_older(path, steps)


def read_distributed(path: str | os.PathLike[str], found: Checkpoint, mesh: Mesh) -> Checkpoint:
    """Complete what was read from the shared file with this process's part.

    Raises
    ------
    FileNotFoundError
        If the part is missing.
    ValueError
        If the run was saved by another number of processes.
    """
    processes = found.header.get("processes", 1)
    if processes != jax.process_count():
        raise ValueError(
            f"{os.fspath(path)} was saved by {processes} processes, but this job has {jax.process_count()}; start as many, "
            "each with the same rows"
        )
    part = read_checkpoint(_part_path(path, found.header["steps"]))
    whole = {name: {place: Part(np.asarray(leaf)) for place, leaf in part.leaves[name].items()} for name in part.leaves}
    leaves = {name: found.leaves[name] | as_whole(whole[name], mesh) for name in found.leaves}
    return Checkpoint({**found.header, "data": part.header["data"]}, leaves)
