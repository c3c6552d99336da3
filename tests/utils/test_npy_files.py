"""Reading of NumPy files: whole ones, foreign ones, and ones with damage anywhere."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from bnp_hier.utils.npy_files import read_arrays

ARRAYS = {"mean": np.arange(3.0), "labels": np.array([2, 0]), "header": np.array("text")}


@pytest.fixture(scope="module", params=[np.savez, np.savez_compressed])
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("npz") / "arrays.npz"
    request.param(path, **ARRAYS)
    return path


def same(found: dict[str, np.ndarray]) -> bool:
    return set(found) == set(ARRAYS) and all(np.array_equal(found[name], array) for name, array in ARRAYS.items())


def test_arrays_by_name(archive: Path) -> None:
    assert same(read_arrays(archive))
    assert set(read_arrays(archive, ["mean"])) == {"mean"}


@pytest.mark.parametrize("length", [4, 16])
def test_zeros_anywhere(archive: Path, tmp_path: Path, length: int) -> None:
    # in the directory of the archive, zeros can turn an array into an empty one with the right check sum
    whole, damaged = archive.read_bytes(), tmp_path / "damaged.npz"
    refused = 0
    for at in range(len(whole)):
        damaged.write_bytes(whole[:at] + bytes(len(whole[at : at + length])) + whole[at + length :])
        try:
            found = read_arrays(damaged)
        except ValueError as error:
            assert str(error)
            refused += 1
        else:
            assert same(found), at
    assert refused > len(whole) // 3


def test_members_that_are_no_arrays(tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.npy", "not an array")
    with pytest.raises(ValueError, match=r"notes\b.*not an array"):
        read_arrays(path)
