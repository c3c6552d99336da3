"""Three hundred command lines on generated files: exit codes, one line for an error, and no file lost or left half written.

The slow run takes sixteen of them, the exhaustive one the others.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from bnp_hier import cli
from bnp_hier.utils.labels import canonical_labels
from tests.parameters import few

pytestmark = [pytest.mark.slow]

LINES = 300
ROWS = [0, 1, 2, 9, 24]
GOOD = ["normal", "normal", "bits", "bits", "counts", "words", "yes or no", "gaps", "far off", "amounts", "shares"]
"""Columns that can be clustered."""

QUICK = ["--chains", "2", "--warmup", "4", "--samples", "6", "--no-progress"]

COLUMNS: dict[str, Any] = {
    "normal": lambda n, rng: rng.normal(size=n) + 5.0 * rng.integers(0, 2, n),
    "far off": lambda n, rng: 1.7e9 + rng.normal(size=n),
    "bits": lambda n, rng: rng.integers(0, 2, n),
    "counts": lambda n, rng: rng.poisson(4.0, n),
    "words": lambda n, rng: rng.choice(["low", "high", "[red]", "ü"], n),
    "yes or no": lambda n, rng: rng.choice(["True", "False"], n),
    "constant": lambda n, rng: np.full(n, 3.0),
    "gaps": lambda n, rng: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
    "empty": lambda n, rng: np.full(n, np.nan),
    "infinite": lambda n, rng: np.where(np.arange(n) == 0, np.inf, rng.normal(size=n)),
    "huge": lambda n, rng: 1e300 * rng.normal(size=n),
    "number of the row": lambda n, rng: np.arange(n),
    "names of the rows": lambda n, rng: [f"row {i}" for i in range(n)],
    "amounts": lambda n, rng: [f"{x:,.0f}" for x in rng.normal(5000, 1000, n)],
    "accounts": lambda n, rng: [f"({x:,.0f})" if x > 0 else f"{-x:,.0f}" for x in rng.normal(0, 2000, n)],
    "currency": lambda n, rng: [f"USD {x:.0f}" for x in rng.choice([20, 45, 70], n)],
    "thousands": lambda n, rng: [f"{x:.0f}K" for x in rng.normal(50, 9, n)],
    "shares": lambda n, rng: [f"{x:.0f} %" for x in rng.uniform(5, 95, n)],
    "formulas": lambda n, rng: rng.choice(["=1+1", "@cmd", "-x"], n),
    "clock": lambda n, rng: [f"{i % 24:02d}:{i % 60:02d}" for i in range(n)],
    "dates": lambda n, rng: [f"2026-01-{1 + i % 28:02d}" for i in range(n)],
}
NAMES = ["a", "b c", "ü", "[bold]", "x=1", "c,d", 'q"', "\x1b[31m", "-", "1"]

DAMAGE: dict[str, Any] = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "line ends of Windows": lambda text: text.replace(b"\n", b"\r\n"),
    "semicolons": lambda text: text.replace(b",", b";"),
    "decimal commas": lambda text: text.replace(b",", b";").replace(b".", b","),
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "UTF-32": lambda text: text.decode().encode("utf-32"),
    "compressed": gzip.compress,
    "commas at the end": lambda text: text.replace(b"\n", b",\n"),
    "rows of commas": lambda text: text + b",,\n" * 5,
    "a row too long": lambda text: text + b"1,2,3,4,5,6,7\n",
    "a row too short": lambda text: text + b"1\n",
    "no header": lambda text: text.partition(b"\n")[2],
    "open quotation mark": lambda text: text + b'"1,2\n',
    "not UTF-8": lambda text: text.replace(b"\n", b"\xff\n", 1),
    "null characters": lambda text: text + b"\x00\x00\n",
    "nothing": lambda text: b"",
    "two columns of one name": lambda text: b"same,same\n1,2\n3,4\n5,7\n",
    "ends in mid-row": lambda text: text[: len(text) // 2],
}
"""What was done to the file."""

FAMILIES = ["normal", "diagonal", "known", "bernoulli", "multinomial", "poisson", "student"]
METHODS = ["map-dp", "bayesian-kmeans", "bhc", "agglomerative", "variational"]


class Line(NamedTuple):
    """A command line and the file it is about; {data}, {out} and so on stand for paths."""

    file: bytes
    suffix: str
    words: list[str]


def _file(rng: np.random.Generator, good: bool) -> tuple[bytes, list[str]]:
    """A table in CSV, and the names of its columns."""
    n = ROWS[-1] if good else rng.choice(ROWS)
    kinds = rng.choice(GOOD if good else list(COLUMNS), rng.integers(2, 4))
    names = list(rng.choice(NAMES, len(kinds), replace=False))
    frame = pd.DataFrame({name: COLUMNS[kind](n, rng) for name, kind in zip(names, kinds, strict=True)})
    text = frame.to_csv(index=False).encode()
    if not good and rng.random() < 0.5:
        text = DAMAGE[rng.choice(list(DAMAGE))](text)
    return text, names


def _line(seed: int) -> Line:
    """A command line; two of three ask for what there is, the others may ask for anything."""
    rng = np.random.default_rng(seed)
    good = bool(rng.random() < 2 / 3)

    def one_of(right: list[str], wrong: list[str]) -> str:
        return str(rng.choice(right if good or rng.random() < 0.7 else wrong))  # few faults: the first would hide the others

    file, names = _file(rng, good)
    data = one_of([".csv"], [".npz", ".parquet", ""])
    command = str(rng.choice(["fit"] * 9 + ["tree"] * 3 + ["recommend"] * 4 + ["datasets"] * 2 + ["compare", "evidence"]))
    words = [command, "{data}"]

    def sometimes(chance: float, option: str, right: list[str], wrong: list[str]) -> None:
        if rng.random() < chance:
            words.extend([option, one_of(right, wrong)])

    if command != "datasets":
        sometimes(0.3, "--family", ["auto", "mixed"], FAMILIES)
        sometimes(0.2, "--drop", names[:1], [*names, "nobody", ",".join(names)])
        sometimes(0.2, "--items", names[:1], [*names, "nobody"])
        sometimes(0.2, "--truth", names[-1:], [*names, "nobody"])
    if rng.random() < 0.2:
        words.append(one_of(["--header"], ["--no-header", "--nonsense"]))
    if rng.random() < 0.5:
        words.append("--json")
    if command in ("fit", "tree", "compare", "evidence"):
        sometimes(0.3, "--concentration", ["1", "0.1"], ["0", "-1", "nan", "inf", "x", "1e300"])
        sometimes(0.2, "--seed", ["7"], ["-1", str(2**64), "x"])
        words.append("--no-progress")
    if command == "recommend":
        sometimes(0.5, "--minutes", ["1"], ["0", "-3", "inf", "nan"])
    places = ["{data}", "{folder}", "{data}/inside"]
    if command == "fit":
        words += [
            "--method",
            one_of(METHODS, ["k-means"]),
            "--out",
            one_of(["{folder}/new.npz", "{folder}/deeper/new"], places),
        ]
        sometimes(0.5, "--labels", ["{folder}/labels.csv"], ["{folder}/new.npz", *places])
    if command == "tree":
        trees = [f"{{folder}}/tree{suffix}" for suffix in (".nwk", ".svg", ".html")]
        sometimes(0.8, "--out", trees, ["{folder}/tree.foo", *places])
        sometimes(0.3, "--threshold", ["0", "1", "0.3"], ["2", "nan"])
    if command == "compare":
        words += ["--methods", one_of(["map-dp", "map-dp,bhc", "gibbs"], ["all", ""]), *QUICK]
        words += ["--out", one_of(["{folder}/report"], ["{data}"])]
        sometimes(0.3, "--held-out", ["0.2"], ["0.99", "1", "-1", "nan"])
    if command == "evidence":
        words += ["--particles", one_of(["20"], ["0"]), "--samples", "6"]
        sometimes(0.5, "--plot", ["{folder}/bounds.svg"], ["{folder}/bounds.foo"])
    return Line(file, data, words)


class Answer(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


def _run(words: list[str], capsys: pytest.CaptureFixture[str]) -> Answer:
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "keep_programs", lambda: None)
        patch.setattr(cli, "interrupted", lambda: False)
        patch.setattr(sys, "argv", ["bnp-hier", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    return Answer(int(stop.value.code or 0), *capsys.readouterr())


def _no_constants(name: str) -> None:
    raise AssertionError(f"JSON has no {name}")


def _check_refusal(answer: Answer, line: Line) -> None:
    errors = [text for text in answer.err.splitlines() if text.startswith("error: ")]
    assert len(errors) == 1 and answer.err.splitlines()[-1] == errors[0], (answer, line)
    assert len(errors[0]) > len("error: ") + 10 and errors[0].isprintable(), (answer, line)


def _check_fit(answer: dict[str, Any], folder: Path, line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    """The clusters are numbered without a gap, and the rows that were fitted can be predicted."""
    sizes, method = answer["sizes"], answer["method"]
    assert min(sizes) > 0, (answer, line)
    labels_file = folder / "labels.csv"
    if labels_file.exists():
        labels = pd.read_csv(labels_file).iloc[:, -1].to_numpy()
        np.testing.assert_array_equal(np.bincount(labels, minlength=len(sizes)), sizes)
        np.testing.assert_array_equal(labels, canonical_labels(labels))
    assert answer["log_joint"] is not None and np.isfinite(answer["log_joint"]), (answer, line)
    assert method != "bhc" or answer["evidence_bound"] is not None, (answer, line)
    header = [word for word in line.words if word in ("--header", "--no-header")]
    data = str(folder / f"data{line.suffix}")
    told = _run(["predict", answer["file"], data, "--out", str(folder / "p.csv"), "--json", *header], capsys)
    assert told.code == 0, (told, line)
    rows = json.loads(told.out, parse_constant=_no_constants)["rows"]
    assert len(rows) == sum(sizes)
    for row in rows:
        assert (
            0 <= row["cluster"] <= len(sizes) and 0 <= row["probability_of_a_new_cluster"] <= row["probability"] + 1e-6 <= 1.001
        )
        assert row["log_density"] is not None, (row, line)


@pytest.mark.parametrize("seed", few(range(LINES), plain=0, slow=16))
def test_a_line_is_answered(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    """Done, or refused in one line with nothing written; the file is left as it was."""
    line = _line(seed)
    data = tmp_path / f"data{line.suffix}"
    data.write_bytes(line.file)
    words = [word.replace("{data}", str(data)).replace("{folder}", str(tmp_path)) for word in line.words]
    line = line._replace(words=words)
    answer = _run(words, capsys)
    assert answer.code in (0, 1, 2), (answer, line)
    assert "Traceback" not in answer.err + answer.out, (answer, line)
    assert data.read_bytes() == line.file, (answer, line)
    after = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert not [name for name in after if ".part" in name], (after, line)
    if answer.code:
        told = words[0] == "recommend" and "--json" not in words  # what columns hold, before the reason why none can be used
        assert after == [data.name] and (told or not answer.out.strip()), (answer, line)
        if answer.code == 1:
            _check_refusal(answer, line)
        record_property("command lines", "refused" if answer.code == 1 else "wrong usage")
        return
    assert "error: " not in answer.err, (answer, line)
    for word in words:
        if word.startswith(str(tmp_path)):
            assert Path(word).exists(), (word, answer, line)
    record_property("command lines", "done")
    if "--json" in words:
        assert answer.out.isascii(), (answer, line)
        told = json.loads(answer.out, parse_constant=_no_constants)
        if words[0] == "fit":
            _check_fit(told, tmp_path, line, capsys)


def test_lines_are_of_all_kinds() -> None:
    """Every command, and every damage to a file, comes several times."""
    lines = [_line(seed) for seed in range(LINES)]
    commands = [line.words[0] for line in lines]
    assert min(commands.count(command) for command in ("fit", "tree", "recommend", "datasets", "compare", "evidence")) >= 5
    assert len({line.file for line in lines}) > 0.9 * LINES
