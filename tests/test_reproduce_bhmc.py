"""The reproductions of Huang et al. (2021) run at small sizes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import bnp_hier as bnp
from tests.reproductions import FOLDER, assert_picture, run

OUTCOMES = ("reproduces", "DOES NOT REPRODUCE", "not decided")
FEW = ("--warmup", "8", "--draws", "16", "--thinning", "4", "--chains", "2")


def _verdicts(written: str) -> dict[str, str]:
    """Claims and their outcomes."""
    found = [re.match(rf"- (.+): ({'|'.join(OUTCOMES)});", line) for line in written.splitlines() if line.startswith("- ")]
    assert all(found)
    return {match[1]: match[2] for match in found if match}


def _clusters(written: str, method: str) -> list[float]:
    """Clusters on each level, from the table of scores."""
    return [float(number) for number in re.findall(rf"^  \d+ +{re.escape(method)} +(\d+\.\d) ", written, re.MULTILINE)]


def test_best_subtree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the sets of items under every node, for random groups."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from bhmc_animals import best_subtree, shared

    rng = np.random.default_rng(0)
    tree = shared.ward(rng.standard_normal((12, 2)))
    clades = [{item} for item in range(12)]
    for left, right in tree.children[:-1]:
        clades.append(clades[left] | clades[right])
    for size in (1, 3, 6):
        group = rng.permutation(12)[:size]
        expected = max(2 * len(clade & set(group)) / (len(clade) + size) for clade in clades)
        assert best_subtree(tree, group) == pytest.approx(expected)


@pytest.mark.slow
def test_animals(tmp_path: Path) -> None:
    written = run(tmp_path, "bhmc_animals", "--warmup", "20", "--draws", "40", "--chains", "3")
    assert "capacity hits 0, truncated probability 0.0e+00" in written
    claims = _verdicts(written)
    assert "3 runs reach the same level" in claims and "birds are a clade (F1 >= 0.8)" in claims
    trees = [line.strip() for line in written.splitlines() if line.endswith(";") and line.strip().startswith("((")]
    assert len(trees) == 3 and all(tree.count("Elephant") == 1 and tree.count(":1") >= 33 for tree in trees)
    scores = re.search(r"^  birds {33} +([\d. ]+)$", written, re.MULTILINE)
    assert scores and len(scores[1].split()) == 5 and all(0.2 < float(score) <= 1.0 for score in scores[1].split())
    assert re.search(r"n_components +paper +[\d.]+ +exact +[\d.]+ +difference +[+-]", written)
    for name in ("bhmc_figure3", "bhmc_figure4", "bhmc_figure4_central", "bhmc_figure4_learned"):
        assert_picture(tmp_path / f"{name}.png")


@pytest.mark.data
@pytest.mark.slow
def test_fashion(tmp_path: Path) -> None:
    written = run(tmp_path, "bhmc_fashion", "--items", "50", "--depth", "3", "--components", "20", "--nodes", "64", *FEW)
    assert "50 images, 10 classes" in written and 'scaling "unit", settings "paper"' in written
    assert any(claim.startswith("the rich get richer") for claim in _verdicts(written))
    mine = _clusters(written, "BHMC")
    assert len(mine) == 3 and mine == _clusters(written, "Ward") == _clusters(written, "BHC") == _clusters(written, "PERCH")
    assert_picture(tmp_path / "bhmc_figure5.png")


@pytest.mark.data
@pytest.mark.slow
def test_truth(tmp_path: Path) -> None:
    sizes = ("--items", "50", "--components", "20", "--nodes", "64", "--warmup", "6", "--draws", "6")
    written = run(tmp_path, "bhmc_truth", *sizes)
    assert "fashion: 50 rows, 22 columns, 10 classes" in written
    for settings in ("the paper's (fashion)", "learned"):
        part = written.split(f"settings: {settings}\n")[1]
        rows = re.findall(r"^ +(classes|Ward|one path) +(-?\d+\.\d+) ", part, re.MULTILINE)[:3]
        assert [row[0] for row in rows] == ["classes", "Ward", "one path"]
        assert float(re.search(r"exchanged +(\d+\.\d+) ±", part)[1]) > 0
    assert written.count("the chain from the classes moves by") == 2


@pytest.mark.data
@pytest.mark.slow
def test_modes(tmp_path: Path) -> None:
    written = run(tmp_path, "bhmc_modes", "--items", "40", "--components", "10", "--draws", "16", report="bhmc_modes_fashion")
    assert "fashion: 40 rows, 22 columns, L 3" in written
    for part in written.split("  hyperparameters: ")[1:]:
        for start in ("one path", "prior", "Ward", "classes"):
            assert re.search(rf"^  from {start} +-\d+\.\d+", part, re.MULTILINE)
        assert "4 to 8  8 to 16" in part and part.count("caught (lower by over 3 sd)") == 1
        assert [float(number) for number in re.findall(r"^  to one path +(-?\d+\.\d+)", part, re.MULTILINE)] == [0.0, 0.0]
        assert re.search(
            r"^  [0-4] of 4 chains stay closer to the end at which they start than to their own$", part, re.MULTILINE
        )
        assert "capacity hits: 0" in part


def test_parts_of_runs_and_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import bhmc_modes as modes

    parts = modes.windows(200)
    assert (parts[-1].start, parts[-1].stop) == (100, 200) and (parts[0].start, parts[0].stop) == (12, 25)
    # two even halves crossed with a half and two quarters: entropies log 2 and 1.5 log 2, one within the other
    one, other = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([5, 5, 5, 5, 3, 3, 7, 7])
    assert modes.apart(one, other) == pytest.approx(0.5 * np.log(2)) and modes.apart(other, other) == pytest.approx(0.0)
    start = modes.from_prior(30, 3, 4, 0)
    bnp.Hierarchy(start["paths"])  # raises where an item's parent differs from that of others on its node
    assert start["paths"].min() == 1 and start["labels"].max() < 4
    for leaf in np.unique(start["paths"][:, -1]):
        assert len(np.unique(start["labels"][start["paths"][:, -1] == leaf])) == 1


@pytest.mark.data
@pytest.mark.slow
def test_text(tmp_path: Path) -> None:
    sizes = ("--items", "40", "--columns", "8", "--components", "10", "--nodes", "64", *FEW)
    written = run(tmp_path, "bhmc_text", *sizes, report="bhmc_text_fashion_products_2303")
    assert "fashion_products_2303: 40 texts, 8 columns" in written
    claims = _verdicts(written)
    assert {
        "NMI clearly better than that of Ward, mean over levels",
        "purity clearly better than that of BHC, mean over levels",
    } <= set(claims)
    paper, learned = written.split("learned hyperparameters\n")
    for part, name in ((paper, "BHMC"), (learned, "BHMC learned")):
        mine = _clusters(part, name)
        assert len(mine) == 3 and mine == _clusters(part, "Ward") == _clusters(part, "BHC") == _clusters(part, "PERCH")
    for suffix in ("", "_learned"):
        assert_picture(tmp_path / f"bhmc_figure6_fashion_products_2303{suffix}.png")


@pytest.mark.data
@pytest.mark.slow
def test_text_with_learned_hyperparameters_alone(tmp_path: Path) -> None:
    """No other run provides the hyperparameters of BHC, which learns them."""
    sizes = ("--items", "40", "--columns", "8", "--components", "10", "--nodes", "64", *FEW)
    name = "fashion_products_2303_only_learned"
    written = run(tmp_path, "bhmc_text", *sizes, "--run", "learned", report=f"bhmc_text_{name}")
    mine = _clusters(written, "BHMC learned")
    assert len(mine) == 3 and mine == _clusters(written, "Ward") == _clusters(written, "BHC")
    assert_picture(tmp_path / f"bhmc_figure6_{name}.png")


STAND_INS = ("fashion_products_2303", "flipkart_products_1050", "newsgroups20_hier")


def test_full_output_is_there() -> None:
    reports = ["bhmc_animals.txt", "bhmc_fashion.txt", *(f"bhmc_text_{name}_matched.txt" for name in STAND_INS)]
    pictures = ["bhmc_figure3", "bhmc_figure4", "bhmc_figure4_central", "bhmc_figure5", "bhmc_figure5_standardised"]
    pictures += [f"bhmc_figure6_{name}_matched" for name in STAND_INS]
    for name in (*reports, *(f"{picture}.png" for picture in pictures)):
        assert 0 < (FOLDER / "output" / name).stat().st_size < 500_000
    for name in reports:
        text = (FOLDER / "output" / name).read_text(encoding="utf-8")
        assert _verdicts(text) and "small size" not in text
    truth = (FOLDER / "output" / "bhmc_truth.txt").read_text(encoding="utf-8")
    assert truth.count("highest integrated: from") == 8 and "small size" not in truth
    modes = (FOLDER / "output" / "bhmc_modes_fashion.txt").read_text(encoding="utf-8")
    assert "fashion: 1000 rows, 22 columns, L 5" in modes and "hyperparameters: learned" in modes
    assert modes.count("capacity hits: 0") == modes.count("capacity hits") == 2  # the paper's hyperparameters, and learned
