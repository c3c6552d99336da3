"""Files are written as a whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bnp_hier.reports.web_page import Section, write_page
from bnp_hier.runs.checkpoint_file import read_checkpoint, write_checkpoint
from bnp_hier.utils.files import replacing, write_text


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    write_text(path, "one")
    path.chmod(0o640)
    with replacing(path) as draft:
        draft.write_text("two")
        assert path.read_text() == "one" and draft.suffix == ".html" and draft.parent == path.parent
    assert path.read_text() == "two" and path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(KeyboardInterrupt), replacing(path) as draft:
        draft.write_text("thr")
        raise KeyboardInterrupt
    assert path.read_text() == "two" and list(path.parent.iterdir()) == [path]


def test_links_folders_and_devices(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "file.txt")
    write_text(tmp_path / "link.txt", "there")
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "file.txt").read_text() == "there"
    with pytest.raises(IsADirectoryError, match="is a folder, expected a file name"):
        write_text(tmp_path, "x")
    write_text("/dev/null", "x")
    assert Path("/dev/null").is_char_device()
    write_text(tmp_path / ("n" * 250), "a name as long as names may be")
    assert (tmp_path / ("n" * 250)).exists()


WRITERS = {
    "text": lambda path: write_text(path, "x" * 400_000),
    "page": lambda path: write_page(path, title="t", sections=[Section("s", text="x" * 400_000)]),
    "checkpoint": lambda path: write_checkpoint(path, {}, {"a": np.random.default_rng(0).random(50_000)}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_old_file(writer: str, tmp_path: Path) -> None:
    """No file may grow beyond 100 kB: the error is that of a full disk to those who write."""
    path = tmp_path / "file"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            WRITERS[writer](path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


NETCDF = """
import os, resource, signal, sys
import arviz, numpy, xarray
from bnp_hier.commands.comparing import _write_package
draws = numpy.random.default_rng(0).random((50, 1000))
package = arviz.InferenceData(posterior=xarray.Dataset({"z": (("chain", "draw"), draws)}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    _write_package(__import__("pathlib").Path(sys.argv[1]), package)
except OSError as error:
    sys.stdout.write("refused: " + str(error))
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.slow
def test_a_full_disk_and_a_package(tmp_path: Path) -> None:
    """HDF5 raises errors of its own, and more of them when its objects are forgotten: in a process of its own."""
    path = tmp_path / "run.nc"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NETCDF, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.startswith("refused: ") and "File too large" in done.stdout, done.stderr
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[2])
import importlib.util
spec = importlib.util.spec_from_file_location("files", sys.argv[2] + "/bnp_hier/utils/files.py")  # without the package: at once
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
with files.replacing(sys.argv[1]) as draft:
    draft.write_text("half")
    print("there", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_the_old_file_and_no_draft_for_long(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), root], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    write_text(tmp_path / "other.txt", "x")
    drafts = [found for found in tmp_path.iterdir() if ".part" in found.name]
    assert len(drafts) == 1  # of a process that is at work
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert path.read_text() == "old"
    old = tmp_path / ".bnp-hier-elsewhere-1-x.part"
    old.write_text("")
    os.utime(old, (time.time() - 100_000,) * 2)
    (tmp_path / ".bnp-hier-elsewhere-1-y.part").write_text("")  # a young one may be at work
    write_text(tmp_path / "other.txt", "y")
    names = {found.name for found in tmp_path.iterdir()}
    assert names == {"file.txt", "other.txt", ".bnp-hier-elsewhere-1-y.part"}


def test_a_checkpoint_comes_back_compressed_or_not(tmp_path: Path) -> None:
    for compress in (False, True):
        write_checkpoint(tmp_path / "c", {"n": 3}, {"a": [np.arange(3)]}, compress=compress)
        assert read_checkpoint(tmp_path / "c").header == {"n": 3}
        np.testing.assert_array_equal(read_checkpoint(tmp_path / "c").leaves["a"]["[0]"], np.arange(3))


@pytest.mark.parametrize("place", ["/proc/none.txt", "/proc/nothing/none.txt"])
def test_an_error_names_the_file_and_not_its_draft(place):
    with pytest.raises(OSError) as raised:
        write_text(place, "text")
    assert ".bnp-hier-" not in str(raised.value) and "/proc/no" in str(raised.value)
