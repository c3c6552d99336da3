"""Tables in CSV files are harmless and short."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bnp_hier
from bnp_hier.utils.spreadsheets import csv_text


def _cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("formula", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
@pytest.mark.parametrize("index", [False, True])
def test_formulas_become_texts(formula: str, index: bool) -> None:
    table = pd.DataFrame({formula: [formula], "kind": pd.Categorical([formula])}, index=pd.Index([formula], name=formula))
    harmless = f"'{formula}".replace("\r", "\n")
    assert _cells(csv_text(table, index=index)) == [[*[harmless] * (1 + index), "kind"], [harmless] * (2 + index)]


def test_numbers_stay_numbers() -> None:
    table = pd.DataFrame(
        {"x": [-1.0, 0.9999999999999062, np.nan], "n": pd.array([-2, None, 3], dtype="Int64"), "item": ["-5", "+1.5e3", "a-b"]}
    )
    assert _cells(csv_text(table)) == [
        ["", "x", "n", "item"],
        ["0", "-1", "-2", "-5"],
        ["1", "1", "", "+1.5e3"],
        ["2", "", "3", "a-b"],
    ]
    mixed = pd.DataFrame({"x": [1 / 3, "=a", None]}, dtype=object)
    assert _cells(csv_text(mixed, index=False, digits=3)) == [["x"], ["0.333"], ["'=a"], [""]]


def test_every_csv_file_is_written_by_one_function() -> None:
    sources = Path(bnp_hier.__file__).parent.rglob("*.py")
    writers = {path.stem for path in sources if re.search(r"^(?!.*`to_csv`).*(\.to_csv\(|csv\.writer)", path.read_text(), re.M)}
    assert writers == {"spreadsheets"}
