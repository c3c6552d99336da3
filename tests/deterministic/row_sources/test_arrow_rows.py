"""Arrow tables and data sets: batches, names, nulls and types of columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from bnp_hier.deterministic.row_sources import arrow_rows
from bnp_hier.deterministic.row_sources.arrow_rows import arrow_stream
from tests.deterministic.row_sources.problem import estimator, table


def test_same_clusters_as_a_stream(few_in_memory: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "ROWS_AT_ONCE", 100)
    X = table()
    whole = estimator(X).fit(lambda: [X])
    columns = pa.table({"height": X[:, 0], "weight": X[:, 1]})
    for part in range(3):
        pa.parquet.write_table(columns.slice(300 * part, 300), tmp_path / f"part-{part}.parquet")
    for source in (columns, columns.combine_chunks().to_batches()[0], pa.dataset.dataset(tmp_path)):
        fit = estimator(X).fit(source)
        assert (fit.labels_ == whole.labels_).all() and fit.free_energy_ == whole.free_energy_
        assert list(fit.feature_names_in_) == ["height", "weight"]
    assert (fit.predict(columns) == fit.predict(columns.to_pandas())).all()
    with pytest.raises(TypeError, match="X is a pyarrow FileSystemDataset, which BayesianKMeans would read as a whole"):
        fit.predict(pa.dataset.dataset(tmp_path))


def test_values() -> None:
    columns = {"a": [1.5, None, 3.0], "b": [1, 2, None], "c": [True, False, None], "d": pa.nulls(3)}
    (chunk,) = arrow_stream(pa.table(columns)).chunks()
    expected = [[1.5, 1.0, 1.0, np.nan], [np.nan, 2.0, 0.0, np.nan], [3.0, np.nan, np.nan, np.nan]]
    assert chunk.dtype == np.float64 and np.array_equal(chunk, expected, equal_nan=True)
    (single,) = arrow_stream(pa.table({"a": pa.array([1.5, None], pa.float32())})).chunks()
    assert single.dtype == np.float32 and np.array_equal(single, [[1.5], [np.nan]], equal_nan=True)


@pytest.mark.parametrize(
    "values", [["x", "y"], pa.array(["x", "y"]).dictionary_encode(), pa.array([1, 2], pa.timestamp("s")), [[1.0], [2.0]]]
)
def test_columns_without_numbers_are_named(values: object) -> None:
    with pytest.raises(TypeError, match="column 'bad' of X has the Arrow type .*; expected numbers"):
        arrow_stream(pa.table({"good": [1.0, 2.0], "bad": values}))
