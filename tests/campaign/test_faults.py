"""Two hundred faults of files and more: what is damaged is refused as promised, or says what it said before."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.datasets import Dataset, read_columns, read_table
from bnp_hier.models import dpm
from bnp_hier.runs.saved_fit import SavedFit, load_fit

pytestmark = [pytest.mark.slow]

X = np.random.default_rng(0).normal(size=(12, 2)) + 6.0 * (np.arange(12) % 2)[:, None]
MODEL = partial(dpm, component=bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0), concentration=1.0)
PROMISED = (ValueError, OSError)
"""Errors that reading promises; `FileNotFoundError` and the like are among them."""


def _mcmc() -> MCMC:
    return MCMC(bnp.PartitionGibbs(MODEL), num_warmup=2, num_samples=6, progress_bar=False)


def _fit(folder: Path) -> Path:
    fit = bnp.AgglomerativeBayesianClustering(MODEL, progress_bar=False).fit(X)
    return SavedFit(fit, Dataset("d", X, None, ("a", "b"), None, ""), "agglomerative", "diagonal").save(folder / "fit.npz")


def _run(folder: Path) -> Path:
    run = bnp.ResumableRun(_mcmc(), checkpoint_every=3)
    run.run(jax.random.key(0), X)
    run.save(folder / "run.npz")
    return folder / "run.npz"


def _table(folder: Path) -> Path:
    pd.DataFrame(X, columns=["a", "b"]).assign(word=["u", "v"] * 6).to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


def _compressed(folder: Path) -> Path:
    pd.DataFrame(X, columns=["a", "b"]).to_csv(folder / "table.csv.gz", index=False)
    return folder / "table.csv.gz"


def _arrays(folder: Path) -> Path:
    np.savez_compressed(folder / "arrays.npz", X=X)
    return folder / "arrays.npz"


def _read_fit(path: Path) -> Any:
    return load_fit(path).predict_proba(X)


def _read_run(path: Path) -> Any:
    return bnp.ResumableRun.load(path, _mcmc(), X).get_samples()["z"]


def _read_table(path: Path) -> Any:
    return read_table(path).X


FILES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any]]] = {
    "fit": (_fit, _read_fit),
    "run": (_run, _read_run),
    "csv": (_table, _read_table),
    "gz": (_compressed, _read_table),
    "npz": (_arrays, _read_table),
}


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(0, len(data))]


def _flip(data: bytes, rng: np.random.Generator) -> bytes:
    at = rng.integers(0, len(data))
    return data[:at] + bytes([data[at] ^ int(1 << rng.integers(0, 8))]) + data[at + 1 :]


def _end(data: bytes, rng: np.random.Generator) -> bytes:
    """Of an archive, the directory is at the end."""
    at = len(data) - rng.integers(1, min(len(data), 120))
    return data[:at] + bytes(rng.integers(0, 256, 4, dtype=np.uint8)) + data[at + 4 :]


def _noise(data: bytes, rng: np.random.Generator) -> bytes:
    return bytes(rng.integers(0, 256, len(data), dtype=np.uint8))


def _twice(data: bytes, rng: np.random.Generator) -> bytes:
    return data + data


def _zeros(data: bytes, rng: np.random.Generator) -> bytes:
    at = rng.integers(0, len(data))
    return data[:at] + bytes(min(16, len(data) - at)) + data[at + 16 :]


DAMAGE = [_cut, _cut, _flip, _flip, _flip, _end, _end, _noise, _twice, _zeros, _zeros]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """Every file as it should be, and what it says."""
    folder = tmp_path_factory.mktemp("whole")
    paths = {name: write(folder) for name, (write, _) in FILES.items()}
    return {name: (path, np.asarray(FILES[name][1](path))) for name, path in paths.items()}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("number", range(22))
def test_damaged_files(
    name: str,
    number: int,
    whole: dict[str, tuple[Path, Any]],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    path, said = whole[name]
    rng = np.random.default_rng([number, len(name)])
    damaged = tmp_path / path.name
    damaged.write_bytes(DAMAGE[number % len(DAMAGE)](path.read_bytes(), rng))
    before = damaged.read_bytes()
    try:
        says = np.asarray(FILES[name][1](damaged))
    except PROMISED as error:
        assert str(error), repr(error)
        record_property("damaged files", "refused")
    else:
        record_property("damaged files", "read as before" if np.array_equal(says, said) else "another table")
        # text has no check sum: other numbers are other data; an archive must say what it said
        assert name == "csv" or np.array_equal(says, said), "damage went through"
    assert damaged.read_bytes() == before and list(tmp_path.iterdir()) == [damaged]


def _leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values of a JSON document."""
    for at, value in content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ():
        yield (*path, at)
        yield from _leaves(value, (*path, at))


@pytest.mark.parametrize("name", ["fit", "run"])
def test_changed_headers(
    name: str, whole: dict[str, tuple[Path, Any]], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A value of another kind somewhere in the header: refused, although it is a whole archive of valid JSON."""
    path, _ = whole[name]
    with np.load(path) as archive:
        arrays = dict(archive)
    rng = np.random.default_rng(7)
    places = list(_leaves(json.loads(str(arrays["header"]))))
    for at in rng.integers(0, len(places), 75):
        header = json.loads(str(arrays["header"]))
        within = header
        for step in places[at][:-1]:
            within = within[step]
        others = [None, -3, 1e300, "x", [], {}, [[1]], True, {"type": "builtins:object"}]
        within[places[at][-1]] = next(each for each in others[rng.integers(8) :] if each != within[places[at][-1]])
        np.savez(tmp_path / path.name, **{**arrays, "header": np.array(json.dumps(header))})
        with pytest.raises(ValueError, match="header was changed"):
            FILES[name][1](tmp_path / path.name)
        record_property("changed headers", "refused")


@pytest.mark.parametrize("kind", ["folder", "pipe", "nothing", "empty", "loop"])
@pytest.mark.parametrize("name", ["fit", "run", "csv", "npz"])
def test_what_is_no_file(name: str, kind: str, whole: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    path = tmp_path / whole[name][0].name
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
        writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # else a reader would wait for ever
    elif kind == "empty":
        path.touch()
    elif kind == "loop":
        path.symlink_to(path)
    try:
        with pytest.raises(PROMISED):
            FILES[name][1](path)
    finally:
        if kind == "pipe":
            os.close(writer)


def test_columns_of_a_table_that_changed(tmp_path: Path) -> None:
    path = _table(tmp_path)
    with pytest.raises(ValueError, match="c"):
        read_columns(path, Dataset("fitted", np.zeros((2, 2)), None, ("a", "c"), None, ""))
