"""Claims, their outcomes and the numbers that decide them, read from the outputs of the scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

OUTCOMES = {
    "reproduces": "reproduces",
    "in part": "partly",
    "partly": "partly",
    "does not reproduce": "does not reproduce",
    "not decided": "not decided",
}
"""As written, in any case, and as counted."""

LINE = re.compile(rf"(?:- )?(?:claim: )?(?:(?P<claim>.+?): )?(?P<outcome>{'|'.join(OUTCOMES)})(?P<rest>[,;:].*|$)", re.I)
CLAIM = re.compile(r"- (?:claim: )?(.+?):?$")
FIGURES = re.compile(r"Figures? (\d+)(?:,? (?:and |to )?(\d+))?\b")
NOT_THE_PAPERS = re.compile(r"(?:ours, )?not (?:in the paper|the paper's)", re.I)


class Verdict(NamedTuple):
    """A claim of a paper, its outcome (a value of `OUTCOMES`), and the number that decides it, or an empty string."""

    claim: str
    outcome: str
    number: str


def verdicts_in(lines: Sequence[str]) -> list[Verdict]:
    """All verdicts on claims of the paper.

    A verdict is a line ``- claim: outcome; number``, or a line ``outcome: number`` below a line ``- claim: claim``. Claims may
    be grouped below a line that begins with ``-`` and ends with a colon.
    """
    found, above = [], ""
    for line in lines:
        match = LINE.fullmatch(line.strip())
        if match is None:
            heading = CLAIM.fullmatch(line)
            above = heading[1] if heading else above if line.startswith(" ") else ""
            continue
        grouped = above if line.startswith("  ") else ""
        claim = ": ".join(filter(None, [grouped, match["claim"]])).removeprefix("Claim: ")
        number = match["rest"].strip(",;: ")
        reason = match["rest"].startswith(",")  # and then the number, unless it is in the claim
        if reason and "; " in number:
            number = number.partition("; ")[2]
        elif (reason or not number) and " = " in claim:
            claim, _, number = claim.partition(" = ")
        elif not number and "; " in claim:
            number, _, claim = claim.rpartition("; ")
        if claim and not NOT_THE_PAPERS.match(claim):
            found.append(Verdict(claim, OUTCOMES[match["outcome"].lower()], number))
    return found


def section(lines: Sequence[str], figure: int) -> list[str]:
    """Lines of one figure, from its heading to that of another; all lines of an output without such headings.

    A heading begins with the number: "Figure 3: ..." or "Figures 5 and 7: ...".
    """
    if not any(FIGURES.match(line) for line in lines):
        return list(lines)
    kept, inside = [], False
    for line in lines:
        heading = FIGURES.match(line)
        if heading:
            inside = str(figure) in heading.groups()
        if inside:
            kept.append(line)
    return kept


def overall(verdicts: Sequence[Verdict]) -> str:
    """One outcome for all claims: "partly" unless they agree, "not decided" only if none is."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if len(outcomes) == 1:
        return outcomes.pop()
    return "does not reproduce" if outcomes == {"does not reproduce", "not decided"} else "partly"


def deciding(verdicts: Sequence[Verdict]) -> Verdict:
    """The first claim that fails, else the first that is undecided, else the first."""
    order = ["does not reproduce", "partly", "not decided", "reproduces"]
    return min(verdicts, key=lambda verdict: order.index(verdict.outcome))
