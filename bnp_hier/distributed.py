"""Helpers for rows that are distributed over several processes, each of which runs the same program.

Start the processes with `jax.distributed.initialize`, and make a table of the rows that each of them has with `shard_rows`.
`ParallelSplitMerge` samples its partition like that of any other table.

Estimators that read rows in parts need no such processes: they see a table only through `RowSource`, and what runs on its parts
is `assign`, to which `Scores` go down and from which statistics and counts of clusters come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

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
    that draws do not depend on how many processes read the same blocks in the same order.

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
        If a process has no rows or other columns, types or numbers of blocks than others, or rows with NaN or infinite values;
        the message, the same in all processes, names the process.
    """
    blocks = [np.asarray(block) for block in (rows if isinstance(rows, list | tuple) else [rows])]
    wrong = _wrong_block(blocks)
    blocks = [block if block.dtype.kind == "f" else block.astype(jnp.result_type(float)) for block in blocks]
    same = (len(blocks), blocks[0].shape[-1] if blocks and blocks[0].ndim else 0, blocks[0].dtype.itemsize if blocks else 0)
    sizes = [len(block) if block.ndim == 2 else 0 for block in blocks] or [0]
    place = (-1, -1) if wrong is None else wrong
    found = _gathered(np.array([*same, min(sizes), max(sizes), *place]))
    for process, (_, _, _, _, _, row, column) in enumerate(found.tolist()):
        if row >= 0:
            raise ValueError(
                f"process {process} has a NaN or infinite value in row {row}, column {column}; expected finite numbers"
            )
    for process, numbers in enumerate(found.tolist()):
        if numbers[3] < 1:
            raise ValueError(f"process {process} has no rows, or rows that are not a table (m, d)")
        for what, one, other in zip(("blocks", "columns", "bytes per number"), numbers, found[0].tolist(), strict=False):
            if one != other:
                raise ValueError(f"process {process} has {one} {what}, but process 0 has {other}; expected the same number")
    mesh = jax.make_mesh((jax.device_count(),), ("rows",)) if mesh is None else mesh
    devices = jax.local_device_count()
    size = int(found[:, 4].max())
    if int(found[:, 3].min()) < size or len(blocks) * size % devices:
        size += -size % int(np.lcm(devices, PADDED_TO))
    whole = [np.pad(block, ((0, size - len(block)), (0, 0)), constant_values=np.nan) for block in blocks]
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec(mesh.axis_names[0])), np.concatenate(whole))


def _wrong_block(blocks: list[np.ndarray]) -> tuple[int, int] | None:
    """Row of this process and column of the first value that is not finite; None if there is none or rows are no tables."""
    at = 0
    for block in blocks:
        if block.ndim == 2 and block.dtype.kind == "f" and not np.isfinite(block).all():
            row, column = np.argwhere(~np.isfinite(block))[0]
            return at + int(row), int(column)
        at += len(block) if block.ndim else 0
    return None


def _gathered(numbers: Int[np.ndarray, " m"]) -> Int[np.ndarray, "processes m"]:
    """The numbers of all processes."""
    if jax.process_count() == 1:
        return numbers[None]
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(numbers)).reshape(-1, len(numbers))


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
    """
    return gathered_labels(labels)
