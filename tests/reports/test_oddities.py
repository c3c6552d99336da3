"""Unusual rows: which are listed, and the columns that make them odd."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier.datasets import Dataset
from bnp_hier.models import dpm
from bnp_hier.posterior.cluster_profiles import column_of
from bnp_hier.reports import findings as of_findings
from bnp_hier.reports.findings import Findings
from bnp_hier.reports.oddities import NO_COLUMN, odd_columns, unusual_rows
from bnp_hier.reports.report import unusual

RNG = np.random.default_rng(0)
N = 40
LABELS = np.arange(N) % 2
FRAME = pd.DataFrame({"a": RNG.normal(size=N) + 9 * LABELS, "b": RNG.normal(size=N), "kind": np.where(LABELS, "x", "y")})


def test_columns_far_from_the_other_rows_of_the_cluster() -> None:
    frame = FRAME.copy()
    frame.loc[1, "b"], frame.loc[2, "kind"] = 30.0, "x"
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 9, N), "D")
    frame.loc[3, "day"] = pd.Timestamp("2021-01-01")
    columns = [column_of(name, frame[name], True) for name in frame]
    assert odd_columns(1, LABELS, columns)[0].startswith("b 30.00 (other rows of cluster 1: ")
    assert "kind = x (of the other rows of cluster 0: 0%)" in odd_columns(2, LABELS, columns)
    assert odd_columns(3, LABELS, columns)[0].startswith("day 2021-01-01 (other rows of cluster 1: 2020-01-0")
    alone = np.where(np.arange(N) == 1, 2, LABELS)  # compared with the cluster that is closest
    assert odd_columns(1, alone, columns) == odd_columns(1, LABELS, columns)
    assert "of the table" in odd_columns(1, np.arange(N), columns)[0]


def test_a_combination_of_columns() -> None:
    """Each value is ordinary, but not with the other; a missing value is left out."""
    a = RNG.normal(size=N)
    frame = pd.DataFrame({"a": a, "b": a + 0.05 * RNG.normal(size=N)})
    frame.loc[0] = [1.0, -0.5]
    columns = [column_of(name, frame[name], True) for name in frame]
    found = odd_columns(0, np.zeros(N, int), columns)
    assert sorted(words.split(" (predicted")[0] for words in found) == ["a 1.00", "b -0.50"] and "its other numbers" in found[0]
    frame.loc[0, "b"] = np.nan
    assert not odd_columns(0, np.zeros(N, int), [column_of(name, frame[name], True) for name in frame])


def test_the_table_has_the_smallest_p_values() -> None:
    pvalues = np.full(N, 0.5)
    pvalues[[3, 8, 9]] = 0.004, 0.001, 0.02
    columns = [column_of(name, FRAME[name], True) for name in FRAME]
    table = unusual_rows(pvalues, LABELS, columns, [f"row {i}" for i in range(N)])
    assert list(table.index) == ["row 8", "row 3"] and list(table["p-value"]) == ["0.001", "0.004"]
    assert set(table["columns that make it odd"]) == {NO_COLUMN}


def test_the_section_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    X = FRAME[["a", "b"]].to_numpy(copy=True)
    X[7] = [30.0, -30.0]
    fit = bnp.MAPDP(partial(dpm, component=bnp.NormalInverseGamma(np.zeros(2), 0.05, 3.0, 2.0)), n_init=1).fit(X)
    data = Dataset("two", X, None, ("width", "height"), tuple(f"row {i}" for i in range(N)), "")
    section = unusual(Findings.of(data, {"MAP-DP": fit}))
    (table,) = section.tables.values()
    assert table.index[0] == "row 7" and "width 30" in table["columns that make it odd"].iloc[0]
    assert "0.4 are expected by chance. MAP-DP has one partition" in section.notes[0]
    monkeypatch.setattr(of_findings, "MOST_ROWS", 20)
    section = unusual(Findings.of(data, {"MAP-DP": fit}))
    assert not section.tables and not section.text and section.notes[0].startswith("p-values of more than 20 rows are not")
