"""The tables of clusters as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import bnp_hier as bnp
from bnp_hier.datasets import from_frame
from bnp_hier.reports.profiles import columns_of, write_tables


def test_dates_are_written_with_the_digits_that_they_deserve(tmp_path: Path) -> None:
    """To the day, or to the second where they spread by less than a day; numbers beside them have six digits."""
    X = pd.DataFrame({"length": [0.0, 0.1, 0.2345678901, 9.0, 9.1, 9.2]})
    start = pd.Timestamp("2024-03-01")
    others = pd.DataFrame(
        {
            "day": [start + pd.Timedelta(days=10 * i) for i in range(6)],
            "time": [start + pd.Timedelta(seconds=i / 5) for i in range(5)] + [None],
        }
    )
    found = bnp.describe(bnp.MAPDP().fit(X), X, others=others)
    written = write_tables(tmp_path, found)
    assert list(written) == ["clusters.csv", "association.csv"]
    table = pd.read_csv(tmp_path / "clusters.csv", dtype=str).set_index(["column", "cluster"])
    assert table.loc[("day", "0"), "mean"] == "2024-03-11" and table.loc[("day", "1"), "mean"] == "2024-04-10"
    assert table.loc[("time", "0"), "mean"] == "2024-03-01 00:00:00" and float(table.loc[("day", "0"), "sd"]) == 10
    assert table.loc[("time", "1"), "mean_over_draws"] == "2024-03-01 00:00:01" and table.loc[("time", "1"), "rows"] == "2"
    np.testing.assert_allclose(float(table.loc[("length", "0"), "mean"]), 0.111523, atol=1e-9)


def test_columns_without_a_mean_are_not_described() -> None:
    """A column that was left out because it has an infinite value does not spoil the profiles of the others."""
    frame = pd.DataFrame({"length": [0.0, 0.5, 9.25], "ratio": [1.5, np.inf, 2.5], "price": [4.5, 1.25, 2.0]})
    found = columns_of(from_frame(frame, drop=["ratio", "price"], name="X"))
    assert [(column.name, column.used) for column in found] == [("length", True), ("price", False)]
