"""The reproductions of Kurihara & Welling (2009), Table 2 and Figure 5, run at small sizes, and their full output is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reproductions import FOLDER, assert_picture, run


def _rows(written: str, heading: str) -> list[list[float]]:
    """Value and mean factors of each line below a heading."""
    block = written.split(f"\n{heading}\n")[1].split("\n\n")[0]
    lines = [re.sub(r" ± [\d.]+", "", line).split() for line in block.splitlines() if "±" in line]
    return [list(map(float, line)) for line in lines]


@pytest.mark.slow
def test_table2(tmp_path: Path) -> None:
    written = run(tmp_path, "me_table2", "--data", "newsgroups")
    assert written.count(" purer than single, complete, average: ") == 2 and "pendigits" not in written, "no 10x for bits"
    row = next(line for line in written.splitlines() if line.startswith("newsgroups"))
    means = [float(cell.split("±")[0]) for cell in re.findall(r"[\d.]+ ± [\d.]+", row)]
    assert len(means) == 6 and all(0.25 <= mean <= 1.0 for mean in means), "four classes of equal size"
    single, _, _, _, *bayesian = means
    assert min(bayesian) > single
    assert_picture(tmp_path / "me_table2.png")


@pytest.mark.slow
def test_figure5(tmp_path: Path) -> None:
    written = run(tmp_path, "me_figure5", "--repetitions", "2")
    conga = _rows(written, "ABC + conga lines, n varied")
    assert [row[0] for row in conga] == [50, 100, 200]
    for n, overall, after, row_best, stored, *times in conga:
        assert len(times) == 3 and min(times) > 0
        # the factors are of the same two counts; no engine does with fewer than every new pair once
        assert overall < after and overall < row_best <= n * (n + 1) / 6 / (n - 1)
        assert overall * stored == pytest.approx(n * (n + 1) / 6 / (n - 1), rel=0.05)
    assert conga[0][1] < conga[1][1] < conga[2][1]
    trees = _rows(written, "BKM + kd-tree, n varied")
    assert 1.0 < trees[0][1] < trees[-1][1]
    assert _rows(written, "BKM + kd-tree, d varied")[-1][1] < _rows(written, "BKM + kd-tree, d varied")[0][1]
    assert all(dense > 0 and tree > 0 for *_, dense, tree, _ in trees)
    assert_picture(tmp_path / "me_figure5.png")


def test_full_output_is_there() -> None:
    for name in ("me_table2.txt", "me_table2.png", "me_figure5.txt", "me_figure5.png"):
        assert 0 < (FOLDER / "output" / name).stat().st_size < 300_000
