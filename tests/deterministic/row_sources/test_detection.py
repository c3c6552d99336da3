"""What is read in parts, what is in memory, and what is refused; a source of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
import xarray as xr

import bnp_hier as bnp
from bnp_hier.deterministic.row_sources.chunked_rows import RowStream
from bnp_hier.deterministic.row_sources.detection import row_source
from tests.deterministic.row_sources.problem import estimator, table


class Pool:
    """Parts of a table in a pool of threads; processes or another engine would need the same lines."""

    feature_names = ("a", "b")
    n_rows = None

    def __init__(self, parts: list[np.ndarray]) -> None:
        self.parts, self.starts = parts, np.cumsum([0, *map(len, parts)]).tolist()

    def map(self, function: Callable[[np.ndarray, int], Any]) -> Iterator[Any]:
        with ThreadPoolExecutor(2) as pool:
            yield from pool.map(function, self.parts, self.starts[:-1])


def test_a_source_of_ones_own(few_in_memory: None, unchecked: None) -> None:
    X = table()
    source = Pool(np.array_split(X, 7))
    assert isinstance(source, bnp.distributed.RowSource)
    fit, whole = estimator(X).fit(source), estimator(X).fit(lambda: [X])
    assert (fit.labels_ == whole.labels_).all() and fit.free_energy_ == pytest.approx(whole.free_energy_, abs=1e-8)
    assert list(fit.feature_names_in_) == ["a", "b"]


def test_chunks_with_names(few_in_memory: None) -> None:
    X = table()
    frames = [pd.DataFrame(part, columns=["a", "b"]) for part in np.array_split(X, 5)]
    assert list(estimator(X).fit(lambda: frames).feature_names_in_) == ["a", "b"]
    frames[3] = frames[3][["b", "a"]]
    with pytest.raises(ValueError, match=r"chunk 3 has the columns \['b', 'a'\], but the first chunk has \['a', 'b'\]"):
        estimator(X).fit(lambda: frames)


def test_tables_in_memory() -> None:
    X = table(10)
    for rows in (X, X.tolist(), pd.DataFrame(X), pl.DataFrame(X), xr.DataArray(X), np.ma.masked_invalid(X)):
        assert row_source(rows) is None
    assert isinstance(row_source(lambda: [X]), RowStream)


def test_what_would_be_read_whole_is_refused(tmp_path: Path) -> None:
    X = table(10)
    arrow = pa.table({"a": X[:, 0]})
    pd.DataFrame(X).to_csv(tmp_path / "rows.csv")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        with pytest.raises(TypeError, match="X is a h5py Dataset, which would be read as a whole; pass dask.array.from_array"):
            row_source(file.create_dataset("X", data=X))
    for once in (arrow.to_reader(), pa.dataset.dataset(arrow).scanner()):
        with pytest.raises(TypeError, match="which can be read only once; .*; or pass the pyarrow Table or Dataset"):
            row_source(once)
    with pytest.raises(TypeError, match="LazyFrame, which would be read as a whole; pass pyarrow.dataset.dataset"):
        row_source(pl.DataFrame(X).lazy())
    with pd.read_csv(tmp_path / "rows.csv", chunksize=2) as reader:
        with pytest.raises(TypeError, match="X is an iterator .TextFileReader., which can be read only once"):
            row_source(reader)
    with pytest.raises(TypeError, match="pass X.data, which is a Dask array if the file was opened with chunks"):
        row_source(xr.DataArray(X).chunk(5))
    with pytest.raises(TypeError, match="would be read as a whole"):
        bnp.MAPDP(estimator(X).model).fit(pl.DataFrame(X).lazy())
