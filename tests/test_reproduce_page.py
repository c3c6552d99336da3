"""The page about the reproductions shows what its script makes from the outputs, for every table and figure of the papers."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.reproductions import FOLDER

sys.path.insert(0, str(FOLDER))

import common  # noqa: E402
import page  # noqa: E402
import papers  # noqa: E402
import runs  # noqa: E402
from verdict_lines import LINE, OUTCOMES, Verdict, deciding, overall, section, verdicts_in  # noqa: E402

RENEW = "run `python -m examples.reproduce --page`, and commit docs/reproductions.md and README.md"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_page_and_readme_are_those_of_the_outputs() -> None:
    for path, parts in ((page.PAGE, page.parts_of_the_page()), (page.README, page.parts_of_the_readme())):
        text = _text(path)
        assert text == page.with_parts(text, parts), f"the outputs have changed: {RENEW}"
        with pytest.raises(ValueError, match="once each"):
            page.with_parts(text.replace("<!-- end of", "<!--"), parts)


def test_every_table_and_figure_has_a_row() -> None:
    """Counted in the papers."""
    numbers = {papers.HELLER: (1, 8), papers.XU: (0, 8), papers.KURIHARA: (2, 5), papers.RAYKOV: (1, 1), papers.HUANG: (0, 6)}
    expected = [
        (paper, f"{kind} {number}")
        for paper, counts in numbers.items()
        for kind, count in zip(("Table", "Figure"), counts, strict=True)
        for number in range(1, count + 1)
    ]
    assert [(item.paper, item.label) for item in papers.ITEMS] == expected
    rows = [line for line in _text(page.PAGE).splitlines() if re.match(r"\| \w.*\(\d{4}\) \|", line)]
    assert len(rows) == len(expected)
    for line, (paper, label) in zip(rows, expected, strict=True):
        assert line.startswith(f"| {paper} | {label}: ") and len(re.findall(r"(?<!\\)\|", line)) == len(page.HEADS) + 1


def test_every_output_is_linked_once_for_each_figure_it_shows() -> None:
    links = Counter(re.findall(r"\]\(\.\./(examples/reproduce/output/[^)]+)\)", _text(page.PAGE)))
    assert all((page.ROOT / link).exists() for link in links)
    names = {Path(link).name for link in links}
    made = {path.name for path in page.OUTPUT.iterdir() if path.is_file()} - {runs.STATE}
    assert made - names == {"map_dp_sizes.csv"}, "data of the figure beside it"
    assert links["examples/reproduce/output/bhc_figure8.png"] == 1


def test_verdicts_are_counted_as_the_outputs_state_them() -> None:
    """No line of an output that gives an outcome is overlooked, each output has some, and all are of the papers' sizes."""
    for path in sorted(page.OUTPUT.glob("*.txt")):
        text = _text(path)
        if path.name.startswith(("bhmc_truth", "bhmc_modes")):  # experiments of ours, without claims
            assert not verdicts_in(text.splitlines())
            continue
        stated = [line for line in text.splitlines() if re.search(rf"(?::|^ +) ({'|'.join(OUTCOMES)})\b", line, re.I)]
        assert stated and all(LINE.fullmatch(line.strip()) for line in stated), path.name
        ours = sum("not the paper's: " in line for line in stated)
        assert len(verdicts_in(text.splitlines())) == len(stated) - ours > 0, path.name
        assert "small size" not in text and "sizes: quick" not in text
    for item in papers.ITEMS:
        assert bool(item.texts) == (page.outcome(item) != page.ILLUSTRATION)
        assert page.outcome(item) in (page.ILLUSTRATION, page.NOT_RUN) or page.claims(item)


@pytest.mark.parametrize("outcome", [common.REPRODUCES, common.PARTLY, common.DIFFERS, common.OPEN, True, False])
def test_lines_that_reports_write_are_read(outcome: str | bool) -> None:
    line = common.verdict_line("set I: the bound is tight: p(D|T)", outcome, "gap 0.1 ± 0.2; 3 of 4")
    written = {True: common.REPRODUCES, False: common.DIFFERS}.get(outcome, outcome)  # type: ignore[call-overload]
    assert verdicts_in([line]) == [Verdict("set I: the bound is tight: p(D|T)", str(written), "gap 0.1 ± 0.2; 3 of 4")]
    assert not verdicts_in([common.verdict_line(f"{common.OURS}: it is faster", outcome, "2 times")])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["- claim: it holds", "  does not reproduce: in 2 of 3 cases"], ("it holds", "does not reproduce", "in 2 of 3 cases")),
        (["- the four are nearer:", "    A - B = +1 ± 2: reproduces"], ("the four are nearer: A - B", "reproduces", "+1 ± 2")),
        (["- it is worse:", "    reproduces: in 2 cells, than B,"], ("it is worse", "reproduces", "in 2 cells, than B")),
        (["  A is best: DOES NOT REPRODUCE; 0.1 (paper 2)"], ("A is best", "does not reproduce", "0.1 (paper 2)")),
        (["  A is best: not decided, below 2 errors; 0.1"], ("A is best", "not decided", "0.1")),
        (["  A is best: not decided, below 2 errors"], ("A is best", "not decided", "below 2 errors")),
        (["  A - B = +1 ± 2: not decided, below 2 errors"], ("A - B", "not decided", "+1 ± 2")),
        (["  correlation 0.5; strong: in part"], ("strong", "partly", "correlation 0.5")),
        (["Claim: BHC is purer: reproduces"], ("BHC is purer", "reproduces", "")),
        (["- a heading:", "other text", "    A: reproduces"], ("A", "reproduces", "")),
    ],
)
def test_verdicts_as_scripts_word_them(lines: list[str], expected: tuple[str, str, str]) -> None:
    assert verdicts_in(lines) == [Verdict(*expected)]


@pytest.mark.parametrize(
    "line", ["what reproduces is below", "A: yes; +1", "- ours, not the paper's: A: reproduces; 1", "- not in the paper: holds"]
)
def test_other_lines_are_no_verdicts(line: str) -> None:
    assert not verdicts_in([line])


def test_outcome_of_several_claims() -> None:
    def of(*outcomes: str) -> tuple[str, str]:
        found = [Verdict(str(place), outcome, "") for place, outcome in enumerate(outcomes)]
        return overall(found), deciding(found).claim

    yes, no, part, undecided = "reproduces", "does not reproduce", "partly", "not decided"
    assert of(yes, yes) == (yes, "0") and of(no, no) == (no, "0") and of(undecided) == (undecided, "0")
    assert of(yes, undecided, no) == ("partly", "2") and of(yes, undecided) == ("partly", "1")
    assert of(undecided, no) == (no, "1") and of(part, undecided) == ("partly", "0")


def test_section_of_a_figure() -> None:
    lines = ["title", "Figures 5 and 7: documents", "a", "Figure 6: digits", "b", "", "Figure 8: toys", "c"]
    assert section(lines, 5) == section(lines, 7) == lines[1:3] and section(lines, 6) == lines[3:6]
    assert section(lines, 8) == lines[6:] and section(lines, 4) == [] and section(["title", "b"], 4) == ["title", "b"]


def test_the_page_follows_the_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another verdict, another number, and without a text."""
    copied = tmp_path / "examples" / "reproduce" / "output"
    shutil.copytree(page.OUTPUT, copied)
    monkeypatch.setattr(page, "OUTPUT", copied)
    monkeypatch.setattr(page, "ROOT", tmp_path)
    before, summary = page.table(), page.summary()
    item = next(item for item in papers.ITEMS if (item.paper, item.label) == (papers.RAYKOV, "Figure 1"))
    assert page.outcome(item) == "reproduces"
    path = copied / "map_dp_figure1.txt"
    text = _text(path)
    claim = "Gibbs-MAP misses some too: reproduces; "
    assert claim in text
    path.write_text(text.replace(claim, claim.replace("reproduces; ", "not decided; 12345 ")), encoding="utf-8")
    assert page.outcome(item) == "partly" and "not decided, 12345" in page.table() and page.summary() != summary
    path.unlink()
    assert page.outcome(item) == page.NOT_RUN and page.row(item)[-1] == "–"
    path.write_text(text, encoding="utf-8")
    assert page.table() == before
    # headings do not matter where claims are chosen by their wording
    path = copied / "trees_figures5_6.txt"
    path.write_text("Figure 6: densities\n" + _text(path), encoding="utf-8")
    assert page.table() == before


def test_the_sentence_counts_all_rows() -> None:
    numbers = [int(number) for number in re.findall(r"\d+", page.summary())]
    assert numbers[0] == len(papers.ITEMS) == numbers[1] + numbers[2] and sum(numbers[3:]) == numbers[2]
    assert page.summary() in _text(page.README) and page.summary() in _text(page.PAGE)
