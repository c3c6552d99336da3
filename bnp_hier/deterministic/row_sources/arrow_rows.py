"""Arrow tables and data sets as streams of record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from bnp_hier.deterministic.row_sources.chunked_rows import ROWS_AT_ONCE, RowStream

__all__ = ["arrow_stream"]


def arrow_stream(X: Any) -> RowStream:
    """Stream over the record batches of a `pyarrow.Table`, `pyarrow.RecordBatch` or `pyarrow.dataset.Dataset`; nulls are NaN.

    Raises
    ------
    TypeError
        If a column does not contain numbers; the message names it.
    """
    import pyarrow as pa

    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    single = _is_single_precision(X.schema)

    def chunks() -> Iterator[Float[np.ndarray, "m d"]]:
        whole = isinstance(X, pa.Table)
        batches = X.to_batches(max_chunksize=ROWS_AT_ONCE) if whole else X.to_batches(batch_size=ROWS_AT_ONCE)
        for batch in batches:
            yield _matrix(batch, np.float32 if single else np.float64)

    return RowStream(chunks, feature_names=list(X.schema.names))


def _is_single_precision(schema: Any) -> bool:
    """Whether all columns are in single precision.

    Raises
    ------
    TypeError
        If a column does not contain numbers.
    """
    import pyarrow as pa

    for field in schema:
        kind = field.type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if not (numeric or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise TypeError(
                f"column {field.name!r} of X has the Arrow type {kind}; expected numbers: select the numeric columns, or "
                "convert it to numbers"
            )
    return all(pa.types.is_float32(field.type) for field in schema)


def _matrix(batch: Any, dtype: type[np.floating[Any]]) -> Float[np.ndarray, "m d"]:
    import pyarrow as pa

    matrix = np.empty((batch.num_rows, batch.num_columns), dtype)
    kind = pa.from_numpy_dtype(dtype)
    for j, column in enumerate(batch.columns):
        # integers above 2^53 are rounded, as in tables in memory
        matrix[:, j] = column.cast(kind, safe=False).to_numpy(zero_copy_only=False)
    return matrix
