"""Helpers for rows that are distributed over several processes, each of which runs the same program.

Start the processes with `jax.distributed.initialize`, and make a table of the rows that each of them has with `shard_rows`.
`ParallelSplitMerge` samples its partition like that of any other table.

Estimators that read rows in parts need no such processes: they see a table only through `RowSource`, and what runs on its parts
is `assign`, to which `Scores` go down and from which statistics and counts of clusters come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.distributed_tables import from_distributed_rows
from bnp_hier.deterministic.hard_assignment.assignment import Pass, Scores, assign
from bnp_hier.deterministic.row_sources.protocol import RowSource
from bnp_hier.kernels.spread_rows import gathered_labels
from bnp_hier.utils.sharded_arrays import stays_on_device

__all__ = ["Pass", "RowSource", "Scores", "assign", "from_data", "gather_labels", "shard_rows"]

PADDED_TO = 16
"""Shares of rows that need padding are padded to a multiple of this number, besides that of a process's devices."""


def shard_rows(
    rows: Num[Array | np.ndarray, "_ d"] | Sequence[Num[Array | np.ndarray, "_ d"]], mesh: Mesh | None = None
) -> Float[Array, "n d"]:
    """Make one distributed table of the rows that each process has; every process must call this.

    Processes may have different numbers of rows: shares are padded with rows of NaN, which kernels ignore. Draws then depend
    on where the padding is. If the rows come in blocks, such as files, every block is padded to the size of the largest one, so
    that draws do not depend on how many processes, of the same number of devices each, read the same blocks in the same order.
    Collected labels have −1 for padding, which `gather_labels` leaves out.

    Parameters
    ----------
    rows
        The rows of this process, (m, d), m ≥ 1, or a sequence of blocks of them. Integers are converted to floating point.
    mesh
        One-dimensional mesh of all devices; by default, a new one.

    Returns
    -------
    X
        The table, (n, d), sharded along its first dimension, with the processes' rows in the order of their numbers.

    Raises
    ------
    ValueError
        If a process has no rows, rows with NaN or infinite values, or other columns, types, or numbers of blocks or devices
        than others; all processes raise it, and the message names the process. Also if the mesh does not have all devices in
        the order of the processes.

    Examples
    --------
    >>> import numpy as np
    >>> from bnp_hier.distributed import shard_rows
    >>> X = shard_rows(np.array([[0.0], [0.5], [1.5], [2.0]]))
    >>> X.shape, X.is_fully_addressable
    ((4, 1), True)
    """
    blocks, own = _read_blocks(rows)
    smallest, size = _check_blocks(_gathered(own))
    mesh = _mesh_in_order() if mesh is None else _checked(mesh)
    devices = jax.local_device_count()
    if smallest < size or size % devices:
        size += -size % int(np.lcm(devices, PADDED_TO))
    if len(blocks) == 1 and len(blocks[0]) == size:
        whole = blocks[0]
    else:
        whole = np.full((len(blocks) * size, blocks[0].shape[1]), np.nan, blocks[0].dtype)
        for number, block in enumerate(blocks):
            whole[number * size : number * size + len(block)] = block
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec(mesh.axis_names[0])), whole)


class _Blocks(NamedTuple):
    """What processes tell each other about their blocks of rows; smallest and largest values over the blocks."""

    readable: int
    number: int
    devices: int
    columns: tuple[int, int]
    itemsize: tuple[int, int]
    rows: tuple[int, int]
    not_finite: tuple[int, int]


def _read_blocks(rows: Any) -> tuple[list[np.ndarray], _Blocks]:
    """The blocks in floating point, and what other processes must know about them; errors are left to `_check_blocks`."""
    blocks, readable = [], True
    for block in rows if isinstance(rows, list | tuple) else [rows]:
        try:
            block = np.asarray(block)
            blocks.append(block if block.dtype.kind == "f" else block.astype(jnp.result_type(float)))
        except (TypeError, ValueError):
            readable = False
    readable = readable and bool(blocks) and all(block.ndim == 2 for block in blocks)
    devices, nothing = jax.local_device_count(), (0, 0)
    if not readable:
        return blocks, _Blocks(False, len(blocks), devices, nothing, nothing, nothing, (-1, -1))
    wrong, at = (-1, -1), 0
    for block in blocks:
        finite = np.isfinite(block)
        if wrong[0] < 0 and not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            wrong = at + row, column
        at += len(block)
    columns, itemsizes, sizes = zip(*((block.shape[1], block.dtype.itemsize, len(block)) for block in blocks), strict=True)
    ranges = [(min(each), max(each)) for each in (columns, itemsizes, sizes)]
    return blocks, _Blocks(True, len(blocks), devices, ranges[0], ranges[1], ranges[2], wrong)


def _check_blocks(found: list[_Blocks]) -> tuple[int, int]:
    """Smallest and largest number of rows of a block.

    Raises
    ------
    ValueError
        As `shard_rows`; depends only on what all processes know.
    """
    first = found[0]
    for process, own in enumerate(found):
        if not own.readable or own.rows[0] < 1:
            raise ValueError(f"process {process} has no rows, or rows that are not a table of numbers (m, d)")
        if own.not_finite[0] >= 0:
            row, column = own.not_finite
            where = f"row {row}, column {column}"
            raise ValueError(f"process {process} has a NaN or infinite value in {where}; expected finite numbers")
        for what, mine, theirs in (
            ("blocks", (own.number,), first.number),
            ("devices", (own.devices,), first.devices),
            ("columns", own.columns, first.columns[0]),
            ("bytes per number", own.itemsize, first.itemsize[0]),
        ):
            for each in mine:
                if each != theirs:
                    raise ValueError(
                        f"process {process} has {each} {what}, but process 0 has {theirs}; expected the same number"
                    )
    return min(own.rows[0] for own in found), max(own.rows[1] for own in found)


def _gathered(own: _Blocks) -> list[_Blocks]:
    """The blocks of all processes."""
    if jax.process_count() == 1:
        return [own]
    from jax.experimental.multihost_utils import process_allgather

    leaves, structure = jax.tree.flatten(own)
    table = np.asarray(process_allgather(np.array(leaves))).reshape(-1, len(leaves))
    return [jax.tree.unflatten(structure, row) for row in table.tolist()]


def _mesh_in_order() -> Mesh:
    """A mesh of all devices in the order of the processes, which `jax.make_mesh` may change."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices), ("rows",))


def _checked(mesh: Mesh) -> Mesh:
    processes = [device.process_index for device in mesh.devices.ravel()]
    if mesh.devices.ndim != 1 or processes != sorted(processes) or len(processes) != jax.device_count():
        raise ValueError(
            f"the mesh has shape {mesh.devices.shape} and devices of the processes {processes}; expected one dimension with "
            f"all {jax.device_count()} devices in the order of the processes"
        )
    return mesh


def from_data(family: type[Component], X: Array, **options: Any) -> Any:
    """Derive a prior from all rows of a distributed table, as the family's `from_data` does, without moving rows.

    Sums over rows are computed where the rows are; every process must call this, and all of them get the same prior. The
    families of this package do the same in their `from_data`, but a family of your own need not.

    Parameters
    ----------
    family
        The family, such as `NormalInverseWishart`.
    X
        The table, (n, d), distributed along its first dimension.
    **options
        Options of its `from_data`.

    Returns
    -------
    component
        `LearnedPrior`, or a component if `learn` is False, with NumPy arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> X = bnp.distributed.shard_rows(np.array([[0.0], [0.5], [1.5], [2.0]]))
    >>> bnp.distributed.from_data(bnp.NormalInverseWishart, X, learn=False).mean
    array([1.])
    """
    derive = partial(family.from_data, **options)
    return from_distributed_rows(derive, X) if stays_on_device(X) else derive(X)


def gather_labels(labels: Array) -> Int[np.ndarray, "... n"]:
    """Return labels that are distributed over processes, as NumPy; every process must call this, and all get all labels.

    Parameters
    ----------
    labels
        Labels of one or several draws, such as ``mcmc.get_samples()["z"]``; arrays that are not distributed are allowed. Those
        of padding are left out.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from bnp_hier.distributed import gather_labels
    >>> gather_labels(jnp.array([0, 0, 1, -1])).tolist()  # the last row is padding
    [0, 0, 1]
    """
    return gathered_labels(labels)
