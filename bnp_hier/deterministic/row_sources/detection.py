"""Choice of the row source for an object that is passed to `fit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bnp_hier.deterministic.row_sources.arrow_rows import arrow_stream
from bnp_hier.deterministic.row_sources.chunked_rows import ROWS_AT_ONCE, RowStream
from bnp_hier.deterministic.row_sources.dask_rows import DaskRows, is_dask_table
from bnp_hier.deterministic.row_sources.protocol import RowSource

__all__ = ["only_in_memory", "row_source"]

SLICES = (
    "dask.array.from_array(X, chunks=(65536, -1)), or a function that returns an iterator over its slices: "
    "lambda: (X[at : at + 65536] for at in range(0, len(X), 65536))"
)
OF_ENGINES = "an object with the members of bnp_hier.distributed.RowSource, whose `map` runs a function on every partition"

INSTEAD = {
    ("dask", ""): "a Dask array or a Dask DataFrame",
    ("duckdb", ""): "a pyarrow.dataset.Dataset of its files, or a function that returns its record batches",
    ("h5py", "Dataset"): SLICES,
    ("netCDF4", "Variable"): SLICES,
    ("polars", "LazyFrame"): "pyarrow.dataset.dataset(files), or X.collect() if the rows fit in memory",
    ("pyspark", ""): OF_ENGINES,
    ("ray", ""): OF_ENGINES,
    ("tables", ""): SLICES,
    ("tensorstore", "TensorStore"): SLICES,
    ("zarr", "Array"): SLICES,
}
"""What to pass instead of objects that would be read whole: package, name of the class ("" for all), advice."""

IN_PARTS = (
    "use an estimator that reads rows in parts (BayesianKMeans, MAPDP, DPMeans); bnp_hier.tree_of_clusters makes a tree of its "
    "clusters"
)

ONCE = "which can be read only once; give a function that returns a new iterator of chunks each time it is called"


def row_source(X: Any) -> RowSource | None:
    """Return the row source for an object passed to `fit`; None for a table in memory.

    Memory-mapped arrays, functions that return an iterator over chunks, Arrow tables and data sets, Dask arrays and DataFrames,
    and row sources themselves are read in parts.

    Raises
    ------
    TypeError
        If X can be read only once, or would be read as a whole although it need not be in memory; the message says what to
        pass instead.
    ValueError
        If a memory-mapped or Dask array is not two-dimensional.
    """
    if isinstance(X, RowSource):
        return X
    if isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None:  # a copy of a memmap has its class but no file
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, shape (n, d), but the memory-mapped array has shape {X.shape}")
        return RowStream(lambda: (X[at : at + ROWS_AT_ONCE] for at in range(0, len(X), ROWS_AT_ONCE)))
    if is_dask_table(X):
        return DaskRows(X)
    if _is_arrow(X, "Table", "RecordBatch", "Dataset"):
        return arrow_stream(X)
    _refuse(X)
    return RowStream(X) if callable(X) else None


def only_in_memory(X: Any, estimator: str) -> Any:
    """Return a table for an estimator that needs all rows in memory: an Arrow table as a DataFrame, others as they are.

    Raises
    ------
    TypeError
        If X is distributed or on disk, and would be read as a whole. Memory-mapped arrays are accepted.
    """
    if _is_arrow(X, "Table", "RecordBatch"):
        return X.to_pandas()
    if is_dask_table(X) or _is_arrow(X, "Dataset"):
        whole = "X.compute()" if is_dask_table(X) else "X.to_table()"
        raise TypeError(
            f"X is a {_kind(X)}, which {estimator} would read as a whole; pass {whole} if the rows fit in memory, or {IN_PARTS}"
        )
    _refuse(X)
    if isinstance(X, RowSource) or callable(X):
        raise TypeError(f"X is a {_kind(X)}, but {estimator} needs a table here: pass an array of the rows, or {IN_PARTS}")
    return X


def _refuse(X: Any) -> None:
    if _is_arrow(X, "RecordBatchReader", "Scanner"):
        raise TypeError(f"X is a {_kind(X)}, {ONCE}; or pass the pyarrow Table or Dataset that it reads")
    if isinstance(X, Iterator):
        raise TypeError(f"X is an iterator ({type(X).__name__}), {ONCE}")
    package = type(X).__module__.partition(".")[0]
    advice = INSTEAD.get((package, type(X).__name__)) or INSTEAD.get((package, ""))
    if package == "xarray" and not _in_memory(X):
        advice = "X.data, which is a Dask array if the file was opened with chunks={...}"
    if advice is not None:
        raise TypeError(f"X is a {_kind(X)}, which would be read as a whole; pass {advice}")


def _in_memory(X: Any) -> bool:
    """Whether an xarray object is a single array in memory."""
    return hasattr(X, "data") and bool(getattr(getattr(X, "variable", X), "_in_memory", False))


def _is_arrow(X: Any, *names: str) -> bool:
    kinds = [kind for kind in type(X).__mro__ if kind.__module__.partition(".")[0] == "pyarrow"]
    return any(kind.__name__ in names for kind in kinds)


def _kind(X: Any) -> str:
    return f"{type(X).__module__.partition('.')[0]} {type(X).__name__}"
