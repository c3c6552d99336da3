"""What each process keeps and saves of a run whose rows are distributed over processes.

Labels stay in the process that has the rows; everything else is the same everywhere. A run is saved as one file with what all
processes share, written by process 0, and one file of each process with its part. The shared file is replaced last, so that a
process that dies while the others save leaves complete files of an earlier step.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Iterator, Mapping
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
from bnp_hier.utils.sharded_arrays import any_sharded, is_sharded, is_spread, replicated

__all__ = [
    "Part",
    "agreed",
    "as_parts",
    "as_whole",
    "asked_to_end",
    "check_processes",
    "failing_together",
    "is_common",
    "other_process_named",
    "placed_like",
    "placed_on",
    "read_distributed",
    "shard_fingerprint",
    "write_distributed",
]

_ASKED = itertools.count(1)
"""Number of times that processes were asked to agree on an end, as JAX requires."""

LOST = ("Gloo", "coordination service", "heartbeat", "Connection closed", "Connection reset", "Socket closed")
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
        if mesh is None:
            raise ValueError("the labels of this run are distributed: call its resume method with the data first")
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
    leaves, structure = jax.tree.flatten(state)
    rest = [leaf for leaf in leaves if not is_sharded(leaf)]
    placed = iter(jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, PartitionSpec()))(rest))
    return jax.tree.unflatten(structure, [leaf if is_sharded(leaf) else next(placed) for leaf in leaves])


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


def _part_path(path: str | os.PathLike[str], save: str) -> Path:
    """File of this process's part of a run."""
    path = Path(path)
    return path.with_name(f"{path.name}.{save}.{jax.process_index()}-of-{jax.process_count()}")


def _discard_others(path: str | os.PathLike[str], save: str) -> None:
    """Remove the parts of other saves."""
    path = Path(path)
    for file in path.parent.glob(f"{path.name}.*-of-*"):
        if not file.name.startswith(f"{path.name}.{save}."):
            file.unlink()


def is_common(arguments: Any) -> bool:
    """Whether the processes of this job have a run in common, since rows among its arguments are distributed over them.

    If not, each process may have a run of its own, and must not wait for others.
    """
    return jax.process_count() > 1 and any_sharded(arguments)


def agreed(condition: bool, common: bool) -> bool:
    """What process 0 finds: clocks and files of processes may differ, but all must go on with a common run in the same way."""
    if not common:
        return condition
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return bool(broadcast_one_to_all(np.asarray(condition)))


def asked_to_end(common: bool) -> bool:
    """Whether any process has received SIGTERM, which JAX passes on, so that all of them can stop after the same step."""
    if not common:
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


@contextmanager
def failing_together(what: str, common: bool) -> Iterator[None]:
    """Let an error of a common run in one process be an error in all, since the others would wait for it for ever.

    Raises
    ------
    RuntimeError
        If another process has failed.
    Exception
        The error of this process.
    """
    if not common:
        yield
        return
    from jax.experimental.multihost_utils import process_allgather

    failed: Exception | None = None
    try:
        yield
    except Exception as error:
        failed = error
    everyone = np.asarray(process_allgather(np.array([failed is not None]))).ravel()
    if failed is not None:
        raise failed
    if everyone.any():
        raise RuntimeError(f"process {int(everyone.argmax())} could not {what}; its own error says why")


def write_distributed(path: str | os.PathLike[str], header: Mapping[str, Any], trees: Mapping[str, Any]) -> None:
    """Write the shared file and this process's part; every process must call this, with the same header and shared arrays.

    Parameters
    ----------
    path, header, trees
        As for `write_checkpoint`. The fingerprint of the data is that of this process's rows and is written to its part.
    """
    from jax.experimental.multihost_utils import broadcast_one_to_all

    split = {name: _split(tree) for name, tree in trees.items()}
    shared, own = ({name: each[which] for name, each in split.items()} for which in range(2))
    save = f"{int(broadcast_one_to_all(np.asarray(secrets.randbits(31)))):08x}"  # parts of one save have the same name
    with failing_together("write its part of the run", True):
        write_checkpoint(_part_path(path, save), {"data": header["data"], "steps": header["steps"]}, own)
    with failing_together("write the run", True):
        if jax.process_index() == 0:
            write_checkpoint(path, {**header, "processes": jax.process_count(), "save": save}, shared)
            _discard_others(path, save)


def check_processes(path: str | os.PathLike[str], header: Mapping[str, Any], common: bool) -> None:
    """Check that a run was saved by as many processes as go on with it.

    Raises
    ------
    ValueError
        If it was not.
    """
    saved, now = header.get("processes", 1), jax.process_count() if common else 1
    if saved != now:
        raise ValueError(
            f"{os.fspath(path)} is a run of {saved} processes, but its rows are now distributed over {now}; start as many, "
            "each with the same rows"
        )


def read_distributed(path: str | os.PathLike[str], found: Checkpoint, mesh: Mesh) -> Checkpoint:
    """Complete what was read from the shared file with this process's part.

    Raises
    ------
    FileNotFoundError, ValueError, RuntimeError
        If this part, or that of another process, is missing or damaged.
    """
    with failing_together("read its part of the run", True):
        part = read_checkpoint(_part_path(path, found.header["save"]))
    whole = {name: {place: Part(np.asarray(leaf)) for place, leaf in part.leaves[name].items()} for name in part.leaves}
    leaves = {name: found.leaves[name] | as_whole(whole[name], mesh) for name in found.leaves}
    return Checkpoint({**found.header, "data": part.header["data"]}, leaves)
