"""The tables of clusters as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier.datasets import from_frame
from bnp_hier.posterior.cluster_profiles import Column, describe_columns
from bnp_hier.reports.profiles import columns_of, profiles_table, write_tables


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
    assert table.loc[("time", "1"), "mean"] == "2024-03-01 00:00:01" and table.loc[("time", "1"), "rows"] == "2"
    np.testing.assert_allclose(float(table.loc[("length", "0"), "mean"]), 0.111523, atol=1e-9)


def test_columns_without_a_mean_are_not_described() -> None:
    """A column that was left out because it has an infinite value does not spoil the profiles of the others."""
    frame = pd.DataFrame({"length": [0.0, 0.5, 9.25], "ratio": [1.5, np.inf, 2.5], "price": [4.5, 1.25, 2.0]})
    found = columns_of(from_frame(frame, drop=["ratio", "price"], name="X"))
    assert [(column.name, column.used) for column in found] == [("length", True), ("price", False)]


def test_levels_are_in_the_order_of_the_data() -> None:
    """Grades from low to high, and codes as numbers; those that do not occur are left out."""
    sizes, codes = ["small", "large", "medium", "small"] * 3, [9, 10, 2, 9] * 3
    frame = pd.DataFrame({"size": sizes, "code": codes, "stars": codes, "length": np.arange(12) ** 1.5})
    kinds = {"size": "small<medium<large<huge", "code": "category", "stars": "ordered"}
    data = from_frame(frame, kinds=kinds)
    columns = {column.name: column for column in columns_of(data)}
    assert columns["size"].levels == ("small", "medium", "large") and columns["code"].levels == ("2", "9", "10")
    np.testing.assert_array_equal(columns["size"].values[:3], np.eye(3)[[0, 2, 1]])
    assert columns["stars"].kind == "number"  # grades that are numbers have a mean
    fit = bnp.MAPDP().fit(frame[["length"]])
    found = describe_columns(fit, frame[["length"]], None, list(columns.values()), 0.95, 20)
    shown = [name for name in profiles_table(found, np.bincount(fit.labels_)).index if name.startswith(("size", "code"))]
    assert [name for name in shown if name.startswith("size")] == ["size = small", "size = medium", "size = large"]
    assert [name for name in shown if name.startswith("code")] == ["code = 2", "code = 9", "code = 10"]


def left_out(cells: list[str]) -> Column:
    """The description of a column of texts that was left out."""
    frame = pd.DataFrame({"length": np.arange(len(cells)) ** 2.0, "seen": cells})
    return columns_of(from_frame(frame, drop=["seen"], name="X"))[1]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["13.01.2020", "1.2.2020", "", "05.03.2020 10:30"], ["2020-01-13", "2020-02-01", "NaT", "2020-03-05T10:30"]),
        (["31.12.2020", "2020-01-02", "2020/01/02", "Jan 2, 2020"], ["2020-12-31", "2020-01-02", "2020-01-02", "2020-01-02"]),
        (["1.2.20", "5.3.21"], ["2020-02-01", "2021-03-05"]),
        (["25/12/2020", "1/2/2021"], ["2020-12-25", "2021-02-01"]),
        (["12/25/2020", "1/2/2021"], ["2020-12-25", "2021-01-02"]),
        (["1/2/2021", "3/4/2021"], ["2021-01-02", "2021-03-04"]),
        (["12.25.2020", "1.2.2021"], ["2020-12-25", "2021-01-02"]),
    ],
)
def test_all_dates_of_a_column_have_day_and_month_in_the_same_order(cells: list[str], expected: list[str]) -> None:
    """pandas would read each cell by itself: 13.01. as a day of January, and 1.2. in the same column as one of it too."""
    column = left_out(cells)
    assert column.kind == "date"
    days = (np.array(expected, dtype="datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    np.testing.assert_allclose(column.values[:, 0], days)


@pytest.mark.parametrize("cells", [["10:30", "11:45", "10:30"], ["5 May", "1. June", "5 May"]])
def test_times_and_days_without_a_year_are_not_dates_of_this_year_or_of_the_first(cells: list[str]) -> None:
    """They are texts; pandas would add the day of today, or the year 1."""
    assert left_out(cells).kind == "category"


def test_dates_of_any_year_are_described(tmp_path: Path) -> None:
    """Such as 9999-12-31 for "never": nanoseconds hold only the years from 1678 to 2262."""
    frame = pd.DataFrame({"length": [0.0, 0.1, 0.2, 9.0, 9.1, 9.2], "until": ["2024-01-01", "2024-01-03", "9999-12-31"] * 2})
    frame["old"] = ["0001-05-05", "1066-10-14", "1500-01-01"] * 2
    data = from_frame(frame, drop=["until", "old"], name="X")
    column = {column.name: column for column in columns_of(data)}
    assert column["until"].kind == column["old"].kind == "date"
    others = pd.DataFrame({name: frame[name].to_numpy("datetime64[s]") for name in ("until", "old")})
    found = bnp.describe(bnp.MAPDP().fit(data.X), data.X, np.repeat([0, 1], 3), others=others)
    write_tables(tmp_path, found)
    table = pd.read_csv(tmp_path / "clusters.csv", dtype=str).set_index(["column", "cluster"])
    mean = np.array(["2024-01-01", "2024-01-03", "9999-12-31"], dtype="datetime64[s]").astype(np.int64).mean()
    assert table.loc[("until", "0"), "mean"] == str(np.datetime64(round(mean / 86_400), "D"))
    assert table.loc[("old", "1"), "mean"].lstrip("0").startswith("856-01")
