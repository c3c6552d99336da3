"""The page about scaling shows what its script renders from the stored results, and the script runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import scaling


def _results(path: Path = scaling.RESULTS) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_tables_are_those_of_the_results() -> None:
    page = scaling.PAGE.read_text(encoding="utf-8")
    message = "docs/scaling.json has changed: run `python examples/scaling.py --tables`, and commit docs/scaling.md"
    assert page == scaling.with_tables(page, scaling.stored_results()), message
    with pytest.raises(ValueError, match="0 marks"):
        scaling.with_tables(page.replace("<!-- table: sweeps -->", ""), _results())


def test_results_are_of_all_cells() -> None:
    """Each has its figures, or the reason why it was not run."""
    for planned, path in ((scaling.cells(False), scaling.RESULTS), (scaling.device_cells(False), scaling.DEVICE_RESULTS)):
        results = _results(path)
        assert [{name: result.get(name) for name in cell} for cell, result in zip(planned, results, strict=True)] == planned
        assert all(result.get("not run") or {"cpu", "bytes", "ari"} & set(result) for result in results)
        assert not [result for result in results if "failed" in result.get("not run", "")]


def test_the_model_of_communication_is_as_on_the_page() -> None:
    """Computed by hand for 2 and 64 machines: 1 and 6 hops up, and as many down."""
    results = [
        {"kind": "sweep", "rows": 1_000_000, "columns": 16, "processes": 1, "cpu": 2.0, "wall": 2.5},
        {"kind": "messages", "rows": 8192, "columns": 16, "collectives": 40, "bytes": 1_250_000},
    ]
    lines = [line.strip("| ").split(" | ") for line in scaling.machines(results).splitlines()[2:]]
    by_size = {tuple(line[:2]): line[2:] for line in lines}
    assert by_size["1,000,000", "1"] == ["2.5", "2", "0", "1"]
    assert by_size["100,000", "2"] == ["–", "0.11", "0.006", "0.94"]
    np.testing.assert_allclose(float(by_size["64,000,000", "64"][1]), 2.0 + 12 * 0.003, rtol=0.03)
    assert scaling.machines([]).count("not run") == 1


def test_cells_that_fail_or_take_too_long_say_so() -> None:
    cell = {"kind": "fit", "rows": 100, "columns": 2, "method": "NoSuchMethod"}
    assert scaling.measured(cell, 0.05)["not run"].startswith("longer than")
    assert "NoSuchMethod" in scaling.measured(cell, 120.0)["not run"]


@pytest.mark.exhaustive
def test_quick_run(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    words = [sys.executable, scaling.__file__, "--quick", "--out", str(out), "--limit", "300", "--total", "3000"]
    printed = subprocess.run(words, capture_output=True, text=True, timeout=900, check=True).stdout
    results = json.loads(out.read_text(encoding="utf-8"))
    assert len(results) == len(scaling.cells(True)) and not any("not run" in result for result in results)
    (sent,) = (result for result in results if result["kind"] == "messages")
    assert 10 < sent["collectives"] <= 40 and sent["bytes"] > 10 * scaling.SLOTS * 6 * 8
    densities = [result["density"] for result in results if result.get("density") is not None]
    assert len(densities) == 4 and np.ptp(densities) < 0.2
    assert len(re.findall(r"^\| rows ", printed, flags=re.MULTILINE)) == 3


@pytest.mark.slow
def test_quick_run_on_one_device(tmp_path: Path) -> None:
    """Two processes draw the same labels."""
    out = tmp_path / "results.json"
    words = [sys.executable, scaling.__file__, "--device", "cpu", "--quick", "--out", str(out), "--limit", "300"]
    subprocess.run(words, capture_output=True, text=True, timeout=900, check=True)
    one, other, run = json.loads(out.read_text(encoding="utf-8"))
    assert one["draws"] == other["draws"] and one["wall"] > 0
    assert run["ari"] > 0.9 and run["peak"] > 0
