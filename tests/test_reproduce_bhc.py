"""The reproductions of Heller & Ghahramani (2005) run at small sizes, and their full output is there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.reproductions import FOLDER, assert_picture, run

sys.path.insert(0, str(FOLDER))

import bhc_table1  # noqa: E402
import common  # noqa: E402


@pytest.mark.slow
def test_table1(tmp_path: Path) -> None:
    written = run(tmp_path, "bhc_table1")
    assert "- 3digits: BHC purest of BHC, single, complete, average: " in written
    row = next(line for line in written.splitlines() if line.startswith("3digits"))
    means = [float(cell.split("±")[0]) for cell in row.removeprefix("3digits").replace(" ± ", "±").split()]
    assert len(means) == 7 and all(0.3 <= mean <= 1.0 for mean in means)
    assert_picture(tmp_path / "bhc_table1.png")


@pytest.mark.slow
def test_figure4(tmp_path: Path) -> None:
    written = run(tmp_path, "bhc_figure4")
    assert written.count("10 settings") == 2 and written.count("(paper: 0.888)") == 2
    assert_picture(tmp_path / "bhc_figure4.png")


@pytest.mark.data
@pytest.mark.slow
def test_figure6(tmp_path: Path) -> None:
    written = run(tmp_path, "bhc_figures", "--figures", "6")
    assert "24 images of the digits 0, 2 and 4" in written
    assert written.count("is purer than average linkage's: ") == 2
    assert_picture(tmp_path / "bhc_figure6.png")


def test_the_mean_purity_of_the_rows_is_the_purity_of_the_tree() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.append(rng.integers(3, size=29), 3)  # the last row has no classmate
    tree = common.linkage(X, "average")
    rows = bhc_table1.row_purities(tree, y)
    assert rows.shape == (29,)
    np.testing.assert_allclose(rows.mean(), tree.purity(y, pick="leaf"), rtol=1e-12)


@pytest.mark.slow
def test_figure8(tmp_path: Path) -> None:
    written = run(tmp_path, "bhc_figures", "--figures", "8")
    assert "average linkage merges across them: reproduces" in written
    assert_picture(tmp_path / "bhc_figure8.png")


@pytest.mark.data
@pytest.mark.slow
def test_figures_5_and_7(tmp_path: Path) -> None:
    written = run(tmp_path, "bhc_figures", "--figures", "5")
    assert written.count("\n- ") == 3 and "60 documents" in written
    assert_picture(tmp_path / "bhc_figure5.png")
    assert_picture(tmp_path / "bhc_figure7.png")


def test_full_output_is_there() -> None:
    names = [
        "bhc_table1.txt",
        "bhc_table1.png",
        "bhc_figure4.txt",
        "bhc_figures.txt",
        *(f"bhc_figure{k}.png" for k in (4, 5, 6, 7, 8)),
    ]
    for name in names:
        assert 0 < (FOLDER / "output" / name).stat().st_size < 300_000
